"""Programs that do a known amount of work, and what they say of it."""
import json
import os
import statistics
import time

from stand import Talk

# Windows that are put together, ms.
WINDOW = 100
SETTLE = 500
# Kernels from this length on are counted from the first end to the last: a window would hold too few.
LONG_US = 5000


class Trouble(Exception):
    """A program said something else than it should."""


class Client:
    """One process of `work`, with an environment or in a job."""

    def __init__(self, command, environment=None):
        self.talk = Talk(list(map(str, command)), environment or dict(os.environ))
        self.pid = None
        self.stretches = []

    def begun(self, seconds=30):
        self.pid = self.hear(seconds)["begun"]
        return self

    def hear(self, seconds):
        """What it says next, as JSON; what is none is passed over."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.talk.line(max(0.01, end - time.monotonic()))
            except TimeoutError:
                raise Trouble(f"nothing heard for {seconds} s; {self.end(kill=True)}") from None
            if line is None:
                raise Trouble(f"ended: {self.end(kill=True)}")
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if "error" in said:
                raise Trouble(said["error"])
            return said

    def ask(self, line, seconds=20):
        self.talk.say(line)
        return self.hear(seconds)

    def prepare(self, work, seconds):
        """Has it make all that a run needs."""
        self.work, self.seconds = work, seconds
        self.talk.say(f"run {work.mode} {work.rounds} {work.estimate_us} {seconds} -1 {work.n}")

    def ready(self, seconds=30):
        self.hear(seconds)

    def start(self, at_ns):
        self.talk.say(f"{at_ns:.0f}")

    def result(self, more=15):
        said = self.hear(self.seconds + more)
        said["rate"] = rate_of(said)
        said["cv"] = variation(said)
        self.stretches = said.pop("stretches", [])
        return said

    def run(self, work, seconds):
        self.prepare(work, seconds)
        self.ready()
        self.start(0)
        return self.result()

    def end(self, kill=False):
        if kill:
            self.talk.kill()
        return self.talk.end(10)


class Work:
    """What a client is to do: kernels of a length, launched in some way."""

    def __init__(self, mode, us, n, rounds_per_us):
        self.mode, self.us, self.n = mode, us, n
        self.rounds = max(1, round(us * rounds_per_us))
        # Of one launch.
        self.estimate_us = us * n if mode == "graph" else us

    def name(self):
        return name_of(self.mode, self.us, self.n)


def name_of(mode, us, n):
    length = f"{us / 1000:g} ms" if us >= 1000 else f"{us:g} us"
    words = {"graph": f"graph of {n}", "streams": f"{n} streams", "narrow": f"{n} streams of narrow kernels", "sync": "synchronising" if n == 1 else f"synchronising every {n}"}
    words |= {"duty": f"every {n / 1e6:g} ms", "think": f"pausing {n / 1e6:g} ms", "memset": f"memset of {n} MiB"}
    return words[mode] if mode == "memset" else f"{words.get(mode, mode)}, {length}"


def rate_of(said):
    """Kernels a second, since it settled."""
    count, first, last = said["steady"]
    if count < 2 or said["seconds"] * 1e3 <= SETTLE:
        return said["finished"] / said["seconds"]
    if said["estimate_us"] >= LONG_US:
        return (count - 1) / (last - first) * 1e3
    return count / (said["seconds"] - SETTLE / 1e3)


def windows_of(said, first_ms=SETTLE):
    """What was finished in each 100 ms, from then on."""
    small = said["windows"][round(first_ms / said["window_ms"]):]
    step = round(WINDOW / said["window_ms"])
    return [sum(small[at:at + step]) for at in range(0, len(small) - step + 1, step)]


def variation(said):
    """The coefficient of variation of windows of 100 ms; None where a kernel is too long for that."""
    windows = windows_of(said)
    if said["estimate_us"] >= LONG_US or len(windows) < 5 or not sum(windows):
        return None
    return round(statistics.pstdev(windows) / statistics.mean(windows), 4)


def settled_ms(said, wanted, within=0.1):
    """From when on it had its share: the end of the first 100 ms from which 300 ms are what they should be."""
    windows = windows_of(said, 0)
    for at in range(len(windows) - 2):
        mean = statistics.mean(windows[at:at + 3]) * 1000 / WINDOW
        if abs(mean - wanted) <= within * wanted:
            return (at + 1) * WINDOW
    return None
