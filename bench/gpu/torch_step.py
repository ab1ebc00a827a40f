"""PyTorch: a seeded training run, whose losses must be the same with and without the hook."""
import time
import torch

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
print("total", torch.cuda.get_device_properties(0).total_memory, torch.cuda.mem_get_info()[1])
model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data, target = torch.randn(256, 1024, device="cuda"), torch.randn(256, 1024, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    return loss


for _ in range(20):
    loss = step()
print("loss %.9g" % loss.item())
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(300):
    loss = step()
torch.cuda.synchronize()
print("time step_ns %.0f" % ((time.perf_counter() - start) / 300 * 1e9))
print("loss %.9g" % loss.item())
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = model(data)
graph.replay()
print("graph %.9g" % out.double().sum().item())
print("nvml", torch.cuda.device_count())
