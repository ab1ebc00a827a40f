#!/usr/bin/env python3
"""On a machine with a GPU: that programs compute the same in their slices, held on the GPU again and again, as without softmig.

    unshare --mount python3 bench/gpu/equal.py --library libsoftmig.so --monitor softmig-monitor --prolog softmig-prolog --out FOLDER
    python3 bench/gpu/equal.py --report bench/results

As root, like beside.py. PyTorch, JAX and CuPy run in a quarter each, beside kernels that keep the GPU busy, and without softmig; what
they print of their results is compared to the last digit. Writes FOLDER/gpu-equal.json; the second form makes the page.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "beside"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

import runner

PROGRAMS = ("torch_step", "jax_step", "cupy_step")
# Not a result: how long it took, and of how much memory, which the slice says.
ABOUT = ("time", "total", "devices")
LONGEST = 240


def said(children):
    """What each printed: its results, and how long a step took, ns."""
    found = {}
    for name, child in children.items():
        out, _ = child.communicate(timeout=LONGEST)
        lines = [line for line in out.splitlines() if line.split(" ")[0] in (*ABOUT, "loss", "sum")]
        times = [float(line.split()[-1]) for line in lines if line.startswith("time")]
        results = [line.split(" pool")[0] for line in lines if not line.startswith(ABOUT)]
        found[name] = {"results": results, "step_us": round(times[0] / 1000, 1) if times else None}
        if child.returncode or not results:
            found[name]["failed"] = out[-600:]
    return found


def start(command, environment):
    return subprocess.Popen(list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def measure(options, work):
    from machine import machine
    from node import USER, Job, Node
    from programs import Program, Stage
    stage = Stage(work, {"busy100us"})
    scripts = {name: pathlib.Path(shutil.copy(HERE / f"{name}.py", stage.scripts)) for name in PROGRAMS}
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", sys.executable]
    plain = {name: start([*user, script], dict(os.environ) | stage.environment()) for name, script in scripts.items()}
    found = {"machine": machine(), "revision": options.revision, "without": said(plain)}
    library = pathlib.Path(shutil.copy(options.library, work / "libsoftmig.so"))
    node = Node(library, options.prolog.resolve(), options.monitor.resolve(), work)
    node.start()
    jobs, busy = [], None
    try:
        jobs = [Job(node, 5000 + at, 1, 4) for at in range(4)]
        node.preload(True)
        busy = Program(stage, "busy100us", jobs[3])
        busy.ready()
        busy.go()
        found["slices"] = said({name: start(job.command(sys.executable, script), job.environment() | stage.environment()) for job, (name, script) in zip(jobs, scripts.items())})
        found["busy_kernels"] = busy.look()[0]
        found["monitor"] = node.said()
    finally:
        node.preload(False)
        if busy:
            busy.rest()
            busy.stop()
            busy.talk.end()
        for job in jobs:
            job.end()
        node.stop()
    for name in PROGRAMS:
        one, other = found["without"][name], found["slices"][name]
        is_equal = one["results"] == other["results"] != [] and not {"failed"} & (one.keys() | other.keys())
        print(f"{name}: {'equal' if is_equal else 'DIFFERENT'}; a step {one['step_us']} us, {other['step_us']} us in its slice; {other['results']}")
        found["slices"][name]["equal"] = is_equal
    return found


def report(folder):
    found, gpu, driver, lines = runner.page(folder, "equal", "Results in slices")
    lines += [
        f"{found['machine']['date']}, {gpu}, driver {driver}, library of {found['revision']}. Each program ran without softmig, and in a quarter beside the two others and kernels that keep the GPU busy. Equal means to the last digit that is printed.",
        "",
        "| program | results | a step without, us | in its slice, us |",
        "| --- | --- | --- | --- |",
    ]
    for name in PROGRAMS:
        one, other = found["without"][name], found["slices"][name]
        lines.append(f"| {name} | {'equal' if other['equal'] else 'different'} | {one['step_us']} | {other['step_us']} |")
    runner.write_page(folder, "equal", lines)


def main():
    options = runner.parse(__doc__, ["library", "monitor", "prolog"])
    if options.report:
        return report(options.report)
    with runner.work_folder() as work:
        found = measure(options, work)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu-equal.json").write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if all(found["slices"][name]["equal"] for name in PROGRAMS) else 1)


if __name__ == "__main__":
    main()
