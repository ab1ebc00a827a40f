#!/usr/bin/env python3
"""On a machine with a GPU: NVIDIA's tools find the same in a slice as without softmig.

    unshare --mount python3 bench/gpu/tools.py --library libsoftmig.so --monitor softmig-monitor --prolog softmig-prolog --out FOLDER
    python3 bench/gpu/tools.py --report bench/results

As root, like equal.py, with nvcc, PyTorch and the tools. Each tool runs a program as a user without softmig, and in a quarter. What it
says is compared but for addresses, process numbers and times. Writes FOLDER/gpu-tools.json; the second form makes the page.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path[:0] = [str(HERE / "beside"), str(HERE / "compute"), str(HERE / "memory")]
sys.dont_write_bytecode = True

import runner

LONGEST = 150
SANITIZER = "compute-sanitizer --print-limit 20 --show-backtrace no"
GDB = "cuda-gdb -q -batch -ex 'break right' -ex run -ex 'print blockDim' -ex 'info cuda devices' -ex delete -ex continue --args"
NCU = "ncu --clock-control none --metrics sm__warps_launched.sum,smsp__inst_executed.sum"
# The name, and the command; FAULTY and PROFILED are the programs.
TOOLS = [
    ("no tool", "FAULTY right"),
    ("compute-sanitizer memcheck, out of bounds", f"{SANITIZER} FAULTY bounds"),
    ("compute-sanitizer memcheck, a wrong call", f"{SANITIZER} FAULTY api"),
    ("compute-sanitizer memcheck, memory that is not freed", f"{SANITIZER} --leak-check full FAULTY leak"),
    ("compute-sanitizer memcheck, no fault", f"{SANITIZER} --leak-check full FAULTY right"),
    ("compute-sanitizer racecheck", f"{SANITIZER} --tool racecheck FAULTY race"),
    ("compute-sanitizer initcheck", f"{SANITIZER} --tool initcheck FAULTY unset"),
    ("compute-sanitizer synccheck", f"{SANITIZER} --tool synccheck FAULTY right"),
    ("compute-sanitizer memcheck, PyTorch", f"{SANITIZER} PYTHON PROFILED"),
    ("cuda-gdb", f"{GDB} FAULTY right"),
    ("ncu", f"{NCU} FAULTY right"),
    ("ncu, PyTorch", f"{NCU} --launch-count 5 PYTHON PROFILED"),
    ("PyTorch's profiler (CUPTI)", "PYTHON PROFILED"),
]
# What differs between any two runs.
VARIES = [(r"/\S*/(faulty\.cu)", r"\1"), (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+", "TIME"), (r"0x[0-9a-f]+", "ADDRESS"), (r"\b(process|PID|pid|LWP|Thread)\s*=?\s*\d+", r"\1 N"), (r"\[\d+\] ", "[N] "), (r"==\d+==", "==N=="), (r"\b\d+\.\d+(e[-+]\d+)?\b", "FIGURE"), (r"/tmp/\S+", "PATH")]
# Lines of the debugger about the host's threads.
HOST = re.compile(r"^\[(New|Thread|Detaching|Inferior|Switching|Attaching)|^warning:|^Using host|^\s*$|^This GDB|debuginfod")


def findings(text):
    """The lines of a tool, as they are in each run."""
    lines = []
    for line in text.splitlines():
        for what, instead in VARIES:
            line = re.sub(what, instead, line)
        if not HOST.search(line):
            lines.append(line.rstrip())
    return lines


def run(command, environment):
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONGEST, errors="replace")
    except subprocess.TimeoutExpired as late:
        return {"status": "late", "lines": findings((late.stdout or b"").decode(errors="replace"))}
    return {"status": done.returncode, "lines": findings(done.stdout)}


def measure(options, work):
    from machine import machine
    from node import USER, in_a_slice
    faulty = work / "faulty"
    subprocess.run(["nvcc", "-O1", "-lineinfo", "-arch=native", HERE / "tools/faulty.cu", "-o", faulty], check=True)
    profiled = pathlib.Path(shutil.copy(HERE / "tools/profiled.py", work))
    commands = {name: command.replace("FAULTY", str(faulty)).replace("PYTHON", sys.executable).replace("PROFILED", str(profiled)) for name, command in TOOLS if options.only in name}
    home = work / "home"
    home.mkdir()
    home.chmod(0o777)
    own = os.environ | {"HOME": str(home), "TMPDIR": str(home)}
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "sh", "-c"]
    found = {"machine": machine(), "revision": options.revision, "tools": {}}
    plain = {name: run([*user, command], own) for name, command in commands.items()}
    with in_a_slice(options, work, 6000, 20000) as job:
        for name, command in commands.items():
            inside = run(job.command("sh", "-c", command), job.environment() | {"HOME": str(home), "TMPDIR": str(home)})
            # Two streams of output come in any order.
            is_same = inside["status"] == plain[name]["status"] and sorted(inside["lines"]) == sorted(plain[name]["lines"])
            found["tools"][name] = {"same": is_same, "without": plain[name], "in_a_slice": inside}
            print(f"{name}: {'the same' if is_same else 'DIFFERENT'}, {len(plain[name]['lines'])} lines", flush=True)
            if not is_same:
                one, other = plain[name]["lines"], inside["lines"]
                print(*[f"  - {line}" for line in one if line not in other][:8], *[f"  + {line}" for line in other if line not in one][:12], plain[name]["status"], inside["status"], sep="\n", flush=True)
        found["log"] = job.log()
        print(*found["log"], sep="\n")
    return found


def report(folder):
    found, gpu, driver, lines = runner.page(folder, "tools", "Tools in slices")
    lines += [
        f"{found['machine']['date']}, {gpu}, driver {driver}, library of {found['revision']}. Each tool ran as a user without softmig, and in a quarter. *The same*: each line that it says, but for addresses, process numbers and times.", "",
        "| tool | what it says in a slice | lines |",
        "| --- | --- | --- |",
    ]
    for name, one in found["tools"].items():
        lines.append(f"| {name} | {'the same' if one['same'] else 'different'} | {len(one['without']['lines'])} |")
    runner.write_page(folder, "tools", lines)


def main():
    options = runner.parse(__doc__, ["library", "monitor", "prolog"], only={"default": "", "help": "the tools whose names hold this"})
    if options.report:
        return report(options.report)
    with runner.work_folder() as work:
        found = measure(options, work)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu-tools.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(one["same"] for one in found["tools"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
