#!/usr/bin/env python3
"""On a machine with a GPU: programs under NVIDIA's MPS, seen from outside, and who dies with one of them.

    python3 research/packs_facts.py --out FOLDER [--only NAME...]

As root, with nvcc, a C compiler, setpriv and nvidia-cuda-mps-control. Each experiment goes to FOLDER/gpu-packs-facts.json. What it
means is in research/packs.md. No other program may use the GPU meanwhile.
"""
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import channels_facts as channels
from facts import HERE, machine, options

SOURCES = HERE / "packs_facts"
PIDFD_GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)
# Kernels of 200 us which leave most of each processor to others, and some that fill the GPU.
SMALL, FULL = ("queue", 200, 16, 0), ("queue", 1000, 8, 0)


# How one ends, where its memory is, and which of its files are kept.
DEATHS = [*(("kill", "device", f"all {first} {second}") for first, second in ((50, 0), (0, 50), (50, 50))), *((how, memory, "all 50 50") for how, memory in (("exit", "device"), ("crash", "device"), ("kill", "managed"), ("exit", "managed"), ("kill", "mapped")))]
OLD = [("kill", "device", "none"), ("kill", "device", "uvm"), *((how, "device", "all") for how in ("kill", "exit", "_exit", "crash", "term", "stop", "throw", "reset", "fork")), *((how, memory, "all") for memory in ("pool", "vmm", "mapped", "managed") for how in ("kill", "exit"))]


