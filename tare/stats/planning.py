"""How many units: Stein's sample size from a pilot's spread, within a time budget."""

from __future__ import annotations

import math
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
