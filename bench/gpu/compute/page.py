"""Makes gpu-compute.md and gpu-compute.svg from gpu-compute.json."""
import json

import costs
import plot
import summary
from summary import JAIN, SUMS, WITHOUT, is_near, of, tolerance, yes


def write(folder):
    result = json.loads((folder / "gpu-compute.json").read_text())
    cells = result["cells"]
    gpu, driver = map(str.strip, result["machine"]["gpu"].split(",")[:2])
    lines = [
        "# Shares of a real GPU's time",
        "",
        "Written by `bench/gpu/compute.py --report bench/results` from gpu-compute.json; do not edit.",
        "",
        f"{result['machine']['date']}, {gpu}, driver {driver}, {result['machine']['libc']}, library of {revisions(result)}. What is counted are kernels of a fixed amount of arithmetic that the GPU finished, by the GPU's own clock, after the first half second; 100 % is what the same program gets done without a limiter. {'Short cells of a few seconds.' if result.get('short', result.get('quick')) else ''}".strip(),
        "",
        *([f"**{result['remark']}**", ""] if "remark" in result else []),
        *summary.table(cells), *alone(cells), *jobs(cells), *cost(cells), *live(cells), *several(cells), *frameworks(cells), *failed(cells),
    ]
    (folder / "gpu-compute.md").write_text("\n".join(lines) + "\n")
    (folder / "gpu-compute.svg").write_text(plot.svg(points(cells)))


def revisions(result):
    """Cells may be of several, each with its number of cells then."""
    found = {revision: len(cells) for revision, cells in result.get("revisions", {}).items() if cells}
    return " and ".join(f"{revision} ({count} cells)" if len(found) > 1 else revision for revision, count in found.items()) or result.get("revision", "an unknown revision")


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def points(cells):
    """What the plot shows: subject, kernel's length, share asked and got, where a program would fill the GPU."""
    found = [(subject, cell["us"], cell["share"], cell["got"]) for _, subject, cell in of(cells, "alone ") if cell["mode"] not in ("sync", "duty", "think")]
    for name, subject, cell in of(cells, "jobs "):
        if subject != WITHOUT and not name.startswith("jobs soft"):
            found += [(f"{subject}, jobs", 0, one["share"], one["got"]) for one in cell["tenants"] if one["busy"]]
    return found


