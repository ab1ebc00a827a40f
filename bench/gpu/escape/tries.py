"""A user tries each way past the library, beside a busy neighbour."""
import pathlib
import shutil
import subprocess
import sys
import time
from collections import Counter

from place import sh
from slurm import Monitor, Slurm, stop, until
from ways import WAYS

HERE = pathlib.Path(__file__).resolve().parent
POLICY, BPF = pathlib.Path("/etc/softmig/policy.toml"), pathlib.Path("/sys/fs/bpf")
# Seconds of the neighbour's pace before a try, and after it: the first, and those that follow.
BEFORE, FIRST, THEN = 2.0, 1.0, 2.0
# The monitor reads its policy again after some seconds.
SETTLES = 3.0


class Tries:
    def __init__(self, record, work, words=()):
        self.record, self.work, self.words = record, work, words
        self.slurm, self.monitor = Slurm(work), None
        self.folder = work / "jobs"
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        shutil.copy(HERE / "neighbour.py", work / "neighbour.py")
        self.greedy = work / "greedy"
        subprocess.run(["nvcc", "-O2", HERE / "greedy.cu", "-o", self.greedy], check=True)
        self.policy, self.log = POLICY.read_text(), work / "node.log"

    def run(self, until_when):
        self.installed()
        self.begin_neighbour()
        ways = [way for way in WAYS if not self.words or any(word in way[0] for word in self.words)]
        for setting, end, gate, chosen in [("end = no", "no", False, ways[2:4]), ("end = all", "all", False, ways), ("device_gate", "all", True, ways[:1] + ways[2:3] + ways[7:8])]:
            self.set_policy(end, gate)
            for name, script, mib, what, seconds in chosen:
                if time.monotonic() > until_when:
                    return self.record.add("cut", True)
                self.one(setting, name, script, mib, what, seconds)

    def installed(self):
        self.slurm.configure()
        if not self.slurm.start():
            raise RuntimeError(f"the node is {self.slurm.state()}")
        sh("softmig", "install", "--hook", "--mode", "enforce")
        # As systemd does.
        if not any(line.split()[1] == str(BPF) for line in open("/proc/self/mounts")):
            sh("mount", "-t", "bpf", "bpf", BPF)
        self.set_policy("no", False, restart=False)
        self.monitor = Monitor(self.work)
        self.record.add("slurm", sh("sinfo", "--version").stdout.strip())
        self.record.add("groups", 2 if self.slurm.version_2 else 1)

    def set_policy(self, end, gate, restart=True):
        text = self.policy.replace('end = "no"', f'end = "{end}"').replace("grace_seconds = 30", "grace_seconds = 0")
        text = text.replace("device_gate = false", f"device_gate = {'true' if gate else 'false'}\nlog_file = \"{self.log}\"")
        new = POLICY.with_suffix(".new")
        new.write_text(text)
        new.rename(POLICY)
        if restart:
            time.sleep(SETTLES)
        if gate and not until(lambda: (BPF / "softmig").exists(), 20, 0.5):
            self.record.add("no_gate", [sh("softmig", *words, check=False).stdout[-1500:] for words in (("node",), ("check", "--node"))])

    def begin_neighbour(self):
        file = self.work / "neighbour.sh"
        file.write_text(f"#!/bin/sh\nexec {sys.executable} {self.work}/neighbour.py {self.folder}/neighbour\n")
        self.neighbour = self.slurm.submit(f"gpu:{self.slurm.type}.2:1", file, self.folder / "neighbour.out")
        if not until(lambda: len(self.paces()) > 20, 60):
            raise RuntimeError(f"the neighbour does not work: {(self.folder / 'neighbour.out').read_text()[-500:]}")
        conf = pathlib.Path(f"/run/softmig/{self.neighbour}.conf").read_text()
        half = next(line for line in conf.splitlines() if line.startswith("CUDA_DEVICE_MEMORY_LIMIT="))
        self.record.add("limit_mib", int(half.partition("=")[2].rstrip("M")) // 2)

    def paces(self):
        """The neighbour's lines: time and steps."""
        file = self.folder / "neighbour"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [(float(at), int(steps)) for at, steps in (line.split() for line in lines)]

    def pace(self, begin, end):
        """Steps a second between two times."""
        seen = [one for one in self.paces() if begin <= one[0] <= end]
        return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]) if len(seen) > 1 and end - begin > 0.2 else None

    def one(self, setting, name, script, mib, what, seconds):
        own = self.folder / f"try-{len(self.record.kept['tries'])}"
        file = self.work / f"{own.name}.sh"
        inner = script.replace("GREEDY", f"{self.greedy} {own}/greedy$n {mib} {seconds} {what}").replace("OWN", str(own))
        file.write_text(f"#!/bin/sh\nmkdir {own}\nsleep {BEFORE}\n({inner})\necho ends with $? >> {own}/status\nsleep {FIRST + THEN}\n")
        job = self.slurm.submit(f"gpu:{self.slurm.type}.4:1", file, own.with_suffix(".out"))
        until(lambda: self.slurm.is_over(job), 60, 0.2)
        each = [[line.split() for line in file.read_text().splitlines()] for file in own.glob("greedy*")]
        said = sorted((float(at), word, int(held), int(done)) for lines in each for at, word, held, done in lines)
        ends = Counter(end_of(lines) for lines in each)
        begin, end = (said[0][0], said[-1][0]) if said else (None, None)
        limit = self.record.kept["limit_mib"]
        first = next((one[0] for one in said if one[2] > limit), None)
        works = next((one[0] for one in said if one[1] == "works"), None)
        before = self.pace(begin - BEFORE, begin) if said else None
        relative = lambda from_, to: round(self.pace(from_, to) / before, 3) if before and self.pace(from_, to) else None
        status = own / "status"
        self.record.tried({
            "setting": setting, "way": name, "job": job,
            "end": next(iter(ends), "did not start") if len(each) < 2 else f"{len(each)} programs: " + ", ".join(f"{number} {end}" for end, number in ends.items()),
            "most_mib": max((one[2] for one in said), default=0),
            "beyond_seconds": round(end - first, 3) if first else None,
            "worked_seconds": round(end - works, 3) if works else None,
            "steps": said[-1][3] if said else 0,
            "while": relative(works, end) if works else None,
            "first_second": relative(end, end + FIRST) if said else None,
            "then": relative(end + FIRST, end + FIRST + THEN) if said else None,
            "status": status.read_text().strip() if status.exists() else "the job ended with it",
            "output": own.with_suffix(".out").read_text(errors="replace")[-300:] if own.with_suffix(".out").exists() else "",
            "said": said[:3] + said[-2:],
        })

    def end(self):
        """Stops all that was started; the logs."""
        mode = sh("softmig", "node", check=False).stdout
        return mode + stop(self.slurm, self.monitor, [self.log, *self.folder.glob("*.out")], 6000, 4000)


def end_of(lines):
    """What became of a program, by its last line."""
    word = lines[-1][1]
    return "ran to its end" if word == "ends" else word if word.startswith("cuda") else "was ended"
