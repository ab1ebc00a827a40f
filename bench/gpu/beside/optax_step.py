"""Flax and Optax: steps of training a small classifier, some hundreds of microseconds each, a hundred between two waits."""
import os

from protocol import Page

page = Page()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

WIDTH, LAYERS, BATCH, CLASSES, STEPS = 1024, 4, 512, 10, 100


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(LAYERS):
            x = nn.relu(nn.Dense(WIDTH)(x))
        return nn.Dense(CLASSES)(x)


def main():
    model, optimiser = Classifier(), optax.adamw(1e-3)
    keys = jax.random.split(jax.random.PRNGKey(1), 3)
    data = jax.random.normal(keys[0], (BATCH, WIDTH))
    target = jax.random.randint(keys[1], (BATCH,), 0, CLASSES)
    weights = model.init(keys[2], data)
    state = optimiser.init(weights)

    def loss(weights):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(weights, data), target).mean()

    @jax.jit
    def update(weights, state):
        slopes = jax.grad(loss)(weights)
        changes, state = optimiser.update(slopes, state, weights)
        return optax.apply_updates(weights, changes), state

    def once():
        nonlocal weights, state
        for _ in range(STEPS):
            weights, state = update(weights, state)
        jax.block_until_ready(weights)

    page.run_each(once)


if __name__ == "__main__":
    main()
