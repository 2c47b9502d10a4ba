"""Verdicts: intervals per environment against zero and against a margin declared before the data.

Per unit, the log-ratio of an environment to the mean (of logs) of the two hosts; the control is the log-ratio of
the second host to the first. In addition to the typical time (trimmed over units) there is all time, stalls
included: the mean over units, untrimmed. Levels by families of the study: the primary comparisons (whole runs and
steps of every environment in the headlines) by Holm, all others, which explore, by Benjamini and Hochberg's
selection.
An arm's campaign also compares its level with the headline's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tare.analysis.bounds import Ends, ends_of, failures_of, sides, stopped_runs
from tare.analysis.choice import EXPLORATORY, PRIMARY
from tare.analysis.copies import part_of
from tare.analysis.launch_rows import PHASES, PROGRAM, REPORTED_STEPS, SLOWDOWN
from tare.analysis.metrics import identity_of, pivot
from tare.analysis.sliced_rounds import is_sliced, long_tail, sliced_units, unsliced_reason, whole_run_estimate
from tare.analysis.switch_costs import switching
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import compared, family_alpha, measured_steps, served, unsliced
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role, reference_of
from tare.model.studies.arms import stack_of
from tare.model.studies.cells import launch_columns
from tare.model.studies.layout import ROUNDS, STEPS
from tare.model.tables import CO_RUNNER, ENVIRONMENT, LEVEL
from tare.stats.families import holm_levels, selected_level
from tare.stats.intervals import (
    FEWEST_UNITS,
    LARGEST_RATIO,
    UNKNOWN,
    Estimate,
    Interval,
    Spread,
    all_within,
    allowing_unseen,
    judge,
    more_units,
    qualified,
    student,
    t_interval,
    trimmed,
    two_stage,
    unseen_stalls,
    without_wild_ends,
)

GROUP_METRICS = ("group_step_s", "compute_step_s", "exposed_exchange_s")  # of instances that train together
RUN_METRICS = (
    *("real_s", "user_s", "system_s", *PHASES, PROGRAM, "exit_s", *REPORTED_STEPS, "samples_per_s", "images_per_s"),
    *GROUP_METRICS,
    SLOWDOWN,
)
STEP_METRICS = ("step_s",)
CAUSE_METRICS = ("files_first_s", "files_stat_s", "files_read_s", "libraries_map_s", "imports_after_read_s")
METRICS_OF = {"rounds": RUN_METRICS, "steps": STEP_METRICS, "causes": CAUSE_METRICS}
MARGIN_OF = {"rounds": "run", "steps": "step", "causes": "run"}
# What only jobs with a warm-up have, groups, jobs with a co-runner, commands.
OF_SOME = ("images_per_s", *GROUP_METRICS, SLOWDOWN, PROGRAM, *REPORTED_STEPS)
RATES = ("samples_per_s", "images_per_s")  # the sum of rates is no total
NO_TOTAL = (*RATES, SLOWDOWN)
# Where a metric is a robust summary of a launch, the metric whose sum holds its stalls as well.
TOTAL_OF = {"step_s": "step_mean_s"}
PRIMARY_METRICS = ("real_s", "step_s")
WHOLE_RUN = "real_s"
BOUNDED = WHOLE_RUN  # the metric that a launch which was stopped at its time limit bounds from below
TO_ONE_HOST = math.sqrt(
    4 / 3
)  # where launches vary alike: spread of a ratio to one launch, relative to one to a mean of two


def logs_of(values: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Logs of the units that have all of `names`, positive."""
    found = values[list(names)]
    numbers = found.to_numpy(dtype=float)
    whole = (numbers > 0).all(axis=1)
    return pd.DataFrame(np.log(numbers[whole]), index=found.index[whole], columns=found.columns)


def log_ratios(values: pd.DataFrame, env: str, reference: str = HOST) -> pd.Series:
    """Per unit: log of `env` less the mean of the logs of the two hosts, of the second host less log of the first.

    Against the headline's launch: log of `env` at the arm's level less that; of the host the mean of both.
    """
    return contrasts(values, env, reference).mean(axis=1)


