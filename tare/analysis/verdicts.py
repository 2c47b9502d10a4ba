"""Verdicts: one interval per environment against zero and against a margin declared before the data.

Per unit, the log-ratio of an environment to the mean (of logs) of the two hosts; the control is the log-ratio of
the second host to the first. Intervals at a Bonferroni level, so that all environments of one workload and metric
hold together with the study's confidence: Stein's where the number of units was chosen from the pilot's spread,
Student's where it was fixed or capped by costs. An arm's campaign also compares its level with the headline's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tare.analysis.launch_rows import PHASES
from tare.analysis.metrics import pivot
from tare.model.registry import BASELINE, CONTROL, HOST
from tare.model.sealed import SealedCampaign
from tare.model.units import compared
from tare.stats.intervals import (
    FEWEST_UNITS,
    Interval,
    bootstrap_interval,
    judge,
    more_units,
    stein_interval,
    t_interval,
)

RUN_METRICS = ("real_s", "user_s", "system_s", *PHASES, "exit_s", "samples_per_s")
STEP_METRICS = ("turn_step_s",)
CAUSE_METRICS = ("files_first_s", "files_stat_s", "files_read_s", "libraries_map_s", "imports_after_read_s")
METRICS_OF = {"rounds": RUN_METRICS, "turns": STEP_METRICS, "causes": CAUSE_METRICS}
MARGIN_OF = {"rounds": "run", "turns": "step", "causes": "run"}
RATES = ("samples_per_s",)  # the sum of rates is no total
# Where a metric is a robust summary of a launch, the metric whose sum holds its stalls as well.
TOTAL_OF = {"turn_step_s": "turn_step_mean_s"}
IDENTITY = ("study", "campaign", "scenario", "workload", "stack", "arm", "batch")


def logs_of(values: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Logs of the units that have all of `names`, positive."""
    complete = values[list(names)].dropna()
    return np.log(complete[complete.gt(0).all(axis=1)])


def log_ratios(values: pd.DataFrame, env: str) -> pd.Series:
    """Per unit: log of `env` less the mean of the logs of the two hosts; units that lack one are left out."""
    logs = logs_of(values, [HOST, CONTROL, env])
    return logs[env] - (logs[HOST] + logs[CONTROL]) / 2


def control_ratios(values: pd.DataFrame) -> pd.Series:
    """Per unit: log of the second host less log of the first."""
    logs = logs_of(values, [HOST, CONTROL])
    return logs[CONTROL] - logs[HOST]


def level_ratios(values: pd.DataFrame, env: str) -> pd.Series:
    """Per unit: log of `env` at the arm's level less log of its launch as in the headline.

    The host stands twice in a unit: there it is the mean of both.
    """
    baseline = f"{env}{BASELINE}"
    own = [HOST, CONTROL] if env == HOST else [env]
    logs = logs_of(values, [*own, baseline])
    return logs[own].mean(axis=1) - logs[baseline]


def interval_of(ratios: pd.Series, design: str, pilot: Sequence[int], alpha: float) -> Interval:
    """The interval that decides, by the campaign's design.

    Stein's is exact for normal units whose number the pilot's spread chose. Machines have storms that a pilot of
    six misses: Student's, from all units, stands beside it, and the wider of the two decides.

    Args:
        ratios: by unit number.
        design: as `design_of`.
        pilot: numbers of the units that the decision was taken on.
        alpha: of this one interval.
    """
    ordinary = t_interval(ratios.to_numpy(), alpha)
    if design != "stein" or ordinary.low is None:
        return ordinary
    ordered = ratios.sort_index()
    two_stage = stein_interval(ordered.to_numpy(), int(ordered.index.isin(pilot).sum()), alpha)
    return max(ordinary, two_stage, key=lambda interval: interval.width)


def design_of(campaign: SealedCampaign) -> str:
    """`stein` where the pilot's spread chose the number of units and all of them were made, else `fixed`."""
    decision = campaign.decision
    return "stein" if decision and decision.design == "stein" and not campaign.ended else "fixed"


def margin_of(campaign: SealedCampaign) -> float:
    """The margin that a campaign is judged by."""
    return (campaign.plan.margins or {})[MARGIN_OF[campaign.kind]]


