#!/usr/bin/env python3
"""On a machine with a GPU: what each way of getting device memory takes, as NVML and cuMemGetInfo tell it.

    python3 bench/gpu/memory_facts.py --out FOLDER [--include FOLDER] [--only NAME...]

Needs a C compiler and CUDA's headers; PyTorch, JAX and the headers and loaders of OpenCL, Vulkan and video (below
--include and on the loader's path) where those are to be measured. Runs each experiment of memory_facts.c in a process of
its own, with a time limit of its own, and writes FOLDER/gpu-memory-facts.json, which belongs to bench/results; what it
means is in docs/gpu-notes.md. Nobody else may use the GPU meanwhile.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20

# Seconds for one experiment, unless it says otherwise.
LIMIT = 20

# Name in the result: words for memory_facts, then what differs from the usual.
EXPERIMENTS = {
    "about": ["about"],
    "linear_sizes": ["linear_sizes"],
    "linear_keep": ["linear_keep"],
    "linear_random, 1 B to 6 MiB": ["linear_random", "1", "1", str(6 * MIB), "3000", "100"],
    "linear_random, 1 B to 6 MiB, other seed": ["linear_random", "2", "1", str(6 * MIB), "3000", "100"],
    "linear_random, 1 B to 1 MiB": ["linear_random", "3", "1", str(MIB), "4000", "100"],
    "linear_random, 200 KiB to 3 MiB": ["linear_random", "4", str(200 << 10), str(3 * MIB), "3000", "100"],
    "linear_random, 1 MiB to 100 MiB": ["linear_random", "5", str(MIB), str(100 * MIB), "2000", "100"],
    "linear_random, pitched": ["linear_random", "6", "1000", str(20 * MIB), "2000", "100", "pitch"],
    "linear_trace": ["linear_trace", "{work}/trace"],
    "pitch": ["pitch"],
    "context_primary": ["context_primary"],
    "context_primary, lazy": ["context_primary"],
    "context_primary, eager": ["context_primary"],
    "context_more": ["context_more"],
    "context_green": ["context_green"],
    "context_streams": ["context_streams"],
    "managed": ["managed"],
    "managed_sizes": ["managed_sizes"],
    "pool_default": ["pool_default"],
    "pool_pressure": ["pool_pressure"],
    "pool_growth": ["pool_growth"],
    "pool_steps": ["pool_steps"],
    "pool_random, kept": ["pool_random", "1", "-1", "100"],
    "pool_random, kept, small": ["pool_random", "2", "-1", "4"],
    "pool_random, not kept": ["pool_random", "3", "0", "100"],
    "pool_random, 1 GiB kept": ["pool_random", "4", "1024", "50"],
    "pool_made": ["pool_made"],
    "pool_costs": ["pool_costs"],
    "capture": ["capture"],
    "mapped_life": ["mapped_life"],
    "mapped_handle": ["mapped_handle"],
    "mapped_fd": ["mapped_fd"],
    "mapped_host": ["mapped_host"],
    "mapped_no_context": ["mapped_no_context"],
    "shared ipc, exporter frees": ["shared", "ipc", "frees"],
    "shared ipc, exporter dies": ["shared", "ipc", "dies"],
    "shared ipc, 1000 B": ["shared", "ipc_small", "frees"],
    "shared vmm, exporter frees": ["shared", "vmm", "frees"],
    "shared vmm, exporter dies": ["shared", "vmm", "dies"],
    "shared pool, exporter frees": ["shared", "pool", "frees"],
    "shared pool, exporter dies": ["shared", "pool", "dies"],
    "arrays": ["arrays"],
    "arrays_many": ["arrays_many"],
    "mipmaps": ["mipmaps"],
    "graph_nodes": ["graph_nodes"],
    "graph_captured": ["graph_captured"],
    "graph_two": ["graph_two"],
    "graph_kept": ["graph_kept"],
    "graph_no_room": ["graph_no_room"],
    "graph_large": ["graph_large"],
    "limit_heap": ["limit_heap"],
    "limit_others": ["limit_others"],
    "limit_stack": ["limit_stack"],
    "local_frames": ["local_frames"],
    "local_graph": ["local_graph"],
    "module_global": ["module_global"],
    "module_global, eager": ["module_global"],
    "library_global": ["library_global"],
    "library_global, eager": ["library_global"],
    "host": ["host"],
    "pageable": ["pageable"],
    "pair_times": ["pair_times"],
    "cost_nvml": ["cost_nvml"],
    "seen_from": ["seen_from"],
    "fork": ["fork"],
    "death, 1 GiB": ["death", "30", "map", "before", "0", "1"],
    "death, 8 threads that allocate": ["death", "30", "map", "before", "8", "1"],
    "death, 100 GiB": ["death", "8", "map", "before", "0", "100"],
    "death, descriptor kept open": ["death", "10", "open", "before", "0", "1"],
    "death, locked after the context": ["death", "10", "map", "after", "0", "1"],
    "death, high descriptor": ["death", "10", "high", "before", "0", "1"],
    "death, high descriptor after the context": ["death", "30", "high", "after", "0", "1"],
    "death, high descriptor after the context, 8 threads that allocate": ["death", "30", "high", "after", "8", "1"],
    "death, high descriptor after the context, 100 GiB": ["death", "8", "high", "after", "0", "100"],
    "death, 1 GiB, a survivor allocates": ["death", "15", "map", "before", "0", "1", "allocate"],
    "death, 100 GiB, a survivor allocates": ["death", "8", "map", "before", "0", "100", "allocate"],
    "death, high descriptor, 100 GiB, a survivor allocates": ["death", "8", "high", "after", "0", "100", "allocate"],
    "opencl": ["opencl"],
    "video": ["video"],
    "vulkan": ["vulkan"],
}
LIMITS = {"death": 60, "torch": 90, "jax": 90}
LOADING = {"lazy": "LAZY", "eager": "EAGER"}

# What a framework's process holds by NVML, and what its allocator knows of.
FRAMEWORK = r"""
import json, os, pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
def own():
    return sum(p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device) if p.pid == os.getpid())
