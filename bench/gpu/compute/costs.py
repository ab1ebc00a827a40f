"""What a launch of a kernel that does nothing takes, through the library and from the driver itself, in turns."""
from alone import WITHOUT, environment
from client import Client
from node import Job

CELL = "cost of a launch, in turns with the driver"
# What limits there are besides the library: none, of memory alone, the whole GPU, and a share so large that no launch waits.
WAYS = {"no limit": {}, "memory limit only": {"CUDA_DEVICE_MEMORY_LIMIT": "100G"}, "at 100 %": {"CUDA_DEVICE_SM_LIMIT": "100"}, "at 99 % alone": {"CUDA_DEVICE_SM_LIMIT": "99"}}
IN_A_JOB = "at 99 % in a job"
KINDS = {"batch": "amortised", "each": "each", "first": "first on an idle stream"}
ROUNDS = 3


def measure(record, controls, subjects, wanted):
    if not wanted(CELL):
        return
    record.found(CELL, WITHOUT.name, lambda: asked([controls.program], environment(WITHOUT, None)))
    for subject in subjects:
        for word, limits in WAYS.items():
            record.found(CELL, f"{subject.name}, {word}", lambda: asked([controls.program], environment(subject, None) | limits))


def measure_job(record, controls, node, wanted):
    """The same where turns are granted."""
    if wanted(CELL):
        record.found(CELL, f"softmig, {IN_A_JOB}", lambda: in_a_job(controls, node))


def in_a_job(controls, node):
    job = Job(node, 6900, 99, 100)
    node.preload(True)
    try:
        return asked(job.command(controls.program), job.environment(), lambda: node.preload(False))
    finally:
        node.preload(False)
        job.end()


def asked(command, where, begun=lambda: None):
    client = Client(command, where).begun()
    try:
        begun()
        client.ask("calibrate")
        return [client.ask("cost", 60) for _ in range(ROUNDS)]
    finally:
        client.end()


def more(rounds, kind):
    """By how much it is dearer than the driver itself, in ns: the median of the rounds' medians."""
    return sorted(one[kind]["more"][1] for one in rounds)[len(rounds) // 2]
