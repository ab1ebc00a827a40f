"""The frame of each measurement: its options, its folder of work, and /etc/ld.so.preload as its own."""
import argparse
import contextlib
import json
import pathlib
import shutil
import subprocess
import tempfile


PRELOAD = pathlib.Path("/etc/ld.so.preload")


def parse(doc, paths, needs=None, **more):
    """The options of a script, whose --help is `doc`. `paths` are names of paths, --out and --report among them in any case; all that
    `needs` has, or else all of `paths`, has to be given, unless --report is. `more` has for each other option what
    `add_argument` takes."""
    needs = paths if needs is None else needs
    arguments = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in (*paths, "out"):
        arguments.add_argument(f"--{name}", type=pathlib.Path)
    arguments.add_argument("--report", type=pathlib.Path, metavar="FOLDER", help="make the page beside the figures")
    arguments.add_argument("--revision", default="an unknown revision", help="of softmig, for the page")
    for name, how in more.items():
        arguments.add_argument(f"--{name.replace('_', '-')}", **how)
    options = arguments.parse_args()
    missing = [name for name in (*needs, "out") if not getattr(options, name)]
    if missing and not options.report and not getattr(options, "list", False):
        arguments.error(f"give {', '.join(f'--{name}' for name in (*needs, 'out'))}, or --report FOLDER")
    return options


def flag(text=None):
    return {"action": "store_true", "help": text}


def number(default, text):
    return {"type": type(default), "default": default, "help": text}


def page(folder, script, title):
    """What the script wrote as gpu-SCRIPT.json, the GPU and the driver that it names, and how the page beside it begins."""
    found = json.loads((folder / f"gpu-{script}.json").read_text())
    gpu, driver = map(str.strip, found["machine"]["gpu"].split(",")[:2])
    return found, gpu, driver, [f"# {title}", "", f"Written by `bench/gpu/{script}.py --report bench/results` from gpu-{script}.json; do not edit.", ""]


def write_page(folder, script, lines):
    (folder / f"gpu-{script}.md").write_text("\n".join(lines) + "\n")


BUDGET = number(1e9, "begin nothing after so many seconds")


@contextlib.contextmanager
def work_folder(mode=0o755):
    """A folder that goes at the end. Other users run what is in it."""
    work = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    work.chmod(mode)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def own_preload(own):
    """Makes /etc/ld.so.preload the file `own`, in this mount namespace alone. Tells whether there was none before."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    is_new = not PRELOAD.exists()
    if is_new:
        # Only where there is none: an empty one changes nothing for other processes.
        PRELOAD.touch()
    own.write_text("")
    own.chmod(0o644)
    subprocess.run(["mount", "--bind", own, PRELOAD], check=True)
    return is_new


def install(library):
    """Puts the library in its place, and makes /etc/ld.so.preload a file of this mount namespace alone."""
    place = pathlib.Path("/usr/lib/softmig/libsoftmig.so")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, place)
    own_preload(pathlib.Path("/tmp/softmig-ld.so.preload"))
    return place
