#!/usr/bin/env python3
"""On a machine with a GPU: the whole chain at once, from sbatch on a real Slurm to nothing left.

    bench/gpu/chain/packages.sh DEBS; cargo xtask stage
    unshare --mount python3 bench/gpu/chain.py --stage target/stage --packages DEBS --out FOLDER [--into-root]
    python3 bench/gpu/chain.py --report bench/results

As root, in a mount namespace of its own. Slurm's packages go to a layer over /usr; --into-root puts them into /usr itself, on a
machine that is thrown away or cannot mount layers. No other program may use the GPU meanwhile. Each line that is printed is a
check; the exit status is 1 if one failed. Adds nothing up: a run writes FOLDER/gpu-chain.json anew, and gpu-chain.log. The
last form makes the page. --prepare runs a script once all is in place, to try this where there is no GPU: it makes
what a driver makes, libcuda.so.1 and libnvidia-ml.so.1, nvidia-smi, /dev/nvidia*, /proc/driver/nvidia.
"""
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "chain"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True


def main():
    from options import parse, place_for
    options = parse(__doc__, seconds=(9.0, "of work, the first of which does not count"))
    from held import Held, page
    if options.report:
        return page(options.report)
    from flow import Chain
    from machine import machine
    begun = time.monotonic()
    place = place_for(options, "chain")
    held, chain = None, None
    try:
        place.furnish()
        held = Held(options.out, {"machine": machine(), "revision": options.revision, "slurm": "Slurm", "groups": None})
        chain = Chain(held, place.work, options.seconds)
        chain.run()
    except Exception as error:
        at = [f"{pathlib.Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-4:]]
        if held:
            held.check("the run itself", "goes to its end", False, f"{type(error).__name__}: {error} at {', '.join(at)}"[:800], "no exception")
        else:
            traceback.print_exc()
    finally:
        place.end(chain, options.out / "gpu-chain.log")
    if not held:
        return 1
    held.kept["seconds"] = round(time.monotonic() - begun, 1)
    held.write()
    print(f"{len(held.kept['checks']) - len(held.failed())} of {len(held.kept['checks'])} checks hold, {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if held.failed() or not held.kept["checks"] else 0


if __name__ == "__main__":
    sys.exit(main())
