"""How many units: Stein's sample size from a pilot's spread, within a time budget; budgets of several campaigns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tare.stats.intervals import stein_units


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

    `pilot_ratios`: log-ratios of the pilot's units by environment, the control among them. `sampling`: `pilot`,
    `half_width`, `budget_s` of the plan. `spent_s`: machine time so far. The cap follows from costs alone: neither
    from means nor from spreads. Returns a record: `units`, `design` (`stein`, or `fixed` where the budget caps),
    `wanted`, `cap`, `spread` by environment, and what decided.
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


def shared_out(available_s: float, least_s: Sequence[float], wanted_s: Sequence[float | None]) -> list[float]:
    """Seconds of each campaign, in proportion to what it wants, and each at least what it takes in any case.

    Where what is available covers what each wants, or takes in any case if that is more, each gets that at least.
    `available_s`: for all of them together. `least_s`: what each takes in any case; where these take more than is
    available, each gets just that. `wanted_s`: positive; None where unknown: then the mean of the others, or equal
    shares. Returns seconds that add up to `available_s`, or to the sum of `least_s` where that is more. Raises
    ValueError where what is wanted, or taken in any case, is not positive.
    """
    known = [value for value in wanted_s if value is not None]
    if any(not math.isfinite(value) or value <= 0 for value in (*known, *least_s)):
        raise ValueError(f"seconds must be positive: {list(least_s)} in any case, {known} wanted")
    mean = statistics.fmean(known) if known else 1.0
    weights = [mean if value is None else value for value in wanted_s]
    found: dict[int, float] = {}
    free = set(range(len(weights)))
    while free:  # those whose share is below what they take in any case get that, the others the rest
        rest = available_s - sum(found.values())
        total = sum(weights[index] for index in free)
        low = [index for index in free if rest * weights[index] / total < least_s[index]]
        if not low:
            found |= {index: rest * weights[index] / total for index in free}
            break
        found |= {index: least_s[index] for index in low}
        free -= set(low)
    return [found[index] for index in range(len(weights))]
