"""Campaigns to rows of the table `metrics` and `kernels`, each with the identity that every row carries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from tare.analysis.launch_rows import (
    SLOWDOWN,
    Row,
    absent,
    cause_rows,
    failure,
    kernel_rows,
    others_rows,
    slowdown_row,
    turn_rows,
    whole_run_rows,
)
from tare.model.journals.sealed import SealedCampaign
from tare.model.journals.units import both_hosts
from tare.model.records.campaigns import Plan, Unit
from tare.model.registry import ALONE, BASELINE, CONTROL, HOST, SHARED
from tare.model.rows import unavailable
from tare.model.studies.arms import stack_of
from tare.stats.fits import turn_values

LEVELS = ("turn_step_s", "turn_step_mean_s")  # that levels of an arm are compared by


def campaign_metrics(campaign: SealedCampaign) -> list[Row]:
    """Rows of a sealed campaign; units that are discarded or void are left out."""
    plan = campaign.plan
    rows = [
        {**identify(plan, campaign.name, env, batch), "rep": unit.unit, **row}
        for unit in campaign.counted
        for env, batch, found in _unit_rows(plan, unit)
        for row in found
    ]
    rows += [
        {**identify(plan, campaign.name, env, plan.spec["batch"]), "rep": unit.unit, **row}
        for unit in campaign.counted
        for env, row in _slowdowns(plan, unit)
    ]
    rows += [
        {**identify(plan, campaign.name, HOST, plan.spec["batch"]), "rep": unit.unit, **row}
        for unit in campaign.counted
        for row in others_rows(unit)
    ]
    for env, reason in plan.unavailable.items():
        identity = identify(plan, campaign.name, env, plan.spec["batch"])
        rows.append({**identity, "rep": None, **absent(plan.kind, reason)})
        if plan.scenario == SHARED:
            rows.append({**identity, "rep": None, **unavailable(SLOWDOWN, "1", "launcher", reason)})
    if not rows and campaign.ended:  # it never came to a unit, and a study goes on without it
        names = [name for name in plan.environments if plan.optional]
        identities = (identify(plan, campaign.name, name, plan.spec["batch"]) for name in names)
        rows = [{**one, "rep": None, **absent(plan.kind, campaign.ended)} for one in identities]
    return rows


def _slowdowns(plan: Plan, unit: Unit) -> Iterator[tuple[str, Row]]:
    """By environment: its launch beside a neighbour by the one without, where a unit has both."""
    for name in plan.environments:
        if f"{name}{ALONE}" in plan.environments:
            yield name, slowdown_row(unit.launches.get(name), unit.launches.get(f"{name}{ALONE}"))


def headline_beside(campaign: SealedCampaign, others: Iterable[SealedCampaign]) -> list[Row]:
    """Rows of the host at the headline's level, from the blocks that a campaign shared with the headline's own.

    The mean (of logs) of its two hosts, under the numbers of this campaign's units, as `host.headline`. None where
    the campaign has such launches itself, or shares none.
    """
    plan = campaign.plan
    if (
        plan.kind != "turns"
        or plan.arm == plan.headline_arm
        or any(n.endswith(BASELINE) for n in plan.environments)
    ):
        return []
    numbers = {unit.block: unit.unit for unit in campaign.counted if unit.block}
    return [
        {
            **identify(plan, campaign.name, f"{HOST}{BASELINE}", plan.spec["batch"]),
            "rep": numbers[unit.block],
            **row,
        }
        for other in others
        if (other.kind, other.workload, other.plan.arm) == (plan.kind, plan.workload, plan.headline_arm)
        for unit in other.counted
        if unit.block in numbers
        for row in _of_both_hosts(unit)
    ]


def _of_both_hosts(unit: Unit) -> list[Row]:
    hosts, steps = both_hosts(unit), turn_values(unit)
    if hosts is None or not {HOST, CONTROL} <= set(steps):
        return []
    first, second = (turn_rows(launch, steps[name]) for launch, name in zip(hosts, (HOST, CONTROL), strict=True))
    return [
        {**one, "value": math.sqrt(one["value"] * other["value"])}
        for one, other in zip(first, second, strict=True)
        if one["metric"] in LEVELS and one["value"] and other["value"]
    ]


def campaign_kernels(campaign: SealedCampaign) -> list[Row]:
    """Kernel rows of a campaign of causes; none of any other."""
    plan = campaign.plan
    if plan.kind != "causes":
        return []
    return [
        {**identify(plan, campaign.name, env, plan.spec["batch"]), "rep": unit.unit, **row}
        for unit in campaign.counted
        for env, launch in unit.launches.items()
        for row in kernel_rows(launch)
    ]


def _unit_rows(plan: Plan, unit: Unit) -> Iterator[tuple[str, int, list[Row]]]:
    """Environment, batch size and rows of each launch of a unit."""
    steps = turn_values(unit) if plan.kind == "turns" else {}
    for name, launch in unit.launches.items():
        env, batch = (HOST, int(name)) if plan.kind == "sweep" else (name, plan.spec["batch"])
        if not launch.ok or (plan.kind == "turns" and name not in steps):
            yield env, batch, [absent(plan.kind, failure(launch, "the block has no fit"))]
        elif plan.kind == "turns":
            yield env, batch, turn_rows(launch, steps[name])
        else:
            yield env, batch, cause_rows(launch) if plan.kind == "causes" else whole_run_rows(launch)


def identify(plan: Plan, campaign: str, env: str, batch: int | None) -> Row:
    """The identity that every row of a campaign carries."""
    arm = plan.headline_arm if env.endswith(BASELINE) else plan.arm
    return {
        "study": plan.study,
        "campaign": campaign,
        "scenario": plan.scenario,
        "workload": plan.workload,
        "env": env,
        "stack": stack_of(arm, plan.stack, env),
        "arm": arm,
        "batch": batch,
    }


def pivot(metrics: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Measured values of one metric: one row per repetition, one column per environment.

    What stands there more than once is its mean. As pandas' pivot_table, which takes ten times as long for as few
    rows as these.
    """
    chosen = (
        (metrics["metric"] == metric) & (metrics["kind"] != "unavailable") & metrics["rep"].notna()
    ).to_numpy()
    values = metrics["value"].to_numpy(dtype=float, na_value=np.nan)[chosen]
    there = ~np.isnan(values)
    reps, rows = np.unique(metrics["rep"].to_numpy()[chosen][there].astype(int), return_inverse=True)
    names, columns = np.unique(metrics["env"].to_numpy(dtype=object)[chosen][there], return_inverse=True)
    sums, counts = np.zeros((len(reps), len(names))), np.zeros((len(reps), len(names)))
    np.add.at(sums, (rows, columns), values[there])
    np.add.at(counts, (rows, columns), 1)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    index = pd.Index(reps, name="rep", dtype=metrics["rep"].dtype)
    return pd.DataFrame(means, index=index, columns=pd.Index(names, name="env", dtype=metrics["env"].dtype))
