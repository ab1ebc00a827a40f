"""A program that does the same again and again, without filling the GPU: what a job of the array runs. Says each second how many steps it has done.

    work.py SECONDS [MIB]

A step is 100 small products, launched at once as a graph. With MIB, first takes so much memory, by pieces of 64 MiB, and says how much it got.
"""
import sys
import time

import torch

held = []
if len(sys.argv) > 2:
    try:
        while len(held) * 64 < int(sys.argv[2]):
            held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    print("held_mib", len(held) * 64, flush=True)
    del held[-16:]
    torch.cuda.empty_cache()
data, weights = torch.randn(64, 2048, device="cuda"), torch.eye(2048, device="cuda")
for _ in range(3):
    data @ weights
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(100):
        data = data @ weights
steps, begun, end = 0, time.time(), time.time() + float(sys.argv[1])
while time.time() < end:
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    steps += 20
    if time.time() - begun >= 1:
        print("steps", round(steps / (time.time() - begun)), flush=True)
        steps, begun = 0, time.time()
