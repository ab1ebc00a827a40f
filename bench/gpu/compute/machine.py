"""The machine: what it is, how programs are built on it, and how one is run that may hang."""
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import time


def driver_library():
    """The path of libcuda.so.1."""
    found = subprocess.run("ldconfig -p | sed -n 's/.*=> \\(.*libcuda.so.1\\)$/\\1/p' | head -1", shell=True, capture_output=True, text=True).stdout.strip()
    return os.environ.get("BENCH_LIBCUDA") or found or next(iter(map(str, pathlib.Path("/usr/local/nvidia").rglob("libcuda.so.1"))), "")


def include_folder():
    """Where cuda.h is."""
    if "BENCH_CUDA_INCLUDE" in os.environ:
        return os.environ["BENCH_CUDA_INCLUDE"]
    cuda = pathlib.Path(shutil.which("nvcc")).resolve().parent.parent
    return next(p for p in [cuda / "include", cuda / "targets/x86_64-linux/include"] if (p / "cuda.h").exists())


def compile_c(source, program):
    subprocess.run(["cc", "-O2", f"-I{include_folder()}", source, "-o", program, *os.environ.get("BENCH_OBJECTS", "").split(), driver_library(), "-lpthread", "-ldl", "-lm"], check=True)
    return program


def gpus():
    """The folders of the driver's GPUs."""
    return sorted(pathlib.Path("/proc/driver/nvidia/gpus").glob("*"))


def machine():
    query = "name,driver_version,memory.total,memory.reserved"
    try:
        smi = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True).stdout
    except OSError:
        smi = "none, none, none"
    return {"gpu": smi.strip(), "kernel": platform.release(), "cpus": os.cpu_count(), "libc": " ".join(platform.libc_ver()), "date": time.strftime("%Y-%m-%d")}


def parsed(text):
    """The lines that are JSON, and the last of the others."""
    lines, other = [], []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            other.append(line[:300])
    return lines, other[-10:]


def lines_of(command, limit, environment=None):
    """Runs a command in a session of its own and ends what is left of it after its time: status, JSON lines, others."""
    child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        # To the end of the output, which is when the last of its processes is gone.
        out, _ = child.communicate(timeout=limit)
        status = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
        status = "timeout"
    return status, *parsed(out.decode(errors="replace"))
