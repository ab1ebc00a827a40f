"""JAX: a seeded run, whose results must be the same with and without the hook."""
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Else XLA times several kernels and takes another one each time.
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"
import jax
import jax.numpy as jnp

print("devices", jax.devices())
weights = jax.random.normal(jax.random.PRNGKey(1), (2048, 2048)) / 45
step = jax.jit(lambda x: jnp.tanh(x @ weights))
x = step(jax.random.normal(jax.random.PRNGKey(2), (512, 2048))).block_until_ready()
print("sum %.9g" % float(jnp.sum(x)))
start = time.perf_counter()
for _ in range(3000):
    x = step(x)
x.block_until_ready()
print("time step_ns %.0f" % ((time.perf_counter() - start) / 3000 * 1e9))
