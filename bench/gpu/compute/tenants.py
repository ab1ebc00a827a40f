"""Several jobs on one GPU: what each gets of it, and what all of them get done together."""
import os
import pathlib
import time

from alone import WITHOUT, environment
from client import SETTLE, Client, name_of, settled_ms, windows_of
from node import SOCKET, Job

BUSY = ("launch", 100, 1)
ASYNC = ("launch", "ex", "cooperative", "graph", "streams", "narrow", "memset")


def tenant(share, *works, mode="hard", late=0.0):
    """A job: its shards of how many, and what each of its processes does."""
    shards, per_gpu = share
    return {"shards": shards, "per_gpu": per_gpu, "works": works or (BUSY,), "mode": mode, "late": late}


def equal(count, *works):
    return [tenant((1, count), *works) for _ in range(count)]


def cells(quick):
    """Name of each cell: its tenants."""
    ms = ("launch", 1000, 1)
    duty, step, notebook = ("duty", 1000, 10_000_000), ("sync", 1000, 1), ("think", 5000, 245_000_000)
    # A cell of a notebook, at 0.7 a second.
    cell = ("think", 37000, 1_390_000_000)
    table = {
        "10:90, 100 us": [tenant((1, 10)), tenant((9, 10))],
        "4 x 25, 100 us": equal(4, BUSY),
        "8 x 12.5, 100 us": equal(8, BUSY),
    }
    if quick:
        return {f"jobs {name}": jobs for name, jobs in table.items()}
    table |= {
        "10:90, 1 ms": [tenant((1, 10), ms), tenant((9, 10), ms)],
        "30:70, 100 us": [tenant((3, 10)), tenant((7, 10))],
        "30:70, 1 ms": [tenant((3, 10), ms), tenant((7, 10), ms)],
        "25:25:50, 100 us": [tenant((1, 4)), tenant((1, 4)), tenant((1, 2))],
        "4 x 25, 20 us": equal(4, ("launch", 20, 1)),
        "4 x 25, 1 ms": equal(4, ms),
        "8 x 12.5, 1 ms": equal(8, ms),
        "4 x 25, 20 us, 100 us, 1 ms and 20 ms": [tenant((1, 4), ("launch", us, 1)) for us in (20, 100, 1000, 20000)],
        "25:25:50, 20 us, graphs and 20 ms": [tenant((1, 4), ("launch", 20, 1)), tenant((1, 4), ("graph", 20, 10)), tenant((1, 2), ("launch", 20000, 1))],
        "50:50, one process and eight": [tenant((1, 2)), tenant((1, 2), *[BUSY] * 8)],
        "50:50, one stream and eight": [tenant((1, 2)), tenant((1, 2), ("streams", 100, 8))],
        "1 ms in every 10 at 25, beside three greedy": [tenant((1, 4), duty), *equal(4, BUSY)[:3]],
        "step of 1 ms at 25, beside three greedy": [tenant((1, 4), step), *equal(4, BUSY)[:3]],
        "soft, seven notebooks and one greedy": [*[tenant((1, 8), notebook, mode="soft") for _ in range(7)], tenant((1, 8), mode="soft")],
        "soft, one busy at 25": [tenant((1, 4), mode="soft")],
        "4 x 25, the fourth comes later": [*equal(4, BUSY)[:3], tenant((1, 4), late=2.0)],
        "50:50, a step of 1 ms beside kernels of 200 ms": [tenant((1, 2), step), tenant((1, 2), ("launch", 200000, 1))],
        "50:50, 100 us beside kernels of 200 ms": [tenant((1, 2)), tenant((1, 2), ("launch", 200000, 1))],
        "hard, one busy at 25": [tenant((1, 4))],
        "hard, one at 25, launches of 20 us": [tenant((1, 4), ("launch", 20, 1))],
        "hard, one at 25, launches of 20 ms": [tenant((1, 4), ("launch", 20000, 1))],
        "hard, one at 25, synchronising at 5 us": [tenant((1, 4), ("sync", 5, 1))],
        "hard, one at 25, synchronising at 20 us": [tenant((1, 4), ("sync", 20, 1))],
        "hard, one at 25, synchronising at 1 ms": [tenant((1, 4), ("sync", 1000, 1))],
        "hard, one at 25, 1 ms in every 10": [tenant((1, 4), duty)],
        "hard, a cell of 37 ms at 12.5": [tenant((1, 8), cell)],
        "hard, a cell of 37 ms at 12.5, beside seven greedy": [tenant((1, 8), cell), *equal(8, BUSY)[:7]],
        "hard, a cell of 37 ms at 12.5, beside seven that pause": [tenant((1, 8), cell), *equal(8, ("think", 5000, 30_000_000))[:7]],
        "hard, one at 75, synchronising at 20 us": [tenant((3, 4), ("sync", 20, 1))],
    }
    return {f"jobs {name}": jobs for name, jobs in table.items()}


def measure(record, controls, node, wanted, quick, number=9000):
    table = {name: jobs for name, jobs in cells(quick).items() if wanted(name)}
    for subject in ("softmig", "without"):
        for name, jobs in table.items():
            number += 100
            if record.has(name, subject):
                continue
            for job in jobs:
                for work in job["works"]:
                    controls.of(*work)
                    if work[0] not in ASYNC:
                        controls.of("launch", work[1], 1)
            with_library = subject == "softmig"
            record.found(name, subject, lambda: together(jobs, controls, node if with_library else None, 4.0 if controls.short else 10.0, number))


