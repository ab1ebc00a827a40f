"""Programs that run beside each other: how each is started, let go, parked, and what it got done meanwhile."""
import array
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import time

from mixes import KERNELS, UNITS
from node import USER
from protocol import COUNT, ENDED, GO, PARKED, READY, SIZE, STOP, words
from stand import Talk

HERE = pathlib.Path(__file__).resolve().parent
# To import frameworks and compile their kernels, eight at a time; and to end what was launched ahead in a small share. s.
PREPARE, PARK = 240, 60
THREADS = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")


class Trouble(Exception):
    """A program ended, or does not answer."""


class Stage:
    """What the programs need, where every user can read it."""

    def __init__(self, work, names):
        self.work, self.numbers = work, itertools.count()
        self.pages, self.cache, self.scripts = (work / name for name in ("pages", "cache", "scripts"))
        for folder in (self.pages, self.cache, self.scripts):
            folder.mkdir()
            folder.chmod(0o777 if folder == self.cache else 0o755)
        for name in ["protocol", "models", *(set(names) - set(KERNELS))]:
            shutil.copy(HERE / f"{name}.py", self.scripts)
        for script in self.scripts.iterdir():
            script.chmod(0o644)
        self.kernels = work / "kernels"
        if set(names) & set(KERNELS):
            subprocess.run(["nvcc", "-O2", "-arch=native", HERE / "work.cu", "-o", self.kernels], check=True)

    def environment(self):
        """That of all programs, with the library and without."""
        cache = str(self.cache)
        return {f"{name}_NUM_THREADS": "2" for name in THREADS} | {
            "HOME": cache, "XDG_CACHE_HOME": cache, "CUPY_CACHE_DIR": f"{cache}/cupy", "CUDA_CACHE_PATH": f"{cache}/nv", "HF_HOME": f"{cache}/hf",
            "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONDONTWRITEBYTECODE": "1",
        }

    def command(self, name, page):
        return [self.kernels, name, page] if name in KERNELS else [sys.executable, self.scripts / f"{name}.py", page]

    def page(self):
        """An empty page, and the file for latencies beside it; every user may write both."""
        page = self.pages / str(next(self.numbers))
        for path, size in ((page, SIZE), (pathlib.Path(f"{page}.lat"), 0)):
            path.write_bytes(bytes(size))
            path.chmod(0o666)
        return page


class Program:
    """One of them. A job makes it run in that job; without one it is an ordinary user's."""

    def __init__(self, stage, name, job=None, extra=None):
        assert name in UNITS
        self.name, self.job, self.page = name, job, stage.page()
        self.words = words(self.page)
        command = stage.command(name, self.page)
        command = job.command(*command) if job else ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command]
        environment = (job.environment() if job else dict(os.environ)) | stage.environment()
        if extra:
            environment["LD_PRELOAD"] = str(extra)
        self.talk, self.went = Talk(list(map(str, command)), environment), 0

    def wait(self, word, seconds):
        end = time.monotonic() + seconds
        while not self.words[word]:
            if self.talk.child.poll() is not None:
                raise Trouble(f"{self.name} ended: {self.talk.end()}")
            if time.monotonic() > end:
                self.talk.kill()
                raise Trouble(f"{self.name} did not answer for {seconds} s: {self.talk.end()}")
            time.sleep(0.005)

    def ready(self):
        self.wait(READY, PREPARE)

    def go(self):
        self.went = time.monotonic_ns()
        self.words[GO] = 1

    def rest(self):
        self.words[GO] = 0

    def parked(self):
        self.wait(PARKED, PARK)

    def look(self):
        """Units that ended, when the last of them did, and when that was seen."""
        while True:
            count, ended = self.words[COUNT], self.words[ENDED]
            if self.words[COUNT] == count:
                return count, ended, time.monotonic_ns()

    def between(self, before, after):
        """What it got done between two looks; call it when it is parked."""
        units, span = after[0] - before[0], after[2] - before[2]
        found = {"workload": self.name, "pace": 0.0, "units": units, "seconds": round(span / 1e9, 3)}
        if units:
            # From end to end, that a unit more or less does not count; one that stands still is not spared the rest of the time.
            took = after[1] - max(before[1], self.went)
            found["pace"] = round(units / max(took, span - took / units) * 1e9, 4)
        latencies = self.latencies(before[2], after[2])
        return found | ({"latency": latencies} if latencies else {})

    def latencies(self, since, until):
        """Of the requests that came in that time, ms."""
        kept = array.array("Q")
        kept.frombytes(pathlib.Path(f"{self.page}.lat").read_bytes())
        took = sorted(kept[at + 1] / 1e6 for at in range(0, len(kept), 2) if since <= kept[at] < until)
        if not took:
            return None
        return {f"p{part}": round(took[round((len(took) - 1) * part / 100)], 2) for part in (50, 90, 99)} | {"longest": round(took[-1], 2), "requests": len(took)}

    def stop(self):
        self.words[STOP] = 1


def window(programs, seconds, settle):
    """Lets programs go at once, and says what each got done after it settled. The others stay parked."""
    for program in programs:
        program.go()
    time.sleep(settle)
    before = [program.look() for program in programs]
    time.sleep(seconds)
    after = [program.look() for program in programs]
    for program in programs:
        program.rest()
    for program in programs:
        program.parked()
    return [program.between(*looks) for program, *looks in zip(programs, before, after)]
