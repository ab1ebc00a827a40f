"""Which programs share the GPU, and what share each has."""

# Every workload, and what one unit of it is.
UNITS = {
    "train_small": "step", "train_large": "step", "jax_step": "step", "cupy_sync": "step", "decode": "token", "server": "request", "loader": "step",
    "gaussian": "step", "optax_step": "round", "monte_carlo": "price", "graph": "step",
    "busy100us": "kernel", "busy1ms": "kernel", "quarter200us": "kernel", "busy200ms": "kernel", "bandwidth": "kernel", "sync20us": "kernel", "cell37ms": "cell",
}
# Those of work.cu; the others are Python.
KERNELS = ("busy100us", "busy1ms", "quarter200us", "busy200ms", "bandwidth", "sync20us", "cell37ms")


def equal(*names):
    return [(name, 1, len(names)) for name in names]


def of(*pairs):
    """Workloads, each with its share as text."""
    return [(name, *map(int, share.split("/"))) for name, share in pairs]


MIXES = [
    equal("train_small", "jax_step", "cupy_sync", "train_small"),
    equal(*["train_small"] * 4),
    equal("server", "busy100us", "train_large", "cupy_sync"),
    equal("loader", "decode", "bandwidth", "train_small"),
    equal("busy100us", "busy200ms", "bandwidth", "train_large"),
    equal("sync20us", *["busy100us"] * 3),
    equal("server", "train_large"),
    equal("server", "busy100us"),
    equal("train_small", "train_large"),
    equal("decode", "busy200ms"),
    of(("train_large", "1/2"), ("server", "1/4"), ("jax_step", "1/4")),
    of(("decode", "1/2"), ("cupy_sync", "1/4"), ("loader", "1/4")),
    equal("train_small", "train_small", "jax_step", "cupy_sync", "server", "loader", "busy100us", "decode"),
    of(("server", "1/10"), ("train_large", "9/10")),
    of(("busy100us", "1/10"), ("jax_step", "9/10")),
]

# Mixes of programs with a past, and the modes of their slices; what each past is stands in pasts.py.
PASTS = [
    ("alone", "hard", equal(*["busy100us"] * 4)),
    ("alone", "soft", equal(*["busy100us"] * 2)),
    ("alone", "hard", equal("cell37ms", *["busy100us"] * 3)),
    ("alone", "soft", equal("jax_step", "train_small", "cupy_sync", "train_small")),
    ("in turn", "hard", equal(*["busy100us"] * 4)),
    ("in turn", "soft", equal(*["busy100us"] * 4)),
    ("comes back", "hard", equal(*["busy100us"] * 4)),
    ("comes back", "soft", equal("jax_step", "train_small", "cupy_sync", "train_small")),
]


def share(shards, per_gpu):
    return f"{shards}/{per_gpu}"


def title(mix):
    """A mix in words; also its key in the figures."""
    shares = [share(*one[1:]) for one in mix]
    if len(set(shares)) == 1:
        return f"{len(mix)} x {shares[0]}: {', '.join(name for name, *_ in mix)}"
    return ", ".join(f"{name} {of_one}" for (name, *_), of_one in zip(mix, shares))


def chosen(text, of=MIXES):
    """Number and mix of those asked for; of all, where none is."""
    numbers = [int(word) for word in text.split(",") if word.strip()] or range(1, len(of) + 1)
    return [(number, of[number - 1]) for number in numbers]
