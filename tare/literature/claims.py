"""Judges what a published study claims, from the instrument's own tables and never by eye.

Every claim gets two answers: what the study's own figures and logs say (papers/findings.csv), and what this machine
says (`claims` of tare.model.tables): HOLDS, FAILS, OPEN, or OTHER, where here it is not the same question.
Only a study's own data can contradict it. A claim is data, a rule is code (RULES, docs/published.md).

Everything between is OPEN; where environments of the paper's are missing the reason begins with what the others
say, which alone may make a claim about all of them FAIL, and never HOLD. The paper's environments decide, others
are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tare.analysis.choice import compared as compared_rows
from tare.literature import match, pair_claims
from tare.literature.answers import NOTHING, OTHER, Answer, decide, opened, sentence
from tare.literature.audit import CLAIM, computed
from tare.literature.contrasts import (
    FEWEST_TO_SETTLE,
    INSIDE,
    OUTSIDE,
    At,
    Ratio,
    one_ended,
    paired,
    to_alone,
    to_host,
    units,
)
from tare.literature.finding import amount, listed, words
from tare.literature.level_claims import FEWEST as FEWEST_OF_LEVELS
from tare.literature.level_claims import faster
from tare.literature.match import Compared
from tare.literature.measured_here import Here, no_scenario, of_reference, why_absent
from tare.literature.order_claims import ordered
from tare.literature.published import Published, load
from tare.literature.published_file import AT_LEAST, BOUNDED, FASTER, OF_TWO, Claim
from tare.literature.repaid_claims import repays
from tare.literature.set_claims import kernels_differ, same_files
from tare.literature.vocabulary import FIGURE_METRICS, RATES, SLOWDOWN, UNIT_METRICS, kind_of
from tare.model import tables
from tare.model.journals import references
from tare.model.registry import DISTRIBUTED, HOST, SHARED
from tare.model.studies import arms, papers
from tare.model.studies.campaigns import CampaignId, campaigns, sampling_in
from tare.model.studies.layout import ROUNDS, STEPS, arm_of
from tare.model.studies.study import Study

MODELS = {
    "flops": ("flops_per_step", "1"),
    "hbm_transactions": ("operator_bytes_per_step", "B"),
    "flop_per_s": ("step_flop_per_s", "FLOP/s"),
}


def judge_claims(published: Published, here: Here) -> pd.DataFrame:
    """The table `claims`: one row per claim and workload."""
    rows, known = [], computed(published.paper)
    known = known[known["check"] == CLAIM].set_index(["claim", "workload"])
    for claim in published.claims:
        assert published.measured_with is not None  # a file with claims has it
        for workload in claim.subjects:
            says, note = known.loc[(claim.id, workload), ["agrees", "note"]]
            compared = match.compare(match.measured_with(published.measured_with, claim), claim, here, workload)
            environments = claim.environments or published.measured_with.environments
            answer = _answer(claim, workload, environments, compared, here)
            rows.append(
                {
                    "paper": published.paper,
                    "claim": claim.id,
                    "workload": workload,
                    "figures": ", ".join(_figures(published, claim, workload)) or None,
                    "statement": claim.statement,
                    "published_says": says,
                    "published_note": note,
                    "here": answer.here,
                    "match": sentence([str(one) for one in compared.values()]),
                    "evidence": answer.evidence,
                    "scaled": here.scaled(workload, claim.scenario, claim.arm),
                    "reason": answer.reason,
                }
            )
    return tables.make("claims", rows)


def write_of_device(folder: Path, made: Path) -> int:
    """Judge what papers claim of a device by another machine's reference campaign; writes and counts `claims.csv`.

    `folder`: as it was recorded, or its archive. `made`: its tables; of a broken one there are no claims.
    Raises UserError or IntegrityError: a table, a record or a paper can't be read.
    """
    if (made / references.BROKEN).exists():
        tables.write("claims", tables.make("claims", []), made / "claims.csv")
        return 0
    here, judged = of_reference(references.opened(folder), made), [tables.make("claims", [])]
    for paper in papers.paper_names(papers.folder()):
        study = load(paper)
        of_device = tuple(claim for claim in study.claims if "device" in claim.needs)
        subjects = [name for claim in of_device for name in claim.subjects]
        if not here.metrics["workload"].isin(subjects).any():
            continue
        found = judge_claims(replace(study, claims=of_device), here)
        judged.append(found[found["workload"].isin(here.metrics["workload"])])
    table = pd.concat([one for one in judged if len(one)] or judged[:1], ignore_index=True)
    tables.write("claims", table, made / "claims.csv")
    return len(table)


def beyond(published: Published, study: Study) -> list[str]:
    """Claims that a study can't settle whatever it measures, or of which it can only say that they fail.

    Returns a line for each claim of something that the study trains: which, and why.
    """
    assert published.measured_with is not None or not published.claims
    lines = []
    for claim in published.claims:
        found: dict[str, list[str]] = {}
        for workload in (name for name in claim.subjects if name in study.workloads):
            for reason in _beyond(published, claim, workload, study):
                found.setdefault(reason, []).append(workload)
        reasons = [f"{reason} ({listed(names)})" for reason, names in found.items()]
        lines += [f"{published.paper}, {claim.id}: {'; '.join(reasons)}"] if reasons else []
    return lines


def _beyond(published: Published, claim: Claim, workload: str, study: Study) -> list[str]:
    """Why a study can't settle a claim about one workload; nothing of rules that need no units."""
    kinds = {UNIT_METRICS[metric] for metric in claim.metrics if metric in UNIT_METRICS}
    if claim.why_not is not None:
        return [f"never settled: {claim.why_not}"]
    if len(kinds) != 1:
        return []
    levels = (claim.level, claim.against) if claim.rule == FASTER else (claim.arm,)
    asked = [(workload, level, claim.scenario) for level in levels]
    if claim.rule in OF_TWO:
        both = [one for pair in pair_claims.sides(claim, workload) for one in pair]
        asked = list(dict.fromkeys((one.workload, one.claim.arm, one.claim.scenario) for one in both))
    fewest = FEWEST_OF_LEVELS if claim.rule == FASTER else FEWEST_TO_SETTLE
    reasons = []
    for name, level, scenario in asked:
        one = _campaign(study, name, next(iter(kinds)), level, scenario)
        if one is None:
            at = f" at {level}" if level else ""
            of = f" of {name}" if name != workload else ""
            reasons.append(f"never settled: the study has no {next(iter(kinds))}{at}{of} ({scenario})")
            continue
        if (count := _units(study, one)) is not None and count < fewest:
            reasons.append(f"never settled: {one.name} has {units(count)}, and claims are settled from {fewest} on")
        assert published.measured_with is not None
        about = claim.environments or published.measured_with.environments
        absent = [env for env in about if env not in one.environments] if claim.rule != FASTER else []
        if absent and (claim.env in absent or set(about) <= {HOST, *absent}):
            reasons.append(f"never settled: {one.name} is without {listed(absent)}")
        elif absent:
            reasons.append(f"may fail and can't hold: {one.name} is without {listed(absent)}")
    return list(dict.fromkeys(reasons))


