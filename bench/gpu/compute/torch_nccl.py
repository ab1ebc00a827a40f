"""PyTorch with several GPUs, as one of several processes, or as one process.

    torch_nccl.py WORK BACKEND RANK WORLD DEVICES FILE SECONDS

WORK: `collectives`, matrices and all-reduces in turns; `tensor`, a token by tensor-parallel layers; `ddp`, training with a loader.
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


class Collectives:
    """Each GPU has the sum of what all have, and divides it by their number: it stays 1."""

    def __init__(self, world, devices):
        self.world, self.several = world, max(world, len(devices))
        self.data = [torch.ones(4 << 20, device=f"cuda:{device}") for device in devices]
        self.matrices = [torch.randn(2048, 2048, device=f"cuda:{device}") for device in devices]

    def step(self):
        for tensor in self.data:
            tensor.fill_(1)
        for _ in range(COLLECTIVES):
            for matrix in self.matrices:
                torch.matmul(matrix, matrix)
            if self.world > 1:
                dist.all_reduce(self.data[0])
            else:
                torch.cuda.nccl.all_reduce(self.data)
            for tensor in self.data:
                tensor.div_(self.several)

    def right(self):
        return all(bool((tensor == 1).all().item()) for tensor in self.data)


class Tensor:
    """A batch of 8 through 16 layers. Each process has its part of the columns and rows, and the sums are those of all."""

    def __init__(self, world, devices):
        torch.manual_seed(dist.get_rank())
        new = lambda rows, columns: torch.randn(rows, columns, device=f"cuda:{devices[0]}", dtype=torch.float16) / rows**0.5
        self.layers = [(new(4096, 16384 // world), new(16384 // world, 4096)) for _ in range(16)]
        self.x = torch.ones(8, 4096, device=f"cuda:{devices[0]}", dtype=torch.float16)

    @torch.no_grad()
    def step(self):
        for widen, narrow in self.layers:
            y = torch.nn.functional.gelu(self.x @ widen) @ narrow
            dist.all_reduce(y)
            self.x = torch.nn.functional.layer_norm(self.x + y, (4096,))

    def right(self):
        return same(self.x)


class Ddp:
    """A network of 8 layers, trained on what two processes of a loader make."""

    def __init__(self, world, devices):
        torch.manual_seed(0)
        self.device = f"cuda:{devices[0]}"
        layers = [torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU()) for _ in range(8)]
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(self.device), device_ids=devices)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = iter(torch.utils.data.DataLoader(Samples(), batch_size=256, num_workers=2, pin_memory=True))

    def step(self):
        batch = next(self.loader).to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        torch.nn.functional.mse_loss(self.model(batch), batch).backward()
        self.optimizer.step()

    def right(self):
        return all(same(parameter.detach()) for parameter in self.model.parameters())


class Samples(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.rand(2048)


def same(tensor):
    """Whether it is finite, and all processes have it."""
    least, most = tensor.float().clone(), tensor.float().clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return bool(torch.isfinite(most).all().item()) and bool((least == most).all().item())


def main():
    work, backend, rank, world = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    devices, file, seconds = [int(one) for one in sys.argv[5].split(",")], sys.argv[6], float(sys.argv[7])
    torch.cuda.set_device(devices[0])
    if world > 1:
        dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
    work = {"collectives": Collectives, "tensor": Tensor, "ddp": Ddp}[work](world, devices)

    def step():
        work.step()
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
    print(json.dumps({"steps": steps, "rate": steps / took, "longest_ms": round(longest * 1e3, 1), "right": work.right()}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
