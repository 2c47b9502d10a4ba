"""Standard deviations of steps and bodies within recorded sliced rounds; launch_variance.py shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from recorded import BODY, RUN, STEP, Recorded, hosts_of, replicate_ratios
from scipy import stats

from tare.model.journals.units import measured_steps

LEVEL = 0.95
MAD_TO_SD = 1.4826


def deviation(values: Sequence[float] | np.ndarray) -> dict[str, float] | None:
    """Standard deviation with its interval at 95%, by chi squared; None with fewer than two values."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 2:
        return None
    degrees, found = len(sample) - 1, float(sample.std(ddof=1))
    low, high = (
        found * math.sqrt(degrees / stats.chi2.ppf(tail, degrees)) for tail in ((1 + LEVEL) / 2, (1 - LEVEL) / 2)
    )
    return {"value": found, "low": low, "high": high}


def robust(values: Sequence[float] | np.ndarray) -> float:
    """Standard deviation from the median absolute deviation, as of normal values."""
    sample = np.asarray(values, dtype=float)
    return float(MAD_TO_SD * np.median(np.abs(sample - np.median(sample))))


def components(ratios: np.ndarray) -> dict[str, float | None]:
    """Standard deviations of the log of a step, of one launch, from ratios of two launches by round and replicate.

    ratio = launch - launch + replicate - replicate: each difference has twice the variance of one part.

    Args:
        ratios: log-ratios, shape [rounds, replicates].

    Returns:
        `replicates_sd` of a replicate within its launch; `launches_sd` of a launch's mean of replicates, with what
        is left of theirs; `launches_own_sd` without it, 0 where nothing is left; `p` of the F test that launches
        add nothing. None where rounds or replicates are fewer than two.
    """
    rounds, replicates = ratios.shape
    if rounds < 2 or replicates < 2:
        return dict.fromkeys(("replicates_sd", "launches_sd", "launches_own_sd", "p"))
    within = float(ratios.var(axis=1, ddof=1).mean()) / 2
    between = float(ratios.mean(axis=1).var(ddof=1)) / 2
    p = stats.f.sf(replicates * between / within, rounds - 1, rounds * (replicates - 1)) if within else None
    return {
        "replicates_sd": math.sqrt(within),
        "launches_sd": math.sqrt(between),
        "launches_own_sd": math.sqrt(max(0.0, between - within / replicates)),
        "p": None if p is None else float(p),
    }


def rows_of(found: Recorded) -> list[dict[str, Any]]:
    """A row for the whole run, its body, and the step at each level of the allocator."""
    rows = []
    for quantity in found.quantities:
        ratios = found.ratios(quantity)
        ratios = ratios[np.isfinite(ratios)]
        row = {
            "workload": found.workload,
            "quantity": quantity,
            "rounds": len(ratios),
            "mean": float(ratios.mean()) if len(ratios) else None,
            "ratio_sd": deviation(ratios),
            "ratio_robust_sd": robust(ratios) if len(ratios) else None,
            "log_ratios": [round(float(value), 7) for value in ratios],
        }
        if quantity not in (RUN, BODY):
            row |= of_steps(found, quantity.removeprefix(f"{STEP}, "))
        rows.append(row)
    return rows


def of_steps(found: Recorded, level: str) -> dict[str, Any]:
    """What only steps have: components, and how much the host's own step differs from round to round."""
    ratios = replicate_ratios(found.rounds, level)
    middles = [
        math.log(float(np.median(steps)))
        for unit in found.rounds
        if (steps := measured_steps(hosts_of(unit)[0], level))
    ]
    return {
        **components(ratios),
        "host_rounds_sd": deviation(middles),
        "step_s": math.exp(float(np.median(middles))) if middles else None,
        "replicate_log_ratios": [[round(float(value), 7) for value in one] for one in ratios],
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as text, standard deviations in per cent."""
    names = ("replicates", "launches", "own", "host alone")
    head = f"{'workload':15}{'quantity':16}{'rounds':>7}{'mean':>8}{'ratio, sd (95%)':>24}{'robust':>8}"
    lines = [head + "".join(f"{name:>12}" for name in names) + f"{'p':>8}"]
    for row in rows:
        alone = (row.get("host_rounds_sd") or {}).get("value")
        parts = [row.get(name) for name in ("replicates_sd", "launches_sd", "launches_own_sd")]
        cells = "".join(f"{_percent(value):>12}" for value in (*parts, alone))
        begin = f"{row['workload']:15}{row['quantity']:16}{row['rounds']:7}{_percent(row['mean']):>8}"
        spread = f"{_interval(row['ratio_sd']):>24}{_percent(row['ratio_robust_sd']):>8}"
        p = "-" if row.get("p") is None else f"{row['p']:.3f}"
        lines.append(f"{begin}{spread}{cells}{p:>8}")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _interval(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "-"
    return f"{100 * found['value']:.2f} ({100 * found['low']:.2f} to {100 * found['high']:.2f})"
