"""Own time of a launch's phases, as its marks have it."""

import itertools

MARKS = ("entry", "imports", "first_step", "epoch_end", "measured_end")


def phases_of(launch):
    """Own seconds from a program's first instruction to each mark that it has, and to its end."""
    slices = launch.slices
    marks = [mark for mark in launch.inside.marks if mark.name in MARKS]
    instants = [slices.arrived_ns, *(mark.at_ns for mark in marks), int(slices.own_ns(slices.ended_ns))]
    return [(later - earlier) / 1e9 for earlier, later in itertools.pairwise(instants)]
