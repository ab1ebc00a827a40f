#!/usr/bin/env python3
"""How long `softmig advise` takes for a history of many jobs.

    bench/advise.py --softmig target/release/softmig [--jobs 1000000] [--keep FILE]

It simulates a queue for 400 GPUs of two types, writes it as sacct prints it, and prints how long softmig reads and replays it.
Half of the jobs have a JS1 summary, a third have steps with figures of Slurm's own, the others have none.
"""
import argparse
import base64
import gzip
import heapq
import json
import random
import subprocess
import tempfile
import time

COLUMNS = ("JobIDRaw|User|Account|Partition|QOS|Submit|Eligible|Start|End|AllocTRES|TRESUsageInMax|TRESUsageInTot|"
           "AdminComment")
TYPES = {"l40s": (46068, 300), "a100": (40960, 100)}


def js1(peak, total, used):
    figures = {"nodes": {"n1": {
        "total_memory": 1 << 33, "used_memory": 1 << 32, "total_time": 1.5, "cpus": 4,
        "gpu_total_memory": {"0": total << 20}, "gpu_used_memory": {"0": peak << 20},
        "gpu_utilization": {"0": round(used, 1)}}}, "total_time": 100, "gpus": 1}
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(figures).encode())).decode()


def need(random, mib):
    """Memory and utilization: many small jobs, some that need all."""
    size = random.choice([1, 1, 2, 4, 8, 8])
    return int(mib / size * random.random() * 0.95), 100 / size * random.random()


def simulate(count, out, seed):
    rng = random.Random(seed)
    rows = []
    for kind, (mib, gpus) in TYPES.items():
        summaries = [js1(peak, mib, used) for peak, used in (need(rng, mib) for _ in range(2000))]
        # As many jobs as their GPUs are a part of all.
        jobs = count * gpus // 400
        now, mean = 1_750_000_000.0, 7200 * 0.97 / gpus
        free = [now] * gpus
        for _ in range(jobs):
            now += rng.expovariate(1 / mean)
            takes = min(rng.expovariate(1 / 7200), 86400) + 30
            start = max(now, heapq.heappop(free))
            heapq.heappush(free, start + takes)
            rows.append((start, int(now), int(start), int(start + takes), kind, summaries))
    rows.sort()
    print(COLUMNS, file=out)
    for number, (_, submit, start, end, kind, summaries) in enumerate(rows, 1):
        tres = f"billing=4,cpu=4,gres/gpu:{kind}=1,gres/gpu=1,mem=32G,node=1"
        form = rng.random()
        comment = rng.choice(summaries) if form < 0.5 else ""
        print(f"{number}|u{number % 300}|a{number % 40}|gpu|normal|{submit}|{submit}|{start}|{end}|{tres}|||{comment}", file=out)
        used = ""
        if 0.5 <= form < 0.83:
            peak, percent = need(rng, TYPES[kind][0])
            used = f"cpu=00:10:00,energy=0,fs/disk=1,gres/gpumem={peak}M,gres/gpuutil={percent:.0f},mem=1G,pages=0,vmem=2G"
        print(f"{number}.batch||a|||{start}|{start}|{start}|{end}|{tres}|{used}|{used}|", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--softmig", required=True)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--keep", help="the file to write the history to")
    options = parser.parse_args()
    with open(options.keep, "w") if options.keep else tempfile.NamedTemporaryFile("w") as out:
        simulate(options.jobs, out, options.seed)
        out.flush()
        words = [options.softmig, "advise", "--file", out.name, "--shards-per-gpu", "8"]
        for kind, (mib, gpus) in TYPES.items():
            words += ["--gpu", f"{kind}={mib}", "--gpus", f"{kind}={gpus}"]
        began = time.monotonic()
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        took = time.monotonic() - began
    print(said)
    print(f"{options.jobs} jobs: {took:.1f} s")


if __name__ == "__main__":
    main()
