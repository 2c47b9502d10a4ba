"""What a switch costs (to stop a launch and to start it again), by instrumental variables.

A launch that is stopped and started again has lost cache contents and has waited to be stopped and woken. The cost
is in its own time. A regression of step times on the switches in them would be biased: a step that is slow for any
reason takes more slices, so that it holds more switches. The quantum of a cycle is drawn at random before anything
runs: what was assigned over a step is an instrument for the switches in it (Wald 1940; Imbens and Angrist 1994).

    y = own seconds of a step / median step of its launch,  n = switches in it / the same median
    z = assigned switch rate over the step

    level        c0 = sum z y / sum z n of all launches, less the means of their segments and step indexes
    differences  y = segment of launch + step index of launch + row + c_e n, the instruments the z of each launch;
                 the c_e have c0 as their mean

Launches make the same step at nearly the same moment: the row takes the noise that they share out of differences,
while the level keeps it. Errors come from the jackknife over rounds (Miller 1974), of both together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import Estimate, Interval, Spread, t_quantile

FEWEST_ROUNDS = 3
SEGMENT = 8  # steps of a launch that share a mean: slow noise goes with it, the quanta of cycles do not
STRONG = 3.2  # of the first stage: F of 10 or more (Staiger and Stock 1997)
SWEEPS, SETTLED = 60, 1e-9


@dataclass(frozen=True, kw_only=True)
class SwitchCost:
    """Seconds of own time that one switch takes, or a difference of two such; None with the reason."""

    seconds: float | None
    error: float | None
    degrees: int
    reason: str | None = None

    def interval(self, alpha: float) -> Interval:
        """Student's interval at level 1 - alpha, seconds."""
        if self.seconds is None or self.error is None:
            return Interval(n=self.degrees + 1, mean=self.seconds, low=None, high=None)
        half = t_quantile(alpha, self.degrees) * self.error
        return Interval(n=self.degrees + 1, mean=self.seconds, low=self.seconds - half, high=self.seconds + half)


@dataclass(frozen=True, kw_only=True)
class SwitchCosts:
    """Costs of a switch: by launch, of all together, of both hosts, and of each launch less that of the hosts."""

    by_launch: dict[str, SwitchCost]
    common: SwitchCost
    hosts: SwitchCost
    to_host: dict[str, SwitchCost]


def switch_cost(
    own_s: np.ndarray, switches: np.ndarray, assigned: np.ndarray, names: Sequence[str], *, segment: int = SEGMENT
) -> SwitchCosts:
    """Cost of a switch from the steps of all rounds.

    `own_s`: shape [rounds, steps, launches], own seconds of each step; NaN where it is missing. `switches`: the
    same shape, how often the launch was stopped within the step. `assigned`: the same shape, what was assigned over
    the step: mean of 1 / quantum, or the expected switches. It must follow from the quanta alone, not from how long
    the step took. `names`: of the launches, the two hosts among them. `segment`: consecutive steps whose mean is
    removed. Raises ValueError for shapes that do not match.
    """
    own_s, switches, assigned = (np.asarray(values, dtype=float) for values in (own_s, switches, assigned))
    if own_s.ndim != 3 or not own_s.shape == switches.shape == assigned.shape or own_s.shape[2] != len(names):
        raise ValueError(
            f"steps {own_s.shape}, switches {switches.shape}, assigned {assigned.shape}: shapes differ"
        )
    seen = np.isfinite(own_s) & np.isfinite(switches) & np.isfinite(assigned) & (own_s > 0)
    # Median step of each launch of each round, shape [rounds, 1, launches]; 1 where it has none.
    typical = np.where(seen.any(axis=1, keepdims=True), np.where(seen, own_s, np.nan), 1.0)
    typical = np.nanmedian(typical, axis=1, keepdims=True)
    y, n = (np.where(seen, values / typical, 0.0) for values in (own_s, switches))
    found = _jackknife(_sums(y, n, np.where(seen, assigned, 0.0), seen, segment))
    hosts = [names.index(name) for name in (HOST, CONTROL) if name in names]
    everybody = range(len(names))
    return SwitchCosts(
        by_launch={name: found.cost([number]) for number, name in enumerate(names)},
        common=found.cost([number for number in everybody if number in found.known]),
        hosts=found.cost(hosts),
        to_host={name: found.cost([k], hosts) for k, name in enumerate(names) if k not in hosts and hosts},
    )


