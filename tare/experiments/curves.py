"""Whether another stack or a compiled step computes the same: its losses and the headline's, without dropout.

One pair of launches for each campaign of another stack or of a graph compiler, side by side, on few samples, as
nothing of them is timed. Dropout draws each framework's own numbers; without it first weights, batches and their
order are the same, and losses differ by rounding alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tare.core.errors import TareError
from tare.core.progress import say, step
from tare.experiments.designs import Setup
from tare.experiments.rounds import headline_levels, whole_run_spec
from tare.launch.run import Order, launch_side_by_side
from tare.model.records.campaigns import Sealed
from tare.model.records.launches import LaunchRecord, TrainResults
from tare.model.records.measured import CURVES, HEADLINE, CurvesRecord
from tare.model.registry import HOST, SINGLE, options_of
from tare.model.roles import read_role, reference_of
from tare.model.schema import read
from tare.model.studies import arms
from tare.model.studies.sections import Batch
from tare.model.studies.stacks import is_official
from tare.model.studies.study import RunPart

STEPS = 4  # rounding grows by the step
NEEDED = {"samples", "epochs", "dropout"}  # options by which a workload can be compared so
COMPILE = "compile"  # the setting whose levels may compute something else than what they compile


def compare_curves(folder: Path, setup: Setup[RunPart], sealed: Sealed) -> None:
    """Write the losses at an arm's level and the headline's, where both trained and the workload has NEEDED."""
    arm, path = setup.arm, folder / CURVES
    if arm is None or setup.scenario != SINGLE or not sealed.units:
        return
    if arm.other_stack is None and arm.factor != COMPILE:
        return
    if not set(options_of(setup.workload)) >= NEEDED:
        return
    if path.exists() and read(CurvesRecord, path).plan_sha256 == sealed.plan_sha256:
        return
    env = _level_env(setup, arm)
    if env is None:
        return
    job = setup.study.workloads[setup.workload]
    options = few_samples(job)
    orders = _orders(setup, arm, env, job.batch, options)
    level = arm.name if arm.other_stack is None else arm.level
    try:
        with step(f"{setup.workload}: losses of {level} compared with those of {setup.study.stack}"):
            found = launch_side_by_side(orders)
        losses = {name: losses_of(record) for name, record in found.items() if record.ok}
        reasons = {name: record.reason or record.status for name, record in found.items() if not record.ok}
    except TareError as error:
        losses, reasons = {}, dict.fromkeys(orders, str(error))
    for name, reason in reasons.items():
        say(f"{setup.workload}: no losses of {name}: {reason}")
    CurvesRecord(
        plan_sha256=sealed.plan_sha256,
        workload=setup.workload,
        level=level,
        stack=setup.study.stack,
        env=env,
        batch=job.batch,
        options=options,
        losses=losses,
        reasons=reasons,
    ).write(path)


def few_samples(job: Batch) -> dict[str, int | float]:
    """A job's options with STEPS steps at most, and no dropout."""
    most = STEPS * job.batch
    samples = min(int(job.options.get("samples", most)), most)
    return {**job.options, "samples": samples, "epochs": 1, "dropout": 0}


def losses_of(record: LaunchRecord) -> tuple[float, ...]:
    """Losses of a launch, step by step."""
    return record.seen_inside().results_as(TrainResults).losses


def _level_env(setup: Setup[RunPart], arm: arms.Arm) -> str | None:
    """Where the level ran: the host; of an official image the first container that has it."""
    if not {HOST, reference_of(HOST)} <= set(setup.sites):
        return None
    if not is_official(arm.other_stack):
        return HOST
    others = (name for name in setup.sites if read_role(name).is_compared)
    return next(others, None)


def _orders(
    setup: Setup[RunPart], arm: arms.Arm, env: str, batch: int, options: Mapping[str, int | float]
) -> dict[str, Order]:
    spec = whole_run_spec(setup.workload, batch, setup.study, options).replace(ends_at_once=True)
    headline = headline_levels(setup.study)
    levels = {HEADLINE: headline, env: arms.levels_of(headline, arm)}
    sites = {HEADLINE: setup.sites[reference_of(HOST)], env: setup.sites[env]}
    return {
        name: Order(
            site=sites[name], program=spec, conditions=arms.conditions_at(setup.study.conditions, levels[name])
        )
        for name in sites
    }
