"""Two studies claim by claim: whether one that was measured elsewhere, or later, agrees with the first.

A claim is a row of the table `verdicts`. It is found again by workload, kind, arm, scenario, launch, metric and
reference; the set of environments may differ. Of both the same job has to be measured. What one of them lacks is a
row all the same, with the reason. After Tonkaz's levels (Suetake et al. 2023), by the interval of the difference of
both log-ratios (`tare.stats.agreement`):

same            inside the margin, and both have the same conclusive verdict, to one side
compatible      inside the margin
different       not inside, and it excludes zero
undecided       not inside, and it holds zero; or too few units for a verdict
not compared    one of them has no such claim or no interval, or measured another job

Primary claims of both are one family by Holm's ladder, all others explore, as in `verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from tare.analysis.choice import PRIMARY
from tare.analysis.decisions import Decision, read_decisions
from tare.model.levels import level_column
from tare.model.records.campaigns import VERDICT_UNITS, Plan
from tare.model.studies.layout import ROUNDS, STEPS, read_name
from tare.model.studies.stamps import differing
from tare.model.tables import COMPATIBLE, INCONCLUSIVE, NOT_COMPARED, SAME, SIDES, UNDECIDED
from tare.stats.agreement import Gap, Judged, Stated, fewest_degrees, judged
from tare.stats.families import holm_levels, selected_level

CLAIM = ("workload", "scenario", "environment", "launch", "metric", "reference", "compares", "role")
STATED = ("study", "machine", "campaign", "ratio", "ci_low", "ci_high", "alpha", "verdict")
# Of a launch, in which two plans may not differ: it would be another job.
JOB = (
    *("mode", "batch", "options", "framework", "device", "loader_workers", "epochs", "steps", "warmup_steps"),
    *("batches", "exchange", "samples_each"),
)
LEVEL = level_column("")  # begins the name of a column with levels
Row = dict[str, Any]
Question = tuple[str, str]  # workload, campaign
Key = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two, with its tables."""

    name: str  # in sentences
    verdicts: pd.DataFrame
    decisions: pd.DataFrame | None = None
    plans: Mapping[Question, Plan] = field(default_factory=dict)  # of campaigns, as far as they are there

    def plan_of(self, question: Question) -> Plan | None:
        """Of a campaign, or of the one that a view of training steps is of."""
        workload, campaign = question
        named = read_name(campaign)
        if named.kind != STEPS:
            return self.plans.get(question)
        own = replace(named, kind=ROUNDS)
        of_runs = (self.plans.get((workload, one.text)) for one in (own, replace(own, arm=None)))
        return next((plan for plan in of_runs if plan is not None), None)


def agreed(first: Side, second: Side) -> list[Row]:
    """Rows of the table `agreement`, in the first's order; claims that the second alone has come last."""
    ranked = [_decided(side) for side in (first, second)]
    rows = [_row(pair, ranked) for pair in _pairs(first, second)]
    for is_primary in (True, False):
        own = [row for row in rows if (row["role"] == PRIMARY) == is_primary]
        _judge([row for row in own if "gap" in row], _alpha(first, second), is_primary)
    return rows


