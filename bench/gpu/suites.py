#!/usr/bin/env python3
"""On a machine with a GPU: the tests of RMM, CuPy, JAX and pynvml end the same with the library as without it, test by test.

    python3 bench/gpu/suites.py --softmig softmig --library libsoftmig.so --sources FOLDER --out FOLDER
        [--only SUITE...] [--rounds N] [--controls N] [--memory SIZE...] [--leave-out TEXT...] [--budget SECONDS] [--keep FILE]
    python3 bench/gpu/suites.py --report bench/results

The folder of sources has a checkout of each project by its suite's name: rapidsai/rmm, cupy/cupy, jax-ml/jax and
gpuopenanalytics/pynvml, of the release that is installed. Nothing of them is kept. Needs pytest, pytest-xdist and the
projects' packages. Each suite runs without the library (--controls times) and under `softmig run --memory SIZE` (--rounds times,
the sizes in turns), in turns. Writes FOLDER/gpu-suites.json after each run, the output of runs in which a test failed to
FOLDER/logs, and ends with status 1 if a test ended otherwise with the library than without it. The second form makes the page.
"""
import collections
import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "compute"))
sys.dont_write_bytecode = True

import runner

WITHOUT = "without"
# Seconds for one run.
LONGEST = 540
# The tests below a project's folder; their package, workers, and what is left out and why. `alone` are scripts that are one
# test each, in a process of its own.
SUITES = {
    "rmm": {
        "tests": ["python/rmm/rmm/tests"],
        "package": "rmm-cu13",
        "workers": 3,
        "left_out": {"test_cython.py": "built with RMM itself", "test_version.py": "of RMM's releases"},
    },
    "cupy": {"tests": ["tests/cupy_tests/cuda_tests"], "package": "cupy-cuda13x", "workers": 12, "left_out": {}},
    "jax": {
        "tests": [f"tests/{name}_test.py" for name in ("memories", "array_interoperability", "pytorch_interoperability", "transfer_guard")],
        "alone": ["tests/gpu_memory_flags_test.py"],
        "package": "jax",
        "workers": 0,
        "left_out": {},
    },
    "pynvml": {"tests": ["pynvml_utils/tests"], "package": "nvidia-ml-py", "workers": 0, "left_out": {}},
}


def main():
    options = runner.parse(
        __doc__, ["softmig", "library", "sources", "keep"], ["softmig", "library", "sources"],
        only={"nargs": "*", "choices": SUITES, "default": list(SUITES)},
        rounds=runner.number(1, "runs with the library"),
        controls=runner.number(1, "runs without it"),
        memory={"nargs": "*", "default": ["1000g"], "help": "limits of the runs with it, in turns"},
        leave_out={"nargs": "*", "default": [], "help": "tests whose names hold one of these"},
        budget=runner.BUDGET,
    )
    if options.report:
        return report(options.report)
    from machine import machine
    result = json.loads(options.keep.read_text()) if options.keep else {"suites": {}}
    about = {"machine": machine(), "revision": options.revision}
    end = time.monotonic() + options.budget
    for name in options.only:
        # A suite that is measured again is measured anew.
        result["suites"].pop(name, None)
        for way in plan(options):
            if time.monotonic() > end:
                break
            add(result["suites"], name, about, way, *run(name, way, options))
            (options.out / "gpu-suites.json").write_text(json.dumps(kept(result), indent=1) + "\n")
    return 1 if any(suite["differs"] for suite in result["suites"].values()) else 0


