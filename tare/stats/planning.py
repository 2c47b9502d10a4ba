"""How many units, and how long each: variance components with costs, Stein's sample size, the time budget.

Levels of a block campaign, from the outside in: block (new launches), draw (a fresh process of a launch), cycle
(every launch takes one turn). Splitting time between them by their variances and costs is Kalibera and Jones 2013;
here the whole plan is searched, so that the t quantile's gain from more blocks counts too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tare.stats.intervals import MAD_TO_SD, MOST_UNITS, stein_units, t_quantile

HUBER_VARIANCE = 1.05  # variance of a Huber mean by that of the mean, where data are normal
DRAWS = range(3, 9)  # three at least: of two that differ, nobody knows which one fell badly
CYCLES = (4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80)


@dataclass(frozen=True, kw_only=True)
class Components:
    """Standard deviations of log-ratios host to host, by level; each is what the level itself adds."""

    block: float
    draw: float
    cycle: float


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of machine time that each level takes."""

    block_s: float
    draw_s: float
    cycle_s: float


@dataclass(frozen=True, kw_only=True)
class Split:
    """One way to spend a budget."""

    draws: int
    cycles: int
    units: int
    unit_s: float
    half_width: float


def unit_spread(components: Components, draws: int, cycles: int) -> float:
    """Standard deviation of a block's log-ratio."""
    of_cycles = HUBER_VARIANCE * components.cycle**2 / (draws * cycles)
    return math.sqrt(components.block**2 + components.draw**2 / draws + of_cycles)


def unit_seconds(costs: Costs, draws: int, cycles: int) -> float:
    """Machine time of a block."""
    return costs.block_s + draws * (costs.draw_s + cycles * costs.cycle_s)


def pays_for_the_least_only(costs: Costs, *, budget_s: float, fewest: int) -> bool:
    """Whether a budget leaves no choice but the least of draws and cycles, however things vary."""
    least = (DRAWS[0], CYCLES[0])
    others = [(draws, cycles) for draws in DRAWS for cycles in CYCLES if (draws, cycles) != least]
    return all(fewest * unit_seconds(costs, *one) > budget_s for one in others)


def best_split(
    components: Components, costs: Costs, *, budget_s: float, fewest: int, alpha: float, most: int | None = None
) -> Split:
    """Draws per block and cycles per draw with the narrowest interval within a budget.

    Args:
        components: variances by level.
        costs: seconds by level.
        budget_s: seconds for all blocks together.
        fewest: blocks that there must be, the pilot; they are planned also where the budget is too small.
        alpha: of one interval.
        most: blocks that there may be; None for as many as the budget pays.
    """
    found: list[Split] = []
    for draws in DRAWS:
        for cycles in CYCLES:
            unit_s = unit_seconds(costs, draws, cycles)
            units = min(max(fewest, int(budget_s / unit_s)), most or MOST_UNITS)
            if units > fewest or unit_s * fewest <= budget_s or (draws, cycles) == (DRAWS[0], CYCLES[0]):
                spread = unit_spread(components, draws, cycles)
                half = t_quantile(alpha, units - 1) * spread / math.sqrt(units)
                found.append(Split(draws=draws, cycles=cycles, units=units, unit_s=unit_s, half_width=half))
    return min(found, key=lambda split: split.half_width)


def estimate_components(units: Sequence[Sequence[Sequence[float]]]) -> Components | None:
    """Variance components from the log-ratios host to host of every cycle.

    Args:
        units: by block, by draw, by cycle. The robust spread of steps from one cycle to the next gives the cycle's
            part (no fit has taken freedom from them); draws' medians within a block, then blocks' means, each less
            what lies below, give the others: a nested analysis of variance, by medians of differences, since a few
            processes whose memory fell badly are no spread that a robust fit would suffer. None with fewer than
            two blocks.
    """
    units = [unit for unit in units if unit and all(len(draw) > 1 for draw in unit)]
    if len(units) < 2:
        return None
    cycle = spread_of_differences(np.concatenate([np.diff(draw) for unit in units for draw in unit]))
    medians = [[float(np.median(draw)) for draw in unit] for unit in units]
    cycles = float(np.mean([len(draw) for unit in units for draw in unit]))
    below_draw = (math.pi / 2) * cycle**2 / (cycles + math.pi / 2 - 1)  # of a median, also of a few values
    within = [a - b for unit in medians for a, b in combinations(unit, 2)]
    draw = max(0.0, spread_of_differences(within) ** 2 - below_draw) if within else 0.0
    draws = float(np.mean([len(unit) for unit in medians]))
    between = (
        spread_of_differences([a - b for a, b in combinations((float(np.mean(unit)) for unit in medians), 2)]) ** 2
    )
    block = max(0.0, between - (draw + below_draw) / draws)
    return Components(block=math.sqrt(block), draw=math.sqrt(draw), cycle=cycle)


def spread_of_differences(differences: Sequence[float]) -> float:
    """Standard deviation of normal values from the median of differences between pairs of them."""
    return MAD_TO_SD * float(np.median(np.abs(differences))) / math.sqrt(2)


def paid_units(pilot: int, left_s: float, unit_s: float) -> int:
    """Units that a budget pays for, of which so many seconds are left after the pilot; the pilot's at least."""
    return pilot + max(0, int(left_s / unit_s)) if unit_s > 0 else pilot


def decide(
    pilot_ratios: Mapping[str, Sequence[float]],
    sampling: Mapping[str, Any],
    *,
    alpha: float,
    spent_s: float,
    unit_s: float,
) -> dict[str, Any]:
    """The second stage: how many units in all, from the pilot alone.

    Args:
        pilot_ratios: log-ratios of the pilot's units by environment, the control among them.
        sampling: `pilot`, `half_width`, `budget_s` of the plan.
        alpha: of one interval.
        spent_s: machine time so far.
        unit_s: what a unit costs. The cap follows from costs alone: neither from means nor from spreads.

    Returns:
        A record: `units`, `design` (`stein`, or `fixed` where the budget caps), `wanted`, `cap`, `spread` by
        environment, and what decided.
    """
    spreads = {
        name: float(np.std(values, ddof=1)) if len(values) > 1 else None for name, values in pilot_ratios.items()
    }
    half = math.log1p(sampling["half_width"])
    wanted = {
        name: stein_units(spread, half, len(pilot_ratios[name]), alpha)
        for name, spread in spreads.items()
        if spread is not None
    }
    pilot = sampling["pilot"]
    most = max(wanted.values(), default=pilot)
    cap = paid_units(pilot, sampling["budget_s"] - spent_s, unit_s)
    capped = most > cap
    return {
        "units": min(most, cap),
        "design": "fixed" if capped or not wanted else "stein",
        "wanted": most,
        "cap": cap,
        "spread": spreads,
        "widest": max(wanted, key=lambda name: wanted[name]) if wanted else None,
        "alpha": alpha,
        "half_width": sampling["half_width"],
        "unit_s": unit_s,
        "spent_s": spent_s,
    }
