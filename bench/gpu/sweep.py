#!/usr/bin/env python3
"""On a machine with a GPU: packs in a real Slurm: an array of eight eighths, jobs of it cancelled, and an MPS server of a user's own.

    bench/gpu/chain/packages.sh DEBS; cargo xtask stage
    unshare --mount python3 bench/gpu/sweep.py --stage target/stage --packages DEBS --out FOLDER [--cancels 20]
    python3 bench/gpu/sweep.py --report bench/results

As root, in a mount namespace of its own, like chain.py, with PyTorch. The scripts of the jobs have no word of packs. Writes
FOLDER/gpu-sweep.json and gpu-sweep.log. The last form makes the page.
"""
import contextlib
import json
import pathlib
import re
import shutil
import statistics
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "chain"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

SERVER = """export CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) CUDA_MPS_LOG_DIRECTORY=$(mktemp -d)
nvidia-cuda-mps-control -d
"""
# More than any slice here has.
TOO_MUCH_MIB = 300_000


def steps(text):
    """The steps of a program in each second, by what it has said."""
    return [int(rate) for rate in re.findall(r"^steps (\d+)$", text, re.M)]


class Sweep:
    def __init__(self, out, place, cancels):
        from machine import machine
        from place import NAME, POLICY, sh
        from slurm import Monitor, Slurm
        self.found, self.file, self.sh, self.cancelled = {"machine": machine()}, out / "gpu-sweep.json", sh, cancels
        self.work, self.folder, self.policy = place.work, place.work / "jobs", POLICY
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        shutil.copy(HERE / "sweep/work.py", self.work)
        self.user, self.monitor, self.slurm = NAME, None, Slurm(self.work)
        self.type = self.slurm.type
        # The measurement of packs comes with the first one.
        self.set_packs("user")
        self.slurm.configure()
        if not self.slurm.start():
            raise RuntimeError(f"the node is {self.slurm.state()}")
        sh("softmig", "install", "--hook", "--mode", "enforce")
        self.monitor = Monitor(self.work)
        self.wait("a measurement of packs", lambda: '"pack": {' in Monitor.measured.read_text())
        self.keep("proof", json.loads(Monitor.measured.read_text())["proofs"])

    def keep(self, name, value):
        self.found[name] = value
        self.file.write_text(json.dumps(self.found, indent=1) + "\n")
        print(name, json.dumps(value), flush=True)

    def wait(self, what, holds, seconds=60):
        from slurm import until
        if not until(holds, seconds, 0.2):
            raise RuntimeError(f"{what}: not within {seconds} s")

    def set_packs(self, which):
        text = re.sub(r'(?m)^(pack|end) = .*\n', "", self.policy.read_text())
        text = text.replace("[monitor]\n", '[monitor]\nend = "all"\n').replace(f"[gpu.{self.type}]\n", f'[gpu.{self.type}]\npack = "{which}"\n')
        self.policy.write_text(text)

    def submit(self, script, gres, *more):
        """A job's number, and the pattern of the files into which it and its tasks write."""
        file = self.folder / "job.sh"
        file.write_text(f"#!/bin/bash\n{script}")
        said = self.slurm.as_user("sbatch", "--parsable", f"--gres={gres}", f"--output={self.folder}/%A-%a.txt", *more, file)
        if said.returncode:
            raise RuntimeError(f"sbatch {gres}: {said.stderr[-400:]}")
        return int(said.stdout)

    def program(self, seconds, memory=""):
        return f"exec {sys.executable} -u {self.work}/work.py {seconds} {memory}\n"

    def said(self, job):
        return [file.read_text() for file in sorted(self.folder.glob(f"{job}-*.txt"))]

    def rates(self, job):
        """The steps of each task in each second."""
        return [steps(text) for text in self.said(job)]

    def clients(self):
        return self.sh("nvidia-smi", "-q", "-d", "PIDS").stdout.count("M+C")

    def end(self):
        from slurm import stop
        # Servers stay when the daemon is stopped, and end some seconds after their last job.
        self.sh("scancel", "-u", self.user, check=False)
        with contextlib.suppress(RuntimeError):
            self.wait("the servers' end", lambda: not list(pathlib.Path("/run/softmig/packs").glob("*/*/supervisor")), 30)
        return stop(self.slurm, self.monitor, sorted(self.folder.glob("*.txt"))[-4:], 20000, 4000)

    def cancel(self, *jobs):
        self.sh("scancel", *jobs)
        self.wait("their end", lambda: all(map(self.slurm.is_over, jobs)))

    def run(self):
        self.alone()
        for which in ("user", "no"):
            self.keep(f"array, {which}", self.array(which))
        self.keep("own server", self.own_server())
        self.keep("cancels", self.cancels())

    def alone(self):
        job = self.submit(self.program(8), f"gpu:{self.type}:1")
        self.wait("its end", lambda: self.slurm.is_over(job))
        [rates] = self.rates(job)
        self.whole = statistics.mean(rates[2:])
        self.keep("steps a second in the whole GPU", round(self.whole))

    def pace(self, rates):
        return round(statistics.mean(rates) / self.whole, 3)

    def array(self, which):
        """Eight eighths at once."""
        self.set_packs(which)
        job = self.submit(self.program(600), f"gpu:{self.type}.8:1", "--array=0-7")
        begun = lambda: [len(rates) for rates in self.rates(job)]
        self.wait("eight tasks at work", lambda: len(begun()) == 8 and min(begun()) > 2, 120)
        first = begun()
        time.sleep(12)
        paces = [self.pace(rates[at + 1:]) for at, rates in zip(first, self.rates(job))]
        found = {"paces": paces, "sum": round(sum(paces), 3), "clients": self.clients(), "job": self.sh("softmig", "job", job).stdout.splitlines()}
        self.cancel(job)
        return found

    def cancels(self):
        """One of eight is cancelled again and again, and another comes."""
        self.set_packs("user")
        start = lambda: self.submit(self.program(1000), f"gpu:{self.type}.8:1")
        works = lambda job: any(len(rates) > 1 for rates in self.rates(job))
        jobs, others, slowest = [start() for _ in range(8)], 0, 0
        self.wait("eight jobs at work", lambda: all(map(works, jobs)), 120)
        for _ in range(self.cancelled):
            begun = time.monotonic()
            self.cancel(jobs.pop(0))
            slowest = max(slowest, time.monotonic() - begun)
            jobs.append(start())
            self.wait("the next one at work", lambda: works(jobs[-1]))
            died = [job for job in jobs if self.slurm.is_over(job)]
            others += len(died)
            jobs = [start() if job in died else job for job in jobs]
        self.cancel(*jobs)
        return {"cancelled": self.cancelled, "others": others, "slowest": round(slowest, 1)}

    def own_server(self):
        """A quarter with an MPS server of its own and two programs, beside another quarter, where the rules end processes."""
        self.set_packs("no")
        busy = self.program(20, TOO_MUCH_MIB).removeprefix("exec ").strip()
        clients = [self.folder / f"client-{at}.log" for at in range(2)]
        job = self.submit(SERVER + " ".join(f"{busy} > {file} &" for file in clients) + " wait; echo quit | nvidia-cuda-mps-control\n", f"gpu:{self.type}.4:1")
        other = self.submit(self.program(20), f"gpu:{self.type}.4:1")
        time.sleep(14)
        found = {"clients": self.clients(), "job": self.sh("softmig", "job", job).stdout.splitlines()}
        self.wait("both ends", lambda: self.slurm.is_over(job) and self.slurm.is_over(other))
        texts = [file.read_text() for file in clients]
        rates = [steps(text) for text in texts]
        return found | {
            "held_mib": [int(re.search(r"held_mib (\d+)", text)[1]) for text in texts],
            "limit_mib": int(re.search(r"may hold (\d+) MiB", "".join(self.said(job)))[1]),
            "seconds": [len(each) for each in rates],
            "paces": [self.pace(each[3:]) for each in rates if len(each) > 3],
            "other": self.pace(self.rates(other)[0][3:-3]),
        }