def verdict_rows(campaign: SealedCampaign, metrics: pd.DataFrame, share: float = 1.0) -> list[dict[str, Any]]:
    """Rows of the verdict table for one campaign of rounds, turns or causes.

    Args:
        campaign: its margins, sampling, environments and decision.
        metrics: metric rows of this campaign alone.
        share: of alpha that it may spend.
    """
    names, environments = campaign.plan.environments, compared(campaign.plan)
    judged = [name.removesuffix(BASELINE) for name in names if name.endswith(BASELINE)]
    rows = []
    for metric in METRICS_OF[campaign.kind]:
        table = _Table(campaign, metrics, metric, share)
        rows += [table.row(env, HOST, len(environments)) for env in environments]
        rows += [table.row(env, f"{env}{BASELINE}", len(judged)) for env in judged]
    return rows


class _Table:
    """What the rows of one metric of one campaign share."""

    def __init__(self, campaign: SealedCampaign, metrics: pd.DataFrame, metric: str, share: float) -> None:
        self.campaign = campaign
        self.share = share
        self.metric = metric
        names = list(campaign.plan.environments)
        own = metrics[metrics["arm"] == campaign.plan.arm]
        self.identity = (own if len(own) else metrics).iloc[0][list(IDENTITY)].to_dict()
        self.values = pivot(metrics, metric).reindex(columns=names)
        self.totals = pivot(metrics, TOTAL_OF.get(metric, metric)).reindex(columns=names)
        self.margin = margin_of(campaign)
        self.design = design_of(campaign)
        self.pilot = sorted(metrics["rep"].dropna().unique())[: campaign.pilot]

    def row(self, env: str, reference: str, family: int) -> dict[str, Any]:
        """One comparison: an environment with the host, or an arm's level with the headline's."""
        alpha = self.share * (1 - self.campaign.plan.sampling.confidence) / family
        level = reference != HOST
        ratios = level_ratios(self.values, env) if level else log_ratios(self.values, env)
        interval = interval_of(ratios, self.design, self.pilot, alpha)
        first = self.pilot[: self.campaign.plan.sampling.pilot or 0]  # the control is in every unit
        control = interval_of(control_ratios(self.values), self.design, first, alpha)
        check = bootstrap_interval(ratios.to_numpy(), alpha)
        verdict = judge(interval, self.margin)
        has_total = self.metric not in RATES
        return {
            **self.identity,
            "env": env,
            "metric": self.metric,
            "reference": reference,
            "n_units": interval.n,
            "ratio": _exp(interval.mean),
            "total_ratio": total_ratio(self.totals, env, reference) if has_total else None,
            "ci_low": _exp(interval.low),
            "ci_high": _exp(interval.high),
            "alpha": alpha,
            "family_size": family,
            "margin": self.margin,
            "verdict": verdict,
            "control_ratio": _exp(control.mean),
            "control_ci_low": _exp(control.low),
            "control_ci_high": _exp(control.high),
            "design": self.design,
            "bootstrap_low": _exp(check.low),
            "bootstrap_high": _exp(check.high),
            "more_units": more_units(ratios.to_numpy(), alpha, self.margin) if verdict == "inconclusive" else None,
            "reason": _reason(interval, self.campaign.ended),
        }


def _reason(interval: Interval, ended: str | None) -> str | None:
    """Why there is no interval, or what became of the campaign."""
    parts = []
    if interval.low is None:
        missing = FEWEST_UNITS - interval.n
        parts.append(f"{interval.n} complete units; an interval needs {FEWEST_UNITS} or more, so {missing} more")
    if ended:
        parts.append(f"the campaign ended before its time: {ended}")
    return "; ".join(parts) or None


def total_ratio(values: pd.DataFrame, env: str, reference: str = HOST) -> float | None:
    """Sum over complete units of `env` by the sum of its reference: stalls and outliers weigh in full.

    Against the host, or where it is the host that an arm moves, the mean of the two hosts' sums counts.
    """
    hosts = [HOST, CONTROL]
    above, below = ([env], hosts) if reference == HOST else (hosts if env == HOST else [env], [reference])
    complete = values[[*dict.fromkeys([*above, *below])]].dropna()
    base = complete[below].sum().mean()
    return float(complete[above].sum().mean() / base) if base > 0 else None


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
