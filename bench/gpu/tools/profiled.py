"""PyTorch's profiler, which uses CUPTI: the kernels of a training step, and how often each ran."""
import collections

import torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
data = torch.randn(64, 512, device="cuda")
model(data).sum().backward()
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
    for _ in range(5):
        model(data).sum().backward()
    torch.cuda.synchronize()
kernels = collections.Counter(event.name for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA)
for name, count in sorted(kernels.items()):
    print(f"{count} {name[:100]}")
calls = collections.Counter(event.name for event in seen.events() if event.name.startswith("cuda"))
print(*(f"{name}={count}" for name, count in sorted(calls.items())))
