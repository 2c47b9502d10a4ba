"""Rounds: whole runs of every environment and a second host, one after the other in balanced order.

The round is the unit of every statistic on whole runs. The batch sweep is a campaign of the same kind: one unit
runs every batch size once on the host, in balanced order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.experiments.designs import Design, Row, Setup, declare, job_spec, one_after_other, unit_order
from tare.launch.place import Site
from tare.model.records.campaigns import Plan, Sampling, Unit
from tare.model.schema import parse
from tare.model.studies.study import HOST, Rounds, sampling_of
from tare.stats.fits import run_values

METRIC = "real_s"
LOADER_WORKERS = 1  # as in the nyu2022 paper; of a workload that has an option of that name, as the study says


def whole_run_spec(workload: str, batch: int, study: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch of a whole run does inside."""
    job = job_spec("train", workload, batch, study)
    return {**job, "loader_workers": job.get("options", {}).get("loader_workers", LOADER_WORKERS)}


def headline_levels(study: Mapping[str, Any]) -> dict[str, str]:
    """Levels at which whole runs are compared: as people run them."""
    return {
        "stack": "same",
        "allocator": study["rounds"]["allocator"],
        "page_cache": study["conditions"]["page_cache"],
    }


def rounds(setup: Setup) -> Design:
    """Whole runs of one workload."""
    study, workload, arm = setup.study, setup.workload, setup.arm
    plan = declare(
        "rounds",
        setup,
        spec=whole_run_spec(workload, study["workloads"][workload]["batch"], study),
        headline=headline_levels(study),
        sampling=sampling_of(parse(Rounds, study["rounds"], "rounds"), study["confidence"], METRIC, arm),
        discarded=study["rounds"]["discarded"],
        margins=study["margins"],
    )

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        order, pads = unit_order(plan, done, plan.environments)
        return one_after_other(plan, setup.sites, done, order, pads)

    what = f"{workload} rounds{', ' + arm.name if arm else ''}"
    return Design(plan=plan, run_unit=run_unit, values=run_values, what=what)


def sweep(setup: Setup) -> Design:
    """The batch sweep of one workload on the host: launches are named by their batch size."""
    study, workload = setup.study, setup.workload
    batches = study["workloads"][workload]["sweep_batches"]
    sites: Mapping[str, Site] = {str(batch): setup.sites[HOST] for batch in batches}
    plan = declare(
        "sweep",
        setup,
        spec=whole_run_spec(workload, 0, study),
        headline=headline_levels(study),
        sampling=Sampling(units=study["sweep"]["repetitions"], confidence=study["confidence"]),
        discarded=1 if study["conditions"]["page_cache"] == "warm" else 0,
        environments=[HOST],
        batches=tuple(batches),
    )

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        order, pads = unit_order(plan, done, list(sites))
        if number < plan.discarded:
            order = order[:1]  # one launch warms the page cache for every batch size
        return one_after_other(
            plan, sites, done, order, pads, lambda name: whole_run_spec(workload, int(name), study)
        )

    return Design(plan=plan, run_unit=run_unit, what=f"{workload} batch sweep")
