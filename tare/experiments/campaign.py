"""A campaign: planned, run unit by unit into a journal, sealed.

The journal is a file that Snakemake does not know, so that an interruption loses no finished unit: the next run
with the same plan carries on. A sealed campaign is never extended; a later run moves it aside and opens a new one.
One process writes it (tare.experiments.alone). Each step is whole or not done, and what a crash left between two is
made good by the next run: a decision without a row, a seal without its summary, a campaign moved aside by half.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tare.core.errors import IntegrityError, TareError, UnavailableError
from tare.core.files import Journal, read_json, sha256_file, sync_directory, write_text
from tare.core.progress import Counter, say
from tare.experiments import attempts
from tare.experiments.alone import writing
from tare.experiments.designs import Design, Due, Row, identity, order_seed, uses_gpu
from tare.launch import scenarios
from tare.launch.conditions import choose_cpus
from tare.machine import gpu_health
from tare.model.journals import units as measured
from tare.model.journals.ledger import (
    SUPERSEDED,
    attempt_of,
    bring_up_to_date,
    read_ledger,
    set_aside_folders,
    study_folder,
    tries_of,
)
from tare.model.journals.sealed import (
    ASIDE,
    DECISION_KEY,
    ENDED_KEY,
    PLAN,
    SEAL_KEY,
    UNITS,
    Rows,
    SealedCampaign,
    read_rows,
    read_sealed,
)
from tare.model.records.campaigns import Adopted, Decision, Machine, Plan, Sealed, Unit
from tare.model.registry import SINGLE
from tare.model.schema import VERSION, as_json, parse, read
from tare.model.studies.layout import SEALED
from tare.stats.fits import ratios_of
from tare.stats.intervals import log_ratios_of
from tare.stats.planning import decide

DEADLINE = "TARE_DEADLINE"


def run_campaign(folder: Path, design: Design) -> Sealed:
    """Run what is left of a design and seal it; returns the sealed summary.

    Args:
        folder: results/campaigns/<study>/<machine>/<workload>/<name>.
        design: what is to be run; equal plans are resumed.

    Raises:
        UnavailableError: it can't go on, or ended before any unit counted.
        IntegrityError: another writer was at its journal.
    """
    return run_campaigns({folder: design})[folder]


def run_campaigns(
    designs: Mapping[Path, Design], run_units: Callable[[Mapping[Path, Due]], Mapping[Path, Row]] | None = None
) -> dict[Path, Sealed]:
    """Run what is left of designs whose units come from the same launches, and seal each.

    Args:
        designs: by the folder of their campaign.
        run_units: does the next unit of those campaigns that need one, or of some of them; None where each design
            does its own.

    Raises:
        UnavailableError: one of them can't go on; the others have been run to their seals.
        IntegrityError: another writer was at a journal.
    """
    found: dict[Path, Sealed] = {}
    with contextlib.ExitStack() as stack:
        running, studies = [], set()
        waited = {folder: stack.enter_context(writing(folder)) for folder in sorted(designs)}
        plans = {folder: _as_started(design) for folder, design in sorted(designs.items())}
        for folder, plan in plans.items():
            study = study_folder(folder, plan)
            if study is not None:
                bring_up_to_date(study, ratios_of)  # one that was edited is refused before anything is measured
                studies.add(study)
        carried_on = any(_was_left(folder, plan) for folder, plan in plans.items())
        for folder, plan in plans.items():
            design = designs[folder]
            settled = take_over(folder, plan, waited[folder], carried_on)
            if settled is None:
                running.append(_Running(folder, design, read(Plan, folder / PLAN)))
            else:
                attempts.campaign_ends(folder)
                say(f"{design.what}: all its units are measured; it is sealed as it stands")
                found[folder] = settled
        while due := [one for one in running if one.goes_on()]:
            _run_units(due, run_units)
        for one in running:
            if one.error is None:
                found[one.folder] = close(one.folder, one.journal, one.plan, one.ended)
        for study in sorted(studies):
            bring_up_to_date(study, ratios_of)
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
    """A campaign between its plan and its seal.

    Attributes:
        done: its units so far.
        decision: on their number, once the pilot is whole.
        ended: why it ended before its time.
        error: the same, where it is no campaign without its other units.
    """

    def __init__(self, folder: Path, design: Design, plan: Plan) -> None:
        rows = read_rows(folder)
        self.folder, self.design, self.plan = folder, design, plan
        self.journal = Journal(folder / UNITS)
        self.done, self.decision = list(rows.units), rows.decision
        self.ended: str | None = None
        self.error: UnavailableError | None = None
        if self.done:
            say(f"{design.what}: {len(self.done)} units are in the journal; carrying on")
        total = _total(design, plan, self.decision, self.done)
        self.counter = Counter(design.what, total, finished(self.done))

    def goes_on(self) -> bool:
        """Whether it needs another unit, and can have one. The number is decided here, once the pilot is whole."""
        if self.ended:
            return False
        shares = self.design.shares(self.done)
        if self.decision is None and pilot_is_whole(self.plan, self.done, shares):  # also where a crash has lost it
            self.decision = _decide(self.folder, self.design, self.plan, self.done, shares)
            self.journal.append({DECISION_KEY: self.decision.to_json()})
        self.counter.total = _total(self.design, self.plan, self.decision, self.done)
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
        self.journal.append({ENDED_KEY: reason})
        say(f"{self.design.what}: the campaign ends here: {reason}")

    def fail(self, error: UnavailableError) -> None:
        """It can't go on: a later run must open a new campaign."""
        self.ended = str(error)
        self.journal.append({ENDED_KEY: self.ended})
        if self.plan.optional:
            say(f"{self.design.what}: the campaign ends here: {error}")
        else:
            self.error = error

    def add(self, unit: Unit) -> None:
        """Keep a unit."""
        self.journal.append(unit.to_json())
        self.done.append(unit)


