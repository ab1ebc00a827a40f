"""gpu-usage.md from gpu-usage.json."""
import json

from held import tables
from slices import JOBS


def write(folder):
    kept = json.loads((folder / "gpu-usage.json").read_text())
    machine, jobs = kept["machine"], kept["jobs"]
    gpu, driver = map(str.strip, machine["gpu"].split(",")[:2])
    lines = [
        "# What softmig shows of slices, against NVML and the programs' own counts", "",
        "Written by `bench/gpu/usage.py --report bench/results` from gpu-usage.json; do not edit.", "",
        f"{machine['date']}, {gpu}, driver {driver}, {kept['slurm']}, control groups of version {kept['groups']}, {machine['libc']}, softmig of {kept['revision']}.", "",
        f"Four jobs had slices of one GPU for {kept['seconds']:g} s. Each counted the kernels that it launched. A kernel takes what it took before on the idle GPU, without a limit: {', '.join(f'{took} us' for took in kept['kernel_us'].values())}.", "",
        "| job | slice | kernels | memory, MiB by NVML | own work | charged | waited |", "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in jobs.items():
        lines.append(f"| {name} | 1/{JOBS[name][0]} | {one['launched']} | {one['nvml_mib']} | {one['own_seconds']:.2f} s | {one['charged_seconds']:.2f} s | {one['waited_seconds']:.1f} s |")
    lines += ["", f"Changes between jobs took {kept['change_seconds']:.2f} s, processes without a slice {kept['unclaimed_seconds']:.2f} s. NVML's utilization of the card was {kept['nvml_percent']} % on average. The monitor's threads used so much of a core: {', '.join(f'{thread} {part} %' for thread, part in kept['monitor_percent_of_a_core'].items())}.", ""]
    (folder / "gpu-usage.md").write_text("\n".join(lines + tables(kept["checks"])) + "\n")
