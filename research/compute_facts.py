#!/usr/bin/env python3
"""On a machine with a GPU: what sharing out its time rests on.

    python3 research/compute_facts.py --out FOLDER [--only NAME...]

Needs a C compiler and CUDA's headers. Runs each experiment of compute_facts.c in a process of its own, with a time limit,
and adds it to FOLDER/gpu-compute-facts.json, which belongs to research/results; what it means is in research/gpu-time.md. No
other program may use the GPU meanwhile.
"""
import json
import sys

sys.dont_write_bytecode = True

from facts import find_out, options

# Seconds for one experiment.
LIMIT = 12
EXPERIMENTS = {
    "costs": ["costs"],
    "isolated": ["isolated"],
    "pair": ["pair"],
    "fills": ["fills"],
    "waking": ["waking"],
    "threads": ["threads"],
    "handover, turns": ["handover", "turns"],
    "handover, ahead": ["handover", "ahead"],
    "handover, time-sliced": ["handover", "sliced"],
    "early": ["early"],
    "programmatic": ["programmatic"],
    "thread_without_context": ["thread_without_context"],
    "in_a_capture": ["in_a_capture"],
    "host_waking": ["host_waking"],
    "copies": ["copies"],
    "copy_between": ["copy_between"],
    "ending": ["ending"],
}


def main():
    result = find_out("compute", options(), EXPERIMENTS, lambda name: LIMIT)
    for name, seen in result["experiments"].items():
        for line in seen["lines"]:
            print(name, json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
