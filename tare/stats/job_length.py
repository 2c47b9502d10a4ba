"""What an environment costs a job of a given length: numbers in, numbers out.

A job pays some seconds once (start, imports, data, model, first step, exit) and a share of every step:
o(L) = (dF + d L) / (F + L). F and L are what the host takes: once, in seconds, and for all other steps, in seconds.
dF is in seconds, environment less host; d is the step's ratio less one.

Source of the formula: the split of a job into a fixed and a proportional part (Amdahl 1967), written as a ratio.
The intervals are ranges over a box: where dF lies in its interval and d in its own, each at level 1 - alpha / 2,
both do at level 1 - alpha (Bonferroni), whatever their correlation, and so does everything that follows from them,
for all lengths together. F is taken as measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NEVER = math.inf


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What an environment costs a job."""

    host_s: float  # what the host takes once, in seconds; above zero
    fixed_s: float  # seconds more (below zero: fewer) that the environment takes once
    step: float  # share of a step more (below zero: less) that the environment takes; above -1

    def at(self, length_s: float) -> float:
        """Cost of a job of `length_s` steps on the host, as a share: monotone from fixed_s / host_s to `step`."""
        return (self.fixed_s + self.step * length_s) / (self.host_s + length_s)

    def below(self, limit: float) -> float:
        """The least length in seconds beyond which the cost stays below `limit`; NEVER where it does not."""
        if self.step >= limit:
            return NEVER
        return max(0.0, (self.fixed_s - limit * self.host_s) / (limit - self.step))


@dataclass(frozen=True, kw_only=True)
class CostBox:
    """Costs with both parts at their lower, and at their upper ends: corners that hold the whole range between."""

    low: Cost
    high: Cost

    def at(self, length_s: float) -> tuple[float, float]:
        """Least and largest cost of a job whose steps take `length_s` on the host."""
        return self.low.at(length_s), self.high.at(length_s)

    def below(self, limit: float) -> tuple[float, float]:
        """Least and largest length beyond which the cost stays below `limit`."""
        return self.low.below(limit), self.high.below(limit)
