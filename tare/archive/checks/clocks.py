"""Clocks of launches, units and slices: that they go on, and that no two things ran at once that may not.

Instants of a launch that ran in slices are in its own time; those of its slices are the clock's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tare.archive.checks.found import Notes
from tare.archive.checks.orders import slices_of
from tare.archive.checks.tree import Campaign, Tree
from tare.model.records.campaigns import Plan, Unit
from tare.model.records.launches import Inside, LaunchRecord, Mark
from tare.model.records.slices import Slices

ROUNDED_US = 2  # instants of slices are whole microseconds, each cut off for itself
AROUND_S = 0.5  # by which a unit's seconds may be fewer than those of its launches: they are rounded
LATE_CPU_S = 0.02  # of processor time that may be booked after a slice
TICK_S = 0.1  # processor time of marks is counted in ticks, and starts before the first instruction
BEFORE_S = 0.5  # of processor time that a program may have used before it came to its first instruction


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """When something had the machine, on its clock."""

    start_ns: int
    end_ns: int
    where: str
    boot: str | None  # which start of the machine's kernel it was, where anything says it
    launches: frozenset[str]  # names of its launches, which units of several campaigns may share


def instants(tree: Tree, notes: Notes) -> None:
    """Launches of a unit started in its order, no two units ran at once, and each took its seconds."""
    by_boot: dict[Any, list[Stretch]] = defaultdict(list)
    for measured, campaign, _ in tree.campaigns():
        before: Stretch | None = None
        for unit in campaign.units:
            where = f"{campaign.name} unit {unit.unit}"
            _started_in_order(unit, where, notes)
            stretch = _stretch(unit.launches.values(), where)
            if stretch is None:
                continue
            notes.look("units")
            same = before is not None and stretch.boot is not None and stretch.boot == before.boot
            if before is not None and same and stretch.start_ns < before.start_ns:
                notes.fail(where, f"was made before {before.where.rpartition(' unit ')[2]}, which precedes it")
            before = stretch
            if tree.original(campaign) is None:
                by_boot[measured.machine, stretch.boot or campaign.name].append(stretch)
    for measured in tree.measured:
        for path, profile, _ in measured.profiles:
            own = _stretch([profile], tree.name(path)) if profile is not None else None
            if own is not None:
                by_boot[measured.machine, own.boot or own.where].append(own)
    shared = {one.where: one for each in by_boot.values() for one in _overlaps(each, notes)}
    for _, campaign, _ in tree.campaigns():
        for unit in campaign.units:
            _took(unit, f"{campaign.name} unit {unit.unit}", shared, notes)


def _started_in_order(unit: Unit, where: str, notes: Notes) -> None:
    spawned = [(name, unit.launches[name].spawn_ns) for name in unit.order if name in unit.launches]
    known = [(name, at) for name, at in spawned if at is not None]
    for (earlier, before), (later, after) in pairwise(known):
        if after < before:
            notes.fail(where, f"{later} comes after {earlier} in its order, and was started before it")


def _stretch(launches: Collection[LaunchRecord], where: str) -> Stretch | None:
    """From the first start to the last end of some launches; None where none has both."""
    ends = [(one.spawn_ns, _clock_end(one)) for one in launches]
    known = [(start, end) for start, end in ends if start is not None and end is not None]
    if not known:
        return None
    return Stretch(
        start_ns=min(start for start, _ in known),
        end_ns=max(end for _, end in known),
        where=where,
        boot=_boot(launches),
        launches=frozenset(one.launch for one in launches if one.launch is not None),
    )


def _clock_end(launch: LaunchRecord) -> int | None:
    return launch.end_ns if launch.slices is None else launch.slices.end_ns


def _boot(launches: Iterable[LaunchRecord]) -> str | None:
    """Which start of the machine's kernel it was; None where no launch says it."""
    boots = [one.inside.facts.boot_id for one in launches if one.inside is not None and one.vm is None]
    return next(filter(None, boots), None)


def _overlaps(stretches: Sequence[Stretch], notes: Notes) -> Iterator[Stretch]:
    """Note what ran at once; yields what units of several campaigns made together."""
    running: list[Stretch] = []
    for one in sorted(stretches, key=lambda one: (one.start_ns, one.end_ns, one.where)):
        running = [other for other in running if other.end_ns > one.start_ns]
        for other in running:
            if one.launches & other.launches:
                yield from (one, other)
            else:
                early_s = (other.end_ns - one.start_ns) / 1e9
                notes.fail(one.where, f"began {early_s:.3g} s before {other.where} ended")
        running.append(one)


