"""Did they compute the same? The last losses of launches that are compared, against each other.

A loss that agrees to rounding is no proof that two launches did the same work, but one that does not is proof that
they did not: then a difference in time says nothing about environments.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tare.model.registry import SINGLE
from tare.model.studies.layout import STEPS, is_headline, kind_of, read_name
from tare.model.studies.study import HOST
from tare.report.evidence import Evidence
from tare.report.words.labels import arm_title, env_title, units_text, workload_title

LARGEST_RELATIVE_LOSS = 1e-4  # single precision, sums in another order: some thousand roundings of 6e-8
LOSS_OF = {"rounds": "loss_last", "steps": "step_loss_last"}


@dataclass(frozen=True, kw_only=True)
class LossCheck:
    """Whether the launches of one campaign computed the same thing; None where there is nothing to compare."""

    workload: str
    equal: bool | None
    sentence: str


def loss_checks(evidence: Evidence) -> list[LossCheck]:
    """One check per campaign of whole runs, and of steps: the headline's of each workload, then the arms'."""
    found = []
    metrics = evidence.metrics
    for workload in evidence.workloads:
        own = metrics[(metrics["workload"] == workload) & (metrics["kind"] == "measured")]
        names = [c.name for c in evidence.views if c.workload == workload and c.kind in LOSS_OF]
        for name in sorted(names, key=lambda n: (not is_headline(n), names.index(n))):
            rows = own[(own["campaign"] == name) & (own["metric"] == LOSS_OF[kind_of(name)])]
            arm = read_name(name).arm
            if arm is not None and arm.other_stack:  # across stacks a loss may differ: it is held within its own
                rows = _at_its_level(rows)
            # As across settings of the framework, other input, and another way to exchange gradients.
            if arm is not None and (arm.is_inside or arm.is_grouped):
                rows = _at_its_level(rows)
                if rows.empty:
                    continue  # it could not be had; where settings are weighed the page says why
            found.append(loss_check(workload, rows, name))
    return found


def _at_its_level(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows without those of launches at the headline's levels."""
    return rows[rows["launch_role"] != "headline"]


def loss_check(workload: str, rows: pd.DataFrame, campaign: str | None = None) -> LossCheck:
    """The check of one campaign, from its rows of the last loss.

    Whole runs all make the same steps: every launch is held against the first one on the host. Rounds may
    measure different numbers of steps: every launch is held against the host of its own round.

    Args:
        workload: its name.
        rows: of `loss_last` or `step_loss_last`.
        campaign: its name; where it is not given, the rows' own.
    """
    name = campaign or (str(rows["campaign"].iloc[0]) if len(rows) else "")
    title = _title(workload, name)
    kind = STEPS if (rows["metric"] == LOSS_OF[STEPS]).any() else kind_of(name)
    own = rows.assign(reference=_references(rows, kind))
    own = own[own["reference"].notna()]
    if own.empty:
        return LossCheck(workload=workload, equal=None, sentence=f"{title}: no launch on the host left a loss.")
    distance = (own["value"] - own["reference"]).abs() / own["reference"].abs()
    worst = own.loc[distance.idxmax()]
    largest, where = float(distance.max()), env_title(str(worst["launch"]))
    counted, end = _counted(own, kind)
    if largest == 0:
        losses = own["reference"].unique()
        shown = f", {losses[0]:.6f}" if len(losses) == 1 else ""
        text = f"{title}: {counted} ended {end} with the very same loss{shown}."
    elif largest <= LARGEST_RELATIVE_LOSS:
        text = (
            f"{title}: {counted} ended {end} with the same loss within floating-point tolerance: "
            f"{worst['reference']:.6f}; the largest relative difference is {largest:.1e} ({where})."
        )
    else:
        text = (
            f"{title}: the losses differ by up to {largest:.2g} of {worst['reference']:.6f} ({where}), more than "
            f"rounding explains ({LARGEST_RELATIVE_LOSS:.0e}). What is faster here may compute something else."
        )
    return LossCheck(workload=workload, equal=largest <= LARGEST_RELATIVE_LOSS, sentence=text)


def _title(workload: str, campaign: str) -> str:
    named = read_name(campaign)
    what = {"rounds": "whole runs", "steps": "training steps"}.get(kind_of(campaign), "runs")
    beside = "" if named.scenario == SINGLE else f", {named.scenario}"
    return f"{workload_title(workload)}, {what}{f', {arm_title(named.arm.name)}' if named.arm else ''}{beside}"


def _references(rows: pd.DataFrame, kind: str) -> pd.Series:
    """What each row is held against."""
    hosts = rows[rows["launch"] == HOST].sort_values("rep")
    if kind == STEPS:
        return rows["rep"].map(hosts.set_index("rep")["value"])
    return pd.Series(float(hosts["value"].iloc[0]) if len(hosts) else float("nan"), index=rows.index)


def _counted(rows: pd.DataFrame, kind: str) -> tuple[str, str]:
    """How many launches in how many environments, and what they ended."""
    places = rows["environment"].nunique()
    launches = f"{len(rows)} launches in {places} environment{'s' if places > 1 else ''}"
    if kind == STEPS:
        rounds = rows["rep"].nunique()
        within = "one round" if rounds == 1 else f"{units_text(rounds, kind)}, each held against its own host,"
        return f"{launches} and {within}", "their steps"
    return launches, "the epoch"
