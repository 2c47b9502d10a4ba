"""Why environments differ: kernels and operators compared, extra time by phase, and what of it files account for.

Everything is compared host against host first: what two hosts differ by is no cause of anything. No plotting here.

Operator times (`operator_times`): per unit, the log-ratio of an operator's own seconds to the mean of the two
hosts. Every operator and environment has its own spread, moderated by those of the environment's other
operators (Smyth 2004): an environment that varies more than the others is no difference. Levels of the t intervals
by Benjamini and Hochberg's selection over operators and environments; the sum of all operators has its own spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from tare.analysis.choice import without_co_runner
from tare.analysis.launch_rows import PHASES, PROGRAM
from tare.analysis.metrics import pivot
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.tables import DIFFERENT
from tare.stats.families import selected_level
from tare.stats.intervals import Estimate, Interval, Spread, moderated, student, t_interval, without_wild_ends

PHASE_METRICS = (*PHASES, PROGRAM, "exit_s")
SMALLEST_SHARE = 0.01  # of a step's own time: what is less is not worth a comparison, and widens all others
OPERATOR = "operator"
ALL_OPERATORS = "all operators"
HOSTS = (HOST, CONTROL)


@dataclass(frozen=True, kw_only=True)
class SetComparison:
    """Which kernels the launches of two sides ran."""

    env: str  # the side compared with the host; the host itself for host against host
    # `pairs`, `equal`: pairs of launches, and those with the same kernels equally often
    pairs: int
    equal: int
    kernels: int  # different ones on the host
    # `only_here`, `only_host`: in every launch of one side and in none of the other
    only_here: tuple[str, ...]
    only_host: tuple[str, ...]
    # name, calls of a step on the host, calls here, where each side always has its own number
    counts: tuple[tuple[str, float, float], ...]

    @property
    def differs(self) -> bool:
        """Whether the two sides run different kernels, launch after launch."""
        return bool(self.only_here or self.only_host or self.counts)


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """Own time of one operator in one environment, as a ratio to the two hosts."""

    operator: str
    env: str
    share: float  # of the host's own time of a step
    host_s: float  # geometric mean over the hosts' launches, seconds per step
    # `ratio`, `low`, `high`: with the interval that decides; None where it can't be had
    ratio: float
    low: float | None
    high: float | None
    # `control_low`, `control_high`: the range of the second host's ratio to the first over units
    control_low: float
    control_high: float
    units: int  # that have it on both hosts and here
    # they are enough for a verdict, the interval excludes 1, and the ratio is outside what host to host shows in
    # any unit
    differs: bool


@dataclass(frozen=True, kw_only=True)
class PhaseCost:
    """Extra seconds of one phase of a whole run, against the mean of the two hosts, per unit."""

    env: str
    phase: str
    extra: Interval
    share: float | None  # the phase's part of the whole run's extra time, where that one is significant
    fewest: int  # units before anything is significant

    @property
    def is_significant(self) -> bool:
        """Whether the units are enough, and the interval excludes zero."""
        return self.extra.n >= self.fewest and self.extra.excludes_zero


@dataclass(frozen=True, kw_only=True)
class FileAccount:
    """How much of the extra time of imports the files of the imports account for."""

    env: str
    imports: Interval  # extra seconds of the imports in whole runs
    files: Interval  # extra seconds of reading and mapping their files for the first time, in separate launches
    after: Interval  # extra seconds that the imports of those launches still take
    # `ratio`, `low`, `high`: files by imports; None with a `reason`
    ratio: float | None
    low: float | None
    high: float | None
    reason: str | None


def environments_of(table: pd.DataFrame) -> list[str]:
    """Environments of a table that are compared with the host; those without one number are left out."""
    if "kind" in table:
        table = table[table["kind"] != "unavailable"]
    compared = (table["launch_role"] == "treatment") & ~without_co_runner(table)
    return sorted(table.loc[compared, "launch"].unique())


def calls_by_launch(kernels: pd.DataFrame, operators: bool) -> dict[tuple[str, int], dict[str, float]]:
    """Calls of a step by kernel, of each launch (environment, unit): of operators, or of all other libraries."""
    own = kernels[(kernels["library"] == OPERATOR) == operators]
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in own.itertuples():
        shape = "" if pd.isna(row.shape) else f" [{row.shape}]"
        name = row.kernel if operators else f"{row.library}: {row.kernel}{shape}"
        calls = found.setdefault((row.launch, int(row.rep)), {})
        calls[name] = calls.get(name, 0.0) + row.calls_per_step
    return found


def compare_sets(kernels: pd.DataFrame, *, operators: bool) -> list[SetComparison]:
    """Host against host over all pairs of launches, then host against each environment over all pairs.

    `kernels`: rows of one workload's campaign of causes. `operators`: whether the framework's operators are
    compared, or the libraries' kernels.
    """
    launches = calls_by_launch(kernels, operators)
    hosts = [calls for (env, _), calls in sorted(launches.items()) if env in HOSTS]
    if not hosts:
        return []
    found = [_compare(HOST, hosts, hosts, list(combinations(hosts, 2)))]
    for env in sorted({env for env, _ in launches} - set(HOSTS)):
        own = [calls for (name, _), calls in sorted(launches.items()) if name == env]
        found.append(_compare(env, hosts, own, list(product(hosts, own))))
    return found


def _compare(
    env: str,
    hosts: list[dict[str, Any]],
    own: list[dict[str, Any]],
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> SetComparison:
    on_host, here = set().union(*hosts), set().union(*own)
    always_host, always_here = set(hosts[0]).intersection(*hosts), set(own[0]).intersection(*own)
    counts = []
    for name in sorted(always_host & always_here):
        before, now = {calls[name] for calls in hosts}, {calls[name] for calls in own}
        if len(before) == len(now) == 1 and before != now:
            counts.append((name, before.pop(), now.pop()))
    return SetComparison(
        env=env,
        pairs=len(pairs),
        equal=sum(left == right for left, right in pairs),
        kernels=len(on_host),
        only_here=tuple(sorted(always_here - on_host)),
        only_host=tuple(sorted(always_host - here)),
        counts=tuple(counts),
    )


def operator_times(kernels: pd.DataFrame, alpha: float, fewest: int) -> list[OperatorTime]:
    """Every operator with a share of the step worth comparing, and all together, in each environment.

    `kernels`: rows of one workload's campaign of causes. `alpha`: of all intervals together. `fewest`: units before
    one may differ.
    """
    own = kernels[(kernels["library"] == OPERATOR) & kernels["s_per_step"].notna()]
    names = [*HOSTS, *environments_of(own)]
    table = own.pivot_table(index=["kernel", "rep"], columns="launch", values="s_per_step", aggfunc="sum")
    if len(table) == 0 or not set(HOSTS) <= set(table.columns):
        return []
    together = table.groupby(level="rep").sum(min_count=1)
    means = table[list(HOSTS)].mean(axis=1).groupby(level="kernel").mean()
    shares = (means / means.sum()).sort_values(ascending=False)
    chosen = [name for name in shares.index if shares[name] >= SMALLEST_SHARE]
    found = _ratios(ALL_OPERATORS, together.reindex(columns=names), 1.0)
    single = [one for name in chosen for one in _ratios(name, table.loc[name].reindex(columns=names), shares[name])]
    found += [replace(one, estimate=_moderated(one, single)) for one in single]
    level = selected_level([one.estimate.p_value for one in found], alpha)
    return [_judged(one, level, fewest) for one in found]


@dataclass(frozen=True, kw_only=True)
class _Ratios:
    """Log-ratios of one operator in one environment to the mean of the two hosts, and those of host to host."""

    operator: str
    env: str
    share: float
    host_s: float
    estimate: Estimate
    control: np.ndarray


def _ratios(operator: str, values: pd.DataFrame, share: float) -> list[_Ratios]:
    """Of one operator: shape of `values` [units, hosts and environments].

    An environment that lacks a unit of the hosts' is left out: it must not take the unit away from the others.
    """
    if not set(HOSTS) <= set(values.columns):
        return []
    values = values.dropna(subset=list(HOSTS))
    present = [name for name in values.columns if len(values) and values[name].notna().all()]
    complete = values[present]
    logs = np.log(complete[complete.gt(0).all(axis=1)])
    others = [name for name in present if name not in HOSTS]
    if not len(logs) or not set(HOSTS) <= set(present):
        return []
    middle = logs[list(HOSTS)].mean(axis=1)
    return [
        _Ratios(
            operator=operator,
            env=env,
            share=float(share),
            host_s=float(np.exp(middle.mean())),
            estimate=student((logs[env] - middle).to_numpy()),
            control=(logs[CONTROL] - logs[HOST]).to_numpy(),
        )
        for env in others
    ]


def _moderated(one: _Ratios, found: Sequence[_Ratios]) -> Estimate:
    """An estimate with its spread drawn towards those of the same environment's other operators."""
    if not one.estimate.spreads:
        return one.estimate
    others: list[Spread] = [
        spread
        for other in found
        if other.env == one.env and other.operator != one.operator
        for spread in other.estimate.spreads
    ]
    return replace(one.estimate, spreads=(moderated(one.estimate.spreads[0], others),))


