"""Mixes whose programs have a past, and what each got in the first seconds after it."""
import time

from measure import Group, whole
from mixes import title

# For how long the first program is alone, or others before the next one comes; and the pause in which the others come, s.
ALONE, NEXT, PAUSE = 60, 5, 0.02


def alone(programs):
    """The first has the GPU for itself, and pauses for a moment when the others come."""
    first, *others = programs
    first.go()
    time.sleep(ALONE)
    first.rest()
    first.parked()
    for other in others:
        other.go()
    time.sleep(PAUSE)
    first.go()


def in_turn(programs):
    """One comes after the other."""
    for program in programs:
        program.go()
        time.sleep(NEXT)


def comes_back(programs):
    """All are there, and the first leaves for a while."""
    for program in programs:
        program.go()
    time.sleep(NEXT)
    programs[0].rest()
    programs[0].parked()
    time.sleep(NEXT)
    programs[0].go()


PASTS = {
    "alone": (alone, f"the first was alone for {ALONE} s, and at a pause when the others came"),
    "in turn": (in_turn, f"one came after the other, {NEXT} s apart"),
    "comes back": (comes_back, f"the first was away for {NEXT} s"),
}


def measure(figures, stage, node, number, past, options):
    """What is missing of one."""
    kind, mode, mix = past
    key = f"{kind} | {mode} | {title(mix)} | {options.revision}"
    if key in figures.kept.setdefault("pasts", {}):
        return
    if figures.time_is_up():
        return figures.say(f"no time left for {key}")
    whole(figures, stage, number, mix, options.seconds)
    with Group(stage, mix, 50 + number, node, mode) as group:
        PASTS[kind][0](group.programs)
        before = [program.look() for program in group.programs]
        time.sleep(options.seconds)
        after = [program.look() for program in group.programs]
        for program in group.programs:
            program.rest()
        for program in group.programs:
            program.parked()
        found = [program.between(*looks) for program, *looks in zip(group.programs, before, after)]
    figures.keep_past(key, found, options.seconds)
