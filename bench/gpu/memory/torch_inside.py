"""PyTorch below a limit: what it sees, what it gets, and how a program goes on that was refused. Prints a line of JSON."""
import json
import os
import sys
import torch

MIB = 1 << 20
said = {"conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")}


def fill(step=64 * MIB, most=6 << 30):
    """Tensors until there is no room; what they hold together."""
    held, error = [], None
    try:
        while len(held) * step < most:
            held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as refused:
        error = str(refused)
    except RuntimeError as other:
        error = "other: " + str(other)
    return len(held) * step // MIB, error


def part(name):
    def run(work):
        try:
            said[name] = work()
        except Exception as error:  # What a part raises is its result.
            said[name] = f"{type(error).__name__}: {error}"[:300]
        # The caller looks from outside.
        print(json.dumps({"phase": name}), flush=True)
        sys.stdin.readline()
        return work
    return run


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        return torch.full((1024,), float(at))


def main():
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")

    @part("totals_mib")
    def _():
        free, total = torch.cuda.mem_get_info()
        return {"properties": torch.cuda.get_device_properties(0).total_memory // MIB, "mem_get_info": total // MIB, "free": free // MIB}

    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(batch):
        optimizer.zero_grad(set_to_none=True)
        data = torch.randn(batch, 2048, device="cuda")
        loss = torch.nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        return loss.item()

    part("train")(lambda: [step(512) for _ in range(5)][-1])
    part("infer")(lambda: float(model(torch.ones(64, 2048, device="cuda")).sum().detach()))

    @part("larger_batch_refused_smaller_done")
    def _():
        batch, tried = 1 << 20, []
        while batch:
            try:
                step(batch)
                return {"refused": tried, "done": batch}
            except torch.cuda.OutOfMemoryError:
                tried.append(batch)
                optimizer.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
                batch //= 2

    @part("graph")
    def _():
        data = torch.ones(64, 2048, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side), torch.no_grad():
            model(data)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            out = model(data)
        graph.replay()
        torch.cuda.synchronize()
        with torch.no_grad():
            return {"same": bool(torch.allclose(out, model(data)))}

    @part("loader")
    def _():
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
        return sum(float(batch.cuda(non_blocking=True).sum()) for batch in loader)

    @part("fill_mib")
    def _():
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved() // MIB
        got, error = fill()
        said["fill_error"] = (error or "")[:200]
        free, total = torch.cuda.mem_get_info()
        return {"before": before, "got": got, "free_then": free // MIB}

    @part("fill_again_mib")
    def _():
        torch.cuda.empty_cache()
        return fill()[0]

    part("train_after")(lambda: step(512))
    print(json.dumps(said), flush=True)


if len(sys.argv) > 1 and sys.argv[1] == "share":
    # Two of these share a slice: each takes what it gets, and says it; the other is waited for on stdin.
    torch.zeros(1, device="cuda")
    print("ready", flush=True)
    sys.stdin.readline()
    got, error = fill(step=8 * MIB)
    print(json.dumps({"got_mib": got, "error": (error or "")[:120]}), flush=True)
    sys.stdin.readline()
elif __name__ == "__main__":
    main()
