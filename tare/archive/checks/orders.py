"""Orders, paddings and slices, drawn again from the seed in the plan."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tare.archive.checks.found import Notes
from tare.archive.checks.tree import Campaign, Measured, Tree
from tare.experiments import sliced
from tare.experiments.designs import seed_of, unit_order
from tare.experiments.orders import balanced_orders
from tare.launch.slicing.pacing import draw_quantum
from tare.model.journals.units import WARM
from tare.model.records.campaigns import Plan, Unit
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST, SHARED, SINGLE
from tare.model.roles import LaunchRole, read_role, started

# Cycles in which no job of a round got a slice: each was ahead of its pace. More of them, and other seeds fit too.
MOST_EMPTY, MOST_EMPTY_SHARE = 5, 0.05

Drawn = tuple[list[str], dict[str, int]]  # the order of a unit's launches, and the padding of each


def orders(tree: Tree, notes: Notes) -> None:
    """The order of every unit's launches and the padding of each are those that the plan's seed gives."""
    for measured in tree.measured:
        for campaign in measured.campaigns:
            plan = campaign.plan
            if plan is None or campaign.rows is None:
                notes.leave(campaign.name, campaign.problem or "it has no plan")
                continue
            if plan.order_seed is None:
                notes.leave(campaign.name, "its plan is of a version without its own seed")
                continue
            for unit in campaign.units:
                notes.look("units")
                wrong = _wrong_order(measured, campaign, plan, unit)
                if wrong is not None:
                    notes.fail(f"{campaign.name} unit {unit.unit}", wrong)


def _wrong_order(measured: Measured, campaign: Campaign, plan: Plan, unit: Unit) -> str | None:
    if unit.voided is not None and not unit.launches:
        return None  # what had to run alongside did not: nothing was launched
    wrong = None
    for order, pads in _possible(measured, campaign, plan, unit):
        wrong = _differs(plan, unit, order, pads)
        if wrong is None:
            return None
    return wrong


def _differs(plan: Plan, unit: Unit, order: Sequence[str], pads: dict[str, int]) -> str | None:
    if list(unit.order) != list(order):
        return f"its order is {', '.join(unit.order)}, and the seed gives {', '.join(order)}"
    first = next((pads[name] for name in order if name in pads), None)
    for name, launch in unit.launches.items():
        wanted = {pads.get(name, pads.get(read_role(name).place.name)), first if plan.batches else None} - {None}
        if launch.pad_bytes is not None and wanted and launch.pad_bytes not in wanted:
            given = " or ".join(sorted(map(str, wanted)))
            return f"the padding of {name} is {launch.pad_bytes} bytes, and the seed gives {given}"
    return None


def _possible(measured: Measured, campaign: Campaign, plan: Plan, unit: Unit) -> Iterator[Drawn]:
    """What the seed can give for a unit; more than one where the journal does not say how it was launched."""
    done = campaign.units[: unit.unit]
    if plan.kind == "sweep":
        names = [LaunchRole(environment=HOST, batch=batch).name for batch in plan.batches or ()]
        order, pads = unit_order(plan, done, names)
        yield (order[:1] if unit.unit < plan.discarded else order), pads
    elif plan.kind == "starts":
        order, pads = unit_order(plan, done, plan.launch_names)
        yield [started(name, phase) for name in order for phase in plan.spec.phases], pads
    elif plan.kind == "causes":
        # One launch serves the campaigns of several workloads: the first of them draws for all.
        others = [one for one in measured.campaigns if one.plan is not None and one.plan.kind == "causes"]
        for one in (campaign, *others):
            if one.plan is not None and one.plan.launch_names == plan.launch_names:
                yield _of_causes(one.plan, one.units[: unit.unit])
    elif plan.scenario == SHARED:
        order, pads = unit_order(plan, done, plan.launch_names)
        warms = sum(one.voided is None for one in done) < plan.discarded and plan.conditions.page_cache == WARM
        yield ([name for name in order if read_role(name).is_alone] if warms else order), pads
    else:
        for every in dict.fromkeys((len(sliced.groups(plan, done)) if plan.scenario == SINGLE else 1, 1)):
            yield unit_order(plan, done, plan.launch_names, every=every)


def _of_causes(plan: Plan, done: Sequence[Unit]) -> Drawn:
    order, pads = unit_order(plan, done, plan.launch_names)
    lists = all(one.voided is not None for one in done)  # the host says which files the imports need
    return ([HOST] if lists and plan.conditions.page_cache != WARM else order), pads


class Slice(NamedTuple):
    """One slice of a round: its start on the clock, its length until all was quiet, whose it is, its quantum."""

    at_us: int
    quiet_us: int
    launch: str
    quantum_ms: int


def slices_of(unit: Unit) -> list[Slice]:
    """All slices of a unit, in order of time."""
    found = []
    for name, launch in unit.launches.items():
        if (own := launch.slices) is not None:
            first_us = own.arrived_ns // 1000
            rows = zip(own.began_us, own.quiet_us, own.quantum_ms, strict=True)
            found += [Slice(first_us + began, quiet, name, quantum) for began, quiet, quantum in rows]
    return sorted(found)


def quanta(tree: Tree, notes: Notes) -> None:
    """Who had the machine in a sliced round, and for how long it was meant to be, follows from the plan's seed."""
    for _, campaign, plan in tree.campaigns():
        for unit in campaign.units:
            slicing = unit.slicing or {}
            where = f"{campaign.name} unit {unit.unit}"
            wanted = f"{seed_of(plan)}/{unit.unit}/slices"
            if slicing and plan.order_seed is not None and slicing.get("seed") != wanted:
                notes.fail(where, f"its slices have the seed {slicing.get('seed')}, which is not that of its plan")
            elif (slicing.get("pace") or unit.whole) and (unit.counts or unit.is_rehearsal):
                notes.look("sliced rounds")
                if (wrong := _wrong_slices(unit, str(slicing["seed"]))) is not None:
                    notes.fail(where, wrong)


def _tried(unit: Unit) -> dict[str, LaunchRecord]:
    return {name: unit.launches[name] for name in unit.order if unit.launches[name].status != "skipped"}


def _wrong_slices(unit: Unit, seed: str) -> str | None:
    """Why the slices of a round are no part of the cycles that a seed gives."""
    names = list(_tried(unit))
    if not names:
        return None
    generator, cycles = random.Random(seed), balanced_orders(len(names), random.Random(seed))
    number, empty, last_used = -1, 0, -1
    left: list[str] = []
    quantum_ms = 0
    whole = set(names) if unit.whole else set()  # who has yet to come to its first gate in one slice
    for one in slices_of(unit):
        if one.launch in whole:
            whole.remove(one.launch)
            if one.quantum_ms:
                return f"{one.launch} was to come to its first gate in one slice, and did not"
            continue
        if one.launch not in names:
            return f"{one.launch} has slices, and is none of the launches of the round"
        while one.quantum_ms != quantum_ms or one.launch not in left:
            if empty + number - last_used > MOST_EMPTY + MOST_EMPTY_SHARE * (number + 1):
                return f"its slices are not those of the cycles that the seed gives (from cycle {last_used + 1} on)"
            quantum_ms = round(1e3 * draw_quantum(generator))
            left = [names[place] for place in next(cycles)]
            number += 1
        left = left[left.index(one.launch) + 1 :]
        empty += max(0, number - last_used - 1)
        last_used = number
    return None