class Together:
    """The processes of some tenants, all ready to begin."""

    def __init__(self, jobs, controls, node, seconds, number):
        self.jobs, self.controls, self.node = jobs, controls, node
        self.made, self.clients, self.meanwhile = [], [], None
        try:
            for at, job in enumerate(jobs):
                made = node and Job(node, number + at, job["shards"], job["per_gpu"], job["mode"])
                self.made.append(made)
            if node:
                node.preload(True)
            for made, job in zip(self.made, jobs):
                command = made.command(controls.program) if made else [controls.program]
                where = made.environment() if made else environment(WITHOUT, None)
                self.clients.append([Client(command, where) for _ in job["works"]])
            # They have it: nothing else is to be started with it.
            for clients in self.clients:
                for client in clients:
                    client.begun()
            if node:
                node.preload(False)
            for job, clients in zip(jobs, self.clients):
                for work, client in zip(job["works"], clients):
                    client.prepare(controls.work(*work), seconds - job["late"])
            for clients in self.clients:
                for client in clients:
                    client.ready()
        except BaseException:
            self.end(kill=True)
            raise

    def start(self):
        """All at once, but for those that are late."""
        self.start_ns = time.monotonic_ns() + 50_000_000
        for job, clients in zip(self.jobs, self.clients):
            for client in clients:
                client.start(self.start_ns + job["late"] * 1e9)
        return self

    def end(self, kill=False):
        if self.meanwhile:
            self.meanwhile.join(20)
        if self.node:
            self.node.preload(False)
        ended = [[client.end(kill) for client in clients] for clients in self.clients]
        logs = [made.log() for made in self.made if made]
        for made in self.made:
            if made:
                made.end()
        return ended, logs


def together(jobs, controls, node, seconds, number, meanwhile=None):
    """Runs them at the same time, and says what each got."""
    run = Together(jobs, controls, node, seconds, number)
    monitor = spent(node.daemon.pid) if node and node.daemon else None
    trouble = None
    try:
        run.start()
        events = meanwhile(run) if meanwhile else None
        said = [[client.result() for client in clients if client.talk.child.poll() is None] for clients in run.clients]
    except BaseException:
        run.end(kill=True)
        raise
    if monitor:
        after = spent(node.daemon.pid)
        monitor = {"cpu": round((after[0] - monitor[0]) / seconds, 4), "switches_a_s": round((after[1] - monitor[1]) / seconds, 1)}
    ended, logs = run.end()
    found = [outcome(job, results, controls) for job, results in zip(jobs, said)]
    busy = [one for one in found if one["busy"]]
    ratios = [one["got"] / one["share"] for one in busy]
    result = {
        "tenants": found, "sum": round(sum(one["got"] for one in found), 2),
        "jain": round(sum(ratios) ** 2 / (len(ratios) * sum(ratio * ratio for ratio in ratios)), 5) if any(ratios) else None,
        "worst": round(max((abs(one["got"] - one["share"]) for one in busy), default=0), 3),
        "handover": handovers([client.stretches for clients in run.clients for client in clients], seconds),
        "monitor": monitor, "arbiter": bool(node) and SOCKET.exists(),
    }
    errors = [lines for clients in ended for _, lines in clients if lines]
    if errors or any(logs):
        result["said"] = [*errors[:2], *[log for log in logs if log][:2]]
    if events:
        result["events"] = events
    return result


def handovers(stretches, seconds):
    """How often the GPU went from one process to another, and how long it was idle between them, in us."""
    merged = sorted((begun, ended, who) for who, of_one in enumerate(stretches) for begun, ended in of_one)
    if len(stretches) < 2 or not merged:
        return None
    settled = merged[0][0] + SETTLE * 1e6
    idle, last, whose = [], merged[0][1], merged[0][2]
    for begun, ended, who in merged[1:]:
        if who != whose and begun > settled:
            idle.append(max(0, begun - last) / 1e3)
        last, whose = max(last, ended), who
    idle.sort()
    if not idle:
        return None
    at = {f"p{part}": round(idle[round((len(idle) - 1) * part / 100)], 1) for part in (10, 50, 90, 99)}
    return {"a_s": round(len(idle) / (seconds - SETTLE / 1e3), 1), "idle_us": at | {"mean": round(sum(idle) / len(idle), 1)}}


def outcome(job, results, controls):
    """What one tenant got, all its processes together, in percent of the GPU."""
    got, works = 0.0, job["works"]
    for work, said in zip(works, results):
        whole = controls.rate(*work) if work[0] in ASYNC else controls.rate("launch", work[1], 1)
        got += said["rate"] / whole * 100
    share = job["shards"] / job["per_gpu"] * 100
    busy = works[0][0] in ASYNC
    found = {"share": round(share, 3), "mode": job["mode"], "work": name_of(*works[0]), "processes": len(works), "busy": busy, "got": round(got, 3)}
    if len(results) < len(works) or not results:
        return found | {"gone": len(works) - len(results)}
    if len(works) == 1:
        said = results[0]
        wanted = share / 100 * controls.rate(*works[0]) if busy else controls.rate(*works[0])
        found |= {"cv": said["cv"], "first_ms": said["first_ms"], "settled_ms": settled_ms(said, wanted), "longest_gap_ms": said["longest_gap_ms"]}
        if not busy:
            found |= {"pace": round(said["rate"] / controls.rate(*works[0]), 4), "step_us": said["step_us"], "own_step_us": controls.of(*works[0]).get("step_us")}
        found["windows_100ms"] = windows_of(said, 0)[:60]
    found["helper_cpu"] = round(max(said["cpu"]["helper_s"] / said["seconds"] for said in results), 4)
    return found


def spent(pid):
    """CPU seconds and switches of all threads of a process so far, but for the driver's own."""
    cpu, switches = 0.0, 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            status = (task / "status").read_text()
            name = (task / "comm").read_text()
        except OSError:
            continue
        if name.startswith("cuda-"):
            continue
        cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        switches += sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)
    return cpu, switches
