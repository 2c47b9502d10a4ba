"""Training steps that sealed campaigns of a machine timed: what environments add to a step, from rounds in slices.

These ratios to the host are of launches that shared the machine in the same slices, in every round of a study.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import counted
from tare.model.levels import ALLOCATOR
from tare.model.registry import HOST, describe_workload
from tare.predict.rows import Timed
from tare.predict.targets import TargetRecord, headline_rounds
from tare.stats.fits import step_values

FEWEST = 6  # rounds, as for a verdict


def steps_of_campaigns(target: TargetRecord, *, held_out: str | None = None) -> list[Timed]:
    """Steps on the host and in environments, of a target's machine and stack: medians over rounds.

    `held_out`: the title of a network whose steps are not used.
    """
    found = []
    for campaign in headline_rounds(target.machine, target.stack):
        if campaign.plan.conditions.threads in target.threads:
            found += [one for one in _timed(campaign) if one.network != held_out]
    return found


def _timed(campaign: SealedCampaign) -> Iterator[Timed]:
    plan, units = campaign.plan, counted(campaign.units)
    title = str(describe_workload(campaign.workload, plan.spec.options)["title"])
    job = str(campaign.path), campaign.workload, plan.spec.batch  # compared with no other's
    for level in plan.measured.levels if plan.measured else ():
        values = [step_values(unit, level) for unit in units]
        host = [one[HOST] for one in values if HOST in one]
        for role in plan.launches:
            ratios = [math.log(one[role.name] / one[HOST]) for one in values if {role.name, HOST} <= set(one)]
            if len(ratios) >= FEWEST and not role.is_control:
                yield Timed(
                    network=title,
                    job=job,
                    env=role.environment,
                    settings=() if level == "default" else ((ALLOCATOR, level),),
                    seconds=statistics.median(host) * math.exp(statistics.median(ratios)),
                )
