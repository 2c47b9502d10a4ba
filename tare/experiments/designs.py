"""A design: the plan of a campaign, and what its units do. One for each kind of measurement, all run alike.

Most kinds launch one thing after the other in balanced order (`one_after_other`); sliced rounds hold theirs
together.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tare.core.files import canonical_json, sha256_text
from tare.experiments.orders import balanced_orders
from tare.launch import scenarios, warmth
from tare.launch.conditions import choose_cpus
from tare.launch.pages import of_whole_runs
from tare.launch.place import Site
from tare.launch.program import Runnable, with_more
from tare.launch.run import Order, launch, launch_side_by_side
from tare.machine import facts, others
from tare.model import closure
from tare.model.conditions import Conditions, Group
from tare.model.journals.units import IN_MEMORY, WARM, given_up, others_in
from tare.model.levels import levels_text
from tare.model.records.campaigns import Kind, Machine, Others, Plan, Sampling, Unit
from tare.model.records.launches import LaunchRecord
from tare.model.registry import DISTRIBUTED, HOST, NO_OPTIONS, SINGLE, whole_options
from tare.model.roles import read_role, read_roles
from tare.model.schema import parse
from tare.model.specification import Job, Mode, Specification
from tare.model.studies import arms
from tare.model.studies.study import JobPart, reduced
from tare.worker.frameworks import DEFAULT

LARGEST_PAD_BYTES = 4096  # a page: where the environment block ends shifts the stack by up to this much

Row = dict[str, Any]  # of a unit, before it is checked
AnyJob = TypeVar("AnyJob", bound=JobPart, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Setup(Generic[AnyJob]):
    """What a design is made for."""

    study: AnyJob  # the part of the study that its kind depends on
    workload: str  # whose jobs are launched
    # by name of the launch (`arms.launch_names`): available ones, `host` and its control among them
    sites: Mapping[str, Site]
    unavailable: Mapping[str, str] = field(default_factory=dict)  # the others of the study, each with its reason
    provenance: Mapping[str, Any] = field(default_factory=dict)  # images and data that were used
    arm: arms.Arm | None = None  # what differs from the headline
    scenario: str = SINGLE  # what runs during each unit (tare.launch.scenarios)


@dataclass(frozen=True, kw_only=True)
class Design:
    """What is to be run."""

    # `discarded` units come first and do not count; `sampling` says how many count: `units`, or a `pilot` with a
    # wanted `half_width` under a time budget. One that is `optional`, such as another stack's, is sealed without
    # units where this machine can't run it
    plan: Plan
    # does unit number k, given those before it: `order`, `launches` and what else its kind has
    run_unit: Callable[[Plan, int, Sequence[Unit]], Row]
    what: str  # name for the progress lines
    # what a unit measured, by name of the launch: what the number of units is decided on
    values: Callable[[Unit], Mapping[str, float]] = field(default=lambda unit: {})
    # how many units it takes to have every environment once; more than one where launches do not fit in memory
    # together
    shares: Callable[[Sequence[Unit]], int] = field(default=lambda units: 1)
    # why nothing can be compared any more, from the units so far; None where it can
    hopeless: Callable[[Sequence[Unit]], str | None] = field(default=lambda units: None)


@dataclass(frozen=True, kw_only=True)
class Due:
    """A campaign whose next unit is due: its plan, the unit's number, the units before it."""

    plan: Plan
    number: int
    done: Sequence[Unit]


def declare(
    kind: Kind,
    setup: Setup[JobPart],
    *,
    spec: Specification,
    headline: Mapping[str, str],
    sampling: Sampling,
    discarded: int,
    group: Group | None = None,
    co_runner: str | None = None,
    **own: Any,
) -> Plan:
    """The plan of a campaign on this machine.

    Args:
        kind, setup: of what, and for what.
        group: of launches that train together.
        co_runner: the workload that runs while each runs.
        own: what just its kind has.
    """
    study, arm, names = setup.study, setup.arm, tuple(own.pop("launches", setup.sites))
    levels = arms.levels_of(headline, arm)
    frameworks = sorted({site.framework for site in setup.sites.values()}) or [DEFAULT]
    return Plan(
        kind=kind,
        study=study.study,
        workload=setup.workload,
        launches=read_roles(names),
        unavailable=dict(setup.unavailable),
        spec=spec,
        conditions=arms.conditions_at(study.conditions, levels, group),
        headline_conditions=arms.conditions_at(study.conditions, headline, group),
        sampling=sampling,
        seed=study.seed,
        discarded=discarded,
        arm=levels_text(levels),
        headline_arm=levels_text(headline),
        stack=study.stack,
        code_sha256=closure.code_sha256(
            kind, setup.workload, *arms.used(names, arm), frameworks, setup.scenario, co_runner
        ),
        provenance=dict(setup.provenance),
        optional=setup.scenario == DISTRIBUTED or (arm is not None and arm.is_optional),
        scenario=setup.scenario,
        machine=identity(spec.device == "cuda"),
        part=reduced(study.to_json(), kind, setup.workload, arm, setup.scenario),
        **own,
    )


def job_spec(
    mode: Mode,
    workload: str,
    batch: int,
    study: JobPart,
    options: Mapping[str, int | float] | None = None,
) -> Specification:
    """The specification of a workload's job, for each of its launches, with all options that the workload has.
    `study`: its seed and device; its options of the workload, where none are given. `options`: of a job that is not
    the study's own. Raises UserError: the workload can't have the options.
    """
    if options is None:
        options = study.workloads[workload].options if workload in study.workloads else NO_OPTIONS
    options = whole_options(workload, options)
    spec = Specification(mode=mode, workload=workload, batch=batch, seed=study.seed, device=study.found_device)
    return spec.replace(options=options) if options else spec