def _campaign(study: Study, workload: str, kind: str, level: str | None, scenario: str) -> CampaignId | None:
    """The campaign that has a level: its own, else the headline's, where that is at the level.

    Training steps are measured by whole runs, and at each level of the allocator by the same runs.
    """
    steps = kind == STEPS
    measured = study.rounds.steps.levels if study.rounds.steps else ()
    if steps and not measured:
        return None
    wanted_kind = ROUNDS if steps else kind
    own = [
        one
        for one in campaigns(study)
        if (one.workload, one.kind, one.scenario) == (workload, wanted_kind, scenario)
    ]
    if steps and level in {f"allocator={one}" for one in measured}:
        return next((one for one in own if one.arm is None), None)
    first = {f"{name}={known[0]}" for name, known in {**arms.COMMON, **arms.INSIDE, **arms.SHARED_FACTORS}.items()}
    wanted = [level, None] if level in first else [level]
    return next((one for arm in wanted for one in own if one.arm == arm), None)


def _units(study: Study, one: CampaignId) -> int | None:
    """Units of a campaign; None where they are planned, by a pilot of as many as a claim takes."""
    arm = arms.parse(one.arm) if one.arm else None
    return sampling_in(study, one.workload, arm, one.scenario).units


def _figures(published: Published, claim: Claim, workload: str) -> list[str]:
    """The claim's figures of this workload."""
    return [figure for figure in claim.figures if workload in published.plot(figure).subjects]


