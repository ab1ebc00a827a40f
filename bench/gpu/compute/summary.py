"""The figures that count, against what they should be."""
import costs

# Points of the GPU that a share may be off, by the length of the kernels in us.
TOLERANCE = {5: 2.0, 200000: 2.0}
WITHOUT = "without"
# What all jobs together get done, at least.
SUMS = {"4 x 25": 97, "8 x 12.5": 96}
JAIN = 0.99
# Jobs that are to have the same, however many processes they are.
EQUAL = "one process and eight"
EQUAL_WITHIN = 2.0


def of(cells, start):
    """Name, subject and figures of all cells of a kind that were measured."""
    for name, subjects in cells.items():
        for subject, cell in subjects.items():
            if name.startswith(start) and not (isinstance(cell, dict) and "failed" in cell):
                yield name, subject, cell


def yes(is_met):
    return "yes" if is_met else "**no**"


def tolerance(us):
    return TOLERANCE.get(us, 1.0)


def is_near(name, cell):
    """Whether each of some jobs got what it should."""
    if EQUAL in name:
        return difference(cell) <= EQUAL_WITHIN
    return cell["worst"] <= 1


def difference(cell):
    got = [one["got"] for one in cell["tenants"]]
    return max(got) - min(got)


OURS = "softmig"


def table(cells):
    """A line for each target of which anything was measured."""
    rows = [row for rows in (shares(cells), jobs(cells), idle_ones(cells), launches(cells), several(cells), frameworks(cells)) for row in rows]
    if not rows:
        return []
    lines = [f"| {what} | {got} | {target} | {yes(is_met)} |" for what, got, target, is_met in rows]
    return ["| what | measured | target | met |", "| --- | --- | --- | --- |", *lines, ""]


def ours(cells, start):
    return [(name, cell) for name, subject, cell in of(cells, start) if subject == OURS]


def shares(cells):
    found = {}
    for name, cell in ours(cells, "alone "):
        kind = "synchronising each launch" if cell["mode"] == "sync" else "asynchronous" if cell["mode"] == "launch" else None if cell["mode"] in ("duty", "think") else "Ex, graphs, cooperative, streams, memset"
        if kind:
            found.setdefault((kind, tolerance(cell["us"])), []).append((abs(cell["got"] - cell["should"]), name.removeprefix("alone ")))
    for (kind, near), offs in found.items():
        off, name = max(offs)
        yield f"one tenant, {kind}, {len(offs)} cells", f"{off:.2f} points off at most ({name})", f"{near:g} point{'s' if near > 1 else ''}", off <= near
    varied = [(cell["cv"], name) for name, cell in ours(cells, "alone ") if cell["cv"] is not None and cell["us"] <= 1000 and cell["mode"] not in ("duty", "think")]
    if varied:
        yield "one tenant, CV of windows of 100 ms, kernels up to 1 ms", f"{max(varied)[0]:.3f} at most ({max(varied)[1].removeprefix('alone ')})", "0.1", max(varied)[0] <= 0.1


