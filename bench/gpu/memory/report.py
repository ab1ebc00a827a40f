"""Makes gpu-memory.md from gpu-memory.json."""
import json
import statistics

# What a line of the table is held against: at least so much of what there is room for.
ENOUGH = 0.98
# Grows by contexts of this size: what is left below the limit is less than one more.
CONTEXT_MIB = 518
# Of those who race.
STEP_MIB = 2
# Pairs of cudaMalloc and cudaFree below this many ns find their memory in a piece that the process has.
PIECE_NS = 10000
# What is known of a miss; said where the target is missed.
WHY = {
    "code": "Code that is loaded when it is first used, and what libraries take with it, is charged after it came: no call says before how much it will be. Next: leave room for it when the rest is granted, and look at NVML again when what is held has fallen and grows anew.",
    "race": "One step of all was refused although NVML showed room for it: probably a look at NVML, while other threads allocate, charges up to a step too much. Next: take it back at the last look before a refusal.",
    "goes on": "With the driver's pools memory that was freed in the order of a stream leaves its pool when the stream is waited for, which nobody did. Next: wait for it before refusing.",
    "async": "Probably: the pool's size is asked for after each allocation (25 ns), capture is kept whole around it (10 ns), the pool and what is freed are looked up in a table. Next: skip both where the pool cannot have grown.",
    "pair": "What makes or drops a piece of 2 MiB takes 60 us, of which the library's part is not to be seen in the noise of a guest; in a piece that is there a pair takes under 2 us, and two look-ups in a table with a reservation are more than 1 % of that. Next: a shorter way for pieces that the process has already.",
    "steps": "Probably the machine, which was slower and less steady than that of the record before (a first allocation without the library 97 us for 83; small steps have quartiles from 0 to 36 % above): there the same steps took 0.1 and 5 % less than without the library, and nothing that such a step calls has become longer (a launch: -43 ns here, +3 there). Next: to measure both libraries in turns.",
}


def revisions(result):
    """The libraries that the parts were measured with."""
    parts = {}
    for part, revision in result["revisions"].items():
        parts.setdefault(revision, []).append(part)
    last, *others = sorted(parts.items(), key=lambda it: -len(it[1]))
    return ", ".join([last[0], *(f"{revision} ({', '.join(names)})" for revision, names in others)])


def write(folder):
    result = json.loads((folder / "gpu-memory.json").read_text())
    parts = result["parts"]
    gpu, driver = map(str.strip, result["machine"]["gpu"].split(",")[:2])
    lines = [
        "# The memory limit on a real GPU",
        "",
        "Written by `bench/gpu/memory.py --report bench/results` from gpu-memory.json; do not edit.",
        "",
        f"{result['machine']['date']}, {gpu}, driver {driver}, {result['machine']['libc']}, library of {revisions(result)}. NVML is looked at from outside about every millisecond, by process and all together; while contexts come and go it does not answer for up to {longest_gap(parts['paths']):.0f} ms.",
        "",
        *summary(parts),
        *paths(parts),
        *race(parts),
        *killed(parts),
        *costs(parts),
        *programs(parts),
    ]
    (folder / "gpu-memory.md").write_text("\n".join(lines) + "\n")


def yes(is_met):
    return "yes" if is_met else "**no**"


def longest_gap(found):
    return max(row.get("longest_gap_ms", 0) for row in found.values())


def is_enough(name, row):
    if name == "cuCtxCreate":
        return row["got_mib"] + CONTEXT_MIB > row["room_mib"]
    # Managed memory is not in NVML's figure for a process.
    return row["got_of_room"] >= ENOUGH or row["taken_of_room"] >= ENOUGH


