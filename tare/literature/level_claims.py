"""How much faster a job is at one level than at another, such as one stack and another, against a published change.

Each level has its own campaign, whose units also have the headline's launch. So the log-ratio
of a level to another is the difference of two log-ratios to that launch, from separate campaigns: Welch's interval,
at CONFIDENCE, or at the share that is left for a later try of either campaign.
Faster by 54% means 1.54 times the work in the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tare.analysis.choice import compared, share
from tare.analysis.verdicts import log_ratios
from tare.literature.answers import NOTHING, Answer, decide, opened
from tare.literature.contrasts import CONFIDENCE, MARGIN, At, Measured, units, values_of
from tare.literature.published_file import Claim, Part
from tare.literature.vocabulary import RATES, kind_of
from tare.model.registry import HOST
from tare.model.roles import reference_of
from tare.stats.intervals import Interval, satterthwaite, t_quantile
from tare.stats.quotients import quotient_of_sums

Weighed = list[tuple[float, pd.Series]]  # log-ratios to a common reference, each with the sign that it counts with
FEWEST = 4  # units of each level, as many as a verdict on an arm needs


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed of one level relative to another: `ratio` of work in equal time, its interval, units of each."""

    ratio: float
    low: float
    high: float
    counts: tuple[int, ...]

    @property
    def three(self) -> tuple[float, float, float]:
        """Ratio and both ends of its interval."""
        return self.ratio, self.low, self.high

    def __str__(self) -> str:
        """As a sentence has it: the change with its interval."""
        return f"{self.ratio - 1:+.0%} [{self.low - 1:+.0%}, {self.high - 1:+.0%}]"


@dataclass(frozen=True, kw_only=True)
class Confound:
    """What of a change is not the level's own: another workload of the claim, alike at both levels, lacks it.

    How fast the level is there, what that leaves of the change, and the share of the logarithm of the change, by
    Fieller; without ends where the change can't be distinguished from none.
    """

    workload: str
    alike: Speed
    left: Speed
    share: Interval

    @property
    def share_text(self) -> str:
        """The share with its interval, in percent; without an interval its mean says nothing."""
        if self.share.mean is None or self.share.low is None or self.share.high is None:
            return "a share can't be determined, as the change itself may be none"
        return f"{self.share.mean:.0%} [{self.share.low:.0%}, {self.share.high:.0%}] of it by logarithms"

    def __str__(self) -> str:
        """As a sentence has it."""
        return (
            f"{self.workload} has {self.alike} of this; what is left, {self.left}, is not the level's own: "
            f"{self.share_text}."
        )


def faster(claim: Claim, workload: str, environments: Sequence[str], here: Measured) -> Answer:
    """Rule `faster`: HOLDS with the interval inside the margin around the published size, FAILS with it outside.

    A claim with `why_not` is open, whatever the interval of what is nearest to it.
    """
    speed, why = change_of(claim, workload, here)
    if speed is None:
        return opened(NOTHING, why)
    confound = confound_of(claim, workload, here)
    also = f" {confound}" if confound else ""
    size = "" if claim.change is None else f", where {claim.change.value:+g}% is published"
    compared = f"the speed of {claim.level} is {speed} compared with {claim.against}"
    counts = " and ".join(map(str, speed.counts))
    evidence = f"{claim.metrics[0]}: {compared}{size} ({counts} units).{also}"
    if claim.why_not is not None:
        return opened(f"The nearest that is here: {evidence}", claim.why_not)
    assert claim.change is not None
    published = 1 + claim.change.value / 100
    least, most = published / (1 + MARGIN), published * (1 + MARGIN)
    crosses = f"the interval crosses an end of the published size with its margin of {MARGIN:.0%}"
    held = {str(claim.level): least <= speed.low and speed.high <= most}
    return decide(evidence, held, speed.high < least or speed.low > most, None, crosses)


def change_of(claim: Claim, workload: str, here: Measured) -> tuple[Speed | None, str]:
    """The speed that a claim of the rule `faster` is about, or what is nearest to it, as measured here.

    None, and why there is none; of what is nearest, why it is no more.
    """
    if claim.level is None or claim.against is None:
        return None, claim.why_not or "it names no levels"
    levels, metric = (claim.level, claim.against), claim.metrics[0]
    weighed, why = _at_levels(levels, workload, metric, here)
    if weighed is None:
        return None, why if claim.why_not is None else f"{claim.why_not}; for the nearest measurement, {why}"
    return speed_of(weighed, _alpha(levels, metric, [workload], here)), claim.why_not or ""