def of_several_jobs(plans: Sequence[Plan]) -> Specification:
    """What a launch does inside that serves several campaigns: its jobs are their workloads (`jobs`)."""
    return plans[0].spec.without(*Job.model_fields).replace(jobs=tuple(plan.spec.job for plan in plans))


def identity(on_gpu: bool) -> Machine:
    """What of the machine must stay equal while a campaign runs."""
    found = {**facts.identity(), **({"gpus": facts.gpu_identity()} if on_gpu else {})}
    return parse(Machine, found, "this machine")


def uses_gpu(plan: Plan) -> bool:
    """Whether a campaign's launches compute on an NVIDIA device, whose state is then in every unit."""
    return plan.spec.device == "cuda"


def conditions_of(plan: Plan, name: str) -> Conditions:
    """Conditions of a launch: an arm's baselines are launched as in the headline."""
    if read_role(name).is_reference and plan.headline_conditions is not None:
        return plan.headline_conditions
    return plan.conditions


def order_seed(plan: Plan) -> str:
    """A seed for the orders of a campaign that starts now: no other machine and no other start has it."""
    started = [plan.to_json(), platform.node(), time.time_ns()]
    return sha256_text(canonical_json(started))[:16]


def seed_of(plan: Plan) -> str:
    """The seed of a campaign's random orders; plans of older versions have the study's alone."""
    return plan.order_seed or str(plan.seed)


def unit_order(
    plan: Plan, done: Sequence[Unit], names: Sequence[str], every: int = 1
) -> tuple[list[str], dict[str, int]]:
    """Order of the next unit's launches and the environment pad of each, from the seed that the plan holds; pure.

    Units that count take the rows of Williams squares, so that places and predecessors are balanced over them; one
    that is void leaves its row to the next. Discarded units have a random order. `every`: how many units it takes
    until the same launches come again.
    """
    generator = random.Random(f"{seed_of(plan)}/{len(done)}")
    order = generator.sample(list(names), len(names))
    if sum(unit.voided is None for unit in done) >= plan.discarded:
        orders = balanced_orders(len(names), random.Random(f"{seed_of(plan)}/{'/'.join(names)}"))
        row = next(itertools.islice(orders, sum(unit.counts for unit in done) // every, None))
        order = [names[index] for index in row]
    return order, {name: generator.randrange(LARGEST_PAD_BYTES) for name in names}


def one_after_other(
    plan: Plan,
    sites: Mapping[str, Site],
    done: Sequence[Unit],
    order: Sequence[str],
    pads: Mapping[str, int],
    program_of: Callable[[str], Runnable] | None = None,
    jobs: int = 1,
    needed: Collection[str] = (),
) -> Row:
    """A unit that launches everything to its end, one after the other; what failed too often is not tried again.

    Of a unit that is only to warm the page cache, as many run side by side as there are CPUs for, and those whose
    files are in memory already are left out, but for `needed` ones. `program_of`: what a launch of
    this name runs; None for the plan's own job. `jobs`: that a launch does, each of which may take as long as the
    study allows.
    """
    gone = given_up(done)
    warms = sum(unit.voided is None for unit in done) < plan.discarded and plan.conditions.page_cache == WARM
    hurried = {"ends_at_once": True} if warms else {}  # in order takes a second, and nobody reads it
    asked = {
        name: Order(
            site=sites[name],
            program=with_more(plan.spec if program_of is None else program_of(name), **hurried),
            conditions=longer(conditions_of(plan, name), jobs),
            pad_bytes=pads[name],
        )
        for name in order
        if name not in gone
    }
    warm = [
        name
        for name, one in asked.items()
        if warms and name not in needed and warmth.in_memory(one.site, one.program)
    ]
    tried = [name for name in asked if name not in warm]
    width = len(choose_cpus(plan.conditions.cpus)) if warms else 1
    run_one = scenarios.launcher(plan.scenario) or launched
    watched = [name for name in tried if read_role(name).environment == HOST]
    found: dict[str, LaunchRecord] = {}
    used: list[Others | None] = []
    for start in range(0, len(tried), width):
        now = {name: asked[name] for name in tried[start : start + width]}
        if width > 1:
            found |= launch_side_by_side(now)
            continue
        (name,) = now
        with others.watched(used) if name in watched else contextlib.nullcontext():
            found[name] = run_one(**vars(now[name]))
    for name, record in found.items():
        if record.ok:
            warmth.note(asked[name].site, asked[name].program)
    left_out = gone | dict.fromkeys(warm, IN_MEMORY)
    launches = {name: skipped(left_out[name]) if name in left_out else found[name] for name in order}
    pages = {name: of_whole_runs(conditions_of(plan, name).page_cache) for name in order}
    seen = others_in(used)
    load = {"others": seen.to_json()} if seen is not None else {}
    return {"order": list(order), "launches": launches, "pages": pages, **load}


def longer(conditions: Conditions, times: int) -> Conditions:
    """Conditions under which a launch may take so many times as long."""
    return conditions.replace(launch_timeout_s=times * conditions.launch_timeout_s)


def launched(site: Site, program: Runnable, conditions: Conditions, pad_bytes: int) -> LaunchRecord:
    """One launch and its record."""
    return launch(site, program, conditions, pad_bytes=pad_bytes)


def skipped(reason: str) -> LaunchRecord:
    """Record of a launch that was not tried."""
    return LaunchRecord(status="skipped", reason=reason, inside=None, deviations=())
