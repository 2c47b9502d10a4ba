"""Seconds shared out among campaigns, in proportion to what each wants."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def shared_out(available_s: float, least_s: Sequence[float], wanted_s: Sequence[float | None]) -> list[float]:
    """Seconds of each campaign, in proportion to what it wants, and each at least what it takes in any case.

    Where what is available covers what each wants, or takes in any case if that is more, each gets that at least.
    `available_s`: for all of them together. `least_s`: what each takes in any case; where these take more than is
    available, each gets just that. `wanted_s`: positive; None where nobody knows, which stands for the mean of the
    others, or for equal shares. Returns seconds that add up to `available_s`, or to the sum of `least_s` where that
    is more. Raises ValueError where what is wanted, or taken in any case, is not positive.
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