def _at_levels(levels: Sequence[str], workload: str, metric: str, here: Measured) -> tuple[Weighed | None, str]:
    """Log-ratios of a level, and of another with the other sign; None, and why, where one has too few units."""
    found = [_logs(here, workload, metric, level) for level in levels]
    for level, logs in zip(levels, found, strict=True):
        if len(logs) < FEWEST:
            why = _why_not(here, workload, metric, level) if logs.empty else "there are too few"
            return None, f"{level}: {units(len(logs))}, {FEWEST} are needed: {why}"
    return _weighed(found, metric in RATES), ""


def _weighed(found: Sequence[pd.Series], is_rate: bool) -> Weighed:
    sign = 1.0 if is_rate else -1.0
    return list(zip((sign, -sign), found, strict=False))


def _alpha(levels: Sequence[str], metric: str, workloads: Sequence[str], here: Measured) -> float:
    """What an interval may spend: that of the latest try among the campaigns that it is taken from."""
    own = here.verdicts[here.verdicts["workload"].isin(workloads)]
    judged = [compared(own, kind_of(metric), level) for level in levels]
    return share(pd.concat(judged)) * (1 - CONFIDENCE)


def part_of(part: Part, claim: Claim, here: Measured) -> Speed | None:
    """The speed of one thing that a claim's change may be made of; None where it is not measured here."""
    levels, metric = [level for level in (part.level, part.against) if level is not None], claim.metrics[0]
    weighed, _ = _at_levels(levels, part.workload, metric, here)
    return None if weighed is None else speed_of(weighed, _alpha(levels, metric, [part.workload], here))


def speed_of(weighed: Weighed, alpha: float) -> Speed:
    """The speed that a sum of mean log-ratios of independent campaigns says, by Welch and Satterthwaite."""
    variance, degrees = satterthwaite(
        [(values.var(ddof=1) / len(values), len(values) - 1) for _, values in weighed]
    )
    middle = sum(sign * values.mean() for sign, values in weighed)
    half = t_quantile(alpha, degrees) * math.sqrt(variance)
    ratio, low, high = (math.exp(middle + side * half) for side in (0, -1, 1))
    return Speed(ratio=ratio, low=low, high=high, counts=tuple(len(values) for _, values in weighed))


def confound_of(claim: Claim, workload: str, here: Measured) -> Confound | None:
    """How much of the change in a claim's first workload its second, which is alike at all levels, does not show.

    None of another workload, and where one of the two is not measured.
    """
    if workload not in claim.workloads[:1] or len(claim.workloads) < 2 or claim.why_not is not None:
        return None
    if claim.level is None or claim.against is None:
        return None
    levels, metric, workloads = (claim.level, claim.against), claim.metrics[0], claim.workloads[:2]
    weighed, alike = (_at_levels(levels, name, metric, here)[0] for name in workloads)
    if weighed is None or alike is None:
        return None
    alpha = _alpha(levels, metric, workloads, here)
    alikes = quotient_of_sums(alike, weighed, alpha)
    ends = [None if end is None else 1 - end for end in (alikes.mean, alikes.high, alikes.low)]
    return Confound(
        workload=claim.workloads[1],
        alike=speed_of(alike, alpha),
        left=speed_of([*weighed, *((-sign, values) for sign, values in alike)], alpha),
        share=Interval(n=alikes.n, mean=ends[0], low=ends[1], high=ends[2]),
    )


def _logs(here: Measured, workload: str, metric: str, level: str) -> pd.Series:
    """By unit: log of the host at a level less log of the headline's launch; empty where there is none."""
    values, headline = values_of(here, workload, metric, At(level=level)), reference_of(HOST)
    return log_ratios(values, HOST, headline) if headline in values.columns else pd.Series(dtype=float)


def _why_not(here: Measured, workload: str, metric: str, level: str) -> str:
    """Why a level has no number."""
    rows = compared(here.metrics[here.metrics["workload"] == workload], kind_of(metric), level)
    absent = rows[(rows["kind"] == "unavailable") & rows["reason"].notna()]
    return str(absent["reason"].iloc[0]) if len(absent) else "this study does not measure it"
