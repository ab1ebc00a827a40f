"""PyTorch: work and collectives in turns, as one of several processes, or as one process with several GPUs.

    torch_nccl.py BACKEND RANK WORLD DEVICES FILE SECONDS

DEVICES: those that this process uses, such as 0 or 0,1. Says that it has begun, and what it got done after a line.
"""
import datetime
import json
import os
import sys
import time

# Multicast can put the GPUs of a machine that others share out of service.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
import torch
import torch.distributed as dist

COLLECTIVES = 10


def main():
    backend, rank, world, devices, file, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(one) for one in sys.argv[4].split(",")], sys.argv[5], float(sys.argv[6])
    torch.cuda.set_device(devices[0])
    if world > 1:
        dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
    data = [torch.ones(4 << 20, device=f"cuda:{device}") for device in devices]
    one = [torch.randn(2048, 2048, device=f"cuda:{device}") for device in devices]

    def collect():
        if world > 1:
            dist.all_reduce(data[0])
        else:
            torch.cuda.nccl.all_reduce(data)

    def step():
        for tensor in data:
            tensor.fill_(1)
        for _ in range(COLLECTIVES):
            for matrix in one:
                torch.matmul(matrix, matrix)
            collect()
            for tensor in data:
                tensor.div_(max(world, len(devices)))
        # All of them stop at the same step.
        over = torch.tensor([float(time.monotonic() >= end)], device=f"cuda:{devices[0]}")
        if world > 1:
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
        return over.item() > 0

    end = time.monotonic() + 1
    step()
    print(json.dumps({"begun": os.getpid()}), flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    end, steps, longest, last = begun + seconds, 0, 0.0, begun
    while not step():
        steps += 1
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    took = time.monotonic() - begun
    right = all(bool((tensor == 1).all().item()) for tensor in data)
    print(json.dumps({"steps": steps, "rate": steps / took, "longest_ms": round(longest * 1e3, 1), "right": right}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
