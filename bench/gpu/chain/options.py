"""The options of the scripts that start a real Slurm with softmig, and the machine that they make of them."""
import pathlib
import tempfile

import runner
from place import Place


def parse(doc, **more):
    """Those that all have, and more numbers and words: by name a default and a help text."""
    more = {name: runner.number(*how) for name, how in more.items()}
    return runner.parse(doc, ["stage", "packages", "prepare"], ["stage", "packages"], into_root=runner.flag(), **more)


def place_for(options, name):
    work = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix=f"{name}-"))
    # The user's programs look into it.
    work.chmod(0o755)
    return Place(work, options.stage.resolve(), options.packages.resolve(), options.into_root, options.prepare)
