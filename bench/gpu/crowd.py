#!/usr/bin/env python3
"""On a machine with GPUs: what the monitor costs beside as many jobs as fit, first without work and then with it.

    bench/gpu/chain/packages.sh DEBS; cargo xtask stage
    unshare --mount python3 bench/gpu/crowd.py --stage target/stage --packages DEBS --out FOLDER [--seconds N]
    python3 bench/gpu/crowd.py --report bench/results

As root, in a mount namespace of its own, like chain.py. Each part of each GPU is a job of a real Slurm with four processes, each of
which has a context. They wait first; then one of each job works without a pause. Writes FOLDER/gpu-crowd.json and gpu-crowd.log.
Exit status: 1 if a job did not do that. The last form makes the page.
"""
import json
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "usage"), str(HERE / "chain"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

PROCESSES = 4
KERNEL_US = 1000
# Until a phase's figures count.
SETTLES = 5.0


class Crowd:
    def __init__(self, held, work, seconds):
        from machine import compile_c
        from slurm import Monitor, Slurm
        self.held, self.work, self.seconds = held, work, seconds
        self.folder, self.program = work / "jobs", work / "work"
        self.slurm, self.monitor = Slurm(work), None
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        compile_c(HERE / "compute/work.c", self.program)
        self.slurm.configure()
        if not self.slurm.start():
            raise RuntimeError(f"the node is {self.slurm.state()}")
        from place import sh
        sh("softmig", "install", "--hook", "--mode", "enforce")
        self.monitor = Monitor(work)

    def run(self):
        from client import Client
        from slurm import until
        from watch import Exporter, Page
        gpus, parts = len(self.slurm.devices), self.slurm.shards
        client = Client([self.program]).begun()
        rounds = round(client.ask("calibrate")["rounds_per_us"] * KERNEL_US)
        client.end()
        # Each process makes a context. The first one does what the file `go` says, once that is there.
        script = self.work / "job.sh"
        script.write_text(f"""#!/bin/sh
for process in $(seq {PROCESSES}); do
    (while [ ! -e {self.folder}/go ]; do sleep 0.5; done; [ $process = 1 ] && cat {self.folder}/go; sleep 1000) | {self.program} &
done
wait
""")
        script.chmod(0o755)
        exporter = Exporter(self.work)
        jobs = [self.slurm.submit(f"gpu:{self.slurm.type}.{parts}:1", script, self.folder / f"{at}.out") for at in range(gpus * parts)]
        count = lambda: sum(file.read_text().count('"begun"') for file in self.folder.glob("*.out"))
        begun = time.monotonic()
        until(lambda: count() == PROCESSES * len(jobs), 240, 0.5)
        self.held.kept |= {"gpus": gpus, "jobs": len(jobs), "processes": count(), "all_began_s": round(time.monotonic() - begun, 1)}
        self.held.check("The jobs", "processes with a context", count() == PROCESSES * len(jobs), count(), PROCESSES * len(jobs))
        time.sleep(SETTLES)
        self.phase("without work")
        new = self.folder / "new"
        new.write_text(f"run launch {rounds} {KERNEL_US} {self.seconds + 3 * SETTLES} 0 1\n")
        new.rename(self.folder / "go")
        time.sleep(SETTLES)
        self.phase("busy")
        used = Page(exporter.page())
        exporter.end()
        charged = [used.of("softmig_slice_gpu_seconds_total", jobid=job) or 0 for job in jobs]
        self.held.kept["charged_s"] = [round(one, 2) for one in charged]
        least = self.seconds / parts * 0.9
        self.held.check("The jobs", "each has its share", min(charged) > least, f"{min(charged):.1f} s at least", f"more than {least:.1f} s")

    def phase(self, name):
        """The part of a core that each kind of the monitor's threads takes for some seconds."""
        before, begin = self.monitor.cpu_of_threads(), time.monotonic()
        time.sleep(self.seconds)
        took = time.monotonic() - begin
        parts = {thread: round(100 * (used - before.get(thread, 0)) / took, 2) for thread, used in sorted(self.monitor.cpu_of_threads().items())}
        self.held.kept.setdefault("percent_of_a_core", {})[name] = {thread: part for thread, part in parts.items() if part}
        print(name, self.held.kept["percent_of_a_core"][name], flush=True)

    def end(self):
        from slurm import stop
        return stop(self.slurm, self.monitor, self.folder.glob("*.out"), 3000, 300)


def page(folder):
    """gpu-crowd.md from gpu-crowd.json."""
    kept = json.loads((folder / "gpu-crowd.json").read_text())
    machine = kept["machine"]
    gpu, driver = map(str.strip, machine["gpu"].splitlines()[0].split(",")[:2])
    threads = sorted({thread for phase in kept["percent_of_a_core"].values() for thread in phase})
    lines = [
        "# What the monitor costs beside many jobs", "",
        "Written by `bench/gpu/crowd.py --report bench/results` from gpu-crowd.json; do not edit.", "",
        f"{machine['date']}, {kept['gpus']} x {gpu}, driver {driver}, softmig of {kept['revision']}. {kept['jobs']} jobs have all parts of these GPUs, each with {PROCESSES} processes that have a context. In the second phase one process of each job launches kernels of {KERNEL_US} us without a pause. The figures are the CPU time of the monitor's threads in {kept['seconds']:g} s, in % of a core.", "",
        "| phase | " + " | ".join(threads) + " | all |", "| --- |" + " --- |" * (len(threads) + 1),
    ]
    for phase, parts in kept["percent_of_a_core"].items():
        lines.append(f"| {phase} | " + " | ".join(f"{parts.get(thread, 0):g}" for thread in threads) + f" | {sum(parts.values()):.2f} |")
    (folder / "gpu-crowd.md").write_text("\n".join(lines) + "\n")


def main():
    from options import parse, place_for
    options = parse(__doc__, seconds=(20.0, "of each phase"))
    if options.report:
        return page(options.report)
    from held import Held
    from machine import machine
    place = place_for(options, "crowd")
    held, crowd = None, None
    try:
        place.furnish()
        held = Held(options.out, {"machine": machine(), "revision": options.revision, "seconds": options.seconds}, "gpu-crowd")
        crowd = Crowd(held, place.work, options.seconds)
        crowd.run()
    except Exception as error:
        traceback.print_exc()
        if held:
            held.check("the run itself", "goes to its end", False, f"{type(error).__name__}: {error}"[:800], "no exception")
    finally:
        place.end(crowd, options.out / "gpu-crowd.log")
    return 0 if held and held.kept["checks"] and not held.failed() else 1


if __name__ == "__main__":
    sys.exit(main())
