"""Numba: a Monte Carlo price of an option from 32768 paths, which fill a quarter of the GPU, and a wait for each."""
import math

from protocol import Page

page = Page()
import numpy
from numba import cuda
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_normal_float32

PATHS, STEPS, BLOCK = 32768, 256, 128


@cuda.jit
def walk(states, out):
    path = cuda.grid(1)
    if path < out.size:
        price = 0.0
        for _ in range(STEPS):
            price += 0.0125 * xoroshiro128p_normal_float32(states, path)
        out[path] = max(math.exp(price) - 1.0, 0.0)


def main():
    states = create_xoroshiro128p_states(PATHS, seed=1)
    out = cuda.device_array(PATHS, numpy.float32)

    def once():
        walk[PATHS // BLOCK, BLOCK](states, out)
        out.copy_to_host().mean()

    page.run_each(once)


if __name__ == "__main__":
    main()
