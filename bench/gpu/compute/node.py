"""A node as softmig's installation makes it, and jobs on it as slurmd and the prolog make them."""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import struct
import subprocess
import threading
import time

from runner import PRELOAD, own_preload
from stand import Talk

ETC, RUN = pathlib.Path("/etc/softmig"), pathlib.Path("/var/run/softmig")
# What the monitor measured of this kind of GPU: until then it does not steer.
MEASURED = pathlib.Path("/var/lib/softmig/scheduler.json")
SOCKET = RUN / "arbiter.sock"
USER = 65534
GROUPS = pathlib.Path("/sys/fs/cgroup")
POLICY = "[gpu.h200]\nmemory_mib = 143771\nreserved_mib = 616\nshards = 8\n"
PACKED = f"{POLICY}pack = \"user\"\n"
# What Slurm says of jobs here.
ACCOUNT = "course"
PACKED_BY_ACCOUNT = f"{POLICY}pack = \"account\"\n"


@contextlib.contextmanager
def in_a_slice(options, work, number, memory_mib):
    """A node with a job that has a quarter of a GPU's time and so much memory; meanwhile all programs have the library."""
    library = pathlib.Path(shutil.copy(options.library, work / "libsoftmig.so"))
    node = Node(library, options.prolog.resolve(), options.monitor.resolve(), work)
    node.start()
    job = None
    try:
        job = Job(node, number, 1, 4, memory_mib=memory_mib)
        node.preload(True)
        yield job
    finally:
        node.preload(False)
        if job:
            job.end()
        node.stop()


