"""Two costs compared: does one job, metric, input or scenario suffer more of an environment than another?

A cost is the ratio of an environment to the host, as far as it is worse: of a time upwards, of a rate downwards. Of
a slow-down by a co-runner it is the ratio of the environment to itself without one, the host's too. Each has its
interval from its own units, at half of what the comparison may spend, and the comparisons of a claim share alpha
(Bonferroni): no more is known of two campaigns, whose units are not the same ones. The logarithm of the quotient of
both costs is between the differences of their ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tare.literature.answers import NOTHING, Answer, decide, sentence
from tare.literature.contrasts import At, Ratio, by_itself, paired
from tare.literature.finding import words
from tare.literature.measured_here import Here
from tare.literature.published_file import MORE_THAN, Claim
from tare.literature.vocabulary import RATES, SLOWDOWN
from tare.model.registry import HOST

# Why comparisons settle nothing: (environment, metric) each, the claim, its workload, what is here, what was found.
Why = Callable[[Sequence[tuple[str, str]], Claim, str, Here, Sequence[Ratio]], str]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two costs: a claim whose metric, arm and scenario are this one's, of a workload."""

    claim: Claim
    workload: str

    @property
    def metric(self) -> str:
        """Its one metric."""
        return self.claim.metrics[0]

    @property
    def label(self) -> str:
        """What it is of, in words."""
        claim = self.claim
        return ", ".join(part for part in (self.workload, claim.arm, claim.scenario) if part)


def sides(claim: Claim, workload: str) -> Iterator[tuple[Side, Side]]:
    """What a claim compares of one of its workloads: the cost that it calls larger (or as large), and the other."""
    than = claim.than
    assert than is not None
    for metric in claim.metrics:
        for model in than.models or (workload,):
            other = {
                "metrics": (than.metric or metric,),
                "arm": than.arm or claim.arm,
                "scenario": than.scenario or claim.scenario,
            }
            yield (
                Side(claim=claim.model_copy(update={"metrics": (metric,)}), workload=workload),
                Side(claim=claim.model_copy(update=other), workload=model),
            )


def compare(claim: Claim, workload: str, environments: Sequence[str], here: Here, why: Why) -> Answer:
    """The answer of either rule."""
    pairs = [
        (env, *both)
        for both in sides(claim, workload)
        for env in environments
        if env != HOST or both[0].metric == SLOWDOWN
    ]
    costs = {(side, env): _cost(side, env, here, 2 * len(pairs)) for env, *both in pairs for side in both}
    found = [(side, cost) for (side, _), cost in costs.items() if cost]
    evidence = sentence([f"{side.label}: {cost}" for side, cost in found]) or NOTHING
    held: dict[str, bool] = {}
    failed = False
    missing: dict[Side, list[tuple[str, str]]] = {}
    for env, own, other in pairs:
        lacking = [side for side in (own, other) if (cost := costs[side, env]) is None or cost.span is None]
        for side in lacking:
            missing.setdefault(side, []).append((env, side.metric))
        if lacking:
            continue
        low, high, margin = _quotient(costs[own, env], costs[other, env])
        is_more = claim.rule == MORE_THAN
        held[f"{env} of {other.label}, {words(other.metric)}"] = (
            low > 0 if is_more else -margin <= low and high <= margin
        )
        failed = failed or (high < 0 if is_more else low > margin or high < -margin)
    reasons = [
        why(lacking, side.claim, side.workload, here, [cost for one, cost in found if one == side])
        for side, lacking in missing.items()
    ]
    lacking_text = "; ".join(dict.fromkeys(reasons)) if missing else None
    return decide(evidence, held, failed, lacking_text, "the intervals leave it open")


def _cost(side: Side, env: str, here: Here, parts: int) -> Ratio | None:
    """The ratio of an environment to the host, or to itself without a co-runner; None without an interval."""
    at = At(level=side.claim.arm, scenario=side.claim.scenario)
    if side.metric == SLOWDOWN:
        found = by_itself(here, side.workload, env, at, parts)
    else:
        found = paired(here, side.workload, side.metric, env, [HOST], at, parts)
    return next((one for one in found if one.metric == SLOWDOWN or one.against == HOST), None)


def _quotient(own: Ratio | None, other: Ratio | None) -> tuple[float, float, float]:
    """Ends of the logarithm of the ratio of one cost to another, and the wider of their margins as a logarithm."""
    assert own is not None and other is not None
    (low, high), (least, most) = _worse(own), _worse(other)
    return low - most, high - least, math.log1p(max(own.margin, other.margin))


def _worse(one: Ratio) -> tuple[float, float]:
    """Logarithms of both ends of a cost, from the better one on."""
    assert one.span is not None
    low, high = map(math.log, one.span)
    return (-high, -low) if one.metric in RATES else (low, high)