def jobs(cells):
    hard = [(name, cell) for name, cell in ours(cells, "jobs ") if cell.get("arbiter") and "soft" not in name]
    if hard:
        shared = [(cell["worst"], name) for name, cell in hard if EQUAL not in name]
        if shared:
            off, name = max(shared)
            yield f"jobs side by side, {len(shared)} cells", f"{off:.2f} points off at most ({name.removeprefix('jobs ')})", "1 point", off <= 1
        for name, cell in hard:
            if EQUAL in name:
                yield f"jobs {name.removeprefix('jobs ')}", f"{difference(cell):.2f} points between them", f"{EQUAL_WITHIN:g} points", is_near(name, cell)
        jain, name = min((cell["jain"], name) for name, cell in hard if cell["jain"])
        yield "Jain of got / asked", f"{jain:.4f} ({name.removeprefix('jobs ')})", f"{JAIN}", jain >= JAIN
        varied = [(one["cv"], name) for name, cell in hard for one in cell["tenants"] if one.get("cv") is not None and one["busy"] and "later" not in name and "20 ms" not in name]
        if varied:
            yield "jobs side by side, CV of windows of 100 ms, kernels up to 1 ms", f"{max(varied)[0]:.3f} at most ({max(varied)[1].removeprefix('jobs ')})", "0.1", max(varied)[0] <= 0.1
    for start, least in SUMS.items():
        sums = [(cell["sum"], name) for name, cell in hard if name.startswith(f"jobs {start},") and all(one["busy"] and not one.get("late") for one in cell["tenants"]) and "later" not in name]
        if sums:
            without = cells[min(sums)[1]].get(WITHOUT, {}).get("sum")
            yield f"sum of work, {start}", f"{min(sums)[0]:.1f} % ({min(sums)[1].removeprefix('jobs ')}; time-slicing {without} %)", f"{least} %", min(sums)[0] >= least
    for name, cell in ours(cells, "jobs soft, one busy"):
        yield "soft, one busy tenant", f"{cell['sum']:.1f} %", "98 % of unlimited", cell["sum"] >= 98
    for name, cell in ours(cells, "jobs soft, seven"):
        # What the notebooks leave.
        got, left = cell["tenants"][-1]["got"], 100 - sum(one["got"] for one in cell["tenants"][:-1])
        yield "soft, one greedy among seven notebooks", f"{got / left * 100:.1f} % of what is free", "95 %", got >= 0.95 * left
    for name, cell in ours(cells, "jobs 4 x 25, the fourth"):
        after = cell["tenants"][-1]["settled_ms"]
        yield "a new tenant has its share after", f"{after} ms" if after is not None else "never", "500 ms", after is not None and after <= 500


def idle_ones(cells):
    for name, cell in ours(cells, "jobs "):
        first = cell["tenants"][0]
        if "beside" in name and first.get("pace"):
            # It may want more than its share.
            due = min(1, first["share"] / (first["got"] / first["pace"]))
            part = first["pace"] / due
            yield name.removeprefix("jobs "), f"{part * 100:.1f} % of its {'own pace' if due == 1 else 'share'}", "99 %", part >= 0.99
    for name, cell in ours(cells, "live nobody"):
        most = max(rate for _, rate in cell["processes"])
        yield "switches of a process that does nothing", f"{most:g} a second", "0", most == 0
    cpu = [one["helper_cpu"] for _, cell in ours(cells, "jobs ") for one in cell["tenants"] if "helper_cpu" in one]
    if cpu:
        yield "helper's CPU time of a process", f"{max(cpu) * 100:.2f} % of a core at most", "1 %", max(cpu) < 0.01


def launches(cells):
    ways = {way: rounds for way, rounds in cells.get(costs.CELL, {}).items() if way.startswith(OURS) and isinstance(rounds, list)}
    for way, rounds in ways.items():
        most = 20 if "turn" in way else 5
        took = costs.more(rounds, "batch")
        yield f"launch of an empty kernel, amortised, {way.removeprefix(f'{OURS}, ')}", f"{took:+.1f} ns", f"+{most} ns", took <= most


def several(cells):
    offs = [(max(cell["worst"], cell.get("beside", cell)["worst"]), name.removeprefix("two gpus ")) for name, cell in ours(cells, "two gpus ")]
    if offs:
        yield f"two GPUs in one process, {len(offs)} cells", f"{max(offs)[0]:.2f} points off at most ({max(offs)[1]})", "1 point", max(offs)[0] <= 1
    waits = [(cell["longest_ms"], name) for name, cell in ours(cells, "nccl, ")]
    hang = [name for name, subjects in cells.items() if name.startswith("nccl, ") and "failed" in subjects.get(OURS, {})]
    if waits or hang:
        longest = f"the longest step {max(waits)[0]:.0f} ms ({max(waits)[1]})" if waits else ""
        yield f"collectives, {len(waits) + len(hang)} cells", "; ".join(filter(None, [longest, *(f"no step in 30 s: {name}" for name in hang)])), "all go on", not hang


def frameworks(cells):
    for name, cell in ours(cells, "torch "):
        if "got" in cell:
            yield f"PyTorch, {name.removeprefix('torch ')}", f"{cell['got']:.2f} %", f"{cell['share']:g} %, 2 points", abs(cell["got"] - cell["share"]) <= 2
