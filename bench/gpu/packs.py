#!/usr/bin/env python3
"""On a machine with a GPU: programs at the same time, in a pack, in slices without one, and under NVIDIA's MPS alone.

    unshare --mount python3 bench/gpu/packs.py --library libsoftmig.so --monitor softmig-monitor --prolog softmig-prolog --out FOLDER
        [--only NAME...] [--mixes N,N,...] [--seconds 3] [--deaths 100] [--budget SECONDS] [--revision TEXT]
    python3 bench/gpu/packs.py --report bench/results

The first as root, in a mount namespace of its own. Needs nvcc, nvidia-cuda-mps-control, PyTorch, transformers, GPyTorch, PyTorch
Geometric, Triton, JAX, Flax, Optax and CuPy, all readable by every user. No other program may use the GPU meanwhile. Adds to
FOLDER/gpu-packs.json after each measurement. Paces are parts of a program's own alone on the GPU, which is measured once for FOLDER.
The second makes the page from the figures.
"""
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "beside"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

import runner
from machine import gpus, machine

MORTAL = HERE.parent.parent / "research/packs_facts/mortal.cu"
# Real programs of several frameworks, four in quarters, and seven and a notebook's cell in eighths.
MIXES = [
    ["decode", "loader", "gaussian", "optax_step"],
    ["train_small", "monte_carlo", "server", "graph"],
    ["decode", "loader", "gaussian", "optax_step", "monte_carlo", "graph", "server", "cell37ms"],
    ["train_small", "jax_step", "cupy_sync", "graph", "decode", "loader", "gaussian", "cell37ms"],
]
SUBJECTS = ("time-sliced", "mps", "slices", "pack")
# How clients end, how many at a time, and how many ms their kernels take.
ENDS = [*((how, 36, 20) for how in ("kill", "exit", "crash", "term", "throw")), ("kill", 4, 500)]
# Accounts that every system has: some programs ask for their user's name.
OTHERS = (1, 2)
FIRST = 8000


