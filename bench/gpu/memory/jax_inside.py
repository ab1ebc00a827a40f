"""JAX below a limit, with its preallocation: what it takes, and that it computes."""
import json
import jax
import jax.numpy as jnp

said = {}
a = jnp.ones((2048, 2048))
said["sum"] = float((a @ a).sum())
stats = jax.devices()[0].memory_stats() or {}
said["stats_mib"] = {key: value >> 20 for key, value in stats.items() if value > 1 << 20}
try:
    b = jnp.ones((5 << 30,), dtype=jnp.uint8)
    b.block_until_ready()
    said["too_much"] = "got"
except Exception as error:
    said["too_much"] = f"{type(error).__name__}: {error}"[:160]
said["sum_after"] = float((a @ a).sum())
print(json.dumps(said))