def _alpha(first: Side, second: Side) -> float:
    """Of a family: the least that either study allows."""
    return min(
        (float(side.verdicts["family_alpha"].min()) for side in (first, second) if len(side.verdicts)), default=0.0
    )


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A claim in both, or in one of them."""

    rows: tuple[Row | None, Row | None]
    reason: str | None = None  # why nothing is judged
    called: str = NOT_COMPARED  # what it is called then


def _pairs(first: Side, second: Side) -> Iterator[_Pair]:
    theirs = {question: _by_claim(rows) for question, rows in _campaigns(second.verdicts).items()}
    matches = _matches(_campaigns(first.verdicts), theirs)
    for question, rows in _campaigns(first.verdicts).items():
        match = matches.get(question)
        if match is None:
            reason = _lacking(second, question)
            yield from (_Pair(rows=(row, None), reason=reason) for row in rows)
            continue
        other_job = _other_job(first.plan_of(question), second.plan_of(match))
        found = theirs[match]
        for key, row in _by_claim(rows).items():
            other = found.pop(key, None)
            if other is None:
                yield _Pair(rows=(row, None), reason=_lacking(second, match, row))
            else:
                unknown = _no_interval(first, row) or _no_interval(second, other)
                barred = other_job or _other_row(row, other) or unknown
                few = None if barred else _too_few(first, row) or _too_few(second, other)
                yield _Pair(rows=(row, other), reason=barred or few, called=UNDECIDED if few else NOT_COMPARED)
    taken = set(matches.values())
    for question, left in theirs.items():
        for row in left.values():
            reason = _lacking(first, question, row if question in taken else None)
            yield _Pair(rows=(None, row), reason=reason)


def _campaigns(verdicts: pd.DataFrame) -> dict[Question, list[Row]]:
    found: dict[Question, list[Row]] = {}
    for row in verdicts.to_dict("records"):
        found.setdefault((row["workload"], row["campaign"]), []).append(row)
    return found


def _by_claim(rows: Iterable[Row]) -> dict[Key, Row]:
    return {(row["launch"], row["metric"], row["reference"]): row for row in rows}


def _matches(first: Iterable[Question], second: Iterable[Question]) -> dict[Question, Question]:
    """By campaign of the first that of the second: of its name, else the only other one of its design."""
    ours, theirs = list(first), list(second)
    found = {question: question for question in ours if question in theirs}
    left = _by_design(question for question in theirs if question not in found)
    for design, own in _by_design(question for question in ours if question not in found).items():
        if len(own) == len(left.get(design, ())) == 1:
            found[own[0]] = left[design][0]
    return found


def _by_design(questions: Iterable[Question]) -> dict[Question, list[Question]]:
    found: dict[Question, list[Question]] = {}
    for workload, campaign in questions:
        found.setdefault((workload, read_name(campaign).design), []).append((workload, campaign))
    return found


def _lacking(side: Side, question: Question, row: Row | None = None) -> str:
    """Why a side has no such claim."""
    workload, campaign = question
    if row is not None:
        plan = side.plan_of(question)
        why = plan.unavailable.get(row["environment"]) if plan else None
        if why:
            return f"{side.name} lacks {row['environment']}: {why}"
        has_it = (side.verdicts["environment"] == row["environment"]).any()
        what = f"{row['metric']} of {row['launch']} in {workload} {campaign}" if has_it else row["environment"]
        return f"{side.name} did not measure {what}"
    if not (side.verdicts["workload"] == workload).any():
        return f"{side.name} did not measure {workload}"
    return f"{side.name} has no campaign {campaign} of {workload}"


def _other_job(first: Plan | None, second: Plan | None) -> str | None:
    """In what the jobs of two campaigns differ; None where they are one job, or that is unknown."""
    if first is None or second is None:
        return None
    one, other = ({name: plan.spec.to_json().get(name) or None for name in JOB} for plan in (first, second))
    other_names = differing(one, other)
    return f"another job: {', '.join(other_names)}" if other_names else None


def _other_row(first: Row, second: Row) -> str | None:
    """In what the cells of two rows differ that is not the machine's."""
    levels = sorted(name for name in {*first, *second} if name.startswith(LEVEL))
    for name in ("stack", "batch", *levels, "scaled"):
        one, other = ("none" if pd.isna(row.get(name)) else str(row[name]) for row in (first, second))
        if one != other:
            what = "size" if name == "scaled" else name.removeprefix(LEVEL)
            return f"another {what}: {one} and {other}"
    return None


def _no_interval(side: Side, row: Row) -> str | None:
    """Why a side's row has no interval; None where it has one."""
    if not any(pd.isna(row[name]) for name in ("ratio", "ci_low", "ci_high")) and 0 < row["alpha"] < 1:
        return None
    why = "" if pd.isna(row["reason"]) else f": {row['reason']}"
    return f"{side.name} has no interval{why}"


def _too_few(side: Side, row: Row) -> str | None:
    """Of how few units a side's row is, where that is too few for a verdict; None where it is not."""
    plan = side.plan_of((row["workload"], row["campaign"]))
    fewest = plan.sampling.verdict_units if plan else VERDICT_UNITS
    if row["n_units"] >= fewest:
        return None
    return f"{side.name} has {row['n_units']} complete units; a verdict needs {fewest}"