def _judged(one: _Ratios, alpha: float, fewest: int) -> OperatorTime:
    interval = without_wild_ends(one.estimate.interval(alpha))
    mean = one.estimate.mean or 0.0
    ends = interval.mapped(math.exp)
    beyond = abs(mean) > float(np.abs(one.control).max())
    return OperatorTime(
        operator=one.operator,
        env=one.env,
        share=one.share,
        host_s=one.host_s,
        ratio=math.exp(mean),
        low=ends.low,
        high=ends.high,
        control_low=math.exp(one.control.min()),
        control_high=math.exp(one.control.max()),
        units=interval.n,
        differs=interval.n >= fewest and interval.excludes_zero and beyond,
    )


def extra(units: pd.DataFrame, env: str, alpha: float) -> Interval:
    """Interval of what a metric is more per unit: of an environment against the mean of the two hosts.

    For the control: against the first host. `units`: values of the metric by unit and environment.
    """
    values = units.reindex(columns=[*HOSTS, env] if env != CONTROL else list(HOSTS)).dropna()
    base = values[HOST] if env == CONTROL else values[list(HOSTS)].mean(axis=1)
    return t_interval((values[env] - base).to_numpy(), alpha)


def phase_costs(rounds: pd.DataFrame, alpha: float, fewest: int) -> list[PhaseCost]:
    """Extra seconds of the whole run and of each phase, in every environment and in the control.

    `rounds`: metric rows of one workload's headline campaign of whole runs. `alpha`: of all environments together,
    for each phase. `fewest`: units before anything is significant.
    """
    others = environments_of(rounds)
    level = alpha / max(1, len(others))
    units = {phase: pivot(rounds, phase) for phase in ("real_s", *PHASE_METRICS)}
    found = []
    for env in (*others, CONTROL):
        whole = extra(units["real_s"], env, level)
        for phase in units:
            own = extra(units[phase], env, level)
            share = None
            if whole.n >= fewest and whole.excludes_zero and whole.mean and own.mean is not None:
                share = own.mean / whole.mean
            found.append(PhaseCost(env=env, phase=phase, extra=own, share=share, fewest=fewest))
    return [cost for cost in found if cost.extra.n]


