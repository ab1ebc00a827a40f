"""The steps of the chain, each with its checks."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from machine import compile_c
from place import USER, sh
from slurm import Monitor, Slurm, is_there, stop, until

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
# Points of the GPU by which a share may be off, and MiB of a limit that a context and a framework's own memory may take.
SHARE_WITHIN, MEMORY_WITHIN = 2, 1536
SLICES = {"half": 2, "quarter with no environment": 4, "quarter with a false job": 4}


class Chain:
    def __init__(self, held, work, seconds):
        self.held, self.work, self.seconds = held, work, seconds
        self.slurm, self.monitor = Slurm(work), None
        self.smi = shutil.which("nvidia-smi") or next(map(str, pathlib.Path("/usr/local/nvidia").rglob("nvidia-smi")), "nvidia-smi")
        self.before = pathlib.Path("/etc/ld.so.preload").read_text() if pathlib.Path("/etc/ld.so.preload").exists() else None
        self.folder = work / "jobs"
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        shutil.copy(HERE / "job.py", work / "job.py")
        self.program = work / "work"
        self.python = sys.executable

    def run(self):
        self.prepare()
        self.installed()
        self.refused()
        self.whole()
        self.slices()
        self.nothing_left()

    def prepare(self):
        """A program for the work, where PyTorch is missing."""
        if subprocess.run([self.python, "-c", "import torch; raise SystemExit(not torch.cuda.is_available())"], capture_output=True).returncode:
            compile_c(HERE.parent / "compute" / "work.c", self.program)
        seen = self.view("/")
        self.total, self.smi_total = seen["device_total"], int(seen["smi"][0].split(",")[0])

    def view(self, cwd, **more):
        said = subprocess.run([self.python, self.work / "job.py", "view", self.smi], capture_output=True, text=True, cwd=cwd, **more)
        try:
            return json.loads(said.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            raise RuntimeError(f"a look at the GPU failed: {said.returncode} {said.stdout[-200:]} {said.stderr[-400:]}") from None

    def installed(self):
        part, held = "Installed", self.held
        self.slurm.configure()
        up = self.slurm.start()
        held.kept |= {"slurm": sh("sinfo", "--version", check=False).stdout.strip(), "groups": 2 if self.slurm.version_2 else 1}
        if not held.check(part, "the node is", up, self.slurm.state() or "unknown", "idle"):
            raise RuntimeError("no Slurm")
        said = sh("softmig", "install", "--hook", "--mode", "enforce", check=False)
        if not held.check(part, "softmig install --hook --mode enforce", said.returncode == 0, last(said), "exit 0"):
            # The rest is worth knowing all the same.
            pathlib.Path("/etc/softmig/node.conf").write_text("SOFTMIG_NODE=enforce\n")
            pathlib.Path("/etc/ld.so.preload").write_text("/usr/lib/softmig/libsoftmig.so\n")
        self.monitor = Monitor(self.work)
        held.check(part, "the monitor gives out turns", self.monitor.is_up(), "its socket is there" if self.monitor.is_up() else self.monitor.log.read_text()[-200:], "its socket")
        seen = self.view("/")
        held.check(part, "a process in no job sees the whole GPU", seen["device_total"] == self.total and seen["gpus"] == len(self.slurm.devices), f"{seen['device_total'] // MIB} MiB of {seen['gpus']} GPUs", f"{self.total // MIB} MiB of {len(self.slurm.devices)}")
        self.used = self.looked()["gpus"]
        self.before_jobs = self.monitor.holds()

    def looked(self):
        """What the monitor sees from outside."""
        return json.loads(sh(Monitor.program, "--once", "--json", check=False).stdout)

    def refused(self):
        part, held = "Refused before anything runs", self.held
        said = self.slurm.as_user("srun", f"--gres=gpu:{self.slurm.type}.3:1", "true", timeout=15)
        held.check(part, f"srun --gres=gpu:{self.slurm.type}.3:1", said.returncode and "[SLICE_SIZE]" in said.stderr, last(said), "an error with [SLICE_SIZE]")
        said = self.slurm.as_user("sbatch", f"--gres=gpu:{self.slurm.type}.4:2", "--wrap=true", timeout=15)
        held.check(part, f"sbatch --gres=gpu:{self.slurm.type}.4:2", said.returncode and "[SLICE_COUNT]" in said.stderr, last(said), "an error with [SLICE_COUNT]")
        said = self.slurm.as_user("srun", self.python, self.work / "job.py", "view", self.smi, timeout=30)
        seen = json.loads(said.stdout.splitlines()[-1]) if said.stdout.startswith("{") else {"devices": {"nothing": last(said)}}
        held.check(part, "a job without a GPU opens", set(seen["devices"].values()) == {"Operation not permitted"}, seen["devices"], "no device: Operation not permitted")

    def script(self, name, prefix, false_job):
        """Three looks at the GPU, then the work; the last two looks without the environment and with a false one."""
        look = f"{self.python} {self.work}/job.py view {self.smi}"
        short = name.split()[0] + str(len(name))
        text = "\n".join([
            "#!/bin/sh", f"cd {self.folder}", f"cat /proc/self/cgroup > {short}.cgroup",
            f"{look} > {short}.plain", f"env -i {look} > {short}.empty", f"SLURM_JOB_ID={false_job} SLURM_JOBID={false_job} {look} > {short}.false",
            f"exec {prefix} {self.python} {self.work}/job.py run {short} {self.folder} {self.program}", "",
        ])
        path = self.work / f"{short}.sh"
        path.write_text(text)
        path.chmod(0o755)
        return short, path

    def tell(self, number, **words):
        new = self.folder / f"new-{number}"
        new.write_text(json.dumps(words))
        new.rename(self.folder / f"go-{number}")

    def parts(self, names, part, seconds):
        """What each said of a part, once all have; it takes no longer than that."""
        def said():
            found = {}
            for name in names:
                file = self.folder / f"{name}.json"
                kept = json.loads(file.read_text()) if file.exists() else {}
                if part in kept:
                    found[name] = kept[part]
                elif self.slurm.is_over(self.numbers[name]):
                    raise RuntimeError(f"{name} ended before {part}: {self.output(name)}")
            return found if len(found) == len(names) else None
        if not (found := until(said, seconds, 0.1)):
            raise RuntimeError(f"not all of {names} said {part} in {seconds} s: {[self.output(name) for name in names]}")
        return found

    def output(self, name):
        file = self.folder / f"{name}.out"
        return file.read_text(errors="replace")[-500:] if file.exists() else "no output"

    def whole(self):
        """The control: what the GPU does without a limit, and what a job takes that has none."""
        part, held = "A job with the whole GPU, the control", self.held
        short, path = self.script("whole", "", 1)
        self.numbers = {short: self.slurm.submit(f"gpu:{self.slurm.type}:1", path, self.folder / f"{short}.out")}
        about = self.parts([short], "about", 90)[short]
        held.kept["by"] = about["by"]
        self.calibrated = about["calibrated"]
        self.tell(1, start=time.monotonic() + 0.3, seconds=self.seconds)
        found = self.parts([short], "work", 30 + self.seconds)[short]
        self.pace = found["rate"]
        self.tell(2)
        memory = self.parts([short], "memory", 60)[short]
        self.tell(3)
        self.parts([short], "after", 30)
        self.wait_over([short])
        smallest = self.total // MIB // 2
        held.check(part, "sees the whole GPU", about["total"] == self.total, f"{about['total'] // MIB} MiB", f"{self.total // MIB} MiB")
        held.check(part, "takes more memory than half a GPU", memory["got_mib"] > smallest, f"{memory['got_mib']} MiB", f"more than {smallest} MiB")
        held.check(part, "its pace, which is 100 % below", self.pace > 0, f"{self.pace:.1f} steps a second, each {found['step_ms']:.3f} ms", "above 0")
        for file in self.folder.glob("go-*"):
            file.unlink()
        held.kept["jobs"]["whole"] = {"about": about, "work": found, "memory": memory}

    def wait_over(self, names):
        if not until(lambda: all(self.slurm.is_over(self.numbers[name]) for name in names), 30):
            raise RuntimeError(f"jobs that do not end: {names}")

    def slices(self):
        held, names = self.held, {}
        self.numbers = {}
        prefixes = {"half": "", "quarter with no environment": "env -i", "quarter with a false job": None}
        for name, parts in SLICES.items():
            first = next(iter(self.numbers.values()), 1)
            prefix = prefixes[name] if prefixes[name] is not None else f"env SLURM_JOB_ID={first} SLURM_JOBID={first}"
            short, path = self.script(name, prefix, 1 if name == "half" else first)
            names[name] = short
            self.numbers[short] = self.slurm.submit(f"gpu:{self.slurm.type}.{parts}:1", path, self.folder / f"{short}.out")
        about = self.parts(names.values(), "about", 120)
        confs = {short: pathlib.Path(f"/run/softmig/{number}.conf").read_text() for short, number in self.numbers.items()}
        self.tell(1, start=time.monotonic() + 0.5, seconds=self.seconds, calibrated=self.calibrated)
        time.sleep(self.seconds - 1)
        # What the arbiter charged them so far.
        held.kept["usage"] = self.looked().get("usage")
        work = self.parts(names.values(), "work", 60 + self.seconds)
        during = self.monitor.holds()
        self.tell(2)
        memory = self.parts(names.values(), "memory", 90)
        outside = self.looked()
        self.tell(3)
        after = self.parts(names.values(), "after", 30)
        self.wait_over(names.values())
        for name, parts in SLICES.items():
            short = names[name]
            self.slice(name, 100 / parts, limit_of(confs[short]), short, about[short], work[short], memory[short], after[short], next((job for job in outside["jobs"] if job["job"] == self.numbers[short]), None))
            held.kept["jobs"][name] = {"number": self.numbers[short], "conf": confs[short].splitlines(), "about": about[short], "work": work[short], "memory": memory[short]}
        part = "All three together"
        total = sum(one["rate"] for one in work.values()) / self.pace * 100
        held.check(part, "get done", total >= 90, f"{total:.1f} % of what one without a limit does", "90 % at least, what time-slicing gives")
        # The control for the end, when there is to be none of these.
        held.check(part, "the monitor has seats for them", during and all(during.of_jobs[what] >= len(SLICES) for what in ("page of a seat", "thread of a seat")), str(during), f"{len(SLICES)} pages and threads of seats at least")
        held.check(part, "the monitor finds nothing wrong", not [gpu["finding"] for job in outside["jobs"] for gpu in job["gpus"] if gpu["finding"]], [gpu["finding"] for job in outside["jobs"] for gpu in job["gpus"]], "no finding")
        until(lambda: not self.slurm.groups(), 10)

    def slice(self, name, share, limit, short, about, work, memory, after, outside):
        part, held = f"The {name}", self.held
        mib = self.total // MIB
        held.check(part, "its limit is its part of the GPU", abs(limit - mib * share / 100) < 8, f"{limit} MiB", f"{share:g} % of {mib} MiB")
        held.check(part, f"{about['by']} sees", about["total"] == limit * MIB and about["gpus"] == 1, f"{about['total'] / MIB:g} MiB, {about['gpus']} GPU", f"{limit} MiB, 1 GPU")
        for way, words in (("plain", "in the job"), ("empty", "with env -i"), ("false", "with another job's SLURM_JOB_ID")):
            text = (self.folder / f"{short}.{way}").read_text()
            seen = json.loads(text) if text.startswith("{") else {"device_total": 0, "smi": [], "codes": text[-100:]}
            smi = seen["smi"][0].split(",")[0].strip() if len(seen["smi"]) == 1 else seen["smi"]
            held.check(part, f"the driver and nvidia-smi see {words}", seen["device_total"] == limit * MIB and smi == str(limit), f"{seen['device_total'] / MIB:g} and {smi} MiB", f"{limit} MiB both")
        # Kernels of one job can take a little longer beside others': its time is not what it gets done.
        held.near(part, f"gets of the GPU's time, in steps of {work['step_ms']:.2f} ms, and gets {work['rate'] / self.pace * 100:.1f} % done", work["rate"] * work["step_ms"] / 10, share, SHARE_WITHIN, "%")
        held.check(part, "takes memory", limit - MEMORY_WITHIN <= memory["got_mib"] <= limit, f"{memory['got_mib']} MiB", f"at most {limit}, at least {limit - MEMORY_WITHIN} MiB")
        held.check(part, "is then refused", memory["said"].startswith("OutOfMemoryError"), memory["said"][:160], "OutOfMemoryError")
        seen = max((gpu["memory_bytes"] for gpu in outside["gpus"]), default=0) if outside else 0
        held.check(part, "the driver counts for it meanwhile", 0 < seen <= limit * MIB, f"{seen // MIB} MiB in {sum(len(gpu['pids']) for gpu in outside['gpus']) if outside else 0} processes", f"at most {limit} MiB")
        held.check(part, "goes on after the refusal", after["goes_on"], after["goes_on"], "True")

    def nothing_left(self):
        part, held = "Nothing is left", self.held
        run = pathlib.Path("/run/softmig")
        # The epilog runs after squeue has forgotten the job.
        until(lambda: not list(run.glob("*.conf")) and not self.slurm.groups(), 15)
        files = [str(path.relative_to(run)) for pattern in ("*.conf", "jobs/*", "gpu/*/*", "uid/*/*") for path in run.glob(pattern)]
        held.check(part, "files of jobs in /run/softmig", not files, files or "none", "none")
        mounts = [line.split()[4] for line in open("/proc/self/mountinfo") if "/softmig/jobs" in line]
        held.check(part, "mounts of jobs", not mounts, mounts or "none", "none")
        held.check(part, "control groups of jobs", not self.slurm.groups(), self.slurm.groups() or "none", "none")
        own = [pid.name for pid in pathlib.Path("/proc").glob("[0-9]*") if uid_of(pid) == USER and is_there(pid.name)]
        held.check(part, "processes of the jobs' user", not own, own or "none", "none")
        # The driver needs a moment to take back what it lent.
        until(lambda: sum(len(gpu["processes"]) for gpu in self.looked()["gpus"]) == sum(len(gpu["processes"]) for gpu in self.used), 10, 0.5)
        seen = self.looked()
        held.check(part, "jobs that the monitor knows", not seen["jobs"], [job["job"] for job in seen["jobs"]] or "none", "none")
        held.check(part, "processes on the GPU", [len(gpu["processes"]) for gpu in seen["gpus"]] == [len(gpu["processes"]) for gpu in self.used], [len(gpu["processes"]) for gpu in seen["gpus"]], "as before")
        more = max(abs(now["used_bytes"] - then["used_bytes"]) // MIB for now, then in zip(seen["gpus"], self.used))
        held.check(part, "memory of the GPU", more <= 64, f"{more} MiB more or less than before", "64 MiB at most")
        until(lambda: (now := self.monitor.holds()) is None or not now.of_jobs, 5, 0.2)
        # What it opened for itself meanwhile, for NVML, is no job's.
        now = self.monitor.holds()
        held.check(part, "what the monitor has open for jobs", now and self.before_jobs and not now.of_jobs, f"{now}; of its own, more than before: {dict(now.own - self.before_jobs.own) or 'nothing'}" if now and self.before_jobs else "it is gone", "nothing")
        held.check(part, "the node is", self.slurm.state() == "idle", self.slurm.state(), "idle")
        said = sh("softmig", "uninstall", "--hook", check=False)
        preload = pathlib.Path("/etc/ld.so.preload")
        now = preload.read_text() if preload.exists() else None
        held.check(part, "softmig uninstall --hook", said.returncode == 0 and "softmig" not in (now or ""), f"exit {said.returncode}, /etc/ld.so.preload {now!r}", f"exit 0, {self.before!r} as before or empty")

    def end(self):
        """Stops all that was started; the logs."""
        return stop(self.slurm, self.monitor, [file for end in ("out", "json", "cgroup") for file in self.folder.glob(f"*.{end}")], 3000, 1500)


def limit_of(conf):
    return int(next(line for line in conf.splitlines() if line.startswith("CUDA_DEVICE_MEMORY_LIMIT=")).partition("=")[2].rstrip("M"))


def last(said):
    """How a command ended, and its last line, or what softmig says in it."""
    lines = [line for line in (said.stdout + said.stderr).splitlines() if line.strip()]
    lines = [line for line in lines if line.endswith("]") and "softmig:" in line] or lines
    return f"exit {said.returncode}" + (f", {lines[-1][:160]}" if lines else "")


def uid_of(proc):
    try:
        return os.stat(proc).st_uid
    except OSError:
        return None
