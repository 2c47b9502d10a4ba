"""Whole runs with a co-runner: every environment with a second job and without one, in the same round.

A round launches each environment, and the host a second time, once alone and once while a co-runner trains in a
second instance of the same environment, one launch after the other in balanced order. A co-runner's cost is the
ratio of the two launches of one environment within a round; whether it costs more in one environment than in
another is the ratio of those ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.experiments.designs import (
    Design,
    Row,
    Setup,
    conditions_of,
    declare,
    one_after_other,
    skipped,
    unit_order,
)
from tare.experiments.rounds import headline_levels, whole_run_spec
from tare.launch.pages import of_whole_runs
from tare.launch.place import Site
from tare.launch.run import Order
from tare.launch.scenarios.shared import launch_member
from tare.launch.sites import data_of, data_record
from tare.model.journals.units import WARM, given_up
from tare.model.records.campaigns import Plan, Unit
from tare.model.roles import read_role
from tare.model.specification import Specification
from tare.model.studies import arms
from tare.model.studies.campaigns import sampling_in
from tare.model.studies.sections import Shared
from tare.model.studies.study import RoundsPart
from tare.stats.fits import run_values

FIRST = {name: levels[0] for name, levels in arms.SHARED_FACTORS.items()}  # the headline's


def with_its_data(
    sites: Mapping[str, Site], study: RoundsPart, record: Path | None
) -> tuple[dict[str, Site], dict[str, Any]]:
    """Sites that have the co-runner's data too, and the provenance of those. `record`: of the data, if named.
    Raises UserError: there is no record of them.
    """
    workload = co_runner_of(study).workload
    place, provenance = data_of(workload, record or data_record(workload, study))
    return {name: replace(site, data_of={workload: place}) for name, site in sites.items()}, provenance


def co_runner_of(study: RoundsPart) -> Shared:
    """What a study of this scenario says of the co-runner."""
    assert study.shared is not None
    return study.shared


def co_runner_spec(study: RoundsPart, *, small: bool) -> Specification:
    """The specification of a co-runner."""
    settings = co_runner_of(study)
    batch = settings.small_batch if small and settings.small_batch is not None else settings.batch
    return whole_run_spec(settings.workload, batch, study, settings.options, mode="co_runner")


def rounds_with_co_runner(setup: Setup[RoundsPart]) -> Design:
    """The design of whole runs of one workload, with a co-runner and without one."""
    study, workload, arm = setup.study, setup.workload, setup.arm
    settings = co_runner_of(study)
    headline = {**headline_levels(study), **FIRST}
    levels = arms.levels_of(headline, arm)
    second = co_runner_spec(study, small=levels["co_runner_load"] != FIRST["co_runner_load"])
    plan = declare(
        "rounds",
        setup,
        spec=whole_run_spec(workload, study.workloads[workload].batch, study),
        headline=headline,
        sampling=sampling_in(study, workload, arm, setup.scenario),
        discarded=study.rounds.discarded,
        co_runner=settings.workload,
        margins=dict(study.margins),
    )

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        order, pads = unit_order(plan, done, plan.launch_names)
        if sum(unit.voided is None for unit in done) < plan.discarded and plan.conditions.page_cache == WARM:
            alone = [name for name in order if read_role(name).is_alone]
            return one_after_other(plan, setup.sites, done, alone, pads)  # a co-runner reads no other files
        gone = given_up(done)
        launches = {
            name: skipped(gone[name])
            if name in gone
            else launch_member(
                name,
                Order(
                    site=setup.sites[name],
                    program=plan.spec,
                    conditions=conditions_of(plan, name),
                    pad_bytes=pads[name],
                ),
                second,
                levels["limits"],
                threads=settings.threads,
            )
            for name in order
        }
        pages = dict.fromkeys(order, of_whole_runs(plan.conditions.page_cache))
        return {"order": list(order), "launches": launches, "pages": pages}

    what = f"{workload} rounds alongside {settings.workload}{', ' + arm.name if arm else ''}"
    return Design(plan=plan, run_unit=run_unit, values=run_values, what=what)
