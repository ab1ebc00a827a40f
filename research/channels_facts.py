#!/usr/bin/env python3
"""On a machine with a GPU: the GPU's own scheduler, seen and steered from outside a program.

    python3 research/channels_facts.py --out FOLDER [--only NAME...]

As root, with nvcc, a C compiler and setpriv. Each experiment goes to FOLDER/gpu-channels-facts.json, which belongs to
research/results; what it means is in research/gpu-time.md. No other program may use the GPU meanwhile. Shares are parts of what the same
kernels get done alone. Where three figures stand together, they are the least, the median and the most.
"""
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

from facts import HERE, machine, options

SOURCES = HERE / "channels_facts"
# Of preload.c; of work.cu's `struct seen`.
LIST, SET_TIMESLICE, SCHEDULE, DISABLE, GET_TIMESLICE, GET_ANOTHERS, SET_ANOTHERS = range(7)
DONE, LAUNCHED, READY, STOP = range(4)
# NV_EVENT_BUFFER_FECS_CTXSWTAG_*: a context comes to the GPU, and goes.
SIMPLE_START, SIMPLE_END = 6, 7
RECORDS = 32768
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups".split()
# Programs: kind, us of a kernel, how many are launched ahead, us of a pause after each.
SHORT, MIDDLE, LONG = ("queue", 20, 64, 0), ("queue", 1000, 8, 0), ("queue", 100000, 2, 0)
WAITS_SHORT, WAITS, WAITS_LONG = ("sync", 20, 1, 0), ("sync", 1000, 1, 0), ("sync", 100000, 1, 0)
PAUSES, PAUSES_LONGER = ("sync", 1000, 1, 3000), ("sync", 2000, 1, 5000)
# Never as far ahead as it may be, so that nothing but the driver can hold its launches.
LAUNCHES_ON = ("queue", 20, 900, 200)


