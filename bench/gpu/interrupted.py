#!/usr/bin/env python3
"""On a machine with a GPU: the pace of a program whose channels something other than the monitor takes off the GPU.

    bench/gpu/chain/packages.sh DEBS; cargo xtask stage
    unshare --mount python3 bench/gpu/interrupted.py --stage target/stage --packages DEBS --out FOLDER [--seconds N]
    python3 bench/gpu/interrupted.py --report bench/results

As root, in a mount namespace of its own, like escape.py. In a real Slurm a job with half a GPU is busy beside one with a quarter. This
script, as root, disables the channels of the first: never, once, and again and again. Writes FOLDER/gpu-interrupted.json and
gpu-interrupted.log; the second form makes the page.
"""
import ctypes
import json
import pathlib
import struct
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "escape"), str(HERE / "chain"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

import runner

CHANNELS = HERE.parents[1] / "research/channels_facts"
# How often, and the seconds between two times.
CASES = {"never": None, "once": 1e9, "each 10 s": 10.0, "each second": 1.0, "10 times a second": 0.1}
# Seconds of its pace before, and until the monitor has forgotten the interruptions before.
BEFORE, FORGETS = 5.0, 3.0
# Of a seat (hook/region/src/seat.rs): where the number of channels is, and the first of them, and the words of each.
COUNT, FIRST, WORDS = 120, 124, 4


def channels_of(job):
    """The clients and handles of the channels that the processes of a job tell of by their seats."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"job_{job}" not in (process / "cgroup").read_text():
                continue
            places = {line.split()[0] for line in (process / "maps").read_text().splitlines() if "memfd:softmig-seat" in line}
            for place in places:
                with open(process / "map_files" / place, "rb") as page:
                    seat = page.read()
                count, = struct.unpack_from("I", seat, COUNT)
                words = struct.unpack_from(f"{WORDS * count}I", seat, FIRST)
                found += zip(words[1::WORDS], words[3::WORDS])
        except OSError:
            # It has ended.
            continue
    return found


class Hand:
    """Disables channels, whosever they are."""

    def __init__(self, work):
        library = work / "switches.so"
        subprocess.run(["cc", "-O2", "-fPIC", "-shared", CHANNELS / "switches.c", "-o", library], check=True)
        self.library = ctypes.CDLL(str(library))
        self.library.channels_disable.restype = ctypes.c_uint32
        if failed := self.library.gpu_open():
            raise RuntimeError(f"switches.c: step {failed} failed")

    def disable(self, channels):
        handles, us = ctypes.c_uint32 * len(channels), ctypes.c_double()
        clients, channels = zip(*channels)
        return self.library.channels_disable(len(channels), handles(*clients), handles(*channels), 1, 0, ctypes.byref(us))


def longest_gap(paces):
    """Between two of the lines that a program writes each 50 ms."""
    return max((after[0] - before[0] for before, after in zip(paces, paces[1:])), default=None)


def interrupted(record, work, options):
    """The run, which begins with `run`."""
    from slurm import until
    from tries import Tries

    class Interrupted(Tries):
        def run(self):
            self.installed()
            self.record.add("proof", json.loads(self.monitor.measured.read_text()))
            self.record.add("monitor_memory_peak_mib", self.monitor.memory_peak_mib())
            self.begin_neighbour()
            own, self.folder = self.folder, work / "other"
            self.folder.mkdir()
            self.folder.chmod(0o1777)
            job, script = self.neighbour, work / "other.sh"
            script.write_text(f"#!/bin/sh\nexec {sys.executable} {work}/neighbour.py {self.folder}/neighbour\n")
            self.slurm.submit(f"gpu:{self.slurm.type}.4:1", script, self.folder / "other.out")
            until(lambda: len(self.paces()) > 20, 60)
            other, self.folder, hand = self.folder, own, Hand(work)
            for case, every in CASES.items():
                self.one(job, other, hand, case, every)

        def one(self, job, other, hand, case, every):
            time.sleep(FORGETS)
            begun, statuses, last = time.monotonic(), [], -1e10
            time.sleep(BEFORE)
            begin = time.monotonic()
            while time.monotonic() < begin + options.seconds:
                if every and time.monotonic() >= last + every:
                    last = time.monotonic()
                    statuses.append(hand.disable(channels_of(job)))
                time.sleep(0.02)
            end = time.monotonic()
            before = self.pace(begun, begin)
            used = json.loads((pathlib.Path("/run/softmig/jobs") / str(job) / "usage").read_text())
            seen = [one for one in self.paces() if begin - 1 <= one[0] <= end]
            relative = self.pace(begin, end) / before
            folder, self.folder = self.folder, other
            others = self.pace(begin, end) / self.pace(begun, begin)
            self.folder = folder
            self.record.tried({
                "case": case, "calls": len(statuses), "failed": sum(status != 0 for status in statuses), "pace": round(relative, 3), "other": round(others, 3),
                "longest_gap": round(longest_gap(seen), 3), "interruptions": [gpu.get("interruptions") for one in used.get("jobs", []) for gpu in one["gpus"]],
            })

    return Interrupted(record, work)


def report(folder):
    kept, gpu, driver, lines = runner.page(folder, "interrupted", "Interrupted by another's hand, on a real GPU")
    lines += [
        f"{kept['machine']['date']}, {gpu}, driver {driver}, {kept.get('slurm', 'Slurm')}, softmig of {kept['revision']}.", "",
        f"A job with half a GPU is busy beside one with a quarter. Root takes the channels of the first off the GPU. Its pace is over {kept['seconds']:.0f} s, relative to the {BEFORE:.0f} s before; the *gap* is the longest time without a step that ended. *Told* is the monitor's count of interruptions, from the job's start. The monitor and the two programs by which it measured the GPU before had {kept.get('monitor_memory_peak_mib')} MiB of host memory at most, of the 2 GiB that its unit has.", "",
        "| taken off | times | its pace | longest gap | the other's pace | told until then |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in kept["tries"]:
        lines.append(f"| {one['case']} | {one['calls']} | {100 * one['pace']:.1f} % | {one['longest_gap']:.2f} s | {100 * one['other']:.1f} % | {', '.join(map(str, one['interruptions']))} |")
    runner.write_page(folder, "interrupted", lines)


def main():
    from options import parse, place_for
    options = parse(__doc__, seconds=(30.0, "seconds of each case"))
    if options.report:
        return report(options.report)
    import record
    from machine import machine
    place = place_for(options, "interrupted")
    run, kept = None, record.Record(options.out, {"machine": machine(), "revision": options.revision, "seconds": options.seconds}, "gpu-interrupted")
    try:
        place.furnish()
        run = interrupted(kept, place.work, options)
        run.run()
    except Exception:
        kept.add("error", traceback.format_exc()[-1200:])
        traceback.print_exc()
    finally:
        place.end(run, options.out / "gpu-interrupted.log")
    return 1 if "error" in kept.kept else 0


if __name__ == "__main__":
    sys.exit(main())
