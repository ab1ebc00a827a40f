#!/usr/bin/env python3
"""On a machine with a GPU: that memory which nobody has any more is the job's again, and memory that somebody has is not.

    unshare --mount python3 bench/gpu/trials.py --library libsoftmig.so --monitor softmig-monitor --prolog softmig-prolog --out FOLDER
    python3 bench/gpu/trials.py --report bench/results

As root, like equal.py, with a C compiler. The programs are those of the tests (tests/programs), in a job with a small slice, and without
softmig where that says something. Writes FOLDER/gpu-trials.json; the second form makes the page.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "tests/programs"
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

import runner

MIB = 1 << 20
# The blocks of the programs, and the slice: room for three contexts and so many blocks.
STEP, BLOCKS = 8 * MIB, 60
SLICE_MIB = 3 * 530 + BLOCKS * STEP // MIB
# The monitor writes its figures of a job each 5 s.
LOOK = 5.5
# So often each thing is done, one after the other: six slices.
ROUNDS = 400
KINDS = [(kind, when) for kind in ("dma-buf", "handle", "reopened") for when in ("first", "then")] + [("ipc", "then"), ("arrays", "then")]
LONGEST = 60


def numbers(line):
    return {name: int(value) for name, value in re.findall(r"(\w+)[=:] ?(\d+)", line)}


class Trials:
    def __init__(self, work, job, found):
        self.work, self.job, self.found = work, job, found
        self.limit = SLICE_MIB * MIB

    def start(self, *words):
        return subprocess.Popen(self.job.command(self.work / words[0], *words[1:]), env=self.job.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *words):
        """What a program says, by the first word of each line."""
        child = self.start(*words)
        out, _ = child.communicate("\n\n\n", timeout=LONGEST)
        return {line.partition(":")[0]: line for line in out.splitlines()} | {"all": out.splitlines()[-8:]}

    def blocks(self):
        """How many blocks a new process gets, and the ms that it takes to get the first."""
        begun = time.monotonic()
        said = self.run("takes", "cuMemAlloc_v2", str(STEP), "fill")
        return numbers(said.get("took", "")).get("blocks", 0), round(time.monotonic() - begun, 3)

    def add(self, name, what):
        self.found["trials"][name] = what
        print(name, json.dumps(what), flush=True)

    def all(self):
        room, seconds = self.blocks()
        self.add("an empty slice", {"blocks": room, "seconds": seconds})
        for kind, when in KINDS:
            self.rounds(kind, when, room)
        for kind in ("dma-buf", "handle"):
            self.kept(kind)
        for what in ("maps", "keeps"):
            said = self.run("exports", "hands-on", what, str(ROUNDS))
            self.add(f"another process {what} them", numbers(said.get("took", "")) | {"said": said["all"] if "took" not in said else ""})
        for name, words in (("its descriptors are another process's", ("leaves", "20")), ("its child has closed the driver's files", ("closes", "40")), ("its child has the driver's files", None)):
            self.dies(name, words)
        self.short()

    def figures(self, limit, free):
        """The MiB that the job holds now, as each says it; the monitor once its figure has not changed for two looks."""
        smi = subprocess.run(self.job.command("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"), env=self.job.environment(), capture_output=True, text=True).stdout
        usage, last, begun = pathlib.Path(f"/run/softmig/jobs/{self.job.number}/usage"), None, time.time()
        for _ in range(20):
            time.sleep(LOOK)
            said = json.loads(usage.read_text()) if usage.exists() else {"time": 0}
            if said["time"] <= begun:
                continue
            now = [gpu["memory_bytes"] // MIB for job in said["jobs"] for gpu in job["gpus"]]
            if now == last:
                break
            last, begun = now, said["time"]
        return {"cuda": round((limit - free) / MIB, 1), "nvidia_smi": smi.strip(), "monitor": last}

    def rounds(self, kind, when, room):
        child = self.start("exports", "rounds", kind, when, str(ROUNDS))
        lines, begun = [], time.monotonic()
        while sum(line.startswith("free: ") for line in lines) < 2 and (line := child.stdout.readline()):
            lines.append(line.strip())
        took_ms = round(1000 * (time.monotonic() - begun) / ROUNDS, 3)
        free = [numbers(line)["free"] for line in lines if line.startswith("free: ")]
        took = next((numbers(line) for line in lines if line.startswith("took: ")), {})
        figures = self.figures(self.limit, free[-1]) if when == "then" and len(free) > 1 else None
        beside, _ = self.blocks()
        child.communicate("\n", timeout=LONGEST)
        after, _ = self.blocks()
        closed = "before it is freed" if when == "first" else "afterwards"
        name = {"arrays": "mapped into arrays by a call that fails", "ipc": "IPC handle that nobody opens"}.get(kind, f"{kind}, closed {closed}")
        self.add(name, took | {"free_less_mib": round((free[0] - free[-1]) / MIB, 2) if len(free) > 1 else None, "room_beside": beside, "room_after": after, "room": room, "ms_each": took_ms, "figures_mib": figures})

    def kept(self, kind):
        said = self.run("exports", "rounds", kind, "kept", str(ROUNDS))
        self.add(f"{kind}, kept open", numbers(said.get("took", "")) | {"room_after": self.blocks()[0]})

    def dies(self, name, words):
        child = self.start("exports", *words) if words else self.start("lives", "orphan")
        lines = []
        while not any(line.startswith("forked: ") for line in lines):
            line = child.stdout.readline()
            if not line:
                return self.add(f"killed; {name}", {"failed": lines[-5:]})
            lines.append(line.strip())
        orphan = numbers(lines[-1])["forked"]
        child.kill()
        child.wait()
        with_child = self.blocks()
        os.kill(orphan, 9)
        time.sleep(0.5)
        without = self.blocks()
        child.stdin.close()
        self.add(f"killed; {name}", {"room_beside": with_child[0], "seconds": with_child[1], "room_after": without[0]})

    def short(self):
        """Processes that each take most of the slice, one after the other; the seconds of each."""
        most = str(STEP * (BLOCKS * 3 // 4))
        seconds = []
        for _ in range(6):
            begun = time.monotonic()
            said = self.run("takes", "cuMemAlloc_v2", most, "hold", "0")
            seconds.append(round(time.monotonic() - begun, 3))
            got = numbers(said.get("took", "")).get("blocks")
            if not got:
                seconds[-1] = said["all"]
        plain = []
        for _ in range(6):
            begun = time.monotonic()
            subprocess.run([self.work / "takes", "cuMemAlloc_v2", most, "hold", "0"], stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST)
            plain.append(round(time.monotonic() - begun, 3))
        self.add("short processes in a row", {"seconds": seconds, "without": plain})


def measure(options, work):
    from machine import driver_library, machine
    from node import in_a_slice
    for name, libraries in (("exports", []), ("lives", []), ("takes", ["-Wl,--no-as-needed", driver_library()])):
        subprocess.run(["cc", "-O1", "-w", "-o", work / name, PROGRAMS / f"{name}.c", *libraries, "-ldl"], check=True)
    found = {"machine": machine(), "revision": options.revision, "trials": {}}
    with in_a_slice(options, work, 7000, SLICE_MIB) as job:
        Trials(work, job, found).all()
        found["log"] = job.log()
        print(*found["log"], sep="\n")
    return found


def report(folder):
    found, gpu, driver, lines = runner.page(folder, "trials", "Memory that nobody has, and memory that somebody has")
    trials = found["trials"]
    room = trials["an empty slice"]["blocks"]
    lines += [
        f"{found['machine']['date']}, {gpu}, driver {driver}, library of {found['revision']}. A new process gets {room} blocks of 8 MiB of the empty slice. *Beside* is what a new process gets while the first one lives, *after* what it gets then. *Less* is by how much less is free than before all rounds, by cuMemGetInfo.", "",
        "## Shown to others, and given back", "",
        f"{ROUNDS} blocks, one after the other. The library of 42ba4c74 refused after about as many as the slice has.", "",
        "| memory | blocks given | less | beside | after |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, one in trials.items():
        if "room_beside" in one and "blocks" in one:
            lines.append(f"| {name} | {one['blocks']} | {one['free_less_mib']} MiB | {one['room_beside']} | {one['room_after']} |")
    lines += ["", "## What each says that the job holds, MiB", "", "| after | CUDA | nvidia-smi | the monitor |", "| --- | --- | --- | --- |"]
    for name, one in trials.items():
        if one.get("figures_mib"):
            said = one["figures_mib"]
            lines.append(f"| {name} | {said['cuda']} | {said['nvidia_smi']} | {', '.join(map(str, said['monitor']))} |")
    lines += ["", "## Controls: somebody has it", "", "| memory | blocks given, of the slice's | after |", "| --- | --- | --- |"]
    for name, one in trials.items():
        if "blocks" in one and "then" in one and "room_beside" not in one:
            lines.append(f"| {name} | {one['blocks']} | {one.get('room_after', '')} |")
    lines += ["", "## The process is killed", "", "| and | a new process gets | in | when the other is gone |", "| --- | --- | --- | --- |"]
    for name, one in trials.items():
        if name.startswith("killed"):
            lines.append(f"| {name.partition('; ')[2]} | {one['room_beside']} | {one['seconds']:.2f} s | {one['room_after']} |")
    short = trials["short processes in a row"]
    lines += ["", "## Short processes in a row", "", "Each takes most of the slice and ends; the seconds of each process.", "", "| | seconds |", "| --- | --- |"]
    lines += [f"| in the slice | {', '.join(map(str, short['seconds']))} |", f"| without softmig | {', '.join(map(str, short['without']))} |"]
    runner.write_page(folder, "trials", lines)


def main():
    options = runner.parse(__doc__, ["library", "monitor", "prolog"])
    if options.report:
        return report(options.report)
    with runner.work_folder() as work:
        found = measure(options, work)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu-trials.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
