"""What the campaigns of a study will take, before anything runs: by earlier ones of this machine, else estimated.

A forecast decides nothing: the campaign's own pilot does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tare.analysis import tries
from tare.analysis.plans import expected
from tare.analysis.plans.minutes import newest_here
from tare.model.studies import arms
from tare.model.studies.campaigns import campaigns, sampling_in
from tare.model.studies.layout import ROUNDS
from tare.model.studies.study import Study

ESTIMATED = "estimated for two cores, since this machine has not measured these campaigns"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """One campaign at one precision, in seconds of machine time."""

    campaign: str
    workload: str
    units: int | None  # None where nothing is known before its pilot
    seconds: float
    capped: bool  # whether its time budget pays fewer units
    source: str  # where it comes from, for people


def forecasts(study: Study, folder: Path, half_width: float | None = None) -> Iterator[Forecast]:
    """A forecast for every comparison of a study.

    `folder`: of the study's campaigns on this machine. `half_width`: relative; None for the study's.
    """
    ledger = tries.Study(folder)
    settings = study.rounds if half_width is None else study.rounds.replace(half_width=half_width)
    for one in (one for one in campaigns(study) if one.kind == ROUNDS):
        arm = arms.parse(one.arm) if one.arm else None
        sampling = sampling_in(study, one.workload, arm, one.scenario)
        units, seconds, source = sampling.units, expected.campaign_s(study, one), ESTIMATED
        earlier = newest_here(folder / one.workload / one.name)
        if earlier is not None:
            units = units or earlier.decided(settings, ledger.next_attempt((one.workload, one.name)))
            seconds, source = earlier.work.seconds(units), f"from {earlier.campaign.path.parent}"
        yield Forecast(
            campaign=one.name,
            workload=one.workload,
            units=units,
            seconds=seconds,
            capped=not sampling.units and seconds > (sampling.budget_s or math.inf),
            source=source,
        )
