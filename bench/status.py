#!/usr/bin/env python3
"""How long `softmig status` and `softmig free` take on a cluster of 1000 nodes, 4000 GPUs and 6000 jobs.

    cargo build --release -p softmig
    sudo python3 bench/status.py target/release/softmig

Slurm's answers are made up here, in the form of 24.11, and `scontrol` and `squeue` are scripts that print them: the figures
are softmig's own time, with the time in which the answers are read. The last one has live figures too: a program answers for
the exporters of all nodes, by HTTP on the loopback address, so its own time counts as well. It prints one JSON object. Needs
root, for mounts that only this script sees, and a machine without Slurm's commands in /usr/bin.
"""

import asyncio
import json
import multiprocessing
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

NODES, GPUS, SHARDS, WAITING = 1000, 4, 4, 1000
ROUNDS = 15

NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=32 CPUAlloc=20 CPUEfctv=64 CPUTot=64 CPULoad=8.28 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres=gpu:l40s:4,shard:l40s:16 GresDrain=N/A "
    "GresUsed=gpu:l40s:1(IDX:3),shard:l40s:4(3/4,1/4,0/4,0/4) NodeAddr={name} NodeHostName={name} Version=24.11.5 "
    "OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC RealMemory=512000 AllocMem=64000 FreeMem=400000 Sockets=2 Boards=1 "
    "State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=main BootTime=2026-11-23T19:58:55 "
    "SlurmdStartTime=2026-11-23T20:38:23 LastBusyTime=2026-11-23T20:38:23 ResumeAfterTime=None "
    "CfgTRES=cpu=64,mem=500G,billing=16,gres/gpu=4,gres/shard=16 AllocTRES=cpu=20,mem=64000M,gres/gpu=1,gres/shard=4 "
    "CurrentWatts=0 AveWatts=0"
)
JOB = (
    "JobId={id} JobName=train UserId={user}(2001) GroupId=users(100) MCS_label=N/A Priority=1 Nice=0 Account=teaching "
    "QOS=student JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "DerivedExitCode=0:0 RunTime=00:00:12 TimeLimit=00:30:00 TimeMin=N/A SubmitTime=2026-11-23T20:38:21 "
    "EligibleTime=2026-11-23T20:38:21 AccrueTime=2026-11-23T20:38:21 StartTime=2026-11-23T20:38:22 "
    "EndTime=2026-11-23T21:08:22 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-23T20:38:22 "
    "Scheduler=Backfill Partition=main AllocNode:Sid=login:1 ReqNodeList=(null) ExcNodeList=(null) NodeList={node} "
    "NumNodes=1 NumCPUs=4 NumTasks=1 CPUs/Task=4 ReqB:S:C:T=0:0:*:* ReqTRES=cpu=4,mem=16000M,node=1,billing=1,gres/shard=1 "
    "AllocTRES=cpu=4,mem=16000M,node=1,billing=1,gres/shard=1 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* {place}"
    "MinCPUsNode=4 MinMemoryNode=16000M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 "
    "Licenses=(null) Network=(null) Command=/home/{user}/train.sh WorkDir=/home/{user} Extra=softmig=1:l40s:1/4:11366:hard "
    "StdErr=/home/{user}/slurm-{id}.out StdIn=/dev/null StdOut=/home/{user}/slurm-{id}.out TresPerNode={gres}"
)
WIDTHS = [16, 64, 64, 64, 24, 96, 64, 64, 24, 256, 96, 96, 64, 96]


def answers():
    """Each node has four slices and a job on a whole GPU; others wait."""
    nodes, details, rows = [], [], []

    def job(state, reason, node, gres, place):
        number = len(details) + 1
        user = f"user{number % 200}"
        where = f"Nodes={node} CPU_IDs=0-3 Mem=16000 GRES={place} " if place else ""
        details.append(JOB.format(id=number, user=user, state=state, reason=reason, node=node, gres=gres, place=where))
        cells = [number, number, user, "teaching", state, reason, "main", "student", "2026-11-23T20:38:22", node, "N/A", gres]
        rows.append("".join(f"{cell:<{width}}|" for cell, width in zip(map(str, cells + ["N/A", "N/A"]), WIDTHS)))

    for at in range(NODES):
        name = f"gpu{at:04}"
        nodes.append(NODE.format(name=name))
        for parts in ["1/4,0/4,0/4,0/4"] * 3 + ["0/4,1/4,0/4,0/4"]:
            job("RUNNING", "None", name, "gres/shard:l40s:1", f"shard:l40s:1({parts})")
        job("RUNNING", "None", name, "gres/gpu:l40s:1", "gpu:l40s:1(IDX:3)")
    for _ in range(WAITING):
        job("PENDING", "Priority", "", "gres/shard:l40s:1", "")
    return "\n".join(nodes), "\n".join(details), "\n".join(rows)


