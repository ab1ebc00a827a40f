"""No process hangs: programs whose launches wait for each other, and processes that die or stop while others wait for the GPU."""
import os
import signal
import threading
import time

from alone import WITHOUT, environment
from client import Client
from node import Job
from tenants import spent, tenant, together

CASES = ["later_launch", "wait_value", "wait_for_host", "host_callback", "persistent", "both_ways"]
# A kernel that waits gives up after 8 s.
LIMIT = 30
MS = ("launch", 1000, 1)


def names():
    made = [f"live {where}: {case}" for where in ("alone at 25 %", "beside a greedy job") for case in CASES]
    made += [f"live {where}: IPC flags" for where in ("two processes of a job", "two jobs")]
    return made + ["live holders that are killed", "live holders that are stopped", "live nobody works", "live the monitor is killed"]


def measure(record, controls, node, subject, program, wanted):
    for case in CASES:
        for way, who in (("without", WITHOUT), ("softmig", subject)):
            if wanted(name := f"live alone at 25 %: {case}"):
                record.found(name, way, lambda: one_case([program, case, controls.rounds_per_us], environment(who, None if way == "without" else 25)))
    if not node:
        return
    greedy = [name for name in names() if "greedy" in name and wanted(name)]
    if any(not record.has(name, "softmig") for name in greedy):
        controls.of(*MS)
        with_greedy(record, controls, node, program, greedy)
    for number, where in ((7001, "two processes of a job"), (7011, "two jobs")):
        if wanted(name := f"live {where}: IPC flags"):
            record.found(name, "softmig", lambda: ipc(node, [program, controls.rounds_per_us], number, where == "two jobs"))
    # The one that is watched has half, and no other can have what the dead leave.
    jobs = [tenant((1, 2), MS), *[tenant((1, 8), MS) for _ in range(3)]]
    controls_of = lambda: controls.of(*MS)
    for name, happen, number in (("live holders that are killed", kill, 7100), ("live holders that are stopped", stop, 7200), ("live the monitor is killed", restart, 7300)):
        if wanted(name):
            controls_of()
            record.found(name, "softmig", lambda: together(jobs, controls, node, 4.0, number, happen))
    if wanted("live nobody works"):
        record.found("live nobody works", "softmig", lambda: idle(controls, node))


def one_case(command, where):
    client = Client(command, where)
    try:
        said = client.hear(LIMIT)
    finally:
        ended = client.end(kill=True)
    return said | ({"stderr": ended[1]} if ended[1] else {})


def with_greedy(record, controls, node, program, wanted):
    """Each case in a job of a quarter, while another job wants all that there is."""
    greedy, job = Job(node, 7400, 1, 4), Job(node, 7401, 1, 4)
    node.preload(True)
    other = Client(greedy.command(controls.program), greedy.environment()).begun()
    try:
        other.prepare(controls.work(*MS), 120)
        other.ready()
        other.start(0)
        for name in wanted:
            record.found(name, "softmig", lambda: one_case(job.command(program, name.rpartition(" ")[2], controls.rounds_per_us), job.environment()))
    finally:
        node.preload(False)
        other.end(kill=True)
        greedy.end()
        job.end()


def ipc(node, program, number, is_two_jobs):
    """A kernel of one process waits for a word that a kernel of another sets."""
    jobs = [Job(node, number, 1, 4)] + ([Job(node, number + 1, 1, 4)] if is_two_jobs else [])
    node.preload(True)
    first, second = (Client(job.command(program[0], case, program[1]), job.environment()) for job, case in zip((jobs[0], jobs[-1]), ("waits_for_other", "sets_other")))
    try:
        handle = first.hear(LIMIT)["handle"]
        second.talk.say(handle)
        second.hear(LIMIT)
        first.talk.say()
        first.hear(LIMIT)
        second.talk.say()
        return {"sets": second.hear(LIMIT), "waits": first.hear(LIMIT)}
    finally:
        node.preload(False)
        first.end(kill=True)
        second.end(kill=True)
        for job in jobs:
            job.end()


def later(run, times, act):
    """Does something at some times after the start, each with the job of that place."""
    def all_of_them():
        for at, which in times:
            time.sleep(max(0, run.start_ns / 1e9 + at - time.monotonic()))
            act(which)
    run.meanwhile = threading.Thread(target=all_of_them, daemon=True)
    run.meanwhile.start()
    return [[at, which] for at, which in times]


def send(run, which, number):
    for client in run.clients[which]:
        try:
            os.kill(client.pid, number)
        except ProcessLookupError:
            pass


def kill(run):
    def act(which):
        send(run, which, signal.SIGKILL)
    happened = later(run, [(1.0, 1), (1.7, 2), (2.4, 3)], act)
    # No thread waits for those.
    time.sleep(2.6)
    return happened


def stop(run):
    times = [(0.8 + 0.31 * turn, 1 + turn % 3) for turn in range(8)]

    def act(which):
        send(run, which, signal.SIGSTOP)
        time.sleep(0.2)
        send(run, which, signal.SIGCONT)
    return later(run, times, act)


def restart(run):
    """The monitor dies without a word, and comes again."""
    if not run.node.socket():
        raise RuntimeError("the monitor gives out no seats")

    def act(which):
        run.node.daemon.kill()
        run.node.daemon.wait()
        time.sleep(0.1)
        run.node.start_monitor()
    return later(run, [(1.0, None), (1.8, None), (2.6, None)], act)


def idle(controls, node):
    """What processes and the monitor do while no program has work: switches a second."""
    jobs = [Job(node, 7500 + at, 1, 4) for at in range(4)]
    node.preload(True)
    clients = [Client(job.command(controls.program), job.environment()) for job in jobs]
    try:
        for client in clients:
            client.begun()
            client.run(controls.work(*MS), 0.2)
        time.sleep(0.3)
        pids = [client.pid for client in clients]
        before = [spent(pid) for pid in [*pids, node.daemon.pid]]
        time.sleep(2)
        after = [spent(pid) for pid in [*pids, node.daemon.pid]]
        rates = [[round((a[0] - b[0]) / 2, 4), (a[1] - b[1]) / 2] for a, b in zip(after, before)]
        return {"processes": rates[:-1], "monitor": rates[-1]}
    finally:
        node.preload(False)
        for client in clients:
            client.end(kill=True)
        for job in jobs:
            job.end()
