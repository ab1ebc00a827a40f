"""The steps of the run, each with its checks."""
import gzip
import json
import pathlib
import shutil
import sys
import time

from client import Client
from machine import compile_c
from place import sh
from slurm import Monitor, Slurm, stop, until
from watch import Exporter, Nvml, Page, Watch

HERE = pathlib.Path(__file__).resolve().parent
POLICY = pathlib.Path("/etc/softmig/policy.toml")
MIB = 1 << 20
# What the figures may differ by: points of the GPU's time, MiB.
POINTS, WITHIN_MIB = 1, 2
MOMENTARY_MIB = 8
# NVML's utilization is a coarse figure of samples.
UTILIZATION_POINTS = 5
# What the monitor needs to see that all is done: two of its measurements.
SETTLES = 3.0
IDLE_MINUTES = 1
# A job's denominator, the memory it takes, how many allocations are refused, and its work: mode, kernel in us, N.
JOBS = {
    "busy": (2, 20000, 0, ("launch", 1000, 1)),
    "waits": (4, 9000, 0, ("sync", 2000, 1)),
    "part": (8, 3000, 2, ("duty", 1000, 20_000_000)),
    "holds": (8, 4500, 3, ("none", 0, 1)),
}


class Slices:
    def __init__(self, held, work, out, seconds):
        self.held, self.work, self.out, self.seconds = held, work, out, seconds
        self.slurm, self.monitor, self.exporter, self.watch = Slurm(work), None, None, None
        self.folder = work / "jobs"
        self.folder.mkdir()
        self.folder.chmod(0o1777)
        self.program = work / "work"
        shutil.copy(HERE / "job.py", work / "job.py")
        self.numbers, self.printed = {}, []

    def run(self):
        self.installed()
        self.control()
        self.begin()
        self.memory()
        self.time()
        self.commands()
        self.ends()

    def installed(self):
        self.slurm.configure("TaskEpilog=/etc/slurm/task_epilog.sh\n")
        sh("install", "-m", "0755", "/usr/share/softmig/examples/task_epilog.sh", "/etc/slurm/task_epilog.sh")
        text = POLICY.read_text().replace("end_line = false", "end_line = true")
        POLICY.write_text(f"{text}\n[defaults]\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\nidle_minutes = {IDLE_MINUTES}\n")
        if not self.slurm.start():
            raise RuntimeError(f"the node is {self.slurm.state()}")
        sh("softmig", "install", "--hook", "--mode", "enforce")
        self.monitor = Monitor(self.work)
        self.held.kept |= {"slurm": sh("sinfo", "--version").stdout.strip(), "groups": 2 if self.slurm.version_2 else 1}
        compile_c(HERE.parent / "compute" / "work.c", self.program)

    def control(self):
        """What a kernel takes on a GPU that nothing else uses, in a process without a limit."""
        client = Client([self.program]).begun()
        per_us = client.ask("calibrate")["rounds_per_us"]
        self.rounds = {us: max(1, round(us * per_us)) for us in (1000, 2000)}
        said = {}
        for us, rounds in self.rounds.items():
            client.talk.say(f"run launch {rounds} {us} 2.5 0 1")
            client.ready()
            said[us] = client.hear(20)
        client.end()
        # From the first end to the last: the host's start is not in it.
        self.kernel_s = {us: (one["steady"][2] - one["steady"][1]) / 1e3 / (one["steady"][0] - 1) for us, one in said.items()}
        self.held.kept["kernel_us"] = {us: round(1e6 * took, 2) for us, took in self.kernel_s.items()}

    def begin(self):
        self.exporter, self.nvml = Exporter(self.work), Nvml()
        for name, (parts, mib, refused, _) in JOBS.items():
            script = self.work / f"{name}.sh"
            script.write_text(f"#!/bin/sh\n{sys.executable} {self.work}/job.py {self.folder} {name} {self.program} {mib} {refused}\n")
            script.chmod(0o755)
            self.numbers[name] = self.slurm.submit(f"gpu:{self.slurm.type}.{parts}:1", script, self.folder / f"{name}.out")
        self.said("started", 60)
        self.watch = Watch(self.exporter, self.nvml)
        time.sleep(SETTLES)

    def said(self, key, seconds):
        """What each job said of itself, once all said this."""
        def all_said():
            files = {name: self.folder / f"{name}.json" for name in JOBS}
            found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
            return found if len(found) == len(JOBS) and all(key in one for one in found.values()) else None
        if not (found := until(all_said, seconds, 0.1)):
            outputs = {name: (self.folder / f"{name}.out").read_text(errors="replace")[-300:] if (self.folder / f"{name}.out").exists() else "" for name in JOBS}
            raise RuntimeError(f"not all said {key} in {seconds} s: {outputs}")
        return found

    def page(self):
        return Page(self.exporter.page())

    def memory(self):
        page, driver, held = self.page(), self.nvml.processes(), self.held
        told = self.said("started", 1)
        own = {name: {pid: used for pid, used in driver.items() if job_of(pid) == number} for name, number in self.numbers.items()}
        self.pids = {name: list(pids) for name, pids in own.items()}
        for name, number in self.numbers.items():
            mib = sum(own[name].values()) / MIB
            held.check("Memory", f"{name}: its program is on the GPU and has what it asked for", len(own[name]) == 2 and mib * MIB > told[name]["held_bytes"], f"{len(own[name])} processes, {mib:.1f} MiB by NVML", f"2, more than {told[name]['held_bytes'] // MIB} MiB")
            for what, metric in (("used", "softmig_slice_memory_used_bytes"), ("used, in jobstats' names", "nvidia_gpu_memory_used_bytes")):
                seen = page.of(metric, jobid=number)
                held.near("Memory", f"{name}: {what}, against NVML", None if seen is None else seen / MIB, round(mib, 2), WITHIN_MIB, "MiB")
            seen = page.of("slurm_job_memory_usage_gpu", slurmjobid=number)
            held.near("Memory", f"{name}: used, in slurm-job-exporter's names, against NVML", None if seen is None else seen / MIB, round(mib, 2), WITHIN_MIB, "MiB")
            refused = page.of("softmig_slice_refused_allocations_total", jobid=number)
            held.check("Memory", f"{name}: refused allocations, against the program's count", refused == told[name]["refused"] == JOBS[name][2], refused, told[name]["refused"])
        self.held.kept["jobs"] = {name: {"job": number, "slice": JOBS[name][0], "work": JOBS[name][3], "nvml_mib": round(sum(own[name].values()) / MIB, 2)} for name, number in self.numbers.items()}

    def time(self):
        held, works = self.held, {}
        for name, (*_, (mode, us, n)) in JOBS.items():
            works[name] = (mode, self.rounds.get(us, 1), us, n)
        before, cpu = self.page(), self.monitor.cpu_of_threads()
        begin = time.monotonic()
        start = begin + 1
        new = self.folder / "new"
        new.write_text(json.dumps({"start": start, "seconds": self.seconds, "works": works}))
        new.rename(self.folder / "go")
        time.sleep(start + self.seconds - 2 - time.monotonic())
        # While all of them still work.
        late = self.page()
        told = self.said("done", 60)
        end = time.monotonic()
        cpu = {thread: (used - cpu.get(thread, 0)) / (end - begin) for thread, used in self.monitor.cpu_of_threads().items()}
        time.sleep(SETTLES)
        after = self.page()
        self.last = after
        passed = lambda name, **labels: (after.of(name, **labels) or 0) - (before.of(name, **labels) or 0)
        charged = {name: passed("softmig_slice_gpu_seconds_total", jobid=number) for name, number in self.numbers.items()}
        worked = {name: told[name].get("launched", 0) * self.kernel_s.get(JOBS[name][3][1], 0) for name in JOBS}
        percent = lambda seconds: 100 * seconds / self.seconds
        for name, number in self.numbers.items():
            share = 100 / JOBS[name][0]
            own = percent(worked[name])
            held.near("Time", f"{name}: charged, against what it counts itself", percent(charged[name]), round(own, 2), POINTS, "% of the GPU")
            # A slice is busy at most all the time: what it saved and used beyond its share is in no percentage.
            most = round(min(own, share), 2)
            duty = late.of("nvidia_gpu_duty_cycle", jobid=number)
            held.near("Time", f"{name}: jobstats' duty cycle, as a part of the GPU", None if duty is None else duty * share / 100, most, POINTS, "% of the GPU")
            utilization = late.of("slurm_job_utilization_gpu", slurmjobid=number)
            held.near("Time", f"{name}: slurm-job-exporter's utilization, as a part of the GPU", None if utilization is None else utilization * share / 100, most, POINTS, "% of the GPU")
            held.kept["jobs"][name] |= {"own_seconds": round(worked[name], 3), "charged_seconds": round(charged[name], 3), "share_percent": share, "waited_seconds": round(passed("softmig_slice_wait_seconds_total", jobid=number), 3), "launched": told[name].get("launched", 0), "finished": told[name].get("finished", 0)}
        total, slices = sum(charged.values()), passed("softmig_gpu_seconds_total", who="slices")
        held.near("Time", "the sum of the jobs, against the card's", total, round(slices, 3), 0.01, "s")
        busy = self.watch.mean_utilization(start + 1, start + self.seconds - 1)
        held.near("Time", "NVML's utilization of the card, against the sum of the jobs", busy, round(percent(total), 1), UTILIZATION_POINTS, "% of the GPU")
        flags = late.sum("ceems_compute_unit_gpu_index_flag")
        held.near("Time", "CEEMS' flags of the GPU add up", flags, 1, 0.001, "")
        # One that only holds memory was charged nothing.
        held.check("Time", "holds: charged", charged["holds"] == 0, f"{charged['holds']} s", "0 s")
        mapping = sorted(line for file in self.exporter.mapping.iterdir() for line in file.read_text().split())
        held.check("Time", "DCGM's job mapping", mapping == sorted(map(str, self.numbers.values())), mapping, sorted(map(str, self.numbers.values())))
        idle = after.of("softmig_slice_idle_seconds", jobid=self.numbers["holds"])
        limit = after.of("softmig_slice_idle_limit_seconds", jobid=self.numbers["holds"])
        held.check("Time", "holds: idle seconds, and from when on it is called idle", idle and idle >= self.seconds and limit == 60 * IDLE_MINUTES, f"{idle} s, {limit} s", f"at least {self.seconds:g} s, {60 * IDLE_MINUTES} s")
        held.kept |= {"change_seconds": round(passed("softmig_gpu_seconds_total", who="change"), 3), "unclaimed_seconds": round(passed("softmig_gpu_seconds_total", who="unclaimed"), 3), "nvml_percent": busy and round(busy, 1), "monitor_percent_of_a_core": {thread: round(100 * part, 2) for thread, part in sorted(cpu.items()) if part >= 0.0001}}
        print("the monitor's threads, in % of a core:", held.kept["monitor_percent_of_a_core"], flush=True)

    def commands(self):
        """What users and root are told, once the figures of the files are those of the page: five seconds at most."""
        time.sleep(6)
        held = self.held
        for name, number in self.numbers.items():
            said = json.loads(self.show("softmig", "job", number, "--json"))
            gpu = said["job"]["gpus"][0]
            held.near("Commands", f"{name}: softmig job, charged", gpu["charged_seconds"], round(self.last.of("softmig_slice_gpu_seconds_total", jobid=number), 3), 0.01, "s")
            held.near("Commands", f"{name}: softmig job, memory", gpu["memory_bytes"] / MIB, held.kept["jobs"][name]["nvml_mib"], WITHIN_MIB, "MiB")
        status = json.loads(self.show("softmig", "status", "--all", "--json"))
        live = {job["job"]: job.get("live") for job in status["jobs"]}
        for name, number in self.numbers.items():
            seen = live.get(number)
            held.near("Commands", f"{name}: softmig status, charged", seen and seen["gpus"][0]["charged_seconds"], round(self.last.of("softmig_slice_gpu_seconds_total", jobid=number), 3), 0.01, "s")
        for words in (("softmig", "status", "--all"), ("softmig", "free"), ("softmig-monitor", "--once"), ("softmig", "job", self.numbers["waits"]), ("softmig", "job", self.numbers["holds"])):
            self.show(*words)
        said = self.slurm.as_user("srun", f"--jobid={self.numbers['busy']}", "--overlap", "softmig", "job", timeout=30)
        self.note("srun --overlap softmig job", said.stdout + said.stderr)
        held.check("Commands", "softmig job, as the user, in a step of the job", (half := f"1 half of type {self.slurm.type}") in said.stdout, said.stdout.splitlines()[:1] or said.stderr[-200:], half)
        page = self.slurm.as_user("softmig", "job", self.numbers["holds"], timeout=30).stdout
        held.check("Commands", "softmig job says that the slice is idle", "idle for" in page, [line for line in page.splitlines() if "idle" in line], "idle for ... min")

    def show(self, *words):
        program = Monitor.program if words[0] == "softmig-monitor" else words[0]
        said = sh(program, *words[1:], check=False)
        self.note(" ".join(map(str, words)), said.stdout + said.stderr)
        return said.stdout

    def note(self, command, text):
        self.printed.append(f"$ {command}\n{text}")
        (self.out / "gpu-usage.txt").write_text("\n".join(self.printed))

    def ends(self):
        held = self.held
        with gzip.open(self.out / "gpu-usage-pages.json.gz", "wt") as file:
            json.dump(self.watch.end(), file)
        (self.folder / "end").write_text("{}")
        until(lambda: all(self.slurm.is_over(number) for number in self.numbers.values()), 30, 0.2)
        # The epilog runs after squeue has forgotten the job.
        until(lambda: not list(pathlib.Path("/run/softmig").glob("*.conf")), 15, 0.2)
        events = [json.loads(line) for line in sh("softmig", "events", "--json").stdout.splitlines()]
        self.show("softmig", "events")
        for name, number in self.numbers.items():
            end = next((event["details"] for event in events if event["event"] == "end" and event["job"] == number), {})
            held.near("The end", f"{name}: the event's charged seconds", end.get("charged_seconds"), round(self.last.of("softmig_slice_gpu_seconds_total", jobid=number), 3), 0.05, "s")
            peak = end.get("memory_peak_bytes")
            most = sum(self.watch.most[pid] for pid in self.pids[name]) / MIB
            # NVML is asked four times a second, so that it can miss what the program had for a moment.
            held.check("The end", f"{name}: the event's peak, against the most that NVML said", peak and -WITHIN_MIB <= peak / MIB - most <= MOMENTARY_MIB, f"{peak and peak / MIB:.2f} MiB", f"{most:.2f} MiB, at most {MOMENTARY_MIB} more")
            output = (self.folder / f"{name}.out").read_text(errors="replace")
            self.note(f"cat {name}.out", output)
            held.check("The end", f"{name}: a line in the job's output", "softmig: this job used" in output, output.strip().splitlines()[-1:], "softmig: this job used ...")
        kinds = {name: [event["event"] for event in events if event.get("job") == number] for name, number in self.numbers.items()}
        held.check("The end", "holds: its events", {"grant", "refusal", "idle", "end"} <= set(kinds["holds"]), kinds["holds"], "grant, refusal, idle, end")
        held.check("The end", "busy: its events", "idle" not in kinds["busy"] and {"grant", "start", "end"} <= set(kinds["busy"]), kinds["busy"], "grant, start, end")
        until(lambda: not self.page().sum("softmig_slice_info"), 10, 0.5)
        left = self.page().sum("softmig_slice_info")
        held.check("The end", "slices on the page", left == 0, left, "none")

    def end(self):
        """Stops all that was started; the logs."""
        if self.exporter:
            self.exporter.end()
        return stop(self.slurm, self.monitor, self.folder.glob("*.out"), 6000, 1500)


def job_of(pid):
    """The number of the job in whose control group a process is."""
    try:
        parts = pathlib.Path(f"/proc/{pid}/cgroup").read_text().replace("\n", "/").split("/")
    except OSError:
        return None
    return next((int(part[4:]) for part in parts if part.startswith("job_")), None)
