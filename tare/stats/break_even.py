"""After how many runs what is paid once has paid for itself: numbers in, numbers out.

Something takes C seconds once (to build, to pull) and saves s seconds in every run; then runs beyond n = C / s are
gain. Where s lies in an interval, n lies between C by its upper end and C by its lower one; an end at or below zero
saves nothing and never pays. C is taken as measured: whoever has an interval of it too, takes its ends in turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NEVER = math.inf


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Whole runs after which the cost is paid back: at best and at worst; NEVER where they don't pay it back."""

    fewest: float
    most: float


def runs_until_paid(once_s: float, saved_low_s: float, saved_high_s: float) -> Runs:
    """Runs until `once_s` (0 or more) is paid back by the seconds that each saves, from the lower to the upper end;
    below zero it loses some. Raises ValueError for a cost below zero, or ends the wrong way round.
    """
    if once_s < 0 or saved_low_s > saved_high_s:
        raise ValueError(f"{once_s} s once, {saved_low_s} to {saved_high_s} s a run: no cost and interval")
    return Runs(fewest=_runs(once_s, saved_high_s), most=_runs(once_s, saved_low_s))


def _runs(once_s: float, saved_s: float) -> float:
    if once_s == 0:
        return 0.0 if saved_s >= 0 else NEVER
    return math.ceil(once_s / saved_s) if saved_s > 0 else NEVER


def pull_seconds(size_bytes: float, bits_per_s: float) -> float:
    """Seconds that bytes take on a link of so many bits a second, with nothing else on it."""
    return 8 * size_bytes / bits_per_s
