"""A campaign is run: which unit is next, how many there have to be, when it ends.

Its journal is a file that Snakemake does not know, so that an interruption loses no finished unit: the next run
with the same plan carries on. A sealed one is never extended: a later run is a new try (tare.experiments.store).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.progress import Counter, say
from tare.experiments.alone import writing
from tare.experiments.designs import Design, Due, Row, identity, uses_gpu
from tare.experiments.store import CampaignStore, note_in_ledgers
from tare.launch import scenarios
from tare.launch.conditions import choose_cpus
from tare.machine import gpu_health
from tare.machine.memory import OUT_OF_MEMORY, limit_was_hit, oom_kills
from tare.model.journals import units as measured
from tare.model.records.campaigns import Decision, Machine, Plan, Sealed, Unit
from tare.model.registry import HOST, SINGLE
from tare.model.roles import CONTROL
from tare.model.schema import as_json, parse
from tare.stats.fits import decisive_ratios
from tare.stats.planning import decide

DEADLINE = "TARE_DEADLINE"
NO_SPACE = "no space left"  # as tare.core.errors and tare.core.process say it


def run_campaign(folder: Path, design: Design) -> Sealed:
    """Run what is left of a design and seal it; returns the sealed summary. `folder`:
    results/campaigns/<study>/<machine>/<workload>/<name>. `design`: what is to be run; equal plans are resumed.
    Raises UnavailableError: it can't go on, or ended before any unit counted. IntegrityError: another writer was at
    its journal.
    """
    return run_campaigns({folder: design})[folder]


def run_campaigns(
    designs: Mapping[Path, Design], run_units: Callable[[Mapping[Path, Due]], Mapping[Path, Row]] | None = None
) -> dict[Path, Sealed]:
    """Run what is left of designs whose units come from the same launches, and seal each. `designs`: by the folder
    of their campaign. `run_units`: does the next unit of those campaigns that need one, or of some of them; None
    where each design does its own. Raises UnavailableError: one of them can't go on; the others have been run to
    their seals. IntegrityError: another writer was at a journal.
    """
    found: dict[Path, Sealed] = {}
    with contextlib.ExitStack() as stack:
        running = []
        waited = {folder: stack.enter_context(writing(folder)) for folder in sorted(designs)}
        stores = {folder: CampaignStore(folder, _as_started(designs[folder])) for folder in waited}
        note_in_ledgers(stores.values())  # one that was edited is refused before anything is measured
        carried_on = any(store.was_left() for store in stores.values())
        for folder, store in stores.items():
            design, settled = designs[folder], store.open(waited[folder], carried_on)
            if settled is None:
                running.append(_Running(store, design))
            else:
                say(f"{design.what}: all units are measured already, so it is sealed now")
                found[folder] = settled
        while due := [one for one in running if one.goes_on()]:
            _run_units(due, run_units)
        found |= {one.folder: one.store.seal() for one in running if one.error is None}
        note_in_ledgers(stores.values())
    for one in running:
        if one.error is not None:
            raise one.error
    return found


def _as_started(design: Design) -> Plan:
    """The plan with what is said of its start alone; without units where nothing can be compared."""
    plan = design.plan
    if uses_gpu(plan):
        at_rest = gpu_health.at_rest()
        for flag in at_rest["flags"]:
            say(f"{design.what}: {flag}")
        plan = plan.replace(gpu_at_start=at_rest)
    if not plan.has_host:  # the record says why
        plan = plan.replace(sampling=plan.sampling.replace(units=0), discarded=0)
    return plan


class _Running:
    """A campaign between its plan and its seal. `done`: its units so far. `decision`: on their number, once the
    pilot is whole. `ended`: why it ended before its time. `error`: the same, where it is no campaign without its
    other units.
    """

    def __init__(self, store: CampaignStore, design: Design) -> None:
        rows = store.rows
        self.store, self.folder, self.design, self.plan = store, store.folder, design, store.plan
        self.done, self.decision = list(rows.units), rows.decision
        self.ended: str | None = None
        self.error: UnavailableError | None = None
        if self.done:
            say(f"{design.what}: continues; units measured before: {len(self.done)}")
        self.counter = Counter(design.what, self.total, finished(self.done))

    @property
    def total(self) -> int:
        """Units that have to be finished, discarded ones among them, as far as is known."""
        shares = 1 if self.decision else self.design.shares(self.done)  # a decision counts whole units
        return self.plan.discarded + shares * wanted_units(self.plan, self.decision)

    def goes_on(self) -> bool:
        """Whether it needs another unit, and can have one. The number is decided here, once the pilot is whole."""
        if self.ended:
            return False
        shares = self.design.shares(self.done)
        if self.decision is None and pilot_is_whole(self.plan, self.done, shares):  # also where a crash has lost it
            self.decision = _decide(self.folder, self.design, self.plan, self.done, shares)
            self.store.append(self.decision)
        self.counter.total = self.total
        if finished(self.done) >= self.counter.total:
            return False
        ended = machine_change(self.plan.machine) or time_is_up(self.done)
        if ended:
            self.end(ended)
        elif hopeless := self.design.hopeless(self.done):
            self.fail(UnavailableError(hopeless))
        return not self.ended

    def end(self, reason: str) -> None:
        """End before its time."""
        self.ended = reason
        self.store.end(reason)
        if self.error is None:
            say(f"{self.design.what}: the campaign ends early: {reason}")

    def fail(self, error: UnavailableError) -> None:
        """It can't go on: a later run must open a new campaign."""
        self.error = None if self.plan.optional else error
        self.end(str(error))

    def add(self, unit: Unit) -> None:
        """Keep a unit."""
        self.store.append(unit)
        self.done.append(unit)


