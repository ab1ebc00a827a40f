#!/usr/bin/env python3
"""On a machine with a GPU: what sharing out its time rests on.

    python3 bench/gpu/compute_facts.py --out FOLDER [--only NAME...]

Needs a C compiler and CUDA's headers. Runs each experiment of compute_facts.c in a process of its own, with a time limit,
and adds it to FOLDER/gpu-compute-facts.json, which belongs to bench/results; what it means is in docs/gpu-notes.md. Nobody
else may use the GPU meanwhile.
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "compute"))
sys.dont_write_bytecode = True

from machine import compile_c, lines_of, machine

# Seconds for one experiment.
LIMIT = 12
EXPERIMENTS = {
    "costs": ["costs"],
    "isolated": ["isolated"],
    "waking": ["waking"],
    "handover, turns": ["handover", "turns"],
    "handover, ahead": ["handover", "ahead"],
    "handover, time-sliced": ["handover", "sliced"],
    "programmatic": ["programmatic"],
    "thread_without_context": ["thread_without_context"],
    "in_a_capture": ["in_a_capture"],
    "host_waking": ["host_waking"],
    "copies": ["copies"],
    "copy_between": ["copy_between"],
    "ending": ["ending"],
}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--only", nargs="*")
    options = arguments.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    program = compile_c(HERE / "compute_facts.c", work / "compute_facts")
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "gpu-compute-facts.json"
    result = json.loads(file.read_text()) if file.exists() else {"experiments": {}}
    result["machine"] = machine()
    for name, words in EXPERIMENTS.items():
        if options.only and name not in options.only and words[0] not in options.only:
            continue
        begin = time.monotonic()
        status, lines, other = lines_of([str(program), *words], LIMIT)
        result["experiments"][name] = {"status": status, "seconds": round(time.monotonic() - begin, 2), "other": other, "lines": lines}
        # After each, so that nothing is lost.
        file.write_text(written(result))
        print(f"{name}: status {status}, {time.monotonic() - begin:.1f} s, {len(lines)} lines", *other[-2:], flush=True)
    for name, seen in result["experiments"].items():
        for line in seen["lines"]:
            print(name, json.dumps(line), flush=True)
    shutil.rmtree(work)


def written(result):
    """JSON with a line for each step."""
    parts = []
    for name, seen in result["experiments"].items():
        facts = {key: value for key, value in seen.items() if key != "lines"}
        lines = ",\n".join("   " + json.dumps(line) for line in seen["lines"])
        parts.append(f'  {json.dumps(name)}: {json.dumps(facts)[:-1]}, "lines": [\n{lines}\n  ]}}')
    return '{\n "machine": ' + json.dumps(result["machine"]) + ',\n "experiments": {\n' + ",\n".join(parts) + "\n }\n}\n"


if __name__ == "__main__":
    main()
