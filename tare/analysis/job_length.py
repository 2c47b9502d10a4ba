"""What an environment costs a job by its length: from a headline of whole runs and one of training steps.

The seconds that happen once come from whole runs, the share of a step from the training steps that the same rounds
measured; what follows for a job of a length is modelled (tare.stats.costs). The loader's worker, which starts
again with every epoch, is in neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from tare.analysis.bounds import stopped_runs
from tare.analysis.launch_rows import PHASES
from tare.analysis.metrics import identify, pivot
from tare.analysis.verdicts import Measured, contrasts, estimates_of
from tare.model.journals.units import compared, family_alpha
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.layout import is_headline, read_name
from tare.stats.costs import Cost, CostBox
from tare.stats.intervals import UNKNOWN, Interval, without_wild_ends

ONCE = (*(name for name in PHASES if name != "epoch_rest_s"), "exit_s")
STEP = "step_s"
LIMIT = 0.01
TEN_SECONDS, HOUR, DAY = 10.0, 3600.0, 86400.0
NAMED = (TEN_SECONDS, HOUR, DAY)
# Seconds of steps, for the curve: eight a decade from a second to eleven days, and those that have a name.
LENGTHS = tuple(sorted({*(round(10 ** (n / 8), 6) for n in range(49)), *NAMED}))
PARTS = 2  # that share alpha
MODEL = "fixed_s, step_share, host_fixed_s"


def cost_rows(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Rows of the table `job_length`, of every headline of whole runs of Tare's own networks.

    A headline of rounds goes with its steps of the same workload and environments.
    """
    steps = {_question(one): one for one in found if is_headline(one.campaign.name, "steps")}
    return [
        row
        for one in found
        if is_headline(one.campaign.name, "rounds") and not one.campaign.plan.is_command
        for row in _Pair(one, steps.get(_question(one))).rows()
    ]


def _question(one: Measured) -> tuple[str, tuple[str, ...]]:
    """Workload and environments, which headlines of rounds and of their steps share."""
    return one.campaign.workload, read_name(one.campaign.name).environments


def once(metrics: pd.DataFrame) -> pd.DataFrame:
    """Seconds that happen once in a whole run, by unit and environment: all phases but the rest of the epoch."""
    parts = [pivot(metrics, name) for name in ONCE]
    return sum(parts[1:], start=parts[0])


def cost_of(host_s: float, fixed_s: Sequence[float], step: Sequence[float]) -> tuple[Cost, CostBox]:
    """A cost and the box around it.

    `host_s`: what the host takes once, in seconds. `fixed_s`: seconds more that happen once: value, lower and upper
    end. `step`: share of a step more: value, lower and upper end.
    """
    middle, low, high = (
        Cost(host_s=host_s, fixed_s=seconds, step=share) for seconds, share in zip(fixed_s, step, strict=True)
    )
    return middle, CostBox(low=low, high=high)


