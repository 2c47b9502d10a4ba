"""Verdicts: intervals per environment against zero and against a margin declared before the data.

Per unit, the log-ratio of an environment to the mean (of logs) of the two hosts; the control is the log-ratio of
the second host to the first. Beside the typical time (trimmed over units) stands all time, stalls included: the
mean over units, untrimmed. Levels by families of the study: the primary comparisons (whole runs and steps of every
environment in the headlines) by Holm, all others, which explore, by Benjamini and Hochberg's selection.
An arm's campaign also compares its level with the headline's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tare.analysis.choice import EXPLORATORY, PRIMARY
from tare.analysis.launch_rows import PHASES, SLOWDOWN
from tare.analysis.metrics import pivot
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import compared, family_alpha
from tare.model.registry import ALONE, BASELINE, CONTROL, HOST
from tare.stats.families import holm_levels, selected_level
from tare.stats.intervals import (
    FEWEST_UNITS,
    LARGEST_RATIO,
    Estimate,
    Interval,
    Spread,
    all_within,
    allowing_unseen,
    bootstrap_interval,
    judge,
    more_units,
    qualified,
    share_interval,
    student,
    t_interval,
    tellable,
    trimmed,
    two_stage,
)

RUN_METRICS = ("real_s", "user_s", "system_s", *PHASES, "exit_s", "samples_per_s", "images_per_s", SLOWDOWN)
STEP_METRICS = ("turn_step_s",)
CAUSE_METRICS = ("files_first_s", "files_stat_s", "files_read_s", "libraries_map_s", "imports_after_read_s")
METRICS_OF = {"rounds": RUN_METRICS, "turns": STEP_METRICS, "causes": CAUSE_METRICS}
MARGIN_OF = {"rounds": "run", "turns": "step", "causes": "run"}
OF_SOME = ("images_per_s", SLOWDOWN)  # what only jobs with a warm-up have, or only those with a neighbour
RATES = ("samples_per_s", "images_per_s")  # the sum of rates is no total
NO_TOTAL = (*RATES, SLOWDOWN)
# Where a metric is a robust summary of a launch, the metric whose sum holds its stalls as well.
TOTAL_OF = {"turn_step_s": "turn_step_mean_s"}
PRIMARY_METRICS = ("real_s", "turn_step_s")
BOUNDED = "real_s"  # the metric that a launch which was stopped at its time limit bounds from below
TO_ONE_HOST = math.sqrt(
    4 / 3
)  # where launches vary alike: spread of a ratio to one launch by that to a mean of two
IDENTITY = ("study", "campaign", "scenario", "workload", "stack", "arm", "batch")


def logs_of(values: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Logs of the units that have all of `names`, positive."""
    found = values[list(names)]
    numbers = found.to_numpy(dtype=float)
    whole = (numbers > 0).all(axis=1)
    return pd.DataFrame(np.log(numbers[whole]), index=found.index[whole], columns=found.columns)


def log_ratios(values: pd.DataFrame, env: str) -> pd.Series:
    """Per unit: log of `env` less the mean of the logs of the two hosts; units that lack one are left out."""
    return contrasts(values, env, HOST).mean(axis=1)


def control_ratios(values: pd.DataFrame) -> pd.Series:
    """Per unit: log of the second host less log of the first."""
    return contrasts(values, CONTROL, HOST).mean(axis=1)


def level_ratios(values: pd.DataFrame, env: str) -> pd.Series:
    """Per unit: log of `env` at the arm's level less log of its launch as in the headline.

    The host stands twice in a unit: there it is the mean of both.
    """
    return contrasts(values, env, f"{env}{BASELINE}").mean(axis=1)


