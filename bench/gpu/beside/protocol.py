"""What a program of this benchmark and the one who measures it share: a page of counters.

The program prepares, says that it is ready, and is parked. It works while it is told to go, parks again when it is told
no more, with nothing left on the GPU, and ends when it is told to stop. The words below are those of work.cu too.
"""
import mmap
import os
import pathlib
import sys
import time

SIZE = 4096
# Units of work that ended; the program is ready; it may go; it shall end; it is parked; when the last unit ended, ns.
COUNT, READY, GO, STOP, PARKED, ENDED = range(6)
# Between two looks of a parked program, s.
NAP = 0.002


def words(path):
    """The page, as 64-bit words."""
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), SIZE)).cast("Q")


class Page:
    """The program's side. The page is its first argument; make this before the frameworks are imported."""

    def __init__(self):
        self.path = pathlib.Path(sys.argv[1])
        self.words = words(self.path)
        # Some frameworks complain of a missing home.
        os.environ.setdefault("HOME", "/tmp")

    def done(self, units=1):
        """So many units of work ended now."""
        self.words[ENDED] = time.monotonic_ns()
        self.words[COUNT] += units

    def run(self, step, drain=None, begin=None):
        """Runs steps while it may. `drain` ends all that is under way; `begin` is called each time that it goes on."""
        told = self.words
        first = True
        while not told[STOP]:
            if first or not told[GO]:
                if drain:
                    drain()
                told[PARKED] = told[READY] = 1
                while not told[GO] and not told[STOP]:
                    time.sleep(NAP)
                told[PARKED] = 0
                first = False
                if told[STOP]:
                    break
                if begin:
                    begin()
            step()
        if drain:
            drain()

    def run_each(self, once, warm_up=5):
        """Runs `once` while it may, after some times that do not count: each call is a unit of work, which has ended with it."""
        def step():
            once()
            self.done()

        for _ in range(warm_up):
            once()
        self.run(step)
