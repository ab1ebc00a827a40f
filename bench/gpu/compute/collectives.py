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
# Backend, the devices of each process, and how many GPUs that takes.
WAYS = {
    "two processes, a GPU each": ("nccl", ["0", "1"], 2),
    "one process, two GPUs": ("nccl", ["0,1"], 2),
    "two processes on one GPU by gloo": ("gloo", ["0", "0"], 1),
}
PLACES = {"alone at 25 %": None, "in a job of 25 % beside a greedy one": (1, 4), "in a job of 50 % beside a greedy one": (1, 2)}


def names():
    return [f"nccl, {way}: {place}" for way in WAYS for place in PLACES]


def measure(record, controls, node, subject, program, wanted):
    chosen = [name for name in names() if wanted(name)]
    if not chosen:
        return
    if importlib.util.find_spec("torch") is None:
        return print(f"nccl: skipped, there is no PyTorch: {len(chosen)} cells", flush=True)
    seconds = 3 if controls.short else 10
    for number, (way, (backend, devices, needs)) in enumerate(WAYS.items()):
        mine = [place for place in PLACES if f"nccl, {way}: {place}" in chosen]
        if not mine:
            continue
        if len(gpus()) < needs:
            print(f"nccl: skipped, this machine has {len(gpus())} GPU: {way}", flush=True)
            continue
        control = record.found(f"control: nccl, {way}", "without", lambda: run(controls.program.parent, backend, devices, seconds, lambda *command: Client(command, environment(WITHOUT, None))))
        for at, place in enumerate(mine):
            if PLACES[place] is None:
                def measured():
                    # As 'softmig run' does: the processes of one run know of each other by a file.
                    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="softmig-bench-") as ledger:
                        os.truncate(ledger.fileno(), 4096 + 65536 * needs)
                        own = environment(subject, 25) | {"SOFTMIG_RUN": ledger.name}
                        return run(controls.program.parent, backend, devices, seconds, lambda *command: Client(command, own))
            elif node:
                def measured():
                    return beside(node, program, controls, backend, devices, seconds, PLACES[place], needs, 8100 + 20 * number + 4 * at)
            else:
                continue
            record.found(f"nccl, {way}: {place}", subject.name, lambda: compared(measured(), control))


def compared(found, control):
    return found | ({"of_own_pace": round(found["rate"] / control["rate"] * 100, 2)} if control else {})


def run(folder, backend, devices, seconds, start):
    """One process for each entry, and what the first says; each has to end."""
    store = folder / "store"
    store.mkdir(exist_ok=True)
    store.chmod(0o1777)
    file = store / f"{len(list(store.iterdir()))}"
    clients = []
    try:
        for rank, own in enumerate(devices):
            clients.append(start(sys.executable, SCRIPT, backend, rank, len(devices), own, file, seconds))
        for client in clients:
            client.begun(BEGIN)
        for client in clients:
            client.talk.say()
        said = [client.hear(seconds + LIMIT) for client in clients]
        if not all(one["right"] for one in said):
            raise Trouble(f"a sum is wrong: {said}")
        return said[0] | {"longest_ms": max(one["longest_ms"] for one in said)}
    finally:
        for client in clients:
            client.end(kill=True)


def beside(node, program, controls, backend, devices, seconds, share, needs, number):
    """In a job, while another keeps all of these GPUs busy."""
    ids = ",".join(map(str, range(needs)))
    greedy, job = Job(node, number, 1, 4, gpus=ids), Job(node, number + 1, *share, gpus=ids)
    node.preload(True)
    other = Client(greedy.command(program, max(1, round(1000 * controls.rounds_per_us)), 1000, seconds + BEGIN + LIMIT, needs), greedy.environment())
    try:
        other.begun()
        other.start(0)
        return run(controls.program.parent, backend, devices, seconds, lambda *command: Client(job.command(*command), job.environment())) | {"said": [*job.log(), *greedy.log()][:4]}
    finally:
        node.preload(False)
        other.end(kill=True)
        greedy.end()
        job.end()