def contrasts(values: pd.DataFrame, env: str, reference: str) -> pd.DataFrame:
    """Per unit the two log-ratios whose mean is compared, each of one launch to one other; alike if there is one.

    An environment to either host; either host to the headline's, where an arm moves it, or each to its own launch
    without a co-runner; units that lack one are left out.
    """
    above, below = sides(env, reference)
    logs = logs_of(values, [*dict.fromkeys([*above, *below])])
    of = dict(zip(logs.columns, logs.to_numpy().T, strict=True))
    pairs = [of[above[n % len(above)]] - of[below[n % len(below)]] for n in (0, 1)]
    return pd.DataFrame(np.column_stack(pairs), index=logs.index)


def estimate_of(pairs: pd.DataFrame, design: str, pilot: Sequence[int], *, sliced: bool = False) -> Estimate:
    """What the deciding interval of a campaign's design rests on.

    Stein's spread is exact for normal units whose number the pilot's spread chose. Machines have storms that a
    pilot of six misses: the spread of all units is there too, and the wider of the two decides. Slices take the
    storms out of a round's ratios, so that nothing is trimmed there (docs/proof.md).

    `pairs`: as `contrasts`, by unit number. `design`: as `design_of`. `pilot`: numbers of the units that the
    decision was taken on. `sliced`: whether the units were.
    """
    ordered = pairs.sort_index()
    if sliced:
        found = student(ordered.mean(axis=1).to_numpy())
    else:
        found = trimmed(ordered[0].to_numpy(), ordered[1].to_numpy())
    if design != "stein":
        return found
    return two_stage(found, ordered[ordered.index.isin(pilot)].mean(axis=1).to_numpy())


def estimates_of(
    campaign: SealedCampaign,
    pairs: Mapping[tuple[str, str], pd.DataFrame],
    pilot: Sequence[int],
) -> dict[tuple[str, str], Estimate]:
    """As `estimate_of`, of several comparisons of a campaign, by environment and reference."""
    design = design_of(campaign)
    sliced = {key: is_sliced(campaign, key[0]) for key in pairs}
    found = {key: estimate_of(pair, design, pilot, sliced=sliced[key]) for key, pair in pairs.items()}
    return found | guarded({key: one for key, one in found.items() if not sliced[key]})


def design_of(campaign: SealedCampaign) -> str:
    """`stein` where the pilot's spread chose the number of units and all of them were made, else `fixed`."""
    decision = campaign.decision
    return "stein" if decision and decision.design == "stein" and not campaign.ended else "fixed"


