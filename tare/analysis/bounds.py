"""Launches that were stopped because they did not end or answer in time: what they bound, and how often any fail.

A whole run that was stopped at its time limit took at least that: it counts with the limit, and the interval has no
end on its side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tare.model.journals.sealed import SealedCampaign
from tare.model.registry import HOST
from tare.model.roles import CONTROL, alone_of, read_role
from tare.stats.intervals import Interval, judge, share_interval

TIMEOUT: Final = "timeout"
TRIED = ("ok", "failed", TIMEOUT)  # others were not begun, or were ended for what another launch did
FAILURE_ALPHA = 0.05  # of the interval of a share that failed

Stopped = Mapping[str, frozenset[int]]  # by name of the launch, numbers of units


def sides(env: str, reference: str) -> tuple[list[str], list[str]]:
    """Launches above and below the line of a comparison; of both hosts the mean counts.

    Each host has its own launch without a co-runner.
    """
    hosts = [HOST, CONTROL]
    if reference == HOST:
        return [env], [HOST] if env == CONTROL else hosts
    if env == HOST and read_role(reference).is_alone:
        return hosts, [alone_of(name) for name in hosts]
    return hosts if env == HOST else [env], [reference]


def stopped_runs(campaign: SealedCampaign) -> Stopped:
    """Units that count in which a launch was stopped at its time limit."""
    found: dict[str, set[int]] = {}
    for unit in campaign.counted:
        for name, launch in unit.launches.items():
            if launch.status == TIMEOUT:
                found.setdefault(name, set()).add(unit.unit)
    return {name: frozenset(numbers) for name, numbers in found.items()}


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Which ends of a comparison's interval are known."""

    # units in which what is above the line was stopped: the ratio is larger, and has no upper end
    at_least: int = 0
    at_most: int = 0  # units in which what is below the line was: the ratio is smaller, and has no lower end
    silent: frozenset[int] = frozenset()  # numbers of units in which both were, which say nothing

    @property
    def open(self) -> bool:
        """Whether one of them is not known."""
        return bool(self.at_least or self.at_most)

    def cut(self, interval: Interval) -> Interval:
        """The interval without the ends that are not known."""
        low = None if self.at_most else interval.low
        return replace(interval, low=low, high=None if self.at_least else interval.high)

    def judge(self, interval: Interval, margin: float) -> str:
        """The verdict of an interval that was cut: with one end nothing is inside a margin."""
        if not self.open:
            return judge(interval, margin)
        low, high = interval.low, interval.high
        beyond = (low is not None and low > 0) or (high is not None and high < 0)
        return "different" if beyond else "inconclusive"

    def hide(self, mean: float | None) -> bool:
        """Whether a mean is on the side of an unknown end, where nothing can be distinguished from zero."""
        return mean is not None and bool((self.at_least and mean < 0) or (self.at_most and mean > 0))


def ends_of(stopped: Stopped, env: str, reference: str, units: Iterable[int]) -> Ends:
    """Which ends of a comparison are known, where these launches were stopped.

    `stopped`: launches, by unit. `env`, `reference`: what is compared. `units`: those that the comparison has.
    """
    own = frozenset(units)
    above, below = (
        own & frozenset[int]().union(*(stopped.get(name, ()) for name in names)) for names in sides(env, reference)
    )
    return Ends(at_least=len(above - below), at_most=len(below - above), silent=above & below)


@dataclass(frozen=True, kw_only=True)
class Failures:
    """How many launches failed."""

    launches: int  # that were tried, in void units too
    failures: int  # those that did not succeed, `timeouts` of them because they were stopped
    timeouts: int
    # `low`, `high`: of the share that fails, at 95%, as if the number of launches had been fixed beforehand
    low: float
    high: float


def failures_of(campaign: SealedCampaign, name: str) -> Failures:
    """Of one environment's launches, or of one host's, in all units but discarded ones."""
    units = [unit for unit in campaign.units if not unit.discarded and name in unit.launches]
    ended = [status for unit in units if (status := unit.launches[name].status) in TRIED]
    failed = sum(status != "ok" for status in ended)
    low, high = share_interval(failed, len(ended), FAILURE_ALPHA)
    return Failures(launches=len(ended), failures=failed, timeouts=ended.count(TIMEOUT), low=low, high=high)
