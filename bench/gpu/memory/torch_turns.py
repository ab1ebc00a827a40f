"""PyTorch: a training step and inference, in turns: each line on stdin asks for one turn."""
import sys
import time
import torch

torch.manual_seed(1)
# Large enough that the host is ahead of the GPU, small enough that many turns fit.
small = len(sys.argv) > 1 and sys.argv[1] == "small"
width, batch = (1024, 256) if small else (4096, 1024)
model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data, target = torch.randn(batch, width, device="cuda"), torch.randn(batch, width, device="cuda")


def train():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()


def infer():
    with torch.no_grad():
        model(data)


def timed(step, count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e9


for step in (train, infer):
    timed(step, 30)
counts = (100, 300) if small else (20, 60)
print("done", flush=True)
for _ in sys.stdin:
    print("time train_ns %.0f" % timed(train, counts[0]))
    print("time infer_ns %.0f" % timed(infer, counts[1]))
    print("done", flush=True)
