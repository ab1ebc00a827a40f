#!/usr/bin/env python3
"""On a machine with a GPU: programs under NVIDIA's MPS, seen from outside, and who dies with one of them.

    python3 research/packs_facts.py --out FOLDER [--only NAME...]

As root, with nvcc, a C compiler, setpriv and nvidia-cuda-mps-control. Each experiment goes to FOLDER/gpu-packs-facts.json, which
belongs to research/results; what it means is in research/packs.md. No other program may use the GPU meanwhile. A pace is a
percentage of what the same program gets done alone and without MPS. Where three figures stand together, they are the least, the
median and the most.
"""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import channels_facts as channels
from facts import HERE, machine, options

SOURCES = HERE / "packs_facts"
sys.path.insert(0, str(SOURCES))

from mps import KEPT, Client, Kept, Mortal, Server

# Kernels of 200 us that leave most of each processor to others, and kernels of 1 ms that fill the GPU.
SMALL, FULL = ("queue", 200, 16, 0), channels.MIDDLE
# How a process ends, where its memory is, and what is kept of it: see Mortal.die.
DEATHS = [
    *(("kill", "device", keep) for keep in ("none", "uvm", "all 0 0", "all 50 0", "all 0 50")),
    *((how, "device", "all 50 50") for how in ("kill", "exit", "_exit", "crash", "term", "stop", "throw", "reset", "fork", "exec")),
    *((how, memory, "all 50 50") for memory in ("pool", "vmm", "mapped", "managed") for how in ("kill", "exit")),
]
# In each round so many end.
ROUNDS, ENDS = 7, 4
# What is kept of one that ends while a kernel of half a second runs.
LONG = [("kill", "device", keep) for keep in ("all 50 100", "all 1500 100", "all 0 1500")]


# How those that end are taken off the GPU: whether all are disabled first, and for how many seconds before the first one's file is closed.
WAYS = {"all are disabled for 50 ms": (True, 0.05), "all are disabled": (True, 0), "one after the other": (False, 0)}


class Info(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong),
                *((name, ctypes.c_uint) for name in ("gpuInstanceId", "computeInstanceId"))]


class Sample(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = [("pid", ctypes.c_uint), ("timeStamp", ctypes.c_ulonglong),
                *((name, ctypes.c_uint) for name in ("smUtil", "memUtil", "encUtil", "decUtil"))]


def asked_of_nvml():
    """By call of NVML its status, and for each process that it names MiB or, of the last call, the per cent of the GPU's time."""
    nvml, gpu, found = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), {}
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)):
        raise OSError("no NVML")
    for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"):
        count, entries = ctypes.c_uint(64), (Info * 64)()
        status = getattr(nvml, name)(gpu, ctypes.byref(count), entries)
        found[name] = status, {one.pid: one.usedGpuMemory >> 20 for one in entries[: 0 if status else count.value]}
    count, samples = ctypes.c_uint(64), (Sample * 64)()
    status = nvml.nvmlDeviceGetProcessUtilization(gpu, samples, ctypes.byref(count), ctypes.c_ulonglong(0))
    found["nvmlDeviceGetProcessUtilization"] = status, {one.pid: one.smUtil for one in samples[: 0 if status else count.value]}
    nvml.nvmlShutdown()
    return found


def smi(*words):
    return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True).stdout.splitlines()


def used():
    """MiB of the GPU's memory, with the driver's own."""
    return int(smi("--query-gpu=memory.used", "--format=csv,noheader,nounits")[0])


