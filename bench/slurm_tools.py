#!/usr/bin/env python3
"""Workflow tools and launchers on a real Slurm: each gets a slice, and starts one process in it. Prints the rows of docs/tools.md.

    python3 bench/slurm_tools.py [--slurm 22.05] [--only ray]

Like `cargo xtask demo`, with Python 3.11, pip and 8 GB below target/. The GPUs are simulated: the tools count them by NVML, and no program
computes on one. Ends with 1 if a tool has anything else than one process in one slice, or if the page has another row.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = pathlib.Path(__file__).with_suffix("")
# A tree like /, which is laid over the machines of the cluster.
LAYER = ROOT / "target/slurm-tools"
PINS = {
    "submitit": "1.5.4",
    "dask-jobqueue": "0.9.0",
    "parsl": "2026.10.26",
    "snakemake": "9.27.1",
    "snakemake-executor-plugin-slurm": "2.8.0",
    "torch": "2.15.0",
    "accelerate": "1.15.0",
    "pytorch-lightning": "2.6.6",
    "ray": "2.60.0",
    "dask-cuda": "26.10.0",
}
# Seconds for one part.
LONGEST = 120
QUARTER = "shards=1 gpus=1 cuda=0 rank=0/1"
HALF = QUARTER.replace("shards=1", "shards=2")
FORMS = ["sbatch --gres=gpu:l40s.4:1", "sbatch --gpus=l40s.4:1", "sbatch --gpus-per-node=l40s.4:1", "sbatch --gres=gpu:l40s.4:1 --array=7", "srun --gres=gpu:l40s.4:1"]
# Two whole GPUs: each launcher starts or counts two.
CONTROL = "sbatch --gres=gpu:l40s:2"
# What is typed where jobs are submitted, and what the processes say.
SUBMITTED = {
    "submitit": ("python3 /opt/cases/with_submitit.py", [QUARTER, QUARTER, HALF]),
    "dask-jobqueue": ("python3 /opt/cases/with_dask_jobqueue.py", [QUARTER]),
    "parsl": ("python3 /opt/cases/with_parsl.py", [QUARTER, QUARTER]),
    "snakemake": ("snakemake --snakefile /opt/cases/Snakefile --executor slurm --jobs 3 --latency-wait 10 --slurm-status-command squeue --slurm-init-seconds-before-status-checks 2 --seconds-between-status-checks 2; cat by_*", [QUARTER, QUARTER, HALF]),
    # Nextflow itself comes from no registry of packages: the lines that its SlurmExecutor writes.
    "nextflow": ("sbatch --wait /opt/cases/nextflow.sh; cat .command.log", [QUARTER]),
    "torch on two nodes": ("sbatch --wait /opt/cases/on_nodes.sh; cat said", [QUARTER.replace("0/1", rank) for rank in ("0/2", "1/2")]),
}
# What is typed in a job, which is submitted in each form, also as a step.
LAUNCHED = {
    "torch": ["torchrun --nproc-per-node=gpu /opt/cases/who.py", "torchrun --nproc-per-node=auto /opt/cases/who.py", "torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE /opt/cases/who.py"],
    "accelerate": ["accelerate launch /opt/cases/who.py"],
    "pytorch-lightning": ["python3 /opt/cases/with_lightning.py"],
    "ray": ["python3 /opt/cases/with_ray.py"],
    "dask-cuda": ["python3 /opt/cases/with_dask_cuda.py"],
}


def install():
    """The packages, for the Python of the cluster's Debian."""
    if sys.version_info[:2] != (3, 11):
        sys.exit("slurm_tools: needs Python 3.11, which the cluster has too")
    folder, stamp = LAYER / "opt/tools", LAYER / "installed"
    pins = [f"{name}=={version}" for name, version in PINS.items()]
    if not stamp.exists() or stamp.read_text().split() != pins:
        shutil.rmtree(LAYER, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, *pins], check=True)
        for program in folder.glob("bin/*"):
            if program.is_file():
                program.write_text(re.sub(r"\A#!.*python.*", "#!/usr/bin/python3", program.read_text()))
        stamp.write_text("\n".join(pins))
    shutil.copytree(CASES, LAYER / "opt/cases", dirs_exist_ok=True)


def script(only):
    """What alice types, and the lines that each part has to say."""
    lines = ["echo", "export PYTHONPATH=/opt/tools:/opt/cases PATH=/opt/tools/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTORCH_NVML_BASED_CUDA_CHECK=1 RAY_USAGE_STATS_ENABLED=0"]
    wanted = {}
    for tool, (command, says) in SUBMITTED.items():
        if re.search(only, tool):
            wanted[tool] = (tool.split(" on ")[0], says)
            lines.append(f"echo '== {tool}'; mkdir -p '{tool}'; (cd '{tool}'; timeout {LONGEST} bash -c '{command}') </dev/null 2>&1")
    for tool, commands in LAUNCHED.items():
        for form in [*FORMS, CONTROL] if re.search(only, tool) else []:
            part = f"{tool} by {form}"
            wanted[part] = (tool, [QUARTER] * len(commands))
            lines.append("printf '%s\\n' '#!/bin/bash' " + " ".join(f"'{command}'" for command in commands) + " >job.sh; chmod +x job.sh")
            end = "--wait --output=said job.sh >/dev/null; cat said" if form.startswith("sbatch") else "./job.sh"
            lines.append(f"echo '== {part}'; timeout {LONGEST} {form} --cpus-per-task=2 --mem=6G {end} </dev/null 2>&1")
    # The nodes' names are known to Slurm alone there.
    names = "root\necho 127.0.0.1 $(sinfo --noheader --Node --format=%N) >>/etc/hosts\nexit\n"
    return names + "alice\n" + "\n".join(lines) + "\nexit\nexit\n", wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--slurm", default="22.05")
    parser.add_argument("--only", default="", help="the tools whose names hold this")
    options = parser.parse_args()
    install()
    typed, wanted = script(options.only)
    demo = ["cargo", "xtask", "demo", "--shell", "--slurm", options.slurm, "--layer", LAYER]
    said = ""
    with subprocess.Popen(demo, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cluster:
        cluster.stdin.write(typed)
        cluster.stdin.close()
        for line in cluster.stdout:
            said += line
            print(line, end="", file=sys.stderr, flush=True)
    found = {}
    for part in said.split("\n== ")[1:]:
        name, _, text = part.partition("\n")
        found[name] = text
    wrong = set()
    for part, (tool, says) in wanted.items():
        lines = re.findall(r"^shards=.*$", found.get(part, ""), re.MULTILINE)
        is_right = sorted(lines) == sorted(says)
        if part.endswith(CONTROL):
            is_right = len(lines) == 2 * len(says) or bool(lines) and all(line.endswith("/2") for line in lines)
        if not is_right:
            wrong.add(tool)
        print(f"{part}: {'; '.join(lines)}{'' if is_right else ' WRONG'}")
    page = (ROOT / "docs/tools.md").read_text().splitlines()
    for tool in dict.fromkeys(tool for tool, _ in wanted.values()):
        rows = [row for row in page if row.startswith("| [") and PINS.get(tool, "not run") in row.split(" | ")[0] and tool in row.lower()]
        print(*rows or [f"docs/tools.md: no row for {tool} {PINS.get(tool)}"], sep="\n")
        if not rows:
            wrong.add(tool)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
