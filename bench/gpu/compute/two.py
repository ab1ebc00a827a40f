"""Two or more GPUs in one process and one job: each GPU has its own share."""
import time

from alone import WITHOUT, environment
from client import Client
from machine import gpus
from node import Job

US = 100
# Name, shares by CUDA's own order, and what the process sees of the GPUs.
ALONE = {
    "25 and 25 %": ({"CUDA_DEVICE_SM_LIMIT": "25"}, (25, 25), None),
    "25 and 50 %": ({"CUDA_DEVICE_SM_LIMIT_0": "25", "CUDA_DEVICE_SM_LIMIT_1": "50"}, (25, 50), None),
    "25 and 50 %, devices reversed": ({"CUDA_DEVICE_SM_LIMIT_0": "25", "CUDA_DEVICE_SM_LIMIT_1": "50"}, (25, 50), "1,0"),
}
JOBS = {"25 %": None, "25 %, devices reversed": "1,0"}


def names():
    return [f"two gpus alone: {name}" for name in ALONE] + [f"two gpus in a job beside another: {name}" for name in JOBS]


def measure(record, controls, node, subject, program, wanted):
    chosen = [name for name in names() if wanted(name)]
    if not chosen:
        return
    if len(gpus()) < 2:
        return print(f"two gpus: skipped, this machine has {len(gpus())} GPU: {', '.join(chosen)}", flush=True)
    seconds = 3 if controls.short else 8
    command = [program, max(1, round(US * controls.rounds_per_us)), US, seconds, 2]
    control = record.found("control: two gpus", "without", lambda: run([Client(command, environment(WITHOUT, None))], seconds)[0])
    for name, (limits, shares, visible) in ALONE.items():
        if wanted(f"two gpus alone: {name}"):
            more = limits | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
            record.found(f"two gpus alone: {name}", subject.name, lambda: judged(run([Client(command, environment(subject, None) | more)], seconds)[0], control, shares))
    for number, (name, visible) in enumerate(JOBS.items()):
        if node and wanted(f"two gpus in a job beside another: {name}"):
            record.found(f"two gpus in a job beside another: {name}", subject.name, lambda: in_jobs(node, command, control, seconds, visible, 8000 + 10 * number))


def run(clients, seconds):
    """They begin together; what each says in the end."""
    try:
        for client in clients:
            client.begun()
        start = time.monotonic_ns() + 50_000_000
        for client in clients:
            client.start(start)
        return [client.hear(seconds + 20)["gpus"] for client in clients]
    finally:
        for client in clients:
            client.end(kill=True)


def in_jobs(node, command, control, seconds, visible, number):
    """A quarter of both GPUs, beside a job that wants all of its half."""
    jobs = [Job(node, number, 1, 4, gpus="0,1"), Job(node, number + 1, 1, 2, gpus="0,1")]
    node.preload(True)
    try:
        found = run([Client(job.command(*command), job.environment() | ({"CUDA_VISIBLE_DEVICES": visible} if visible and not at else {})) for at, job in enumerate(jobs)], seconds)
        return judged(found[0], control, (25, 25)) | {"beside": judged(found[1], control, (50, 50)), "said": [line for job in jobs for line in job.log()][:4]}
    finally:
        node.preload(False)
        for job in jobs:
            job.end()


def judged(found, control, shares):
    """By UUID, since the order may be another one."""
    whole = {gpu["uuid"]: gpu["rate"] for gpu in control}
    got = [round(gpu["rate"] / whole[gpu["uuid"]] * 100, 3) for gpu in found]
    return {"shares": list(shares), "got": got, "uuids": [gpu["uuid"][-8:] for gpu in found], "worst": round(max(abs(g - share) for g, share in zip(got, shares)), 3)}
