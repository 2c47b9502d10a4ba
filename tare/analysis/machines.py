"""Comparisons of a study that several machines measured: a row for each machine, and one for equal ones together.

A campaign is measured on one machine, so each row of a machine compares launches of that machine alone. Equal
machines (nodes of one kind) are a sample of their kind: their rows are put together by a random-effects model
(`tare.stats.nodes`). Unlike machines are never put together, nor two names of one machine.

The error of a machine's effect follows from its interval: half of it, by the quantile of Student's t with n - 1
degrees of freedom. Where the interval rests on more than the rounds' own spread the error is too large, never too
small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, PRIMARY
from tare.analysis.decisions import Decision
from tare.stats.intervals import Interval, judge, t_quantile
from tare.stats.nodes import FEWEST, between

ALONE, TOGETHER = "machine", "kind"
MEASURED, UNAVAILABLE = "measured", "unavailable"
APART_FROM_STALLS = "equivalent apart from stalls"
Row = dict[str, Any]
Question = tuple[str, str, str, str]  # workload, campaign, environment, metric


def compared(
    found: Mapping[str, Sequence[Decision]],
    kinds: Mapping[str, str],
    hosts: Mapping[str, str | None],
    confidence: float,
) -> list[Row]:
    """Rows of the table `machines`, question by question.

    By machine: `found`, the decisions of its results; `kinds`, of which equal machines have the same; `hosts`,
    host names. `confidence`: of the rows of kinds; each by itself.
    """
    twice = {
        kind: _twice([hosts[machine] for machine in found if kinds[machine] == kind]) for kind in kinds.values()
    }
    asked = {machine: {_question(one): one for one in _headlines(own)} for machine, own in found.items()}
    rows = []
    for question in dict.fromkeys(key for own in asked.values() for key in own):
        alone = {machine: own.get(question) for machine, own in asked.items()}
        rows += [_alone(question, machine, kinds[machine], one) for machine, one in alone.items()]
        for kind in dict.fromkeys(kinds[machine] for machine in found):
            of_kind = [one for machine, one in alone.items() if kinds[machine] == kind]
            if len(of_kind) >= FEWEST:
                rows.append(_together(question, kind, of_kind, twice[kind], round(1 - confidence, 9)))
    return rows


def _twice(hosts: Sequence[str | None]) -> str | None:
    """Why machines of these host names are no sample; None for nothing against it."""
    known = [host for host in hosts if host is not None]
    again = sorted({host for host in known if known.count(host) > 1})
    return f"several of its machines are one, {', '.join(again)}" if again else None


def _headlines(found: Iterable[Decision]) -> list[Decision]:
    """What the study asks first: environments against the host, whole runs and training steps."""
    return [
        one
        for one in found
        if (one.factor, one.role) == (ENVIRONMENT, PRIMARY) and one.metric in METRIC_OF.values()
    ]


def _question(one: Decision) -> Question:
    return one.workload, one.cell.campaign, one.env, one.metric


def _row(question: Question, kind: str, scope: str) -> Row:
    names = ("workload", "campaign", "environment", "metric")
    return {**dict(zip(names, question, strict=True)), "machine_kind": kind, "scope": scope}


def _alone(question: Question, machine: str, kind: str, one: Decision | None) -> Row:
    row = {**_row(question, kind, ALONE), "machine": machine}
    if one is None:
        return {**row, "kind": UNAVAILABLE, "n": 0, "reason": "it was not compared on this machine"}
    control = one.control or (None, None)
    return {
        **row,
        **{"kind": one.kind, "n": one.n, "ratio": one.ratio, "ci_low": one.low, "ci_high": one.high},
        **{"alpha": one.alpha, "margin": one.margin, "verdict": one.verdict, "reason": one.lacking},
        **{"control_ci_low": control[0], "control_ci_high": control[1]},
    }


def _together(
    question: Question, kind: str, found: Sequence[Decision | None], against: str | None, alpha: float
) -> Row:
    """The joint result of equal machines; unavailable where one has no interval, or something is `against` it."""
    row = {**_row(question, kind, TOGETHER), "n": len(found), "alpha": alpha}
    effects = [effect for one in found if one is not None and (effect := _effect(one)) is not None]
    margin = max((one.margin for one in found if one is not None), default=None)
    lacking = len(found) - len(effects)
    against = against or (f"{lacking} of {len(found)} machines have no interval" if lacking else None)
    if against:
        return {**row, "kind": UNAVAILABLE, "margin": margin, "reason": against}
    both = between([mean for mean, _ in effects], [error for _, error in effects], alpha)
    further = both.further or (None, None)
    return {
        **row,
        **{"kind": MEASURED, "margin": margin, "verdict": _verdict(both.mean, found, margin or 0.0)},
        **both.mean.mapped(math.exp).columns("ratio", "ci_low", "ci_high"),
        # a standard deviation of logarithms, near zero that of the ratio itself
        **both.spread.columns("between_sd", "between_low", "between_high"),
        **{"further_low": _exp(further[0]), "further_high": _exp(further[1])},
    }


def _verdict(mean: Interval, found: Sequence[Decision | None], margin: float) -> str:
    """Of the mean; where the stalls of a machine leave it open whether it is equivalent, they do so of all."""
    verdict = judge(mean, margin)
    stalls = any(one is not None and one.verdict == APART_FROM_STALLS for one in found)
    return APART_FROM_STALLS if stalls and verdict == "equivalent" else verdict


def _effect(one: Decision) -> tuple[float, float] | None:
    """Logarithm of the ratio and its error; None without an interval that has both ends, or of no width."""
    if one.ends is None or one.ratio is None or one.alpha is None or one.n < FEWEST:
        return None
    half = math.log(one.ends[1] / one.ends[0]) / 2
    return (math.log(one.ratio), half / t_quantile(one.alpha, one.n - 1)) if half > 0 else None


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
