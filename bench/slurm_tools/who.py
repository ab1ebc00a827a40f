"""Says which part of a GPU this process has, and which of how many processes it is."""
import os


def line():
    one, other = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID"))
    ranks, tasks = (os.environ.get(name) for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    shards, gpus, cuda = (os.environ.get(name) for name in ("SLURM_SHARDS_ON_NODE", "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES"))
    return f"shards={shards} gpus={gpus} cuda={cuda} rank={one or other or 0}/{ranks or tasks or 1}"


if __name__ == "__main__":
    print(line(), flush=True)