def contrasts(values: pd.DataFrame, env: str, reference: str) -> pd.DataFrame:
    """Per unit the two log-ratios whose mean is compared, each of one launch to one other; alike if there is one.

    An environment to either host; either host to the headline's, where an arm moves it, or each to its own launch
    without a neighbour; units that lack one are left out.
    """
    if reference == HOST and env != CONTROL:
        logs = logs_of(values, [env, HOST, CONTROL])
        first, second, third = logs.to_numpy().T
        pairs = [first - second, first - third]
    elif env == HOST and reference.endswith(ALONE):
        logs = logs_of(values, [HOST, CONTROL, reference, f"{CONTROL}{ALONE}"])
        first, second, third, fourth = logs.to_numpy().T
        pairs = [first - third, second - fourth]
    elif env == HOST:
        logs = logs_of(values, [HOST, CONTROL, reference])
        first, second, third = logs.to_numpy().T
        pairs = [first - third, second - third]
    else:
        logs = logs_of(values, [env, reference])
        first, second = logs.to_numpy().T
        pairs = [first - second] * 2
    return pd.DataFrame(np.column_stack(pairs), index=logs.index)


def estimate_of(pairs: pd.DataFrame, design: str, pilot: Sequence[int]) -> Estimate:
    """What the deciding interval of a campaign's design rests on.

    Stein's spread is exact for normal units whose number the pilot's spread chose. Machines have storms that a
    pilot of six misses: the trimmed spread of all units stands beside it, and the wider of the two decides.

    Args:
        pairs: as `contrasts`, by unit number.
        design: as `design_of`.
        pilot: numbers of the units that the decision was taken on.
    """
    ordered = pairs.sort_index()
    found = trimmed(ordered[0].to_numpy(), ordered[1].to_numpy())
    if design != "stein":
        return found
    return two_stage(found, ordered[ordered.index.isin(pilot)].mean(axis=1).to_numpy())


def design_of(campaign: SealedCampaign) -> str:
    """`stein` where the pilot's spread chose the number of units and all of them were made, else `fixed`."""
    decision = campaign.decision
    return "stein" if decision and decision.design == "stein" and not campaign.ended else "fixed"


