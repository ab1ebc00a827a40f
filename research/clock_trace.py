#!/usr/bin/env python3
"""The GPU's clock beside the machine's, and the ends of a stay, from a trace of an H100. Needs no GPU.

    python3 research/clock_trace.py

results/gpu-clock-trace.json.gz was recorded beside the load of bench/gpu/usage.py, by a monitor of commit ce5ac50 that also wrote
down its looks and its calls, and by a second reader of the GPU's log. All times are nanoseconds after `began_ns`: of records and
kernels by the GPU's clock, of looks and calls by the time of day. `runs` has what usage.py said in four runs: own and charged seconds.
"""
import bisect
import gzip
import itertools
import json
import pathlib

TRACE = pathlib.Path(__file__).resolve().parent / "results/gpu-clock-trace.json.gz"
ARRIVAL, DEPARTURE = 6, 7
# Of the monitor: what is not work in a stay (switch_log.rs); how the difference of the clocks is followed (rm/src/clock.rs).
CHANGING, DRIFT, LATE = 60_000, 10_000, 1_000_000
# How late a record is taken to be found.
DELIVERY = 30_000


def times(deltas):
    return list(itertools.accumulate(deltas))


def at(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]


def behind(records, calls):
    """The time of the middle call, and how far behind the clock is then: by that much most calls that hold are next to a departure."""
    departures = [ns for tag, _, ns in records if tag == DEPARTURE]

    def differences(shift):
        middles = [end - took / 2 for end, took in calls]
        places = [bisect.bisect(departures, middle - shift - 60_000) for middle in middles]
        pairs = [(middle, departures[place]) for middle, place in zip(middles, places) if place < len(departures)]
        return [middle - ns for middle, ns in pairs if ns <= middle - shift + 60_000]
    return calls[len(calls) // 2][0], at(max(map(differences, range(0, 10_000_000, 25_000)), key=len), 0.5)


def stays(records):
    """Of each process: arrival and departure."""
    found, there = {}, None
    for tag, process, ns in records:
        if tag == ARRIVAL:
            there = process, ns
        elif there and there[0] == process:
            found.setdefault(process, []).append((there[1], ns))
            there = None
    return found


def replay(records, looks, gpu, follows):
    """Seconds of each process as the monitor counts them, and by how much it takes each look's time of the GPU to be too late."""
    difference, read, there, seconds, errors, new = None, None, {}, {}, [], iter(records)
    record = next(new)
    for number, now in enumerate(looks):
        found, begin = [], now - DELIVERY
        while record and record[2] <= gpu(begin):
            found.append(record)
            record = next(new, None)
        if follows and found:
            newest = min(now - ns for *_, ns in found)
            oldest = max((read - ns for tag, _, ns in found if read and tag == ARRIVAL), default=None)
            drifted = None if difference is None else difference + (begin - read) / DRIFT
            if drifted is not None and oldest is not None and oldest > drifted + LATE:
                drifted = None
            difference = min(it for it in (drifted, newest) if it is not None)
        elif follows and difference is not None:
            difference += (begin - read) / DRIFT
        read = begin
        shift = difference or 0
        counted = {}
        for tag, process, ns in found:
            if tag == ARRIVAL:
                there = {process: ns + shift + CHANGING}
            elif process in there:
                counted[process] = counted.get(process, 0) + max(0, ns + shift - there.pop(process))
        for process, since in there.items():
            if now > since:
                counted[process] = counted.get(process, 0) + now - since
                there[process] = now
        # The first looks also read what was before them.
        if number > 2:
            errors.append(gpu(now) + shift - now)
            for process, ns in counted.items():
                seconds[process] = seconds.get(process, 0) + ns / 1e9
    return seconds, errors


def main():
    trace = json.loads(gzip.decompress(TRACE.read_bytes()))
    logged, processes = trace["records"], trace["processes"]
    records = list(zip(logged["tag"], logged["process"], times(logged["ns"])))
    looks, held = times(trace["looks"]["ns"]), trace["calls"]["off"]
    quarter = len(held) // 4
    (then, first), (later, last) = behind(records, held[:quarter]), behind(records, held[-quarter:])
    pace = (last - first) / (later - then)
    print(f"the GPU's clock is {first / 1e6:.2f} ms behind, and {last / 1e6:.2f} ms {(later - then) / 1e9:.1f} s later: {pace * 1e6:.0f} us in each second; 0 at this pace {first / pace / 1e9:.0f} s before")
    by_process = stays(records)
    ends, starts = ([ns for tag, _, ns in records if tag == which] for which in (DEPARTURE, ARRIVAL))
    gaps = [starts[place] - ns for ns in ends if (place := bisect.bisect(starts, ns)) < len(starts)]
    print(f"from a departure to the next arrival: {at(gaps, 0.02) / 1e3:.0f} to {at(gaps, 0.9) / 1e3:.0f} us (p2 to p90)")
    for name, kernels in trace["kernels"].items():
        begins = times(kernels["begin"])
        of = list(zip(begins, (begin + lasted for begin, lasted in zip(begins, kernels["lasted"]))))
        whole = [stay for stay in by_process[processes[name]] if of[20][0] <= stay[0] and stay[1] <= of[-5][1]]
        if name == "half":
            work = sum(whole[0][0] <= begin and end <= whole[-1][1] for begin, end in of) * kernels["us"] * 1e3
            excess = (sum(end - begin for begin, end in whole) - work) / len(whole)
            print(f"{name}: {len(whole)} stays, nearly all interrupted; each {excess / 1e3:.0f} us longer than its work")
            continue
        inside = lambda stay: [one for one in of if stay[0] <= one[0] and one[1] <= stay[1]]
        edges = [(found[0][0] - stay[0], stay[1] - found[-1][1]) for stay in whole if (found := inside(stay))]
        before, after = zip(*edges)
        print(f"{name}: {len(whole)} stays; {at(before, 0.5) / 1e3:.1f} us before the first kernel, {at(after, 0.5) / 1e3:.0f} us after the last (medians)")
    for name, calls in trace["calls"].items():
        print(f"{len(calls)} calls {name}: {at([took for _, took in calls], 0.5) / 1e6:.2f} ms (median), {at([took for _, took in calls], 0.98) / 1e6:.2f} (p98)")
    gpu = lambda now: now - first - pace * (now - then)
    now, errors = replay(records, looks, gpu, True)
    window = gpu(looks[2]), gpu(looks[-1])
    print(f"the GPU's time is known to {at(errors, 0.5) / 1e6:.2f} ms (median), {at(errors, 0.99) / 1e6:.2f} (p99)")
    for name, process in processes.items():
        log = sum(max(0, min(end, window[1]) - max(begin + CHANGING, window[0])) for begin, end in by_process[process]) / 1e9
        print(f"{name}, seconds on the GPU: {log:.2f} by the log, {sum(trace['looks'][name][3:]) / 1e9:.2f} as the monitor counted, {now[process]:.2f} in a replay of clock.rs")
    for run in trace["runs"]:
        points = {name: [round(100 * seconds / run["seconds"], 1) for seconds in run[name]] for name in processes}
        print(f"a run of {run['seconds']:.0f} s, own and charged points: {points}")


if __name__ == "__main__":
    main()
