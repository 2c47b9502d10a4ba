"""What page faults cost a training step: launches that measured steps at both levels of glibc's allocator.

With the default allocator a step gives memory back, and the next one faults it in again; with the steady one the
process keeps it. How many pages that are is chance: it differs from process to process, and most of the noise of
steps with the default allocator is theirs. From rounds that hold both levels, with s the steady step of a launch, d
its default one, f its page faults a step, default less steady, and means over the two hosts of a round in <>:

    cost of a fault     c: slope of d on f, both less the means of their round and of their launch      seconds
    level by fault      mean(d - s) / mean(f)                                                            seconds
    modelled step       s + <d - s> + c (f - <f>)                                                        seconds
    at equal faults     d - c (f - <f>)                                                                  seconds

The cost is one for all launches, and in a round goes with the hosts' steady step there, the machine's speed. It
comes from launches that had more faults than others at the same level, so that nothing else that the level changes
is in it; the quotient holds all of that. It holds what comes with a fault: system calls that give memory back and
ask for it, pages that are zeroed, caches that they displace. The modelled step of an environment supposes that
faults, and the level, cost there what they cost elsewhere: what was measured by what is modelled tests that. It
can't tell why an environment has more faults or fewer (the table `counts` says whether).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tare.analysis.launch_rows import REPLICATES
from tare.analysis.metrics import pivot
from tare.analysis.verdicts import Measured, contrasts, estimates_of
from tare.model.journals.units import compared, family_alpha
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.tables import FAULT_ITEMS_OF
from tare.stats.intervals import UNKNOWN, Estimate, Interval, t_interval, tellable
from tare.stats.slopes import common_slope, quotient_interval

STEP, FAULTS = "step_s", "step_page_faults"
STEADY, DEFAULT = "steady", "default"
FEWEST_FAULTS = 1.0  # more a step: with fewer there is nothing to divide by
ITSELF = "measured_by_modelled"  # a launch by what is modelled of it: what copies of the files add is in both
MODELLED_RATIOS = ("modelled_ratio", ITSELF, "equal_faults_ratio")
MODELLED = ("fault_share", *MODELLED_RATIOS)
SOURCES = {"measured": REPLICATES, "modelled": f"{REPLICATES}, fault_cost_s"}


def fault_rows(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Rows of the table `fault_costs`, of a study: the views of one campaign at the two levels go together."""
    levels: dict[Path, dict[str, Measured]] = {}
    for one in found:
        campaign = one.campaign
        if campaign.level is not None and (campaign.arm is None or campaign.arm.factor == "allocator"):
            levels.setdefault(campaign.path, {})[campaign.level] = one
    return [row for own in levels.values() for row in _rows(own)]


def _rows(levels: Mapping[str, Measured]) -> Iterator[dict[str, Any]]:
    absent = [level for level in (DEFAULT, STEADY) if level not in levels]
    if not absent:
        yield from _Pair(levels[STEADY], levels[DEFAULT]).rows()
        return
    (one,) = levels.values()
    reason = f"this study measured no training steps with the {absent[0]} allocator (rounds.steps.levels)"
    for env in _launches(one):
        for item in _items(env):
            yield _row(one, env, item, reason, alpha=None)


def _launches(one: Measured) -> list[str]:
    return [HOST, CONTROL, *compared(one.campaign.plan)]


def _items(env: str) -> Sequence[str]:
    """The host's row has what is one for all launches, the others' their ratios; the control's are to the host."""
    return FAULT_ITEMS_OF["host" if env == HOST else "others"]


