"""What was seen of each way, and the page about it."""
import json

import runner


class Record:
    def __init__(self, folder, about, name="gpu-escape"):
        self.file, self.kept = folder / f"{name}.json", about | {"tries": []}

    def add(self, key, value):
        self.kept[key] = value
        self.write()

    def tried(self, one):
        self.kept["tries"].append(one)
        print(json.dumps({key: value for key, value in one.items() if key != "said"}), flush=True)
        self.write()

    def write(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.kept, indent=1) + "\n")


def seconds(value):
    return "-" if value is None else f"{value:.2f} s"


def percent(value):
    return "-" if value is None else f"{100 * value:.0f} %"


def page(folder):
    """gpu-escape.md from gpu-escape.json."""
    kept, gpu, driver, lines = runner.page(folder, "escape", "Past the library, on a real GPU")
    lines += [
        f"{kept['machine']['date']}, {gpu}, driver {driver}, {kept.get('slurm', 'Slurm')}, control groups of version {kept.get('groups')}, softmig of {kept['revision']}, a measurement each {kept.get('interval_seconds', 1)} s, no grace.", "",
        "A user with a quarter of the GPU runs a program past the library, beside a job that keeps its half busy. *Beyond* is from the first byte beyond the slice until the program's last sign of life, *on the GPU* from its first kernel or copy. *Most* is the most memory that the program held; the slice has "
        f"{kept.get('limit_mib', '?')} MiB. The *neighbour's pace* is relative to its own before: while the program ran, in the first second after it, and in the two seconds after that.", "",
        "| setting | way | came of it | most, MiB | beyond | on the GPU | neighbour: while | 1st second after | then |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in kept["tries"]:
        lines.append(f"| {one['setting']} | {one['way']} | {one['end']} | {one['most_mib']} | {seconds(one['beyond_seconds'])} | {seconds(one['worked_seconds'])} | {percent(one['while'])} | {percent(one['first_second'])} | {percent(one['then'])} |")
    runner.write_page(folder, "escape", lines)