def margin_of(campaign: SealedCampaign) -> float:
    """The margin that a campaign is judged by."""
    return (campaign.plan.margins or {})[MARGIN_OF[campaign.kind]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A campaign with its metric rows, and the share of its family's alpha that it may spend.

    Attributes:
        metrics: rows of this campaign alone.
        share: 1 for a first try; less where earlier tries of the same campaign have spent some.
    """

    campaign: SealedCampaign
    metrics: pd.DataFrame
    share: float = 1.0

    @property
    def names(self) -> list[str]:
        """Launches of a unit, with the headline's where its rows come from another campaign of the same blocks."""
        own = list(self.campaign.plan.environments)
        return own + [name for name in self.metrics["env"].unique() if name.endswith(BASELINE) and name not in own]


def verdict_rows(campaign: SealedCampaign, metrics: pd.DataFrame, share: float = 1.0) -> list[dict[str, Any]]:
    """Rows of the verdict table for one campaign of rounds, turns or causes, as if it were the whole study.

    Args:
        campaign: its margins, sampling, environments and decision.
        metrics: metric rows of this campaign alone.
        share: of the families' alpha that it may spend.
    """
    return study_rows([Measured(campaign=campaign, metrics=metrics, share=share)])


def study_rows(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Rows of the verdict table for all campaigns of a study: both families are the study's.

    The family of primary comparisons is every workload x whole run and step x environment of the headlines: any
    false "differs" among them has a probability of 1 - confidence at most. Of all other comparisons that have data
    a share of 1 - confidence of those that differ is expected to be false at most.
    """
    comparisons = [one for each in found for one in _comparisons(each)]
    primary = [one for one in comparisons if one.role == PRIMARY]
    tested = [one for one in comparisons if one.role != PRIMARY and one.typical.spreads]
    alpha = max((one.family_alpha for one in comparisons), default=0.0)
    steps = holm_levels([one.p_value for one in primary], alpha)
    levels = dict(zip(map(id, primary), steps, strict=True))
    explored = selected_level([one.p_value for one in tested], alpha)
    sizes = {PRIMARY: len(primary), EXPLORATORY: max(1, len(tested))}
    return [one.row(one.share * levels.get(id(one), explored), sizes[one.role]) for one in comparisons]


def _comparisons(found: Measured) -> list[_Comparison]:
    plan = found.campaign.plan
    environments = compared(plan)
    judged = [name.removesuffix(BASELINE) for name in found.names if name.endswith(BASELINE)]
    pairs = [(env, HOST) for env in environments] + [(env, f"{env}{BASELINE}") for env in judged]
    without = [name for name in found.names if name.endswith(ALONE) and name != f"{CONTROL}{ALONE}"]
    beside = [(name.removesuffix(ALONE), name) for name in without]
    found_all: list[_Comparison] = []
    for metric in METRICS_OF[found.campaign.kind] if pairs or beside else ():
        if metric in OF_SOME and metric not in set(found.metrics["metric"]):
            continue
        own = pairs if metric == SLOWDOWN else [*pairs, *beside]  # which is a ratio to them already
        if not own:
            continue
        table = _Table(found, metric, own)
        found_all += [_Comparison(table, env, reference) for env, reference in own]
    return found_all


class _Table:
    """What the comparisons of one metric of one campaign share."""

    def __init__(self, found: Measured, metric: str, pairs: Sequence[tuple[str, str]]) -> None:
        self.campaign, self.metric, self.share = found.campaign, metric, found.share
        plan, metrics = found.campaign.plan, found.metrics
        own = metrics[metrics["arm"] == plan.arm]
        self.identity = (own if len(own) else metrics).iloc[0][list(IDENTITY)].to_dict()
        self.values = pivot(metrics, metric).reindex(columns=found.names)
        self.bounded = self._bound() if metric == BOUNDED else {}
        total = TOTAL_OF.get(metric, metric)
        self.is_total = total == metric
        self.totals = self.values if self.is_total else pivot(metrics, total).reindex(columns=found.names)
        self.margin = margin_of(self.campaign)
        self.design = design_of(self.campaign)
        self.units = sorted(metrics["rep"].dropna().unique())
        pilot = self.units[: self.campaign.pilot]
        first = self.units[: plan.sampling.pilot or 0]  # the control is in every unit
        self.control = estimate_of(contrasts(self.values, CONTROL, HOST), self.design, first)
        keys = [(CONTROL, HOST), *pairs]
        self.typical = {key: self.control if key[0] == CONTROL else self._estimate(key, pilot) for key in keys}
        self.total = {key: student(contrasts(self.totals, *key).mean(axis=1).to_numpy()) for key in keys}
        self.typical, self.total = (guarded(found) for found in (self.typical, self.total))
        self.steps = {} if self.is_total else counted_steps(self.campaign)
        self.within = self._within([(env, reference) for env, reference in pairs if reference == HOST])

    def _bound(self) -> dict[str, int]:
        """Put the time limit where it stopped a launch beside two hosts; returns how often, by environment."""
        limit = self.campaign.plan.conditions.get("launch_timeout_s")
        found: dict[str, int] = {}
        for unit in self.campaign.counted if limit else ():
            hosts = [unit.launches[name].ok for name in (HOST, CONTROL) if name in unit.launches]
            for env, launch in unit.launches.items():
                if launch.status == "timeout" and env in self.values and hosts == [True, True]:
                    self.values.loc[unit.unit, env] = limit
                    found[env] = found.get(env, 0) + 1
        return found

    def _estimate(self, key: tuple[str, str], pilot: Sequence[int]) -> Estimate:
        """Of the typical time; with a bound among the values nothing is trimmed, or it would be the bound."""
        pairs = contrasts(self.values, *key)
        if self.bounded.get(key[0]):
            return student(pairs.mean(axis=1).to_numpy())
        return estimate_of(pairs, self.design, pilot)

    def _within(self, keys: Sequence[tuple[str, str]]) -> float | None:
        """The smallest margin that holds all environments together, typical and all time."""
        estimates = [found[key] for key in keys for found in (self.typical, self.total)]
        if (
            not keys
            or any(one.n < self.fewest for one in estimates)
            or any(self.bounded.get(env) for env, _ in keys)
        ):
            return None
        return all_within(estimates, self.share * (1 - self.campaign.plan.sampling.confidence))

    @property
    def fewest(self) -> int:
        """Units that a verdict needs."""
        return self.campaign.plan.sampling.verdict_units

    @property
    def family_alpha(self) -> float:
        """Of a whole family."""
        return 1 - self.campaign.plan.sampling.confidence


def guarded(found: Mapping[tuple[str, str], Estimate]) -> dict[tuple[str, str], Estimate]:
    """Every estimate with the moderated spread of the others, the control among them, beside its own."""
    scales = {key: TO_ONE_HOST if key[0] == CONTROL or HOST not in key else 1.0 for key in found}
    spreads: dict[tuple[str, str], Spread] = {
        key: one.spreads[0].scaled(1 / scales[key]) for key, one in found.items() if one.spreads
    }
    return {
        key: one.guarded([spread.scaled(scales[key]) for other, spread in spreads.items() if other != key])
        for key, one in found.items()
    }


class _Comparison:
    """An environment with the host, an arm's level with the headline's, or beside a neighbour with alone."""

    def __init__(self, table: _Table, env: str, reference: str) -> None:
        self.table, self.env, self.reference = table, env, reference
        self.typical = table.typical[env, reference]
        self.share, self.family_alpha = table.share, table.family_alpha
        primary = reference == HOST and table.metric in PRIMARY_METRICS and table.campaign.is_headline
        self.role = PRIMARY if primary else EXPLORATORY

    @property
    def p_value(self) -> float:
        """Of the typical time, as if its share of alpha were a whole one."""
        return min(1.0, self.typical.p_value / self.share)

    def row(self, alpha: float, family: int) -> dict[str, Any]:
        """The row of the verdict table, every interval at level 1 - alpha."""
        table, key = self.table, (self.env, self.reference)
        interval, total = tellable(self.typical.interval(alpha)), tellable(table.total[key].interval(alpha))
        ratios = contrasts(table.values, *key).mean(axis=1)
        stalls = None if table.is_total else tellable(t_interval(self._beyond(ratios), alpha))
        control = tellable(table.control.interval(table.share * family_alpha(table.campaign.plan)))
        check = bootstrap_interval(ratios.to_numpy(), alpha)
        verdict, total_verdict = self._verdict(interval, total, stalls)
        failures = self._failures()
        bounded = table.bounded.get(self.env, 0)
        more = more_units(ratios.to_numpy(), alpha, table.margin) if verdict == "inconclusive" else None
        return {
            **table.identity,
            "env": self.env,
            "metric": table.metric,
            "reference": self.reference,
            "role": self.role,
            "n_units": interval.n,
            "ratio": _exp(interval.mean),
            "ci_low": _exp(interval.low),
            "ci_high": None if bounded else _exp(interval.high),
            "total_ratio": None
            if table.metric in NO_TOTAL
            else total_ratio(table.totals, self.env, self.reference),
            "total_ci_low": _exp(total.low),
            "total_ci_high": None if bounded else _exp(total.high),
            "total_verdict": total_verdict,
            "stalls_ci_low": _exp(stalls.low) if stalls else None,
            "stalls_ci_high": _exp(stalls.high) if stalls else None,
            "steps": self._steps(),
            "alpha": alpha,
            "family_size": family,
            "family_alpha": self.family_alpha,
            "margin": table.margin,
            "verdict": verdict,
            "all_within": table.within if self.role == PRIMARY else None,
            "control_ratio": _exp(control.mean),
            "control_ci_low": _exp(control.low),
            "control_ci_high": _exp(control.high),
            "control_reaches": _reaches(control, interval, verdict, table.margin),
            "design": table.design,
            "bootstrap_low": _exp(check.low),
            "bootstrap_high": _exp(check.high),
            "more_units": None if more is None else max(more, table.fewest - interval.n),
            **failures,
            "reason": self._reason(interval, bounded),
        }

    def _beyond(self, ratios: pd.Series) -> list[float]:
        """Per unit, the log-ratio of all time less that of the typical time."""
        totals = contrasts(self.table.totals, self.env, self.reference).mean(axis=1)
        return [float(value) for value in (totals - ratios).dropna()]

    def _verdict(self, interval: Interval, total: Interval, stalls: Interval | None) -> tuple[str, str]:
        """Of the typical time, with more words where all time does not say the same; and of all time."""
        if interval.n < self.table.fewest:
            return "inconclusive", "inconclusive"
        if self.table.bounded.get(self.env):  # the upper end is not known
            low = interval.low
            verdict = "different" if low is not None and low > 0 else "inconclusive"
            return verdict, verdict
        typical, whole = judge(interval, self.table.margin), judge(total, self.table.margin)
        steps = self._steps()
        seen = whole if steps is None else judge(allowing_unseen(total, steps), self.table.margin)
        return qualified(typical, seen if typical == "equivalent" else whole, stalls), whole

    def _steps(self) -> int | None:
        """Counted steps of the environment or of its reference, whichever has fewer; None where none were timed."""
        steps = self.table.steps
        return min((steps[name] for name in (self.env, self.reference) if name in steps), default=None)

    def _failures(self) -> dict[str, Any]:
        """How many of the environment's launches failed, those stopped at the time limit among them; the share's
        interval at 95%."""
        ended = [
            unit.launches[self.env].status
            for unit in self.table.campaign.units  # void ones too: a launch that dies voids its block
            if not unit.discarded and self.env in unit.launches
            if unit.launches[self.env].status in ("ok", "failed", "timeout")
        ]
        failed = sum(status != "ok" for status in ended)
        low, high = share_interval(failed, len(ended), 0.05)
        return {
            "launches": len(ended),
            "failures": failed,
            "timeouts": ended.count("timeout"),
            "failure_share_low": low,
            "failure_share_high": high,
        }

    def _reason(self, interval: Interval, bounded: int) -> str | None:
        """Why there is no interval or no verdict, or what became of the campaign."""
        parts, fewest = [], self.table.fewest
        if interval.low is None and interval.n >= FEWEST_UNITS:
            parts.append(
                f"{interval.n} complete units say nothing at this level: their interval reaches beyond a factor of "
                f"{LARGEST_RATIO:,}"
            )
        elif interval.low is None:
            missing = FEWEST_UNITS - interval.n
            parts.append(
                f"{interval.n} complete units; an interval needs {FEWEST_UNITS} or more, so {missing} more"
            )
        elif interval.n < fewest:
            parts.append(f"{interval.n} complete units; the study asks for {fewest} before a verdict")
        if bounded:
            limit = self.table.campaign.plan.conditions["launch_timeout_s"]
            parts.append(
                f"{bounded} of {interval.n} launches were stopped at the time limit of {limit:g} s, which counts "
                "as what they took at least"
            )
        if self.table.campaign.ended:
            parts.append(f"the campaign ended before its time: {self.table.campaign.ended}")
        return "; ".join(parts) or None


def _reaches(control: Interval, interval: Interval, verdict: str, margin: float) -> bool | None:
    """Whether the control's interval reaches as far as what the verdict claims: the ratio, or else the margin."""
    if control.told is None or interval.mean is None:
        return None
    _, low, high = control.told
    claimed = abs(interval.mean) if verdict.startswith("different") else math.log1p(margin)
    return max(abs(low), abs(high)) > claimed


def counted_steps(campaign: SealedCampaign) -> dict[str, int]:
    """Steps that count of every launch of a campaign of turns, over the units that count."""
    found: dict[str, int] = {}
    for unit in campaign.counted:
        for name, launch in unit.launches.items():
            draws = launch.draws or ()
            found[name] = found.get(name, 0) + sum(len(turn) for draw in draws for turn in draw.turns.step_s)
    return found


def total_ratio(values: pd.DataFrame, env: str, reference: str = HOST) -> float | None:
    """Sum over complete units of `env` by the sum of its reference: stalls and outliers weigh in full.

    Against the host, or where it is the host that an arm moves, the mean of the two hosts' sums counts; each has a
    launch without a neighbour of its own.
    """
    hosts = [HOST, CONTROL]
    above, below = ([env], hosts) if reference == HOST else (hosts if env == HOST else [env], [reference])
    if env == HOST and reference.endswith(ALONE):
        below = [f"{name}{ALONE}" for name in hosts]
    complete = values[[*dict.fromkeys([*above, *below])]].dropna()
    base = complete[below].sum().mean()
    return float(complete[above].sum().mean() / base) if base > 0 else None


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