def _answer(
    claim: Claim, workload: str, environments: Sequence[str], compared: Mapping[str, Compared], here: Here
) -> Answer:
    """The rule's answer, where what the claim needs is as published."""
    if lacking := no_scenario(here.metrics, claim.scenario):
        return opened(NOTHING, lacking)
    can_be_here = claim.why_not is None or claim.level is not None
    if can_be_here and not (here.metrics["workload"] == workload).any():
        return opened(NOTHING, "this workload is not part of this study")
    answer = RULES[claim.rule](claim, workload, environments, here)
    needed = [compared[name] for name in claim.needs]
    if others := [one for one in needed if one.same is False]:
        reasons = [f"another {one.title}: published {one.published}; here {one.here}" for one in others]
        reasons += [answer.reason] if answer.here == OTHER and answer.reason else []
        return Answer(here=OTHER, evidence=answer.evidence, reason="; ".join(reasons))
    unknown = [one.title for one in needed if one.same is None]
    if unknown and answer.evidence != NOTHING:
        return opened(answer.evidence, f"which {listed(unknown)} this was measured with is not recorded")
    return answer


def _equal(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    return _each(
        claim, workload, environments, here,
        holds=lambda one: one.position == INSIDE and not one.apart_from_stalls,
        fails=lambda one: one.position == OUTSIDE,
    )  # fmt: skip


def _bounded(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    """No worse than the host by more than the bound, or by no less: of a time upwards, of a rate downwards."""
    assert claim.bound is not None
    most = 1 + claim.bound.value / 100

    def ends(one: Ratio) -> tuple[float, float]:
        """How much worse the near and the far end of the interval are, 1 being the host."""
        low, high = one.against_bound or (math.nan, math.nan)
        return (2 - high, 2 - low) if one.metric in RATES else (low, high)

    if claim.rule == AT_LEAST:
        return _each(
            claim, workload, environments, here,
            holds=lambda one: ends(one)[0] >= most, fails=lambda one: ends(one)[1] < most,
        )  # fmt: skip
    return _each(
        claim, workload, environments, here,
        holds=lambda one: ends(one)[1] <= most, fails=lambda one: ends(one)[0] > most,
    )  # fmt: skip


def _each(
    claim: Claim, workload: str, environments: Sequence[str], here: Here, *,
    holds: Callable[[Ratio], bool], fails: Callable[[Ratio], bool],
) -> Answer:  # fmt: skip
    """HOLDS where every environment's ratio to the host does, in every metric; FAILS where one fails.

    A bound of a slow-down by a co-runner is held against each environment's own ratio to itself, the host's too.
    """
    by_itself = (SLOWDOWN,) if claim.rule in BOUNDED else ()
    found = [
        ratio
        for metric in claim.metrics
        for ratio in (
            to_alone(here, workload, _at(claim))
            if metric in by_itself
            else to_host(here, workload, metric, _at(claim))
        )
    ]
    bounded = claim.rule in BOUNDED
    deciding = [one for one in found if one.env in environments and (one.against_bound if bounded else one.span)]
    held: dict[str, bool] = {}
    for one in deciding:
        name = f"{words(one.metric)} of {one.env}"
        held[name] = held.get(name, True) and holds(one)
    known = {(one.env, one.metric) for one in deciding}
    missing = [
        (env, metric)
        for metric in claim.metrics
        for env in environments
        if (env != HOST or metric in by_itself) and (env, metric) not in known
    ]
    # What more units would settle is the verdicts' own margin, and no bound.
    asked = [replace(one, more=None) for one in deciding] if bounded else deciding
    why = _why_missing(missing, claim, workload, here, found) if missing else None
    evidence = _evidence(found, claim, workload, environments, here)
    return decide(evidence, held, any(fails(one) for one in deciding), why, _left_open(asked))


def _at(claim: Claim) -> At:
    return At(level=claim.arm, scenario=claim.scenario)


def _extreme(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    """Lowest, or highest: `highest` is `lowest` of the inverse ratios."""
    env = str(claim.env)
    others = [name for name in environments if name != env]
    found = [one for metric in claim.metrics for one in paired(here, workload, metric, env, others, _at(claim))]
    spans = {(one.against, one.metric): one.span for one in found if one.against in others and one.span}
    lower = claim.rule == "lowest"
    holds = {pair: high < 1 if lower else low > 1 for pair, (low, high) in spans.items()}
    fails = [low > 1 if lower else high < 1 for low, high in spans.values()]
    missing = [(other, metric) for metric in claim.metrics for other in others if (other, metric) not in spans]
    lacking = [(env if other == HOST or not found else other, metric) for other, metric in missing]
    why = _why_missing(lacking, claim, workload, here, found) if missing else None
    held = {f"{words(metric)} compared with {other}": one for (other, metric), one in holds.items()}
    evidence = _evidence(found, claim, workload, environments, here)
    return decide(evidence, held, any(fails), why, _left_open(found))


def _of_two(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    return pair_claims.compare(claim, workload, environments, here, _why_missing)


RULES: dict[str, Callable[[Claim, str, Sequence[str], Here], Answer]] = {
    "equal": _equal,
    "highest": _extreme,
    "lowest": _extreme,
    "at_most": _bounded,
    "at_least": _bounded,
    "more_than": _of_two,
    "as_much_as": _of_two,
    "faster": faster,
    "ordered": ordered,
    "repays": repays,
    "kernels_differ": kernels_differ,
    "same_files": same_files,
}


def _evidence(found: Sequence[Ratio], claim: Claim, workload: str, environments: Sequence[str], here: Here) -> str:
    return sentence([str(one) for one in found]) or _modelled(claim, workload, environments, here)


def _left_open(found: Sequence[Ratio], what: str = "it") -> str:
    settle = [one.more for one in found if one.more]
    more = f": about {units(max(settle))} more would settle it" if settle else ""
    stalls = ", stalls included" if any(one.apart_from_stalls for one in found) else ""
    return f"the intervals leave {what} open{stalls}{more}"


def _why_missing(
    missing: Sequence[tuple[str, str]], claim: Claim, workload: str, here: Here, found: Sequence[Ratio]
) -> str:
    """Why a comparison that a claim is about settles nothing, by environment and metric."""
    reasons = []
    absent = list(dict.fromkeys(env for env, _ in missing if here.lacks(env)))
    for env, metric in missing:
        few = [one.units for one in found if one.metric == metric and env in (one.env, one.against) and one.low]
        value = here.value(workload, env, metric, level=claim.arm, scenario=claim.scenario)
        if stopped := one_ended(here, workload, metric, _at(claim)).get(env):
            reason = stopped
        elif few and min(few) < FEWEST_TO_SETTLE:
            reason = (
                f"an interval from {units(min(few))} settles nothing, one from {FEWEST_TO_SETTLE} may"
                f"{_key_of_units(claim, workload, metric, here)}"
            )
        elif few:
            what = words(metric) if len(claim.metrics) > 1 else "it"
            reason = _left_open([one for one in found if one.metric == metric], what)
        elif value.kind == "unavailable":
            host = here.value(workload, HOST, metric, level=claim.arm, scenario=claim.scenario)
            if env in absent and host.value is not None:
                continue
            reason = host.note if env in absent else value.note
        elif value.kind == "modelled":
            reason = f"{words(metric)} that ran take the device's counters; an operator count is a model"
        else:
            reason = f"one number of {words(metric)} in {env}, and no interval"
        reasons.append(reason)
    return "; ".join(dict.fromkeys([*reasons, *why_absent(absent, claim.scenario)]))


def _key_of_units(claim: Claim, workload: str, metric: str, here: Here) -> str:
    """Which key of a study's file says how many units whole runs of a scenario with other jobs have."""
    if claim.scenario not in (SHARED, DISTRIBUTED):
        return ""
    own = here.metrics[here.metrics["workload"] == workload]
    names = compared_rows(own, kind_of(metric), claim.arm, claim.scenario)["campaign"].unique()
    is_arm = any(arm_of(name) is not None for name in names)
    return f" ({claim.scenario}.{'arm_units' if is_arm else 'units'} in the study's file)"


def _modelled(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> str:
    """What one launch counted; where the device has no counters, a model: operator counts of one step."""
    if counted := _single(claim, workload, environments, here):
        return counted
    for metric in claim.metrics:
        if metric not in MODELS:
            continue
        name, unit = MODELS[metric]
        own = here.metrics
        own = own[(own["workload"] == workload) & (own["metric"] == name) & (own["kind"] == "modelled")]
        if own.empty:
            continue
        counts = own.drop_duplicates("launch").set_index("launch")["value"]
        if counts.nunique() == 1:
            places = listed(list(counts.index))
            return f"A model, no measurement: {name} is {amount(counts.iloc[0], unit)} in {places}."
        values = [f"{env} {amount(value, unit)}" for env, value in counts.items()]
        return f"A model, no measurement: {name} is {listed(values)}."
    return NOTHING


def _single(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> str:
    """Numbers of one launch in each environment: reported, but without a spread."""
    found = []
    for metric in claim.metrics:
        for env in environments:
            value = here.value(workload, env, metric, level=claim.arm, scenario=claim.scenario)
            if value.value is not None and value.kind == "measured":
                found.append(f"{words(metric)} {env} {amount(value.value, FIGURE_METRICS[metric])} ({value.note})")
    return sentence(found)