def _total(design: Design, plan: Plan, decision: Decision | None, done: Sequence[Unit]) -> int:
    """Units that have to be finished, discarded ones among them, as far as is known."""
    shares = 1 if decision else design.shares(done)  # a decision counts whole units
    return plan.discarded + shares * wanted_units(plan, decision)


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
    return f"no time left: a unit takes up to {unit_s:.0f} s, and {max(0.0, left_s):.0f} s were left"


def _run_units(
    due: Sequence[_Running], run_units: Callable[[Mapping[Path, Due]], Mapping[Path, Row]] | None
) -> None:
    """The next units of campaigns that share their launches, checked as they will be read."""
    started, plan = time.monotonic(), due[0].plan
    around = scenarios.around(choose_cpus(plan.conditions.cpus), plan.conditions)
    with gpu_health.watched(uses_gpu(plan)) as gpu, scenarios.surrounded(plan.scenario, around) as span:
        try:
            found = _made(due, run_units) if span.reason is None else {}
        except UnavailableError as error:
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
        one.add(parse(Unit, whole, f"{one.folder}: unit {len(one.done)}"))
    for one in due:
        if one.folder in found:
            _progress(one)


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
    apart = measured.unsliced(plan, done)  # which vary far more, and have no say where others are sliced
    own = [name for name in plan.launch_names if name not in apart]
    together = [
        unit for unit in pilot if not any(unit.launches[name].ok for name in apart if name in unit.launches)
    ]
    ratios = log_ratios_of(
        [design.values(unit) for unit in together or pilot], own if together else plan.launch_names
    )
    if shares > 1:  # the second host is in every unit, the others in their share of them
        ratios = {name: values[: sampling.pilot] for name, values in ratios.items()}
    found = decide(
        ratios,
        sampling.to_json(),
        alpha=measured.planned_alpha(plan),
        spent_s=sum(unit.cost_s for unit in done),
        unit_s=shares * sum(unit.cost_s for unit in pilot) / len(pilot),
    )
    if shares > 1:
        found |= {key: shares * found[key] for key in ("units", "wanted", "cap")}
    return parse(Decision, {**found, "pilot": len(pilot)}, str(folder))


def _progress(one: _Running) -> None:
    """Print what became of a unit."""
    unit, plan = one.done[-1], one.plan
    if unit.voided:
        say(f"{one.design.what}: a unit is void and is repeated: {unit.voided}")
        return
    undecided = one.decision is None and plan.sampling.units is None
    one.counter.advance(failures_note(unit), of=" of the pilot" if undecided else "")


def machine_change(before: Machine) -> str | None:
    """What of the machine is not as it was when the campaign was planned, or None."""
    was = before.to_json()
    now = identity("gpus" in was).to_json()
    changed = [f"{key} was {was[key]!r}, is {now.get(key)!r}" for key in was if now.get(key) != was[key]]
    return f"the machine changed: {'; '.join(changed)}" if changed else None