def time_is_up(done: Sequence[Unit]) -> str | None:
    """Why another unit does not fit before the deadline that our caller set, or None.

    The deadline is an instant of CLOCK_MONOTONIC, in seconds, in the variable TARE_DEADLINE.
    """
    deadline = os.environ.get(DEADLINE)
    if deadline is None:
        return None
    left_s = float(deadline) - time.monotonic()
    unit_s = max((unit.cost_s for unit in done), default=0.0)
    if left_s > unit_s:
        return None
    return f"no time left: a unit takes up to {unit_s:.0f} s, but only {max(0.0, left_s):.0f} s were left"


def _run_units(
    due: Sequence[_Running], run_units: Callable[[Mapping[Path, Due]], Mapping[Path, Row]] | None
) -> None:
    """The next units of campaigns that share their launches, checked as they will be read."""
    started, plan, kills = time.monotonic(), due[0].plan, oom_kills()
    around = scenarios.around(choose_cpus(plan.conditions.cpus), plan.conditions)
    with gpu_health.watched(uses_gpu(plan)) as gpu, scenarios.surrounded(plan.scenario, around) as span:
        try:
            found = _made(due, run_units) if span.reason is None else {}
        except UnavailableError as error:
            _refuse_lack_of_memory(kills, {})
            for one in due:
                one.fail(error)
            return
    if span.reason is not None:
        found = {one.folder: {"order": [], "launches": {}} for one in due}
        for one in due:
            if one.done and one.done[-1].voided == span.reason:  # it would be so for ever
                one.fail(UnavailableError(span.reason))
                del found[one.folder]
    taken_s = time.monotonic() - started
    units = {}
    shared_s = (taken_s - sum(row.get("own_s", 0.0) for row in found.values())) / max(1, len(found))
    for one in due:
        if one.folder not in found:  # it waits
            continue
        row = found[one.folder]
        whole = {
            "unit": len(one.done),
            "discarded": finished(one.done) < one.plan.discarded,
            "voided": None,
            **{key: value for key, value in row.items() if key != "own_s"},
            "launches": {name: as_json(launch) for name, launch in row["launches"].items()},
            **({"voided": span.reason} if span.reason else {}),
            **({"scenario": span.to_json()} if plan.scenario != SINGLE else {}),
            **({"gpu": gpu} if gpu else {}),
            "cost_s": round(row.get("own_s", 0.0) + shared_s, 3),
        }
        units[one] = parse(Unit, whole, f"{one.folder}: unit {len(one.done)}")
    for unit in units.values():
        if unit.failures or unit.voided:
            _refuse_lack_of_memory(kills, unit.failures)
            _refuse_full_disk(unit)
    for one, unit in units.items():
        one.add(unit)
    for one in units:
        _progress(one)