def file_accounts(rounds: pd.DataFrame, causes: pd.DataFrame, alpha: float) -> list[FileAccount]:
    """What files account for of the extra time of imports, in each environment that both campaigns hold.

    The two extras come from different campaigns. Each has half of the environment's alpha, so that the quotients of
    their ends bound the ratio with the confidence of the whole.

    `rounds`: metric rows of one workload's headline campaign of whole runs. `causes`: those of its campaign of
    causes. `alpha`: of all environments together.
    """
    others = sorted(set(environments_of(rounds)) & set(environments_of(causes)))
    level = alpha / max(1, len(others))
    found = []
    for env in others:
        imports = extra(pivot(rounds, "imports_s"), env, level / 2)
        files = extra(pivot(causes, "files_first_s"), env, level / 2)
        after = extra(pivot(causes, "imports_after_read_s"), env, level)
        found.append(_account(env, imports, files, after))
    return found


def _account(env: str, imports: Interval, files: Interval, after: Interval) -> FileAccount:
    ratio, low, high, reason = None, None, None, None
    whole, part = imports.mean_low_high, files.mean_low_high
    if whole is None or part is None:
        reason = "an interval needs two complete units of each campaign"
    elif whole[1] <= 0:
        reason = "at the level that two intervals together need, imports may take no longer: no share is given"
    else:
        ends = [top / bottom for top in part[1:] for bottom in whole[1:]]
        ratio, low, high = part[0] / whole[0], min(ends), max(ends)
    return FileAccount(
        env=env, imports=imports, files=files, after=after, ratio=ratio, low=low, high=high, reason=reason
    )


def differing_phases(verdicts: pd.DataFrame, env: str) -> list[str]:
    """Phases whose verdict says that they differ in a workload's headline of whole runs, in order of time."""
    own = verdicts[(verdicts["launch"] == env) & (verdicts["reference"] == HOST)]
    different = set(own.loc[own["verdict"].isin(DIFFERENT), "metric"])
    return [phase for phase in PHASE_METRICS if phase in different]


def differing_operators(times: Sequence[OperatorTime], env: str) -> list[OperatorTime]:
    """Single operators that differ in an environment, the largest share first."""
    own = [time for time in times if time.env == env and time.differs and time.operator != ALL_OPERATORS]
    return sorted(own, key=lambda time: -time.share)
