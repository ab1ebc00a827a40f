"""What the scripts share that ask a GPU for facts: each experiment is a process of its own, and all go to one file."""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# The first that has a module of the name counts.
sys.path.insert(0, str(HERE.parent / "bench/gpu/compute"))

from machine import compile_c, lines_of, machine


def options(*more):
    """Those of each such script, and its own folders."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--only", nargs="*", help="names, or what is before the comma of them; others stay in the file as they are")
    for name in more:
        arguments.add_argument(name, type=pathlib.Path)
    return arguments.parse_args()


def find_out(subject, given, commands, limit, environment=lambda name: None, about={}):
    """Builds SUBJECT_facts.c, runs it or another program for each experiment, and writes gpu-SUBJECT-facts.json.

    `commands` has the words of each experiment, by name: those of the program, or else a whole command, which begins with a
    path; `{out}` in one is the folder for results. `limit` tells how many seconds one may take, `environment` what it gets.
    """
    work = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    program = compile_c(HERE / f"{subject}_facts.c", work / "facts")
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / f"gpu-{subject}-facts.json"
    kept = json.loads(file.read_text())["experiments"] if file.exists() else {}
    result = {"machine": machine()} | about | {"experiments": kept}
    for name, words in commands.items():
        if given.only and name not in given.only and name.split(",")[0] not in given.only:
            continue
        words = [word.replace("{out}", str(given.out)) for word in words]
        command = words if words[0].startswith("/") else [str(program), *words]
        begin = time.monotonic()
        status, lines, other = lines_of(command, limit(name), environment(name))
        seconds = round(time.monotonic() - begin, 2)
        result["experiments"][name] = {"status": status, "seconds": seconds, "other": other, "lines": lines}
        # After each, so that nothing is lost.
        file.write_text(written(result))
        print(f"{name}: status {status}, {seconds} s, {len(lines)} lines", *other[-2:], flush=True)
    shutil.rmtree(work)
    return result


def written(result):
    """JSON with a line for each step."""
    head = {key: value for key, value in result.items() if key != "experiments"}
    parts = []
    for name, seen in result["experiments"].items():
        facts = {key: value for key, value in seen.items() if key != "lines"}
        lines = ",\n".join("   " + json.dumps(line) for line in seen["lines"])
        parts.append(f'  {json.dumps(name)}: {json.dumps(facts)[:-1]}, "lines": [\n{lines}\n  ]}}')
    return json.dumps(head, indent=1)[:-2] + ',\n "experiments": {\n' + ",\n".join(parts) + "\n }\n}\n"