class Packs:
    """A node, and what was found there."""

    def __init__(self, options, node, stage, work):
        self.options, self.node, self.stage, self.work = options, node, stage, work
        self.until = time.monotonic() + options.budget
        self.file = options.out / "gpu-packs.json"
        self.found = json.loads(self.file.read_text()) if self.file.exists() else {"whole": {}}
        self.found = {"revision": options.revision, "revisions": {}} | self.found | {"machine": machine(), "seconds": options.seconds}
        self.numbers = iter(range(FIRST, 10**6))

    def keep(self, name, value, said=None):
        self.found[name] = value
        self.found["revisions"][name] = self.options.revision
        self.file.write_text(json.dumps(self.found, indent=1) + "\n")
        print(name, json.dumps(said or value), flush=True)

    def programs(self, wanted, at_end, gpu=0, mode="hard"):
        """Those of users in slices of one GPU, ready: (workload, parts of the GPU of which each has one, user)."""
        from programs import Program
        made = []
        for name, part, user in wanted:
            job = self.job(part, user, gpu, mode)
            at_end.callback(job.end)
            made.append((name, job))
        with self.node.preloaded():
            started = [Program(self.stage, name, job) for name, job in made]
            at_end.callback(end, started)
            for one in started:
                one.ready()
        return started

    def job(self, part, user, gpu=0, mode="hard"):
        """One whose slice is one of so many equal parts of a GPU."""
        from node import Job
        return Job(self.node, next(self.numbers), 8 // part, 8, mode, user=user, gpus=str(gpu))

    def paces(self, programs, seconds=None):
        """Each one's part of its pace alone, and what it says of latencies."""
        from programs import window
        looked = window(programs, seconds or self.options.seconds, 0.6)
        return [{"workload": one["workload"], "pace": round(one["pace"] / self.found["whole"][one["workload"]], 4)} | ({"latency": one["latency"]} if "latency" in one else {}) for one in looked]

    def alone(self, names):
        """Each by itself, without anything."""
        from programs import window
        new = sorted(set(names) - set(self.found["whole"]))
        with contextlib.ExitStack() as at_end:
            for one in self.bare(new, at_end):
                self.found["whole"][one.name] = window([one], self.options.seconds * 0.7, 0.5)[0]["pace"]
        # CuPy keeps its kernels for their user alone.
        subprocess.run(["chmod", "-R", "a+rwX", self.stage.cache], check=True)
        self.keep("whole", self.found["whole"])

    def mix(self, number):
        """The same programs by time-slicing, under MPS alone, in slices, and in a pack."""
        names = MIXES[number - 1]
        self.alone(names)
        self.keep(f"mix {number}", self.subjects(names))

    def subjects(self, names, subjects=SUBJECTS, packed=None, users=OTHERS[:1]):
        """What equal slices of these users, or as many programs without them, get done by each way. `packed` is the policy of the pack."""
        found = {}
        for subject in subjects:
            with contextlib.ExitStack() as at_end:
                if self.has_jobs(subject, at_end, packed):
                    started = self.programs([(name, len(names), users[at % len(users)]) for at, name in enumerate(names)], at_end)
                else:
                    started = self.bare(names, at_end)
                found[subject] = self.paces(started)
                found[f"{subject}, clients"] = clients()
                if subject == "pack" and clients() < len(names):
                    logs = [one.job.log() for one in started]
                    raise RuntimeError(f"{clients()} of {len(names)} programs are in the pack: {self.node.said()} {logs}")
        return found

    def has_jobs(self, subject, at_end, packed=None):
        """Prepares one of the ways until `at_end`. Whether its programs are in jobs."""
        from node import PACKED, POLICY
        policies = {"slices": POLICY, "pack": packed or PACKED}
        if subject in policies:
            self.node.set_policy(policies[subject])
        elif subject == "mps":
            at_end.enter_context(mps(self.work))
        return subject in policies

    def bare(self, names, at_end):
        """Programs without anything, ready."""
        from programs import Program
        started = [Program(self.stage, name) for name in names]
        at_end.callback(end, started)
        for one in started:
            one.ready()
        return started

    def shares(self):
        """A pack with two quarters beside two other users' quarters, all busy; and the same without a pack."""
        from node import PACKED, POLICY, USER
        self.alone(["busy100us"])
        found = {}
        for subject, policy in (("pack", PACKED), ("slices", POLICY)):
            with contextlib.ExitStack() as at_end:
                self.node.set_policy(policy)
                users = (USER, USER, *OTHERS)
                started = self.programs([("busy100us", 4, user) for user in users], at_end)
                looked = [one["pace"] for one in self.paces(started, 5)]
                found[subject] = {"the two of one user": round(sum(looked[:2]), 4), "others": looked[2:], "sum": round(sum(looked), 4), "each": looked}
                subprocess.run([self.options.monitor, "--once"], capture_output=True)
        self.keep("shares", found)

    def quarters(self):
        """Four programs whose kernels have a quarter of each processor's threads: by time-slicing, under MPS alone, in a pack."""
        self.alone(["quarter200us"])
        self.keep("quarters", self.subjects(["quarter200us"] * 4))

    def account(self):
        """Small kernels beside full ones, in equal slices of two users of an account: in a pack, in slices, and under MPS alone. And a cell."""
        from node import PACKED_BY_ACCOUNT
        mixes = {"beside full kernels": ["quarter200us", "busy100us"], "beside full kernels of 1 ms": ["quarter200us", "busy1ms"], "a cell": ["cell37ms", "train_small", "decode", "gaussian"]}
        self.alone(sum(mixes.values(), []))
        self.keep("account", {title: self.subjects(names, SUBJECTS[1:], PACKED_BY_ACCOUNT, OTHERS) for title, names in mixes.items()})

    def launch(self):
        """A program that waits for each kernel of 20 us: in a slice, as a pack's only client, and under MPS alone."""
        self.alone(["sync20us"])
        of = self.subjects(["sync20us"], SUBJECTS[1:])
        self.keep("launch", {subject: of[subject][0]["pace"] for subject in SUBJECTS[1:]})

    def mortal(self):
        """The program of research/packs_facts.py that ends as it is told."""
        mortal = self.work / "mortal"
        if not mortal.exists():
            subprocess.run(["nvcc", "-O2", "-arch=native", MORTAL, "-o", mortal, "-lcuda"], check=True)
            mortal.chmod(0o755)
        return mortal

    def dying(self, job, count, ms=20, mib=64):
        """So many of it in a job, or without one, with work queued and so much memory, and what each said first: `up`, or all there is."""
        command = [str(self.mortal()), "device", "1", str(ms), str(mib)]
        preloaded, environment = contextlib.nullcontext(), None
        if job:
            command, preloaded, environment = job.command(*command), self.node.preloaded(), job.environment()
        with preloaded:
            several = [subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]
            return several, [first_words(one) for one in several]

    def starts(self):
        """How long it takes until programs that start together have memory and have launched kernels, by each way."""
        self.mortal()
        found = {}
        for subject in SUBJECTS:
            with contextlib.ExitStack() as at_end:
                job = self.job(4, OTHERS[0], 0, "soft") if self.has_jobs(subject, at_end) else None
                if job:
                    at_end.callback(job.end)
                for count in (1, 4, 36):
                    began = time.monotonic()
                    several, said = self.dying(job, count, 1, 4)
                    took = time.monotonic() - began
                    for one in several:
                        at_end.callback(one.kill)
                    if set(said) != {"up"} or subject in ("mps", "pack") and clients() < count:
                        raise RuntimeError(f"{subject}: {said}, {clients()} are clients")
                    found.setdefault(str(count), {})[subject] = round(took, 2)
                    for one in several:
                        one.communicate("exit\n", timeout=60)
                    if job:
                        job.wait_for_leftovers()
        self.keep("starts", found)

    def again(self):
        """A program with most of its job's memory is killed in a kernel, and the next one of the job wants as much: when it has it."""
        from node import PACKED
        self.node.set_policy(PACKED)
        self.mortal()
        found = {}
        for mode in ("soft", "hard"):
            with contextlib.ExitStack() as at_end:
                beside = self.programs([("busy100us", 8, OTHERS[0])], at_end, 0, mode)
                beside[0].go()
                job = self.job(8, OTHERS[0], 0, mode)
                at_end.callback(job.end)
                for _ in range(6):
                    began = time.monotonic()
                    [one], [said] = self.dying(job, 1, 500, 143155 // 8 * 9 // 10)
                    if clients() < 2:
                        raise RuntimeError(f"{clients()} of 2 programs are in the pack: {self.node.said()} {job.log()}")
                    found.setdefault(mode, []).append({"said": said, "seconds": round(time.monotonic() - began, 2), "used_mib": used_mib()})
                    one.kill()
                    one.wait()
        self.keep("again", found)

    def faults(self):
        """A client has a fault of the GPU: what the others' job gets, and when a new client works. And the server's own words."""
        from node import PACKED
        self.node.set_policy(PACKED)
        job, found = self.job(2, OTHERS[0]), {}
        several, _ = self.dying(job, 3)
        several[0].stdin.write("fault\n")
        several[0].stdin.flush()
        found["the one"] = several[0].communicate(timeout=30)[0].strip()
        begun = time.monotonic()
        found["new ones"] = []
        for _ in range(4):
            new, said = self.dying(job, 1)
            found["new ones"].append({"seconds": round(time.monotonic() - begun, 2), "said": said[0]})
            new[0].kill()
            new[0].wait()
        found["servers"] = len(list(pathlib.Path("/var/run/softmig/packs").glob("*/*")))
        found["log"] = job.log()
        for one in several[1:]:
            one.kill()
            one.wait()
        job.end()
        with mps(self.work) as log:
            one = subprocess.Popen([self.mortal(), "device", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            one.stdout.readline()
            one.communicate("fault\n", timeout=30)
            time.sleep(0.5)
            said = [line.split("] ", 1)[-1] for line in log.read_text(errors="replace").splitlines()][-25:]
            found["the server says"] = [re.sub(r"-?\d{3,}", "N", re.sub(r" .uuid GPU-.*?\)", "", line)) for line in said if "fatal" in line]
        self.keep("faults", found)

    def deaths(self):
        """So many clients of each kind end with work queued, several at a time, beside two of the same pack that go on. Each GPU has a pack of
        each of two users meanwhile."""
        from node import PACKED
        self.node.set_policy(PACKED)
        self.mortal()
        tally, lock = Tally(self.options.deaths), threading.Lock()

        def one_pack(gpu, user):
            with contextlib.ExitStack() as at_end:
                beside = []
                while time.monotonic() < self.until:
                    if not beside:
                        beside = self.programs([("sync20us", 8, user)] * 2, at_end, gpu, "soft")
                        for one in beside:
                            one.go()
                    with lock:
                        kind = tally.next()
                    if kind is None:
                        return
                    seen = self.round_of_deaths(kind, gpu, user, beside)
                    with lock:
                        tally.add(kind, seen)
                        self.keep("deaths", tally.found, [kind, seen])
                    if seen["others"]:
                        at_end.close()
                        beside = []

        with self.node.preloaded(), ThreadPoolExecutor() as pool:
            places = itertools.product(range(len(gpus())), OTHERS)
            for done in [pool.submit(one_pack, *place) for place in places]:
                done.result()

    def round_of_deaths(self, kind, gpu, user, beside):
        """What was seen when some of a kind ended."""
        how, at_once, ms = kind
        job = self.job(4, user, gpu, "soft")
        several, said = self.dying(job, at_once, ms)
        looking = Looking(beside)
        time.sleep(0.5)
        looking.ended = ended = time.monotonic()
        for one in several:
            if how in ("kill", "term"):
                one.kill() if how == "kill" else one.terminate()
            else:
                with contextlib.suppress(BrokenPipeError):
                    one.stdin.write(how + "\n")
                    one.stdin.flush()
        for one in several:
            one.wait(30)
        seen = {"deaths": said.count("up"), "longest end s": round(time.monotonic() - ended, 2), "others": []}
        job.wait_for_leftovers()
        seen["kept for s"] = round(time.monotonic() - ended, 2)
        states = went_on(beside)
        seen["stood still for s"] = looking.end()
        if set(states) != {"went on"}:
            time.sleep(5)
            seen["others"].append({"at once": states, "5 s later": went_on(beside)})
        if set(said) != {"up"}:
            seen["said"] = sorted(set(said) - {"up"})
        if seen["others"] or "said" in seen or seen["stood still for s"] > 2:
            print(kind, seen, self.node.said(), job.log(), flush=True)
        log = pathlib.Path(f"/var/run/softmig/jobs/{job.number}/log")
        seen["not clients"] = log.read_text(errors="replace").count("not in its job's pack") if log.exists() else 0
        seen["deaths"] -= seen["not clients"]
        job.end()
        return seen


class Tally:
    """How many clients of each kind have ended, and what was seen: `found`, with a list of what each round has seen."""

    def __init__(self, wanted):
        self.wanted, self.found, self.begun = wanted, {}, dict.fromkeys(ENDS, 0)

    def next(self):
        """The kind of which the least part has ended or is about to; `None` if there are enough of each."""
        def part(kind):
            # Long kernels leave room for few clients.
            return self.begun[kind] / (self.wanted if kind[1] > 4 else self.wanted / 10)

        kind = min(ENDS, key=part)
        if part(kind) >= 1:
            return None
        self.begun[kind] += kind[1]
        return kind

    def add(self, kind, seen):
        how, at_once, ms = kind
        self.found.setdefault(f"{how}, {at_once} at a time, kernels of {ms} ms", []).append(seen)


def first_words(program):
    """`up`, or all that a program said which has ended instead, and how."""
    said = program.stdout.readline().strip()
    if said == "up":
        return said
    status = program.wait(30)
    return " ".join([said, *program.stdout.read().split(), *program.stderr.read().split(), f"(status {status})"])


def went_on(programs):
    """What became of each in the next 0.6 s."""
    before = [one.look()[0] for one in programs]
    time.sleep(0.6)
    return ["ended" if one.talk.child.poll() is not None else "stood still" if one.look()[0] == was else "went on" for one, was in zip(programs, before)]


class Looking:
    """Looks at programs each 10 ms until its end: for how long none of the kernels of one of them ended, after `ended` if that is set."""

    def __init__(self, programs):
        self.programs, self.ended, self.is_over, self.longest = programs, None, threading.Event(), 0.0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        last = [(one.look()[0], time.monotonic()) for one in self.programs]
        while not self.is_over.wait(0.01):
            now = time.monotonic()
            for at, one in enumerate(self.programs):
                (count, since), seen = last[at], one.look()[0]
                if self.ended is not None:
                    self.longest = max(self.longest, now - max(since, self.ended))
                if seen != count:
                    last[at] = seen, now

    def end(self):
        self.is_over.set()
        self.thread.join()
        return round(self.longest, 2)


def table(title, of):
    """The paces of programs by each way that was measured, and how long a cell or an answer took."""
    subjects = [subject for subject in SUBJECTS if subject in of]
    lines = ["", f"## {title}", "", f"| program | {' | '.join(subjects)} |", "| --- |" + " --- |" * len(subjects)]

    def row(name, value):
        lines.append(f"| {name} | " + " | ".join(str(value(subject)) for subject in subjects) + " |")

    for at, one in enumerate(of["pack"]):
        row(one["workload"], lambda subject: of[subject][at]["pace"])
    row("sum", lambda subject: round(sum(one["pace"] for one in of[subject]), 4))
    for at, one in enumerate(of["pack"]):
        if "latency" in one:
            row(f"{one['workload']}: p50, p99, ms", lambda subject: "{p50}, {p99}".format(**of[subject][at]["latency"]))
    return lines


def write_page(folder):
    """The page beside the figures."""
    found, gpu, driver, lines = runner.page(folder, "packs", "Packs: programs at the same time")
    lines.append(f"{found['machine']['date']}, {gpu}, driver {driver}, softmig of {found['revision']}. Paces are parts of a program's own alone on the GPU.")

    def of(name):
        """Which softmig, if it is not that of the page."""
        revision = found["revisions"].get(name, found["revision"])
        return "" if revision == found["revision"] else f" (softmig of {revision})"

    for name in sorted(name for name in found if name.startswith("mix ")):
        lines += table(f"{len(found[name]['pack'])} programs in equal slices, {name}{of(name)}", found[name])
    if "quarters" in found:
        lines += table("Four programs whose kernels have a quarter of each processor's threads", found["quarters"])
    if "shares" in found:
        lines += ["", "## A user's two quarters beside two other users', all busy", "", "| | the two | others | sum |", "| --- | --- | --- | --- |"]
        lines += [f"| {name} | {of['the two of one user']} | {', '.join(map(str, of['others']))} | {of['sum']} |" for name, of in found["shares"].items()]
    for title, one in found.get("account", {}).items():
        lines += table(f"A pack of an account: {title}{of('account')}", one)
    if "launch" in found:
        lines += ["", f"## A program that waits for each kernel of 20 us{of('launch')}", "", "| under MPS alone | in a slice of the whole GPU | the same, as a pack's only client |", "| --- | --- | --- |"]
        lines.append("| {mps} | {slices} | {pack} |".format(**found["launch"]))
    for name in sorted(name for name in found if name.startswith("deaths")):
        lines += ["", f"## Clients that end with work queued{of(name)}", "", "Each GPU has packs of two users, and in each are two others that wait for each kernel of 20 us. Where two numbers stand together, they are the median and the most of all rounds.", ""]
        lines += ["| how | clients that ended | rounds | those in which one of the others ended | those in which one stood still at the end | no kernel of one of them ended for, s | something was kept of those that ended for, s |", "| --- | --- | --- | --- | --- | --- | --- |"]
        for how, rounds in found[name].items():
            # In some all were outside the pack.
            rounds = [one for one in rounds if one["deaths"]]
            ended = [one for one in rounds if "ended" in str(one["others"])]
            still, kept = (sorted(round[what] for round in rounds) for what in ("stood still for s", "kept for s"))
            lines.append(f"| {how} | {sum(one['deaths'] for one in rounds)} | {len(rounds)} | {len(ended)} | {sum(bool(one['others']) for one in rounds) - len(ended)} | {still[len(still) // 2]}, {still[-1]} | {kept[len(kept) // 2]}, {kept[-1]} |")
    if "starts" in found:
        lines += ["", f"## Programs that start together{of('starts')}", "", "Seconds from the start of the first until all have memory and have launched a kernel.", ""]
        lines += ["| programs | " + " | ".join(SUBJECTS) + " |", "| --- |" + " --- |" * len(SUBJECTS)]
        lines += [f"| {count} | " + " | ".join(str(took[subject]) for subject in SUBJECTS) + " |" for count, took in found["starts"].items()]
    if "again" in found:
        took = "; ".join(f"{mode} {', '.join(str(one['seconds']) for one in several)}" for mode, several in found["again"].items())
        lines += ["", f"## A program is killed in a kernel, and the next one of its job wants nine tenths of the job's memory{of('again')}", ""]
        lines.append(f"Both kernels take 0.5 s, and a program of the pack has work beside them. A hard pack has a quarter of the time. Seconds from the start of a program until it had its memory, six times, of which the first had nobody before it: {took}.")
    if "faults" in found:
        fault = found["faults"]
        news = ", ".join(f"{one['seconds']} s" for one in fault["new ones"])
        lines += ["", "## A fault on the GPU", "", f"One of three clients wrote to a wrong address ({fault['the one']}). Others stayed, with their dead contexts. New programs ran {news} after it, each of which was then killed; there were {fault['servers']} servers by then. The words of a server about a fault, whose clients' numbers are N here:", "", "```", *fault["the server says"], "```"]
    runner.write_page(folder, "packs", lines)


def end(programs):
    for one in programs:
        one.stop()
    for one in programs:
        one.talk.end()


def used_mib():
    return int(subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True).stdout)


def clients():
    """How many clients of MPS the driver's tool lists."""
    said = subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout
    return sum("M+C" in line for line in said.splitlines())


@contextlib.contextmanager
def mps(work):
    """NVIDIA's MPS alone, for programs that are started meanwhile."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=work))
    folder.chmod(0o755)
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    log = folder / "said"
    daemon = subprocess.Popen(["nvidia-cuda-mps-control", "-f", "-multiuser-server"], env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=open(log, "w"), stderr=subprocess.STDOUT)
    os.environ.update(variables)
    try:
        time.sleep(1)
        yield log
    finally:
        for name in variables:
            del os.environ[name]
        daemon.terminate()
        daemon.wait(10)


def main():
    options = runner.parse(
        __doc__, ["library", "monitor", "prolog"],
        mixes=runner.number("1,2,3,4", "numbers, separated by commas"),
        seconds=runner.number(3.0, "that programs are measured"),
        deaths=runner.number(100, "of each kind"),
        budget=runner.BUDGET,
        only={"nargs": "*"},
    )
    if options.report:
        return write_page(options.report)
    from node import PACKED, Node
    from programs import Stage
    options.out.mkdir(parents=True, exist_ok=True)
    with runner.work_folder() as work, contextlib.ExitStack() as at_end:
        stage = Stage(work, {name for mix in MIXES for name in mix} | {"busy100us", "sync20us", "quarter200us"})
        library = pathlib.Path(shutil.copy(options.library, work / "libsoftmig.so"))
        node = Node(library, options.prolog.resolve(), options.monitor.resolve(), work, PACKED)
        at_end.callback(node.stop)
        node.start()
        packs = Packs(options, node, stage, work)
        packs.keep("proof", node.proved())
        steps = [("starts", packs.starts), ("again", packs.again), ("faults", packs.faults), ("shares", packs.shares), ("quarters", packs.quarters), ("account", packs.account)]
        steps += [(f"mix {number}", lambda number=number: packs.mix(number)) for number in map(int, options.mixes.split(","))]
        steps += [("launch", packs.launch), ("deaths", packs.deaths)]
        for name, step in steps:
            if options.only and name.split()[0] not in options.only or time.monotonic() > packs.until:
                continue
            try:
                step()
            except Exception:
                print(name, "failed", traceback.format_exc()[-1200:], flush=True)
                packs.keep(f"{name} failed", traceback.format_exc()[-400:])


if __name__ == "__main__":
    main()
