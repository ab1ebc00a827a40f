"""PyTorch: steps of training a small transformer, or of inference by a CUDA graph; asked by lines, as `work` is."""
import json
import sys
import time
import torch


def model(layers=6, width=768, heads=12):
    layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, activation="gelu", norm_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


def training():
    network = model()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    # Large enough that the GPU, not Python, is what it waits for.
    data, target = torch.randn(64, 256, 768, device="cuda"), torch.randn(64, 256, 768, device="cuda")

    def step(number):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(network(data), target)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        # As a loop that logs does.
        if number % 10 == 9:
            loss.item()
    return step


def inference():
    network = model().half().eval()
    data = torch.randn(4, 256, 768, device="cuda", dtype=torch.half)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                network(data)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = network(data)

    def step(number):
        graph.replay()
        # A server hands every answer on.
        if number % 4 == 3:
            answer[0, 0, 0].item()
    return step


def main():
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(json.dumps({"begun": 1}), flush=True)
    for line in sys.stdin:
        kind, seconds = line.split()
        step = {"training": training, "inference": inference}[kind]()
        for number in range(20):
            step(number)
        torch.cuda.synchronize()
        # What the limiter lets one do at once, or asks back, is over after this, and what is loaded at the first use is there.
        settled = time.monotonic() + 2
        number = 0
        while time.monotonic() < settled:
            step(number)
            number += 1
        torch.cuda.synchronize()
        begun, number = time.monotonic(), 0
        while time.monotonic() - begun < float(seconds):
            step(number)
            number += 1
        torch.cuda.synchronize()
        took = time.monotonic() - begun
        print(json.dumps({"kind": kind, "steps": number, "seconds": round(took, 4), "rate": number / took}), flush=True)


if __name__ == "__main__":
    main()
