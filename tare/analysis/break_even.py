"""What an image costs once, and what a run in it saves: the numbers from which it follows when building pays.

What a run saves is the verdict's interval of the ratio of whole runs, times the median of the host's: modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from tare.analysis import image_costs
from tare.analysis.choice import METRIC_OF, of_rounds
from tare.model.registry import HOST

METRIC = METRIC_OF["rounds"]
OURS, NAIVE = "our", "the naive"


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image that may be built."""

    env: str  # that runs it
    whose: str  # OURS, or NAIVE: the image that a user would write by hand, of which no run was measured
    build_s: float  # measured, once
    size_bytes: float | None  # that a pull moves, as far as it was counted: of Docker's not compressed
    # `low_s`, `high_s`: ends of the seconds that a run saves; below zero where it takes longer than on the host
    low_s: float
    high_s: float


def built(
    costs: pd.DataFrame, verdicts: pd.DataFrame, metrics: pd.DataFrame, workload: str, stack: str | None = None
) -> Iterator[Built]:
    """Every contained environment whose image has seconds, and an interval of whole runs of a workload.

    `stack`: whose images; None for that of the workload's whole runs.
    """
    if stack is None:
        stack = next(iter(of_rounds(metrics, workload)["stack"]), "")
    for env in image_costs.environments_of(costs, stack):
        saved = saved_seconds(verdicts, metrics, workload, env)
        if env == HOST or saved is None:
            continue
        items = {OURS: ("ready_s", "archive_bytes"), NAIVE: (image_costs.NAIVE_BUILD, image_costs.NAIVE_BYTES)}
        for whose, names in items.items():
            build_s, size = (image_costs.cost(costs, stack, env, name) for name in names)
            if build_s is not None:
                yield Built(env=env, whose=whose, build_s=build_s, size_bytes=size, low_s=saved[0], high_s=saved[1])


def saved_seconds(
    verdicts: pd.DataFrame, metrics: pd.DataFrame, workload: str, env: str
) -> tuple[float, float] | None:
    """Ends of the seconds that a whole run saves against the host's; None where there is no interval."""
    judged = of_rounds(verdicts, workload)
    own = judged[(judged["launch"] == env) & (judged["metric"] == METRIC) & (judged["reference"] == HOST)]
    runs = of_rounds(metrics, workload)
    host = runs[(runs["launch"] == HOST) & (runs["metric"] == METRIC)]["value"].dropna()
    if own.empty or host.empty or own[["ci_low", "ci_high"]].iloc[0].isna().any():
        return None
    median_s = float(host.median())
    return median_s * (1 - float(own["ci_high"].iloc[0])), median_s * (1 - float(own["ci_low"].iloc[0]))
