"""What a switch costs (to stop a launch and to start it again), by instrumental variables.

A launch that is stopped and started again has lost cache contents and has waited to be stopped and woken. The cost
is in its own time. A regression of step times on the switches in them would be biased: a step that is slow for any
reason takes more slices, so that it holds more switches. The quantum of a cycle is drawn at random before anything
runs: what was assigned over a step is an instrument for the switches in it (Wald 1940; Imbens and Angrist 1994).

    y = own seconds of a step / median step of its launch,  n = switches in it / the same median
    z = assigned switch rate over the step
    cost = sum z y / sum z n,  all three less the means of their segment of the round and of their step index

For the cost of one launch z is its own. For a difference all launches of a row share one, the mean of theirs, so
that the noise which they share cancels. Errors come from the jackknife over rounds (Miller 1974).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.model.registry import CONTROL, HOST
from tare.stats.intervals import Estimate, Interval, Spread, t_quantile

FEWEST_ROUNDS = 3
SEGMENT = 8  # steps of a launch that share a mean: slow noise goes with it, the quanta of cycles do not
STRONG = 3.2  # of the first stage: F of 10 or more (Staiger and Stock 1997)
SWEEPS = 30


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

    Args:
        own_s: shape [rounds, steps, launches], own seconds of each step; NaN where it is missing.
        switches: the same shape, how often the launch was stopped within the step.
        assigned: the same shape, what was assigned over the step: mean of 1 / quantum, or the expected switches.
            It must follow from the quanta alone, not from how long the step took.
        names: of the launches, the two hosts among them.
        segment: consecutive steps whose mean is removed.

    Raises:
        ValueError: shapes that do not match.
    """
    own_s, switches, assigned = (np.asarray(values, dtype=float) for values in (own_s, switches, assigned))
    if own_s.ndim != 3 or not own_s.shape == switches.shape == assigned.shape or own_s.shape[2] != len(names):
        raise ValueError(f"steps {own_s.shape}, switches {switches.shape}, assigned {assigned.shape}: not alike")
    seen = np.isfinite(own_s) & np.isfinite(switches) & np.isfinite(assigned) & (own_s > 0)
    typical = _typical(np.where(seen, own_s, np.nan))
    table = _Table(
        names=list(names), seen=seen, y=np.where(seen, own_s / typical, 0.0), segment=segment,
        n=np.where(seen, switches / typical, 0.0), z=np.where(seen, assigned, 0.0),
    )  # fmt: skip
    hosts = [name for name in (HOST, CONTROL) if name in names]
    return SwitchCosts(
        by_launch={name: table.cost([name]) for name in names},
        common=table.cost(list(names)),
        hosts=table.cost(hosts),
        to_host={name: table.cost([name], hosts) for name in names if name not in hosts and hosts},
    )


def long_quantum(own_s: float, switches: float, cost_s: float) -> float:
    """Own seconds at the limit of long quanta: without what the switches cost.

    Raises:
        ValueError: nothing would be left.
    """
    left = own_s - switches * cost_s
    if left <= 0:
        raise ValueError(f"{switches:g} switches of {cost_s:g} s are no part of {own_s:g} s")
    return left