def say(at, knows):
    used = own()
    print(json.dumps({"at": at, "nvml": used, "allocator": knows, "else": used - knows}), flush=True)
"""
TORCH = FRAMEWORK + r"""
import torch
def look(at):
    torch.cuda.synchronize()
    say(at, torch.cuda.memory_reserved())
torch.zeros(1, device="cuda"); look("first tensor")
a = torch.randn(4096, 4096, device="cuda"); look("randn")
b = a @ a; look("float32 matmul")
c = a.half() @ a.half(); look("half matmul")
x = torch.randn(32, 64, 56, 56, device="cuda"); w = torch.randn(64, 64, 3, 3, device="cuda")
y = torch.nn.functional.conv2d(x, w, padding=1); look("convolution")
torch.linalg.solve(a[:512, :512], a[:512, :1]); look("linear solve")
torch.fft.fft(a); look("fft")
m = torch.nn.TransformerEncoderLayer(512, 8, batch_first=True).cuda()
m(torch.randn(8, 128, 512, device="cuda")).sum().backward(); look("transformer step")
del a, b, c, x, w, y, m
torch.cuda.empty_cache(); look("empty_cache")
"""
JAX = FRAMEWORK + r"""
import jax, jax.numpy as jnp
def look(at):
    s = jax.devices()[0].memory_stats() or {}
    say(at, s.get("pool_bytes", s.get("bytes_reserved", 0)) or 0)