class _Pair:
    """A headline of whole runs, with that of training steps where there is one."""

    def __init__(self, runs: Measured, steps: Measured | None) -> None:
        self.runs, self.steps = runs, steps
        self.environments = compared(runs.campaign.plan)
        seconds = once(runs.metrics).reindex(columns=list(runs.campaign.plan.launch_names))
        hosts = seconds[[HOST, CONTROL]].dropna().mean(axis=1)
        self.stopped = stopped_runs(runs.campaign)
        known = len(hosts) > 0 and self._bounded(HOST) is None
        self.host = replace(UNKNOWN, n=len(hosts), mean=float(hosts.mean()) if known else None)
        self.fixed = self._intervals(
            runs, {env: _differences(seconds, env) for env in (CONTROL, *self.environments)}
        )
        for env in filter(self._bounded, self.environments):
            self.fixed[env] = replace(UNKNOWN, n=self.fixed[env].n)
        self.step = dict.fromkeys(self.environments, UNKNOWN)
        if steps is not None:
            values = pivot(steps.metrics, STEP).reindex(columns=list(steps.campaign.plan.launch_names))
            pairs = {env: contrasts(values, env, HOST) for env in (CONTROL, *self.environments)}
            self.step = {env: without_wild_ends(one) for env, one in self._intervals(steps, pairs).items()}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of the host what happens once; of each environment both parts, then what follows from them."""
        none = self._bounded(HOST) or "no round with both hosts"
        yield self._row(self.runs, HOST, "host_fixed_s", self.host, unit="s", reason=none)
        for env in self.environments:
            fixed, step = self.fixed[env], self.step[env]
            none = self._bounded(env) or "no round with it and both hosts"
            yield self._row(self.runs, env, "fixed_s", fixed, _alpha(self.runs), unit="s", reason=none)
            if self.steps is not None:
                few = "no round that measured steps of it and of both hosts"
                share = step.mapped(math.expm1)
                yield self._row(self.steps, env, "step_share", share, _alpha(self.steps), reason=few)
            yield from self._modelled(env, fixed, step)

    def _modelled(self, env: str, fixed: Interval, step: Interval) -> Iterator[dict[str, Any]]:
        n, reason = min(fixed.n, step.n), self._bounded(env) or self._open(fixed, step)
        host_s, fixed_s, logs = self.host.mean, fixed.mean_low_high, step.mean_low_high
        if reason is not None or self.steps is None or host_s is None or fixed_s is None or logs is None:
            nothing = replace(UNKNOWN, n=n)
            for length_s in NAMED:
                yield self._row(self.runs, env, "cost", nothing, length_s=length_s, source=MODEL, reason=reason)
            yield self._row(self.runs, env, "length_below", nothing, unit="s", source=MODEL, reason=reason)
            return
        middle, box = cost_of(host_s, fixed_s, [math.expm1(log) for log in logs])
        alpha = _alpha(self.runs) + _alpha(self.steps)
        for length_s in LENGTHS:
            low, high = box.at(length_s)
            cost = Interval(n=n, mean=middle.at(length_s), low=low, high=high)
            yield self._row(self.runs, env, "cost", cost, alpha, length_s=length_s, source=MODEL)
        low, high = box.below(LIMIT)
        length = Interval(n=n, mean=middle.below(LIMIT), low=low, high=high)
        yield self._row(self.runs, env, "length_below", length, alpha, unit="s", source=MODEL)

    def _bounded(self, env: str) -> str | None:
        """Why what happens once can't be determined for an environment, or for the hosts; None where it can."""
        units = frozenset[int]().union(*(self.stopped.get(name, ()) for name in {env, HOST, CONTROL}))
        if not units:
            return None
        rounds = "1 round" if len(units) == 1 else f"{len(units)} rounds"
        return f"in {rounds} it or a host was stopped at the time limit: what happens once took at least that"

    def _open(self, fixed: Interval, step: Interval) -> str | None:
        """Why nothing is said of jobs, or None: the units that a verdict of either campaign needs."""
        if self.steps is None:
            return "this study measured no training steps in its whole runs; rounds.steps in its file adds them"
        few = [
            f"{part.n} complete {what} of {fewest}"
            for part, what, one in ((fixed, "rounds", self.runs), (step, "rounds with steps", self.steps))
            if part.n < (fewest := one.campaign.plan.sampling.verdict_units)
        ]
        if few:
            return f"{', '.join(few)} that the study asks for before a verdict"
        if fixed.mean_low_high is None or step.mean_low_high is None:
            return f"{fixed.n} complete rounds and {step.n} with steps give no interval that says anything"
        return None

    def _intervals(self, one: Measured, pairs: Mapping[str, pd.DataFrame]) -> dict[str, Interval]:
        """By environment, as verdicts have it."""
        pilot = sorted(one.metrics["rep"].dropna().unique())[: one.campaign.pilot]
        found = estimates_of(one.campaign, {(env, HOST): pair for env, pair in pairs.items()}, pilot)
        return {
            env: replace(estimate, lasting=one.lasting(env, HOST)).interval(_alpha(one))
            for (env, _), estimate in found.items()
        }

    def _row(
        self,
        one: Measured,
        env: str,
        item: str,
        found: Interval,
        alpha: float | None = None,
        *,
        unit: str = "1",
        length_s: float | None = None,
        source: str | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """A row of the table: what has no source is measured by its own campaign, what has no value unavailable."""
        plan, there = one.campaign.plan, found.mean is not None
        kind, source = ("modelled", source) if source else ("measured", one.campaign.kind)
        return {
            **identify(plan, one.campaign.name, env, plan.spec.batch),
            "item": item,
            "length_s": length_s,
            **found.columns("value", "low", "high"),
            **{"unit": unit, "n_units": found.n, "alpha": alpha, "source": source},
            **{"kind": kind if there else "unavailable", "reason": None if there else reason},
        }


def _alpha(one: Measured) -> float:
    """Of one part's interval: half of what its environments' intervals have together, divided among them."""
    return one.share * family_alpha(one.campaign.plan) / PARTS


def _differences(seconds: pd.DataFrame, env: str) -> pd.DataFrame:
    """Per unit, seconds of `env` less those of either host; of the control less those of the host, twice."""
    pairs = [seconds[env] - seconds[name] for name in ((HOST, HOST) if env == CONTROL else (HOST, CONTROL))]
    return pd.concat(pairs, axis=1, keys=[0, 1]).dropna()
