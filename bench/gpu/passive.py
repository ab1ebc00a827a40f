#!/usr/bin/env python3
"""On a machine with a GPU: ordinary programs with the hook and without it give the same output at the same speed.

    unshare --mount python3 bench/gpu/passive.py --library libsoftmig.so --rows rows.txt --out FOLDER [--only WORD... --keep FILE]
    python3 bench/gpu/passive.py --report bench/results

The first as root, in a mount namespace of its own, because the library is put into /etc/ld.so.preload there. Needs a C
compiler, nvcc and, for those parts, PyTorch, JAX and CuPy; what is missing is named in the result. Writes
FOLDER/gpu-passive.json, which belongs to bench/results. The two ways of each program take turns. The second makes the
page beside the figures, on any machine.
"""
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "compute"))
sys.dont_write_bytecode = True

import runner
from runner import PRELOAD

from machine import driver_library, include_folder, machine

# Lines of nvidia-smi that change by themselves.
VOLATILE = re.compile(r"Timestamp|Temp|Power|Draw|Clock|Util|Violation|Energy|Fan|Graphics +:|SM +:|Memory +: \d+ MHz|Video|MHz|Gpu +:|Throughput|Duration|Counter|\d\d:\d\d:\d\d|\d+W|\d+C|\d+ ms|Samples|Avg|Active$| %$|Max +:|Min +:")


def main():
    options = runner.parse(
        __doc__, ["library", "rows", "keep"], ["library", "rows"],
        rounds=runner.number(8, "of each program"),
        only={"nargs": "*", "help": "these programs, by the first words of their names, and nothing else; needs --keep"},
    )
    if options.report:
        return report(options.report)
    library = runner.install(options.library)
    with runner.work_folder() as work:
        measure(options, library, work)


def measure(options, library, work):
    missing = []
    programs = build(work, rows(options.rows), missing)
    result = json.loads(options.keep.read_text()) if options.keep else {"programs": {}}
    result |= {"machine": machine(), "missing": missing, "revision": options.revision}
    for name, command in programs.items():
        if options.only and not name.startswith(tuple(options.only)):
            continue
        result["programs"][name] = compare(library, command, options.rounds, volatile=name.startswith("nvidia-smi"))
        print(name, json.dumps(result["programs"][name])[:400], flush=True)
    if not options.only:
        inside(library, work, options, result)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu-passive.json").write_text(json.dumps(result, indent=1) + "\n")


def inside(library, work, options, result):
    """What is no comparison of programs."""
    result["reach"] = reach(library, [str(work / "reach")], rows(options.rows))
    print("reach", json.dumps(result["reach"])[:600], flush=True)
    result["exec"] = times(run(None, [str(work / "exec"), str(library), str(work / "empty.so")])[1])
    result["calls"] = calls(library, [str(work / "calls")])
    print("exec", result["exec"], "calls", result["calls"], flush=True)
    result["jobs"] = jobs(library, [str(work / "sample_static")])
    print("jobs", json.dumps(result["jobs"])[:1500], flush=True)


def rows(path):
    return [word for word in path.read_text().split("\n") if word and not word.startswith("#")]


def build(work, names, missing):
    """Compiles what has to be, and names what cannot be run here."""
    (work / "rows.h").write_text("".join(f"ROW({name})\n" for name in names))
    driver = driver_library()
    nvml = driver.replace("libcuda.so.1", "libnvidia-ml.so.1")
    cc = ["cc", "-O2", f"-I{include_folder()}", f"-I{work}"]
    subprocess.run([*cc, HERE / "reach.c", "-o", work / "reach", "-Wl,--no-as-needed", driver, nvml, "-ldl"], check=True)
    subprocess.run([*cc, HERE / "calls.c", "-o", work / "calls", driver], check=True)
    subprocess.run([*cc, HERE / "exec.c", "-o", work / "exec"], check=True)
    # What the loader takes for any library at all.
    (work / "empty.c").write_text("")
    subprocess.run(["cc", "-shared", "-nostdlib", "-Wl,-z,noseparate-code", "-o", work / "empty.so", work / "empty.c"], check=True)
    programs = {}
    for runtime in ["static", "shared"]:
        binary = work / f"sample_{runtime}"
        built = subprocess.run(["nvcc", "-O2", f"-cudart={runtime}", HERE / "sample.cu", "-o", binary], capture_output=True, text=True)
        if built.returncode:
            missing.append({f"sample_{runtime}": built.stderr[-300:]})
        else:
            programs[f"sample, {runtime} runtime"] = [str(binary)]
    for name, words in {
        "nvidia-smi": [],
        "nvidia-smi -L": ["-L"],
        "nvidia-smi -q": ["-q"],
        "nvidia-smi --query-gpu": ["--query-gpu=name,uuid,memory.total,memory.reserved,driver_version", "--format=csv"],
        "nvidia-smi --query-compute-apps": ["--query-compute-apps=pid,used_memory", "--format=csv"],
    }.items():
        programs[name] = ["nvidia-smi", *words]
    for module, script in [("torch", "torch_step.py"), ("jax", "jax_step.py"), ("cupy", "cupy_step.py")]:
        if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
            missing.append(module)
        else:
            programs[module] = [sys.executable, str(HERE / script)]
    return programs


