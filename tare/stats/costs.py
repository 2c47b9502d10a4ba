"""What work costs in time: once, by repetition, by exchange. Numbers in, numbers out.

Work that repeats something n times takes

    t(n) = once + n * (each + exchange)

A job that takes F once, and L for all its steps, on the host takes in an environment o(L) = (dF + d L) / (F + L)
more, as a share: dF is in seconds, environment less host; d is the step's ratio less one (the split of a job into a
fixed and a proportional part, Amdahl 1967, written as a ratio). The intervals are ranges over a box: where dF is
in its interval and d in its own, each at level 1 - alpha / 2, both do at level 1 - alpha (Bonferroni), whatever
their correlation, and so does everything that follows from them, for all lengths together. F is taken as measured.

All-reduce, as a ring of n members (Patarasuk and Yuan 2009): each sends and receives 2 (n - 1) / n of the bytes in
2 (n - 1) messages,

    t(b) = 2 (n - 1) L + 2 (n - 1) / n * b / B

with half the round trip as L and the stream as B. A parameter server's one cable takes the gradients of all w
workers one after the other, and then gives them the parameters: t(b) = 2 w b / B.

Something that takes C seconds once (to build, to pull) and saves s seconds in every run is paid back by n = C / s
runs. Where s is in an interval, n is between C by its upper end and C by its lower one; an end at or below zero
never pays. C is taken as measured: whoever has an interval of it too, takes its ends in turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NEVER = math.inf
ALL_REDUCE, SERVER = "all-reduce", "parameter-server"


@dataclass(frozen=True, kw_only=True)
class Work:
    """Something that is paid once, and something that is repeated."""

    once_s: float  # seconds, whatever the number of repetitions
    each_s: float  # seconds of a repetition
    exchange_s: float = 0.0  # seconds more of a repetition, in which it exchanges what it computed

    def seconds(self, count: float) -> float:
        """Of so many repetitions."""
        return self.once_s + count * (self.each_s + self.exchange_s)

    def count_in(self, seconds: float) -> int:
        """Whole repetitions that these seconds pay; none where they do not even pay what comes once."""
        return max(0, int((seconds - self.once_s) / (self.each_s + self.exchange_s)))


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What an environment costs a job."""

    host_s: float  # what the host takes once, in seconds; above zero
    fixed_s: float  # seconds more (below zero: fewer) that the environment takes once
    step: float  # share of a step more (below zero: less) that the environment takes; above -1

    def at(self, length_s: float) -> float:
        """The cost of a job whose steps take `length_s` on the host, as a share of its time there.

        It goes from fixed_s / host_s to `step`, rising or falling all the way.
        """
        return (self.fixed_s + length_s * self.step) / (self.host_s + length_s)

    def below(self, limit: float) -> float:
        """The least length in seconds beyond which the cost stays below `limit`; NEVER where it does not."""
        if self.step >= limit:
            return NEVER
        return max(0.0, (self.fixed_s - limit * self.host_s) / (limit - self.step))


@dataclass(frozen=True, kw_only=True)
class CostBox:
    """Costs at two corners of a box: both parts at their lower ends, and both at their upper ends.

    Cost and length grow with either part, so that these corners hold their whole range over the box.
    """

    low: Cost
    high: Cost

    def at(self, length_s: float) -> tuple[float, float]:
        """Least and largest cost of a job whose steps take `length_s` on the host."""
        return self.low.at(length_s), self.high.at(length_s)

    def below(self, limit: float) -> tuple[float, float]:
        """Least and largest length beyond which the cost stays below `limit`."""
        return self.low.below(limit), self.high.below(limit)


def exchange_s(
    exchange: str, size_bytes: float, workers: int, bytes_per_s: float, round_trip_s: float = 0.0
) -> float:
    """Seconds in which workers exchange the gradients of a step.

    `exchange`: ALL_REDUCE, or SERVER, where a message's way counts as nothing. `size_bytes`: of one worker's
    gradients. `workers`: without the server. `bytes_per_s`: of one cable, either way. `round_trip_s`: of a message
    that holds nothing.
    """
    if exchange == SERVER:
        return 2 * workers * size_bytes / bytes_per_s
    messages = 2 * (workers - 1)
    return messages * round_trip_s / 2 + messages / workers * size_bytes / bytes_per_s


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