def plan(options):
    """The ways of the runs of a suite: those without the library are spread over those with it."""
    limits = [options.memory[number % len(options.memory)] for number in range(options.rounds)]
    ways = []
    for number, limit in enumerate(limits):
        before, after = (options.controls * at // options.rounds for at in (number, number + 1))
        ways += [WITHOUT] * (after - before) + [limit]
    return ways or [WITHOUT] * options.controls


def run(name, way, options):
    """How each test of a suite ended, how long all took, and the status."""
    suite, folder = SUITES[name], options.sources.resolve() / name
    prefix = [] if way == WITHOUT else [str(options.softmig.resolve()), "run", "--quiet", "--memory", way, "--library", str(options.library.resolve()), "--"]
    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        written = pathlib.Path(work, "junit.xml")
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:benchmark", "-W", "default", "--tb=short", f"--junitxml={written}"]
        command += ["-n", str(suite["workers"])] if suite["workers"] else []
        command += [f"--ignore-glob=*{left}" for left in suite["left_out"]]
        command += ["-k", " and ".join(f"not {left}" for left in options.leave_out)] if options.leave_out else []
        status, said = ended(prefix + command + suite["tests"], folder)
        ends = parsed(written) if written.exists() else {}
    for script in suite.get("alone", []):
        code, more = ended(prefix + [sys.executable, script], folder)
        ends[script] = "failed" if code else "passed"
        said += more
    seconds = round(time.monotonic() - begun, 1)
    if status or "failed" in ends.values():
        (logs / f"{name}-{way}-{time.strftime('%H%M%S')}.txt").write_text(said)
    print(name, way, status, f"{seconds} s", dict(collections.Counter(ends.values())), flush=True)
    return status, seconds, ends


def ended(command, folder):
    """The status and the output of a command in a session of its own, of which nothing is left after its time."""
    # What is installed is tested, not what lies beside the tests; pynvml_utils is nowhere else.
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    if folder.name == "pynvml":
        environment["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
    child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        said, _ = child.communicate(timeout=LONGEST)
        return child.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return "timeout", child.communicate()[0]


def parsed(path):
    """How each test ended; one during which its worker died has failed."""
    ends = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        end = "skipped" if kinds == {"skipped"} else "failed" if kinds else "passed"
        test = f"{case.get('classname')}::{case.get('name')}"
        # One whose end fails is there twice.
        ends[test] = "failed" if "failed" in (end, ends.get(test)) else end
    return ends


def add(suites, name, about, way, status, seconds, ends):
    """Adds a run to the suite's result, with the tests that did not end the same each time."""
    version = lambda package: f"{package} {importlib.metadata.version(package)}"
    new = about | {"package": version(SUITES[name]["package"]), "workers": SUITES[name]["workers"], "left_out": SUITES[name]["left_out"], "runs": [], "ends": {}}
    suite = suites.setdefault(name, new)
    suite["runs"].append({"way": way, "status": status, "seconds": seconds} | dict(collections.Counter(ends.values())))
    every = suite["ends"]
    for test in every.keys() | ends.keys():
        seen = every.setdefault(test, {}).setdefault(way, {})
        end = ends.get(test, "missing")
        seen[end] = seen.get(end, 0) + 1
    kinds = lambda test, ways: {end for way in ways for end in every[test].get(way, {})}
    ways = {run["way"] for run in suite["runs"]}
    control, limited = ways & {WITHOUT}, ways - {WITHOUT}
    is_measured = bool(control and limited)
    suite["differs"] = sorted(test for test in every if is_measured and any(kinds(test, [way]) - kinds(test, control) for way in limited))
    suite["fails_without"] = sorted(test for test in every if "failed" in kinds(test, control))


def kept(result):
    """The result without how each test ended that always ended the same."""
    suites = {}
    for name, suite in result["suites"].items():
        told = {*suite["differs"], *suite["fails_without"]}
        suites[name] = suite | {"ends": {test: ends for test, ends in suite["ends"].items() if test in told}}
    return result | {"suites": suites}


def page_of(name, suite):
    """A suite's lines in the table, and what is said below it."""
    rows, below = [], []
    for way in sorted({run["way"] for run in suite["runs"]}, key=lambda way: (way != WITHOUT, way)):
        runs = [run for run in suite["runs"] if run["way"] == way]
        alike = lambda key: " to ".join(map(str, sorted({min(run.get(key, 0) for run in runs), max(run.get(key, 0) for run in runs)})))
        limit = "without" if way == WITHOUT else f"limit {way}"
        rows.append(f"| {suite['package']} | {limit} | {len(runs)} | {alike('passed')} | {alike('failed')} | {alike('skipped')} | {alike('seconds')} |")
    for test in suite["differs"]:
        ends = "; ".join(f"{way}: " + ", ".join(f"{end} {count}" for end, count in sorted(counts.items())) for way, counts in sorted(suite["ends"][test].items()))
        below.append(f"- {name}, `{test}`: {ends}")
    return rows, below


def report(folder):
    """Writes gpu-suites.md from gpu-suites.json."""
    result = json.loads((folder / "gpu-suites.json").read_text())
    suites = result["suites"]
    pages = [page_of(name, suite) for name, suite in suites.items()]
    below = [line for _, lines in pages for line in lines]
    lines = [
        "# The tests of others, with the library and without it",
        "",
        "Written by `bench/gpu/suites.py --report bench/results` from gpu-suites.json; do not edit.",
        "",
        "Each run with the library is one of `softmig run --memory LIMIT`; the runs of a suite took turns.",
        "",
        "| tests of | library | runs | passed | failed | skipped | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *[row for rows, _ in pages for row in rows],
        "",
        "**Tests that ended otherwise with the library than they ever did without it**: " + ("" if below else "none."),
        "",
        *below,
        *([""] if below else []),
    ]
    for name, suite in suites.items():
        machine = suite["machine"]
        gpu, driver = machine["gpu"].split(", ")[:2]
        workers = f"with {suite['workers']} workers of pytest-xdist" if suite["workers"] else "in one process"
        left = "".join(f"; without `{test}` ({why})" for test, why in suite["left_out"].items())
        fails = ", ".join(f"`{test}`" for test in suite["fails_without"])
        lines.append(f"- {name}: {machine['date']}, {gpu}, driver {driver}, library of {suite['revision']}, {workers}{left}." + (f" These fail without the library too: {fails}." if fails else ""))
    lines += [f"- {name}: not measured yet." for name in SUITES if name not in suites]
    (folder / "gpu-suites.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
