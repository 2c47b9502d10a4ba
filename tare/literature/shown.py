"""A claim held against one source of a study's own data: what stands there, and whether it is as claimed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One claim held against one figure, the logs, or numbers that are stated.

    Attributes:
        source: number of a figure, or `log`.
        metric: of the values.
        holds: whether the values are as claimed.
        clear: whether reading errors, and the spread between runs where it is known, could not turn that.
        repeated: whether several runs with a spread stand behind the values.
        note: the values.
        claimed, against: the two values that decide, in base units of `unit`; None for sets.
        unit: of these.
    """

    source: str
    metric: str
    holds: bool
    clear: bool
    note: str
    repeated: bool = False
    claimed: float | None = None
    against: float | None = None
    unit: str = "1"


def apart(told: Iterable[Mapping[str, float]]) -> float:
    """How far numbers of one run lie apart at most: each by environment, of the same runs; 0 of a single one."""
    numbers = list(told)
    runs = [[one[env] for one in numbers if env in one] for env in {env for one in numbers for env in one}]
    return max((max(run) - min(run) for run in runs), default=0.0)