def at_long_quantum(estimate: Estimate, costs: SwitchCosts, name: str, rates: tuple[float, float]) -> Estimate:
    """A mean log-ratio at the limit of long quanta; the cost's error, alike in all rounds, is in its interval.

    Args:
        estimate: of the launch to the mean of two hosts.
        costs: of the same rounds.
        name: the launch.
        rates: switches by own second, of the launch and of the hosts (mean over rounds).

    Returns:
        The estimate less -log(1 - r_e c_e) + log(1 - r_h c_h), where c_e is the hosts' cost and the measured
        difference to it; as it was where a cost is not known, or where switches would be all that there is.
    """
    more, base = costs.to_host.get(name), costs.hosts
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
class _Table:
    """Steps of all rounds: `seen`, `y`, `n` and `z`, each of shape [rounds, steps, launches]."""

    names: list[str]
    seen: np.ndarray
    y: np.ndarray
    n: np.ndarray
    z: np.ndarray
    segment: int

    def cost(self, above: Sequence[str], below: Sequence[str] = ()) -> SwitchCost:
        """Of the launches `above` together, less that of those `below`, from rows that hold all of them."""
        columns = [[self.names.index(name) for name in side] for side in (above, below)]
        if not columns[0]:
            return SwitchCost(seconds=None, error=None, degrees=0, reason="no such launch")
        held, z = self.seen, self.z
        if below:
            together = self.seen[:, :, [*columns[0], *columns[1]]].all(axis=2, keepdims=True)
            held = np.broadcast_to(together, self.seen.shape)
            z = np.broadcast_to(_row_mean(self.z, self.seen), self.seen.shape)
        first = self._sums(columns[0], held, z)
        second = self._sums(columns[1], held, z) if below else None
        used = first[1] != 0
        if used.sum() < FEWEST_ROUNDS:
            reason = f"{int(used.sum())} rounds whose quanta vary within the steps; {FEWEST_ROUNDS} are needed"
            return SwitchCost(seconds=None, error=None, degrees=0, reason=reason)
        parts = [tuple(one[used] for one in sums) for sums in (first, second) if sums is not None]
        for _, below_sums in parts:
            spread = float(below_sums.std(ddof=1)) * math.sqrt(len(below_sums))
            if below_sums.sum() <= STRONG * spread:
                reason = "the assigned quanta hardly move the number of switches in a step"
                return SwitchCost(seconds=None, error=None, degrees=0, reason=reason)
        value, error = _jackknife(parts)
        return SwitchCost(seconds=value, error=error, degrees=int(used.sum()) - 1)

    def _sums(self, columns: Sequence[int], held: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per round the sums of z y and z n over the columns; shape [rounds] each."""
        upper, lower = np.zeros(len(held)), np.zeros(len(held))
        for column in columns:
            mask = held[:, :, column]
            own_z, y, n = (self._within(values[:, :, column], mask) for values in (z, self.y, self.n))
            upper += (own_z * y).sum(axis=1)
            lower += (own_z * n).sum(axis=1)
        return upper, lower

    def _within(self, values: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Values less the means of their segment of the round and of their step index; 0 where masked."""
        rounds, steps = values.shape
        segments = -(-steps // self.segment)
        padding = ((0, 0), (0, segments * self.segment - steps))
        weights = np.pad(mask.astype(float), padding).reshape(rounds, segments, self.segment)
        left = np.pad(np.where(mask, values, 0.0), padding).reshape(weights.shape)
        for _ in range(SWEEPS):
            left = weights * (
                left - left.sum(axis=2, keepdims=True) / np.maximum(weights.sum(axis=2, keepdims=True), 1)
            )
            shift = left.sum(axis=0) / np.maximum(weights.sum(axis=0), 1)
            left = weights * (left - shift)
            if float(np.abs(shift).max()) < 1e-12:
                break
        found: np.ndarray = left.reshape(rounds, -1)[:, :steps]
        return found


def _jackknife(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[float, float]:
    """A quotient of sums over rounds, or a difference of two, with its error from leaving each round out."""
    wholes = [upper.sum() / lower.sum() for upper, lower in parts]
    without = [(upper.sum() - upper) / (lower.sum() - lower) for upper, lower in parts]
    value = wholes[0] - (wholes[1] if len(parts) > 1 else 0.0)
    left = without[0] - (without[1] if len(parts) > 1 else 0.0)
    rounds = len(left)
    return float(value), math.sqrt((rounds - 1) * float(np.var(left)))


def _typical(own_s: np.ndarray) -> np.ndarray:
    """Median step of each launch of each round, shape [rounds, 1, launches]; 1 where it has none."""
    counts = np.isfinite(own_s).any(axis=1, keepdims=True)
    filled = np.where(counts, own_s, 1.0)
    found: np.ndarray = np.nanmedian(filled, axis=1, keepdims=True)
    return found


def _row_mean(assigned: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Mean over the launches of a row, shape [rounds, steps, 1]; 0 where none was seen."""
    found: np.ndarray = assigned.sum(axis=2, keepdims=True) / np.maximum(seen.sum(axis=2, keepdims=True), 1)
    return found
