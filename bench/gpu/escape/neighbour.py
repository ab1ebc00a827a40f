"""A job that keeps its slice busy: neighbour.py FILE. A line for each 50 ms: the time, and how many steps ended until then."""
import pathlib
import sys
import time

import torch

AHEAD, STEP = 8, 4096


def main():
    one = torch.randn(STEP, STEP, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(one)
    pending, done, said = [], 0, 0.0
    with open(pathlib.Path(sys.argv[1]), "w", buffering=1) as file:
        while True:
            torch.matmul(one, one, out=out)
            event = torch.cuda.Event(blocking=False)
            event.record()
            pending.append(event)
            if len(pending) > AHEAD:
                pending.pop(0).synchronize()
                done += 1
            if (now := time.monotonic()) > said + 0.05:
                print(f"{now:.4f} {done}", file=file)
                said = now


main()
