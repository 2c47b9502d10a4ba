"""Plans against the study that asks for them, and numbers of units against plans."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tare.archive.checks.found import Notes
from tare.archive.checks.tree import Campaign, Measured, Tree
from tare.core.errors import TareError
from tare.experiments import sliced
from tare.experiments.campaign import finished, pilot_is_whole, wanted_units
from tare.model.journals.units import IN_MEMORY, counted, given_up, planned_alpha
from tare.model.records.campaigns import Decision, Plan, Sampling, Unit
from tare.model.registry import HOST, SINGLE
from tare.model.roles import LaunchRole, read_role, started
from tare.model.schema import parse
from tare.model.studies.arms import Arm
from tare.model.studies.campaigns import campaigns, sampling_in, sampling_of
from tare.model.studies.layout import campaign_name
from tare.model.studies.stamps import differing
from tare.model.studies.study import CommandPart, RoundsPart, Study, at_published_size, reduced
from tare.stats.fits import decisive_ratios, run_values
from tare.stats.planning import decide

NEAR = 1e-9
NOT_AGAIN = "not tried again"  # how the reason of a start begins that was not made


def study(tree: Tree, notes: Notes) -> None:
    """Every campaign that the study asks for is there, and each plan is what the study asks for."""
    for measured in tree.measured:
        asked = measured.asked
        if asked is None:
            notes.leave(measured.name, f"the study is unknown: {measured.asked_problem}")
        else:
            _all_there(tree, measured, asked, notes)
        for campaign in measured.campaigns:
            plan = campaign.plan
            if plan is None:
                continue
            notes.look("plans")
            own = (plan.workload, plan.study, plan.machine.name)
            if own != (campaign.question[0], measured.study, measured.machine):
                notes.fail(campaign.name, f"its plan is of {plan.workload} of {plan.study} on {plan.machine.name}")
            try:
                for wrong in _of_its_part(plan):
                    notes.fail(campaign.name, wrong)
            except TareError as error:
                notes.fail(campaign.name, tree.plain(error))
            if asked is not None and plan.part is not None and not campaign.is_set_aside:
                for key in differing(_wanted(asked, campaign, plan), plan.part):
                    what = f"its plan has another {key} than config/ asks for"
                    if tree.is_archive:
                        notes.fail(campaign.name, what)
                    else:
                        notes.leave(campaign.name, f"{what}, unless the command line did")


def _all_there(tree: Tree, measured: Measured, asked: Study, notes: Notes) -> None:
    names = [(one.workload, one.name) for one in campaigns(asked)]
    if asked.workloads:
        names.append((next(iter(asked.workloads)), campaign_name("starts", asked.environments)))
    there = {one.question: one for one in measured.current}
    for workload, name in names:
        found = there.get((workload, name))
        if found is None or (found.sealed is None and found.problem is None):
            where, what = f"{measured.name}/{workload}/{name}", "the study asks for this campaign"
            if tree.is_archive:
                notes.fail(where, f"{what}, and it is not there" if found is None else f"{what}: it is not sealed")
            else:
                notes.leave(where, f"{what}, which does not exist" if found is None else f"{what}: it is under way")
    for question, campaign in there.items():
        if question not in names:
            notes.remark(campaign.name, "the study asks for no such campaign: no table has it")


def _wanted(asked: Study, campaign: Campaign, plan: Plan) -> Mapping[str, Any]:
    """The part of the study that a campaign should have been given."""
    part, workload = plan.part or {}, plan.workload
    if workload not in asked.measured:
        return part
    if asked.device == "auto" and part.get("device"):
        asked = asked.replace(device=part["device"])
    chosen = (part.get("rounds") or {}).get(
        "chosen"
    )  # a budget for so many minutes, which is in no file of config/
    found = reduced(
        (asked if plan.is_command else at_published_size(asked)).to_json(),
        "command" if plan.is_command else plan.kind, workload, campaign.arm, plan.scenario,
    )  # fmt: skip
    if chosen and "rounds" in found:
        kept = {key: value for key, value in found["rounds"].items() if key not in ("units", "budget_s")}
        found["rounds"] = {**kept, "chosen": chosen, "budget_s": part["rounds"].get("budget_s")}
    return found


def _of_its_part(plan: Plan) -> Iterator[str]:
    """Where a plan is not what its own part of the study says."""
    part = plan.part
    if part is None:
        return
    for name, value in (("study", plan.study), ("stack", None if plan.is_command else plan.stack)):
        if value is not None and part.get(name) not in (None, value):
            yield f"its {name} is {value}, and its part of the study says {part[name]}"
    if part.get("margins") is not None and plan.margins is not None and dict(part["margins"]) != dict(plan.margins):
        yield f"its margins are {dict(plan.margins)}, and its part of the study says {part['margins']}"
    wanted = _sampling(plan, part)
    if wanted is not None and wanted != plan.sampling:
        names = [name for name in Sampling.model_fields if getattr(wanted, name) != getattr(plan.sampling, name)]
        yield f"its sampling has another {', '.join(names)} than its part of the study asks for"


def _sampling(plan: Plan, part: Mapping[str, Any]) -> Sampling | None:
    """How many units the part of a plan asks for; None of kinds that are not sampled, and without a host."""
    if plan.kind != "rounds" or not plan.has_host:
        return None
    if plan.is_command:
        command = parse(CommandPart, dict(part), "the plan's part of the study")
        return sampling_of(command.rounds.of_headline(plan.workload), command.confidence, None)
    rounds = parse(RoundsPart, dict(part), "the plan's part of the study")
    own, headline = plan.levels, plan.headline_levels
    varied = [Arm(factor=key, level=own[key]) for key in own if own[key] != headline.get(key)]
    return sampling_in(rounds, plan.workload, varied[0] if varied else None, plan.scenario)


# --- how many units


def units(tree: Tree, notes: Notes) -> None:
    """There are as many units as were planned or decided, each with every launch, and none was set aside or ended
    early without a reason that the journal gives."""
    for measured in tree.measured:
        for campaign in measured.campaigns:
            plan, rows = campaign.plan, campaign.rows
            if plan is None or rows is None:
                notes.leave(campaign.name, campaign.problem or "it has no plan")
                continue
            for unit in rows.units:
                notes.look("units")
                for wrong in _wrong_unit(plan, unit, rows.units[: unit.unit]):
                    notes.fail(f"{campaign.name} unit {unit.unit}", wrong)
            if rows.seal is not None and plan.sampling is not None:
                for wrong in _wrong_number(plan, rows.units, rows.decision, rows.ended):
                    notes.fail(campaign.name, wrong)
            for wrong in _wrong_decision(plan, rows.units, rows.decision):
                notes.fail(campaign.name, wrong)


def _wrong_unit(plan: Plan, unit: Unit, done: Sequence[Unit]) -> Iterator[str]:
    if unit.discarded != (finished(done) < plan.discarded):
        yield "is discarded" if unit.discarded else "counts, although the plan discards it"
    if set(unit.order) != set(unit.launches):
        yield f"its order has other launches than its records: {', '.join(set(unit.order) ^ set(unit.launches))}"
    expected = set(_launches(plan))
    if unknown := sorted(set(unit.launches) - expected):
        yield f"has launches that the plan has not: {', '.join(unknown)}"
    if unit.counts and (lacking := sorted(expected - set(unit.launches))):
        yield f"lacks {', '.join(lacking)}"
    gone = given_up(done)
    for name, launch in unit.launches.items():
        if launch.status == "skipped" and unit.voided is None and not _may_skip(plan, unit, done, name, gone):
            yield f"{name} was left out for no reason that the units before it give: {launch.reason}"


def _launches(plan: Plan) -> Iterator[str]:
    if plan.kind == "sweep":
        yield from (LaunchRole(environment=HOST, batch=batch).name for batch in plan.batches or ())
    elif plan.kind == "starts":
        yield from (started(name, phase) for name in plan.launch_names for phase in plan.spec.phases)
    else:
        yield from plan.launch_names


def _may_skip(plan: Plan, unit: Unit, done: Sequence[Unit], name: str, gone: Mapping[str, str]) -> bool:
    reason = unit.launches[name].reason or ""
    if reason == gone.get(name):
        return True
    if plan.kind == "starts":
        return _start_failed(unit, done, name, reason)
    if reason == IN_MEMORY:
        return unit.discarded
    if reason != sliced.LEFT_OUT:
        return False
    return name not in sliced.group_of(plan, done) or (unit.discarded and plan.slicing_refused is not None)


def _start_failed(unit: Unit, done: Sequence[Unit], name: str, reason: str) -> bool:
    """Whether a start of the same place had failed before, in this unit or in one before it."""
    place = read_role(name).place.name
    rows = [
        launch
        for one in (*done, unit)
        for key, launch in one.launches.items()
        if read_role(key).place.name == place
    ]
    return reason.startswith(NOT_AGAIN) and any(one.status in ("failed", "timeout") for one in rows)


def _total(plan: Plan, done: Sequence[Unit], decision: Decision | None) -> int:
    """Units that have to be finished, as it was known after these."""
    if decision is not None and len(counted(done)) < (decision.pilot or 0):
        decision = None
    held = plan.kind == "rounds" and plan.scenario == SINGLE and any(unit.slicing for unit in done)
    shares = len(sliced.groups(plan, done)) if held and decision is None else 1
    return plan.discarded + shares * wanted_units(plan, decision)


def _wrong_number(plan: Plan, found: Sequence[Unit], decision: Decision | None, ended: str | None) -> Iterator[str]:
    if ended is None and (has := finished(found)) < (wanted := _total(plan, found, decision)):
        yield f"has {has} units that need not be repeated, and {wanted} were planned"
    if found and finished(found[:-1]) >= (wanted := _total(plan, found[:-1], decision)):
        yield f"has a unit more than the {wanted} that were planned"


def _wrong_decision(plan: Plan, found: Sequence[Unit], decision: Decision | None) -> Iterator[str]:
    """The number of units follows from the pilot alone."""
    if plan.sampling.units is not None or plan.sampling.pilot is None:
        if decision is not None:
            yield "has a decision on its number of units, which its plan fixes"
        return
    shares = len(sliced.groups(plan, found)) if any(unit.slicing for unit in found) else 1
    if decision is None:
        if pilot_is_whole(plan, found, shares):
            yield "has no decision on its number of units, though its pilot is whole"
        return
    done = _as_decided(found, decision)
    again = _decided(plan, done) if done else None
    if again is None:
        yield "has a decision on its number of units before its pilot was whole"
        return
    for name, value in again.to_json().items():
        if not _near(getattr(decision, name), value):
            yield f"decided by another {name} than its pilot gives"


def _as_decided(found: Sequence[Unit], decision: Decision) -> Sequence[Unit]:
    """The units that there were when the number was decided."""
    count = 0
    for number, unit in enumerate(found, start=1):
        count += unit.counts
        if count == decision.pilot:
            return found[:number]
    return ()


def _decided(plan: Plan, done: Sequence[Unit]) -> Decision:
    """As tare.experiments.campaign decides, from the same functions: how many units, by the pilot."""
    pilot, sampling = counted(done), plan.sampling
    shares = max(1, round(len(pilot) / (sampling.pilot or 1)))
    ratios = decisive_ratios(plan, done, run_values)
    ratios = {name: each[: sampling.pilot] for name, each in ratios.items()}
    found = decide(
        ratios,
        sampling.to_json(),
        alpha=planned_alpha(plan),
        spent_s=sum(unit.cost_s for unit in done),
        unit_s=shares * sum(unit.cost_s for unit in pilot) / len(pilot),
    )
    found |= {key: shares * found[key] for key in ("units", "wanted", "cap")}
    return parse(Decision, {**found, "pilot": len(pilot)}, "the decision")


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return set(one) == set(other) and all(_near(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=NEAR, abs_tol=NEAR)
    return bool(one == other)