def ordered(values):
    values = sorted(values)
    return [round(values[at], 1) for at in (0, len(values) // 2, -1)] if values else None


def rates(programs, seconds):
    """Kernels a second of each."""
    before, begun = [program[DONE] for program in programs], time.monotonic()
    time.sleep(seconds)
    return [(program[DONE] - was) / (time.monotonic() - begun) for program, was in zip(programs, before)]


class Program:
    """One that runs work.cu, with preload.c in it."""

    def __init__(self, lab, kind, prefix=()):
        file = lab.folder / f"seen{next(lab.numbers)}"
        file.write_bytes(bytes(4096))
        file.chmod(0o666)
        command = [*prefix, lab.folder / "work", *map(str, kind[:3]), file, str(kind[3])]
        environment = os.environ | {"LD_PRELOAD": str(lab.folder / "preload.so"), "CHANNELS_SOCKET": lab.address}
        self.child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with open(file, "r+b") as opened:
            self.seen = mmap.mmap(opened.fileno(), 4096)
        self.socket, _ = lab.listener.accept()
        self.socket.settimeout(20)
        self.pid, = struct.unpack("I", self.socket.recv(4))
        give_up = time.monotonic() + 20
        while not self[READY] and time.monotonic() < give_up:
            time.sleep(0.01)
        time.sleep(0.3)
        self.ask(LIST)

    def __getitem__(self, word):
        return struct.unpack_from("Q", self.seen, 8 * word)[0]

    def ask(self, what, value=0, of=None):
        """The process does it itself, in preload.c's thread, to its own group or another program's: status and us."""
        self.socket.send(struct.pack("IIIIQ", what, *(of.group if of else (0, 0)), 0, value))
        status, count, us, *handles = struct.unpack("IId130I", self.socket.recv(536))
        self.group, handles = tuple(handles[:2]), handles[2:]
        self.clients, self.channels = handles[:count], handles[64 : 64 + count]
        return status, us

    def end(self):
        """What it says of its results."""
        struct.pack_into("Q", self.seen, 8 * STOP, 1)
        try:
            said = self.child.communicate(timeout=20)[0].strip()
        except subprocess.TimeoutExpired:
            self.child.kill()
            said = "killed: " + self.child.communicate()[0].strip()
        self.socket.close()
        return json.loads(said) if said.startswith("{") else said[-300:]


class Switches:
    """Reads the GPU's context switches, every 5 ms."""

    def __init__(self, library):
        self.library, self.records, self.reads, self.dropped, self.newest = library, [], [], 0, []
        failed = library.switches_open(RECORDS)
        if failed:
            sys.exit(f"switches.c: step {failed} failed")
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        into, flush_us, dropped = ctypes.create_string_buffer(24 * RECORDS), ctypes.c_double(), ctypes.c_uint64()
        while True:
            count = self.library.switches_read(into, RECORDS, ctypes.byref(flush_us), ctypes.byref(dropped))
            self.reads.append((count, flush_us.value))
            if count > 0:
                self.records.append(into.raw[: 24 * count])
                newest, = struct.unpack_from("Q", into.raw, 24 * count - 8)
                self.newest.append((time.monotonic(), newest - time.time_ns()))
            self.dropped = dropped.value
            time.sleep(0.005)

    def take(self):
        """Each since the last time: tag, process, context, nanoseconds. The reader is 5 ms behind."""
        time.sleep(0.06)
        records, self.records = self.records, []
        fields = struct.iter_unpack("<BBHIIHBBQ", b"".join(records))
        return [(tag, process, context, ns) for tag, _vm, _number, context, process, _, _, _, ns in fields]


def residency(records, process):
    """The part of the time in which a process was on the GPU, and how often it came there in a second."""
    resident, came, began = 0, 0, {}
    for tag, of, context, ns in records:
        if of == process and tag == SIMPLE_START:
            began[context] = ns
            came += 1
        elif of == process and tag == SIMPLE_END and context in began:
            resident += ns - began.pop(context)
    span = records[-1][3] - records[0][3] if len(records) > 1 else 0
    return {"resident": round(resident / span, 4), "switches_a_second": round(came / span * 1e9, 1)} if span else None


class Lab:
    """What the experiments need, and the experiments."""

    def __init__(self, folder):
        self.folder, self.numbers, self.alone = folder, iter(range(10**6)), {}
        # For programs of another user.
        folder.chmod(0o755)
        for name in ("preload", "switches"):
            subprocess.run(["cc", "-O2", "-fPIC", "-shared", SOURCES / f"{name}.c", "-o", folder / f"{name}.so", "-ldl", "-lpthread"], check=True)
        subprocess.run(["nvcc", "-O2", "-arch=native", SOURCES / "work.cu", "-o", folder / "work"], check=True)
        self.address = str(folder / "socket")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.address)
        self.listener.listen(16)
        self.listener.settimeout(20)
        os.chmod(self.address, 0o777)
        self.library = ctypes.CDLL(str(folder / "switches.so"))
        self.library.channels_disable.restype = ctypes.c_uint32
        self.switches = Switches(self.library)
        for kind in (SHORT, MIDDLE, LONG, WAITS_SHORT, WAITS, WAITS_LONG):
            program = Program(self, kind)
            self.alone[kind], = rates([program], 1.2)
            program.end()

    def disable(self, program, disable, only=0):
        """Root does it from outside: status and us."""
        return self.disable_all(list(zip(program.clients, program.channels)), disable, only)

    def disable_all(self, channels, disable, only=0):
        """The same for any channels, up to 64, each with its client."""
        count, us = len(channels), ctypes.c_double()
        handles = ctypes.c_uint32 * count
        clients, channels = zip(*channels)
        status = self.library.channels_disable(count, handles(*clients), handles(*channels), disable, only, ctypes.byref(us))
        return status, us.value

    def mix(self, kinds, slices=(), seconds=1.2):
        """Programs at the same time: what part of the GPU's time their kernels take, and how long they are on the GPU."""
        programs = [Program(self, kind) for kind in kinds]
        costs = [program.ask(SET_TIMESLICE, us) for program, us in zip(programs, slices)]
        self.switches.take()
        got = rates(programs, seconds)
        records, each = self.switches.take(), []
        for kind, program, rate in zip(kinds, programs, got):
            # A kernel that is waited for takes as long as one in a queue.
            queued = [alone for of, alone in self.alone.items() if of[:2] == ("queue", kind[1])]
            share = rate / queued[0] if queued else rate * kind[1] / 1e6
            each.append({"program": kind, "work": round(share, 4), "on_gpu": residency(records, program.pid)})
        return {"slices_set": costs, "each": each, "sum_of_work": round(sum(one["work"] for one in each), 4), "records": len(records), "dropped": self.switches.dropped, "ends": [program.end() for program in programs]}

    def slices(self):
        return {":".join(map(str, slices)): self.mix([MIDDLE] * len(slices), slices) for slices in ((2000, 8000), (2048,) * 4, (5000,) * 4, (16000, 1, 1, 1))}

    def residency(self):
        mixes = {"four kinds": [SHORT, MIDDLE, WAITS, WAITS_SHORT], "long and short": [LONG, PAUSES], "two that pause": [PAUSES, PAUSES_LONGER], "one alone": [MIDDLE], "one alone that pauses": [PAUSES]}
        return {name: self.mix(kinds, seconds=3) for name, kinds in mixes.items()}

    def setting_slices(self):
        """Four with 5000 us, where a slice is set 80 times a second, and then asked for; in `slices` they are left alone."""
        programs, costs, asked = [Program(self, MIDDLE) for _ in range(4)], [], []
        before, begun = sum(program[DONE] for program in programs), time.monotonic()
        while time.monotonic() - begun < 1:
            program, slice_us = programs[len(costs) % 4], 5000 + len(costs) % 7 * 100
            costs.append(program.ask(SET_TIMESLICE, slice_us)[1])
            asked.append(program.ask(GET_TIMESLICE, slice_us))
            time.sleep(0.0125)
        done = sum(program[DONE] for program in programs) - before
        return {"sum_of_work": round(done / (time.monotonic() - begun) / self.alone[MIDDLE], 4), "set_us": ordered(costs), "get_us": ordered(us for _, us in asked), "wrong_answers": sum(status != 0 for status, _ in asked), "ends": [program.end() for program in programs]}

    def anothers_slice(self):
        """Asking for and setting the slice of another program's group, by a file of one's own; and of one's own group."""
        one, other = programs = [Program(self, MIDDLE, prefix) for prefix in ((), NOBODY)]
        found = {}
        for name, asks in (("of root's program by another user's", other), ("of another user's program by root's", one)):
            of = one if asks is other else other
            found[name] = {"asked": asks.ask(GET_ANOTHERS, of=of)[0], "set": asks.ask(SET_ANOTHERS, 5000, of=of)[0], "own_asked": asks.ask(GET_ANOTHERS, of=asks)[0]}
        return found | {"ends": [program.end() for program in programs]}

    def switched(self, kinds, switch, prefix=()):
        """Off 12 times for 30 ms each; then off for 37.5 of each 50 ms. `switch(program, on)` gives status and us."""
        found = {}
        for kind in kinds:
            program, calls, done, launched = Program(self, kind, prefix), [], [], []
            for _ in range(12):
                off = switch(program, 0)
                # By then the program has seen what had ended before.
                time.sleep(0.002)
                before = program[DONE], program[LAUNCHED]
                time.sleep(0.03)
                done.append(program[DONE] - before[0])
                launched.append(program[LAUNCHED] - before[1])
                calls.append((off, switch(program, 1)))
                time.sleep(0.02)
            begun, before = time.monotonic(), program[DONE]
            while time.monotonic() - begun < 2:
                switch(program, 0)
                time.sleep(0.0375)
                switch(program, 1)
                time.sleep(0.0125)
            duty, alone = (program[DONE] - before) / (time.monotonic() - begun), self.alone.get(kind)
            found[" ".join(map(str, kind))] = {"statuses": sorted({status for pair in calls for status, _ in pair}), "off_us": ordered([off[1] for off, _ in calls]), "on_us": ordered([on[1] for _, on in calls]), "done_while_off": ordered(done), "launched_while_off": ordered(launched),
                "pace_on_a_quarter": alone and round(duty / alone, 4), "pace_after": alone and round(rates([program], 0.5)[0] / alone, 4), "end": program.end()}
        return found

    def schedule_off(self):
        """NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, with enable off."""
        return self.switched([SHORT, MIDDLE, LONG], lambda program, on: program.ask(SCHEDULE, on))

    def disabled_by_itself(self):
        return self.switched([MIDDLE], lambda program, on: program.ask(DISABLE, not on))

    def disabled_by_root(self):
        """The process is another user's."""
        return self.switched([SHORT, MIDDLE, LONG, WAITS_SHORT, WAITS, WAITS_LONG, LAUNCHES_ON], lambda program, on: self.disable(program, not on), NOBODY)

    def alternating(self):
        """Root lets one of two run at a time; then one stays off, is killed, and the other is off for 3 s."""
        one, other = programs = [Program(self, MIDDLE) for _ in range(2)]
        found, pace = {}, lambda seconds: round(rates([one], seconds)[0] / self.alone[MIDDLE], 4)
        for turn in (0.0125, 0.005):
            self.switches.take()
            before, begun = [program[DONE] for program in programs], time.monotonic()
            while time.monotonic() - begun < 1:
                for on, off in ((one, other), (other, one)):
                    self.disable(off, 1)
                    self.disable(on, 0)
                    time.sleep(turn)
            elapsed = time.monotonic() - begun
            done = [program[DONE] - was for program, was in zip(programs, before)]
            records = self.switches.take()
            self.disable(one, 0)
            found[f"turns of {turn * 1e3} ms"] = {"work": [round(count / elapsed / self.alone[MIDDLE], 4) for count in done], "on_gpu": [residency(records, program.pid) for program in programs]}
        self.disable(other, 1)
        self.switches.take()
        found["one off for 0.5 s"] = {"pace_of_the_other": pace(0.5), "records": len(self.switches.take())}
        begun = time.monotonic()
        other.child.kill()
        other.child.wait()
        found["killed while off"] = {"seconds": round(time.monotonic() - begun, 4), "pace_of_the_other": pace(0.3)}
        other.socket.close()
        self.disable(one, 1)
        time.sleep(3)
        self.disable(one, 0)
        return found | {"off for 3 s": {"pace_after": pace(0.3), "end": one.end()}}

    def refused_call(self):
        """A call with a channel that is not there, then one for each channel that is, and one that lets them run: the pace after it."""
        found = {}
        for name in ("without", "first", "last"):
            program = Program(self, MIDDLE)
            own = list(zip(program.clients, program.channels))
            missing = [(own[0][0], 0x5CFFFFFF)]
            calls = {"without": [], "first": [missing + own], "last": [own + missing]}[name]
            statuses = [self.disable_all(call, 1)[0] for call in calls]
            statuses += [self.disable_all([one], 1)[0] for one in own]
            paces = []
            for _ in range(2):
                statuses.append(self.disable_all(own, 0)[0])
                time.sleep(0.05)
                paces.append(round(rates([program], 0.4)[0] / self.alone[MIDDLE], 4))
            found[name] = {"channels": len(own), "statuses": [hex(status) for status in statuses], "paces_after_one_call_and_two": paces, "end": program.end()}
        return found

    def enabled_more_often(self):
        """So many calls that let channels run that none had disabled; then the pace after each call that disables them, and after each that lets them run."""
        found = {}
        for more in (0, 1, 4):
            program = Program(self, MIDDLE)
            own = list(zip(program.clients, program.channels))

            def after(is_off):
                status, _ = self.disable_all(own, is_off)
                time.sleep(0.05)
                return hex(status), round(rates([program], 0.3)[0] / self.alone[MIDDLE], 3)

            found[str(more)] = {"more": [after(0) for _ in range(more)], "off": [after(1) for _ in range(more + 2)], "on": [after(0) for _ in range(more + 3)], "end": program.end()}
        return found

    def clock(self):
        """The GPU's clock less the time of day, in the first second and in the last: the largest difference of that second's reads, each by its newest record."""
        programs = [Program(self, MIDDLE), Program(self, WAITS)]
        self.switches.newest = []
        time.sleep(20)
        newest = self.switches.newest
        begun, ended = newest[0][0], newest[-1][0]
        first, last = (max(less for at, less in newest if from_ <= at <= from_ + 1) for from_ in (begun, ended - 1))
        return {"less_us": [round(first / 1e3, 1), round(last / 1e3, 1)], "us_in_a_second": round((last - first) / 1e3 / (ended - begun - 1), 2), "ends": [program.end() for program in programs]}

    def reads(self):
        """What it took to read the switches, in all that came before. -1 records: the call failed."""
        by = {name: ordered([us for count, us in self.switches.reads if (count > 0) == new]) for name, new in (("with_records_us", True), ("without_us", False))}
        return by | {"reads": len(self.switches.reads), "records_of_a_read": ordered([count for count, _ in self.switches.reads if count])}


def main():
    given, folder = options(), pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    lab = Lab(folder)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "gpu-channels-facts.json"
    kept = json.loads(file.read_text())["experiments"] if file.exists() else {}
    result = {"machine": machine(), "alone_a_second": {" ".join(map(str, kind)): round(rate, 1) for kind, rate in lab.alone.items()}, "experiments": kept}
    for name in ("slices", "residency", "setting_slices", "anothers_slice", "schedule_off", "disabled_by_itself", "disabled_by_root", "alternating", "refused_call", "enabled_more_often", "clock", "reads"):
        if given.only and name not in given.only:
            continue
        try:
            kept[name] = getattr(lab, name)()
        except (OSError, ValueError, struct.error) as error:
            kept[name] = {"failed": repr(error)}
        print(name, json.dumps(kept[name]), flush=True)
        # After each, so that nothing is lost.
        file.write_text(json.dumps(result, indent=1) + "\n")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