def _decided(side: Side) -> dict[Key, Decision]:
    """What a side decides on its claims."""
    found = [] if side.decisions is None else read_decisions(side.decisions)
    return {
        (one.workload, one.cell.campaign, one.env, one.metric, one.reference): one
        for one in found
        if one.length_s is None
    }


def _row(pair: _Pair, decided: Sequence[Mapping[Key, Decision]]) -> Row:
    """A row without its agreement, where it may have one."""
    rows = [row for row in pair.rows if row is not None]
    found = {name: rows[0][name] for name in CLAIM}
    found["margin"] = min(row["margin"] for row in rows)
    for side, row, own in zip(SIDES, pair.rows, decided, strict=True):
        if row is None:
            continue
        found |= {f"{side}_{name}": row[name] for name in STATED} | {f"{side}_n": row["n_units"]}
        key = (row["workload"], row["campaign"], row["launch"], row["metric"], row["reference"])
        if (one := own.get(key)) is not None:
            change = None if one.change is None else f"{one.change.factor}={one.change.level}"
            found |= {
                f"{side}_rank": one.rank,
                f"{side}_cause": one.reason.cause.value,
                f"{side}_cause_what": one.reason.what,
                f"{side}_change": change,
            }
    if pair.reason is not None:
        return {**found, "agreement": pair.called, "reason": pair.reason}
    margins = {row["margin"] for row in rows}
    notes = [f"margins differ, {' and '.join(f'{one:g}' for one in sorted(margins))}: the smaller one counts"]
    return {**found, "reason": notes[0] if len(margins) > 1 else None, "gap": _gap(*rows)}


def _gap(first: Row, second: Row) -> Gap:
    stated = [
        Stated(
            mean=math.log(row["ratio"]),
            low=math.log(row["ci_low"]),
            high=math.log(row["ci_high"]),
            alpha=row["alpha"],
            degrees=fewest_degrees(row["n_units"], row["design"]),
        )
        for row in (first, second)
    ]
    return Gap(first=stated[0], second=stated[1], n=min(first["n_units"], second["n_units"]))


def _judge(rows: Sequence[Row], alpha: float, is_primary: bool) -> None:
    """Put what its difference says into each row of a family."""
    gaps = [row.pop("gap") for row in rows]
    levels = holm_levels if is_primary else _selected
    for row, found in zip(rows, judged(gaps, [row["margin"] for row in rows], alpha, levels), strict=True):
        row |= found.interval.mapped(math.exp).columns("ratio", "ci_low", "ci_high")
        row |= {"alpha": found.alpha, "agreement": _called(row, found)}


def _selected(p_values: Sequence[float], alpha: float) -> list[float]:
    return [selected_level(p_values, alpha)] * len(p_values)


def _called(row: Row, found: Judged) -> str:
    first, second = (row[f"{side}_verdict"] for side in SIDES)
    sides = {row[f"{side}_ratio"] > 1 for side in SIDES}
    alike = first == second != INCONCLUSIVE and (first.startswith("equivalent") or len(sides) == 1)
    return SAME if found.agreement == COMPATIBLE and alike else found.agreement


def departures(first: Side, second: Side) -> list[str]:
    """In what the studies differ, one line each: what was asked for, and by which programs it was measured."""
    pairs = _matches(first.plans, second.plans)
    both = [(first.plans[own], second.plans[other]) for own, other in pairs.items()]
    changed = {name for one, other in both for name in differing(one.part or {}, other.part or {})}
    lines = [f"the studies differ in {', '.join(sorted(changed))}"] if changed else []
    other_code = sum(one.code_sha256 != other.code_sha256 for one, other in both)
    if other_code:
        lines.append(f"other programs measured {other_code} of {len(both)} campaigns")
    for side, plans in ((first, both), (second, [(other, one) for one, other in both])):
        whole = sum(one.slicing_refused is not None and other.slicing_refused is None for one, other in plans)
        if whole:
            lines.append(f"{side.name} could not slice the launches of {whole} of {len(both)} campaigns")
    return lines
