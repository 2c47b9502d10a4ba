"""The campaign of causes: launches that say which kernels they run, and what their files cost them.

A unit launches every environment and a second host, one after the other in balanced order. One unit before them
does not count: its host says which files the imports need, and every later launch reads just those before it
imports.

One launch can serve the campaigns of several workloads (`run_together`): it imports what all of them need, so that
their files and imports are one thing, and looks at the steps of each workload in a separate process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tare.core.errors import UnavailableError
from tare.experiments.designs import (
    Design,
    Due,
    Row,
    Setup,
    conditions_of,
    declare,
    launched,
    of_several_jobs,
    one_after_other,
    skipped,
    unit_order,
)
from tare.experiments.rounds import headline_levels, whole_run_spec
from tare.launch.place import Site
from tare.model.journals.units import given_up
from tare.model.records.campaigns import Plan, Sampling, Unit
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST
from tare.model.schema import parse
from tare.model.specification import NeededFiles, Specification
from tare.model.studies.study import CausesPart

PASSES = 3  # over the files, once they have been read


def causes_spec(workload: str, batch: int, study: CausesPart) -> Specification:
    """What a launch does inside, but for the list of files."""
    run, wanted = whole_run_spec(workload, batch, study, mode="causes"), study.causes
    return run.replace(steps=wanted.steps, warmup_steps=wanted.warmup_steps, repetitions=PASSES)


def causes(setup: Setup[CausesPart]) -> Design:
    """The causes of one workload, in the headline."""
    study, workload = setup.study, setup.workload
    plan = declare(
        "causes",
        setup,
        spec=causes_spec(workload, study.workloads[workload].batch, study),
        headline=headline_levels(study),
        sampling=Sampling(
            units=study.causes.units,
            confidence=study.confidence,
            verdict_units=study.causes.verdict_units,
        ),
        discarded=1,
        margins=dict(study.margins),
    )

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        return run_together({0: Due(plan=plan, number=number, done=done)}, setup.sites)[0]

    def hopeless(done: Sequence[Unit]) -> str | None:
        try:
            files_of(done)
        except UnavailableError as error:
            return str(error)
        return None

    return Design(plan=plan, run_unit=run_unit, hopeless=hopeless, what=f"{workload} causes")


def run_together(dues: Mapping[Any, Due], sites: Mapping[str, Site]) -> dict[Any, Row]:
    """The next unit of campaigns of one study whose workloads differ, by the same launches.

    A launch that fails for all of them is tried once more for each alone, so that a workload's failure is its own.
    `dues`: the campaigns, by whatever names them. `sites`: by name of the launch, with the data of every workload.
    Returns their units. A campaign that has come less far than the first one, or knows other files, has none: it
    waits. On a separate device, whose state no fork shares, each campaign has its own launches.
    """
    first = next(iter(dues.values()))
    plan, files = first.plan, files_of(first.done)
    chosen = {
        key: due
        for key, due in dues.items()
        if due is first
        or (plan.spec.device == "cpu" and due.number == first.number and files_of(due.done) == files)
    }
    plans = [due.plan for due in chosen.values()]
    order, pads = unit_order(plan, first.done, plan.launch_names)
    if files is None and plan.conditions.page_cache != "warm":
        order = [HOST]  # nothing has to be warmed up: only the list of files is wanted

    def spec_of(own: Specification, name: str) -> Specification:
        return own.replace(files=files) if files else own.replace(keep_list=name == HOST)

    if len(plans) == 1:
        own_sites = {name: _with_data(site, plan.workload) for name, site in sites.items()}
        row = one_after_other(
            plan, own_sites, first.done, order, pads, lambda name: spec_of(plan.spec, name), needed=[HOST]
        )
        return {key: row for key in chosen}
    shared = of_several_jobs(plans)
    row = one_after_other(
        plan, sites, first.done, order, pads, lambda name: spec_of(shared, name), jobs=len(plans), needed=[HOST]
    )
    found = {}
    for number, (key, due) in enumerate(chosen.items()):
        gone, launches = given_up(due.done), dict[str, LaunchRecord]()
        for name, launch in row["launches"].items():
            if launch.ok:
                launches[name] = of_one_job(launch, number)
            elif name in gone:
                launches[name] = skipped(gone[name])
            elif launch.status == "skipped":  # what it would warm is warm
                launches[name] = launch
            else:
                site, own = _with_data(sites[name], due.plan.workload), spec_of(due.plan.spec, name)
                launches[name] = launched(site, own, conditions_of(due.plan, name), pads[name])
        found[key] = {**row, "launches": launches}
    return found


def _with_data(site: Site, workload: str) -> Site:
    """A site with the data of one workload, where it has those of several."""
    return replace(site, data=site.data_of[workload]) if site.data_of else site


def of_one_job(launch: LaunchRecord, number: int) -> LaunchRecord:
    """What a launch of several jobs found of one of them, and of the files and imports that all share."""
    inside = launch.seen_inside()
    results = {key: value for key, value in inside.results.items() if key != "jobs"}
    own = inside.results["jobs"][number] if "jobs" in inside.results else {}
    return launch.replace(inside=inside.replace(results={**results, **own}))


def files_of(done: Sequence[Unit]) -> NeededFiles | None:
    """The files that the imports need, as the campaign's first unit found them; None before there is one. Raises
    UnavailableError: its host failed.
    """
    whole = [unit for unit in done if unit.voided is None]
    return listed(whole[0].launches[HOST]) if whole else None


def listed(first: LaunchRecord) -> NeededFiles:
    """The files that the imports of the host's first launch needed, by their path in the tree. Raises
    UnavailableError: that launch failed, so that nobody knows which files matter.
    """
    if not first.ok:
        raise UnavailableError(f"the host could not list the files that its imports need: {first.reason}")
    return parse(NeededFiles, first.seen_inside().results["listed"], "the files that the host lists")
