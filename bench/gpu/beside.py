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
import contextlib
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "beside"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

import runner


def main():
    options = runner.parse(
        __doc__, ["library", "monitor", "prolog", "preload"], [],
        mixes=runner.number("", "numbers, separated by commas"),
        pasts=runner.number("", "numbers, separated by commas"),
        seconds=runner.number(4.0, "that a mix is measured"),
        budget=runner.BUDGET,
        turns=runner.number(0, "rounds with softmig and without it, in turns"),
        mode={"choices": ("hard", "soft"), "default": "hard", "help": "of the slices"},
        only={"choices": ("plain", "softmig", "pasts")},
        list=runner.flag(),
    )
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
    if with_softmig and not (options.library and options.monitor and options.prolog):
        sys.exit("give --library, --monitor and --prolog too, or --only plain")
    from figures import Figures, this_machine
    from machine import machine
    from measure import measure, turns
    from node import Node
    from programs import Stage
    figures = Figures(options.out, options.budget, this_machine())
    figures.about(machine=machine(), seconds=options.seconds, mode=options.mode, revision=options.revision)
    node = None
    with runner.work_folder() as work, contextlib.ExitStack() as at_end:
        all_mixes = [mix for _, mix in chosen] + [mix for _, (*_, mix) in pasts]
        stage = Stage(work, {name for mix in all_mixes for name, *_ in mix})
        if with_softmig:
            library = pathlib.Path(shutil.copy(options.library, work / "libsoftmig.so"))
            node = Node(library, options.prolog.resolve(), options.monitor.resolve(), work)
            at_end.callback(end, node)
            node.start()
        for number, mix in chosen:
            (turns if options.turns else measure)(figures, stage, node, number, mix, options)
        import pasts as with_a_past
        for number, past in pasts:
            with_a_past.measure(figures, stage, node, number, past, options)
    print(f"done, {time.monotonic() - figures.begun:.0f} s", flush=True)


def end(node):
    print("the monitor says:", *node.said(), sep="\n  ", flush=True)
    node.stop()


if __name__ == "__main__":
    main()
