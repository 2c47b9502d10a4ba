"""What copies of the same files add to a ratio of steps, where benchmarks/copies.py has measured it here.

Every environment launches from its own copy of the files, and keeps it for a whole campaign: what copies
differ by is the same in all rounds, and more of them make it no smaller. It counts where the benchmark finds a
difference. A level of an arm is compared with launches from the same files: nothing of it is in there.
"""

from __future__ import annotations

import math

from tare.model.journals.sealed import SealedCampaign
from tare.model.records.campaigns import OWN
from tare.model.records.measured import CopiesRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.arms import stack_of
from tare.stats.intervals import Spread

ALPHA = 0.05  # of the test that copies do not differ


def matters(found: CopiesRecord) -> bool:
    """Whether copies differ by more than chance."""
    return found.p < ALPHA and found.sd_between.value > 0


def between_copies(found: CopiesRecord | None, campaign: SealedCampaign) -> Spread | None:
    """The standard deviation between copies, in the log of a step, of a campaign that it counts for; else None.

    `campaign`: of steps, with the stack whose copies were measured; of any other nothing is known.
    """
    plan = campaign.plan
    if found is None or not matters(found) or campaign.kind != "steps":
        return None
    if stack_of(plan.levels, plan.stack) != found.stack:
        return None
    return Spread(unit=found.sd_between.value, degrees=len(found.copies) - 1)


def part_of(between: Spread | None, campaign: SealedCampaign, env: str, reference: str) -> Spread | None:
    """What copies add to the log-ratio of a comparison; None where they add nothing.

    To the variance of an environment's copy the mean of the hosts adds half a variance where both have their own
    copies, a whole one where they share one.
    """
    if between is None or reference != HOST:
        return None
    own = (campaign.plan.provenance.get("control") or {}).get("files") == OWN
    variances = {True: 2.0, False: 0.0} if env == CONTROL else {True: 1.5, False: 2.0}
    return between.scaled(math.sqrt(variances[own])) if variances[own] else None