def _was_left(folder: Path, plan: Plan) -> bool:
    """Whether a campaign of this plan was begun and never sealed: it failed, or its command was ended."""
    finish_setting_aside(folder)
    if not (folder / PLAN).exists() or read_json(folder / PLAN).get(VERSION) != Plan.VERSION:
        return False
    return _design(read(Plan, folder / PLAN)) == _design(plan) and read_rows(folder).seal is None


def take_over(folder: Path, plan: Plan, waited: bool, carried_on: bool = False) -> Sealed | None:
    """Make a campaign's folder ready to be written; what cannot be resumed is moved aside, never deleted.

    Args:
        folder: of the campaign.
        plan: what is to be run now.
        waited: another process wrote the campaign until a moment ago.
        carried_on: another campaign of the same command was begun and never sealed: this start goes on with it.

    Returns:
        Its seal, where nothing is left to be run: another process has just sealed it, or the start that sealed it
        was cut short (tare.experiments.attempts). None otherwise.

    Raises:
        IntegrityError: the journal is not what one writer leaves.
    """
    finish_setting_aside(folder)
    if not (folder / PLAN).exists():
        if (folder / UNITS).exists():
            raise IntegrityError(f"{folder} has {UNITS} and no {PLAN}; {ASIDE}")
        twin = _twin(folder, plan)
        if twin is not None:
            return _adopt(folder, plan, twin)
        _open(folder, plan)
        return None
    version = read_json(folder / PLAN).get(VERSION)
    if version != Plan.VERSION:
        kept = set_aside(folder, plan)
        say(f"the campaign in {folder} is of schema {version}, not {Plan.VERSION}; it is kept as {kept}")
        _open(folder, plan)
        return None
    old, rows = read(Plan, folder / PLAN), read_rows(folder)
    if old.adopted and rows.seal is None:  # a crash left the copy without its units
        (folder / PLAN).unlink()
        return take_over(folder, plan, waited, carried_on)
    same = _design(old) == _design(plan)
    if rows.seal is not None and same:
        written = (folder / SEALED).exists()
        if carried_on or (waited and written) or _goes_on(folder):
            return read(Sealed, folder / SEALED) if written else summarise(folder, rows)
    done = rows.seal is not None or rows.ended is not None
    if done or not same:
        why = "is sealed" if done else f"has another plan ({plan_difference(old, plan)})"
        say(f"the campaign in {folder} {why}; it is kept as {set_aside(folder, plan)}")
        _open(folder, plan)
    return None


def _goes_on(folder: Path) -> bool:
    """Whether the start that sealed a campaign was cut short; from now on it is this one."""
    goes_on = attempts.goes_on(folder)
    if goes_on:
        attempts.leave_note(folder)
        say(f"{folder} was sealed by a start that was cut short, and is gone on with; the next start is a new try")
    return goes_on


def _open(folder: Path, plan: Plan) -> None:
    """Begin a campaign: what is settled at its start goes into its plan, and is carried on from there."""
    attempts.remove_note(folder)
    plan, study = plan.replace(order_seed=order_seed(plan)), study_folder(folder, plan)
    if study is None:
        plan.write(folder / PLAN)
        return
    attempt = attempt_of(tries_of(bring_up_to_date(study, ratios_of)), (plan.workload, folder.name))
    if attempt > 1:
        say(f"{folder} is try {attempt} of its question: it may spend {measured.share_of(attempt):.1%} of alpha")
    plan.replace(attempt=attempt).write(folder / PLAN)
    bring_up_to_date(study, ratios_of)


def _twin(folder: Path, plan: Plan) -> SealedCampaign | None:
    """A campaign of another study that measured what a plan asks for; None where this study has tried itself."""
    study = study_folder(folder, plan)
    if study is None or set_aside_folders(folder):
        return None
    tries = tries_of(read_ledger(study)).get((plan.workload, folder.name), [])
    if any(one.state != "adopted" for one in tries):
        return None
    for other in sorted(study.parents[1].glob(f"*/{study.name}/{plan.workload}/{folder.name}/{SEALED}")):
        with contextlib.suppress(TareError):  # one that can't be read serves nobody
            found = read_sealed(other)
            if found.sealed.status == "sealed" and _asked(found.plan) == _asked(plan):
                return found
    return None


def _adopt(folder: Path, plan: Plan, twin: SealedCampaign) -> Sealed:
    """Copy a campaign of another study: its units, and its plan with this study's name and where it comes from."""
    adopted = twin.plan.adopted or Adopted(
        study=twin.plan.study, plan_sha256=twin.sealed.plan_sha256, sealed_at=twin.sealed.sealed_at
    )
    copied = twin.plan.replace(study=plan.study, part=plan.part, adopted=adopted)
    attempts.leave_note(folder)
    copied.write(folder / PLAN)
    write_text(folder / UNITS, (twin.path.parent / UNITS).read_text(encoding="utf-8"))
    say(f"{folder}: taken over from the study {adopted.study}, whose plan is the same (sealed {adopted.sealed_at})")
    return summarise(folder, read_rows(folder))


