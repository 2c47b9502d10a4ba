"""Whole runs from their terms: start + body + exit, each measured by itself.

    W_e = s_e + b_h exp(theta) + x_e,   W_h = s_h + b_h + x_h,   log-ratio L = log W_e - log W_h

Start s and exit x come from many cheap observations, in seconds. Of the body, theta is the mean log-ratio over
rounds. Start and exit keep the machine's storms, so that they are trimmed where there are observations enough; the
body is not (docs/proof.md). The variance of L is the sum of its three sources' by the delta method, its degrees of
freedom are those of Welch 1947 and Satterthwaite 1946.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.stats.intervals import Estimate, Spread, satterthwaite, student, trimmed

START, BODY, EXIT, TOTAL = "start", "body", "exit", "total"


@dataclass(frozen=True, kw_only=True)
class Once:
    """Seconds of one term by observation, of the environment and of both hosts of its group, in the same order.

    An observation is a group of launches soon after each other: what they share cancels in their difference. Where
    there is only one host, it is in both.
    """

    env: Sequence[float]
    host: Sequence[float]
    control: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """A whole run against the host's."""

    estimate: Estimate  # of the log-ratio; `n` is the number of rounds
    seconds: dict[str, Estimate]  # what the environment costs by term and in total, seconds; each has its interval
    host_s: dict[str, float]  # seconds of the host by term and in total


def whole_run(start: Once, body: Once, exit: Once) -> WholeRun:
    """Put a whole run together from its terms.

    `start`: from just before the runtime starts to the program's first instruction. `body`: own seconds by round.
    `exit`: from the program's end to that of the runtime. Raises ValueError for a term without observations, of
    unequal numbers, or a body that is not positive.
    """
    starts, bodies, exits = _table(START, start), _table(BODY, body), _table(EXIT, exit)
    if (bodies <= 0).any():
        raise ValueError("own seconds of a body must be positive")
    logs = np.log(bodies)
    theta = float((logs[0] - logs[1:].mean(axis=0)).mean())
    host_s = {START: _level(starts), BODY: math.exp(float(logs[1:].mean())), EXIT: _level(exits)}
    grown = host_s[BODY] * math.exp(theta)
    more = grown - host_s[BODY]
    seconds = {
        START: trimmed(starts[0] - starts[1], starts[0] - starts[2]),
        BODY: replace(_of_body(logs, grown, more), mean=more),
        EXIT: trimmed(exits[0] - exits[1], exits[0] - exits[2]),
    }
    seconds[TOTAL] = _sum_of(
        sum(one.mean or 0.0 for one in seconds.values()), list(seconds.values()), logs.shape[1]
    )
    host = sum(host_s.values())
    env = host + (seconds[TOTAL].mean or 0.0)
    if env <= 0:
        raise ValueError(f"a whole run of {env:g} s: the terms' differences outweigh the host's {host:g} s")
    once = [trimmed(one[0] / env - one[1] / host, one[0] / env - one[2] / host) for one in (starts, exits)]
    parts = [_of_body(logs, grown / env, grown / env - host_s[BODY] / host), *once]
    estimate = _sum_of(math.log(env / host), parts, logs.shape[1])
    return WholeRun(estimate=estimate, seconds=seconds, host_s={**host_s, TOTAL: host})


def _table(name: str, once: Once) -> np.ndarray:
    """Shape [3, observations]: environment, host, second host."""
    sizes = {len(values) for values in (once.env, once.host, once.control)}
    if len(sizes) > 1 or sizes == {0}:
        raise ValueError(f"{name}: {sorted(sizes)} observations; environment and hosts need as many, one at least")
    table: np.ndarray = np.array([once.env, once.host, once.control], dtype=float)
    if not np.isfinite(table).all():
        raise ValueError(f"{name}: an observation is missing; leave out the whole group")
    return table


def _level(table: np.ndarray) -> float:
    return float(trimmed(table[1], table[2]).mean or 0.0)


def _of_body(logs: np.ndarray, of_theta: float, of_level: float) -> Estimate:
    """What a body's ratio and its level, of the same rounds, bring to a sum: `of_theta` theta + `of_level` log b_h.

    `logs`: shape [3, rounds], log own seconds.
    """
    level = logs[1:].mean(axis=0)
    return student(of_theta * (logs[0] - level) + of_level * level)


def _sum_of(mean: float, parts: Sequence[Estimate], n: int) -> Estimate:
    """An estimate with this mean, whose variance is the sum of the parts'; no spread where a part has none."""
    own = [(part.spreads[0].unit ** 2 / part.n, part.spreads[0].degrees) for part in parts if part.spreads]
    if len(own) < len(parts):
        return Estimate(n=n, mean=mean)
    variance, degrees = satterthwaite(own)
    return Estimate(n=n, mean=mean, spreads=(Spread(unit=math.sqrt(variance * n), degrees=degrees),))
