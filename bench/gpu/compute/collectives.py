"""No process hangs: processes that wait for each other's kernels, by NCCL across GPUs and by gloo on one."""
import importlib.util
import os
import pathlib
import sys
import tempfile

from alone import WITHOUT, environment
from client import Client, Trouble
from machine import gpus
from node import Job

SCRIPT = pathlib.Path(__file__).with_name("torch_nccl.py")
# Beginning takes a while; a step that takes longer than that hangs.
BEGIN, LIMIT = 90, 30
# The work, its backend, the devices of each process, and how many GPUs that takes.
WAYS = {
    "two processes, a GPU each": ("collectives", "nccl", ["0", "1"], 2),
    "one process, two GPUs": ("collectives", "nccl", ["0,1"], 2),
    "two processes on one GPU by gloo": ("collectives", "gloo", ["0", "0"], 1),
    "tensor-parallel inference on two GPUs": ("tensor", "nccl", ["0", "1"], 2),
    "DDP with a loader on two GPUs": ("ddp", "nccl", ["0", "1"], 2),
    "four processes, a GPU each": ("collectives", "nccl", ["0", "1", "2", "3"], 4),
    "one process, four GPUs": ("collectives", "nccl", ["0,1,2,3"], 4),
    "tensor-parallel inference on four GPUs": ("tensor", "nccl", ["0", "1", "2", "3"], 4),
    "DDP with a loader on four GPUs": ("ddp", "nccl", ["0", "1", "2", "3"], 4),
}
# The job's share, and its neighbour: one that is busy on all of the GPUs, or on the first of them, or a job of the same program.
PLACES = {
    "alone at 25 %": None,
    "in a job of 25 % beside a greedy one": (1, 4, "greedy"),
    "in a job of 50 % beside a greedy one": (1, 2, "greedy"),
    "in a job of 50 % beside one that is busy on one GPU": (1, 2, "single"),
    "in two jobs of 50 %": (1, 2, "same"),
}


def names():
    return [f"nccl, {way}: {place}" for way, (*_, needs) in WAYS.items() for place in PLACES if needs > 1 or "one GPU" not in place]


def measure(record, controls, node, subject, program, wanted):
    chosen = [name for name in names() if wanted(name)]
    if not chosen:
        return
    if importlib.util.find_spec("torch") is None:
        return print(f"nccl: skipped, there is no PyTorch: {len(chosen)} cells", flush=True)
    seconds = 3 if controls.short else 10
    for number, (way, (work, backend, devices, needs)) in enumerate(WAYS.items()):
        mine = [place for place in PLACES if f"nccl, {way}: {place}" in chosen]
        if not mine:
            continue
        if len(gpus()) < needs:
            print(f"nccl: skipped, this machine has {len(gpus())} GPU: {way}", flush=True)
            continue
        control = record.found(f"control: nccl, {way}", "without", lambda: run(controls.program.parent, work, backend, devices, seconds, [lambda *command: Client(command, environment(WITHOUT, None))]))
        for at, place in enumerate(mine):
            if PLACES[place] is None:
                def measured():
                    # As 'softmig run' does: the processes of one run know of each other by a file.
                    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="softmig-bench-") as ledger:
                        os.truncate(ledger.fileno(), 4096 + 65536 * needs)
                        own = environment(subject, 25) | {"SOFTMIG_RUN": ledger.name}
                        return run(controls.program.parent, work, backend, devices, seconds, [lambda *command: Client(command, own)])
            elif node:
                def measured():
                    return beside(node, program, controls, work, backend, devices, seconds, PLACES[place], needs, 8100 + 20 * number + 4 * at)
            else:
                continue
            share = 25 if PLACES[place] is None else 100 * PLACES[place][0] / PLACES[place][1]
            record.found(f"nccl, {way}: {place}", subject.name, lambda: compared(measured(), control, share))


def compared(found, control, share):
    """Its pace without a limit is that of the whole GPUs."""
    if not control:
        return found
    of_own_pace = found["rate"] / control["rate"] * 100
    return found | {"of_own_pace": round(of_own_pace, 2), "of_share": round(of_own_pace / share * 100, 2)}


def run(folder, work, backend, devices, seconds, starts):
    """One process for each entry in each job, and what the first says; each has to end. `starts` has how each job starts one."""
    store = folder / "store"
    store.mkdir(exist_ok=True)
    store.chmod(0o1777)
    clients = []
    try:
        for at, one in enumerate(starts):
            file = store / f"{len(list(store.iterdir()))}-{at}"
            clients += [one(sys.executable, SCRIPT, work, backend, rank, len(devices), own, file, seconds) for rank, own in enumerate(devices)]
        for client in clients:
            client.begun(BEGIN)
        for client in clients:
            client.talk.say()
        said = [client.hear(seconds + LIMIT) for client in clients]
        if not all(one["right"] for one in said):
            raise Trouble(f"a sum is wrong: {said}")
        jobs = [said[at]["rate"] for at in range(0, len(said), len(devices))]
        return said[0] | {"rate": min(jobs), "rates": jobs, "longest_ms": max(one["longest_ms"] for one in said)}
    finally:
        for client in clients:
            client.end(kill=True)


def beside(node, program, controls, work, backend, devices, seconds, share, needs, number):
    """In a job, while another keeps these GPUs busy."""
    shards, per_gpu, neighbour = share
    ids = ",".join(map(str, range(needs)))
    job = Job(node, number + 1, shards, per_gpu, gpus=ids)
    own = lambda of: lambda *command: Client(of.command(*command), of.environment())
    there = 1 if neighbour == "single" else needs
    others = {"greedy": (1, 4), "single": (1, 2), "same": (shards, per_gpu)}[neighbour]
    other = Job(node, number, *others, gpus=",".join(map(str, range(there))))
    node.preload(True)
    busy, starts = None, [own(job)]
    try:
        if neighbour == "same":
            starts.append(own(other))
        else:
            busy = Client(other.command(program, max(1, round(1000 * controls.rounds_per_us)), 1000, seconds + BEGIN + LIMIT, there), other.environment())
            busy.begun()
            busy.start(0)
        return run(controls.program.parent, work, backend, devices, seconds, starts) | {"said": [*job.log(), *other.log()][:4]}
    finally:
        node.preload(False)
        if busy:
            busy.end(kill=True)
        other.end()
        job.end()
