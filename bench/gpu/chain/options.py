"""The options of the scripts that start a real Slurm with softmig, and the machine that they make of them."""
import argparse
import pathlib
import tempfile

from place import Place


def parse(**more):
    """Those that all have, and more: by name a default and a help text. Exits if there is neither --report nor all that a run needs."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--stage", type=pathlib.Path, help="what cargo xtask stage made")
    arguments.add_argument("--packages", type=pathlib.Path, help="what packages.sh downloaded")
    for name in ("out", "prepare", "report"):
        arguments.add_argument(f"--{name}", type=pathlib.Path)
    arguments.add_argument("--into-root", action="store_true")
    arguments.add_argument("--revision", default="an unknown revision", help="of softmig, for the page")
    for name, (default, text) in more.items():
        arguments.add_argument(f"--{name}", type=type(default), default=default, help=text)
    options = arguments.parse_args()
    if not (options.report or options.stage and options.packages and options.out):
        arguments.error("give --stage, --packages and --out, or --report FOLDER")
    return options


def place_for(options, name):
    work = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix=f"{name}-"))
    # The user's programs look into it.
    work.chmod(0o755)
    return Place(work, options.stage.resolve(), options.packages.resolve(), options.into_root, options.prepare)