def _took(unit: Unit, where: str, shared: Any, notes: Notes) -> None:
    stretch = _stretch(unit.launches.values(), where)
    if stretch is None or where in shared:
        return
    took_s = (stretch.end_ns - stretch.start_ns) / 1e9
    if took_s > unit.cost_s + AROUND_S:
        notes.fail(where, f"says that it took {unit.cost_s:.1f} s, and its launches took {took_s:.1f} s")


# --- within a launch


def marks(tree: Tree, notes: Notes) -> None:
    """Within every launch the clock and the processor time go on, from its start over its marks to its end."""
    for where, plan, launch in _launches(tree):
        notes.look("launches")
        for one, inside in _insides(launch):
            for wrong in (*_backwards(one, inside), *_too_busy(launch, inside, plan.conditions.cpus)):
                notes.fail(where, wrong)
    for measured in tree.measured:
        for path, profile, _ in measured.profiles:
            for one, inside in _insides(profile) if profile is not None else ():
                notes.look("launches")
                for wrong in _backwards(one, inside):
                    notes.fail(tree.name(path), wrong)


def _launches(tree: Tree) -> Iterator[tuple[str, Plan, LaunchRecord]]:
    for _, campaign, plan in tree.campaigns():
        for unit in campaign.units:
            for name, launch in unit.launches.items():
                if launch.ok:
                    yield f"{campaign.name} unit {unit.unit} {name}", plan, launch


def _insides(launch: LaunchRecord) -> Iterator[tuple[Any, Inside]]:
    """What was written inside, of every member of a group, with the record that has start and end of it."""
    members = launch.instances or (launch,)
    yield from ((one, one.inside) for one in members if one.inside is not None)


def _backwards(launch: Any, inside: Inside) -> Iterator[str]:
    clock, marks = launch.clock, inside.marks
    points = [("its start", launch.spawn_ns, 0)] if launch.spawn_ns is not None else []
    points += [(f"the mark {mark.name}", mark.at_ns + clock.offset_ns, clock.error_ns) for mark in marks]
    points += [("its end", launch.end_ns, 0)] if launch.end_ns is not None else []
    for (earlier, before, error), (later, after, other) in pairwise(points):
        if after + error + other < before:
            yield f"{later} is {(before - after) / 1e9:.3g} s before {earlier}"
    for first, second in pairwise(marks):
        if _cpu_s(second) < _cpu_s(first) - 1e-6:
            yield f"its processor time goes back between the marks {first.name} and {second.name}"
    for name, ends in _steps(inside):
        if any(after < before for before, after in pairwise(ends)):
            yield f"its {name} go back"
        if ends and marks and (min(ends) < marks[0].at_ns or max(ends) > marks[-1].at_ns):
            yield f"its {name} are not between its first mark and its last"


def _cpu_s(mark: Mark) -> float:
    return mark.user_s + mark.system_s


def _steps(inside: Inside) -> Iterator[tuple[str, Sequence[int]]]:
    yield "steps", inside.results.get("step_ends_ns") or ()
    for one in inside.results.get("replicates") or ():
        ends = [*(one.get("warmup_ends_ns") or ()), one.get("started_ns"), *(one.get("step_ends_ns") or ())]
        yield f"steps of replicate {one.get('replicate')}", [end for end in ends if end is not None]


def _too_busy(launch: LaunchRecord, inside: Inside, cpus: int) -> Iterator[str]:
    """More processor time since a launch's start than its processors have; nothing where it made several runs."""
    if launch.spawn_ns is None or launch.instances or launch.vm is not None or not launch.clock.shared:
        return
    for mark in inside.marks:
        passed_s = (mark.at_ns - launch.spawn_ns) / 1e9
        if inside.results.get("runs", 1) == 1 and _cpu_s(mark) > passed_s * cpus + TICK_S:
            used = f"{_cpu_s(mark):.2f} s of {cpus} processors"
            yield f"has used {used} {passed_s:.2f} s after its start ({mark.name})"


