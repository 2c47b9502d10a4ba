"""What an image costs once, and what a run in it saves: the numbers from which it follows when building pays.

What a run saves is the verdict's interval of the ratio of whole runs, times the median of the host's: modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from tare.analysis import image_costs, naive_images
from tare.analysis.choice import METRIC_OF, of_rounds
from tare.model.registry import HOST

METRIC = METRIC_OF["rounds"]
OURS, NAIVE = "our", "the naive"


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image that may be built.

    Attributes:
        env: that runs it.
        whose: OURS, or NAIVE: that of a Dockerfile as people write it, of which no run was measured.
        build_s: measured, once.
        size_bytes: that a pull moves; None where it was not counted.
        low_s, high_s: ends of the seconds that a run saves; below zero where it takes longer than on the host.
    """

    env: str
    whose: str
    build_s: float
    size_bytes: float | None
    low_s: float
    high_s: float


def built(
    costs: pd.DataFrame, verdicts: pd.DataFrame, metrics: pd.DataFrame, workload: str, stack: str | None = None
) -> Iterator[Built]:
    """Every contained environment whose image has seconds, and an interval of whole runs of a workload.

    Args:
        costs, verdicts, metrics: the tables.
        workload: whose whole runs.
        stack: whose images; that of the workload's whole runs where it is not given.
    """
    if stack is None:
        stack = next(iter(of_rounds(metrics, workload)["stack"]), "")
    for env in image_costs.environments_of(costs, stack):
        saved = saved_seconds(verdicts, metrics, workload, env)
        if env == HOST or saved is None:
            continue
        found = [(OURS, image_costs.cost(costs, stack, env, "ready_s"), _pulled_bytes(costs, stack, env))]
        if env == "docker":
            image = naive_images.IMAGE
            names = ("naive_build_s", "naive_push_bytes")
            build_s, size = (image_costs.cost(costs, stack, image, name) for name in names)
            found.append((NAIVE, build_s, size))
        for whose, build_s, size in found:
            if build_s is not None:
                yield Built(env=env, whose=whose, build_s=build_s, size_bytes=size, low_s=saved[0], high_s=saved[1])


def _pulled_bytes(costs: pd.DataFrame, stack: str, env: str) -> float | None:
    """What another machine gets: the form that is one file, else the image, compressed where that was counted."""
    own = costs[(costs["stack"] == stack) & (costs["env"] == env) & (costs["item"] == "archive_bytes")]
    packed = image_costs.cost(costs, stack, naive_images.IMAGE, "ours_push_bytes")
    if packed is not None and (own["source"] == image_costs.OCI_ARCHIVE).any():
        return packed
    return image_costs.cost(costs, stack, env, "archive_bytes")


def saved_seconds(
    verdicts: pd.DataFrame, metrics: pd.DataFrame, workload: str, env: str
) -> tuple[float, float] | None:
    """Ends of the seconds that a whole run saves beside the host's; None where there is no interval."""
    judged = of_rounds(verdicts, workload)
    own = judged[(judged["env"] == env) & (judged["metric"] == METRIC) & (judged["reference"] == HOST)]
    runs = of_rounds(metrics, workload)
    host = runs[(runs["env"] == HOST) & (runs["metric"] == METRIC)]["value"].dropna()
    if own.empty or host.empty or own[["ci_low", "ci_high"]].iloc[0].isna().any():
        return None
    median_s = float(host.median())
    return median_s * (1 - float(own["ci_high"].iloc[0])), median_s * (1 - float(own["ci_low"].iloc[0]))
