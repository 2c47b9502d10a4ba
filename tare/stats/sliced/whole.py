"""Whole runs from their terms: start + body + exit, each measured by itself.

    W_e = s_e + b_h exp(theta) + x_e,   W_h = s_h + b_h + x_h,   log-ratio L = log W_e - log W_h

Start s and exit x come from many cheap observations, in seconds. Of the body, theta is the mean log-ratio over
rounds. The variance of L is the sum of its three sources' by the delta method, its degrees of freedom are those of
Welch 1947 and Satterthwaite 1946.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.stats.intervals import Estimate, Spread, trimmed

START, BODY, EXIT, TOTAL = "start", "body", "exit", "total"


@dataclass(frozen=True, kw_only=True)
class Once:
    """Seconds of one term by observation, of the environment and of both hosts beside it, in the same order.

    An observation is a group of launches soon after each other: what they share cancels in their difference. Where
    there is one host only it stands twice.
    """

    env: Sequence[float]
    host: Sequence[float]
    control: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """A whole run against the host's.

    Attributes:
        estimate: of the log-ratio; `n` is the number of rounds.
        seconds: what the environment costs by term and in total, seconds; each has its interval.
        host_s: seconds of the host by term and in total.
    """

    estimate: Estimate
    seconds: dict[str, Estimate]
    host_s: dict[str, float]


def whole_run(start: Once, body: Once, exit: Once) -> WholeRun:
    """Put a whole run together from its terms.

    Args:
        start: from just before the runtime starts to the program's first instruction.
        body: own seconds by round.
        exit: from the program's end to that of the runtime.

    Raises:
        ValueError: a term without observations, of unequal numbers, or a body that is not positive.
    """
    tables = {name: _table(name, once) for name, once in ((START, start), (BODY, body), (EXIT, exit))}
    if (tables[BODY] <= 0).any():
        raise ValueError("own seconds of a body must be positive")
    logs = np.log(tables[BODY])
    theta = trimmed(logs[0] - logs[1], logs[0] - logs[2])
    host_s = {name: _level(values[1:]) for name, values in tables.items()}
    ratio = math.exp(theta.mean or 0.0)
    seconds = {name: trimmed(values[0] - values[1], values[0] - values[2]) for name, values in tables.items()}
    grown = host_s[BODY] * ratio
    seconds[BODY] = _sum_of(theta.n, host_s[BODY] * (ratio - 1), [_of_body(logs, grown, grown - host_s[BODY])])
    host = sum(host_s.values())
    env = host + sum(one.mean or 0.0 for one in seconds.values())
    if env <= 0:
        raise ValueError(f"a whole run of {env:g} s: the terms' differences outweigh the host's {host:g} s")
    parts = [_of_body(logs, grown / env, grown / env - host_s[BODY] / host)]
    parts += [
        trimmed(values[0] / env - values[1] / host, values[0] / env - values[2] / host)
        for values in (tables[START], tables[EXIT])
    ]
    total = [_of_body(logs, grown, grown - host_s[BODY]), seconds[START], seconds[EXIT]]
    return WholeRun(
        estimate=_sum_of(theta.n, math.log(env / host), parts),
        seconds={**seconds, TOTAL: _sum_of(theta.n, env - host, total)},
        host_s={**host_s, TOTAL: host},
    )


def _table(name: str, once: Once) -> np.ndarray:
    """Shape [3, observations]: environment, host, second host."""
    sizes = {len(values) for values in (once.env, once.host, once.control)}
    if len(sizes) > 1 or sizes == {0}:
        raise ValueError(f"{name}: {sorted(sizes)} observations; environment and hosts need as many, one at least")
    table: np.ndarray = np.array([once.env, once.host, once.control], dtype=float)
    if not np.isfinite(table).all():
        raise ValueError(f"{name}: an observation is missing; leave out the whole group")
    return table


def _level(hosts: np.ndarray) -> float:
    """Seconds of the host, of both hosts' observations, shape [2, observations]."""
    return float(trimmed(hosts[0], hosts[1]).mean or 0.0)


def _of_body(logs: np.ndarray, of_theta: float, of_level: float) -> Estimate:
    """What a body's ratio and its level, of the same rounds, bring to a sum: `of_theta` theta + `of_level` log b_h.

    Args:
        logs: shape [3, rounds], log own seconds.
        of_theta, of_level: derivatives of the sum.
    """
    level = of_level * logs[1:].mean(axis=0)
    return trimmed(of_theta * (logs[0] - logs[1]) + level, of_theta * (logs[0] - logs[2]) + level)


def _sum_of(n: int, mean: float, parts: Sequence[Estimate]) -> Estimate:
    """An estimate with this mean, whose variance is the sum of the parts'; no spread where a part has none."""
    own = [(part.spreads[0].unit ** 2 / part.n, part.spreads[0].degrees) for part in parts if part.spreads]
    if len(own) < len(parts):
        return Estimate(n=n, mean=mean)
    variance = sum(one for one, _ in own)
    squares = sum(one**2 / degrees for one, degrees in own)
    degrees = variance**2 / squares if squares else float(sum(degrees for _, degrees in own))
    return Estimate(n=n, mean=mean, spreads=(Spread(unit=math.sqrt(variance * n), degrees=degrees),))
