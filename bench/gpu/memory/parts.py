"""The measurements: each is a function of the stand and returns what belongs into the result."""
import json
import statistics
import subprocess
import sys
import time
import pathlib

from stand import MIB, Job

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 4096
STEP = 8 * MIB
MOST = 6144
DRIVER_WAYS = [
    "cuMemAlloc", "cuMemAllocPitch", "cuMemCreate", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuArrayCreate",
    "cuArray3DCreate", "cuMipmappedArrayCreate", "graph memory nodes", "graph memory node, one a graph", "captured cuMemAllocAsync",
    "cuCtxCreate", "cuCtxSetLimit(STACK_SIZE)",
]
RUNTIME_WAYS = ["cudaMalloc", "cudaMallocPitch", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaMalloc3DArray", "cudaMallocMipmappedArray"]


def mib(number):
    return round(number / MIB, 2)


def watched(stand, talk, seconds=30):
    """Follows a program through its phases; with each, what NVML shows of it then, and the most so far."""
    stand.seen("r")
    found = {"phases": []}
    try:
        for said in talk.phases(seconds=seconds):
            seen = stand.seen()
            now, most = seen["pids"].get(talk.pid, [0, 0])
            said.update(nvml_mib=mib(now), nvml_most_mib=mib(most), together_most_mib=mib(seen["most_together"]))
            found["phases"].append(said)
    except TimeoutError as error:
        found["trouble"] = str(error)
        talk.kill()
    seen = stand.seen()
    found["nvml_most_mib"] = mib(max([figures[1] for figures in seen["pids"].values()], default=0))
    found["together_most_mib"], found["looks"], found["longest_gap_ms"] = mib(seen["most_together"]), seen["looks"], seen["longest_gap_ms"]
    found["status"], found["stderr"] = talk.end()
    return found


def filled(found, limit=LIMIT):
    """What a program got of what it could have, from its phases."""
    phases = {said.get("phase"): said for said in found["phases"]}
    context, full, again = phases.get("context"), phases.get("full 1"), phases.get("full 2")
    if full is None or context is None:
        return found
    room = limit - context["nvml_mib"]
    return {
        "context_mib": context["nvml_mib"],
        "got_mib": full["got"] / MIB,
        "again_mib": again["got"] / MIB if again else None,
        "code": full["code"],
        "kernel_then": full["kernel"],
        "room_mib": room,
        "got_of_room": round(full["got"] / MIB / room, 4),
        "taken_of_room": round((full["nvml_mib"] - context["nvml_mib"]) / room, 4),
        "nvml_full_mib": full["nvml_mib"],
        "nvml_most_mib": found["nvml_most_mib"],
        "nvml_empty_mib": phases.get("empty 1", {}).get("nvml_mib"),
        "free_then_mib": mib(full["free"]),
        "total_mib": mib(full["total"]),
        "seconds": full["seconds"],
        "looks": found["looks"],
        "longest_gap_ms": found["longest_gap_ms"],
        **{key: found[key] for key in ("trouble", "stderr") if found.get(key)},
        **({"status": found["status"]} if found["status"] else {}),
    }


def paths(stand, quick):
    """What each way of taking memory gets below 4 GiB, in steps of 8 MiB, and without the library."""
    commands = {name: [stand.work / "fill", name] for name in DRIVER_WAYS}
    for runtime in ("static", "shared"):
        commands |= {f"{name}, {runtime}": [stand.work / f"runtime_{runtime}", name] for name in RUNTIME_WAYS}
    result = {}
    for name, command in commands.items():
        words = [*map(str, command), str(STEP), str(MOST * MIB)]
        result[name] = filled(watched(stand, stand.talk(words)))
        control = filled(watched(stand, stand.talk(words, "without")))
        result[name]["without_mib"] = control.get("got_mib", control)
    return result


def in_job(stand, quick):
    """The same for some ways in a control group like a job's, with a conf, a ledger and a log."""
    result = {}
    with Job(stand) as job:
        for name in ("cuMemAlloc", "cuMemCreate", "cuMemAllocAsync", "graph memory nodes", "cudaMalloc, static", "cudaMalloc, shared"):
            program = f"runtime_{name.split()[-1]}" if name.startswith("cuda") else "fill"
            words = [str(stand.work / program), name.split(",")[0], str(STEP), str(MOST * MIB)]
            result[name] = filled(watched(stand, job.talk(words)))
        smi = job.talk(["sh", "-c", f"{stand.work}/fill cuMemAlloc {STEP} {2048 * MIB}"])
        for said in smi.phases():
            if said.get("phase") == "full 1":
                inside = job.talk(["nvidia-smi"])
                lines = []
                while (line := inside.line(20)) is not None:
                    lines.append(line)
                result["nvidia-smi"] = {"lines": [line for line in lines if "MiB" in line], "status": inside.end()[0]}
        smi.end()
        result["log"] = job.said()
    return result


def near(stand, quick):
    """Kernels with large frames, the device's heap, a module with a large variable."""
    command = lambda name: [str(stand.work / "near"), name, str(LIMIT * MIB)]
    result = {name: watched(stand, stand.talk(command(name))) for name in ("frame", "heap", "module")}
    result["nodes, without"] = watched(stand, stand.talk(command("nodes"), "without"))
    return result


def race(stand, quick):
    """Who gets the last GiB of a shared ledger."""
    result = {}
    for processes, threads in [(16, 1), (8, 8)] if quick else [(64, 1), (8, 8)]:
        limit = processes * 520 + 15360
        stand.seen("r")
        talk = stand.talk([str(stand.work / "race"), str(processes), str(threads), str(2 * MIB), str(1024 * MIB), str(limit * MIB), "3"], limit_mib=limit, ledger=stand.ledger())
        found = {"limit_mib": limit, "rounds": []}
        try:
            for said in talk.phases(seconds=70):
                seen = stand.seen()
                if said.get("phase") == "contexts":
                    said["answer"] = seen["together"]
                    found["contexts_mib"], found["ready"], found["seconds"] = mib(seen["together"]), said["ready"], said["seconds"]
                elif "phase" in said:
                    said["nvml_together_mib"] = mib(seen["together"])
                    said["short_of_limit_mib"] = round(limit - mib(seen["together"]), 2)
                    found["rounds"].append(said)
                else:
                    found.setdefault("errors", []).append(said)
        except TimeoutError as error:
            found["trouble"] = str(error)
            talk.kill()
        seen = stand.seen()
        found["together_most_mib"], found["looks"], found["longest_gap_ms"] = mib(seen["most_together"]), seen["looks"], seen["longest_gap_ms"]
        found["over"] = seen["most_together"] > limit * MIB
        found["status"], found["stderr"] = talk.end()
        result[f"{processes} processes, {threads} threads each"] = found
        time.sleep(1)
    return result


def killed(stand, quick):
    """How long a killed process's memory is gone."""
    result = {}
    for name, hold, threads, limit in [("2 GiB", 2048, 0, 4096), ("2 GiB, 8 threads that allocate", 2048, 8, 4096)] + ([] if quick else [("60 GiB", 61440, 0, 65536)]):
        rounds = "2" if quick else "8"
        talk = stand.talk([str(stand.work / "killed"), str(hold * MIB), str(threads), rounds], limit_mib=limit, ledger=stand.ledger())
        result[name] = {"limit_mib": limit, **watched(stand, talk)}
    return result


def reset(stand, quick):
    """cudaDeviceReset."""
    return {runtime: watched(stand, stand.talk([str(stand.work / f"runtime_{runtime}"), "reset"])) for runtime in ("static", "shared")}


def times(text):
    return {words[1]: float(words[2]) for words in map(str.split, text.splitlines()) if len(words) == 3 and words[0] == "time"}


def more_than(seen):
    """For each figure the median without the library, and the medians of the differences and ratios within each round."""
    result = {}
    for key in seen["without"][0]:
        base = [run.get(key) for run in seen["without"]]
        row = result[key] = {"without": round(statistics.median(base), 2), "rounds": len(base)}
        for way in seen:
            if way == "without":
                continue
            pairs = [(a, b[key]) for a, b in zip(base, seen[way]) if key in b]
            differences = sorted(b - a for a, b in pairs)
            row[way] = {
                "more": round(statistics.median(differences), 2),
                "quartiles": [round(differences[len(differences) // 4], 2), round(differences[len(differences) * 3 // 4], 2)],
                "ratio": round(statistics.median(b / a for a, b in pairs), 5),
            }
    return result


def order(ways, number):
    """The later run finds a warmer machine."""
    turned = number % len(ways)
    ways = ways[turned:] + ways[:turned]
    return ways[::-1] if number % 2 else ways


def first(stand, quick, rounds=15):
    """The first allocation, each time in a new process."""
    ways = ["without", "passive", "limited"]
    result = {}
    for program in ("costs", "runtime_static"):
        seen = {way: [] for way in ways}
        for number in range(4 if quick else rounds):
            for way in order(ways, number):
                done = subprocess.run([str(stand.work / program), "first"], env=stand.environment(way, 40960, stand.ledger()), capture_output=True, text=True, timeout=20)
                seen[way].append(times(done.stdout))
        result |= more_than(seen)
    return result


def turns(commands, rounds, start_seconds=60):
    """Starts a program for each way; they take turns, one at a time."""
    talks = {way: make() for way, make in commands.items()}
    seen = {way: [] for way in talks}

    def heard(talk, seconds):
        lines = []
        while (line := talk.line(seconds)) != "done":
            if line is None:
                raise RuntimeError(f"ended: {lines[-3:]} {talk.end()}")
            lines.append(line)
        return times("\n".join(lines))

    try:
        for talk in talks.values():
            heard(talk, start_seconds)
        for number in range(rounds):
            for way in order(list(talks), number):
                talks[way].say("go")
                seen[way].append(heard(talks[way], 30))
    finally:
        for talk in talks.values():
            talk.kill()
    return seen


def several(stand, command, ways, sets, rounds, **how):
    """Several sets of processes: how a process lies in memory makes a difference that its turns do not show."""
    seen = {}
    for number in range(sets):
        commands = {way: (lambda way=way: stand.talk(command, way, ledger=stand.ledger(), **how)) for way in order(ways, number)}
        for way, found in turns(commands, rounds).items():
            seen.setdefault(way, []).extend(found)
    return more_than(seen)


def calls(stand, quick):
    """Pairs, launches and questions."""
    sets, rounds = (1, 3) if quick else (5, 5)
    ways = ["without", "passive", "limited"]
    costs = str(stand.work / "costs")
    result = {"few": several(stand, [costs, "calls"], ways, sets, rounds, limit_mib=40960)}
    # Shorter turns, more of them.
    result["short"] = several(stand, [costs, "short"], ways, sets, 4 * rounds, limit_mib=40960)
    result["100 000 live"] = several(stand, [costs, "live", "100000"], ways, max(1, sets - 3), rounds, limit_mib=40960)
    return result


def torch_steps(stand, quick):
    """PyTorch's step time with a limit that is not reached."""
    result = {}
    variants = {"large": ["large", ""], "small": ["small", ""]}
    if not quick:
        variants |= {"large, expandable_segments": ["large", "expandable_segments:True"], "large, cudaMallocAsync": ["large", "backend:cudaMallocAsync"]}
    for name, (size, conf) in variants.items():
        more = {"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {}
        command = [sys.executable, str(HERE / "torch_turns.py"), size]
        # The smaller step is the host's work, which differs from process to process.
        sets, rounds = (1, 4) if quick else (1, 10) if conf else (2, 10) if size == "large" else (5, 6)
        result[name] = several(stand, command, ["without", "limited"], sets, rounds, limit_mib=40960, more=more)
    return result


def script(stand, name, *words, more=None, seconds=60, talk=None):
    """A Python program below the limit: the JSON that it says, and what NVML saw."""
    stand.seen("r")
    talk = talk or stand.talk([sys.executable, str(HERE / name), *words], ledger=stand.ledger(), more=more)
    found, most = {}, {}
    try:
        for said in talk.phases(seconds=seconds):
            if "phase" in said:
                # Where it was that it held the most.
                most[said["phase"]] = mib(stand.seen()["most_together"])
            else:
                found |= said
    except TimeoutError as error:
        found["trouble"] = str(error)
        talk.kill()
    seen = stand.seen()
    found["nvml_most_mib"] = mib(max([figures[1] for figures in seen["pids"].values()], default=0))
    found["together_most_mib"] = mib(seen["most_together"])
    if most:
        found["most_after_mib"] = most
    status, errors = talk.end()
    return found | {"status": status} | ({"stderr": errors} if status or len(found) < 3 else {})


def torch_inside(stand, quick):
    """What PyTorch programs see and get below 4 GiB."""
    result = {}
    for conf in ("", "expandable_segments:True", "backend:cudaMallocAsync"):
        more = {"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else None
        result[conf or "default"] = script(stand, "torch_inside.py", more=more)
    return result


def torch_job(stand, quick):
    """The same in a job, with what its log then says."""
    with Job(stand) as job:
        return script(stand, None, talk=job.talk([sys.executable, str(HERE / "torch_inside.py")])) | {"log": job.said()}


def torch_two(stand, quick):
    """Two PyTorch processes that share a slice."""
    ledger = stand.ledger()
    stand.seen("r")
    talks = [stand.talk([sys.executable, str(HERE / "torch_inside.py"), "share"], ledger=ledger) for _ in range(2)]
    for talk in talks:
        while talk.line(40) not in ("ready", None):
            pass
    for talk in talks:
        talk.say()
    said = [json.loads(talk.line(40) or "{}") for talk in talks]
    seen = stand.seen()
    return {"said": said, "together_mib": mib(seen["together"]), "together_most_mib": mib(seen["most_together"]), "ends": [talk.end() for talk in talks]}


def passed(stand, quick):
    """A tensor that two processes of a job share."""
    return script(stand, "torch_passed.py")


def jax_inside(stand, quick):
    return script(stand, "jax_inside.py")


def cupy_inside(stand, quick):
    return script(stand, "cupy_inside.py")


def absent(stand, quick):
    """Which of the programs that should be tried are not there."""
    return {module: subprocess.run([sys.executable, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"]).returncode != 0 for module in ("torch", "jax", "cupy", "tensorflow", "mxnet")}


PARTS = {part.__name__: part for part in (absent, paths, in_job, near, reset, race, killed, first, calls, torch_inside, torch_job, torch_two, passed, jax_inside, cupy_inside, torch_steps)}
