"""PyTorch: a tensor on the GPU given to another process of the job."""
import json
import torch
import torch.multiprocessing


def other(queue, answer):
    tensor = queue.get()
    tensor += 1
    torch.cuda.synchronize()
    answer.put(float(tensor.double().sum()))
    del tensor
    # Alive until the first one has its answer: it is the owner's memory.
    queue.get()


if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    queue, answer = context.Queue(), context.Queue()
    process = context.Process(target=other, args=(queue, answer))
    process.start()
    tensor = torch.ones(256 << 18, device="cuda")
    queue.put(tensor)
    total = answer.get(timeout=60)
    queue.put(None)
    process.join(30)
    print(json.dumps({"sum": total, "mine": float(tensor.double().sum()), "expected": float(2 * tensor.numel()), "exit": process.exitcode}))