def users(pid):
    """Real, effective, saved and that of files."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("Uid")).split()[1:]


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def there(pid):
    return os.path.exists(f"/proc/{pid}")


class Lab(channels.Lab):
    """What the experiments need, and the experiments."""

    def __init__(self, folder):
        # work.cu, where FILL in the environment says how many blocks a kernel has for each processor.
        sources = folder / "sources"
        shutil.copytree(channels.SOURCES, sources)
        work = (sources / "work.cu").read_text()
        fill = 'processors * (getenv("FILL") ? atoi(getenv("FILL")) : 8), threads'
        (sources / "work.cu").write_text(work.replace("processors * 8, threads", fill))
        channels.SOURCES = sources
        super().__init__(folder)
        subprocess.run(["nvcc", "-O2", "-arch=native", SOURCES / "mortal.cu", "-o", folder / "mortal", "-lcuda"], check=True)
        subprocess.run(["cc", "-O2", SOURCES / "variable.c", "-o", folder / "variable", "-ldl"], check=True)
        one = Client(self, SMALL, None)
        self.small, = channels.rates([one], 0.8)
        one.end()

    def paces(self, clients, seconds=0.5):
        """Those of programs with small kernels."""
        return [round(100 * rate / self.small, 1) for rate in channels.rates(clients, seconds)]

    def full(self, program, seconds=0.5):
        """That of a program whose kernels fill the GPU."""
        return round(100 * channels.rates([program], seconds)[0] / self.alone[FULL], 1)

    def clients(self, count, server, kind=SMALL, fill="2"):
        return [Client(self, kind, server, fill) for _ in range(count)]

    def outside(self):
        """A program without MPS, whose kernels fill the GPU."""
        return Client(self, FULL, None, fill="8")

    def newcomer(self, server):
        """A program that begins with the server's variable, makes a context and ends: how many seconds that takes, and what it says."""
        begun, command = time.monotonic(), [self.folder / "variable", "never", "x", "0"]
        done = subprocess.run(command, env=os.environ | server.environment, capture_output=True, text=True, timeout=60)
        return round(time.monotonic() - begun, 2), done.stdout.splitlines()

    def identity(self):
        """Whose the servers are, who may say what to them, and the files of both."""
        found = {}
        for name, flags in (("as it is", ()), ("multi-user", ("-multiuser-server",))):
            server = Server(*flags)

            def files():
                return {path.name: oct(path.lstat().st_mode) for path in sorted(server.pipe.iterdir())}

            seen = {"files": files()}
            one = Client(self, SMALL, server, prefix=channels.NOBODY)
            servers = server.servers()
            seen["users of the servers"] = [users(pid) for pid in servers]
            seen["the daemon is their parent"] = [parent(pid) == server.daemon.pid for pid in servers]
            seen["files with a client"] = files()
            seen["pace of another user's client"] = self.paces([one])
            if flags:
                two = Client(self, SMALL, server)
                seen["paces with a client of root's"] = self.paces([one, two])
                two.end()
            lines = {
                "get_server_list": "get_server_list",
                "get_client_list SERVER": f"get_client_list {servers[0]}",
                "terminate_client SERVER CLIENT": f"terminate_client {servers[0]} {one.pid}",
                "set_default_active_thread_percentage 10": "set_default_active_thread_percentage 10",
                "quit -f": "quit -f",
            }
            for what, line in lines.items():
                seen[f"nobody says: {what}"] = server.say(line, channels.NOBODY)
            seen["pids"] = {"servers": servers, "client": one.pid}
            seen["then"] = {"status of the daemon": server.daemon.poll(), "pace": self.paces([one]), "end": one.end()}
            seen["logs"] = server.logs()
            server.end()
            found[name] = seen
        return found

    def variable(self):
        """When CUDA reads CUDA_MPS_PIPE_DIRECTORY, and which files are open then."""
        server, found = Server("-multiuser-server"), {}
        for when in ("init", "context", "never"):
            child = subprocess.Popen([self.folder / "variable", when, server.pipe, "3"], stdout=subprocess.PIPE, text=True)
            time.sleep(2)
            servers = server.servers()
            listed = server.say(f"get_client_list {servers[0]}").split() if servers else []
            apps = smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
            seen = {"is a client": str(child.pid) in listed, "pid": child.pid, "clients": listed, "servers": servers, "nvidia-smi": apps}
            found[when] = seen | {"said": child.communicate()[0].splitlines()}
        server.end()
        return found

    def memory(self):
        """What the GPU has in use, with 0 to 3 clients."""
        found = {"nothing": used()}
        one = Client(self, SMALL, None)
        found["a program without MPS"] = used()
        one.end()
        server, clients = Server("-multiuser-server"), []
        found["the control daemon"] = used()
        for count in (1, 2, 3):
            clients += self.clients(1, server)
            found[f"{count} clients"] = used()
        rows = [" ".join(line.split()) for line in smi() if "MiB" in line]
        found["rows"] = [row.replace(f"{self.folder}/", "") for row in rows]
        found["pids"] = {"server": server.servers(), "clients": [one.pid for one in clients]}
        for one in clients:
            one.end()
        time.sleep(0.5)
        found["no client any more"] = used()
        server.end()
        return found

    def lists(self):
        """Which processes NVML lists: of a client, a program outside, and the server."""
        server = Server("-multiuser-server")
        one, other = Client(self, SMALL, server), self.outside()
        # Until there are samples of both.
        time.sleep(2)
        names = {one.pid: "client", other.pid: "outside"} | {pid: "server" for pid in server.servers()}
        found = asked_of_nvml()
        for call, (status, entries) in found.items():
            found[call] = {"status": status, "entries": {names.get(pid, pid): value for pid, value in entries.items()}}
        for program in (one, other):
            program.end()
        server.end()
        return found

    def log_names(self):
        """Which process the log of context switches names, while clients come and go."""
        server, found = Server("-multiuser-server"), {}
        clients = self.clients(3, server)
        names = {one.pid: f"client {at}" for at, one in enumerate(clients)} | {pid: "server" for pid in server.servers()}

        def seen():
            self.switches.take()
            time.sleep(0.4)
            records = self.switches.take()
            return {names.get(pid, pid): channels.residency(records, pid) for pid in {record[1] for record in records}}

        def ends(one):
            one.end()
            time.sleep(0.3)

        found["alone"] = seen()
        other = self.outside()
        names[other.pid] = "outside"
        found["beside one outside"] = seen(), self.paces(clients)
        for at in (0, 1):
            ends(clients[at])
            found[f"client {at} has gone"] = seen(), self.paces(clients[at + 1 :])
        late, = self.clients(1, server)
        names[late.pid] = "client that came late"
        found["another came"] = seen(), self.paces([clients[2], late])
        ends(clients[2])
        found["that one alone"] = seen(), self.paces([late])
        ends(late)
        again, = self.clients(1, server)
        names[again.pid] = "client after all had gone"
        found["anew"] = seen(), self.paces([again])
        for one in (again, other):
            one.end()
        server.end()
        return found

    def slices(self):
        """A client's time slice, asked and set through its own file, beside a program outside."""
        server, found = Server("-multiuser-server"), {}
        clients, other = self.clients(2, server), self.outside()
        found["channels"] = [len(one.channels) for one in clients]
        for slice_us in (None, 500, 8000):
            if slice_us:
                found[f"set {slice_us}"] = [one.ask(channels.SET_TIMESLICE, slice_us) for one in clients]
                found[f"asked {slice_us}"] = [one.ask(channels.GET_TIMESLICE, slice_us)[0] for one in clients]
            found[f"paces {slice_us}"] = self.paces(clients), self.full(other)
        for one in (*clients, other):
            one.end()
        server.end()
        return found

    def hold(self):
        """All clients of a server are held in turn with a program outside; then one of them alone."""
        server, found = Server("-multiuser-server"), {}
        clients, other = self.clients(3, server), self.outside()
        theirs, outsides = [list(zip(one.clients, one.channels)) for one in clients], list(zip(other.clients, other.channels))
        found["channels"] = [len(own) for own in theirs]
        if not all(theirs):
            return found
        programs, costs = (*clients, other), []
        before, begun = [one[channels.DONE] for one in programs], time.monotonic()
        while time.monotonic() - begun < 2:
            for are_off in (1, 0):
                start = time.monotonic()
                self.disable_all(outsides, 1 - are_off)
                for own in theirs:
                    self.disable_all(own, are_off)
                costs.append((time.monotonic() - start) * 1e6)
                time.sleep(0.005)
        self.disable_all(outsides, 0)
        elapsed, alone = time.monotonic() - begun, [*[self.small] * len(clients), self.alone[FULL]]
        *paces, last = [round(100 * (one[channels.DONE] - was) / elapsed / rate, 1) for one, was, rate in zip(programs, before, alone)]
        found["turns of 5 ms"] = {"clients": paces, "outside": last, "call_us": channels.ordered(costs)}
        found["all run"] = self.paces(clients), self.full(other)
        self.disable_all(theirs[0], 1)
        time.sleep(0.02)
        found["the first held"] = self.paces(clients), self.full(other)
        self.disable_all(theirs[0], 0)
        for one in programs:
            one.end()
        server.end()
        return found

    def hold_all_but_one(self):
        """Of two, three and four clients alone one is held, and then all but one: how many kernels each ends in a second."""
        found = {}
        for what, kind, fill in (("queue small kernels", SMALL, "2"), ("fill the GPU", ("queue", 100, 64, 0), "8"), ("wait", ("sync", 100, 1, 0), "2"), ("wait and pause", ("sync", 100, 1, 300), "2")):
            for count in (2, 3, 4):
                server = Server("-multiuser-server")
                clients = self.clients(count, server, kind, fill)
                theirs = [list(zip(one.clients, one.channels)) for one in clients]

                def ended():
                    time.sleep(0.02)
                    return [round(rate) for rate in channels.rates(clients, 0.3)]

                seen = {"all run": ended()}
                for at in (0, count - 1):
                    self.disable_all(theirs[at], 1)
                    seen[f"client {at} held"] = ended()
                    self.disable_all(theirs[at], 0)
                for own in theirs[1:]:
                    self.disable_all(own, 1)
                seen["all but client 0 held"] = ended()
                self.disable_all(theirs[0], 0)
                seen["and that let run once more"] = ended()
                other = self.outside()
                seen["and one outside"] = ended()
                other.end()
                for own in theirs[1:]:
                    self.disable_all(own, 0)
                seen["all run again"] = ended()
                found[f"{count} clients that {what}"] = seen
                for one in clients:
                    one.end()
                server.end()
        return found

    def faults(self):
        """One client writes to an illegal address. What is told, and when a new client can begin: the others end, or stay."""
        found = {}
        for stay in (False, True):
            server = Server("-multiuser-server")
            others, one = [Mortal(self, server) for _ in range(2)], Mortal(self, server)

            def others_end():
                for other in others:
                    other.child.kill()
                    other.child.communicate()

            one.end("fault")
            seen = {"said": one.child.communicate()[0].splitlines(), "status of the others": [other.child.poll() for other in others]}
            if not stay:
                others_end()
            begun, seen["newcomers: when, how long, what it says"] = time.monotonic(), []
            for _ in range(4):
                when, (took, said) = round(time.monotonic() - begun, 2), self.newcomer(server)
                seen["newcomers: when, how long, what it says"].append((when, took, said))
                if "cuDevicePrimaryCtxRetain: 0" in said:
                    break
                time.sleep(3)
            servers = server.servers()
            seen["status of the servers"] = [server.say(f"get_server_status {pid}") for pid in servers]
            others_end()
            seen["after the others ended"] = self.newcomer(server)
            seen["by the same server"] = server.servers() == servers
            seen["logs"] = server.logs()
            server.end()
            found["others stay" if stay else "others end"] = seen
        return found

    def ends_of_the_server(self):
        """The control daemon is killed, another one starts in its place, and the server is killed."""
        found, server = {}, Server("-multiuser-server")
        clients, pids = self.clients(2, server), server.servers()
        server.daemon.kill()
        server.daemon.wait()
        time.sleep(0.5)
        found["the daemon is killed"] = {"paces": self.paces(clients), "server there": [there(pid) for pid in pids]}
        found["a newcomer"] = self.newcomer(server)
        server.begin("-multiuser-server")
        time.sleep(1)
        found["a daemon anew"] = {"status": server.daemon.poll(), "servers": server.servers(), "paces": self.paces(clients)}
        for pid in filter(there, pids):
            os.kill(pid, signal.SIGKILL)
        time.sleep(1)
        found["the server is killed"] = {"status of the clients": [one.child.poll() for one in clients], "paces": self.paces(clients)}
        found["ends"] = [one.end() for one in clients]
        server.end()
        return found

    def many(self):
        """How many clients there can be."""
        server, programs, tally = Server("-multiuser-server"), [], {}
        for _ in range(71):
            programs.append(subprocess.Popen([self.folder / "variable", "never", "x", "3"], env=os.environ | server.environment,
                                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
            time.sleep(0.03)
        for program in programs:
            said = " ".join(line for line in program.communicate()[0].splitlines() if "ms" not in line)
            tally[said] = tally.get(said, 0) + 1
        server.end()
        return {f"of {len(programs)}": tally}

    def deaths(self):
        """Clients with work queued end. How often two others died with them, how slow these were, and how long it took."""
        return self.all_die(DEATHS, ENDS, 20, ROUNDS)

    def deaths_in_long_kernels(self):
        """The same for one at a time, whose kernels take half a second."""
        return self.all_die(LONG, 1, 500, 3)

    def many_deaths(self):
        """36 are killed at the same moment, and taken off the GPU in each of WAYS. For how long two others had no progress before and after, when
        the longest such time ended, and whether they live when UVM's files are closed 6 s later. Then 36 without work, of which nothing is
        kept."""
        found = {}
        for way in [*WAYS, "without work"] * 2:
            server, is_idle = Server("-multiuser-server"), way == "without work"
            others = self.clients(2, server, ("sync", 20, 1, 0))
            # All are on the GPU at the same time, eight for each processor, so that the first has work when the last has come.
            mortals = [Mortal(self, server, ms=0 if is_idle else 40) for _ in range(36)]
            kept = [Kept(one.pid, () if is_idle else KEPT["all"]) for one in mortals]
            looks, took, over = [], [], threading.Event()

            def look():
                last = [(one[channels.DONE], time.monotonic()) for one in others]
                while not over.wait(0.005):
                    for at, one in enumerate(others):
                        (done, since), now = last[at], time.monotonic()
                        if one[channels.DONE] != done:
                            looks.append((now - since, now))
                            last[at] = one[channels.DONE], now
                looks.extend((time.monotonic() - since, time.monotonic()) for _, since in last)

            looking = threading.Thread(target=look)
            looking.start()
            time.sleep(0.5)
            killed = time.monotonic()
            for one in mortals:
                one.end("kill")
            ended = sum(one.wait(20) for one in kept)
            disabled = [] if is_idle else self.take_off(way, mortals, kept, took)
            closed = time.monotonic()
            time.sleep(6)
            over.set()
            looking.join()
            for one in kept:
                one.close()
            time.sleep(0.5)
            before, after = max(one for one in looks if one[1] < killed), max(one for one in looks if one[1] >= killed)
            found.setdefault(way, []).append({
                "ended": ended, "disabled": sorted(set(disabled)), "closing_ms": channels.ordered(took), "closed after s": round(closed - killed, 2),
                "longest without progress s": {"before": round(before[0], 3), "after": round(after[0], 3), "which was over after": round(after[1] - killed, 2)},
                "those of 0.1 s": sorted(round(at - killed, 2) for took, at in looks if took > 0.1),
                "live": [one.child.poll() is None for one in others], "go on": [rate > 0 for rate in channels.rates(others, 0.2)],
            })
            print(way, json.dumps(found[way][-1]), flush=True)
            for one in mortals:
                one.gone()
            self.end_all(server, others)
        return found

    def take_off(self, way, mortals, kept, took):
        """By disabling and closing nvidiactl's files, of all or of each in turn. The driver's answers to the first."""
        (together, pause), answers = WAYS[way], []
        if together:
            left = [channel for one in mortals for channel in one.left()]
            # One call takes 64.
            answers += [hex(self.disable_all(left[at : at + 64], 1)[0]) for at in range(0, len(left), 64)]
        time.sleep(pause)
        for one, its in zip(mortals, kept):
            if not together:
                answers.append(hex(self.disable_all(one.left(), 1)[0]))
            took.append(its.close_control())
        return answers

    def all_die(self, deaths, ends, ms, rounds):
        found, server, others, alone = {}, None, [], 0
        for how, memory, keep in deaths:
            told, paces, died = nothing_told(), [], 0
            # Without any file kept, one round has been enough each time.
            for _ in range(1 if keep == "none" else rounds):
                if not others:
                    server = Server("-multiuser-server")
                    others = self.clients(2, server)
                    alone = min(self.paces(others, 0.3))
                mortals = [Mortal(self, server, memory, ms) for _ in range(ends)]
                seen = self.round_of_deaths(mortals, others, (how, keep), told)
                paces.append((alone, *seen))
                if seen[-1] == 0 or any(one.child.poll() is not None for one in others):
                    died += 1
                    self.end_all(server, others)
                    others = []
            name = f"{how}, {memory}, {keep}"
            found[name] = {"deaths": len(told["files"]), "rounds": len(paces), "rounds in which others died": died}
            found[name] |= {key: sorted(set(told[key])) for key in ("files", "disabled")}
            found[name] |= {key: channels.ordered(told[key]) for key in ("ending_ms", "gone_ms", "closing_ms")}
            found[name]["paces alone, before, the least of 50 ms, after"] = paces
            print(name, json.dumps(found[name]), flush=True)
        if others:
            self.end_all(server, others)
        return found

    def round_of_deaths(self, mortals, others, kind, told):
        """Some end, 0.1 s after each other. The least pace of the others before, in each 50 ms after the last one's end, and after."""
        how, keep = kind
        before, meanwhile, dying = min(self.paces(others, 0.2)), [], []
        for one in mortals:
            dying.append(threading.Thread(target=one.die, args=(how, keep, told), daemon=True))
            dying[-1].start()
            time.sleep(0.1)
        while any(one.is_alive() for one in dying):
            meanwhile.append(min(self.paces(others, 0.05)))
        time.sleep(0.2)
        return before, min(meanwhile, default=None), min(self.paces(others, 0.2))

    def end_all(self, server, clients):
        for one in clients:
            one.child.kill()
            one.child.communicate()
            one.socket.close()
        server.end()

    def deaths_outside(self):
        """The same without a server: how long an end takes."""
        told = nothing_told()
        for one in [Mortal(self, None) for _ in range(ENDS)]:
            one.die("kill", "none", told)
        return channels.ordered(told["ending_ms"])


def nothing_told():
    """What Mortal.die fills."""
    return {name: [] for name in ("ending_ms", "gone_ms", "closing_ms", "files", "disabled")}


EXPERIMENTS = (
    "identity", "variable", "memory", "lists", "log_names", "slices", "hold", "hold_all_but_one", "faults", "ends_of_the_server", "many", "deaths",
    "deaths_in_long_kernels", "many_deaths", "deaths_outside",
)


def main():
    given, folder = options(), pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    lab = Lab(folder)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "gpu-packs-facts.json"
    kept = json.loads(file.read_text())["experiments"] if file.exists() else {}
    result = {"machine": machine(), "experiments": kept}
    for name in EXPERIMENTS:
        if given.only and name not in given.only:
            continue
        begun = time.monotonic()
        try:
            kept[name] = getattr(lab, name)()
        except Exception as error:
            # The other experiments do not need it.
            kept[name] = {"failed": repr(error)}
        print(name, round(time.monotonic() - begun, 1), json.dumps(kept[name]), flush=True)
        # After each, so that nothing is lost.
        file.write_text(json.dumps(result, indent=1) + "\n")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
