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
    no_steps,
    others_rows,
    slowdown_row,
    step_rows,
    whole_run_rows,
)
from tare.analysis.sliced_rounds import slice_rows, tail_rows
from tare.model.journals.sealed import HEADLINE_LEVEL, SealedCampaign
from tare.model.journals.units import both_hosts
from tare.model.levels import columns_of_levels
from tare.model.records.campaigns import Plan, Unit
from tare.model.registry import HOST, SHARED
from tare.model.roles import CONTROL, alone_of, read_role, reference_of
from tare.model.rows import unavailable
from tare.model.studies.cells import cell_of
from tare.stats.fits import step_values

IDENTITY = ("study", "machine", "campaign", "scenario", "workload", "stack", "batch")
LEVELS = ("step_s", "step_mean_s")  # that levels of an arm are compared by


def campaign_metrics(campaign: SealedCampaign) -> list[Row]:
    """Rows of a sealed campaign; units that are discarded or void are left out."""
    plan, batch = campaign.plan, campaign.plan.spec.batch
    rows = [
        {**identify(plan, campaign.name, env, size), "rep": unit.unit, **row}
        for unit in campaign.counted
        for env, size, found in _unit_rows(campaign, unit)
        for row in found
    ]
    rows += [
        {**identify(plan, campaign.name, env, batch), "rep": unit.unit, **row}
        for unit in campaign.counted
        for env, row in _whole_unit_rows(campaign, unit)
    ]
    for env, reason in plan.unavailable.items():
        identity = identify(plan, campaign.name, env, batch)
        rows.append({**identity, "rep": None, **absent(campaign.kind, reason)})
        if plan.scenario == SHARED and campaign.level is None:
            rows.append({**identity, "rep": None, **unavailable(SLOWDOWN, "1", "launcher", reason)})
    if not rows and campaign.ended:  # it never came to a unit, and a study goes on without it
        names = [name for name in plan.launch_names if plan.optional]
        identities = (identify(plan, campaign.name, name, batch) for name in names)
        rows = [{**one, "rep": None, **absent(campaign.kind, campaign.ended)} for one in identities]
    return rows


def _slowdowns(plan: Plan, unit: Unit) -> Iterator[tuple[str, Row]]:
    """By environment: the ratio of its launch with a co-runner to the one without it, where a unit has both."""
    for role in plan.launches:
        if not role.is_alone and (alone := alone_of(role.name)) in plan.launch_names:
            yield role.name, slowdown_row(unit.launches.get(role.name), unit.launches.get(alone))


def headline_hosts(campaign: SealedCampaign, others: Iterable[SealedCampaign]) -> list[Row]:
    """Rows of the host's training steps at the headline's level of the allocator, from the same rounds.

    The mean (of logs) of its two hosts, under the same unit's number, as `host.headline`. None of whole runs, of
    the headline's level itself, and where the campaign has launches as in the headline.
    """
    plan = campaign.plan
    if campaign.level in (None, HEADLINE_LEVEL) or any(role.is_reference for role in plan.launches):
        return []
    return [
        {**identify(other.plan, campaign.name, reference_of(HOST), plan.spec.batch), "rep": unit.unit, **row}
        for other in others
        if (other.path, other.level) == (campaign.path, HEADLINE_LEVEL)
        for unit in other.counted
        for row in _of_both_hosts(unit, HEADLINE_LEVEL)
    ]


def _of_both_hosts(unit: Unit, level: str) -> list[Row]:
    hosts, steps = both_hosts(unit), step_values(unit, level)
    if hosts is None or not {HOST, CONTROL} <= set(steps):
        return []
    first, second = (
        step_rows(launch, level, steps[name]) for launch, name in zip(hosts, (HOST, CONTROL), strict=True)
    )
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
        {**identify(plan, campaign.name, env, plan.spec.batch), "rep": unit.unit, **row}
        for unit in campaign.counted
        for env, launch in unit.launches.items()
        for row in kernel_rows(launch)
    ]


def _unit_rows(campaign: SealedCampaign, unit: Unit) -> Iterator[tuple[str, int, list[Row]]]:
    """Environment, batch size and rows of each launch of a unit."""
    kind, batch, level = campaign.kind, campaign.plan.spec.batch, campaign.level
    steps = step_values(unit, level) if level is not None else {}
    for name, launch in unit.launches.items():
        if level is not None:
            found = (
                step_rows(launch, level, steps[name]) if name in steps else [absent(kind, no_steps(launch, level))]
            )
            yield name, batch, found
            continue
        role = read_role(name)
        env, size = (name, batch) if role.batch is None else (role.environment, role.batch)
        if not launch.ok:
            yield env, size, [absent(kind, failure(launch))]
        elif kind == "causes":
            yield env, size, cause_rows(launch)
        else:
            yield env, size, [*whole_run_rows(launch), *slice_rows(launch)]


def _whole_unit_rows(campaign: SealedCampaign, unit: Unit) -> Iterator[tuple[str, Row]]:
    """By environment, what a unit says of several of its whole runs together, and of the machine."""
    if campaign.level is not None:
        return
    yield from _slowdowns(campaign.plan, unit)
    yield from tail_rows(unit)
    for row in others_rows(unit):
        yield HOST, row


def identify(plan: Plan, campaign: str, env: str, batch: int | None) -> Row:
    """The identity that every row of a campaign carries; a command has no batch that anybody knows."""
    return cell_of(plan, campaign, env, None if plan.is_command else batch).row()


def identity_of(metrics: pd.DataFrame) -> Row:
    """What rows of one campaign have in common, of its launches at its own levels."""
    own = metrics[metrics["launch_role"] != "headline"]
    first = (own if len(own) else metrics).iloc[0]
    return dict(first[[*IDENTITY, *columns_of_levels(metrics.columns)]])


def pivot(metrics: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Measured values of one metric: one row per repetition, one column per environment.

    Several values of one launch are replaced by their mean. Equals pandas' pivot_table, which takes ten times as
    long for so few rows.
    """
    chosen = (
        (metrics["metric"] == metric) & (metrics["kind"] != "unavailable") & metrics["rep"].notna()
    ).to_numpy()
    values = metrics["value"].to_numpy(dtype=float, na_value=np.nan)[chosen]
    there = ~np.isnan(values)
    reps, rows = np.unique(metrics["rep"].to_numpy()[chosen][there].astype(int), return_inverse=True)
    names, columns = np.unique(metrics["launch"].to_numpy(dtype=object)[chosen][there], return_inverse=True)
    sums, counts = np.zeros((len(reps), len(names))), np.zeros((len(reps), len(names)))
    np.add.at(sums, (rows, columns), values[there])
    np.add.at(counts, (rows, columns), 1)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    index = pd.Index(reps, name="rep", dtype=metrics["rep"].dtype)
    return pd.DataFrame(means, index=index, columns=pd.Index(names, name="launch", dtype=metrics["launch"].dtype))
