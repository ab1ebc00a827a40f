#!/usr/bin/env python3
"""On a machine with a GPU: that the library's memory limit holds on every path, and what it costs.

    unshare --mount python3 bench/gpu/memory.py --library libsoftmig.so --out FOLDER [--quick] [--only PART... [--keep FILE]]
    python3 bench/gpu/memory.py --report bench/results

The first as root, in a mount namespace of its own, because the library is put into /etc/ld.so.preload there. Needs a C
compiler, nvcc and, for those parts, PyTorch, JAX and CuPy. No other program may use the GPU meanwhile. Writes
FOLDER/gpu-memory.json after each part; it belongs to bench/results. The second makes the page beside the figures.
"""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "memory"), str(HERE / "compute")]
sys.dont_write_bytecode = True

import runner
from machine import machine

PROGRAMS = ["watch", "fill", "near", "race", "killed", "costs"]


def main():
    options = runner.parse(
        __doc__, ["library", "keep"], ["library"],
        quick=runner.flag(), only={"nargs": "*", "help": "these parts; --keep has the others"},
    )
    if options.report:
        import report
        return report.write(options.report)
    library = runner.install(options.library)
    # Every user writes into it, too.
    with runner.work_folder(0o777) as work:
        measure(options, library, work)


def measure(options, library, work):
    from parts import PARTS
    from stand import Stand
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


def too_long(*_):
    raise TimeoutError("the part took too long")


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


if __name__ == "__main__":
    main()
