#!/usr/bin/env python3
"""On a machine with a GPU: the figures that softmig shows of slices, against NVML and programs that count their own work.

    bench/gpu/chain/packages.sh DEBS; cargo xtask stage
    unshare --mount python3 bench/gpu/usage.py --stage target/stage --packages DEBS --out FOLDER [--seconds N]
    python3 bench/gpu/usage.py --report bench/results

As root, in a mount namespace of its own, like chain.py. Four jobs of a real Slurm have slices of the GPU: one keeps it busy, one
waits for each kernel, one works for a part of its time, one only holds memory. Writes FOLDER/gpu-usage.json; gpu-usage.log;
gpu-usage-pages.json.gz, the exporter's page of each second; and gpu-usage.txt, what the commands printed. Exit status: 1 if a
check failed. The last form makes the page.
"""
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "usage"), str(HERE / "chain"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True


def main():
    from options import parse, place_for
    options = parse(__doc__, seconds=(75.0, "of work; the slice without work is idle after 60"))
    from held import Held
    if options.report:
        import page
        return page.write(options.report)
    from machine import machine
    from slices import Slices
    place = place_for(options, "usage")
    held, slices = None, None
    try:
        place.furnish()
        held = Held(options.out, {"machine": machine(), "revision": options.revision, "seconds": options.seconds}, "gpu-usage")
        slices = Slices(held, place.work, options.out, options.seconds)
        slices.run()
    except Exception as error:
        traceback.print_exc()
        if held:
            held.check("the run itself", "goes to its end", False, f"{type(error).__name__}: {error}"[:800], "no exception")
    finally:
        place.end(slices, options.out / "gpu-usage.log")
    return 0 if held and held.kept["checks"] and not held.failed() else 1


if __name__ == "__main__":
    sys.exit(main())
