"""PyTorch below a limit, against PyTorch without one."""
import pathlib
import sys

from alone import WITHOUT, environment
from client import Client

SCRIPT = pathlib.Path(__file__).with_name("torch_work.py")
KINDS = ("training", "inference")
SHARES = (25, 50)
# Of each; in less, a few steps more or less would count.
SECONDS = 8


def names():
    return [f"torch {share} %: {kind}" for share in SHARES for kind in KINDS]


def measure(record, subjects, wanted):
    if not any(map(wanted, names())):
        return
    for subject, share in [(WITHOUT, None)] + [(subject, share) for subject in subjects for share in SHARES]:
        client = None
        for kind in KINDS:
            name = f"torch control: {kind}" if share is None else f"torch {share} %: {kind}"
            if share is not None and not wanted(name):
                continue

            def run():
                nonlocal client
                client = client or Client([sys.executable, SCRIPT], environment(subject, share)).begun(60)
                said = client.ask(f"{kind} {SECONDS}", 60 + 4 * SECONDS)
                control = record.kept["cells"].get(f"torch control: {kind}", {}).get("without", {})
                if share is not None and "rate" in control:
                    said |= {"share": share, "got": round(said["rate"] / control["rate"] * 100, 3)}
                return said
            if record.found(name, subject.name, run) is None and client:
                client.end(kill=True)
                client = None
        if client:
            client.end()