OF_ITS_START = (
    "gpu_at_start",
    "order_seed",
    "attempt",
    "adopted",
)  # what a plan says of one start of a campaign, not of what it is


def _asked(plan: Plan) -> Row:
    """The design of a plan, whatever its study is called."""
    design = _design(plan)
    return {**design, "study": None, "part": {**(design.get("part") or {}), "study": None}}


def _design(plan: Plan) -> Row:
    """A plan without what is said of its start alone: who used the GPU, and how a way to it was refused."""
    design = {key: value for key, value in plan.to_json().items() if key not in OF_ITS_START}
    provenance = design.get("provenance") or {}
    if "gpu" in provenance:
        ways = {name: {**way, "refused": None} for name, way in provenance["gpu"].items()}
        design["provenance"] = {**provenance, "gpu": ways}
    return design


def plan_difference(old: Plan, new: Plan) -> str:
    """Names of the parts in which two plans differ."""
    before, after = _design(old), _design(new)
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return ", ".join([key for key in changed if key != "part"] or changed)  # what follows from a part says more


def set_aside(folder: Path, plan: Plan) -> str:
    """Move a campaign's files to the first free numbered folder beside them; returns its name.

    A folder that the ledger lists leaves its name to no other, also where it is gone. `plan` is of the next one.
    """
    attempts.remove_note(folder)
    study = study_folder(folder, plan)
    listed = tries_of(read_ledger(study)).get((plan.workload, folder.name), []) if study else []
    taken = {path.name for path in folder.glob(f"{SUPERSEDED}*")} | {one.folder for one in listed}
    number = 1
    while f"{SUPERSEDED}{number}" in taken:
        number += 1
    target = folder / f"{SUPERSEDED}{number}"
    target.mkdir(parents=True)
    sync_directory(folder)
    finish_setting_aside(folder)
    return target.name


def finish_setting_aside(folder: Path) -> None:
    """Move what still belongs to a campaign that is being set aside. The plan goes last: it says that all went."""
    for target in folder.glob(f"{SUPERSEDED}*"):
        if (target / PLAN).exists():
            continue
        for name in (SEALED, UNITS, PLAN):
            with contextlib.suppress(FileNotFoundError):
                (folder / name).rename(target / name)
        sync_directory(target)
        sync_directory(folder)


def failures_note(unit: Unit) -> str:
    """Names of the environments that failed in a unit, for the progress line."""
    failed = [env for env, row in unit.launches.items() if row.status in ("failed", "timeout")]
    return f"failed: {', '.join(failed)}" if failed else ""


def close(folder: Path, journal: Journal, plan: Plan, ended: str | None) -> Sealed:
    """Close the journal and write the summary with the hashes of plan and units.

    Raises:
        UnavailableError: the campaign ended before any unit counted.
        IntegrityError: another writer was at the journal.
    """
    rows = read_rows(folder)
    if ended and not measured.counted(rows.units) and not plan.optional:
        raise UnavailableError(f"no unit of the campaign in {folder} counts: {ended}; run it again")
    if rows.seal is None:
        attempts.leave_note(folder)
        journal.append({SEAL_KEY: rows.units_sha256})
        rows = read_rows(folder)  # nothing came in between, and the seal is of what stands there
    summary = summarise(folder, rows)
    attempts.campaign_ends(folder)
    return summary


def summarise(folder: Path, rows: Rows) -> Sealed:
    """Write the summary of a journal that is closed; it follows from plan and journal alone."""
    failures = {
        env: launch.reason or ""
        for unit in rows.units
        for env, launch in unit.launches.items()
        if launch.status in ("failed", "timeout")
    }
    summary = Sealed(
        status="ended" if rows.ended else "sealed",
        reason=rows.ended,
        plan_sha256=sha256_file(folder / PLAN),
        units_sha256=sha256_file(folder / UNITS),
        units=len(measured.counted(rows.units)),
        voided=sum(unit.voided is not None for unit in rows.units),
        machine_s=round(sum(unit.cost_s for unit in rows.units), 3),
        decision=rows.decision,
        failures=failures,
        sealed_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    summary.write(folder / SEALED)
    return summary