def _refuse_lack_of_memory(kills: int, failures: Mapping[str, str]) -> None:
    """End before a unit is kept whose launches a limit of ours has ended: the next run makes it again.

    `kills`: how often the kernel had ended a process for lack of memory before the unit. `failures`: of its
    launches, by name; those on other nodes of a job say it themselves. Raises UnavailableError: one was ended so.
    """
    for name, failure in failures.items():
        if OUT_OF_MEMORY in failure:
            raise UnavailableError(f"{name}: {failure}; finished units are kept")
    if (reason := limit_was_hit(kills)) is not None:
        raise UnavailableError(f"{reason}; finished units are kept")


def _refuse_full_disk(unit: Unit) -> None:
    """End before a unit is kept whose launch on the host found a disk full, as all others may: it is made again.
    Raises UnavailableError: it did.
    """
    for name in (HOST, CONTROL):
        if NO_SPACE in (reason := unit.failures.get(name, "")):
            raise UnavailableError(f"{name}: {reason}; finished units are kept")


def _made(
    due: Sequence[_Running], run_units: Callable[[Mapping[Path, Due]], Mapping[Path, Row]] | None
) -> Mapping[Path, Row]:
    if run_units is None:
        return {one.folder: one.design.run_unit(one.plan, len(one.done), one.done) for one in due}
    return run_units({one.folder: Due(plan=one.plan, number=len(one.done), done=one.done) for one in due})


def finished(units: Sequence[Unit]) -> int:
    """Units that need not be repeated, discarded ones among them."""
    return sum(unit.voided is None for unit in units)


def wanted_units(plan: Plan, decision: Decision | None) -> int:
    """How many units have to count, as far as is known."""
    if plan.sampling.units is not None:
        return plan.sampling.units
    return decision.units if decision else plan.sampling.pilot or 0


def pilot_is_whole(plan: Plan, done: Sequence[Unit], shares: int) -> bool:
    """Whether the second stage is due: every environment has as many units as the pilot asks for."""
    pilot = plan.sampling.pilot
    return plan.sampling.units is None and pilot is not None and len(measured.counted(done)) >= shares * pilot


def _decide(folder: Path, design: Design, plan: Plan, done: Sequence[Unit], shares: int) -> Decision:
    """How many units, from the pilot alone; where an environment is in one unit of `shares`, that many for each."""
    pilot, sampling = measured.counted(done), plan.sampling
    ratios = decisive_ratios(plan, done, design.values)
    # where several units are a share, the second host is in each of them
    ratios = {name: values[: sampling.pilot] for name, values in ratios.items()}
    found = decide(
        ratios,
        sampling.to_json(),
        alpha=measured.planned_alpha(plan),
        spent_s=sum(unit.cost_s for unit in done),
        unit_s=shares * sum(unit.cost_s for unit in pilot) / len(pilot),
    )
    found |= {key: shares * found[key] for key in ("units", "wanted", "cap")}
    return parse(Decision, {**found, "pilot": len(pilot)}, str(folder))


def _progress(one: _Running) -> None:
    """Print what became of a unit."""
    unit, plan = one.done[-1], one.plan
    if unit.voided:
        say(f"{one.design.what} {one.counter.done + 1} does not count and is repeated: {unit.voided}")
        return
    undecided = one.decision is None and plan.sampling.units is None
    one.counter.advance(failures_note(unit), undecided)


def machine_change(before: Machine) -> str | None:
    """What of the machine is not as it was when the campaign was planned, or None."""
    was = before.to_json()
    now = identity("gpus" in was).to_json()
    changed = [f"{key} was {was[key]!r}, is {now.get(key)!r}" for key in was if now.get(key) != was[key]]
    return f"the machine changed: {'; '.join(changed)}" if changed else None


def failures_note(unit: Unit) -> str:
    """Names of the environments that failed in a unit, for the progress line."""
    return f"failed: {', '.join(unit.failures)}" if unit.failures else ""
