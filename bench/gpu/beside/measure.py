"""One mix: its programs are started once with softmig and once without, each runs alone, and then all together."""
import pathlib
import shutil
import traceback

from mixes import share, title
from node import Job
from programs import Program, Trouble, window

# After each go, s.
SETTLE = 0.5
# Of the seconds of a mix: those of one program alone on the whole GPU, and alone in its slice, where long kernels end seldom.
WHOLE, SLICE = 0.7, 1.4
FIRST_JOB = 7000


class Group:
    """The programs of a mix, ready and parked."""

    def __init__(self, stage, mix, number, node=None, mode="hard", extra=None):
        self.node, self.jobs, self.programs = node, [], []
        try:
            for at, (_, shards, per_gpu) in enumerate(mix):
                self.jobs.append(Job(node, FIRST_JOB + 100 * number + at, shards, per_gpu, mode) if node else None)
            if node:
                node.preload(True)
            for (name, *_), job in zip(mix, self.jobs):
                self.programs.append(Program(stage, name, job, extra))
            for program in self.programs:
                program.ready()
            if node:
                node.preload(False)
        except BaseException:
            print(*(f"a job's log: {line}" for line in self.said()), sep="\n", flush=True)
            self.end(kill=True)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end(kill=kind is not None)

    def said(self):
        """What the jobs' logs say."""
        return [line for job in self.jobs if job for line in job.log()][:6]

    def end(self, kill=False):
        if self.node:
            self.node.preload(False)
        for program in self.programs:
            program.stop()
        for program in self.programs:
            if kill:
                program.talk.kill()
            program.talk.end()
        for job in self.jobs:
            if job:
                job.end()


def each_alone(figures, programs, seconds):
    """Each on the whole GPU."""
    for program in programs:
        if program.name not in figures.of("whole"):
            found = window([program], seconds * WHOLE, SETTLE)[0]
            if not found["units"]:
                raise Trouble(f"{program.name} got nothing done on the whole GPU")
            figures.keep("whole", program.name, found)


def whole(figures, stage, number, mix, seconds):
    """Each on the whole GPU, of those for which that is not known."""
    unknown = [one for one in mix if one[0] not in figures.of("whole")]
    if unknown:
        with Group(stage, unknown, number) as group:
            each_alone(figures, group.programs, seconds)


def plain(figures, stage, number, mix, seconds, extra):
    """Each on the whole GPU, and all by the driver's own time-slicing."""
    with Group(stage, mix, number, extra=extra) as group:
        each_alone(figures, group.programs, seconds)
        figures.keep_mix(title(mix), "plain", window(group.programs, seconds, SETTLE))


def softmig(figures, stage, number, mix, seconds, node, mode, extra):
    """Each alone in its slice, and all in theirs."""
    with Group(stage, mix, number, node, mode, extra) as group:
        for program, (name, *shards) in zip(group.programs, mix):
            key = f"{name} {share(*shards)}"
            if key not in figures.of("slices"):
                figures.keep("slices", key, window([program], seconds * SLICE, SETTLE)[0])
        figures.keep_mix(title(mix), "softmig", window(group.programs, seconds, SETTLE), group.said())


def turns(figures, stage, node, number, mix, options):
    """With softmig and without it in turns, on the same programs: the sum of all paces, each time."""
    key = f"{options.mode} | {title(mix)}"
    if key in figures.kept.setdefault("turns", {}):
        return
    with Group(stage, mix, number) as plainly, Group(stage, mix, number, node, options.mode) as sliced:
        each_alone(figures, plainly.programs, options.seconds)
        runs = [[window(group.programs, options.seconds, SETTLE) for group in (plainly, sliced)] for _ in range(options.turns)]
    figures.keep_turns(key, runs)


def measure(figures, stage, node, number, mix, options):
    """What is missing of a mix: plain first, since the other is shown as a part of it."""
    name = title(mix)
    extra = options.preload and shutil.copy(options.preload, stage.work / "extra.so")
    needs = {"softmig": options.only != "plain" and not figures.has_mix(name, "softmig")}
    # On another machine the control is to be from there too.
    unknown = needs["softmig"] and any(one[0] not in figures.of("whole") for one in mix)
    needs["plain"] = options.only != "softmig" and (not figures.has_mix(name, "plain") or unknown)
    for subject in ("plain", "softmig"):
        if not needs[subject]:
            continue
        if figures.time_is_up():
            return figures.say(f"no time left for {subject} | {name}")
        try:
            if subject == "plain":
                plain(figures, stage, number, mix, options.seconds, extra if options.only == "plain" else None)
            else:
                softmig(figures, stage, number, mix, options.seconds, node, options.mode, extra)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            figures.fail(name, subject, f"{type(error).__name__}: {error}; {pathlib.Path(at.filename).name}:{at.lineno}")