class _Pair:
    """The campaigns of one workload at both levels.

    Attributes:
        steady, default: seconds of a step by round and launch; rounds that both hold, and launches of these
            with all values.
        more: page faults of a step, default less steady, alike.
        alpha: of one interval.
        speed: by round, steady steps of the hosts by their mean over rounds.
        cost: seconds of a page fault, or why nobody can tell.
    """

    def __init__(self, steady: Measured, default: Measured) -> None:
        self.own = default
        self.launches = _launches(default)
        plan = default.campaign.plan
        self.alpha = min(steady.share, default.share) * family_alpha(plan)
        self.fewest = plan.sampling.verdict_units
        steps = [self._by_round(one, STEP) for one in (steady, default)]
        counts = [self._by_round(one, FAULTS) for one in (steady, default)]
        shared = steps[0].index.intersection(steps[1].index)
        self.steady, self.default = (values.loc[shared] for values in steps)
        self.more = counts[1].reindex(shared) - counts[0].reindex(shared)
        self.uncounted = len(shared) > 0 and bool(self.more.isna().all(axis=None))
        whole = self.steady.notna() & self.default.notna() & self.more.notna()
        self.steady, self.default, self.more = (
            values.where(whole) for values in (self.steady, self.default, self.more)
        )
        hosts = self.steady[[HOST, CONTROL]].mean(axis=1, skipna=False)
        self.speed = hosts / hosts.mean()
        self.cost = self._cost()
        self._estimates: dict[tuple[str, float], dict[str, Estimate]] = {}

    def _by_round(self, one: Measured, metric: str) -> pd.DataFrame:
        """Values of a metric by round and launch."""
        return pivot(one.metrics, metric).reindex(columns=self.launches)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of each launch its own items."""
        for env in self.launches:
            n = len(self._complete(env))
            reason = self._open(n)
            found = dict.fromkeys(_items(env), reason) if reason else self._found(env)
            for item in _items(env):
                yield _row(self.own, env, item, found[item], alpha=self.alpha, n=n)

    def _open(self, n: int) -> str | None:
        """Why nothing is said of a launch that has n complete rounds, or None."""
        if self.steady.empty:
            return "no round holds both levels of the allocator"
        if self.uncounted:
            return "page faults were not counted"
        if n < self.fewest:
            return f"{n} complete rounds of {self.fewest} that the study asks for before a verdict"
        return None

    def _complete(self, *names: str) -> pd.Index:
        """Rounds that have some launches and both hosts."""
        return self.steady[[*dict.fromkeys([HOST, CONTROL, *names])]].dropna().index

    def _of(self, values: pd.DataFrame, env: str) -> pd.Series:
        """Values of a launch by complete round; of the host, the mean of the two."""
        own = values.loc[self._complete(env)]
        return own[[HOST, CONTROL]].mean(axis=1) if env == HOST else own[env]

    def _found(self, env: str) -> dict[str, Interval | str]:
        """By item, its interval or the reason why there is none."""
        steady, default, more = (self._of(one, env) for one in (self.steady, self.default, self.more))
        found: dict[str, Interval | str] = {
            "more_faults": t_interval(more.to_numpy(), self.alpha),
            "level_cost_s": self._few(env)
            or quotient_interval((default - steady).to_numpy(), more.to_numpy(), self.alpha),
            "level_share": t_interval(np.log(default / steady).to_numpy(), self.alpha).mapped(_share),
            "fault_share": self._modelled(
                lambda cost_s: t_interval((cost_s * self.speed * more / default).dropna().to_numpy(), self.alpha)
            ),
        }
        if env == HOST:
            return found | {"fault_cost_s": self.cost}
        measured = tellable(self._ratio(env, "measured_ratio", 0.0))
        modelled = {item: self._modelled(partial(self._ratio, env, item), np.exp) for item in MODELLED_RATIOS}
        return found | {"measured_ratio": measured.mapped(np.exp)} | modelled

    def _ratio(self, env: str, item: str, cost_s: float) -> Interval:
        """The log-ratio of a launch to the hosts where a fault costs so much, estimated as verdicts are."""
        if (item, cost_s) not in self._estimates:
            values = self._steps(item, cost_s)
            pairs = {(one, HOST): contrasts(values, one, HOST) for one in self.launches if one != HOST}
            estimates = estimates_of(self.own.campaign, pairs, (), design="fixed")
            self._estimates[item, cost_s] = {
                one: replace(estimate, lasting=None if item == ITSELF else self.own.lasting(one, HOST))
                for (one, _), estimate in estimates.items()
            }
        return self._estimates[item, cost_s][env].interval(self.alpha)

    def _steps(self, item: str, cost_s: float) -> pd.DataFrame:
        """What an item compares, by round and launch."""
        if item == "measured_ratio":
            return self.default
        beyond = self.more.sub(self.more[[HOST, CONTROL]].mean(axis=1, skipna=False), axis=0)
        charged = beyond.mul(cost_s * self.speed, axis=0)
        if item == "equal_faults_ratio":
            return self.default - charged
        hosts = (self.default - self.steady)[[HOST, CONTROL]].mean(axis=1, skipna=False)
        modelled = (self.steady + charged).add(hosts, axis=0)
        return modelled if item == "modelled_ratio" else self.default / modelled

    def _few(self, env: str) -> str | None:
        """Why page faults can't be divided by: there are no more of them than with the steady allocator."""
        more = self._of(self.more, env)
        found = t_interval(more.to_numpy(), self.alpha).told
        if found is not None and found[0] >= FEWEST_FAULTS and found[1] > 0:
            return None
        told = f"{more.mean():.3g} page faults a step more than with the {STEADY} allocator"
        return f"{told}: nothing to divide by"

    def _cost(self) -> Interval | str:
        """Seconds of a page fault, from rounds with all launches; those with too few rounds are left out."""
        if reason := self._few(HOST):
            return reason
        names = [name for name in self.launches if len(self._complete(name)) >= self.fewest]
        rounds = self._complete(*names)
        if len(rounds) < self.fewest:
            return (
                f"{len(rounds)} rounds with all launches of {self.fewest} that the study asks for before a verdict"
            )
        steps = self.default.div(self.speed, axis=0)
        found = common_slope(
            self.more.loc[rounds, names].to_numpy(), steps.loc[rounds, names].to_numpy(), self.alpha
        )
        return "page faults do not differ between launches" if found.told is None else found

    def _modelled(self, at: Callable[[float], Interval], shown: Callable[[float], float] = float) -> Interval | str:
        """What is modelled: its interval at the cost of a fault, wider by how far the ends of that cost move it.

        The two errors are uncorrelated, since the slope says nothing of the means of launches: their distances are
        combined as squares (Zou and Donner 2008, Statistics in Medicine 27). No fault costs less than nothing.
        """
        if isinstance(self.cost, str):
            return f"what a page fault costs can't be told: {self.cost}"
        costs = [max(0.0, cost_s) for cost_s in self.cost.told or ()]
        if not any(costs):
            return "steps with more page faults are no longer"
        parts = [tellable(at(cost_s)) for cost_s in costs]
        told = [part.told for part in parts if part.told is not None]
        if len(told) < len(parts):
            return f"{parts[0].n} complete rounds give no interval that says anything"
        middle, low, high = told[0]
        means = [mean for mean, _, _ in told]
        low = middle - math.hypot(middle - low, middle - min(means))
        high = middle + math.hypot(high - middle, max(means) - middle)
        return Interval(n=parts[0].n, mean=middle, low=low, high=high).mapped(shown)


def _share(log: float) -> float:
    """The share of the longer step by which it is longer, from the log of its ratio to the shorter one."""
    return -float(np.expm1(-log))


def _row(
    one: Measured, env: str, item: str, found: Interval | str, *, alpha: float | None, n: int = 0
) -> dict[str, Any]:
    """A row of the table; of a reason, an unavailable one."""
    kind = "modelled" if item in MODELLED else "measured"
    told = None if isinstance(found, str) or found.told is None else replace(found, n=n)
    return one.row(
        env,
        item,
        told or replace(UNKNOWN, n=n),
        unit="s" if item.endswith("_s") else "1",
        alpha=None if told is None else alpha,
        kind=kind,
        source=SOURCES[kind],
        reason=found if isinstance(found, str) else f"{n} complete rounds give no interval that says anything",
    )