def at_long_quantum(
    estimate: Estimate, costs: SwitchCosts, name: str, rates: tuple[float, float], *, alike: bool = False
) -> Estimate:
    """A mean log-ratio at the limit of long quanta; the cost's error, alike in all rounds, is in its interval.

    `estimate`: of the launch to the mean of two hosts. `rates`: switches by own second, of the launch and of the
    hosts (mean over rounds). `alike`: whether a switch costs the same in all launches, so that the common cost is
    taken. This must be decided beforehand, not from the measured difference. Returns the estimate less -log(1 - r_e
    c_e) + log(1 - r_h c_h), where c_e is the hosts' cost and the measured difference to it; as it was where a cost
    is not known, or where switches would be all that there is.
    """
    more, base = costs.to_host.get(name), costs.common if alike else costs.hosts
    if alike:
        more = replace(base, seconds=0.0, error=0.0)
    if more is None or more.seconds is None or base.seconds is None or estimate.mean is None:
        return estimate
    left, left_host = 1 - rates[0] * (base.seconds + more.seconds), 1 - rates[1] * base.seconds
    if left <= 0 or left_host <= 0:
        return estimate
    slope, slope_host = rates[0] / left, rates[1] / left_host
    error = math.hypot(slope * (more.error or 0.0), (slope - slope_host) * (base.error or 0.0))
    mean = estimate.mean + math.log(left / left_host)
    return replace(estimate, mean=mean, lasting=Spread(unit=error, degrees=more.degrees))


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Per round: `level_y`, `level_n`, the sums of z y and of z n, shape [rounds, launches], without rows' effects;
    `y` of the same shape and `n` of shape [rounds, launches, launches] with them, the first axis that of z."""

    level_y: np.ndarray
    level_n: np.ndarray
    y: np.ndarray
    n: np.ndarray

    def without(self, number: int) -> _Sums:
        parts = (self.level_y, self.level_n, self.y, self.n)
        level_y, level_n, y, n = (np.delete(part, number, axis=0) for part in parts)
        return _Sums(level_y=level_y, level_n=level_n, y=y, n=n)

    def costs(self, known: Sequence[int]) -> np.ndarray:
        """Seconds of a switch of the `known` launches, which have both."""
        weights = self.level_n.sum(axis=0)[known]
        level = self.level_y.sum(axis=0)[known].sum() / weights.sum()
        upper = self.y.sum(axis=0)[known]
        lower = self.n.sum(axis=0)[np.ix_(known, known)]
        # What a launch has beyond the level: as many free values as launches less one, their weighted mean zero.
        free = np.linalg.svd(weights[None, :] / np.abs(weights).sum())[2][1:].T
        beyond = np.linalg.lstsq(free.T @ lower @ free, free.T @ (upper - lower.sum(axis=1) * level), rcond=None)[0]
        found: np.ndarray = level + free @ beyond
        return found


def _sums(y: np.ndarray, n: np.ndarray, z: np.ndarray, seen: np.ndarray, segment: int) -> _Sums:
    launches = y.shape[2]
    alone = [_within(values[..., None], seen, segment, rows=False)[..., 0] for values in (y, n)]
    each = np.concatenate([y[..., None], n[..., None] * np.eye(launches)], axis=3)
    together = _within(each, seen & (seen.sum(axis=2, keepdims=True) > 1), segment, rows=True)
    products = np.einsum("rke,rkej->rej", z, together)
    return _Sums(
        level_y=(z * alone[0]).sum(axis=1),
        level_n=(z * alone[1]).sum(axis=1),
        y=products[:, :, 0],
        n=products[:, :, 1:],
    )


def _within(values: np.ndarray, mask: np.ndarray, segment: int, *, rows: bool) -> np.ndarray:
    """Values less the means of their launch's segment and step index, and of their row if wanted; 0 where masked.

    `values`: shape [rounds, steps, launches, any number of variables]. `mask`: shape [rounds, steps, launches].
    `rows`: whether rows have their own means.
    """
    rounds, steps, launches, variables = values.shape
    padding = -steps % segment
    weights = np.pad(mask.astype(float), ((0, 0), (0, padding), (0, 0)))[..., None]
    left = np.pad(values, ((0, 0), (0, padding), (0, 0), (0, 0))) * weights
    split = (rounds, (steps + padding) // segment, segment, launches)
    for _ in range(SWEEPS):
        before = left
        for shape, axis in (((*split, variables), 2), (left.shape, 0), *([(left.shape, 2)] * rows)):
            part, weight = left.reshape(shape), weights.reshape(*shape[:-1], 1)
            count = np.maximum(weight.sum(axis=axis, keepdims=True), 1)
            left = (weight * (part - part.sum(axis=axis, keepdims=True) / count)).reshape(before.shape)
        if float(np.abs(left - before).max()) < SETTLED:
            break
    found: np.ndarray = left[:, :steps]
    return found


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Costs of `known` launches, and without each round, or why there are none; `held`: [rounds, launches]."""

    known: list[int]
    held: np.ndarray
    costs: np.ndarray
    without: np.ndarray
    reason: str | None = None

    def cost(self, above: Sequence[int], below: Sequence[int] = ()) -> SwitchCost:
        """Mean of the launches `above`, less the mean of those `below`."""
        wanted = {*above, *below}
        if not wanted or not wanted <= set(self.known):
            reason = self.reason or "no steps of this launch in which the assigned quanta move the switches"
            return SwitchCost(seconds=None, error=None, degrees=0, reason=reason)
        weights = np.zeros(len(self.known))
        for side, sign in ((above, 1.0), (below, -1.0)):
            for number in side:
                weights[self.known.index(number)] += sign / len(side)
        left, rounds = self.without @ weights, int(self.held[:, sorted(wanted)].all(axis=1).sum())
        if rounds < FEWEST_ROUNDS:
            reason = f"{rounds} rounds hold all of them; {FEWEST_ROUNDS} are needed"
            return SwitchCost(seconds=None, error=None, degrees=0, reason=reason)
        error = math.sqrt((len(left) - 1) * float(np.var(left)))
        return SwitchCost(seconds=float(self.costs @ weights), error=error, degrees=rounds - 1)


def _jackknife(sums: _Sums) -> _Found:
    moved = sums.level_n.sum(axis=0) > STRONG * sums.level_n.std(axis=0, ddof=1) * math.sqrt(len(sums.y))
    known = [int(number) for number in np.flatnonzero(moved)]
    held = sums.level_n != 0
    if not known or len(held) < FEWEST_ROUNDS:
        reason = "the assigned quanta hardly move the number of switches in a step"
        return _Found(known=[], held=held, costs=np.zeros(0), without=np.zeros((len(held), 0)), reason=reason)
    without = np.array([sums.without(number).costs(known) for number in range(len(held))])
    return _Found(known=known, held=held, costs=sums.costs(known), without=without)
