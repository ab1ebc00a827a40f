#!/usr/bin/env python3
"""jobstats' own code, with the two lines of docs/usage.md, shows the four slices of gpu-usage.md.

    python3 -m venv VENV && VENV/bin/pip install requests
    VENV/bin/python bench/jobstats.py --jobstats CHECKOUT --out bench/results [--programs target/prometheus/usr/bin]
    python3 bench/jobstats.py --report bench/results

CHECKOUT is a git repository of PrincetonUniversity/jobstats. No package index has it, so CI does not run this. --programs is a
folder with prometheus and promtool; `cargo xtask test` unpacks them into the default. No GPU and no root is needed.

Prometheus gets the exporter's pages of that run, and jobstats asks it. A small program answers in sacct's place. Writes
jobstats.json and jobstats.md, and ends with status 1 if a figure differs. The last form makes the page alone.
"""
import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "gpu" / "usage"), str(HERE / "gpu" / "chain")]
sys.dont_write_bytecode = True

from held import Held, tables
from openmetrics import pages, samples

CLUSTER = "bench"
SCRAPE = f'cluster="{CLUSTER}",instance="gpu01:9836",job="softmig"'
MIB = 1 << 20
# As in usage.py: percent of the slice's time, MiB.
POINTS, WITHIN_MIB = 1, 2
# Utilization is that of the last 10 s, by pages a second apart: after so long it is of the work alone.
FILLED_SECONDS = 12
# The two ways in which jobstats finds a job's samples: GPU_EXPORTER_JOBID of its config.py.
WAYS = {"by jobid": True, "by nvidia_gpu_jobId": False}

# Prints what jobstats asks of sacct; the answers are beside it.
SACCT = """#!/usr/bin/env python3
import json, pathlib, sys
if "-V" in sys.argv:
    sys.exit(print("slurm 22.05.8"))
fields = sys.argv[sys.argv.index("-o") + 1].split(",")
job = json.loads(pathlib.Path(__file__).with_name("jobs.json").read_text())[sys.argv[sys.argv.index("-j") + 1]]
row = {name.lower(): (name, value) for name, value in job.items()}
for column in (0, 1):
    print("|".join(row[field][column] for field in fields))
"""


def jobs_of(run, seen):
    """Each job as sacct has it. Its times are those in which it only worked, and the exporter's last 10 s were full."""
    total = lambda page: sum(float(one) for one in re.findall(r"^softmig_slice_gpu_seconds_total\{.*\} (\S+)$", page, re.M))
    begins = max(at for at, page in seen if total(page) == 0)
    start, end = math.ceil(begins + FILLED_SECONDS), math.floor(begins + run["seconds"])
    shards = dict(re.findall(r'^softmig_slice_info\{.*jobid="(\d+)".*shards="(\d+)"', seen[0][1], re.M))
    jobs = {}
    for name, one in run["jobs"].items():
        number = str(one["job"])
        jobs[number] = {
            "JobIDRaw": number, "Start": str(start), "End": str(end), "Cluster": CLUSTER, "AdminComment": "", "State": "COMPLETED",
            "AllocTRES": f"billing=1,cpu=1,gres/shard={shards[number]},mem=1G,node=1", "User": "softmig-bench", "Account": "bench",
            "NNodes": "1", "NCPUS": "1", "ReqMem": "1G", "QOS": "normal", "Partition": "main", "TimelimitRaw": "5", "JobName": name,
        }
    return jobs


