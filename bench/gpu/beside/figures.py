"""The file of all figures, written after each measurement."""
import hashlib
import json
import pathlib
import subprocess
import time


def this_machine():
    """A name for the machine: paces of another one do not compare with its own."""
    try:
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True).stdout
    except OSError:
        gpu = ""
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "a processor")
    host = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text() if pathlib.Path("/proc/sys/kernel/random/boot_id").exists() else ""
    return f"{processor}, {hashlib.sha256((gpu + host).encode()).hexdigest()[:6]}"


class Figures:
    """Paces on the whole GPU and in each slice, by machine; and each mix, with softmig and plain."""

    def __init__(self, folder, budget=1e9, machine=None):
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "gpu-beside.json"
        self.kept = json.loads(self.file.read_text()) if self.file.exists() else {"about": {}, "whole": {}, "slices": {}, "mixes": {}}
        self.begun, self.budget, self.machine = time.monotonic(), budget, machine

    def about(self, **facts):
        self.kept["about"] |= facts
        self.write()

    def time_is_up(self):
        return time.monotonic() - self.begun > self.budget

    def of(self, kind, machine=None):
        """`whole` or `slices` of a machine; this one, where none is named."""
        return self.kept[kind].setdefault(machine or self.machine, {})

    def keep(self, kind, key, found):
        self.of(kind)[key] = found
        self.write()
        self.say(f"{kind.removesuffix('s')} {key}: {self.words(found)}")

    def keep_mix(self, title, subject, programs, said=()):
        self.kept["mixes"].setdefault(title, {})[subject] = {"machine": self.machine, "programs": programs} | ({"said": said} if said else {})
        self.write()
        parts = [self.part(found, self.machine) for found in programs]
        total = f"; sum {sum(parts) * 100:.1f} %" if None not in parts else ""
        self.say(f"{subject} | {title} | {'; '.join(map(self.words, programs))}{total}")

    def keep_past(self, key, programs, seconds):
        self.kept["pasts"][key] = {"machine": self.machine, "seconds": seconds, "programs": programs}
        self.write()
        self.say(f"{key} | {'; '.join(map(self.words, programs))}")

    def keep_turns(self, key, runs):
        sums = [[sum(self.part(found, self.machine) for found in programs) for programs in run] for run in runs]
        plain, softmig = ([round(run[which], 4) for run in sums] for which in (0, 1))
        self.kept["turns"][key] = {"machine": self.machine, "plain": plain, "softmig": softmig}
        self.write()
        self.say(f"turns | {key} | plain {plain}, softmig {softmig}; last {'; '.join(map(self.words, runs[-1][1]))}")

    def fail(self, title, subject, text):
        self.kept["mixes"].setdefault(title, {})[subject] = {"failed": text[:600]}
        self.write()
        self.say(f"FAILED {subject} | {title} | {text[:600]}")

    def has_mix(self, title, subject):
        return "programs" in self.kept["mixes"].get(title, {}).get(subject, {})

    def part(self, found, machine):
        """A pace as a part of that on the whole GPU, on the same machine; None where that is not known."""
        whole = self.of("whole", machine).get(found["workload"])
        return found["pace"] / whole["pace"] if whole and whole["pace"] else None

    def words(self, found):
        part, latency = self.part(found, self.machine), found.get("latency")
        shown = f"{found['workload']} {found['pace']:.4g}/s" + ("" if part is None else f" {part * 100:.1f} %")
        return shown + (f" p50 {latency['p50']:.1f} p99 {latency['p99']:.1f} longest {latency['longest']:.1f} ms" if latency else "")

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:4.0f} s] {text}", flush=True)

    def write(self):
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.kept, indent=1) + "\n")
        new.replace(self.file)
