"""Ratios of environments that claims are judged by: to the host from the verdicts, one to another paired by unit.

Two environments that were measured in the same units share each unit's machine: their log-ratio is taken within the
unit. The intervals of both to the host share that reference, and comparing their ends would be less sharp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pandas as pd

from tare.analysis.choice import compared, share, without_co_runner
from tare.analysis.metrics import pivot
from tare.analysis.verdicts import log_ratios, logs_of
from tare.literature.vocabulary import SLOWDOWN, kind_of
from tare.model import tables
from tare.model.registry import HOST, SINGLE
from tare.model.roles import CONTROL
from tare.model.studies.layout import read_name
from tare.stats.intervals import APART_FROM_STALLS, Interval, judge, more_units, t_interval, without_wild_ends

MARGIN = 0.05  # of whole runs, where no verdict has the study's
CONFIDENCE = 0.95
FEWEST_TO_SETTLE = 6  # units: two or three that happen to be close give an interval, and settle nothing
INSIDE, OUTSIDE, ACROSS = "inside", "outside", "across an end of"


class Measured(Protocol):
    """The tables that ratios are taken from."""

    @property
    def metrics(self) -> pd.DataFrame: ...  # noqa: D102

    @property
    def verdicts(self) -> pd.DataFrame: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class At:
    """What a comparison was measured with: a level, `factor=level` (None: the headline's), and a scenario."""

    level: str | None = None
    scenario: str = SINGLE


HEADLINE = At()


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The ratio of two environments in one metric, with its interval, where there are units enough for one."""

    env: str
    against: str = HOST  # the environment below the line
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    margin: float  # relative, alike to both sides on a log scale
    units: int
    more: int | None = None  # units that would settle it, where that is known
    # of the verdict that this is from: whether it is inconclusive; whether it has a reason in addition to its
    # interval, such as launches that were stopped; whether it holds of the typical time alone
    open: bool = False
    limited: bool = False
    apart_from_stalls: bool = False
    paired: bool = False  # whether it is a separate contrast, for an order, and not a verdict against a margin

    @property
    def span(self) -> tuple[float, float] | None:
        """The interval; None where there is none that may settle anything."""
        if self.low is None or self.high is None or self.open or self.units < FEWEST_TO_SETTLE:
            return None
        return self.low, self.high

    @property
    def against_bound(self) -> tuple[float, float] | None:
        """The interval where it is held against a bound: an inconclusive verdict is about its own margin."""
        return self.span if self.limited else replace(self, open=False).span

    @property
    def position(self) -> str | None:
        """Where the interval is: inside the margin, wholly outside it, or across one of its ends."""
        if self.low is None or self.high is None:
            return None
        least, most = 1 / (1 + self.margin), 1 + self.margin
        if least <= self.low and self.high <= most:
            return INSIDE
        return OUTSIDE if self.low > most or self.high < least else ACROSS

    def __str__(self) -> str:
        """As a sentence has it."""
        what = f"{self.metric} {self.env} / {self.against}"
        if self.ratio is None or self.low is None or self.high is None:
            return f"{what}: no interval from {units(self.units)}"
        where = "" if self.paired else f", {self.position} the margin of {self.margin:.0%}"
        where += APART_FROM_STALLS if self.apart_from_stalls else ""
        paired = ", paired" if self.paired else ""
        interval = f"{_number(self.ratio)} [{_number(self.low)}, {_number(self.high)}]"
        more = f"; about {units(self.more)} more would settle it" if self.more else ""
        return f"{what} {interval}{where} ({units(self.units)}{paired}{more})"


def units(count: int) -> str:
    """`1 unit`, `8 units`."""
    return f"{count} unit{'' if count == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 100 else f"{value:.2g}"


def to_host(here: Measured, workload: str, metric: str, at: At = HEADLINE) -> list[Ratio]:
    """The ratio of every environment to the host: from verdicts on rounds, else from measured repetitions."""
    judged = _judged(here, workload, metric, at)
    chosen = judged[judged["metric"] == metric]
    if len(chosen):
        return [_of_verdict(row) for row in chosen.itertuples()]
    values, margin = values_of(here, workload, metric, at), _margin(judged)
    others = _others(values)
    found = []
    for env in others:
        logs = log_ratios(values, env)
        alpha = (1 - CONFIDENCE) / len(others)
        interval = t_interval(logs.to_numpy(), alpha)
        undecided = judge(interval, margin) == "inconclusive"
        more = more_units(logs.to_numpy(), alpha, margin) if undecided else None
        found += _ratio(interval, env=env, against=HOST, metric=metric, margin=margin, more=more)
    return found


def to_alone(here: Measured, workload: str, at: At) -> list[Ratio]:
    """The ratio of every environment with a co-runner to itself without one: verdicts on whole runs."""
    own = here.verdicts[(here.verdicts["workload"] == workload) & (here.verdicts["metric"] == "real_s")]
    rows = compared(own, kind_of(SLOWDOWN), at.level, at.scenario)
    rows = rows[rows["compares"] == tables.CO_RUNNER]
    return [replace(_of_verdict(row), metric=SLOWDOWN, against=f"{row.launch} alone") for row in rows.itertuples()]


def paired(
    here: Measured, workload: str, metric: str, env: str, deciding: Sequence[str], at: At = HEADLINE,
    parts: int | None = None,
) -> list[Ratio]:  # fmt: skip
    """Ratios of an environment to each other one, from log-ratios in a unit; the host is a mean (of logs) of two.

    The intervals of `deciding` hold together with CONFIDENCE (Bonferroni), at the share of the campaign's try.
    Where the design of a campaign makes the intervals of its verdicts wider than Student's from all units, these
    are wider by the same factor. There is none of an environment whose verdict's interval lacks an end, since
    launches were stopped: units without those would be about the others alone. `parts` intervals hold together, as
    many as `deciding` without it; other environments of the units are reported in addition.
    """
    judged = _judged(here, workload, metric, at)
    values, margin = values_of(here, workload, metric, at), _margin(judged)
    names = [HOST, *_others(values)]
    if env not in names:
        return []
    rows = judged[judged["metric"] == metric]
    bounded = one_ended(here, workload, metric, at).keys()
    alpha = share(judged) * (1 - CONFIDENCE) / max(1, parts or len(deciding))
    found = []
    for other in names:
        if other == env or bounded & {env, other}:
            continue
        logs = logs_of(values, [HOST, CONTROL, *(name for name in (env, other) if name != HOST)])
        logs[HOST] = (logs[HOST] + logs[CONTROL]) / 2
        widening = max(_widening(rows, values, name) for name in (env, other))
        interval = _widened(t_interval((logs[env] - logs[other]).to_numpy(), alpha), widening)
        found += _ratio(interval, env=env, against=other, metric=metric, margin=margin, paired=True)
    return found


def by_itself(here: Measured, workload: str, env: str, at: At, parts: int) -> list[Ratio]:
    """The slow-down of an environment by a co-runner, from its units; the host's is the mean (of logs) of two.

    Its interval holds together with others, `parts` in all, with CONFIDENCE (Bonferroni). There is none where a
    launch of it was stopped, with a co-runner or alone.
    """
    judged, values = _judged(here, workload, SLOWDOWN, at), values_of(here, workload, SLOWDOWN, at)
    own = here.verdicts[(here.verdicts["workload"] == workload) & (here.verdicts["metric"] == "real_s")]
    rows = compared(own, kind_of(SLOWDOWN), at.level, at.scenario)
    rows = rows[(rows["launch"] == env) & (rows["compares"] == tables.CO_RUNNER)]
    if env not in values.columns or (rows["ci_low"].isna() != rows["ci_high"].isna()).any():
        return []
    logs = logs_of(values, [HOST, CONTROL] if env == HOST else [env]).mean(axis=1)
    interval = t_interval(logs.to_numpy(), share(judged) * (1 - CONFIDENCE) / parts)
    return _ratio(interval, env=env, against=f"{env} alone", metric=SLOWDOWN, margin=_margin(judged), paired=True)


def one_ended(here: Measured, workload: str, metric: str, at: At = HEADLINE) -> dict[str, str]:
    """Environments whose verdict's interval lacks an end, since launches were stopped; each with the reason."""
    judged = _judged(here, workload, metric, at)
    rows = judged[(judged["metric"] == metric) & (judged["ci_low"].isna() != judged["ci_high"].isna())]
    return dict(zip(rows["launch"], rows["reason"], strict=True))


def _ratio(interval: Interval, **what: Any) -> list[Ratio]:
    """One ratio; none without an interval."""
    logs = without_wild_ends(interval).mean_low_high
    if logs is None:
        return []
    ratio, low, high = map(math.exp, logs)
    return [Ratio(ratio=ratio, low=low, high=high, units=interval.n, **what)]


def _widened(interval: Interval, factor: float) -> Interval:
    """The same mean, the half-widths times a factor."""
    if interval.mean_low_high is None:
        return interval
    mean, low, high = interval.mean_low_high
    return Interval(n=interval.n, mean=mean, low=mean + factor * (low - mean), high=mean + factor * (high - mean))


def _widening(rows: pd.DataFrame, values: pd.DataFrame, env: str) -> float:
    """How much wider the verdict's interval of an environment is than Student's from the same units; at least 1."""
    for row in rows[rows["launch"] == env].itertuples():
        plain = t_interval(log_ratios(values, env).to_numpy(), row.alpha)
        if plain.width > 0 and row.ci_low > 0:
            return max(1.0, math.log(row.ci_high / row.ci_low) / plain.width)
    return 1.0


def _judged(here: Measured, workload: str, metric: str, at: At) -> pd.DataFrame:
    """Verdicts against the host of the campaigns of a workload that have a metric."""
    own = here.verdicts[(here.verdicts["workload"] == workload) & (here.verdicts["reference"] == HOST)]
    return compared(own, kind_of(metric), at.level, at.scenario)


def _margin(judged: pd.DataFrame) -> float:
    return float(judged["margin"].iloc[0]) if len(judged) else MARGIN


def _of_verdict(row: Any) -> Ratio:
    ratio, low, high = (None if pd.isna(one) else float(one) for one in (row.ratio, row.ci_low, row.ci_high))
    return Ratio(
        env=row.launch, metric=row.metric, ratio=ratio, low=low, high=high,
        margin=float(row.margin), units=int(row.n_units),
        more=None if pd.isna(row.more_units) else int(row.more_units), open=row.verdict.startswith("inconclusive"),
        apart_from_stalls=row.verdict.endswith(APART_FROM_STALLS), limited=pd.notna(row.reason),
    )  # fmt: skip


def _others(values: pd.DataFrame) -> list[str]:
    return [env for env in values.columns if env not in (HOST, CONTROL)]


def values_of(here: Measured, workload: str, metric: str, at: At) -> pd.DataFrame:
    """Measured values of one campaign: a row per unit, a column per environment; empty without two hosts."""
    metrics = here.metrics
    own = metrics[
        (metrics["workload"] == workload)
        & (metrics["metric"] == metric)
        & (metrics["kind"] == "measured")
        & metrics["rep"].notna()
    ]
    if at == HEADLINE:  # of any kind of campaign: a device's metrics may come from others
        own = own[own["campaign"].map(lambda name: read_name(name).is_headline).astype(bool)]
    else:
        own = compared(own, kind_of(metric), at.level, at.scenario)
    if len(own):  # units of two campaigns are never pooled
        own = own[own["campaign"] == own["campaign"].value_counts().idxmax()]
    own = own[~without_co_runner(own)]
    values = pivot(own, metric) if len(own) else pd.DataFrame()
    return values if {HOST, CONTROL} <= set(values.columns) else pd.DataFrame()