def run(library, command, environment=None, **more):
    """Runs a command with the library in /etc/ld.so.preload, or without one."""
    PRELOAD.write_text(f"{library}\n" if library else "")
    try:
        environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **(environment or {})}
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, **more)
        return done.returncode, done.stdout, done.stderr
    finally:
        PRELOAD.write_text("")


def times(output):
    return {words[1]: float(words[2]) for words in map(str.split, output.splitlines()) if len(words) == 3 and words[0] == "time"}


def said(output, volatile):
    lines = [line for line in output.splitlines() if not line.startswith("time ")]
    return [line for line in lines if not volatile or not VOLATILE.search(line)]


def compare(library, command, rounds, volatile):
    ways = {"without": [], "with": []}
    for number in range(rounds):
        # The second run finds a warmer machine.
        for way, preloaded in [("without", None), ("with", library)][:: -1 if number % 2 else 1]:
            ways[way].append(run(preloaded, command))
    first = ways["without"][0]
    texts = {way: [(code, said(out, volatile)) for code, out, _ in runs] for way, runs in ways.items()}
    comparison = {
        "status": first[0],
        "same_output": all(text == texts["without"][0] for text in texts["without"] + texts["with"]),
        "lines_compared": len(texts["without"][0][1]),
        "stderr_with": sorted({err[-300:] for _, _, err in ways["with"]} - {err[-300:] for _, _, err in ways["without"]})[:2],
    }
    if not comparison["same_output"]:
        other = next(text for text in texts["without"] + texts["with"] if text != texts["without"][0])
        lines = [set(text[1]) for text in (texts["without"][0], other)]
        comparison["difference"] = [sorted(lines[0] - lines[1])[:5], sorted(lines[1] - lines[0])[:5]]
    # The fastest of all rounds: whatever disturbs a run makes it slower.
    seen = {way: [times(out) for _, out, _ in runs] for way, runs in ways.items()}
    for key in seen["without"][0]:
        pair = [min(run[key] for run in seen[way] if key in run) for way in ("without", "with")]
        comparison[key] = {"without": pair[0], "with": pair[1], "ratio": round(pair[1] / pair[0], 4)}
    return comparison


def reach(library, command, names):
    """Which ways to a row end in the driver in spite of the hook, and which answers differ otherwise."""
    parse = lambda text: {(w[0], w[1]): (w[2], w[3]) for w in map(str.split, text.splitlines()) if len(w) == 4}
    without, with_it = parse(run(None, command)[1]), parse(run(library, command)[1])
    table = set(names)
    escaped, wrong, counted, absent = [], [], {}, set()
    for (way, name), (place, symbol) in without.items():
        there = with_it.get((way, name))
        kind = way.split(":")[0]
        if place == "-":
            # No such function in this driver: the hook must not invent one, except for a weak reference, which finds it.
            if kind not in ("linked", "default") and (there is None or there[0] != "-"):
                wrong.append([way, name, there])
            absent.add(name) if kind == "dlsym" else None
            continue
        counted[kind] = counted.get(kind, 0) + 1
        if there is None:
            wrong.append([way, name, "no answer"])
        elif symbol in table and there[0] != "libsoftmig.so":
            escaped.append([way, name, symbol])
        elif symbol in table and there[1] != symbol:
            wrong.append([way, name, symbol, there[1]])
    return {"answers": counted, "escaped": escaped, "wrong": wrong[:20], "not_in_this_driver": sorted(absent)}


def calls(library, command, rounds=7):
    ways = {"without": (None, {}), "passive": (library, {}), "limited": (library, {"CUDA_DEVICE_MEMORY_LIMIT": "40G"})}
    seen = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (preloaded, environment) in ways.items():
            seen[way].append(times(run(preloaded, command, environment)[1]))
    keys = seen["without"][0]
    medians = {way: {key: statistics.median(run[key] for run in runs) for key in keys} for way, runs in seen.items()}
    more = lambda way, key: round(statistics.median(a[key] - b[key] for a, b in zip(seen[way], seen["without"])), 3)
    return {"medians": medians, "more": {way: {key: more(way, key) for key in keys} for way in ("passive", "limited")}}


