#!/usr/bin/env python3
"""On a machine with a GPU: what each way of getting device memory takes, as NVML and cuMemGetInfo tell it.

    python3 research/memory_facts.py --out FOLDER [--include FOLDER] [--only NAME...]

Needs a C compiler and CUDA's headers; PyTorch, JAX and the headers and loaders of OpenCL, Vulkan and video (below
--include and on the loader's path) where those are to be measured. Runs each experiment of memory_facts.c in a process of
its own, with a time limit of its own, and writes FOLDER/gpu-memory-facts.json, which belongs to research/results; what it
means is in research/gpu-memory.md. No other program may use the GPU meanwhile.
"""
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True

from facts import find_out, options

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
    "linear_trace": ["linear_trace", "{out}/linear-trace.txt"],
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
    "pool_gone": ["pool_gone"],
    "pool_costs": ["pool_costs"],
    "capture": ["capture"],
    "mapped_life": ["mapped_life"],
    "mapped_handle": ["mapped_handle"],
    "mapped_fd": ["mapped_fd"],
    "dma_buf": ["dma_buf"],
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
    "module_managed": ["module_managed"],
    "module_managed, eager": ["module_managed"],
    "managed_small": ["managed_small"],
    "library_managed": ["library_managed"],
    "library_managed, eager": ["library_managed"],
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
    "ipc_names": ["ipc_names"],
    "attributes": ["attributes"],
    "nobody": ["nobody"],
    "nobody_tiles": ["nobody_tiles"],
    "nobody_forked": ["nobody_forked"],
    "opencl": ["opencl"],
    "video": ["video"],
    "vulkan": ["vulkan"],
}
LIMITS = {"death": 60, "nobody_forked": 90, "torch": 90, "jax": 90}
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
    given = options("--include")
    if given.include:
        # The compiler looks there after what it is told.
        os.environ["CPATH"] = str(given.include)
    scripts = {"torch": TORCH, "torch, expandable segments": TORCH, "jax": JAX}
    commands = EXPERIMENTS | {name: [sys.executable, "-c", script] for name, script in scripts.items()}
    find_out("memory", given, commands, lambda name: LIMITS.get(name.split(",")[0], LIMIT), environment, {"libraries": libraries()})


def environment(name):
    """What an experiment gets."""
    own = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    own.pop("CUDA_MODULE_LOADING", None)
    variant = name.rpartition(", ")[2]
    if variant in LOADING:
        own["CUDA_MODULE_LOADING"] = LOADING[variant]
    if variant == "expandable segments":
        own["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return own


def libraries():
    """Which of the driver's libraries there are."""
    wanted = ("libcuda.", "libnvidia", "libnvcuvid", "libnvoptix", "libOpenCL", "libvulkan", "libEGL", "libGL", "libvdpau")
    cached = [line.split()[0] for line in subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines() if line.strip()]
    return sorted({name for name in [*cached, *(p.name for p in pathlib.Path("/usr/local/nvidia").rglob("*.so*"))] if name.startswith(wanted)})


if __name__ == "__main__":
    main()