class Node:
    """The files of a node, in this mount namespace alone, and the monitor's daemon."""

    def __init__(self, library, prolog, monitor, work, policy=POLICY):
        self.library, self.prolog, self.monitor, self.work, self.policy = library, prolog, monitor, work, policy
        self.daemon, self.made = None, []
        self.wanted, self.wanting = 0, threading.Lock()

    def start(self):
        if own_preload(self.work / "ld.so.preload"):
            self.made.append(PRELOAD)
        for folder in (ETC, RUN.resolve()):
            if not folder.exists():
                folder.mkdir(parents=True)
                self.made.append(folder)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "softmig-bench", folder], check=True)
        (ETC / "node.conf").write_text("SOFTMIG_NODE=enforce\n")
        self.set_policy(self.policy)
        if self.monitor:
            self.start_monitor()
        return self

    def set_policy(self, text):
        """For the jobs that come."""
        (ETC / "policy.toml").write_text(text)

    def start_monitor(self):
        # One that was killed leaves its socket.
        before = self.socket()
        log = open(self.work / "monitor.log", "ab")
        self.daemon = subprocess.Popen([self.monitor], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + 5
        while self.socket() == before and time.monotonic() < end and self.daemon.poll() is None:
            time.sleep(0.01)
        if self.socket() == before:
            print("the monitor has no socket: each job keeps its cap alone", *self.said(), sep="\n  ", flush=True)
        end = time.monotonic() + 60
        while not self.is_measured() and time.monotonic() < end and self.daemon.poll() is None:
            time.sleep(0.1)
        if not self.is_measured():
            print("the monitor has not measured the GPU: each job keeps its cap, or there are no packs", *self.said(), sep="\n  ", flush=True)

    def is_measured(self):
        """Whether the GPU can be steered, and have packs where the policy has them, is known."""
        proved = self.proved()
        return bool(proved) and ("pack =" not in self.policy or all(one.get("pack") for one in proved))

    def proved(self):
        """What the monitor measured of each kind of GPU."""
        return json.loads(MEASURED.read_text())["proofs"] if MEASURED.exists() else []

    def socket(self):
        """Which socket there is, if any."""
        try:
            seen = SOCKET.stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_ctime_ns

    def said(self):
        log = self.work / "monitor.log"
        return log.read_text(errors="replace").splitlines()[-6:] if log.exists() else []

    def preload(self, on):
        PRELOAD.write_text(f"{self.library}\n" if on else "")

    @contextlib.contextmanager
    def preloaded(self):
        """All programs that start meanwhile have the library, until the last of those who want it does not any more."""
        with self.wanting:
            self.wanted += 1
            self.preload(True)
        try:
            yield
        finally:
            with self.wanting:
                self.wanted -= 1
                self.preload(self.wanted > 0)

    def stop(self):
        self.preload(False)
        if self.daemon:
            self.daemon.terminate()
            try:
                self.daemon.wait(5)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
            self.daemon = None
        subprocess.run(["umount", "-l", PRELOAD])
        for folder in (RUN.resolve(), ETC):
            subprocess.run(["umount", "-l", folder])
        for made in self.made:
            made.unlink() if made.is_file() else made.rmdir()


class Job:
    """A job with a slice: the prolog's files, and a control group like slurmd's."""

    def __init__(self, node, number, shards, per_gpu, mode="hard", memory_mib=None, gpus="0", user=USER):
        self.node, self.number, self.user, self.gpus = node, number, user, gpus
        memory_mib = memory_mib or 143155 * shards // per_gpu
        self.share = shards / per_gpu
        said = subprocess.run([node.prolog], env={
            "PATH": os.environ["PATH"], "SLURM_JOB_ID": str(number), "SLURM_JOB_UID": str(user), "SLURM_JOB_GID": str(user), "SLURM_JOB_GPUS": gpus,
            "SLURM_JOB_EXTRA": f"softmig=1:h200:{shards}/{per_gpu}:{memory_mib}:{mode}", "SLURM_JOB_RESTART_COUNT": "0",
            "SLURM_JOB_START_TIME": str(int(time.time())), "SLURMD_NODENAME": "bench", "SLURM_JOB_ACCOUNT": ACCOUNT,
        }, capture_output=True, text=True)
        self.conf = (RUN / f"{number}.conf").read_text() if (RUN / f"{number}.conf").exists() else ""
        if said.returncode or "SOFTMIG_GPUS=GPU-" not in self.conf:
            raise RuntimeError(f"the prolog: {said.returncode} {said.stderr[-300:]} {self.conf!r}")
        # Control groups version 2, or 1 with the freezer.
        top = GROUPS / "system.slice/slurmstepd.scope" if (GROUPS / "cgroup.controllers").exists() else GROUPS / f"freezer/slurm/uid_{user}"
        self.group = top / f"job_{number}"
        self.inner = self.group / "step_0/user/task_0" if "system.slice" in str(top) else self.group / "step_0"
        self.inner.mkdir(parents=True, exist_ok=True)

    def command(self, *words):
        """Runs a command in the job, as its user."""
        enter = f"echo $$ > {self.inner}/cgroup.procs && exec setpriv --reuid={self.user} --regid={self.user} --clear-groups \"$@\""
        return ["sh", "-c", enter, "sh", *map(str, words)]

    def environment(self):
        return {**os.environ, "HOME": str(self.node.work), "SOFTMIG_LOG_LEVEL": "2", "SLURM_JOB_ID": str(self.number), "CUDA_VISIBLE_DEVICES": self.gpus}

    def talk(self, *words):
        return Talk(self.command(*words), self.environment())

    def log(self):
        log = RUN / "jobs" / str(self.number) / "log"
        return log.read_text(errors="replace").splitlines()[:4] if log.exists() else []

    def has_left(self):
        """Whether its pack's supervisor keeps memory of its programs, by locks on its ledger: of the kernel's F_OFD_GETLK."""
        form, get, bytes_of_processes = "hhqqi4x", 36, (1 << 41, 1 << 32)
        with open(RUN / "jobs" / str(self.number) / "ledger", "rb") as ledger:
            asked = struct.pack(form, fcntl.F_WRLCK, os.SEEK_SET, *bytes_of_processes, 0)
            return struct.unpack(form, fcntl.fcntl(ledger, get, asked))[0] != fcntl.F_UNLCK

    def wait_for_leftovers(self):
        """Until nothing is kept of its programs, for 30 s at most."""
        until = time.monotonic() + 30
        while self.has_left() and time.monotonic() < until:
            time.sleep(0.02)

    def end(self):
        """As the epilog leaves it: all of the job's processes are gone by then."""
        folder = RUN / "jobs" / str(self.number)
        subprocess.run(["umount", "-l", folder], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        for left in [RUN / f"{self.number}.conf", *RUN.glob(f"uid/*/{self.number}"), *RUN.glob(f"gpu/*/{self.number}")]:
            left.unlink(missing_ok=True)
        for group in sorted([*self.group.rglob("*"), self.group], key=lambda path: -len(path.parts)):
            if group.is_dir():
                for _ in range(50):
                    try:
                        group.rmdir()
                        break
                    except OSError:
                        time.sleep(0.01)