class Server:
    """NVIDIA's MPS in folders of its own."""

    numbers = iter(range(10**6))

    def __init__(self, *flags):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix="mps"))
        self.folder.chmod(0o755)
        self.pipe, self.log = self.folder / "pipe", self.folder / "log"
        for one in (self.pipe, self.log):
            one.mkdir()
            one.chmod(0o755)
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}
        self.daemon = subprocess.Popen(["nvidia-cuda-mps-control", "-f", *flags], env=os.environ | self.environment, stdin=subprocess.DEVNULL, stdout=open(self.log / "said", "w"), stderr=subprocess.STDOUT)
        until = time.monotonic() + 10
        while not (self.pipe / "control").exists() and time.monotonic() < until:
            time.sleep(0.005)

    def say(self, line, prefix=(), limit=20):
        try:
            done = subprocess.run([*prefix, "nvidia-cuda-mps-control"], input=line + "\n", text=True, env=os.environ | self.environment, capture_output=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return "no answer"
        return (done.stdout + done.stderr).strip()

    def servers(self):
        return [int(word) for word in self.say("get_server_list").split() if word.isdigit()]

    def logs(self):
        return {path.name: path.read_text(errors="replace").splitlines()[-14:] for path in sorted(self.log.iterdir())}

    def end(self):
        said = self.say("quit -t 2", limit=30)
        try:
            self.daemon.wait(20)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
        return said


class Client(channels.Program):
    """A program of channels_facts.py's under a server."""

    def __init__(self, lab, kind, server, fill="2", prefix=()):
        changed = (server.environment if server else {}) | {"FILL": fill}
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            super().__init__(lab, kind, prefix)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


class Kept:
    """Another process's files of the driver's, as long as this is not closed."""

    def __init__(self, pid, paths=("/dev/nvidia-uvm",)):
        self.process = os.pidfd_open(pid)
        self.files = []
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                to = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if to in paths:
                file = libc.syscall(PIDFD_GETFD, self.process, int(name), 0)
                if file >= 0:
                    self.files.append((to.endswith("uvm"), file))
        self.files.sort()

    def wait(self, seconds=15):
        asked = select.poll()
        asked.register(self.process, select.POLLIN)
        return bool(asked.poll(seconds * 1000))

    def close(self, pause_ms=0):
        """UVM's last, after so long."""
        begun = time.monotonic()
        for is_last, file in self.files:
            if is_last:
                time.sleep(pause_ms / 1e3)
            os.close(file)
        self.files = []
        os.close(self.process)
        return (time.monotonic() - begun) * 1e3


class Mortal:
    """A program of mortal.cu under a server."""

    def __init__(self, lab, server, memory="device"):
        environment = os.environ | {"LD_PRELOAD": str(lab.folder / "preload.so"), "CHANNELS_SOCKET": lab.address} | (server.environment if server else {})
        self.lab = lab
        self.child = subprocess.Popen([lab.folder / "mortal", memory, "1"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.pid = self.child.pid
        self.socket, _ = lab.listener.accept()
        self.socket.settimeout(20)
        self.socket.recv(4)
        self.said = self.child.stdout.readline().strip()
        channels.Program.ask(self, channels.LIST)

    def end(self, how):
        if how in ("kill", "term", "stop"):
            signals = {"kill": [signal.SIGKILL], "term": [signal.SIGTERM], "stop": [signal.SIGSTOP, signal.SIGKILL]}[how]
            for number in signals:
                self.child.send_signal(number)
        else:
            try:
                self.child.stdin.write(how + "\n")
                self.child.stdin.flush()
            except BrokenPipeError:
                pass

    def has_channels(self):
        """Whether the driver knows one of them: letting it run, which it does, tells."""
        return any(self.lab.disable_all([one], 0)[0] == 0 for one in zip(self.clients, self.channels))

    def die(self, how, keep, told):
        """It ends. `keep` says which of its files another process has open meanwhile: `none`; `uvm`, until the driver has taken its channels
        away; `all`, whose channels root disables as soon as it has ended, and whose files are closed so many ms later, those of UVM's so
        many ms after the other."""
        keep, *pauses = keep.split()
        first, second = map(int, pauses or (0, 0))
        kept = Kept(self.pid, {"none": (), "uvm": ("/dev/nvidia-uvm",), "all": ("/dev/nvidiactl", "/dev/nvidia-uvm")}[keep])
        begun = time.monotonic()
        since = lambda: (time.monotonic() - begun) * 1e3
        self.end(how)
        kept.wait(20)
        told["ending_ms"].append(since())
        if keep == "uvm":
            while self.has_channels() and since() < 20000:
                time.sleep(0.002)
        elif keep == "all":
            told["disabled"].append(self.lab.disable(self, 1)[0])
            time.sleep(first / 1e3)
        told["gone_ms"].append(since())
        told["files"].append(len(kept.files))
        told["closing_ms"].append(kept.close(second))
        self.child.wait()
        self.socket.close()


class Lab(channels.Lab):
    def __init__(self, folder):
        sources = folder / "sources"
        shutil.copytree(channels.SOURCES, sources)
        work = (sources / "work.cu").read_text()
        (sources / "work.cu").write_text(work.replace("processors * 8, threads", 'processors * (getenv("FILL") ? atoi(getenv("FILL")) : 8), threads'))
        channels.SOURCES = sources
        super().__init__(folder)
        subprocess.run(["nvcc", "-O2", "-arch=native", SOURCES / "mortal.cu", "-o", folder / "mortal", "-lcuda"], check=True)
        subprocess.run(["cc", "-O2", SOURCES / "variable.c", "-o", folder / "variable", "-ldl"], check=True)
        one = Client(self, SMALL, None)
        self.small, = channels.rates([one], 0.8)
        one.end()

    def paces(self, clients, seconds=0.5):
        return [round(100 * rate / self.small, 1) for rate in channels.rates(clients, seconds)]

    def identity(self):
        found = {}
        for flags in ((), ("-multiuser-server",)):
            server = Server(*flags)
            files = lambda: {path.name: oct(path.lstat().st_mode) for path in sorted(server.pipe.iterdir())}
            seen = {"files": files()}
            one = Client(self, SMALL, server, prefix=channels.NOBODY)
            status = lambda pid: next(line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid"))
            seen["servers"] = {pid: status(pid) for pid in server.servers()}
            seen["parents"] = [int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) == server.daemon.pid for pid in server.servers()]
            seen["files with a client"] = files()
            seen["pace of another user's client"] = self.paces([one])
            if flags:
                two = Client(self, SMALL, server)
                seen["both"] = self.paces([one, two])
                two.end()
            for line in ("get_server_list", f"get_client_list {server.servers()[0]}", f"terminate_client {server.servers()[0]} {one.pid}", "set_default_active_thread_percentage 10", "quit -f"):
                seen[f"nobody says: {line}"] = server.say(line, channels.NOBODY)
            seen["alive"] = server.daemon.poll(), self.paces([one])
            seen["end"] = one.end(), server.end()
            seen["logs"] = server.logs()
            found["multi-user" if flags else "as it is"] = seen
        return found

    def variable(self):
        server, found = Server("-multiuser-server"), {}
        for when in ("init", "context", "never"):
            child = subprocess.Popen([self.folder / "variable", when, server.pipe], stdout=subprocess.PIPE, text=True)
            time.sleep(2)
            servers = server.servers()
            listed = server.say(f"get_client_list {servers[0]}").split() if servers else []
            apps = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"], capture_output=True, text=True).stdout.splitlines()
            found[when] = {"is a client": str(child.pid) in listed, "pid": child.pid, "clients": listed, "servers": servers, "nvidia-smi": apps, "said": child.communicate()[0].splitlines()}
        server.end()
        return found

    def memory(self):
        used = lambda: int(subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True).stdout.split()[0])
        found = {"nothing": used()}
        one = Client(self, SMALL, None)
        found["a program without MPS"] = used()
        one.end()
        server = Server("-multiuser-server")
        found["the control daemon"] = used()
        clients = []
        for count in (1, 2, 3):
            clients.append(Client(self, SMALL, server))
            found[f"{count} clients"] = used()
        text = subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout
        found["rows"] = [" ".join(line.split()) for line in text.splitlines() if "MiB" in line]
        found["pids"] = {"server": server.servers(), "clients": [one.pid for one in clients]}
        for one in clients:
            one.end()
        time.sleep(0.5)
        found["no client any more"] = used()
        server.end()
        return found

    def log_names(self):
        server, found = Server("-multiuser-server"), {}
        clients = [Client(self, SMALL, server) for _ in range(3)]
        names = {one.pid: f"client {at}" for at, one in enumerate(clients)} | {pid: "server" for pid in server.servers()}

        def seen():
            self.switches.take()
            time.sleep(0.4)
            records = self.switches.take()
            return {names.get(pid, pid): channels.residency(records, pid) for pid in {record[1] for record in records}}

        found["alone"] = seen()
        other = Client(self, FULL, None, fill="8")
        names[other.pid] = "outside"
        found["beside one outside"] = seen(), self.paces(clients)
        for at in (0, 1):
            clients[at].end()
            time.sleep(0.3)
            found[f"client {at} has gone"] = seen(), self.paces(clients[at + 1 :])
        late = Client(self, SMALL, server)
        names[late.pid] = "client that came late"
        found["another came"] = seen(), self.paces([clients[2], late])
        clients[2].end()
        time.sleep(0.3)
        found["that one alone"] = seen(), self.paces([late])
        # A client that does nothing, and one that comes after all have gone.
        late.end()
        time.sleep(0.5)
        again = Client(self, SMALL, server)
        names[again.pid] = "client after all had gone"
        found["anew"] = seen(), self.paces([again])
        again.end()
        other.end()
        server.end()
        return found

    def slices(self):
        """A client's time slice, asked and set through its own file, beside a program outside."""
        server, found = Server("-multiuser-server"), {}
        clients, other = [Client(self, SMALL, server) for _ in range(2)], Client(self, FULL, None, fill="8")
        found["channels"] = [len(one.channels) for one in clients]
        full = lambda: round(100 * channels.rates([other], 0.5)[0] / self.alone[channels.MIDDLE], 1)
        for slice_us in (None, 500, 8000):
            if slice_us:
                found[f"set {slice_us}"] = [one.ask(channels.SET_TIMESLICE, slice_us) for one in clients]
                found[f"asked {slice_us}"] = [one.ask(channels.GET_TIMESLICE, slice_us)[0] for one in clients]
            found[f"paces {slice_us}"] = self.paces(clients), full()
        for one in (*clients, other):
            one.end()
        server.end()
        return found

    def hold(self):
        """All clients of a server are held in turn with a program outside; then one alone."""
        server, found = Server("-multiuser-server"), {}
        clients, other = [Client(self, SMALL, server) for _ in range(3)], Client(self, FULL, None, fill="8")
        pairs = [(one, list(zip(one.clients, one.channels))) for one in clients]
        found["channels"] = [len(own) for _, own in pairs]
        if not all(own for _, own in pairs):
            return found
        full = lambda seconds=0.4: round(100 * channels.rates([other], seconds)[0] / self.alone[channels.MIDDLE], 1)
        before, costs = other[channels.DONE], []
        worked, begun = [one[channels.DONE] for one in clients], time.monotonic()
        theirs = list(zip(other.clients, other.channels))
        while time.monotonic() - begun < 2:
            for off in (1, 0):
                start = time.monotonic()
                self.disable_all(theirs, 1 - off)
                for _, own in pairs:
                    self.disable_all(own, off)
                costs.append((time.monotonic() - start) * 1e6)
                time.sleep(0.005)
        self.disable_all(theirs, 0)
        elapsed = time.monotonic() - begun
        found["turns of 5 ms"] = {"clients": [round(100 * (one[channels.DONE] - was) / elapsed / self.small, 1) for one, was in zip(clients, worked)], "outside": round(100 * (other[channels.DONE] - before) / elapsed / self.alone[channels.MIDDLE], 1), "call_us": channels.ordered(costs)}
        found["all run"] = self.paces(clients), full()
        self.disable_all(pairs[0][1], 1)
        time.sleep(0.02)
        found["the first held"] = self.paces(clients), full()
        self.disable_all(pairs[0][1], 0)
        for one in (*clients, other):
            one.end()
        server.end()
        return found

    def deaths(self, kinds=DEATHS, rounds=7):
        """Each of four ends: how, where its memory is, which of its files are kept. How often two others died, and how slow they were."""
        found, server, others = {}, None, []
        for how, memory, keep in kinds:
            told, died, least = {name: [] for name in ("ending_ms", "gone_ms", "closing_ms", "files", "disabled")}, 0, []
            for _ in range(rounds if keep != "none" else 1):
                if not others or any(one.child.poll() is not None for one in others):
                    if server:
                        server.end()
                    server = Server("-multiuser-server")
                    others = [Client(self, SMALL, server) for _ in range(2)]
                    alone = min(self.paces(others, 0.3))
                four = [Mortal(self, server, memory) for _ in range(4)]
                before = min(self.paces(others, 0.2))
                dying = []
                for one in four:
                    dying.append(threading.Thread(target=one.die, args=(how, keep, told)))
                    dying[-1].start()
                    time.sleep(0.1)
                meanwhile = []
                while any(one.is_alive() for one in dying):
                    meanwhile.append(min(self.paces(others, 0.05)))
                time.sleep(0.2)
                after = min(self.paces(others, 0.2))
                if any(one.child.poll() is not None for one in others) or after == 0:
                    died += 1
                    for other in others:
                        other.child.kill()
                        other.child.wait()
                least.append((alone, before, min(meanwhile, default=None), after))
            name = f"{how}, {memory}, {keep}"
            found[name] = {"deaths": len(told["files"]), "rounds in which others died": died, "files": sorted(set(told["files"])), "disabled": sorted(set(told["disabled"])), "paces alone, before, the least of 50 ms, after": least} | {key: channels.ordered(told[key]) for key in ("ending_ms", "gone_ms", "closing_ms")}
            print(name, json.dumps(found[name]), flush=True)
        for one in others:
            one.child.kill()
        server.end()
        return found

    def deaths_outside(self):
        """The same without a server: how long an end takes."""
        told = {name: [] for name in ("ending_ms", "gone_ms", "closing_ms", "files", "disabled")}
        for one in [Mortal(self, None) for _ in range(4)]:
            one.die("kill", "none", told)
        return channels.ordered(told["ending_ms"])

    def faults(self):
        """One client writes to an illegal address. What is told, and when a new client can begin, while the others stay."""
        found = {}
        for stay in (False, True):
            server = Server("-multiuser-server")
            others = [Mortal(self, server) for _ in range(2)]
            one = Mortal(self, server)
            one.end("fault")
            seen = {"said": one.child.communicate()[0].split("\n"), "status of the others": [other.child.poll() for other in others]}
            if not stay:
                for other in others:
                    other.child.kill()
                    other.child.wait()
            begun = time.monotonic()
            for _ in range(4):
                new = subprocess.run([self.folder / "variable", "never", "x"], env=os.environ | server.environment, capture_output=True, text=True, timeout=60)
                seen.setdefault("new ones", []).append((round(time.monotonic() - begun, 2), [line for line in new.stdout.splitlines() if "ms" not in line]))
                if "cuDevicePrimaryCtxRetain: 0" in new.stdout:
                    break
            seen["logs"] = server.logs()
            seen["servers"] = server.servers(), server.say(f"get_server_status {(server.servers() or [0])[0]}")
            for other in others:
                other.child.kill()
            begun = time.monotonic()
            again = subprocess.run([self.folder / "variable", "never", "x"], env=os.environ | server.environment, capture_output=True, text=True, timeout=60)
            seen["after the others ended"] = round(time.monotonic() - begun, 2), again.stdout.splitlines()
            server.end()
            found["others stay" if stay else "others end"] = seen
        return found

    def ends_of_the_server(self):
        """The control daemon is killed; then the server is."""
        found, server = {}, Server("-multiuser-server")
        clients = [Client(self, SMALL, server) for _ in range(2)]
        pids = server.servers()
        server.daemon.kill()
        server.daemon.wait()
        time.sleep(0.5)
        found["the daemon is killed"] = {"paces": self.paces(clients), "server there": [os.path.exists(f"/proc/{pid}") for pid in pids]}
        new = subprocess.run([self.folder / "variable", "never", "x"], env=os.environ | server.environment, capture_output=True, text=True, timeout=60)
        found["a new one"] = new.stdout.splitlines()
        again = Server.__new__(Server)
        again.__dict__.update(server.__dict__)
        again.daemon = subprocess.Popen(["nvidia-cuda-mps-control", "-f", "-multiuser-server"], env=os.environ | server.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(1)
        found["a daemon anew"] = {"alive": again.daemon.poll(), "servers": again.servers(), "paces": self.paces(clients)}
        for pid in pids:
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGKILL)
        time.sleep(1)
        found["the server is killed"] = {"alive": [one.child.poll() for one in clients], "paces": self.paces(clients)}
        found["ends"] = [one.end() for one in clients]
        again.end()
        return found

    def many(self):
        """How many clients there can be."""
        server, all_of_them, found = Server("-multiuser-server"), [], {}
        for count in range(1, 72):
            child = subprocess.Popen([self.folder / "variable", "never", "x"], env=os.environ | server.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            all_of_them.append(child)
            time.sleep(0.03)
        said = [child.communicate()[0].splitlines() for child in all_of_them]
        tally = {}
        for lines in said:
            key = " ".join(line for line in lines if "ms" not in line)
            tally[key] = tally.get(key, 0) + 1
        found["of 71"] = tally
        server.end()
        return found


def main():
    given, folder = options(), pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    lab = Lab(folder)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "gpu-packs-facts.json"
    kept = json.loads(file.read_text())["experiments"] if file.exists() else {}
    result = {"machine": machine(), "experiments": kept}
    for name in ("identity", "variable", "memory", "log_names", "slices", "hold", "faults", "ends_of_the_server", "many", "deaths", "deaths_outside"):
        if given.only and name not in given.only:
            continue
        begun = time.monotonic()
        try:
            kept[name] = getattr(lab, name)()
        except Exception as error:
            import traceback
            kept[name] = {"failed": traceback.format_exc()[-1500:]}
        print(name, round(time.monotonic() - begun, 1), json.dumps(kept[name]), flush=True)
        file.write_text(json.dumps(result, indent=1) + "\n")
    os._exit(0)


if __name__ == "__main__":
    main()