def margin_of(campaign: SealedCampaign) -> float:
    """The margin that a campaign is judged by."""
    return (campaign.plan.margins or {})[MARGIN_OF[campaign.kind]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A campaign with its metric rows, and the share of its family's alpha that it may spend."""

    campaign: SealedCampaign
    metrics: pd.DataFrame  # rows of this campaign alone
    share: float = 1.0  # of its try; 1 where no ledger counts tries
    next_share: float | None = None  # of the try after it; None where it is no less
    # of a step, between copies of the files, where that counts (tare.analysis.copies)
    between_copies: Spread | None = None

    def lasting(self, env: str, reference: str) -> Spread | None:
        """What copies of the files add to a comparison, the same in all units."""
        return part_of(self.between_copies, self.campaign, env, reference)

    @property
    def names(self) -> list[str]:
        """Launches of a unit, with the headline's where its rows come from another level of the same rounds."""
        own = list(self.campaign.plan.launch_names)
        found = [name for name in self.metrics["launch"].unique() if name not in own]
        return own + [name for name in found if read_role(name).is_reference]


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
    judged = [role.environment for role in map(read_role, found.names) if role.is_reference]
    pairs = [(env, HOST) for env in environments] + [(env, reference_of(env)) for env in judged]
    alone = [role for role in map(read_role, found.names) if role.is_alone and not role.is_control]
    slowed = [(role.environment, role.name) for role in alone]
    found_all: list[_Comparison] = []
    for metric in METRICS_OF[found.campaign.kind] if pairs or slowed else ():
        of_some = metric in OF_SOME or (plan.is_command and metric != WHOLE_RUN)
        if of_some and metric not in set(found.metrics["metric"]):
            continue
        own = pairs if metric == SLOWDOWN else [*pairs, *slowed]  # which is a ratio to them already
        if not own:
            continue
        table = _Table(found, metric, own)
        found_all += [_Comparison(table, env, reference) for env, reference in own]
    return found_all


class _Table:
    """What the comparisons of one metric of one campaign share."""

    def __init__(self, found: Measured, metric: str, pairs: Sequence[tuple[str, str]]) -> None:
        self.found, self.campaign, self.metric, self.share = found, found.campaign, metric, found.share
        self.again = (found.next_share or found.share) / found.share  # of an interval's level, in a new campaign
        plan, metrics = found.campaign.plan, found.metrics
        self.identity = identity_of(metrics)
        self.identity["stack"] = stack_of(plan.levels, plan.stack)
        self.values = pivot(metrics, metric).reindex(columns=found.names)
        keys = [(CONTROL, HOST), *pairs]
        self.limit = self.campaign.plan.conditions.launch_timeout_s
        self.ends = self._bounds(keys)
        total = TOTAL_OF.get(metric, metric)
        self.is_total = total == metric
        self.totals = self.values if self.is_total else pivot(metrics, total).reindex(columns=found.names)
        self.total_ends = self.ends if self.is_total else dict.fromkeys(keys, Ends())
        units = self.campaign.units
        self.sliced, self.apart = is_sliced(self.campaign), unsliced(plan, units) | served(plan, units)
        self.switching = switching(self.campaign) if self.sliced and metric in PRIMARY_METRICS else None
        self.margin = margin_of(self.campaign)
        self.design = design_of(self.campaign)
        self.units = sorted(metrics["rep"].dropna().unique())
        self._known: dict[tuple[bool, tuple[str, str], bool | None], pd.DataFrame] = {}
        pilot = self.units[: self.campaign.pilot]
        kinds = {self.is_sliced(key) for key in pairs} or {self.sliced}
        self.controls = {kind: self._control(kind) for kind in kinds}
        control = self.controls[self.sliced if self.sliced in kinds else not self.sliced]
        self.typical = {key: control if key[0] == CONTROL else self._estimate(key, pilot) for key in keys}
        self.total = {key: self._student(self.totals, key) for key in keys}
        whole = [key for key in keys if not self.is_sliced(key)]
        for estimates in (self.typical, self.total):
            estimates |= guarded({key: estimates[key] for key in whole})
        self.steps = {} if self.is_total else counted_steps(self.campaign)
        self.within = self._within([(env, reference) for env, reference in pairs if reference == HOST])

    def is_sliced(self, key: tuple[str, str]) -> bool:
        """Whether the launches of a comparison ran in slices."""
        return self.sliced if key[0] == CONTROL else is_sliced(self.campaign, key[0])

    def _bounds(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Ends]:
        """Put the time limit where it stopped a launch; returns which ends of the comparisons are known then."""
        stopped = stopped_runs(self.campaign) if self.metric == BOUNDED else {}
        if not stopped:
            return dict.fromkeys(keys, Ends())
        for name in stopped.keys() & set(self.values.columns):
            for number in stopped[name]:
                self.values.loc[number, name] = self.limit
        return {key: ends_of(stopped, *key, contrasts(self.values, *key).index) for key in keys}

    def contrasts(self, values: pd.DataFrame, key: tuple[str, str], sliced: bool | None = None) -> pd.DataFrame:
        """As the function, of the typical values or of the totals, whose bounds are in place by then.

        Without units that are sliced where the comparison's are not, or the other way round: those are of other
        launches, or of what was found not to be sliced. `sliced`: of this kind of units; None for the comparison's.
        """
        place = (values is self.values, key, sliced)
        if place not in self._known:
            found = contrasts(values, *key)
            if self.apart:
                in_slices = found.index.isin(sliced_units(self.campaign))
                kind = self.is_sliced(key) if sliced is None else sliced
                found = found[in_slices if kind else ~in_slices]
            self._known[place] = found
        return self._known[place]

    def _pairs(self, values: pd.DataFrame, key: tuple[str, str], sliced: bool | None = None) -> pd.DataFrame:
        """As `contrasts`, without units in which both sides were stopped."""
        found, silent = self.contrasts(values, key, sliced), self.ends[key].silent
        return found.drop(index=sorted(silent)) if silent else found

    def _control(self, sliced: bool) -> Estimate:
        """Of the second host, which is in every unit, over those of a kind."""
        key = (CONTROL, HOST)
        found = self._pairs(self.values, key, sliced)
        return self._estimate(key, list(found.index[: self.campaign.plan.sampling.pilot or 0]), sliced)

    def ratios(self, key: tuple[str, str]) -> pd.Series:
        """Per unit, the log-ratio of the typical time."""
        return self._pairs(self.values, key).mean(axis=1)

    def _estimate(self, key: tuple[str, str], pilot: Sequence[int], sliced: bool | None = None) -> Estimate:
        """Of the typical time; with a bound among the values nothing is trimmed, or it would be the bound."""
        if self.ends[key].open:
            return self._student(self.values, key)
        pairs = self._pairs(self.values, key, sliced)
        kind = self.is_sliced(key) if sliced is None else sliced
        found = estimate_of(pairs, self.design, pilot, sliced=kind)
        terms = kind and self.metric == WHOLE_RUN  # start, body and exit are put together
        whole = whole_run_estimate(self.campaign, *key, pairs.index) if terms else None
        if whole is not None:
            found = replace(found, mean=whole.mean, spreads=(*whole.spreads, *found.spreads[1:]))
        return self._without_switches(replace(found, lasting=self.found.lasting(*key)), key)

    def _without_switches(self, found: Estimate, key: tuple[str, str]) -> Estimate:
        """Of a whole run in slices, at the limit of long quanta."""
        switching = self.switching if self.metric == WHOLE_RUN and self.is_sliced(key) and key[1] == HOST else None
        return switching.at_long_quanta(found, key[0]) if switching else found

    def switch_factor(self, key: tuple[str, str]) -> float | None:
        """What the correction for switches multiplies the ratio by; None where there is none."""
        plain = Estimate(n=1, mean=0.0)
        found = self._without_switches(plain, key)
        if found is plain or found.lasting is None or found.mean is None:
            return None
        return math.exp(found.mean)

    def _student(self, values: pd.DataFrame, key: tuple[str, str]) -> Estimate:
        """Of all units, untrimmed."""
        found = student(self._pairs(values, key).mean(axis=1).to_numpy())
        return self._without_switches(replace(found, lasting=self.found.lasting(*key)), key)

    def _within(self, keys: Sequence[tuple[str, str]]) -> float | None:
        """The smallest margin that holds all environments together, typical and all time."""
        estimates = [(self.typical[key], 0.0) for key in keys]
        for key in keys:
            steps = self.steps_of(*key)
            estimates.append((self.total[key], 0.0 if steps is None else unseen_stalls(steps)))
        unknown = any(self.ends[key].open or self.total_ends[key].open for key in keys)
        if not keys or unknown or any(one.n < self.fewest for one, _ in estimates):
            return None
        return all_within(estimates, self.share * (1 - self.campaign.plan.sampling.confidence))

    def steps_of(self, env: str, reference: str) -> int | None:
        """Counted steps of either, whichever has fewer; None where none were timed."""
        return min((self.steps[name] for name in (env, reference) if name in self.steps), default=None)

    @property
    def fewest(self) -> int:
        """Units that a verdict needs."""
        return self.campaign.plan.sampling.verdict_units

    @property
    def family_alpha(self) -> float:
        """Of a whole family."""
        return 1 - self.campaign.plan.sampling.confidence


def guarded(found: Mapping[tuple[str, str], Estimate]) -> dict[tuple[str, str], Estimate]:
    """Every estimate with the moderated spread of the others, the control among them, in addition to its own."""
    scales = {key: TO_ONE_HOST if key[0] == CONTROL or HOST not in key else 1.0 for key in found}
    spreads: dict[tuple[str, str], Spread] = {
        key: one.spreads[0].scaled(1 / scales[key]) for key, one in found.items() if one.spreads
    }
    return {
        key: one.guarded([spread.scaled(scales[key]) for other, spread in spreads.items() if other != key])
        for key, one in found.items()
    }


class _Comparison:
    """An environment against the host, an arm's level against the headline's, or with a co-runner against alone."""

    def __init__(self, table: _Table, env: str, reference: str) -> None:
        self.table, self.env, self.reference = table, env, reference
        self.typical = table.typical[env, reference]
        self.ends, self.total_ends = table.ends[env, reference], table.total_ends[env, reference]
        self.share, self.family_alpha = table.share, table.family_alpha
        against = read_role(reference)
        self.compares = LEVEL if against.is_reference else CO_RUNNER if against.is_alone else ENVIRONMENT
        primary = reference == HOST and table.metric in PRIMARY_METRICS and table.campaign.is_headline
        self.role = PRIMARY if primary else EXPLORATORY

    @property
    def p_value(self) -> float:
        """Of the typical time, as if its share of alpha were a whole one."""
        return 1.0 if self.ends.hide(self.typical.mean) else min(1.0, self.typical.p_value / self.share)

    def row(self, alpha: float, family: int) -> dict[str, Any]:
        """The row of the verdict table, every interval at level 1 - alpha."""
        table, key = self.table, (self.env, self.reference)
        whole = without_wild_ends(self.typical.interval(alpha))
        interval = self.ends.cut(whole)
        total = self.total_ends.cut(without_wild_ends(table.total[key].interval(alpha)))
        ratios = table.ratios(key)
        stalls = None if table.is_total else without_wild_ends(t_interval(self._beyond(ratios), alpha))
        control_ends = table.ends[CONTROL, HOST]
        control = control_ends.cut(
            without_wild_ends(
                table.controls[table.is_sliced(key)].interval(table.share * family_alpha(table.campaign.plan))
            )
        )
        verdict, total_verdict = self._verdict(interval, total, stalls)
        copies = table.found.lasting(*key)
        asks = verdict == "inconclusive" and not self.ends.open and copies is None
        more = more_units(ratios.to_numpy(), alpha * table.again, table.margin) if asks else None
        failed = failures_of(table.campaign, self.env)
        return {
            **table.identity,
            **launch_columns(read_role(self.env), table.campaign.plan.scenario),
            "metric": table.metric,
            "reference": self.reference,
            "compares": self.compares,
            "role": self.role,
            "n_units": interval.n,
            **_ratios(interval, "ratio", "ci_low", "ci_high"),
            "total_ratio": None
            if table.metric in NO_TOTAL
            else total_ratio(table.totals.loc[table.contrasts(table.totals, key).index], self.env, self.reference),
            **_ratios(total, "total_ci_low", "total_ci_high"),
            "total_verdict": total_verdict,
            **_ratios(stalls, "stalls_ci_low", "stalls_ci_high"),
            "steps": table.steps_of(*key),
            "alpha": alpha,
            "family_size": family,
            "family_alpha": self.family_alpha,
            "margin": table.margin,
            "verdict": verdict,
            "all_within": table.within if self.role == PRIMARY else None,
            **_ratios(control, "control_ratio", "control_ci_low", "control_ci_high"),
            "control_reaches": control_ends.open or _reaches(control, interval, verdict, table.margin),
            "sliced": table.is_sliced(key) if table.campaign.kind in (ROUNDS, STEPS) else None,
            "unsliced_reason": unsliced_reason(table.campaign, self.env),
            **self._switches(),
            "design": table.design,
            "more_units": None if more is None else max(more, table.fewest - interval.n),
            "launches": failed.launches,
            "failures": failed.failures,
            "timeouts": failed.timeouts,
            "failure_share_low": failed.low,
            "failure_share_high": failed.high,
            "reason": self._reason(whole),
        }

    def _switches(self) -> dict[str, float | None]:
        """Milliseconds by which to be stopped and started costs it more than the host."""
        more = self.table.switching.more_than_hosts(self.env) if self.table.switching else None
        costs = None if more is None or self.reference != HOST else more.interval(self.family_alpha)
        names = ("switch_more_ms", "switch_more_ci_low_ms", "switch_more_ci_high_ms")
        found = (UNKNOWN if costs is None else costs).mapped(lambda seconds: 1e3 * seconds).columns(*names)
        return {"switch_factor": self.table.switch_factor((self.env, self.reference)), **found}

    def _beyond(self, ratios: pd.Series) -> list[float]:
        """Per unit, the log-ratio of all time less that of the typical time."""
        totals = self.table.contrasts(self.table.totals, (self.env, self.reference)).mean(axis=1)
        return [float(value) for value in (totals - ratios).dropna()]

    def _verdict(self, interval: Interval, total: Interval, stalls: Interval | None) -> tuple[str, str]:
        """Of the typical time, with more words where all time does not say the same; and of all time."""
        if interval.n < self.table.fewest:
            return "inconclusive", "inconclusive"
        margin, steps = self.table.margin, self.table.steps_of(self.env, self.reference)
        typical, whole = self.ends.judge(interval, margin), self.total_ends.judge(total, margin)
        if typical != "equivalent" or steps is None or self.total_ends.open:
            return qualified(typical, whole, stalls), whole
        return qualified(typical, judge(allowing_unseen(total, steps), margin), stalls), whole

    def _reason(self, interval: Interval) -> str | None:
        """Why there is no interval, no end of it or no verdict, or what became of the campaign."""
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
        parts += self._limits(interval.n)
        tail = long_tail(self.table.campaign, self.env) if self.table.metric in PRIMARY_METRICS else None
        parts += [tail] if tail else []
        switching = self.table.switching if self.table.is_sliced((self.env, self.reference)) else None
        steps = self.table.metric != WHOLE_RUN
        if switching is not None and (note := switching.note(self.env, self.table.margin, steps=steps)):
            parts.append(note)
        if self.table.campaign.ended:
            parts.append(f"the campaign ended before its time: {self.table.campaign.ended}")
        return "; ".join(parts) or None

    def _limits(self, units: int) -> list[str]:
        """What launches that were stopped leave unknown."""
        parts, stopped = [], f"stopped at the time limit of {self.table.limit:g} s"
        if self.ends.at_least:
            parts.append(
                f"{self.ends.at_least} of {units} launches were {stopped}, which counts as what they took at least"
            )
        if self.ends.at_most:
            parts.append(
                f"in {self.ends.at_most} of {units} units what it is compared with was {stopped}, which counts as "
                "what that took at least"
            )
        if self.ends.silent:
            parts.append(f"units in which both were {stopped} say nothing: {len(self.ends.silent)}")
        return parts


def _reaches(control: Interval, interval: Interval, verdict: str, margin: float) -> bool | None:
    """Whether the control's interval reaches as far as what the verdict claims: the ratio, or else the margin."""
    if control.mean_low_high is None or interval.mean is None:
        return None
    _, low, high = control.mean_low_high
    claimed = abs(interval.mean) if verdict.startswith("different") else math.log1p(margin)
    return max(abs(low), abs(high)) > claimed


def counted_steps(campaign: SealedCampaign) -> dict[str, int]:
    """Steps that count of every launch of a view of training steps, over the units that count; none of others."""
    found: dict[str, int] = {}
    if campaign.level is None:
        return found
    for unit in campaign.counted:
        for name, launch in unit.launches.items():
            if launch.ok:
                found[name] = found.get(name, 0) + len(measured_steps(launch, campaign.level))
    return found


def total_ratio(values: pd.DataFrame, env: str, reference: str = HOST) -> float | None:
    """Sum over complete units of `env` by the sum of its reference: stalls and outliers weigh in full.

    Against the host, or where it is the host that an arm moves, the mean of the two hosts' sums counts; each has
    its own launch without a co-runner.
    """
    above, below = sides(env, reference)
    names = [*dict.fromkeys([*above, *below])]
    numbers = values[names].to_numpy(dtype=float)
    sums = dict(zip(names, numbers[~np.isnan(numbers).any(axis=1)].sum(axis=0), strict=True))
    base = float(np.mean([sums[name] for name in below]))
    return float(np.mean([sums[name] for name in above])) / base if base > 0 else None


def _ratios(found: Interval | None, *names: str) -> dict[str, float | None]:
    return (found or UNKNOWN).mapped(math.exp).columns(*names)
