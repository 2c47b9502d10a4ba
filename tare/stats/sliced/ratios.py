"""Log-ratios of launches by round, and the number of rounds that a half-width takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tare.stats.intervals import FEWEST_UNITS, MOST_UNITS, Estimate, log_ratios_of, student, t_quantile

Round = Mapping[str, float | None]


def body_log_ratios(rounds: Sequence[Round], names: Sequence[str]) -> dict[str, list[float]]:
    """Per round, log of a launch's own time by the geometric mean of the two hosts; the control's is to the host.

    `rounds`: own seconds by launch, or any other positive value; None for a launch that failed. `names`: launches
    to compare; the host is left out. Returns log-ratios by name, without the rounds that lack the launch or a host.
    """
    known = [{name: value for name, value in one.items() if value is not None and value > 0} for one in rounds]
    return log_ratios_of(known, names)


def body_estimates(rounds: Sequence[Round], names: Sequence[str]) -> dict[str, Estimate]:
    """What the interval of each launch's mean log-ratio rests on: Student's, with the launch's own spread.

    Slices take the storms out of a round's ratios, so that trimming has nothing to gain; and a launch with a lone
    tail or with phases of its own varies more than the others, so that no spread is lent (docs/proof.md).
    """
    return {name: student(ratios) for name, ratios in body_log_ratios(rounds, names).items()}


def rounds_needed(spread: float, half_width: float, alpha: float, *, fewest: int = FEWEST_UNITS) -> int:
    """Rounds after which Student's interval at level 1 - alpha has this half-width, if the spread stays as it is.

    `spread`: standard deviation of one round's log-ratio. `half_width`: wanted, of the log-ratio. `fewest`: rounds
    that there are at least. Raises ValueError for a half-width that is not positive, or a spread below zero.
    """
    if half_width <= 0 or spread < 0:
        raise ValueError(
            f"half-width {half_width} and spread {spread}: the first must be positive, the other not below 0"
        )
    low, high = max(FEWEST_UNITS, fewest), MOST_UNITS
    while low < high:  # the half-width falls with every round
        middle = (low + high) // 2
        if t_quantile(alpha, middle - 1) * spread / math.sqrt(middle) <= half_width:
            high = middle
        else:
            low = middle + 1
    return low