def jobs(library, command):
    """A process in a control group like a job's, with and without a conf, and one that tries to get out."""
    scope = pathlib.Path("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_9")
    try:
        scope.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return {"not_run": str(error)}
    etc, run_folder = pathlib.Path("/etc/softmig"), pathlib.Path("/var/run/softmig")
    for folder in (etc, run_folder):
        folder.mkdir(parents=True, exist_ok=True)
    (etc / "node.conf").write_text("SOFTMIG_NODE=enforce\n")
    conf = run_folder / "9.conf"
    text = "CUDA_DEVICE_MEMORY_LIMIT=35788M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_UID=65534\nSOFTMIG_TYPE=h200\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n"

    def inside(*prefix, log="3"):
        enter = f"echo $$ > {scope}/cgroup.procs; exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\""
        status, out, err = run(library, ["sh", "-c", enter, "sh", *prefix, *command], {"SOFTMIG_LOG_LEVEL": log})
        return {"status": status, "stdout": out.splitlines()[:1], "stderr": [re.sub(r"^\S+ softmig\[\d+\] ", "", line) for line in err.splitlines()][:3]}

    seen = {"no conf": inside()}
    conf.write_text(text)
    uuid = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True).stdout.split()[0]
    for mark in (run_folder / "gpu" / uuid / "9", run_folder / "uid" / "65534" / "9"):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    seen["slice"] = inside()
    seen["slice, env -i"] = inside("env", "-i", "SOFTMIG_LOG_LEVEL=3", f"LD_LIBRARY_PATH={os.environ.get('LD_LIBRARY_PATH', '')}")
    seen["slice, user namespace"] = inside("unshare", "-r")
    seen["slice, control group namespace"] = inside("unshare", "-r", "-C")
    shutil.rmtree(run_folder / "gpu")
    shutil.rmtree(run_folder / "uid")
    conf.write_text("SOFTMIG_UID=65534\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n")
    seen["whole"] = inside()
    conf.unlink()
    (etc / "node.conf").write_text("SOFTMIG_NODE=observe\n")
    seen["no conf, observed"] = inside()
    (etc / "node.conf").unlink()
    scope.rmdir()
    return seen


def report(folder):
    """Writes gpu-passive.md from gpu-passive.json."""
    result = json.loads((folder / "gpu-passive.json").read_text())
    gpu, driver = map(str.strip, result["machine"]["gpu"].split(",")[:2])
    lines = [
        "# The hook on a real GPU, passive",
        "",
        "Written by `bench/gpu/passive.py --report bench/results` from gpu-passive.json; do not edit.",
        "",
        f"{gpu}, driver {driver}, {result['machine']['libc']}, library of {result.get('revision', 'an unknown revision')}. Each program ran in turns without the library and with it in /etc/ld.so.preload; the fastest of all rounds counts.",
        "",
        "| program | same output | without | with | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, program in result["programs"].items():
        same = "yes" if program["same_output"] else "**no**"
        timed = [key for key in program if key.endswith("_ns")]
        if not timed:
            lines.append(f"| {name} | {same}, lines: {program['lines_compared']} | | | |")
        for key in timed:
            pair = program[key]
            what = key[: -len("_ns")].replace("_", " ")
            lines.append(f"| {name}: {what} | {same} | {pair['without'] / 1e3:.2f} us | {pair['with'] / 1e3:.2f} us | {pair['ratio']:.3f} |")
    reach = result["reach"]
    ways = ", ".join(f"{count} {way}" for way, count in reach["answers"].items())
    medians, more = result["calls"]["medians"]["without"], result["calls"]["more"]
    ran = result["exec"]
    lines += [
        "",
        "Of nvidia-smi's lines those that change by themselves are left out (clocks, temperatures, power, times, load).",
        "",
        f"**Ways to the driver.** For each function of the table the answer of every way was compared (`first` and `second` are the two forms of cuGetProcAddress, with 14 versions and three flags): {ways}. Past the hook led {len(reach['escaped'])}, wrong otherwise were {len(reach['wrong'])}. Not in this driver: {', '.join(reach['not_in_this_driver']) or 'none'}. Where `dlvsym` is missing, the driver's symbols have no versions and it finds none.",
        "",
        "| call | without | passive | limited | target |",
        "| --- | --- | --- | --- | --- |",
        f"| cuInit | {medians['init_ns'] / 1e6:.1f} ms | {more['passive']['init_ns'] / 1e6:+.2f} ms | {more['limited']['init_ns'] / 1e6:+.2f} ms | +1 ms |",
        f"| cuCtxGetDevice | {medians['get_device_ns']:.2f} ns | {more['passive']['get_device_ns']:+.2f} ns | {more['limited']['get_device_ns']:+.2f} ns | +5 and +10 ns |",
        "",
        f"| exec of /bin/true ({ran['exec_without_us']:.0f} us without) | LD_PRELOAD | /etc/ld.so.preload |",
        "| --- | --- | --- |",
        f"| libsoftmig.so | {ran['exec_ld_preload_more_us']:+.1f} us | {ran['exec_ld_so_preload_more_us']:+.1f} us |",
        f"| a library that holds nothing | {ran['exec_empty_ld_preload_more_us']:+.1f} us | {ran['exec_empty_ld_so_preload_more_us']:+.1f} us |",
        "",
        "The median of the differences within each of 3000 rounds. Where the machine is a guest, they move by more than they are: compare the two lines.",
        "",
        "**In a control group like a job's**, with the conf that the prolog writes:",
        "",
    ]
    for name, job in result["jobs"].items():
        lines.append(f"- {name}: `{' '.join(job['stdout'])}`; the library says: {'; '.join(job['stderr']) or 'nothing'}")
    (folder / "gpu-passive.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
