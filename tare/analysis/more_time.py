"""What more time would tell: how many units, and how long, until intervals are as narrow as a verdict needs.

As if spreads and the cost of a unit stayed what they are. A sealed campaign is never extended, so that every
number is of a new one, from its first unit on. It decides nothing: a campaign's own pilot does.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.analysis.choice import METRIC_OF
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import compared, shares
from tare.model.registry import HOST
from tare.model.tables import INCONCLUSIVE
from tare.stats.intervals import MOST_UNITS, Interval, judge, t_quantile


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """One campaign of whole runs or training steps, and what it would take to tell more.

    Attributes:
        campaign: that was sealed.
        units: that count in the comparison that has most.
        unit_s: seconds of machine time that one takes, on average.
        fewest: that a verdict takes.
        comparisons: of environments with the host; of these
        undecided: can't be told yet,
        too_few: have fewer units than a verdict takes,
        but_for_units: of those, would be told by their interval if they had them,
        without: have no interval.
        half_width: of the widest interval, relative, as the next three; None where there is none.
        margin: that it is held against.
        wanted: that the study asked for; None where it fixes the number of units.
        goal: the width that takes more units: the margin's, or the wanted one; None where the widest has both.
        needed: units in all until the widest has the goal, each comparison enough for a verdict, and what can't be
            told can be; `units` where they suffice, None where nobody can say.
    """

    campaign: SealedCampaign
    units: int
    unit_s: float
    fewest: int
    comparisons: int
    undecided: int
    too_few: int
    but_for_units: int
    without: int
    half_width: float | None
    margin: float
    wanted: float | None
    goal: float | None
    needed: int | None

    @property
    def took_s(self) -> float:
        """Seconds that its units took."""
        return self.units * self.unit_s

    @property
    def needed_s(self) -> float | None:
        """Seconds of the units that it needs."""
        return None if self.needed is None else self.needed * self.unit_s


def prospects(campaigns: Iterable[SealedCampaign], verdicts: pd.DataFrame) -> list[Prospect]:
    """One for each campaign of whole runs or training steps that compares environments with the host, in order.

    Args:
        campaigns: sealed ones of a study, of any kind.
        verdicts: the study's table.
    """
    found = []
    for campaign in campaigns:
        rows = verdicts[
            (verdicts["workload"] == campaign.workload)
            & (verdicts["campaign"] == campaign.name)
            & (verdicts["metric"] == METRIC_OF.get(campaign.kind))
            & (verdicts["reference"] == HOST)
        ]
        if len(rows) and campaign.counted:
            found.append(_prospect(campaign, rows))
    return found


def _prospect(campaign: SealedCampaign, rows: pd.DataFrame) -> Prospect:
    sampling, margin = campaign.plan.sampling, float(rows["margin"].iloc[0])
    undecided = rows[rows["verdict"] == INCONCLUSIVE]
    too_few = undecided[undecided["n_units"] < sampling.verdict_units]
    told = rows[rows["ci_low"].notna() & rows["ci_high"].notna()]
    widths = (told["ci_high"] / told["ci_low"]).map(math.log) / 2
    half = float(widths.max()) if len(told) else None
    limits = [limit for limit in (margin, sampling.half_width) if limit is not None]
    goal = None if half is None else next((limit for limit in limits if half > math.log1p(limit)), None)
    units = int(rows["n_units"].max())
    enough: list[int | None] = [units, sampling.verdict_units if len(too_few) else 0]
    for row in undecided.itertuples():
        enough.append(None if pd.isna(row.more_units) else int(row.n_units + row.more_units))
    if half is not None and goal is not None:
        widest = told.loc[widths.idxmax()]
        enough.append(units_for_width(math.log1p(goal), half, int(widest["n_units"]), float(widest["alpha"])))
    return Prospect(
        campaign=campaign,
        units=units,
        unit_s=_unit_s(campaign),
        fewest=sampling.verdict_units,
        comparisons=len(rows),
        undecided=len(undecided),
        too_few=len(too_few),
        but_for_units=sum(_judged(row, margin) != INCONCLUSIVE for row in too_few.itertuples()),
        without=len(rows) - len(told),
        half_width=None if half is None else math.expm1(half),
        margin=margin,
        wanted=sampling.half_width,
        goal=goal,
        needed=None if None in enough else max(count for count in enough if count is not None),
    )


def units_for_width(wanted: float, half_width: float, units: int, alpha: float) -> int | None:
    """Units in all with which an interval would have the wanted half-width, as if its spread stayed what it is.

    Args:
        wanted: half-width, of the log-ratio.
        half_width: that it has, of the log-ratio: Student's, from independent units.
        units: two or more.
        alpha: of the interval.

    Returns:
        `units` at least; None where MOST_UNITS are too few.
    """
    spread = half_width * math.sqrt(units) / t_quantile(alpha, units - 1)
    sizes = range(units, MOST_UNITS + 1)
    found = bisect_left(sizes, True, key=lambda n: t_quantile(alpha, n - 1) * spread / math.sqrt(n) <= wanted)
    return sizes[found] if found < len(sizes) else None


def _judged(row: Any, margin: float) -> str:
    """What the interval alone says, whatever the number of units."""
    if pd.isna(row.ci_low) or pd.isna(row.ci_high):
        return INCONCLUSIVE
    low, high = math.log(row.ci_low), math.log(row.ci_high)
    return judge(Interval(n=int(row.n_units), mean=(low + high) / 2, low=low, high=high), margin)


def _unit_s(campaign: SealedCampaign) -> float:
    """Seconds of machine time of a round, of all rounds that have each environment once where they differ."""
    own = campaign.counted
    return shares(own, compared(campaign.plan)) * sum(unit.cost_s for unit in own) / len(own)


def of_one_more(campaigns: Iterable[SealedCampaign]) -> float:
    """Seconds that campaigns would take for one environment more: the mean share of a launch, in every unit.

    Campaigns that compare no environments take none. What its image takes is not in it.
    """
    found = 0.0
    for campaign in campaigns:
        has_control = any(role.role == "control" for role in campaign.plan.launches)
        if has_control and (campaign.arm is None or not campaign.arm.is_setting):
            found += sum(unit.cost_s for unit in campaign.units) / len(campaign.plan.launches)
    return found
