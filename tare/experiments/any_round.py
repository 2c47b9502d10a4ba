"""One sliced round of any launches, for what plans no campaign: benchmarks, and candidates of a choice."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence

from tare.experiments import sliced
from tare.experiments.orders import balanced_orders
from tare.launch.run import Order
from tare.launch.slicing.rounds import Way, run_launches
from tare.machine import others
from tare.model.journals.units import others_in
from tare.model.records.campaigns import Others, Unit


def sliced_round(orders: Mapping[str, Order], done: Sequence[Unit], generator: random.Random) -> Unit:
    """The next round: the first that is whole lets every launch run to its end, those after it are sliced.

    The first sliced one does not count where it can't be paced (`sliced.rehearses`). `orders`: by name of the
    launch. `done`: the rounds before it. `generator`: of the order in which launches are started, of that in
    cycles, and of the quanta. Returns the round; it is void where one of its launches failed, or where it only sets
    the pace.
    """
    names = generator.sample(sorted(orders), len(orders))
    calibrates = not any(unit.voided is None for unit in done)
    pace = None if calibrates else sliced.pace_of(done, names)
    calibration = sliced.calibration_of(done)
    rehearsal = None if calibration is None else sliced.rehearses(done, calibration)
    places = itertools.repeat(range(len(names))) if calibrates else balanced_orders(len(names), generator)
    way = Way(pace=pace, orders=places, seed=str(generator.random()))
    used: list[Others | None] = []
    started = time.monotonic()
    with others.watched(used):
        found = run_launches({name: orders[name] for name in names}, way)
    failed = [f"{name}: {one.reason}" for name, one in found.records.items() if not one.ok]
    return Unit(
        unit=len(done),
        discarded=calibrates,
        voided=found.voided or (failed[0] if failed else rehearsal),
        cost_s=time.monotonic() - started,
        order=tuple(names),
        launches=found.records,
        slicing={"rehearsal": rehearsal is not None and not found.voided and not failed},
        others=others_in(used),
    )
