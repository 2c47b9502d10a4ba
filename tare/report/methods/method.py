"""How it was measured and what limits it, in sentences computed from the plans."""

from __future__ import annotations

from collections import Counter

from tare.analysis.copies import matters
from tare.model.journals.units import DRAWN_ANEW, IN_MEMORY
from tare.model.records.campaigns import SHARED, Plan
from tare.model.records.measured import CopiesRecord
from tare.model.registry import BASELINE
from tare.report.evidence import Campaign, Evidence
from tare.report.figures import joint
from tare.report.figures.forest import counts
from tare.report.methods.instrument import spread_text
from tare.report.words.labels import env_title
from tare.report.words.wording import listed, margin_text


def method_sentences(evidence: Evidence) -> list[str]:
    """The design of the campaigns, as it was declared before any data."""
    rounds, turns = evidence.headlines("rounds"), evidence.headlines("turns")
    if not rounds and not turns:
        return ["No campaign of all environments has been sealed."]
    plan = (rounds or turns)[0].plan
    return [
        *([_rounds(rounds[0])] if rounds else []),
        *([_turns(turns[0])] if turns else []),
        "The unit is the round or the block, never the launch, the turn or the step. Per unit: the logarithm of "
        "each environment's ratio to the mean of the two hosts. The control is the second host's ratio to the "
        "first: what the instrument sees where nothing is.",
        *_copies([*rounds, *turns], evidence.copies),
        _sampling([*rounds[:1], *turns[:1]]),
        _families(plan.sampling.confidence),
        "Intervals: trimmed means with Yuen's spread from eight units on, Student's with fewer, never narrower "
        "than the other comparisons' spreads let one expect; where the pilot's spread chose the number of units, "
        "the wider of that and Stein's. The interval that is printed is the one that decides; a bootstrap stands "
        "beside it as a check and decides nothing. With fewer than "
        f"{plan.sampling.verdict_units} units there is no verdict.",
        "Beside the typical time stands all time, stalls included. “Equivalent” without more words: both lie "
        "inside the margin and stalls add nothing that is sure; else it is said to hold but for stalls.",
        f"Margins, declared before the data: {margin_text(plan.margins['run'])} for whole runs and their parts, "
        f"{margin_text(plan.margins['step'])} for training steps. Inside and across zero: equivalent. Inside, "
        "not across zero: different within the margin. Across zero and beyond the margin: inconclusive. Else: "
        "different.",
        *([_arms(evidence)] if evidence.arms() else []),
        f"Equal for all: {plan.conditions['threads']} thread(s), {plan.conditions['cpus']} logical CPU(s), "
        f"open files, /dev/shm, an allow-listed environment, working directory, data path; {_network(evidence)}; "
        f"page cache {plan.conditions['page_cache']}; {_allocators(rounds, turns)}; "
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
        f"Rounds: each round launched {len(plan.environments)} whole runs to completion, one after the other in "
        f"{_ordered(plan)}, the host among them twice. {_discarded(campaign, 'round')}A seed in the plan "
        "gives every order and every size of the environment block; both are in the records."
    )


def _turns(campaign: Campaign) -> str:
    names = len(campaign.plan.environments)
    settled = any(unit.calibration for unit in campaign.units)
    return (
        f"Turns: in each block {names} launches were alive together, the host among them twice, and one at a time "
        "worked. A draw forked a fresh process from every launch, with a heap of its own; in a cycle each took one "
        f"turn, in {_ordered(campaign.plan)}, on one core that changed from block to block. A turn is a burst of "
        "steps: leading ones that are discarded, then those that count. A robust fit of launch and cycle takes the "
        "machine's mood of each moment away. The first block settled all this and counts nowhere"
        f"{': what it settled is below' if settled else ''}."
    )


def _copies(campaigns: list[Campaign], between: CopiesRecord | None) -> list[str]:
    """What the second host shares with the first, and whose pages were drawn anew; nothing of older campaigns."""
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
    return lines + _pages([campaign for campaign in campaigns if campaign.kind == "turns"])


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
        f"{high}, standard deviation; {len(found.copies)} copies, {found.blocks} blocks, {found.at[:10]}), {said}."
    )


def _pages(turns: list[Campaign]) -> list[str]:
    """Whose pages were drawn anew before blocks, and whose were kept."""
    told = [
        (name, what)
        for campaign in turns
        for unit in campaign.counted
        for name, what in (unit.pages or {}).items()
        if not name.endswith(BASELINE)
    ]
    if not told:
        return []
    anew, kept = Counter(), Counter()
    reasons = {}
    for name, what in told:
        (anew if what == DRAWN_ANEW else kept)[name] += 1
        if what != DRAWN_ANEW:
            reasons[name] = what.partition(": ")[2]
    lines = []
    if anew:
        blocks = [f"{env_title(name, short=True)} in {anew[name]} of {anew[name] + kept[name]}" for name in anew]
        lines.append(
            "Before a block of turns the cached pages of what launches map were dropped, so that each block drew "
            f"others: {listed(blocks)}."
        )
    if kept:
        whose = [f"{env_title(name, short=True)} ({reasons[name]})" for name in kept]
        lines.append(
            f"Where they were kept, blocks share their pages, and no interval holds what other pages would do: "
            f"{listed(whose)}."
        )
    return lines


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


def _sampling(campaigns: list[Campaign]) -> str:
    parts = []
    for campaign in campaigns:
        sampling, name = campaign.plan.sampling, {"rounds": "rounds", "turns": "blocks"}[campaign.kind]
        if sampling.units is not None:
            parts.append(f"{sampling.units} {name}, fixed by the study")
        else:
            half = margin_text(sampling.half_width)
            parts.append(f"a pilot of {sampling.pilot} {name}, then as many as ±{half} needs")
    chosen = any(campaign.plan.sampling.pilot for campaign in campaigns)
    rest = (
        " Nobody looks in between. A time budget caps the number, from costs alone: neither from means nor from "
        "spreads."
    )
    return f"How many: {listed(parts)}.{rest if chosen else ''}"


def _arms(evidence: Evidence) -> str:
    baselines = any(name.endswith(BASELINE) for c in evidence.arms() for name in c.plan.environments)
    beside = ", and beside them a launch as in the headline" if baselines else ""
    return (
        f"Arms vary one factor: every environment at the arm's level, two hosts among them{beside}. What the level "
        "costs and what an environment costs at it come from the same units."
    )


def _allocators(rounds: list[Campaign], turns: list[Campaign]) -> str:
    parts = [
        f"{campaigns[0].plan.conditions['allocator']} in {name}"
        for name, campaigns in (("whole runs", rounds), ("turns", turns))
        if campaigns
    ]
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
    if evidence.headlines("turns"):
        lines.append(
            "Turns time steps on batches in memory, one launch at a time. What loader workers, other jobs or "
            "memory pressure do to a step is in the whole runs only."
        )
    lines += [
        "FLOPs and bytes are modelled from operators. The bytes count every operand as if no cache kept any of it: "
        "an upper bound, never DRAM traffic.",
        "Each environment was profiled once: its operator times and utilisation show what runs, not small "
        "differences.",
        "One machine, one day. Another may differ.",
    ]
    return lines
