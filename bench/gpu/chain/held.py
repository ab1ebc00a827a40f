"""What was checked, and the page about it."""
import json


class Held:
    """Checks, each with what was seen and what should be."""

    def __init__(self, folder, about, name="gpu-chain"):
        self.file, self.kept = folder / f"{name}.json", about | {"checks": [], "jobs": {}}

    def check(self, part, what, holds, seen, wanted):
        self.kept["checks"].append({"part": part, "what": what, "holds": bool(holds), "seen": seen, "wanted": wanted})
        print(f"{'ok  ' if holds else 'FAIL'} {part}: {what}: {seen} (wanted: {wanted})", flush=True)
        self.write()
        return holds

    def near(self, part, what, got, wanted, within, unit):
        return self.check(part, what, got is not None and abs(got - wanted) <= within, f"{got:.2f} {unit}" if got is not None else "nothing", f"{wanted:g} {unit}, within {within:g}")

    def failed(self):
        return [one for one in self.kept["checks"] if not one["holds"]]

    def write(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.kept, indent=1) + "\n")


def page(folder):
    """gpu-chain.md from gpu-chain.json."""
    kept = json.loads((folder / "gpu-chain.json").read_text())
    machine, checks = kept["machine"], kept["checks"]
    gpu, driver = map(str.strip, machine["gpu"].split(",")[:2])
    lines = [
        "# From sbatch to nothing left, on a real GPU", "",
        "Written by `bench/gpu/chain.py --report bench/results` from gpu-chain.json; do not edit.", "",
        f"{machine['date']}, {gpu}, driver {driver}, {kept['slurm']}, control groups of version {kept['groups']}, {machine['libc']}, softmig of {kept['revision']}, work by {kept.get('by', 'nothing')}; {kept.get('seconds', 0):.0f} s from nothing to the end.", "",
        "A real slurmctld and slurmd with softmig in job_submit and cli_filter, its prolog and epilog, its monitor, and its library in /etc/ld.so.preload. A job with the whole GPU comes first: its pace is 100 %, and what it sees and takes is what slices must not. Then half a GPU and two quarters at the same time: the half with its own environment, the second with none (`env -i`), the third with the half's SLURM_JOB_ID.", "",
    ]
    (folder / "gpu-chain.md").write_text("\n".join(lines + tables(checks)) + "\n")


def tables(checks):
    """The lines of a page: how many checks hold, and a table for each part."""
    failed = [one for one in checks if not one["holds"]]
    lines = [f"**{len(checks) - len(failed)} of {len(checks)} checks hold.**" + (" Those that do not: " + "; ".join(f"{one['part']}, {one['what']}" for one in failed) + "." if failed else ""), ""]
    for part in dict.fromkeys(one["part"] for one in checks):
        lines += [f"| {part} | seen | wanted | holds |", "| --- | --- | --- | --- |"]
        lines += [f"| {one['what']} | {cell(one['seen'])} | {cell(one['wanted'])} | {'yes' if one['holds'] else '**no**'} |" for one in checks if one["part"] == part]
        lines.append("")
    return lines[:-1]


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")[:220]
