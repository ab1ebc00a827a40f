"""JAX: a jitted step of training, some 3 ms, that is waited for each time."""
import os

from protocol import Page

page = Page()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Else XLA times several kernels, and takes another one beside neighbours; without that, cuBLAS's are the fast ones.
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
import jax
import jax.numpy as jnp

# Some 1.6 TFLOP a step.
WIDTH, LAYERS, BATCH = 4096, 8, 2048


def loss(weights, data, target):
    for weight in weights:
        data = jax.nn.relu(data @ weight)
    return jnp.mean(jnp.square((data - target).astype(jnp.float32)))


def update(weights, data, target):
    found, slopes = jax.value_and_grad(loss)(weights, data, target)
    return [weight - 1e-3 * slope for weight, slope in zip(weights, slopes)], found


def main():
    keys = jax.random.split(jax.random.PRNGKey(1), LAYERS + 2)
    weights = [jax.random.normal(key, (WIDTH, WIDTH), jnp.bfloat16) / 45 for key in keys[:LAYERS]]
    data, target = (jax.random.normal(key, (BATCH, WIDTH), jnp.bfloat16) for key in keys[LAYERS:])
    jitted = jax.jit(update, donate_argnums=0)

    def once():
        nonlocal weights
        weights, found = jitted(weights, data, target)
        jax.block_until_ready((weights, found))

    page.run_each(once)


if __name__ == "__main__":
    main()
