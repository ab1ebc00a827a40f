"""A real Slurm of one node, on a machine with control groups of version 2 or 1."""
import os
import pathlib
import signal
import subprocess
import time

from open_files import look
from place import NAME, USER, gpu_type, sh, shards_of

GROUPS = pathlib.Path("/sys/fs/cgroup")
# As the monitor's unit says.
MOST_MEMORY = "2G"
NODE = "softmigbench"


def is_there(pid):
    """Whether a process has not ended. A zombie has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds, seconds, every=0.05):
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(every)
    return found


class Slurm:
    def __init__(self, work):
        self.folder, self.type = work / "slurmd", gpu_type()["type"]
        self.shards = shards_of(self.type)
        self.version_2 = (GROUPS / "cgroup.controllers").exists()
        self.devices = sorted(pathlib.Path("/dev").glob("nvidia[0-9]*"))
        self.daemons = []

    def configure(self, more=""):
        """Writes Slurm's files, with these lines more in slurm.conf."""
        d, host, count = self.folder, os.uname().nodename.split(".")[0], len(self.devices)
        for name in ("", "state", "log", "run", "munge", "spool"):
            (d / name).mkdir(mode=0o755)
        key = d / "munge/munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        etc = pathlib.Path("/etc/slurm")
        (etc / "slurm.conf").write_text(f"""ClusterName=softmig
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=26800
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={d}/munge/socket
CredType=cred/munge
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/slurmd.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd.log
SlurmdDebug=verbose
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
PrologFlags=Contain
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu,shard
DefMemPerCPU=1000
ReturnToService=2
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
JobSubmitPlugins=lua
CliFilterPlugins=lua
Prolog=/usr/libexec/softmig-prolog
Epilog=/usr/libexec/softmig-epilog
NodeName={NODE} NodeHostname={host} NodeAddr=127.0.0.1 Port=26811 CPUs=32 CoresPerSocket=32 RealMemory=60000 Gres=gpu:{self.type}:{count},shard:{self.type}:{self.shards * count} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{more}""")
        lines = [f"Name=gpu Type={self.type} File={path}\nName=shard Type={self.type} Count={self.shards} File={path}\n" for path in self.devices]
        (etc / "gres.conf").write_text("AutoDetect=off\n" + "".join(lines))
        plugin = "cgroup/v2\nIgnoreSystemd=yes" if self.version_2 else f"cgroup/v1\nCgroupMountpoint={GROUPS}"
        (etc / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\nConstrainDevices=yes\n")

    def start(self):
        d = self.folder
        if self.version_2:
            (GROUPS / "system.slice").mkdir(exist_ok=True)
            # What systemd would have handed down, as far as this kernel has it.
            for group in (GROUPS, GROUPS / "system.slice"):
                for controller in set(("cpuset", "cpu", "memory", "pids")) & set((group / "cgroup.controllers").read_text().split()):
                    (group / "cgroup.subtree_control").write_text(f"+{controller}")
        sh("munged", "--force", f"--key-file={d}/munge/munge.key", f"--socket={d}/munge/socket", f"--pid-file={d}/munge/pid", f"--log-file={d}/munge/log", f"--seed-file={d}/munge/seed")
        self.daemons.append(d / "munge/pid")
        sh("slurmctld", "-i")
        self.daemons.append(d / "run/slurmctld.pid")
        until(lambda: " is UP" in sh("scontrol", "ping", check=False).stdout, 10)
        sh("slurmd", "-N", NODE)
        self.daemons.append(d / "run/slurmd.pid")
        return until(lambda: self.state() == "idle", 20)

    def state(self):
        return sh("sinfo", "-h", "-o", "%T", check=False).stdout.strip()

    def as_user(self, *command, **more):
        return sh("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command, check=False, env={**os.environ, "USER": NAME, "HOME": str(self.folder.parent / "home")}, cwd=self.folder.parent / "home", **more)

    def submit(self, gres, script, output):
        """The job's number."""
        said = self.as_user("sbatch", "--parsable", f"--gres={gres}", "-o", output, script)
        if said.returncode:
            raise RuntimeError(f"sbatch {gres}: {said.stderr[-400:]}")
        return int(said.stdout.split(";")[0])

    def is_over(self, job):
        return not sh("squeue", "-h", "-j", job, check=False).stdout.strip()

    def groups(self):
        """The control groups of jobs that are there."""
        tops = [GROUPS / f"system.slice/{NODE}_slurmstepd.scope"] if self.version_2 else list(GROUPS.glob(f"*/slurm_{NODE}"))
        return [str(path) for top in tops for path in top.rglob("job_*") if path.is_dir()]

    def stop(self):
        sh("scancel", "-u", NAME, check=False, timeout=10)
        until(lambda: not sh("squeue", "-h", check=False, timeout=10).stdout.strip(), 8)
        for file in reversed(self.daemons):
            try:
                pid = int(file.read_text())
                os.kill(pid, signal.SIGTERM)
            except (OSError, ValueError):
                continue
            if until(lambda: not is_there(pid), 8) is False:
                os.kill(pid, signal.SIGKILL)
        tops = [GROUPS / f"system.slice/{NODE}_slurmstepd.scope"] if self.version_2 else list(GROUPS.glob(f"*/slurm_{NODE}"))
        for top in tops:
            # With version 2 a process of slurmd's keeps the group.
            for pid in {pid for file in top.rglob("cgroup.procs") for pid in file.read_text().split()}:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except OSError:
                    pass
            for group in sorted([*top.rglob("*"), top], key=lambda path: -len(path.parts)):
                if group.is_dir():
                    until(lambda: removed(group), 2)

    def logs(self):
        found = ""
        for name in ("slurmctld.log", "slurmd.log"):
            file = self.folder / "log" / name
            lines = file.read_text(errors="replace").splitlines() if file.exists() else ["none"]
            found += f"--- {name}\n" + "\n".join(lines[-60:]) + "\n"
        return found


def removed(group):
    try:
        group.rmdir()
    except OSError:
        return not group.exists()
    return True


def own_group(name, memory):
    """A control group of version 2 with so much memory; `None` where that cannot be had."""
    group = GROUPS / name
    try:
        group.mkdir(exist_ok=True)
        (group / "memory.max").write_text(memory)
    except OSError:
        removed(group)
        return None
    return group


class Monitor:
    """The daemon that steers jobs. It is there once it has measured the GPU, as on a node that has been idle."""

    program = "/usr/libexec/softmig-monitor"
    measured = pathlib.Path("/var/lib/softmig/scheduler.json")

    def __init__(self, work):
        self.log, self.group = work / "monitor.log", own_group("softmig-monitor", MOST_MEMORY)
        enter = ["sh", "-c", f"echo $$ > {self.group}/cgroup.procs; exec {self.program}"] if self.group else [self.program]
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(enter, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        until(lambda: pathlib.Path("/run/softmig/arbiter.sock").exists() or self.child.poll() is not None, 5)
        if not until(lambda: self.measured.exists() or self.child.poll() is not None, 60):
            print("the monitor has not measured the GPU: jobs keep their cap", self.log.read_text(errors="replace")[-600:], sep="\n", flush=True)

    def memory_peak_mib(self):
        """The most host memory that it and its programs have had at a time, where control groups of version 2 tell."""
        return int((self.group / "memory.peak").read_text()) >> 20 if self.group else None

    def is_up(self):
        return self.child.poll() is None and pathlib.Path("/run/softmig/arbiter.sock").exists()

    def holds(self):
        """What it has open; nothing if it is not there."""
        return look(self.child.pid) if self.is_up() else None

    def cpu_of_threads(self):
        """The CPU seconds that the daemon's threads have used, by name."""
        found = {}
        for task in pathlib.Path(f"/proc/{self.child.pid}/task").iterdir():
            try:
                name = (task / "comm").read_text().strip()
                # Nanoseconds at work, waiting, and how often.
                used = int((task / "schedstat").read_text().split()[0])
            except OSError:
                # It has ended.
                continue
            found[name] = found.get(name, 0) + used / 1e9
        return found

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        if self.group:
            until(lambda: removed(self.group), 2)


def stop(slurm, monitor, files, of_monitor, of_file):
    """Stops both; the ends of their logs, of softmig's and of these files, of so many characters each."""
    text = ""
    try:
        slurm.stop()
    finally:
        if monitor:
            monitor.stop()
            text += f"--- monitor\n{monitor.log.read_text(errors='replace')[-of_monitor:]}\n"
        text += slurm.logs()
        for file in sorted([*files, *pathlib.Path("/var/log/softmig").glob("*")]):
            text += f"--- {file.name}\n{file.read_text(errors='replace')[-of_file:]}\n" if file.is_file() else ""
    return text
