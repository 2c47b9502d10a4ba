"""What other protocols would have said of host against host, from a sealed campaign's own launches.

Nothing is to be found there, so whatever a protocol finds is its own. The launches are those that Tare made, paired
otherwise: this shows what the pairing is worth, not what a protocol would do with the same machine time (it would
have other launches, of other lengths). A unit's host stands for a launch of one environment, its control for one of
another.

Sources: medians one after the other, as studies of containers do; pyperf's `is_significant` (pyperf/_utils.py:
Student's two-sample t with pooled variance, two-sided, 95%, equal numbers); hyperfine's relative speed
(src/benchmark/relative_speed.rs: ratio of means, the slower by the faster, errors propagated as independent).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import pandas as pd

from tare.analysis.sliced_rounds import is_sliced, sliced_units
from tare.analysis.verdicts import contrasts, design_of, estimate_of
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import both_hosts, measured_steps, planned_alpha, real_s
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.fits import run_values, step_values
from tare.stats.intervals import Interval, t_quantile

FEWEST_PAIRS = 2
PYPERF_ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The two hosts of each unit, in order of time, seconds."""

    median: list[tuple[float, float]]  # of a launch's counted steps; of a whole run, its real time
    mean: list[tuple[float, float]]  # the same with the mean


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """Ratios of the control of one unit to the host of another, over all ordered pairs of units."""

    pairs: int
    lowest: float
    highest: float
    beyond: int  # pairs whose ratio lies outside the margin


@dataclass(frozen=True, kw_only=True)
class Significance:
    """Host's launches of the first half against the control's of the second, by a two-sample t test."""

    n: int  # launches on either side
    ratio: float  # mean of the control by mean of the host
    t: float
    critical: float

    @property
    def significant(self) -> bool:
        """Whether the two would be called different."""
        return abs(self.t) >= self.critical


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Mean and standard deviation of both sides, seconds, and how many times faster one is said to be."""

    n: int
    host: tuple[float, float]
    control: tuple[float, float]
    ratio: float
    ratio_sd: float

    @property
    def faster(self) -> str:
        """Which of the two is named first."""
        return HOST if self.host[0] <= self.control[0] else CONTROL


def hosts_of(campaign: SealedCampaign) -> Hosts:
    """Medians and means of both hosts by unit; units in which one of them failed are left out."""
    pairs = [
        (first, second)
        for unit in campaign.counted
        if (hosts := both_hosts(unit)) is not None
        and (first := _seconds(hosts[0], campaign.level))
        and (second := _seconds(hosts[1], campaign.level))
    ]
    return Hosts(
        median=[(statistics.median(host), statistics.median(control)) for host, control in pairs],
        mean=[(statistics.fmean(host), statistics.fmean(control)) for host, control in pairs],
    )


def _seconds(launch: LaunchRecord, level: str | None) -> list[float]:
    """What a launch timed: every counted step at a level of the allocator, or its whole run."""
    return [real_s(launch)] if level is None else measured_steps(launch, level)


def one_after_the_other(hosts: Hosts, margin: float) -> Sequential | None:
    """The host of one unit against the control of another, a median each; None with fewer than two units."""
    if len(hosts.median) < FEWEST_PAIRS:
        return None
    ratios = [
        second[1] / first[0]
        for i, first in enumerate(hosts.median)
        for j, second in enumerate(hosts.median)
        if i != j
    ]
    limit = math.log1p(margin)
    return Sequential(
        pairs=len(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        beyond=sum(abs(math.log(ratio)) > limit for ratio in ratios),
    )


def halves(hosts: Hosts) -> tuple[list[float], list[float]] | None:
    """Means of the first half's hosts and of the second half's controls: all of one side, then all of the other.

    As many on either side; the middle one of an odd number is left out. None with fewer than two on a side.
    """
    half = len(hosts.mean) // 2
    if half < FEWEST_PAIRS:
        return None
    return [host for host, _ in hosts.mean[:half]], [control for _, control in hosts.mean[-half:]]


def pyperf_like(hosts: Hosts) -> Significance | None:
    """Student's two-sample t test on the means of launches, as pyperf judges; None with too few units.

    pyperf takes every value of every process as independent; one mean per launch, as here, finds fewer differences.
    """
    sides = halves(hosts)
    if sides is None:
        return None
    first, second = sides
    n = len(first)
    pooled = (statistics.variance(first) + statistics.variance(second)) / 2
    means = statistics.fmean(first), statistics.fmean(second)
    error = math.sqrt(2 * pooled / n)
    difference = means[1] - means[0]
    t = difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
    return Significance(n=n, ratio=means[1] / means[0], t=t, critical=t_quantile(PYPERF_ALPHA, 2 * n - 2))


def hyperfine_like(hosts: Hosts) -> Speed | None:
    """Mean and standard deviation of each side and "x ± y times faster", as hyperfine says; None with too few."""
    sides = halves(hosts)
    if sides is None:
        return None
    (host, control) = [(statistics.fmean(side), statistics.stdev(side)) for side in sides]
    fast, slow = sorted((host, control))
    ratio = slow[0] / fast[0]
    spread = ratio * math.hypot(slow[1] / slow[0], fast[1] / fast[0])
    return Speed(n=len(sides[0]), host=host, control=control, ratio=ratio, ratio_sd=spread)


def paired(campaign: SealedCampaign) -> Interval:
    """Tare's own control: the interval of the second host's log-ratio to the first, unit by unit."""
    level = campaign.level
    in_slices = is_sliced(campaign)
    units = [unit for unit in campaign.counted if not in_slices or unit.unit in sliced_units(campaign)]
    found = {unit.unit: run_values(unit) if level is None else step_values(unit, level) for unit in units}
    values = pd.DataFrame(found).T
    pairs = contrasts(values.reindex(columns=[HOST, CONTROL]), CONTROL, HOST)
    pilot = sorted(found)[: campaign.plan.sampling.pilot or 0]
    estimate = estimate_of(pairs, design_of(campaign), pilot, sliced=in_slices)
    return estimate.interval(planned_alpha(campaign.plan))
