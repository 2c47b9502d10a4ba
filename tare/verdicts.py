"""Verdicts: one interval per environment against zero and against a margin declared before the data.

Per unit, the log-ratio of an environment to the mean (of logs) of the two hosts; the control is the log-ratio of
the second host to the first. Student's t intervals at a Bonferroni level, so that all environments of one workload
and metric hold together with the study's confidence. Sources: Kalibera and Jones 2013 (the unit of repetition);
Schuirmann 1987 (interval inclusion for equivalence).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from tare.metrics import pivot
from tare.study import CONTROL, HOST

RUN_METRICS = (
    "real_s",
    "user_s",
    "system_s",
    "runtime_start_s",
    "imports_s",
    "data_s",
    "model_s",
    "first_step_s",
    "epoch_rest_s",
    "exit_s",
    "samples_per_s",
)
STEP_METRICS = ("steady_step_s",)
RATES = ("samples_per_s",)  # the sum of rates is no total
# Where a metric is a robust summary of a launch, the metric whose sum holds its stalls as well.
TOTAL_OF = {"steady_step_s": "steady_step_mean_s"}
FEWEST_UNITS = 2


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean and two-sided t interval of n log-ratios; None where n is too small for one."""

    n: int
    mean: float | None
    low: float | None
    high: float | None


def t_interval(values: Sequence[float], alpha: float) -> Interval:
    """Student's t interval of the mean at level 1 - alpha, from independent values."""
    values = np.asarray(values, dtype=float)
    if len(values) < FEWEST_UNITS:
        return Interval(n=len(values), mean=float(values.mean()) if len(values) else None, low=None, high=None)
    half = stats.t.ppf(1 - alpha / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    mean = float(values.mean())
    return Interval(n=len(values), mean=mean, low=mean - half, high=mean + half)


def judge(interval: Interval, margin: float) -> str:
    """The verdict of an interval of log-ratios; `margin` is relative, alike to both sides on a log scale."""
    if interval.low is None or interval.high is None:
        return "inconclusive"
    limit = math.log1p(margin)
    inside = -limit <= interval.low and interval.high <= limit
    holds_zero = interval.low <= 0 <= interval.high
    if inside:
        return "equivalent" if holds_zero else "different within margin"
    return "inconclusive" if holds_zero else "different"


def log_ratios(values: pd.DataFrame, env: str) -> pd.Series:
    """Per unit: log of `env` less the mean of the logs of the two hosts; units that lack one are left out."""
    complete = values[[HOST, CONTROL, env]].dropna()
    logs = np.log(complete[complete.gt(0).all(axis=1)])
    return logs[env] - (logs[HOST] + logs[CONTROL]) / 2


def control_ratios(values: pd.DataFrame) -> pd.Series:
    """Per unit: log of the second host less log of the first."""
    complete = values[[HOST, CONTROL]].dropna()
    logs = np.log(complete[complete.gt(0).all(axis=1)])
    return logs[CONTROL] - logs[HOST]


def verdict_rows(plan: Mapping[str, Any], metrics: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of the verdict table for one campaign of whole runs.

    Args:
        plan: the campaign's plan (margins, confidence, environments).
        metrics: metric rows of this campaign alone.
    """
    environments = [env for env in plan["environments"] if env not in (HOST, CONTROL)]
    if not environments:
        return []
    identity = metrics.iloc[0][["study", "campaign", "scenario", "workload", "stack", "arm", "batch"]].to_dict()
    alpha = (1 - plan["confidence"]) / len(environments)
    rows = []
    for metric in (*RUN_METRICS, *STEP_METRICS):
        values = pivot(metrics, metric).reindex(columns=[HOST, CONTROL, *environments])
        totals = pivot(metrics, TOTAL_OF.get(metric, metric)).reindex(columns=values.columns)
        margin = plan["margins"]["step" if metric in STEP_METRICS else "run"]
        control = t_interval(control_ratios(values), alpha)
        for env in environments:
            interval = t_interval(log_ratios(values, env), alpha)
            rows.append(
                {
                    **identity,
                    "env": env,
                    "metric": metric,
                    "reference": HOST,
                    "n_units": interval.n,
                    "ratio": _exp(interval.mean),
                    "total_ratio": None if metric in RATES else total_ratio(totals, env),
                    "ci_low": _exp(interval.low),
                    "ci_high": _exp(interval.high),
                    "alpha": alpha,
                    "family_size": len(environments),
                    "margin": margin,
                    "verdict": judge(interval, margin),
                    "control_ratio": _exp(control.mean),
                    "control_ci_low": _exp(control.low),
                    "control_ci_high": _exp(control.high),
                    "design": "fixed",
                    "reason": None
                    if interval.low is not None
                    else f"{interval.n} complete units; an interval needs {FEWEST_UNITS} or more",
                }
            )
    return rows


def total_ratio(values: pd.DataFrame, env: str) -> float | None:
    """Sum over complete units of `env` by the mean of the hosts' sums: stalls and outliers weigh in full."""
    complete = values[[HOST, CONTROL, env]].dropna()
    hosts = (complete[HOST].sum() + complete[CONTROL].sum()) / 2
    return float(complete[env].sum() / hosts) if hosts > 0 else None


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)


def outliers(values: Sequence[float], threshold: float = 5.0) -> list[bool]:
    """Flags |x - median| / MAD above `threshold`; flagged values are shown, never deleted."""
    values = np.asarray(values, dtype=float)
    middle = np.median(values)
    spread = np.median(np.abs(values - middle))
    return (
        [bool(flag) for flag in np.abs(values - middle) > threshold * spread]
        if spread > 0
        else [False] * len(values)
    )