def alone(cells):
    rows = list(of(cells, "alone "))
    if not rows:
        return []
    lines = [
        "## One tenant", "",
        "A program that waits for each kernel does not fill the GPU by itself: it gets its share, or its own pace where that is less. The check of each line fails without the limiter wherever the two differ, since the program then has its own pace.", "",
        "| cell | library | asked | own pace | got | met | without: met | CV of 100 ms (without) | step p50, p99 (without) | helper: CPU, switches a second |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, subject, cell in rows:
        near, waits = tolerance(cell["us"]), cell["mode"] in ("sync", "duty", "think")
        is_met = abs(cell["got"] - cell["should"]) <= near
        control = abs(cell["own_pace"] - cell["should"]) <= near
        steps = f"{step(cell.get('step_us'))} ({step(cell.get('control_step_us'))})" if waits else ""
        lines.append(f"| {name} | {subject} | {cell['should']:.2f} % | {cell['own_pace']:.1f} % | {cell['got']:.2f} % | {yes(is_met)} | {yes(control)} | {number(cell['cv'], '{:.3f}')} ({number(cell['control_cv'], '{:.3f}')}) | {steps} | {cell['helper_cpu'] * 100:.2f} %, {cell['helper_switches']:.0f} |")
    return [*lines, "", "![Share got against share asked](gpu-compute.svg)", ""]


def step(figures):
    if not figures:
        return ""
    return f"{figures['p50']:.0f}, {figures['p99']:.0f} us" if figures["p50"] < 1000 else f"{figures['p50'] / 1e3:.2f}, {figures['p99'] / 1e3:.2f} ms"


def jobs(cells):
    rows = list(of(cells, "jobs "))
    if not rows:
        return []
    lines = [
        "## Jobs side by side", "", "`without` is the driver's own time-slicing. *Sum* is all work that was finished, of what one unlimited program gets done.", "",
        "| cell | library | asked | got | farthest off | Jain of got / asked | sum | met | CV, largest | has its share after | GPU idle between jobs: p50, mean, times a second | monitor: CPU, switches a second |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, subject, cell in rows:
        tenants = cell["tenants"]
        cv = max((one["cv"] for one in tenants if one.get("cv") is not None and one["busy"]), default=None)
        settled = [one.get("settled_ms") for one in tenants if one["busy"] and "settled_ms" in one]
        after = "" if not settled else "never" if None in settled else f"{max(settled)} ms"
        asked, got = (" + ".join(f"{one[key]:g}" if key == "share" else f"{one[key]:.1f}" for one in tenants) for key in ("share", "got"))
        monitor = cell.get("monitor")
        spent = f"{monitor['cpu'] * 100:.2f} %, {monitor['switches_a_s']:.0f}" if monitor else ""
        between = cell.get("handover") if subject != WITHOUT else None
        idle = f"{between['idle_us']['p50']:.0f}, {between['idle_us']['mean']:.0f} us, {between['a_s']:.0f}" if between else ""
        least = next((least for start, least in SUMS.items() if name.startswith(f"jobs {start},") and all(one["busy"] for one in tenants)), 0)
        is_met = is_near(name, cell) and (cell["jain"] or 1) >= JAIN and cell["sum"] >= least
        label = subject if subject == WITHOUT or cell.get("arbiter") else f"{subject}, no arbiter"
        lines.append(f"| {name.removeprefix('jobs ')} | {label} | {asked} | {got} | {cell['worst']:.2f} | {number(cell['jain'], '{:.4f}')} | {cell['sum']:.1f} % | {'' if 'soft,' in name else yes(is_met)} | {number(cv, '{:.3f}')} | {after} | {idle} | {spent} |")
    return lines + waiting(rows)


def waiting(rows):
    """Tenants that do not want all they may have: what they lose beside the others."""
    lines = []
    for name, subject, cell in rows:
        for one in cell["tenants"]:
            if one["busy"] or "pace" not in one or any(line.startswith(f"| {name.removeprefix('jobs ')} | {subject} |") for line in lines):
                continue
            lines.append(f"| {name.removeprefix('jobs ')} | {subject} | {one['pace'] * 100:.2f} % | {step(one['step_us'])} | {step(one.get('own_step_us'))} |")
    head = ["", "Of tenants that do not keep the GPU busy, the first of each cell:", "", "| cell | library | own pace kept | step p50, p99 | alone without a limiter |", "| --- | --- | --- | --- | --- |"]
    return [*head, *lines, ""] if lines else [""]


def cost(cells):
    ways = {way: rounds for way, rounds in cells.get(costs.CELL, {}).items() if isinstance(rounds, list)}
    if not ways:
        return []
    lines = ["## A launch of an empty kernel", "", "In ns: what the driver's own function takes, and in brackets by how much a launch takes longer than that in the same process, in turns with it; both are medians. *Amortised* is a batch of 256.", "", f"| | {' | '.join(costs.KINDS.values())} |", "| --- | --- | --- | --- |"]
    for way, rounds in ways.items():
        shown = [f"{min(one[kind]['driver'][1] for one in rounds):.0f} ({costs.more(rounds, kind):+.0f})" for kind in costs.KINDS]
        lines.append(f"| {way} | {' | '.join(shown)} |")
    return [*lines, ""]


def live(cells):
    rows = list(of(cells, "live "))
    if not rows:
        return []
    lines = ["## No process hangs", ""]
    for name, subject, cell in rows:
        name = name.removeprefix("live ")
        if "case" in cell:
            lines.append(f"- {name}, {subject}: {'goes on' if cell['ok'] else '**stood still until its kernel gave up**'}, {cell['longest_ms']:.0f} ms at most")
        elif "sets" in cell:
            lines.append(f"- {name}: {'goes on' if cell['waits']['ok'] else '**stood still until its kernel gave up**'}, {cell['waits']['ms']:.0f} ms")
        elif "processes" in cell:
            switches = [rate for _, rate in cell["processes"]]
            lines.append(f"- {name}: processes switch {max(switches):g} times a second, the monitor {cell['monitor'][1]:g}")
        else:
            watched = cell["tenants"][0]
            lines.append(f"- {name} at {', '.join(f'{at:.1f}' for at, _ in cell['events'])} s: the job beside them with {watched['share']:g} % got {watched['got']:.2f} %, was without the GPU for {watched['longest_gap_ms'][0]:.1f} ms at most; each 100 ms of it {min(watched['windows_100ms'][5:])} to {max(watched['windows_100ms'][5:])} kernels")
    return [*lines, ""]


def several(cells):
    lines = []
    for name, _, cell in of(cells, "two gpus "):
        beside = f"; the job beside it {' and '.join(f'{got:.2f}' for got in cell['beside']['got'])} % of {cell['beside']['shares'][0]} %" if "beside" in cell else ""
        lines.append(f"- {name.removeprefix('two gpus ')}: got {' and '.join(f'{got:.2f}' for got in cell['got'])} % of the GPUs{beside}")
    for name, _, cell in of(cells, "nccl, "):
        lines.append(f"- {name}: {cell['steps']} steps, {cell.get('of_own_pace', 0):.1f} % of its pace without a limit, the longest {cell['longest_ms']:.0f} ms")
    return ["## Several GPUs, and processes that wait for each other", "", *lines, ""] if lines else []


def frameworks(cells):
    rows = list(of(cells, "torch "))
    lines = [f"- {name.removeprefix('torch ')}, {subject}: {cell['got']:.2f} % of {cell['rate'] / cell['got'] * 100:.1f} steps a second" for name, subject, cell in rows if "got" in cell]
    return ["## PyTorch", "", *lines, ""] if lines else []


def failed(cells):
    lines = [f"- {name}, {subject}: {cell['failed']}" for name, subjects in cells.items() for subject, cell in subjects.items() if isinstance(cell, dict) and "failed" in cell]
    return ["## Not measured, because something failed", "", *lines, ""] if lines else []
