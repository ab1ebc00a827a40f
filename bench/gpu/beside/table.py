"""Makes gpu-beside.md from gpu-beside.json."""
from statistics import median

from figures import Figures
from mixes import MIXES, UNITS, share, title
from pasts import PASTS

DASH = ""


def write(folder):
    figures = Figures(folder)
    about, lines = figures.kept["about"], []
    gpu, driver = map(str.strip, about["machine"]["gpu"].split(",")[:2])
    lines += [
        "# Real programs beside neighbours", "", "Written by `bench/gpu/beside.py --report bench/results` from gpu-beside.json; do not edit.", "",
        f"{about['machine']['date']}, {gpu}, driver {driver}, library of {about['revision']}, slices {about['mode']}. Percentages are of the same program's pace alone on the whole GPU, without the library, on the same machine. *Alone* is in its slice with nobody beside it; *beside* with all of the mix; *plain* is the same mix by the driver's own time-slicing, without the library and without limits. Each for {about['seconds']:g} s at most, after half a second.", "",
    ]
    known = {title(mix): mix for mix in MIXES}
    order = [name for name in known if name in figures.kept["mixes"]]
    lines += summary(figures, order, known)
    for name in order:
        lines += one_mix(figures, name, known[name])
    lines += turns(figures) + pasts(figures)
    failed = [f"- {name}, {subject}: {cell['failed']}" for name, cells in figures.kept["mixes"].items() for subject, cell in cells.items() if "failed" in cell]
    lines += ["## Not measured, because something failed", "", *failed, ""] if failed else []
    (folder / "gpu-beside.md").write_text("\n".join(lines) + "\n")


def percent(value):
    return DASH if value is None else f"{value * 100:.1f} %"


def ratio(one, other):
    return DASH if one is None or not other else f"{one / other:.2f}"


def rows(figures, name, mix):
    """Of each program of a mix: its share, and its parts of the whole GPU's pace with what was found."""
    cells = figures.kept["mixes"][name]
    for at, (workload, *shards) in enumerate(mix):
        row = {"workload": workload, "share": share(*shards)}
        for subject in ("plain", "softmig"):
            cell = cells.get(subject, {})
            if "programs" not in cell:
                continue
            machine, found = cell["machine"], cell["programs"][at]
            row[subject] = figures.part(found, machine), found
            row["whole"] = figures.of("whole", machine).get(workload)
            alone = subject == "softmig" and figures.of("slices", machine).get(f"{workload} {share(*shards)}")
            if alone:
                row["alone"] = figures.part(alone, machine), alone
        yield row


def parts(row):
    """Its parts of the whole GPU's pace: alone in its slice, beside the others, plain."""
    return [row.get(key, (None,))[0] for key in ("alone", "softmig", "plain")]


def total(values):
    values = list(values)
    return None if None in values else sum(values)


def summary(figures, order, known):
    lines = [
        "| mix | sum, softmig | sum, plain | least beside / alone | least beside / plain |", "| --- | --- | --- | --- | --- |",
    ]
    for name in order:
        found = [parts(row) for row in rows(figures, name, known[name])]
        sums = [percent(total(one[which] for one in found)) for which in (1, 2)]
        least = []
        for which in (0, 2):
            ratios = [one[1] / one[which] for one in found if one[1] is not None and one[which]]
            least.append(f"{min(ratios):.2f}" if ratios else DASH)
        lines.append(f"| {name} | {' | '.join(sums + least)} |")
    return [*lines, ""]


def one_mix(figures, name, mix):
    lines = [
        f"## {name}", "",
        "| workload | share | whole GPU | alone | beside | beside / alone | plain | beside / plain | p50, p99 ms: whole; alone; beside; plain |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    found = list(rows(figures, name, mix))
    for row in found:
        alone, beside, plain = parts(row)
        whole = row.get("whole")
        pace = f"{whole['pace']:.4g} {UNITS[row['workload']]}s a second" if whole else DASH
        seen = [whole, *(row.get(key, (None, None))[1] for key in ("alone", "softmig", "plain"))]
        latencies = "; ".join(latency(one) for one in seen) if any(one and "latency" in one for one in seen) else DASH
        lines.append(f"| {row['workload']} | {row['share']} | {pace} | {percent(alone)} | {percent(beside)} | {ratio(beside, alone)} | {percent(plain)} | {ratio(beside, plain)} | {latencies} |")
    sums = [percent(total(parts(row)[which] for row in found)) for which in (0, 1, 2)]
    return [*lines, f"| **sum** | | | {sums[0]} | {sums[1]} | | {sums[2]} | | |", ""]


def turns(figures):
    """The sums of paces of runs in turns."""
    if not figures.kept.get("turns"):
        return []
    lines = ["## In turns", "", "The sum of all paces, with softmig and by the driver's own time-slicing in turns.", "", "| slices | programs | plain | softmig | softmig / plain, medians |", "| --- | --- | --- | --- | --- |"]
    for key, cell in figures.kept["turns"].items():
        mode, name = key.split(" | ")
        each = [", ".join(percent(one) for one in cell[which]) for which in ("plain", "softmig")]
        lines.append(f"| {mode} | {name} | {' | '.join(each)} | {median(cell['softmig']) / median(cell['plain']):.3f} |")
    return [*lines, ""]


def pasts(figures):
    """What programs with a past got in the first seconds after it."""
    if not figures.kept.get("pasts"):
        return []
    lines = ["## With a past", ""]
    lines += [f"- *{name}*: {told}." for name, (_, told) in PASTS.items()]
    lines += ["", "Parts of the pace alone on the whole GPU, in the first seconds after that; for cells, p50 and the longest wait, ms.", "", "| past | slices | programs | library of | s | part of each |", "| --- | --- | --- | --- | --- | --- |"]
    for key, cell in figures.kept["pasts"].items():
        kind, mode, name, revision = key.split(" | ")
        each = []
        for found in cell["programs"]:
            told = percent(figures.part(found, cell["machine"]))
            if "latency" in found:
                told += f" ({found['latency']['p50']:.0f}, {found['latency']['longest']:.0f})"
            each.append(told)
        lines.append(f"| {kind} | {mode} | {name} | {revision} | {cell['seconds']:g} | {'; '.join(each)} |")
    return [*lines, ""]


def latency(found):
    return f"{found['latency']['p50']:.1f}, {found['latency']['p99']:.1f}" if found and "latency" in found else "-"
