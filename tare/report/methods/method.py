"""How it was measured and what limits it, in sentences computed from the plans."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.copies import matters
from tare.analysis.sliced_rounds import is_sliced, unsliced_reason
from tare.model.journals.units import IN_MEMORY, unsliced
from tare.model.records.campaigns import SHARED, Plan
from tare.model.records.measured import CopiesRecord
from tare.report.evidence import Campaign, Evidence
from tare.report.figures import joint
from tare.report.figures.forest import counts
from tare.report.methods.instrument import spread_text
from tare.report.words.labels import arm_title, env_title
from tare.report.words.wording import listed, margin_text


def method_sentences(evidence: Evidence) -> list[str]:
    """The design of the campaigns, as it was declared before any data."""
    rounds, steps = evidence.headlines("rounds"), evidence.headlines("steps")
    if not rounds:
        return ["No campaign of all environments has been sealed."]
    plan = rounds[0].plan
    return [
        _rounds(rounds[0]),
        *([_steps(steps)] if steps else []),
        "The unit is the round, never the launch, the slice or the step. Per unit: the logarithm of "
        "each environment's ratio to the mean of the two hosts. The control is the second host's ratio to the "
        "first: what the instrument sees where nothing is.",
        *_copies(rounds, evidence.copies),
        _sampling(rounds[0]),
        _families(plan.sampling.confidence),
        f"Intervals: {_intervals(rounds)}; where the pilot's spread chose the number of units, the wider of that "
        "and Stein's. The interval that is printed is the one that decides; a bootstrap stands "
        "beside it as a check and decides nothing. With fewer than "
        f"{plan.sampling.verdict_units} units there is no verdict.",
        "Beside the typical time stands all time, stalls included. “Equivalent” without more words: both lie "
        "inside the margin and stalls add nothing that is sure; else it is said to hold but for stalls.",
        f"Margins, declared before the data: {margin_text(plan.margins['run'])} for whole runs and their parts, "
        f"{margin_text(plan.margins['step'])} for training steps. Inside and across zero: equivalent. Inside, "
        "not across zero: different within the margin. Across zero and beyond the margin: inconclusive. Else: "
        "different.",
        *([_arms(evidence)] if evidence.arms() else []),
        f"Equal for all: {plan.conditions.threads} thread(s), {plan.conditions.cpus} logical CPU(s), "
        f"open files, /dev/shm, an allow-listed environment, working directory, data path; {_network(evidence)}; "
        f"page cache {plan.conditions.page_cache}; {_allocators(rounds, steps)}; "
        "the same tree of interpreter and packages, byte for byte.",
        "Profiled launches and timed launches are never the same launch.",
    ]


def _families(confidence: float) -> str:
    """Which comparisons are read together, and how sure they are."""
    return (
        f"Whole runs and steps of every environment are the primary comparisons: with {100 * confidence:g}% none "
        "that is told apart is told so falsely (Holm). Parts of runs, arms and causes explore: of the differences "
        f"that they show {100 * (1 - confidence):.3g}% at most are expected to be false (Benjamini and Hochberg)."
    )


def _rounds(campaign: Campaign) -> str:
    plan = campaign.plan
    return (
        f"Rounds: each round launched {len(plan.launch_names)} whole runs to completion, the host among them "
        f"twice, {_advance(campaign)} {_discarded(campaign, 'round')}A seed in the plan gives every order and "
        "every size of the environment block; both are in the records."
    )


def _advance(campaign: Campaign) -> str:
    """How the launches of a round shared the processors."""
    order = _ordered(campaign.plan)
    if is_sliced(campaign):
        apart = unsliced(campaign.plan, campaign.units)
        others = (
            f" Not in slices, and in rounds of their own beside both hosts: "
            f"{listed([f'{env_title(name)} ({reason})' for name, reason in apart.items()])}."
            if apart
            else ""
        )
        return (
            "in slices. Each started by itself, up to its program's first instruction. From there on one ran at a "
            f"time while all others were stopped, slice by slice in {order}, so that the machine's slow moments "
            "fell on all of them. A launch's own time is the sum of its slices. Start and exit of a runtime are "
            f"terms of their own.{others}"
        )
    reason = unsliced_reason(campaign)
    return f"one after the other in {order}{f', not in slices: {reason}' if reason else ''}."


def _steps(campaigns: Sequence[Campaign]) -> str:
    plan = campaigns[0].plan
    measured = plan.measured
    assert measured is not None  # or there would be no view of steps
    levels = listed([arm_title(f"allocator={level}") for level in measured.levels])
    count = "1 replicate" if measured.replicates == 1 else f"{measured.replicates} replicates"
    return (
        f"Training steps: after its epoch each whole run made {count} of its training job ({levels}), one after "
        "the other, on batches in memory. A replicate is a process of its own, with its own model and memory "
        f"layout, where the framework can go on in one: {measured.warmup_steps} steps to warm up, then steps that "
        "are timed each. A fit of launch and step by medians of pairs takes away what all launches of a "
        "round share."
    )


def _copies(campaigns: list[Campaign], between: CopiesRecord | None) -> list[str]:
    """What the second host shares with the first; nothing of older campaigns."""
    told = [campaign.plan.provenance.get("control") for campaign in campaigns]
    shared = sorted({one["reason"] for one in told if one and one["files"] == SHARED})
    lines = []
    if shared:
        lines.append(
            "The second host launched from the first one's own files, so that its interval lacks what differs "
            f"between two copies of them: {'; '.join(shared)}."
        )
    elif any(told):
        lines.append(
            "The second host launched from a second copy of the files, verified and with inodes and pages of its "
            "own: the control's interval holds what differs between two copies."
        )
        lines.append(_between_copies(between))
    return lines


def _between_copies(found: CopiesRecord | None) -> str:
    """How much a step differs between copies, and whether intervals hold it."""
    if found is None:
        return (
            "How much a step differs between copies of the files was not measured on this machine "
            "(benchmarks/copies.py does). An environment keeps its copy for a whole campaign, so that no interval "
            "but the control's holds it."
        )
    between = found.sd_between
    low, high = (spread_text(end) for end in (between.low, between.high))
    if matters(found):
        said = (
            f"so that it counts: intervals of the steps of {found.stack} hold it (Student's t with "
            f"{len(found.copies) - 1} degrees of freedom), and it makes ±{margin_text(found.half_width)} "
            f"{found.widened['value']:.2f} times as wide"
        )
    else:
        said = (
            "by no more than chance: no interval but the control's holds it. What may be hidden there would make "
            f"±{margin_text(found.half_width)} up to {found.widened['high']:.2g} times as wide"
        )
    return (
        f"From copy to copy of the files of {found.stack} a step differs by {spread_text(between.value)} ({low} to "
        f"{high}, standard deviation; {len(found.copies)} copies, {found.rounds} rounds, {found.at[:10]}), {said}."
    )


def _ordered(plan: Plan) -> str:
    """How launches followed each other; plans of older versions have no seed of their own."""
    if plan.order_seed is None:
        return "random order"
    return "balanced order (Williams squares: equal mean places, each after each other equally often)"


def _discarded(campaign: Campaign, name: str) -> str:
    count = campaign.plan.discarded
    if not count:
        return ""
    first = [launch for unit in campaign.units if unit.discarded for launch in unit.launches.values()]
    left_out = sum(launch.reason == IN_MEMORY for launch in first)
    warm = f" ({left_out} of its launches left out, as their files were in memory)" if left_out else ""
    return f"{count} discarded {name}{'s' if count > 1 else ''} came first{warm}. "


def _intervals(rounds: Sequence[Campaign]) -> str:
    """What intervals rest on, by whether the rounds were sliced."""
    sliced = {is_sliced(campaign) for campaign in rounds}
    own = "Student's t with each comparison's own spread"
    lent = (
        "trimmed means with Yuen's spread from eight units on, Student's with fewer, never narrower than the other "
        "comparisons' spreads let one expect"
    )
    if sliced == {True, False}:
        return f"of sliced rounds {own}, of others {lent}"
    return own if sliced == {True} else lent


def _sampling(campaign: Campaign) -> str:
    sampling = campaign.plan.sampling
    if sampling.units is not None:
        return f"How many: {sampling.units} rounds, fixed by the study."
    return (
        f"How many: a pilot of {sampling.pilot} rounds, then as many as ±{margin_text(sampling.half_width)} needs. "
        "Nobody looks in between. A time budget caps the number, from costs alone: neither from means nor from "
        "spreads."
    )


def _arms(evidence: Evidence) -> str:
    baselines = any(role.is_reference for c in evidence.arms() for role in c.plan.launches)
    beside = ", and beside them a launch as in the headline" if baselines else ""
    return (
        f"Arms vary one factor: every environment at the arm's level, two hosts among them{beside}. What the level "
        "costs and what an environment costs at it come from the same units."
    )


def _allocators(rounds: Sequence[Campaign], steps: Sequence[Campaign]) -> str:
    parts = [f"{rounds[0].plan.conditions.allocator} in whole runs"]
    if steps and steps[0].plan.measured is not None:
        parts.append(f"{listed(list(steps[0].plan.measured.levels))} in training steps")
    return f"allocator {listed(parts)}"


def _network(evidence: Evidence) -> str:
    """Whether every launch had an empty network, from what each saw."""
    rows = [row.inside for c in evidence.headlines() for unit in c.units for row in unit.launches.values()]
    rows = [inside for inside in rows if inside is not None]
    connected = [inside for inside in rows if inside.facts.interfaces not in ((), ("lo",))]
    if connected:
        return f"{len(connected)} of {len(rows)} launches saw a network, which could not be taken away here"
    return "no network"


def limit_sentences(evidence: Evidence) -> list[str]:
    """What a reader must not conclude, and why."""
    lines = []
    virtual = evidence.machine.virtualisation if evidence.machine else None
    if virtual and virtual != "none":
        lines.append(
            f"The host of this report is itself virtual ({virtual}): what bare metal would show, it can't say. "
            "Other machines may share its processor, and their work is in these times."
        )
    elif virtual is None:
        lines.append("Whether the host is itself a virtual machine could not be read.")
    rows = joint(evidence.verdicts)
    open_questions = rows[(rows["verdict"] == "inconclusive") & rows["ci_low"].notna()]
    unanswered = rows[rows["ci_low"].isna()]
    if len(open_questions):
        lines.append(
            f"{len(open_questions)} of {len(rows)} comparisons are inconclusive with {counts(rows)}: the "
            "machine's own spread is wider than the margin. More units, in a new campaign, narrow the intervals."
        )
    if len(unanswered):
        lines.append(f"{len(unanswered)} of {len(rows)} comparisons have no interval: too few launches succeeded.")
    if evidence.headlines("steps"):
        lines.append(
            "Training steps are timed on batches in memory, one launch at a time. What loader workers, other jobs "
            "or memory pressure do to a step is in the whole runs only."
        )
    lines += [
        "FLOPs and bytes are modelled from operators. The bytes count every operand as if no cache kept any of it: "
        "an upper bound, never DRAM traffic.",
        "Each environment was profiled once: its operator times and utilisation show what runs, not small "
        "differences.",
        "One machine, one day. Another may differ.",
    ]
    return lines
