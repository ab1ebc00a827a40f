#!/usr/bin/env python3
"""On a machine with a GPU: what real programs get done in their slices, alone and beside each other.

    unshare --mount python3 bench/gpu/beside.py --library libsoftmig.so --monitor softmig-monitor --prolog softmig-prolog --out FOLDER
        [--mixes N,N,...] [--pasts N,N,...] [--seconds 4] [--budget SECONDS] [--mode hard|soft] [--turns N]
        [--preload EXTRA.so] [--only plain|softmig|pasts] [--revision TEXT]
    python3 bench/gpu/beside.py --list
    python3 bench/gpu/beside.py --report bench/results

The first as root, in a mount namespace of its own, because it writes what an installed node has in /etc and /var/run. Needs nvcc,
PyTorch, transformers, JAX and CuPy, all readable by every user. No other program may use the GPU meanwhile. Adds to
FOLDER/gpu-beside.json after each measurement, and measures only what is missing there: it can be stopped, and go on later; what
failed is tried again. After all mixes come those whose programs have a past; each has its own mode. --turns runs the mixes N
times with softmig and without it in turns instead. --preload adds a library to the programs with softmig, or with --only plain
to those without. The third makes the page from the figures.
"""
import argparse
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "beside"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True


def main():
    arguments = argparse.ArgumentParser()
    for name in ("library", "monitor", "prolog", "out", "preload", "report"):
        arguments.add_argument(f"--{name}", type=pathlib.Path)
    arguments.add_argument("--mixes", default="", help="numbers, separated by commas")
    arguments.add_argument("--pasts", default="", help="numbers, separated by commas")
    arguments.add_argument("--seconds", type=float, default=4, help="that a mix is measured")
    arguments.add_argument("--budget", type=float, default=1e9, help="start no programs after so many seconds")
    arguments.add_argument("--turns", type=int, default=0)
    arguments.add_argument("--mode", choices=("hard", "soft"), default="hard", help="of the slices")
    arguments.add_argument("--only", choices=("plain", "softmig", "pasts"))
    arguments.add_argument("--revision", default="an unknown revision", help="of the library, for the page")
    arguments.add_argument("--list", action="store_true")
    options = arguments.parse_args()
    import mixes
    chosen = mixes.chosen(options.mixes) if options.only != "pasts" else []
    is_all = not options.only and not options.mixes and not options.turns
    pasts = mixes.chosen(options.pasts, mixes.PASTS) if is_all or options.only == "pasts" else []
    if options.list:
        print(*(f"{number}: {mixes.title(mix)}" for number, mix in chosen), sep="\n")
        return print(*(f"past {number}: {kind}, {mode}, {mixes.title(mix)}" for number, (kind, mode, mix) in pasts), sep="\n")
    if options.report:
        import table
        return table.write(options.report)
    with_softmig = options.only != "plain"
    if not options.out or with_softmig and not (options.library and options.monitor and options.prolog):
        arguments.error("give --library, --monitor, --prolog and --out (--out alone with --only plain), or --report FOLDER")
    from figures import Figures, this_machine
    from machine import machine
    from measure import measure, turns
    from node import Node
    from programs import Stage
    figures = Figures(options.out, options.budget, this_machine())
    figures.about(machine=machine(), seconds=options.seconds, mode=options.mode, revision=options.revision)
    work, node = pathlib.Path(tempfile.mkdtemp(dir="/tmp")), None
    # Other users run what is in it.
    work.chmod(0o755)
    try:
        all_mixes = [mix for _, mix in chosen] + [mix for _, (*_, mix) in pasts]
        stage = Stage(work, {name for mix in all_mixes for name, *_ in mix})
        if with_softmig:
            library = pathlib.Path(shutil.copy(options.library, work / "libsoftmig.so"))
            node = Node(library, options.prolog.resolve(), options.monitor.resolve(), work)
            node.start()
        for number, mix in chosen:
            (turns if options.turns else measure)(figures, stage, node, number, mix, options)
        import pasts as with_a_past
        for number, past in pasts:
            with_a_past.measure(figures, stage, node, number, past, options)
    finally:
        if node:
            print("the monitor says:", *node.said(), sep="\n  ", flush=True)
            node.stop()
        shutil.rmtree(work, ignore_errors=True)
    print(f"done, {time.monotonic() - figures.begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
