"""One tenant with a cap of its own, and none beside it."""
import os

from client import Client, Work, name_of

# Kernels' lengths in us, launched one after the other and waited for.
LENGTHS = (5, 20, 100, 1000, 20000, 200000)
ASYNC = [("launch", us, 1) for us in LENGTHS]
SYNC = [("sync", us, 1) for us in LENGTHS]
WAYS = [("ex", 100, 1), ("cooperative", 100, 1), ("graph", 20, 10), ("graph", 20, 1000), ("streams", 100, 2), ("streams", 100, 8), ("narrow", 100, 8), ("memset", 30, 64)]
DUTY = [("duty", 1000, 10_000_000), ("think", 1000, 9_000_000)]

QUICK = {
    25: [("launch", 20, 1), ("launch", 100, 1), ("launch", 1000, 1), ("launch", 20000, 1), ("sync", 20, 1), ("sync", 1000, 1), ("graph", 20, 10), ("streams", 100, 2)],
    50: [("launch", 100, 1)],
}
FULL = {share: ASYNC + SYNC + WAYS + DUTY for share in (10, 25, 50)} | {share: [("launch", 100, 1), ("launch", 1000, 1)] for share in (12.5, 33.3, 75)}


def seconds_of(mode, us, n, share, short):
    launch_us = us * n if mode == "graph" else us
    if launch_us >= 200000:
        return 20.5
    if launch_us >= 20000:
        # Enough of them that one more or less is little.
        return max(4.5 if short else 10.5, 0.5 + 40 * launch_us / 1e6 / (share / 100))
    return 2.5 if short else 5.5


def environment(subject, share):
    """Of a process with a limit of its own; `without` has neither library nor limit."""
    made = dict(os.environ)
    if subject.library:
        made |= {"LD_PRELOAD": str(subject.library), "SOFTMIG_LOG_LEVEL": "2", **subject.more}
        if share is not None:
            made["CUDA_DEVICE_SM_LIMIT"] = f"{share:g}"
    return made


class Subject:
    """What is measured: a library, or none."""

    def __init__(self, name, library=None, more=None):
        self.name, self.library, self.more = name, library, more or {}


WITHOUT = Subject("without")


class Controls:
    """How quickly each work goes without a limiter: measured once, in one process that is kept."""

    def __init__(self, record, program, short):
        self.record, self.program, self.short = record, program, short
        self.client = None
        self.rounds_per_us = record.found("calibration", "without", lambda: self.alive().ask("calibrate"))["rounds_per_us"]

    def alive(self):
        if self.client is None:
            self.client = Client([self.program], environment(WITHOUT, None)).begun()
            # The clock rises with the first work.
            self.client.ask("calibrate")
        return self.client

    def work(self, mode, us, n):
        return Work(mode, us, n, self.rounds_per_us)

    def rate(self, mode, us, n):
        return self.of(mode, us, n)["rate"]

    def of(self, mode, us, n):
        work = self.work(mode, us, n)
        seconds = 5.5 if us >= 200000 else 2 if us >= 20000 else 1.2 if self.short else 2.5
        return self.record.found(f"control: {work.name()}", "without", lambda: self.alive().run(work, seconds))

    def end(self):
        if self.client:
            self.client.end()
            self.client = None


def judged(said, share, controls, mode, us, n):
    """What it got of the GPU, against what it should get."""
    whole = controls.rate("launch", us, 1) if mode in ("sync", "duty", "think") else controls.rate(mode, us, n)
    own = controls.rate(mode, us, n) / whole
    cap = share / 100
    found = {
        "share": share, "mode": mode, "us": us, "n": n,
        "got": round(said["rate"] / whole * 100, 3),
        # A program that does not keep the GPU busy by itself gets no more than its own pace.
        "should": round(min(cap, own) * 100, 3),
        "own_pace": round(own * 100, 3),
        "cv": said["cv"], "first_ms": said["first_ms"],
        "helper_cpu": round(said["cpu"]["helper_s"] / said["seconds"], 4),
        "helper_switches": round(said["cpu"]["helper_switches"] / said["seconds"], 1),
        "launcher_cpu": round(said["cpu"]["launcher_s"] / said["seconds"], 4),
        "control_cv": controls.of(mode, us, n)["cv"],
    }
    if "step_us" in said:
        found |= {"step_us": said["step_us"], "control_step_us": controls.of(mode, us, n).get("step_us")}
    if said["seconds"] > 3 or us <= 1000:
        found["windows_100ms"] = windows(said)
    return found


def windows(said):
    from client import windows_of
    return windows_of(said, 0)[:60]


def cells(quick):
    """Name of each cell: its share and work."""
    table = QUICK if quick else FULL
    return {f"alone {share:g} %: {name_of(*work)}": (share, *work) for share, works in table.items() for work in works}


def measure(record, controls, subjects, wanted, quick):
    """All wanted cells: one process for each share and subject."""
    table = {name: cell for name, cell in cells(quick).items() if wanted(name)}
    for subject in subjects:
        for share in dict.fromkeys(cell[0] for cell in table.values()):
            missing = {name: cell[1:] for name, cell in table.items() if cell[0] == share and not record.has(name, subject.name)}
            if not missing:
                continue
            for name, work in missing.items():
                controls.of(*work)
                if work[0] in ("sync", "duty", "think"):
                    controls.of("launch", work[1], 1)
            client = None
            for name, (mode, us, n) in missing.items():
                def run(mode=mode, us=us, n=n):
                    nonlocal client
                    client = client or Client([controls.program], environment(subject, share)).begun()
                    try:
                        said = client.run(controls.work(mode, us, n), seconds_of(mode, us, n, share, controls.short))
                    except Exception:
                        client.end(kill=True)
                        client = None
                        raise
                    return judged(said, share, controls, mode, us, n)
                record.found(name, subject.name, run)
            if client:
                record.note(f"alone {share:g} %, stderr", subject.name, client.end())