def summary(parts):
    rows = {**parts["paths"], **{f"{name}, in a job": row for name, row in parts["in_job"].items() if isinstance(row, dict) and "got_mib" in row}}
    least = min((row["got_of_room"], name) for name, row in rows.items() if not name.startswith(("cuCtxCreate", "graph memory node,")))
    most = max((row["nvml_most_mib"], name) for name, row in rows.items())
    races = {name: row for name, row in parts["race"].items()}
    over = max(row["together_most_mib"] - row["limit_mib"] for row in races.values())
    # Whole steps that were left when every process had been refused.
    missed = max(said["short_of_limit_mib"] // STEP_MIB for row in races.values() for said in row["rounds"])
    went_on = {conf: isinstance(row.get("train_after"), float) for conf, row in parts["torch_inside"].items()}
    stopped = [conf for conf, is_going in went_on.items() if not is_going]
    first = parts["first"]["first_ns"]["limited"]["more"]
    calls = parts["calls"]
    pair = calls["few"]["async_pair_4KiB_ns"]["limited"]["more"], calls["100 000 live"]["async_pair_4KiB_ns"]["limited"]["more"]
    pairs = {group: [(figures["without"] < PIECE_NS, figures["limited"]) for name, figures in calls[group].items() if name.startswith("pair")] for group in ("few", "100 000 live")}
    launch = calls["short"]["launch_ns"]["limited"]["more"]
    others = max((found["nvml_most_mib"], name) for name, found in elsewhere(parts).items())
    table = [
        ("memory got below 4 GiB in 8 MiB steps, each way", f"least {least[0] * 100:.1f} % ({least[1]})", "98 % of limit less context", all(is_enough(*item) for item in rows.items())),
        ("NVML of the process, never above the limit", f"most {most[0]:.0f} MiB", "4096 MiB", most[0] <= 4096),
        ("the same for code, and in PyTorch, JAX and CuPy", f"most {others[0]:.0f} MiB ({others[1]})", "4096 MiB", others[0] <= 4096),
        ("racing for the last GiB", f"{over:+.0f} MiB at most against the limit, {missed:.0f} of 512 steps refused that were there", "none over, none refused falsely", over <= 0 and missed == 0),
        ("PyTorch goes on after it was refused", f"{len(went_on) - len(stopped)} of {len(went_on)} allocators{', not ' + ', '.join(stopped) if stopped else ''}", "all", not stopped),
        ("first allocation", f"{first / 1e3:+.1f} us", "+50 us", first <= 50e3),
        ("cudaMallocAsync + FreeAsync pair", f"{pair[0]:+.0f} ns", "+60 ns", pair[0] <= 60),
        ("cudaMallocAsync + FreeAsync pair, 100 000 live", f"{pair[1]:+.0f} ns", "+60 ns", pair[1] <= 60),
        *pair_rows(pairs),
        ("launch of an empty kernel", f"{launch:+.0f} ns", "+10 ns", launch <= 10),
        step_row(parts["torch_steps"]),
    ]
    keys = {"the same for code": "code", "racing": "race", "PyTorch goes": "goes on", "cudaMallocAsync": "async", "cudaMalloc +": "pair", "PyTorch step": "steps"}
    missed = {key for what, _, _, met in table if not met for start, key in keys.items() if what.startswith(start)}
    lines = ["| what | measured | target | met |", "| --- | --- | --- | --- |", *(f"| {what} | {got} | {target} | {yes(met)} |" for what, got, target, met in table), ""]
    return lines + ["**Why targets are missed**:", "", *(f"- {WHY[key]}" for key in keys.values() if key in missed), ""] * bool(missed)


def step_row(part):
    what, target = "PyTorch step, limit not reached", "within 0.5 %"
    if "failed" in part:
        return what, f"not measured: {part['failed']}", target, False
    steps = {f"{name}, {kind[:-3]}": figures["limited"]["ratio"] for name, row in part.items() for kind, figures in row.items()}
    slowest, quickest = max((ratio - 1, name) for name, ratio in steps.items()), min(steps.values()) - 1
    return what, f"{quickest * 100:+.2f} to {slowest[0] * 100:+.2f} % ({slowest[1]})", target, slowest[0] <= 0.005


def pair_rows(pairs):
    """Pairs that make a piece of the GPU's memory and drop it, and such as find one, apart."""
    for group, found in pairs.items():
        for is_inside, what in ((False, "that makes a piece"), (True, "inside a piece")):
            ways = [way for inside, way in found if inside == is_inside]
            ratio = statistics.median(way["ratio"] for way in ways)
            more = statistics.median(way["more"] for way in ways)
            live = "" if group == "few" else f", {group}"
            yield (f"cudaMalloc + cudaFree pair {what}{live}", f"{(ratio - 1) * 100:+.1f} % ({more:+.0f} ns), {'the median of ' + str(len(ways)) + ' sizes' if len(ways) > 1 else 'one size'}", "+1 %", ratio <= 1.01)


def elsewhere(parts):
    """What NVML showed of what does not go the ways of the table."""
    found = {name: row for name, row in parts["near"].items() if not name.startswith("nodes")}
    found |= {f"PyTorch, {conf}": row for conf, row in parts["torch_inside"].items()}
    return found | {"PyTorch in a job": parts["torch_job"], "JAX": parts["jax_inside"], "CuPy": parts["cupy_inside"]}


def paths(parts):
    lines = [
        "**Each way to device memory**, below 4096 MiB in steps of 8 MiB until refused; then all is freed and taken again. Without the library each got what it asked for, 6 GiB.",
        "",
        "| way | got | again | of limit less context | by NVML | most by NVML | code | without |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = {**parts["paths"], **{f"{name}, in a job": row for name, row in parts["in_job"].items() if isinstance(row, dict) and "got_mib" in row}}
    for name, row in rows.items():
        if "got_mib" not in row:
            lines.append(f"| {name} | {row.get('trouble') or row.get('stderr')} | | | | | | |")
            continue
        without = row.get("without_mib", "")
        lines.append(f"| {name} | {row['got_mib']:.0f} | {row['again_mib']:.0f} | {row['got_of_room'] * 100:.1f} % | {row['taken_of_room'] * 100:.1f} % | {row['nvml_most_mib']:.0f} | {row['code']} | {without if not isinstance(without, float) else round(without)} |")
    lines += [
        "",
        "Managed memory is in no process's figure of NVML. Contexts take 518 MiB each. A graph with one node of 8 MiB takes 32 MiB of the GPU: the driver's step.",
        "",
        "**What has no allocation call** (phase: code, most by NVML so far):",
        "",
    ]
    for name, found in parts["near"].items():
        if name.startswith("nodes"):
            continue
        said = "; ".join(f"{said['phase']}: {said.get('code', said.get('got', ''))}, {said['nvml_most_mib']:.0f} MiB" for said in found["phases"])
        lines.append(f"- {name}: {said}")
    for runtime, found in parts["reset"].items():
        said = "; ".join(f"{said['phase']}: {said['nvml_mib']:.0f} MiB" for said in found["phases"][:3])
        codes = {said["code"] for said in found["phases"] if "code" in said}
        lines.append(f"- cudaDeviceReset, {runtime} runtime, three times 3 GiB: codes {sorted(codes)}; {said}")
    if nodes := parts["near"].get("nodes, without"):
        said = nodes["phases"][-1]
        lines += ["", f"Of {said['graphs']} random graphs with up to eight memory nodes, without a limit, {said['above_ceil32_of_sum']} took more than their sum in steps of 32 MiB, {said['above_sum_of_ceil32']} more than the sum of the steps of each node, {said['below_sum_of_ceil32']} less than that."]
    return [*lines, ""]


def race(parts):
    lines = ["**Racing for the last GiB** of one ledger, in steps of 2 MiB (512 are left by NVML):", "", "| who | limit | steps got, each round | NVML together | least and most a process |", "| --- | --- | --- | --- | --- |"]
    for name, found in parts["race"].items():
        rounds = found["rounds"]
        lines.append(f"| {name} | {found['limit_mib']} | {', '.join(str(said['steps']) for said in rounds)} | {found['together_most_mib']:.0f} at most | {', '.join('%d to %d' % (said['least'], said['most']) for said in rounds)} |")
    return [*lines, ""]


def killed(parts):
    lines = ["**A holder is killed (-9)** while another process of the job has all the rest and asks for what it held:", "", "| held | after | calls until then | NVML together |", "| --- | --- | --- | --- |"]
    for name, found in parts["killed"].items():
        took = sorted(said["ms"] for said in found["phases"] if "ms" in said)
        calls = [said["calls"] for said in found["phases"] if "calls" in said]
        lines.append(f"| {name} | {took[0]:.0f} to {took[-1]:.0f} ms | {min(calls)} to {max(calls)} | {found['together_most_mib']:.0f} of {found['limit_mib']} |")
    return [*lines, ""]


def costs(parts):
    lines = [
        "**What calls cost**: medians of the differences within each round; the quartiles say how far to trust them.",
        "",
        "| call | without | passive | limited | quartiles | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    groups = {"first": parts["first"], **parts["calls"]}
    for group, figures in groups.items():
        for name, row in figures.items():
            way = row["limited"]
            lines.append(f"| {group}: {name.removesuffix('_ns').replace('_', ' ')} | {row['without']:.0f} ns | {row['passive']['more']:+.0f} | {way['more']:+.0f} | {way['quartiles'][0]:+.0f} to {way['quartiles'][1]:+.0f} | {way['ratio']:.3f} |")
    steps = {} if "failed" in parts["torch_steps"] else parts["torch_steps"]
    for group, figures in steps.items():
        for name, row in figures.items():
            way = row["limited"]
            lines.append(f"| PyTorch {group}: {name.removesuffix('_ns')} | {row['without'] / 1e3:.0f} us | | {way['more'] / 1e3:+.1f} us | {way['quartiles'][0] / 1e3:+.1f} to {way['quartiles'][1] / 1e3:+.1f} us | {way['ratio']:.4f} |")
    return [*lines, ""]


def above(found):
    """In which part a program was above the limit first."""
    first = next((name for name, most in found.get("most_after_mib", {}).items() if most > 4096), None)
    return f", above the limit first in {first}" if first else ""


def programs(parts):
    lines = ["**Programs below 4 GiB**:", ""]
    for name, found in {**{f"PyTorch, {conf}": row for conf, row in parts["torch_inside"].items()}, "PyTorch in a job": parts["torch_job"]}.items():
        totals, batch, filled = found.get("totals_mib", {}), found.get("larger_batch_refused_smaller_done", {}), found.get("fill_mib", {})
        lines.append(f"- {name}: total {totals.get('properties')} and {totals.get('mem_get_info')} MiB; batches refused {len(batch.get('refused', []))}, then {batch.get('done')} done; graph {found.get('graph')}; loader with two workers {found.get('loader')}; filled {filled.get('got')} MiB, again {found.get('fill_again_mib')}; a step afterwards: {str(found.get('train_after'))[:60]}; most by NVML {found['nvml_most_mib']:.0f}{above(found)}")
    two = parts["torch_two"]
    pools = ", ".join(f"{key} {found['got_mib']}" for key, found in parts["cupy_inside"].items() if key.endswith("pool"))
    lines += [
        f"- two PyTorch processes of one job: {' and '.join(str(said.get('got_mib')) for said in two['said'])} MiB of tensors, together {two['together_most_mib']:.0f} of 4096 at most",
        f"- a tensor passed between two processes: sum {parts['passed'].get('sum')}, expected {parts['passed'].get('expected')}",
        f"- JAX with its preallocation: {parts['jax_inside'].get('stats_mib', {}).get('bytes_limit')} MiB (75 % of 4096 are 3072); too much: {str(parts['jax_inside'].get('too_much'))[:60]}; most by NVML {parts['jax_inside']['nvml_most_mib']:.0f}",
        f"- CuPy: total {parts['cupy_inside'].get('total_mib')} MiB; {pools} MiB; most by NVML {parts['cupy_inside']['nvml_most_mib']:.0f}",
        f"- nvidia-smi inside, while 2566 MiB are held: `{' '.join(parts['in_job']['nvidia-smi']['lines'][0].split()) if parts['in_job'].get('nvidia-smi', {}).get('lines') else None}`",
        f"- not to be had here: {', '.join(name for name, gone in parts['absent'].items() if gone) or 'none'}",
    ]
    return lines