a = jnp.ones((4096, 4096)); a.block_until_ready(); look("first array")
b = a @ a; b.block_until_ready(); look("matmul")
print(json.dumps({"at": "memory_stats", "stats": {k: v for k, v in (jax.devices()[0].memory_stats() or {}).items()}}))
"""


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--include", type=pathlib.Path)
    arguments.add_argument("--only", nargs="*")
    options = arguments.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    program = build(work, options.include)
    options.out.mkdir(parents=True, exist_ok=True)
    commands = {name: [str(program), *(word.format(work=work) for word in words)] for name, words in EXPERIMENTS.items()}
    for name, script in [("torch", TORCH), ("torch, expandable segments", TORCH), ("jax", JAX)]:
        commands[name] = [sys.executable, "-c", script]
    result = {"machine": machine(), "libraries": libraries(), "experiments": {}}
    for name, command in commands.items():
        if options.only and name.split(",")[0] not in options.only and name not in options.only:
            continue
        seen = result["experiments"][name] = experiment(name, command)
        print(f"{name}: status {seen['status']}, {seen['seconds']} s, {len(seen['lines'])} lines", *seen["other"][-2:], flush=True)
        # After each, so that nothing is lost.
        (options.out / "gpu-memory-facts.json").write_text(written(result))
    if (work / "trace").exists():
        shutil.copy(work / "trace", options.out / "linear-trace.txt")
    shutil.rmtree(work)


def build(work, more):
    cuda = pathlib.Path(shutil.which("nvcc")).resolve().parent.parent
    include = next(p for p in [cuda / "include", cuda / "targets/x86_64-linux/include"] if (p / "cuda.h").exists())
    driver = subprocess.run("ldconfig -p | sed -n 's/.*=> \\(.*libcuda.so.1\\)$/\\1/p' | head -1", shell=True, capture_output=True, text=True).stdout.strip()
    driver = driver or next(iter(map(str, pathlib.Path("/usr/local/nvidia").rglob("libcuda.so.1"))), "")
    program = work / "memory_facts"
    extra = [f"-I{more}"] if more else []
    subprocess.run(["cc", "-O2", f"-I{include}", *extra, HERE / "memory_facts.c", "-o", program, driver, "-lpthread", "-ldl", "-lm"], check=True)
    return program


def experiment(name, command):
    """Runs one in a session of its own, and ends what is left of it after its time."""
    environment = dict(os.environ)
    environment.pop("CUDA_MODULE_LOADING", None)
    variant = name.rpartition(", ")[2]
    if variant in LOADING:
        environment["CUDA_MODULE_LOADING"] = LOADING[variant]
    if variant == "expandable segments":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    begin = time.monotonic()
    child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        # To the end of the output, which is when the last of its processes is gone.
        out, _ = child.communicate(timeout=LIMITS.get(name.split(",")[0], LIMIT))
        status = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
        status = "timeout"
    lines, other = [], []
    for line in out.decode(errors="replace").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            other.append(line[:300])
    return {"status": status, "seconds": round(time.monotonic() - begin, 2), "lines": lines, "other": other[-10:]}


def machine():
    query = "name,driver_version,memory.total,memory.reserved"
    smi = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True).stdout
    return {"gpu": smi.strip(), "kernel": platform.release(), "cpus": os.cpu_count(), "libc": " ".join(platform.libc_ver()), "date": time.strftime("%Y-%m-%d")}


def libraries():
    """Which of the driver's libraries there are."""
    wanted = ("libcuda.", "libnvidia", "libnvcuvid", "libnvoptix", "libOpenCL", "libvulkan", "libEGL", "libGL", "libvdpau")
    cached = [line.split()[0] for line in subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines() if line.strip()]
    return sorted({name for name in [*cached, *(p.name for p in pathlib.Path("/usr/local/nvidia").rglob("*.so*"))] if name.startswith(wanted)})


def written(result):
    """JSON with a line for each step."""
    head = {key: value for key, value in result.items() if key != "experiments"}
    parts = []
    for name, seen in result["experiments"].items():
        facts = {key: value for key, value in seen.items() if key != "lines"}
        lines = ",\n".join("   " + json.dumps(line) for line in seen["lines"])
        parts.append(f'  {json.dumps(name)}: {json.dumps(facts)[:-1]}, "lines": [\n{lines}\n  ]}}')
    return json.dumps(head, indent=1)[:-2] + ',\n "experiments": {\n' + ",\n".join(parts) + "\n }\n}\n"


if __name__ == "__main__":
    main()