@contextlib.contextmanager
def prometheus(programs, work, seen):
    """One with the pages; gives its URL."""
    (work / "pages.om").write_text("\n".join(samples(seen, "nvidia_gpu_", SCRAPE)) + "\n")
    subprocess.run([programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", work / "pages.om", work / "tsdb"], check=True, stdout=subprocess.DEVNULL)
    # The step of jobstats' subqueries: a page's.
    (work / "prometheus.yml").write_text("global: {evaluation_interval: 1s}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:%d" % free.getsockname()[1]
    child = subprocess.Popen([programs / "prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb", "--storage.tsdb.retention.time=10y",
                              f"--web.listen-address={address}", "--query.lookback-delta=3s", "--log.level=error"])
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=5).close()
                break
            time.sleep(0.1)
        yield f"http://{address}"
    finally:
        child.terminate()
        child.wait(30)


def copy(checkout, folder, lines=""):
    """The last commit's files, with lines below the one that counts GPUs."""
    folder.mkdir()
    archive = subprocess.run(["git", "-C", checkout, "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive)
    source = folder / "jobstats.py"
    text, count = re.subn(r"^ *self\.gpus = int\(.*\n", lambda found: found[0] + lines, source.read_text(), flags=re.M)
    if count != 1:
        sys.exit(f"{source.name} has {count} lines with self.gpus = int(...): correct docs/usage.md")
    source.write_text(text)
    return folder


def asked(program, url, number, by_label):
    """What jobstats keeps of a job."""
    config = program / "config.py"
    mark = "\n# Of the bench:\n"
    config.write_text(config.read_text().split(mark)[0] + f"{mark}PROM_SERVER = {url!r}\nGPU_EXPORTER_JOBID = {by_label}\n")
    own = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "NO_PROXY": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"}
    return json.loads(subprocess.run([sys.executable, program / "jobstats", "--json", number], check=True, stdout=subprocess.PIPE, env=own).stdout)


def only(figures):
    """The one node's one GPU; nothing if jobstats found none."""
    [node] = figures["nodes"].values() or [{}]
    return {name: values["0"] for name, values in node.items() if list(values) == ["0"]}


def compare(held, run, plain, changed, url):
    most = {one["what"].split(":")[0]: float(one["wanted"].split()[0]) for one in run["checks"] if one["what"].endswith("against the most that NVML said")}
    card, reserved = (float(one.split()[0]) for one in run["machine"]["gpu"].split(", ")[2:])
    for name, job in run["jobs"].items():
        number, percent = str(job["job"]), 100 * job["charged_seconds"] / run["seconds"] * job["slice"]
        before = asked(plain, url, number, True)
        held.check("Without the two lines", f"{name}: GPUs", before["gpus"] == 0 and before["nodes"] == {}, before["gpus"], 0)
        held.kept["jobs"][name] = {}
        for way, by_label in WAYS.items():
            figures = only(asked(changed, url, number, by_label))
            held.kept["jobs"][name][way] = figures
            mib = lambda metric: figures[metric] / MIB if metric in figures else None
            held.near(f"With them, {way}", f"{name}: memory used, against the most that NVML said", mib("gpu_used_memory"), most[name], WITHIN_MIB, "MiB")
            held.near(f"With them, {way}", f"{name}: memory in all, against 1/{job['slice']} of the card's", mib("gpu_total_memory"), round((card - reserved) / job["slice"], 2), WITHIN_MIB, "MiB")
            held.near(f"With them, {way}", f"{name}: utilization, against what it was charged", figures.get("gpu_utilization"), round(min(100, percent), 2), POINTS, "% of its share")


def report(folder):
    kept = json.loads((folder / "jobstats.json").read_text())
    lines = [
        "# Slices in jobstats", "",
        "Written by `bench/jobstats.py --report bench/results` from jobstats.json; do not edit.", "",
        f"{kept['date']}, jobstats {kept['jobstats']}, {kept['prometheus']}, Python {kept['python']}.", "",
        "jobstats' own code asked a Prometheus that has the exporter's pages of [gpu-usage.md](gpu-usage.md), in the names of `--view=jobstats`. It had the two lines of [docs/usage.md](../../docs/usage.md#jobstats), taken from that page; as a control it also ran without them. "
        f"A program answered in sacct's place. It said that the jobs ran for {kept['seconds']} of the {kept['worked']:g} s of their work: without the first {FILLED_SECONDS} s, because utilization is that of the last 10 s. CPUs and memory of the host are not measured here.", "",
    ]
    (folder / "jobstats.md").write_text("\n".join(lines + tables(kept["checks"])) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobstats", type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parent / "target" / "prometheus" / "usr" / "bin")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    if options.report:
        return report(options.report)
    if not (options.jobstats and options.out):
        parser.error("--jobstats and --out are missing")
    results = HERE / "results"
    run, seen = json.loads((results / "gpu-usage.json").read_text()), pages(results / "gpu-usage-pages.json.gz")
    page = (HERE.parent / "docs" / "usage.md").read_text()
    lines = re.search(r"^### jobstats\n.*?^```python\n(.*?)^```", page, re.M | re.S)[1]
    jobs = jobs_of(run, seen)
    said = lambda *command: subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "sacct").write_text(SACCT)
        (work / "sacct").chmod(0o755)
        (work / "jobs.json").write_text(json.dumps(jobs))
        one = next(iter(jobs.values()))
        held = Held(options.out, {
            "date": datetime.date.today().isoformat(), "jobstats": said("git", "-C", options.jobstats, "log", "-1", "--format=of %cs, commit %h").strip(),
            "prometheus": " ".join(said(options.programs / "prometheus", "--version").split()[:3]).replace(", version", "").rstrip(","), "python": sys.version.split()[0],
            "seconds": int(one["End"]) - int(one["Start"]), "worked": run["seconds"],
        }, "jobstats")
        with prometheus(options.programs, work, seen) as url:
            compare(held, run, copy(options.jobstats, work / "plain"), copy(options.jobstats, work / "changed", lines), url)
    report(options.out)
    return 1 if held.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
