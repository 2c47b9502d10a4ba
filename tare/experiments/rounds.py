"""Rounds: whole runs of every environment and a second host, one after the other in balanced order.

The round is the unit of every statistic on whole runs. The batch sweep is a campaign of the same kind: one unit
runs every batch size once on the host, in balanced order, after one start that all share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.core.progress import say
from tare.experiments import sliced
from tare.experiments.designs import (
    Design,
    Row,
    Setup,
    conditions_of,
    declare,
    job_spec,
    launched,
    longer,
    one_after_other,
    skipped,
    unit_order,
)
from tare.launch.pages import of_whole_runs
from tare.launch.place import Site
from tare.model.conditions import Group
from tare.model.journals.units import given_up
from tare.model.records.campaigns import Plan, Sampling, Unit
from tare.model.records.launches import LaunchRecord, Mark, Memory
from tare.model.registry import DISTRIBUTED, HOST, SINGLE
from tare.model.roles import LaunchRole
from tare.model.schema import parse
from tare.model.specification import Mode, Specification
from tare.model.studies.campaigns import sampling_in
from tare.model.studies.study import JobPart, RoundsPart, RunPart, SweepPart
from tare.stats.fits import run_values

LOADER_WORKERS = 1  # as in the nyu2022 paper; of a workload that has an option of that name, as the study says


def whole_run_spec(
    workload: str,
    batch: int,
    study: JobPart,
    options: Mapping[str, int | float] | None = None,
    *,
    mode: Mode = "train",
) -> Specification:
    """The specification of a whole run, or of a launch that trains as one does; arguments as for `job_spec`."""
    job = job_spec(mode, workload, batch, study, options)
    return job.replace(loader_workers=job.options.get("loader_workers", LOADER_WORKERS))


def headline_levels(study: RunPart) -> dict[str, str]:
    """Levels at which whole runs are compared: as people run them."""
    return {"stack": "same", "allocator": study.rounds.allocator, "page_cache": study.conditions.page_cache}


def rounds(setup: Setup[RoundsPart]) -> Design:
    """Whole runs of one workload."""
    study, workload, arm = setup.study, setup.workload, setup.arm
    headline, settings = headline_levels(study), study.rounds
    group: Group | None = None
    spec = whole_run_spec(workload, study.workloads[workload].batch, study)
    if setup.scenario == DISTRIBUTED and study.distributed is not None:
        headline, group = {**headline, **study.distributed.levels}, study.distributed.group
        spec = spec.replace(steps=study.distributed.steps) if study.distributed.steps else spec
    refused = sliced.refusal(setup.scenario, study.device, study.conditions.page_cache)
    apart = sliced.refusals(setup.sites) if refused is None else {}
    if refused is None and HOST in apart:
        refused, apart = apart[HOST], {}
    held = setup.scenario == SINGLE and not sliced.refusals(setup.sites).keys() - apart.keys()
    plan = declare(
        "rounds",
        setup,
        spec=spec,
        headline=headline,
        group=group,
        sampling=sampling_in(study, workload, arm, setup.scenario),
        discarded=max(settings.discarded, 1 if setup.scenario == SINGLE else 0),
        margins=dict(study.margins),
        measured=settings.steps if setup.scenario == SINGLE else None,
        slicing_refused=refused,
        unsliced=apart,
    )

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        if held:
            return sliced.run_unit(plan, setup.sites, done)
        order, pads = unit_order(plan, done, plan.launch_names)
        return sliced.unheld(plan, setup.sites, done, order, pads)

    what = f"{workload} rounds{', ' + arm.name if arm else ''}"
    return Design(
        plan=plan,
        run_unit=run_unit,
        values=run_values,
        what=what,
        hopeless=sliced.hopeless,
        shares=lambda done: len(sliced.groups(plan, done)) if held else 1,
    )


def sweep(setup: Setup[SweepPart]) -> Design:
    """The batch sweep of one workload on the host: launches of a unit differ in their batch."""
    study, workload = setup.study, setup.workload
    batches = study.workloads[workload].sweep_batches
    sizes = {LaunchRole(environment=HOST, batch=batch).name: batch for batch in batches}
    sites: Mapping[str, Site] = dict.fromkeys(sizes, setup.sites[HOST])
    plan = declare(
        "sweep",
        setup,
        spec=whole_run_spec(workload, 0, study),
        headline=headline_levels(study),
        sampling=Sampling(units=study.sweep.repetitions, confidence=study.confidence),
        discarded=1 if study.conditions.page_cache == "warm" else 0,
        launches=[HOST],
        batches=batches,
    )

    shared = study.device == "cpu" and study.conditions.page_cache != "cold"

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        order, pads = unit_order(plan, done, list(sites))
        if number < plan.discarded:
            order = order[:1]  # one launch warms the page cache for every batch size
        elif shared and len(order) > 1:
            ordered = {name: sizes[name] for name in order}
            row = _after_one_start(plan, setup.sites[HOST], done, ordered, pads)
            if row is not None:
                return row
        return one_after_other(
            plan, sites, done, order, pads, lambda name: whole_run_spec(workload, sizes[name], study)
        )

    return Design(plan=plan, run_unit=run_unit, what=f"{workload} batch sweep")


def _after_one_start(
    plan: Plan, site: Site, done: Sequence[Unit], sizes: Mapping[str, int], pads: Mapping[str, int]
) -> Row | None:
    """A unit of the sweep by one launch, which runs every size in a process forked after its imports.

    None where it fails: each size is then launched alone, so that it has its own reason.
    """
    gone = given_up(done)
    tried = [name for name in sizes if name not in gone]
    if not tried:
        return None
    conditions = longer(conditions_of(plan, HOST), len(tried))
    spec = plan.spec.replace(batch=sizes[tried[0]], batches=tuple(sizes[name] for name in tried))
    launch = launched(site, spec, conditions, pads[tried[0]])
    if not launch.ok:
        say(f"{plan.workload} batch sweep: each size is launched separately: {launch.reason}")
        return None
    runs = dict(zip(tried, launch.seen_inside().results["runs"], strict=True))
    launches = {
        name: skipped(gone[name]) if name in gone else of_one_run(launch, runs[name], len(runs)) for name in sizes
    }
    kept = of_whole_runs(conditions.page_cache)
    return {"order": list(sizes), "launches": launches, "pages": dict.fromkeys(sizes, kept)}


def of_one_run(launch: LaunchRecord, run: Mapping[str, Any], count: int) -> LaunchRecord:
    """One of several runs of a launch as a separate record: its start and its end are those of the launch.

    Instants of the run are moved to follow on the imports; CPU seconds go on from theirs.
    """
    inside = launch.seen_inside()
    entry, imports, last = (inside.mark(name) for name in ("entry", "imports", "last"))
    forked, *rows = (parse(Mark, row, "a run's mark") for row in run["marks"])
    moved_ns = forked.at_ns - imports.at_ns
    own = [
        mark.moved(lambda at_ns: at_ns - moved_ns).replace(
            user_s=imports.user_s + mark.user_s - forked.user_s,
            system_s=imports.system_s + mark.system_s - forked.system_s,
        )
        for mark in rows
    ]
    ends = [at_ns - moved_ns for at_ns in run["results"]["step_ends_ns"]]
    results = {**run["results"], "step_ends_ns": ends, "runs": count, "moved_ns": moved_ns}
    memory = parse(Memory, run["memory"], "a run's memory")
    return launch.replace(inside=inside.replace(marks=(entry, imports, *own, last), results=results, memory=memory))
