#!/usr/bin/env python3
"""On a machine with a GPU: what a user gets who runs past the library in a job of a real Slurm, for how long, and what it costs a neighbour.

    bench/gpu/chain/packages.sh DEBS; cargo xtask stage
    unshare --mount python3 bench/gpu/escape.py --stage target/stage --packages DEBS --out FOLDER [--ways WORD,...] [--budget SECONDS]
    python3 bench/gpu/escape.py --report bench/results

As root, in a mount namespace of its own, like chain.py. A job with half a GPU is busy throughout. In a job with a quarter a user
tries each way past the library: first with `[monitor] end = "no"`, then with `end = "all"` and no grace, then with the device
gate. Needs nvcc and PyTorch. Writes FOLDER/gpu-escape.json and gpu-escape.log; the second form makes the page.
"""
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "escape"), str(HERE / "chain"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True


def main():
    from options import parse, place_for
    options = parse(
        __doc__,
        ways=("", "words, separated by commas: the ways whose names hold one"),
        budget=(1e9, "begin no way after so many seconds"),
    )
    import record
    if options.report:
        return record.page(options.report)
    from machine import machine
    from tries import Tries
    place = place_for(options, "escape")
    tries, kept = None, record.Record(options.out, {"machine": machine(), "revision": options.revision})
    try:
        place.furnish()
        tries = Tries(kept, place.work, [word for word in options.ways.split(",") if word])
        tries.run(time.monotonic() + options.budget)
    except Exception:
        kept.add("error", traceback.format_exc()[-1200:])
        traceback.print_exc()
    finally:
        place.end(tries, options.out / "gpu-escape.log")
    return 1 if "error" in kept.kept else 0


if __name__ == "__main__":
    sys.exit(main())
