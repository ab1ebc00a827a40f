"""Where programs run here: with the library or without it, below a limit of their own or inside a job, watched by NVML."""
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

PRELOAD = pathlib.Path("/etc/ld.so.preload")
MIB = 1 << 20
USER = 65534
ETC, VAR = pathlib.Path("/etc/softmig"), pathlib.Path("/var/run/softmig")
SCOPE = pathlib.Path("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_9")
# A ledger's size: what every job has, and what each GPU adds.
LEDGER = 4096 + 65536


class Stand:
    """The library, the programs that were built, and the one that watches."""

    def __init__(self, library, work):
        self.library, self.work = library, work
        self.watcher = None

    def start(self):
        self.watcher = Talk([str(self.work / "watch")], dict(os.environ))
        return self

    def seen(self, word="q"):
        """What NVML showed since the last time that this was asked with `r`."""
        self.watcher.say(word)
        answer = json.loads(self.watcher.line(10))
        answer["pids"] = {int(pid): figures for pid, figures in answer["pids"].items()}
        return answer

    def environment(self, way, limit_mib=4096, ledger=None, more=None):
        """`without`, `passive` (the library and no limit) or `limited`."""
        environment = {**os.environ, **(more or {})}
        if way != "without":
            environment["LD_PRELOAD"] = str(self.library)
        if way == "limited":
            environment["CUDA_DEVICE_MEMORY_LIMIT"] = f"{limit_mib}M"
            environment["SOFTMIG_LOG_LEVEL"] = "2"
            if ledger:
                environment["SOFTMIG_RUN"] = str(ledger)
        return environment

    def ledger(self):
        """An empty ledger for the processes of one job."""
        handle, name = tempfile.mkstemp(dir=self.work, prefix="ledger-")
        os.write(handle, bytes(LEDGER))
        os.close(handle)
        return name

    def talk(self, command, way="limited", **how):
        return Talk(command, self.environment(way, **how))


class Job:
    """A control group like a job's, its conf, its ledger and its log, and the library in /etc/ld.so.preload."""

    def __init__(self, stand, limit_mib=4096):
        self.stand, self.limit_mib = stand, limit_mib

    def __enter__(self):
        SCOPE.mkdir(parents=True, exist_ok=True)
        folder = VAR / "jobs" / "9"
        for made in (ETC, folder):
            made.mkdir(parents=True, exist_ok=True)
        (ETC / "node.conf").write_text("SOFTMIG_NODE=enforce\n")
        limit = f"CUDA_DEVICE_MEMORY_LIMIT={self.limit_mib}M\nCUDA_DEVICE_SM_LIMIT=25\n"
        (VAR / "9.conf").write_text(f"{limit}SOFTMIG_JOB=9\nSOFTMIG_UID={USER}\nSOFTMIG_TYPE=h200\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n")
        self.log = folder / "log"
        for path, text in ((folder / "ledger", bytes(LEDGER)), (self.log, b"")):
            path.write_bytes(text)
            path.chmod(0o600)
            os.chown(path, USER, USER)
        PRELOAD.write_text(f"{self.stand.library}\n")
        return self

    def talk(self, command, more=None):
        enter = f"echo $$ > {SCOPE}/cgroup.procs; exec setpriv --reuid={USER} --regid={USER} --clear-groups \"$@\""
        return Talk(["sh", "-c", enter, "sh", *command], {**os.environ, "HOME": str(self.stand.work), "SOFTMIG_LOG_LEVEL": "3", **(more or {})})

    def said(self):
        return self.log.read_text().splitlines()[:6]

    def __exit__(self, *error):
        PRELOAD.write_text("")
        (ETC / "node.conf").unlink()
        (VAR / "9.conf").unlink()


class Talk:
    """A program that says lines and waits for an answer to some of them, in a session of its own."""

    def __init__(self, command, environment):
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True)
        self.pid, self.rest, self.ended = self.child.pid, b"", False

    def line(self, seconds):
        """The next line; None at the end, and TimeoutError if none comes."""
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            if not select.select([self.child.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"nothing heard for {seconds} s")
            got = os.read(self.child.stdout.fileno(), 65536)
            if not got:
                return None
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def say(self, text=""):
        try:
            self.child.stdin.write(text.encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass

    def phases(self, look=None, seconds=60):
        """All that it says as JSON, each with what was seen from outside at that moment."""
        while (line := self.line(seconds)) is not None:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            yield said
            if "phase" in said:
                self.say(str(said.get("answer", "")))

    def end(self, seconds=20):
        """Its exit status and the end of what it said on stderr."""
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            status = "timeout"
        self.kill()
        self.errors.seek(0)
        return status, self.errors.read()[-1500:].decode(errors="replace").splitlines()[-6:]

    def kill(self):
        """It and all of its session."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
