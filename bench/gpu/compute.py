#!/usr/bin/env python3
"""On a machine with a GPU: that jobs get their shares of its time, and what that costs.

    unshare --mount python3 bench/gpu/compute.py --library libsoftmig.so --out FOLDER [--quick|--full [--short]] [--cells WORD,...]
        [--monitor softmig-monitor --prolog softmig-prolog] [--against OTHER.so]... [--budget SECONDS]
    python3 bench/gpu/compute.py --report bench/results

The first as root, in a mount namespace of its own, because it writes what an installed node has in /etc and /var/run. Needs a C
compiler, CUDA's headers, and PyTorch for its part. No other program may use the GPU meanwhile. Adds to
FOLDER/gpu-compute.json after each cell, and measures only what is missing there: it can be stopped, and go on later; what
failed is tried again. --cells takes those whose names hold one of the words; --list names them. The second makes the page and the
plot beside the figures.
"""
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

import runner


def main():
    options = runner.parse(
        __doc__, ["library", "monitor", "prolog"], ["library"],
        against={"type": pathlib.Path, "action": "append", "default": []},
        quick=runner.flag("short cells, and few (the default)"),
        full=runner.flag("the whole table"),
        short=runner.flag("in cells as short as those of the quick form"),
        cells=runner.number("", "words, separated by commas"),
        list=runner.flag(),
        budget=runner.BUDGET,
        again=runner.flag("measure anew what was measured with another revision"),
    )
    if options.report:
        import page
        return page.write(options.report)
    quick = not options.full
    short = quick or options.short
    words = [word.strip() for word in options.cells.split(",") if word.strip()]
    wanted = lambda name: not words or any(word in name.replace(",", "") or word in name for word in words)
    import alone
    if options.list:
        import collectives
        import costs
        import live
        import tenants
        import torch_part
        import two
        return print(*filter(wanted, [*alone.cells(quick), costs.CELL, *tenants.cells(quick), *live.names(), *two.names(), *collectives.names(), *torch_part.names()]), sep="\n")
    from machine import compile_c, machine
    from record import Record
    record = Record(options.out, options.budget, options.revision, options.again)
    record.about(machine=machine(), short=short)
    with runner.work_folder() as work:
        program = compile_c(HERE / "compute" / "work.c", work / "work")
        live_program = compile_c(HERE / "compute" / "live.c", work / "live")
        two_program = compile_c(HERE / "compute" / "two.c", work / "two")
        library = pathlib.Path(shutil.copy(options.library, work / "libsoftmig.so"))
        subjects = [alone.Subject("softmig", library)] + [other(path) for path in options.against]
        controls = alone.Controls(record, program, short)
        alone.measure(record, controls, subjects, wanted, quick)
        import costs
        costs.measure(record, controls, subjects, wanted)
        # In the quick form only where it is asked for.
        extra = wanted if words or not quick else lambda name: False
        node = None
        try:
            if options.monitor and options.prolog:
                import tenants
                from node import Node
                node = Node(library, options.prolog.resolve(), options.monitor.resolve(), work)
                # The monitor measures a GPU when no process is on it.
                controls.end()
                node.start()
                costs.measure_job(record, controls, node, wanted)
                tenants.measure(record, controls, node, wanted, quick)
            import live
            live.measure(record, controls, node, subjects[0], live_program, extra)
            import collectives
            import two
            for part in (two, collectives):
                part.measure(record, controls, node, subjects[0], two_program, extra)
        finally:
            if node:
                print("the monitor says:", *node.said(), sep="\n  ", flush=True)
                node.stop()
        import torch_part
        torch_part.measure(record, subjects, extra)
        controls.end()
    print(f"done, {time.monotonic() - record.begun:.0f} s", flush=True)


def other(path):
    """Another library below the same limit; HAMi-core wants a file to share."""
    import alone
    cache = f"/tmp/{path.stem}-{time.monotonic_ns()}.cache"
    return alone.Subject(path.stem, path.resolve(), {"CUDA_DEVICE_MEMORY_SHARED_CACHE": cache, "CUDA_DEVICE_MEMORY_LIMIT": "100G"})


if __name__ == "__main__":
    main()