def slices(tree: Tree, notes: Notes) -> None:
    """No two slices were at once, each has the processor time that it can have, and own time is their sum."""
    for _, campaign, plan in tree.campaigns():
        for unit in campaign.units:
            where = f"{campaign.name} unit {unit.unit}"
            _apart(unit, where, notes)
            for name, launch in unit.launches.items():
                if launch.slices is not None:
                    notes.look("launches in slices")
                    for wrong in _wrong_slices(launch, launch.slices, plan.conditions.cpus):
                        notes.fail(f"{where} {name}", wrong)


def _apart(unit: Unit, where: str, notes: Notes) -> None:
    for one, other in pairwise(slices_of(unit)):
        if other.at_us + ROUNDED_US < one.at_us + one.quiet_us:
            early_us = one.at_us + one.quiet_us - other.at_us
            notes.fail(where, f"a slice of {other.launch} began {early_us} us before one of {one.launch} ended")


def _wrong_slices(launch: LaunchRecord, own: Slices, cpus: int) -> Iterator[str]:
    if launch.spawn_ns != own.spawn_ns:
        yield "its start is not that of its slices"
    if launch.end_ns is not None and launch.end_ns != int(own.own_ns(own.end_ns)):
        yield f"its end is {abs(launch.end_ns - int(own.own_ns(own.end_ns))) / 1e9:.3g} s off the sum of its slices"
    if any(length > quiet for length, quiet in zip(own.length_us, own.quiet_us, strict=True)):
        yield "a slice is longer than until its servers were quiet"
    used = [after - before for before, after in pairwise((0, *own.cpu_us))]
    if any(one < 0 for one in used):
        yield "its processor time goes back from one slice to the next"
    for number, (cpu_us, quiet_us) in enumerate(zip(used[1:], own.quiet_us[1:], strict=True), start=1):
        if cpu_us / 1e6 > cpus * quiet_us / 1e6 + LATE_CPU_S:
            yield f"slice {number} has {cpu_us / 1e6:.3f} s of processor time in {quiet_us / 1e6:.3f} s"
            break
    for inside in (launch.inside,) if launch.inside is not None and launch.vm is None else ():
        if inside.marks and _cpu_s(inside.marks[-1]) > own.cpu_s + BEFORE_S:
            yield f"says {_cpu_s(inside.marks[-1]):.2f} s of processor time, and its slices have {own.cpu_s:.2f} s"
        ends = own.own_ns([own.ended_ns, own.arrived_ns]) if inside.marks else (0, 0)
        if inside.marks and not int(ends[1]) <= inside.marks[0].at_ns <= inside.marks[-1].at_ns <= int(ends[0]):
            yield "its marks are not between its first instruction and its end, in its own time"


def copies(tree: Tree, notes: Notes) -> None:
    """No launch is in two units: neither by its name nor by its times, to the nanosecond."""
    names: dict[str, tuple[str, str]] = {}
    times: dict[tuple[int, ...], tuple[str, str]] = {}
    for _, campaign, plan in tree.campaigns():
        if tree.original(campaign) is not None:
            continue  # a copy that says so
        if plan.adopted is not None:
            notes.remark(campaign.name, f"the campaign of {plan.adopted.study} that measured its units is not here")
        for unit in campaign.units:
            for name, launch in unit.launches.items():
                where = f"{campaign.name} unit {unit.unit} {name}"
                group = _together(campaign, plan, unit)
                if launch.launch is not None:
                    notes.look("launches")
                    _once(names, launch.launch, group, where, "has the name of the launch", notes)
                if launch.ok and (spans := _spans(launch)) is not None:
                    _once(times, spans, f"{group} {launch.launch}", where, "has the times of", notes)


def _together(campaign: Campaign, plan: Plan, unit: Unit) -> str:
    """What may share a launch: sizes of one unit of a sweep, and campaigns of causes of several workloads."""
    if plan.kind == "causes":
        return f"causes {plan.study} {plan.machine.name} {unit.unit} {campaign.is_set_aside}"
    return f"{campaign.name} {unit.unit}"


def _once(known: dict[Any, tuple[str, str]], key: Any, group: str, where: str, what: str, notes: Notes) -> None:
    first_group, first = known.setdefault(key, (group, where))
    if first_group != group:
        notes.fail(where, f"{what} {first}")


def _spans(launch: LaunchRecord) -> tuple[int, ...] | None:
    """Nanoseconds of a launch since its start, mark by mark; None where too few distinguish it from others."""
    if launch.spawn_ns is None or launch.inside is None or len(launch.inside.marks) < 3:
        return None
    return tuple(mark.at_ns - launch.spawn_ns for mark in launch.inside.marks)
