#!/usr/bin/env python3
"""On a machine with a GPU: that the library's memory limit holds on every path, and what it costs.

    unshare --mount python3 bench/gpu/memory.py --library libsoftmig.so --out FOLDER [--quick] [--only PART... [--keep FILE]]
    python3 bench/gpu/memory.py --report bench/results

The first as root, in a mount namespace of its own, because the library is put into /etc/ld.so.preload there. Needs a C
compiler, nvcc and, for those parts, PyTorch, JAX and CuPy. No other program may use the GPU meanwhile. Writes
FOLDER/gpu-memory.json after each part; it belongs to bench/results. The second makes the page beside the figures.
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
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "memory"))
sys.dont_write_bytecode = True

PROGRAMS = ["watch", "fill", "near", "race", "killed", "costs"]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--library", type=pathlib.Path)
    arguments.add_argument("--out", type=pathlib.Path)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--only", nargs="*")
    arguments.add_argument("--keep", type=pathlib.Path, help="a gpu-memory.json whose other parts are kept")
    arguments.add_argument("--revision", default="an unknown revision", help="of the library, for the page")
    arguments.add_argument("--report", type=pathlib.Path)
    options = arguments.parse_args()
    if options.report:
        import report
        return report.write(options.report)
    if not (options.library and options.out):
        arguments.error("give --library and --out, or --report FOLDER")
    from parts import PARTS
    from stand import Stand
    own_preload()
    library = pathlib.Path("/usr/lib/softmig/libsoftmig.so")
    library.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(options.library, library)
    # Every user has to be able to run what is built.
    work = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    work.chmod(0o777)
    options.out.mkdir(parents=True, exist_ok=True)
    build(work)
    stand = Stand(library, work).start()
    result = {"machine": machine(), "quick": options.quick, "parts": {}, "seconds": {}, "revisions": {}}
    if options.keep:
        kept = json.loads(options.keep.read_text())
        result |= {key: kept[key] for key in ("parts", "seconds", "revisions")}
    signal.signal(signal.SIGALRM, too_long)
    for name, part in PARTS.items():
        if options.only and name not in options.only:
            continue
        begin = time.monotonic()
        # A part that hangs must not cost the others.
        signal.alarm(90 if options.quick else 150)
        try:
            result["parts"][name] = part(stand, options.quick)
        except Exception as error:
            result["parts"][name] = {"failed": f"{type(error).__name__}: {error}"[:500], "at": traceback.format_exc().replace(f"{HERE.parent.parent}/", "").splitlines()[-6:]}
        signal.alarm(0)
        result["seconds"][name] = round(time.monotonic() - begin, 1)
        result["revisions"][name] = options.revision
        (options.out / "gpu-memory.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {result['seconds'][name]} s", json.dumps(result["parts"][name])[:250], flush=True)
    stand.watcher.kill()
    shutil.rmtree(work, ignore_errors=True)


def too_long(*_):
    raise TimeoutError("the part took too long")


def own_preload():
    """Makes /etc/ld.so.preload a file of this mount namespace alone."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    preload = pathlib.Path("/etc/ld.so.preload")
    if not preload.exists():
        # Only where there is none: an empty one changes nothing for other processes.
        preload.touch()
    own = pathlib.Path("/tmp/softmig-ld.so.preload")
    own.write_text("")
    subprocess.run(["mount", "--bind", own, preload], check=True)


def build(work):
    cuda = pathlib.Path(shutil.which("nvcc")).resolve().parent.parent
    include = next(p for p in [cuda / "include", cuda / "targets/x86_64-linux/include"] if (p / "cuda.h").exists())
    driver = subprocess.run("ldconfig -p | sed -n 's/.*=> \\(.*libcuda.so.1\\)$/\\1/p' | head -1", shell=True, capture_output=True, text=True).stdout.strip()
    driver = driver or next(iter(map(str, pathlib.Path("/usr/local/nvidia").rglob("libcuda.so.1"))), "")
    running = [subprocess.Popen(["cc", "-O2", f"-I{include}", HERE / "memory" / f"{name}.c", "-o", work / name, driver, "-lpthread", "-ldl", "-lm"]) for name in PROGRAMS]
    running += [subprocess.Popen(["nvcc", "-O2", f"-cudart={runtime}", HERE / "memory" / "runtime.cu", "-o", work / f"runtime_{runtime}"]) for runtime in ("static", "shared")]
    failed = [process.args for process in running if process.wait()]
    if failed:
        print("not built:", *(words[-1] for words in failed), flush=True)


def machine():
    query = "name,driver_version,memory.total,memory.reserved"
    smi = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True).stdout
    return {"gpu": smi.strip(), "kernel": platform.release(), "cpus": os.cpu_count(), "libc": " ".join(platform.libc_ver()), "date": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    main()
