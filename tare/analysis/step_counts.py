"""What a step counts in addition to its time: page faults and involuntary switches, as differences to the host.

Per round, the environment's number per step less the mean of the two hosts'; the control is the second host's less
the first's. Counts can be zero and come in storms: differences instead of ratios, an interval from signed ranks,
at a Bonferroni level over environments and counts of the campaign. They explore: there is no margin and no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tare.analysis.metrics import identity_of, pivot
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import compared
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role
from tare.model.studies.cells import launch_columns
from tare.stats.intervals import Interval
from tare.stats.ranks import fewest_values, signed_rank_interval

COUNTS = ("step_page_faults", "step_preemptions")


def count_rows(campaign: SealedCampaign, metrics: pd.DataFrame, share: float = 1.0) -> list[dict[str, Any]]:
    """Rows of the table `counts` for a view of training steps, whose metric rows these are; none of any other.

    `share`: of alpha that it may spend.
    """
    environments = compared(campaign.plan)
    if campaign.kind != "steps" or not environments:
        return []
    family = len(environments) * len(COUNTS)
    alpha = share * (1 - campaign.plan.sampling.confidence) / family
    identity = identity_of(metrics)
    rows = []
    for metric in COUNTS:
        values = pivot(metrics, metric).reindex(columns=list(campaign.plan.launch_names))
        control = signed_rank_interval(differences(values, CONTROL, [HOST]), alpha)
        for env in environments:
            found = signed_rank_interval(differences(values, env, [HOST, CONTROL]), alpha)
            rows.append(
                {
                    **identity,
                    **launch_columns(read_role(env), campaign.plan.scenario),
                    "metric": metric,
                    "n_units": found.n,
                    "host": _mean(values[[HOST, CONTROL]].mean(axis=1)),
                    "value": _mean(values[env]),
                    **found.columns("difference", "ci_low", "ci_high"),
                    **control.columns("control_difference", "control_ci_low", "control_ci_high"),
                    "alpha": alpha,
                    "family_size": family,
                    "reason": _reason(found, alpha),
                }
            )
    return rows


def differences(values: pd.DataFrame, env: str, hosts: Sequence[str]) -> list[float]:
    """Per unit that has them all: `env` less the mean of `hosts`."""
    complete = values[[env, *hosts]].dropna()
    return [float(value) for value in complete[env] - complete[list(hosts)].mean(axis=1)]


def _mean(values: pd.Series) -> float | None:
    return None if values.dropna().empty else float(values.mean())


def _reason(found: Interval, alpha: float) -> str | None:
    if found.low is not None:
        return None
    return f"{found.n} complete units: an interval from ranks takes {fewest_values(alpha)} at this level"