def page(folder):
    import runner
    found, gpu, driver, lines = runner.page(folder, "sweep", "Packs in a real Slurm")
    pack, slices, own, cancels = (found[name] for name in ("array, user", "array, no", "own server", "cancels"))
    span = lambda paces: f"{min(paces):.3f} to {max(paces):.3f}"
    lines += [
        f"Slurm 22.05 of Debian 12, with softmig of {found['revision']}, on one {gpu} with driver {driver}. A pace is a part of that of the same",
        "program in the whole GPU. A program's step is 100 small products. The scripts of the jobs have no word of packs.",
        "",
        '| an array of eight eighths | `pack = "user"` | `pack = "no"` |',
        "| --- | --- | --- |",
        f"| pace of each | {span(pack['paces'])} | {span(slices['paces'])} |",
        f"| sum | {pack['sum']:.2f} | {slices['sum']:.2f} |",
        f"| clients of an MPS server, by nvidia-smi | {pack['clients']} | {slices['clients']} |",
        "",
        f"**Cancelled jobs**: {cancels['cancelled']} times one of eight jobs of a pack was cancelled, and another came. Others that ended by it: {cancels['others']}. The",
        f"slowest was over after {cancels['slowest']} s.",
        "",
        "**An MPS server of a user's own** in a quarter, with two clients that take memory until there is no more, beside another quarter, with",
        f"`end = \"all\"`: the clients held {sum(own['held_mib'])} MiB together of {own['limit_mib']}, worked for {' and '.join(map(str, own['seconds']))} s, and had paces of",
        f"{' and '.join(map(str, own['paces']))}; the other quarter had {own['other']}.",
    ]
    runner.write_page(folder, "sweep", lines)


def main():
    from options import parse, place_for
    options = parse(__doc__, cancels=(20, "how many jobs are cancelled"))
    if options.report:
        return page(options.report)
    options.out.mkdir(parents=True, exist_ok=True)
    place, sweep = place_for(options, "sweep"), None
    try:
        place.furnish()
        sweep = Sweep(options.out, place, options.cancels)
        sweep.keep("revision", options.revision)
        sweep.run()
        return 0
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        place.end(sweep, options.out / "gpu-sweep.log")


if __name__ == "__main__":
    sys.exit(main())
