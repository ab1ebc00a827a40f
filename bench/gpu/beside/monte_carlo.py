"""Triton: a Monte Carlo price of an option from 32768 paths, which fill a quarter of the GPU, and a wait for each."""
from protocol import Page

page = Page()
import torch
import triton
import triton.language as tl

PATHS, STEPS, BLOCK = 32768, 1024, 128


@triton.jit
def walk(out, seed, steps: tl.constexpr, block: tl.constexpr):
    path = tl.program_id(0) * block + tl.arange(0, block)
    price = tl.zeros((block,), tl.float32)
    for step in range(steps):
        price += 0.0125 * tl.randn(seed + step, path)
    tl.store(out + path, tl.maximum(tl.exp(price) - 1.0, 0.0))


def main():
    out, seed = torch.empty(PATHS, device="cuda"), 0

    def once():
        nonlocal seed
        walk[(PATHS // BLOCK,)](out, seed, STEPS, BLOCK)
        seed += STEPS
        out.mean().item()

    page.run_each(once)


if __name__ == "__main__":
    main()
