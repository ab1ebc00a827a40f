"""NVIDIA's MPS for packs_facts.py: a server, its clients, and the files that are kept of one that ends."""
import ctypes
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from unittest.mock import patch

import channels_facts as channels

PIDFD_GETFD = 438
# Which files of a process another one keeps open, by what DEATHS calls them.
KEPT = {"none": (), "uvm": ("/dev/nvidia-uvm",), "all": ("/dev/nvidiactl", "/dev/nvidia-uvm")}
# So many lines of a server's log are kept, and each older one that has one of these words.
LAST, TELLING = 14, ("fault", "fatal", "exception", "error", "teardown")
libc = ctypes.CDLL(None, use_errno=True)


class Server:
    """A control daemon in folders of its own, and the servers that it starts."""

    def __init__(self, *flags):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix="mps"))
        self.pipe, self.log = self.folder / "pipe", self.folder / "log"
        for one in (self.folder, self.pipe, self.log):
            one.mkdir(exist_ok=True)
            one.chmod(0o755)
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}
        self.begin(*flags)
        until = time.monotonic() + 10
        while not (self.pipe / "control").exists() and time.monotonic() < until:
            time.sleep(0.005)

    def begin(self, *flags):
        """Starts the daemon. In the foreground it and its servers write their logs to its output."""
        command, environment = ["nvidia-cuda-mps-control", "-f", *flags], os.environ | self.environment
        with open(self.log / "said", "a") as said:
            self.daemon = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)

    def say(self, line, prefix=(), limit=20):
        """What the daemon answers to one line."""
        command, environment = [*prefix, "nvidia-cuda-mps-control"], os.environ | self.environment
        try:
            done = subprocess.run(command, input=line + "\n", text=True, env=environment, capture_output=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return "no answer"
        return (done.stdout + done.stderr).strip()

    def servers(self):
        return [int(word) for word in self.say("get_server_list").split() if word.isdigit()]

    def logs(self):
        """The end of each log and what tells of faults, without the GPU's own number."""
        found = {}
        for path in sorted(self.log.iterdir()):
            lines = re.sub(r"GPU-[0-9a-f-]{36}", "GPU-...", path.read_text(errors="replace")).splitlines()
            telling = [line for line in lines[:-LAST] if any(word in line.lower() for word in TELLING)]
            found[path.name] = telling + lines[-LAST:]
        return found

    def end(self):
        """What the daemon answers to the request to end."""
        said = self.say("quit -t 2", limit=30)
        try:
            self.daemon.wait(20)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        return said


class Client(channels.Program):
    """A program of channels_facts.py under a server, or without one. `fill`: blocks of a kernel for each processor."""

    def __init__(self, lab, kind, server, fill="2", prefix=()):
        with patch.dict(os.environ, (server.environment if server else {}) | {"FILL": fill}):
            super().__init__(lab, kind, prefix)


class Kept:
    """Another process's files of the driver, open here too until this is closed."""

    def __init__(self, pid, paths):
        self.process, self.files = os.pidfd_open(pid), []
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                to = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if to in paths:
                file = libc.syscall(PIDFD_GETFD, self.process, int(name), 0)
                if file >= 0:
                    self.files.append((to.endswith("uvm"), file))
        # nvidiactl's first.
        self.files.sort()

    def wait(self, seconds):
        """Whether the process has ended by then."""
        asked = select.poll()
        asked.register(self.process, select.POLLIN)
        return bool(asked.poll(seconds * 1000))

    def close_control(self):
        """Nvidiactl's alone. How many ms it takes."""
        begun = time.monotonic()
        for is_uvm, file in self.files:
            if not is_uvm:
                os.close(file)
        self.files = [one for one in self.files if one[0]]
        return (time.monotonic() - begun) * 1e3

    def close(self, pause_ms=0):
        """Nvidiactl's first, and UVM's so many ms later. How many ms it takes, with this pause."""
        begun = time.monotonic()
        self.close_control()
        if self.files:
            time.sleep(pause_ms / 1e3)
        for _, file in self.files:
            os.close(file)
        self.files = []
        os.close(self.process)
        return (time.monotonic() - begun) * 1e3


class Mortal:
    """A program of mortal.cu under a server, or without one. It has work queued."""

    SIGNALS = {"kill": [signal.SIGKILL], "term": [signal.SIGTERM], "stop": [signal.SIGSTOP, signal.SIGKILL]}
    ask = channels.Program.ask

    def __init__(self, lab, server, memory="device", ms=20):
        self.lab = lab
        environment = os.environ | {"LD_PRELOAD": str(lab.folder / "preload.so"), "CHANNELS_SOCKET": lab.address}
        environment |= server.environment if server else {}
        self.child = subprocess.Popen([lab.folder / "mortal", memory, "1", str(ms)], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.pid = self.child.pid
        self.socket, _ = lab.listener.accept()
        self.socket.settimeout(20)
        self.socket.recv(4)
        self.said = self.child.stdout.readline().strip()
        self.ask(channels.LIST)

    def end(self, how):
        """By a signal, or by itself as soon as it is told."""
        for number in self.SIGNALS.get(how, ()):
            self.child.send_signal(number)
        if how not in self.SIGNALS:
            try:
                self.child.stdin.write(how + "\n")
                self.child.stdin.flush()
            except BrokenPipeError:
                pass

    def has_channels(self):
        """Whether the driver still knows one of them. It answers a request to let it run, which changes nothing: it runs already."""
        return any(self.lab.disable_all([one], 0)[0] == 0 for one in self.left())

    def left(self):
        """The channels that it had, each with its client."""
        return list(zip(self.clients, self.channels))

    def gone(self):
        """To the end of its output: the child of a fork has its files until then."""
        self.child.communicate()
        self.socket.close()

    def die(self, how, keep, told):
        """It ends, and `told` gets how that went. `keep` says which of its files this process has open meanwhile.

        `none`. `uvm`: UVM's, until the driver has taken its channels away. `all`: nvidiactl's too; root disables its channels as
        soon as it has ended. nvidiactl's file is closed so many ms later, and UVM's so many ms after that.
        """
        keep, *pauses = keep.split()
        first, second = map(int, pauses or (0, 0))
        kept, begun = Kept(self.pid, KEPT[keep]), time.monotonic()

        def since():
            return (time.monotonic() - begun) * 1e3

        self.end(how)
        kept.wait(20)
        told["ending_ms"].append(since())
        if keep == "uvm":
            while self.has_channels() and since() < 20000:
                time.sleep(0.002)
        elif keep == "all":
            told["disabled"].append(hex(self.lab.disable(self, 1)[0]))
            time.sleep(first / 1e3)
        told["gone_ms"].append(since())
        told["files"].append(len(kept.files))
        told["closing_ms"].append(kept.close(second))
        self.gone()
