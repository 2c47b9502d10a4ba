"""Candidates of a choice, measured: sliced rounds in which each trains the same job for some steps.

Every round has the reference twice; the second is the A/A control. A launch's time until its imports are done, at
its end, and of a step after the first are what predictions are about. Data, model and first step are apart.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.progress import say, time_left
from tare.core.remedies import require
from tare.experiments import sliced
from tare.experiments.alone import alone_on_this_machine
from tare.experiments.any_round import sliced_round
from tare.experiments.designs import LARGEST_PAD_BYTES
from tare.experiments.grid import Cell, makes_batches, settings_of, with_data
from tare.experiments.rounds import whole_run_spec
from tare.launch.place import Site
from tare.launch.run import Order
from tare.launch.sites import data_record, sites
from tare.machine.fitting import settled
from tare.model.candidates import Times, Wanted
from tare.model.journals.units import launched_ns, mark_ns
from tare.model.records.campaigns import Unit
from tare.model.records.launches import LaunchRecord, TrainResults
from tare.model.registry import HOST, SINGLE, whole_options
from tare.model.roles import CONTROL
from tare.model.studies.loading import load_part
from tare.model.studies.study import RunPart

MOST_VOID = 3  # rounds in a row
FEWEST = 3  # rounds that count
MARGIN = 0.02  # of two candidates' whole runs
SERVED = "a server outside of it reads its files for it, so its runs can't be measured in slices; try `tare weigh`"


def measure_candidates(
    source: str, images: Path | None, wanted: Mapping[str, Wanted], minutes: float, draws: str = "candidates"
) -> tuple[list[dict[str, Times]], dict[str, str]]:
    """Rounds of candidates, and why some have no times.

    `source`: a study, for its stack, seed and conditions. `images`: folder of its image records. `wanted`: by name;
    the first is the reference. `minutes`: in which rounds begin. `draws`: names the random orders and pads. Returns
    the times by name of each round that counts, those of the control under CONTROL; by name the reasons of those
    that failed, or whose environment is unavailable. Raises UserError: a record of an image or of data is missing.
    UnavailableError: launches can't be sliced here, the reference fails, or too few rounds count.
    """
    study = settled(load_part(RunPart, source))
    if reason := sliced.refusal(SINGLE, study.found_device, "as_found"):
        raise UnavailableError(f"candidates can't be measured in slices: {reason}")
    reference = next(iter(wanted))
    with_own_data = {one.workload for one in wanted.values() if not makes_batches(cell_of(one))}
    require([data_record(workload, study) for workload in sorted(with_own_data)])
    ends = time.monotonic() + 60 * minutes
    with alone_on_this_machine(), _orders(study, images, wanted) as (orders, reasons):
        if reference in reasons:
            raise UnavailableError(f"the reference, {reference}, can't be measured: {reasons[reference]}")
        names = {HOST: reference, CONTROL: CONTROL, **{name: name for name in orders if name != reference}}
        found, done, void = list[dict[str, Times]](), list[Unit](), 0
        blamed: set[str] = set()
        generator = random.Random(f"{study.seed}/{draws}")
        while len(found) < FEWEST or time.monotonic() + done[-1].cost_s < ends:
            if len(wanted) > 1 and set(names) == {HOST, CONTROL}:
                break  # all others failed
            pads = {role: generator.randrange(LARGEST_PAD_BYTES) for role in names}
            asked = {
                role: replace(orders[reference if role == CONTROL else name], pad_bytes=pads[role])
                for role, name in names.items()
            }
            unit = sliced_round(asked, done, generator)
            done.append(unit)
            for role, reason in unit.failures.items():
                if reason == unit.voided and role not in blamed:  # of the round that it made void: it may do better
                    blamed.add(role)
                    continue
                if role in (HOST, CONTROL):
                    raise UnavailableError(f"a launch of the reference, {reference}, failed: {reason}")
                reasons[names.pop(role)] = reason or "it failed"
            if unit.voided is None:
                void = 0
                if unit.discarded:
                    for role in sliced.served_among(unit.launches, MARGIN, study.conditions.cpus):
                        reasons[names.pop(role)] = SERVED
                else:
                    after = wanted[reference].loss_steps
                    found.append({names[role]: times_of(one, after) for role, one in unit.launches.items()})
            elif not unit.failures and not unit.is_rehearsal:
                void += 1
                if void == MOST_VOID:
                    raise UnavailableError(f"{MOST_VOID} rounds in a row do not count: {unit.voided}")
            say(f"candidates: {len(found)} rounds, {time_left(max(0.0, ends - time.monotonic()))}")
    return found, reasons


@contextlib.contextmanager
def _orders(
    study: RunPart, images: Path | None, wanted: Mapping[str, Wanted]
) -> Iterator[tuple[dict[str, Order], dict[str, str]]]:
    """What is launched of each candidate, and why of some nothing is."""
    environments = list(dict.fromkeys([HOST, *(one.env for one in wanted.values())]))
    with sites(study, None, environments, images, None) as (here, gone, _):
        orders, reasons = {}, {}
        for name, one in wanted.items():
            env = one.env
            reason = gone.get(env) or sliced.not_held(here[env])
            if reason is None:
                orders[name] = order_of(one, study, here[env])
            else:
                reasons[name] = reason
        yield orders, reasons


def cell_of(one: Wanted) -> Cell:
    """The job and place of a candidate as a cell of the grid has them."""
    return Cell(workload=one.workload, options=one.options, batch=one.batch, threads=one.threads, env=one.env)


def order_of(one: Wanted, study: RunPart, site: Site) -> Order:
    """The launch of a candidate, without its pad."""
    cell = cell_of(one)
    spec = whole_run_spec(cell.workload, cell.batch, study, whole_options(cell.workload, cell.options))
    own = study.conditions.replace(threads=cell.threads, page_cache="as_found")
    conditions = own.of_launch(
        allocator=one.allocator or study.rounds.allocator, settings={**settings_of(cell), **one.settings}
    )
    return Order(site=with_data(site, cell, study), program=spec.replace(steps=one.steps), conditions=conditions)


def times_of(launch: LaunchRecord, loss_steps: int | None = None) -> Times:
    """What one launch took; `loss_steps`: after how many its loss is read, None where it made fewer.

    Raises UnavailableError: it trained one step alone.
    """
    spawn_ns, end_ns = launched_ns(launch)
    entry, imports, last = (mark_ns(launch, name) for name in ("entry", "imports", "last"))
    results = launch.seen_inside().results_as(TrainResults)
    ends = results.step_ends_ns
    if len(ends) < 2:
        raise UnavailableError("its job has one step alone: name a request with more samples, or a smaller batch")
    return Times(
        start_s=(entry - spawn_ns + end_ns - last) / 1e9,
        imports_s=(imports - entry) / 1e9,
        step_s=(ends[-1] - ends[0]) / (len(ends) - 1) / 1e9,
        rest_s=(ends[0] + launch.clock.offset_ns - imports) / 1e9,
        loss=dict(enumerate(results.losses, 1)).get(loss_steps or 0),
    )
