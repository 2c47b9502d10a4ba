"""Slices of a round, checked by the cycles that its seed gives."""

import random
from types import SimpleNamespace

import pytest

from tare.archive.checks.orders import _wrong_slices
from tare.experiments.orders import balanced_orders
from tare.launch.slicing.pacing import draw_quantum

NAMES = ("host", "host.control", "apptainer")
FIRST_US = 900_000


def unit_of(*, whole, first=(0, 0, 0), seed="s", cycles=12):
    """A unit whose launches, where it is `whole`, first have a slice with the quanta `first`, then share cycles."""
    at, slices = 0, {name: [] for name in NAMES}
    if whole:
        for name, quantum in zip(NAMES, first, strict=True):
            slices[name].append((at, FIRST_US, quantum))
            at += FIRST_US
    generator, orders = random.Random(seed), balanced_orders(len(NAMES), random.Random(seed))
    for _ in range(cycles):
        quantum_ms = round(1e3 * draw_quantum(generator))
        for place in next(orders):
            slices[NAMES[place]].append((at, 1000 * quantum_ms, quantum_ms))
            at += 1000 * quantum_ms
    launches = {}
    for name, rows in slices.items():
        began, quiet, quanta = zip(*rows, strict=True)
        own = SimpleNamespace(arrived_ns=0, began_us=began, quiet_us=quiet, quantum_ms=quanta)
        launches[name] = SimpleNamespace(status="ok", slices=own)
    launches["docker"] = SimpleNamespace(status="skipped", slices=None)
    return SimpleNamespace(order=["docker", *NAMES], launches=launches, whole=("apptainer",) if whole else ())


@pytest.mark.parametrize("whole", [False, True])
def test_slices_follow_from_the_seed_and_from_no_other(whole):
    assert _wrong_slices(unit_of(whole=whole), "s") is None
    assert "not those of the cycles" in _wrong_slices(unit_of(whole=whole), "another")


def test_what_came_whole_to_its_first_gate_has_one_slice_for_that():
    assert "apptainer was to come" in _wrong_slices(unit_of(whole=True, first=(0, 0, 40)), "s")
    unit = unit_of(whole=True)
    own = unit.launches["host"].slices
    own.quantum_ms = (*own.quantum_ms[:5], 0, *own.quantum_ms[6:])
    assert "not those of the cycles" in _wrong_slices(unit, "s")