async def exporters(port):
    """Answers for each node's exporter, as the request's Host says whose."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"

    async def answer(reader, writer):
        asked = await reader.read(4096)
        if not asked:
            return writer.close()
        fields = dict(line.lower().split(b": ", 1) for line in asked.splitlines()[1:] if line)
        name = fields[b"host"].split(b":")[0].decode()
        first = int(name.removeprefix("gpu")) * 5 + 1
        part = {"type": "l40s", "shards": 1, "shards_per_gpu": 4, "mode": "hard", "memory_bytes": 11366 << 20}
        gpu = {"index": 1, "memory_bytes": 4 << 30, "memory_peak_bytes": 8 << 30, "known_seconds": 1000.0, "charged_seconds": 150.0}
        jobs = [{"job": first + at, "slice": part, "gpus": [gpu]} for at in range(4)]
        writer.write(head + json.dumps({"schema_version": 1, "node": name, "gpus": [], "jobs": jobs}).encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def with_exporters(policy, folder):
    """A policy that says where they answer, and a machine that knows the nodes' names."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = multiprocessing.Process(target=lambda: asyncio.run(exporters(port)), daemon=True)
    process.start()
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 gpu{at:04}\n" for at in range(NODES)))
    subprocess.check_call(["mount", "--bind", hosts, "/etc/hosts"])
    told = policy.read_text().replace("[metrics]\n", f'[metrics]\nexporters = "http://%n:{port}"\n')
    (folder / "live.toml").write_text(told)
    while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
        time.sleep(0.01)
    return folder / "live.toml"


def main():
    if any(pathlib.Path("/usr/bin", name).exists() for name in ["scontrol", "squeue"]):
        sys.exit("Slurm's own commands are in /usr/bin; run this elsewhere")
    if "--inside" not in sys.argv:
        sys.exit(subprocess.call(["unshare", "--mount", sys.executable, *sys.argv, "--inside"]))
    policy = pathlib.Path(__file__).resolve().parent.parent / "conf" / "policy.toml"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(sys.argv[1], folder / "softmig-under-test")
        for file, text in zip(["nodes", "details", "rows"], answers()):
            (folder / file).write_text(text + "\n")
        scripts = {
            "scontrol": 'case "$*" in *node*) exec cat {0}/nodes;; *) exec cat {0}/details;; esac',
            "squeue": "exec cat {0}/rows",
        }
        for script, line in scripts.items():
            (folder / script).write_text("#!/bin/sh\n" + line.format("/usr/local/bin") + "\n")
            (folder / script).chmod(0o755)
        subprocess.check_call(["mount", "--bind", name, "/usr/local/bin"])
        os.chdir("/")
        figures = {}
        live = with_exporters(policy, folder)
        plain = [(words, words, policy) for words in ["status", "status --all", "status --json", "status --user=user7", "free"]]
        for called, words, own in [*plain, ("status --all, live figures of all nodes", "status --all", live)]:
            command = ["/usr/local/bin/softmig-under-test", *words.split(), f"--policy={own.resolve()}"]
            times = []
            for _ in range(ROUNDS):
                start = time.monotonic()
                said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
                times.append(time.monotonic() - start)
            figures[called] = {
                "median_ms": round(statistics.median(times) * 1000),
                "slowest_ms": round(max(times) * 1000),
                "lines": said.count(b"\n"),
            }
            if own == live and said.count(b"holds 4.0 GiB now") != NODES * 4:
                sys.exit(said[-500:].decode())
        subprocess.check_call(["umount", "/usr/local/bin", "/etc/hosts"])
        size = sum((folder / file).stat().st_size for file in ["nodes", "details", "rows"])
    print(json.dumps({"nodes": NODES, "gpus": NODES * GPUS, "jobs": NODES * 5 + WAITING, "answers_mib": size >> 20, **figures}, indent=1))


if __name__ == "__main__":
    main()
