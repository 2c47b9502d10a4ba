"""How far a campaign is, as if its units went on to cost and vary as they did: for the line of progress alone.

It decides nothing: the number of units is decided once, by `tare.stats.planning.decide`, when the pilot is whole.
The half-width is that of Student's interval at the planned level; the deciding one may be wider
(tare.analysis.verdicts).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tare.core import status
from tare.experiments.designs import Design
from tare.model.journals import units as measured
from tare.model.records.campaigns import Plan, Unit
from tare.stats.intervals import log_ratios_of, stein_units, student
from tare.stats.planning import paid_units

TOLD_FROM = 3  # units: the interval of two says nothing yet


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """How far one campaign is.

    Attributes:
        what: it measures.
        done, total: units that are finished, and in all, discarded ones among them.
        left_s: seconds that the others will take; None before a unit that counts tells.
        half_width: of the widest interval so far, relative; None where there is none.
        wanted: half-width, relative; None where the number of units is fixed.
    """

    what: str
    done: int
    total: int
    left_s: float | None
    half_width: float | None
    wanted: float | None

    @property
    def distance(self) -> float:
        """The widest interval by the wanted one; 0 where either is missing."""
        return (self.half_width or 0.0) / self.wanted if self.wanted else 0.0


def of(
    design: Design,
    plan: Plan,
    done: Sequence[Unit],
    values: Sequence[Mapping[str, float]],
    total: int,
    *,
    undecided: bool,
) -> Outlook:
    """The outlook of a campaign.

    Args:
        design: that it runs.
        plan: as it was started.
        done: its units so far.
        values: of those that count, by name of the launch.
        total: units that have to be finished, as far as is known.
        undecided: their number is still to be decided, if the plan has a pilot.
    """
    whole = [unit for unit in done if unit.voided is None]
    own = measured.counted(whole)
    unit_s: float | None = None  # what is discarded is often no whole unit, or more than one
    if own:
        unit_s = sum(unit.cost_s for unit in own) / len(own)
    alpha = measured.planned_alpha(plan)
    ratios = {
        name: logs for name, logs in log_ratios_of(values, plan.environments).items() if len(logs) >= TOLD_FROM
    }
    if unit_s is not None and undecided and plan.sampling.pilot is not None:
        total = plan.discarded + _foreseen(design, plan, done, ratios, alpha, unit_s)
    halves = [student(logs).half_width(alpha) for logs in ratios.values()]
    widest = max((half for half in halves if half is not None), default=None)
    return Outlook(
        what=design.what,
        done=min(len(whole), total),
        total=total,
        left_s=None if unit_s is None else max(0, total - len(whole)) * unit_s,
        half_width=None if widest is None else math.expm1(widest),
        wanted=plan.sampling.half_width,
    )


def _foreseen(
    design: Design,
    plan: Plan,
    done: Sequence[Unit],
    ratios: Mapping[str, Sequence[float]],
    alpha: float,
    unit_s: float,
) -> int:
    """Units that count which `decide` will ask for, if those to come cost and vary as those that are done."""
    sampling = plan.sampling
    pilot, shares = sampling.pilot or 0, design.shares(done)
    if not ratios or sampling.half_width is None:
        return shares * pilot
    half = math.log1p(sampling.half_width)
    spread = max(float(np.std(logs, ddof=1)) for logs in ratios.values())
    spent_s = sum(unit.cost_s for unit in done if not unit.counts) + shares * pilot * unit_s
    paid = paid_units(pilot, (sampling.budget_s or 0.0) - spent_s, shares * unit_s)
    return shares * min(paid, stein_units(spread, half, pilot, alpha))


def left_s(found: Iterable[Outlook]) -> float | None:
    """Seconds left of campaigns whose units come one after the other or together; None where one does not know."""
    lefts = [one.left_s for one in found]
    known = [left for left in lefts if left is not None]
    return sum(known) if len(known) == len(lefts) else None


def tell(found: Mapping[Path, Outlook]) -> None:
    """Tell the line of progress of a command's campaigns, by their summaries: the one farthest from its end."""
    going = [one for one in found.values() if one.done < one.total] or list(found.values())
    shown = max(going, key=lambda one: one.distance)
    status.tell(
        status.Status(
            outs=tuple(os.path.relpath(out) for out in found),
            what=shown.what,
            done=shown.done,
            total=shown.total,
            left_s=left_s(going),
            half_width=shown.half_width,
            wanted=shown.wanted,
            at_s=time.monotonic(),
        )
    )
