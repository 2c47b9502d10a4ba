"""Turns: the training step, compared in blocks of launches that are alive together.

The first block calibrates and does not count. One launch starts alone: its first step says how many fit in memory
together, before any other is started. Then each launch works while the others idle, and the step's time alone sets
everything that is counted in steps: warm-up, bursts, deadlines, from 0.2 ms to 10 s a step. Bursts and draws show
how many leading steps of a burst to discard, and how long draws and cycles take and vary, from which the split of
the time budget follows. Then every block is a unit.

A block's launches may serve several campaigns, each of a workload at a level of the allocator: they start, which is
what costs most, once for all, and then draw of one job after the other. Each campaign keeps its own plan, journal,
calibration and number of units.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tare.experiments.blocks import Block, Burst, Lane, Stretch, live_block
from tare.experiments.designs import (
    Design,
    Due,
    Row,
    Setup,
    conditions_of,
    declare,
    job_spec,
    of_several_jobs,
    seed_of,
    skipped,
    unit_order,
)
from tare.launch import warmth
from tare.launch.conditions import choose_cpus
from tare.launch.pages import draw_anew
from tare.launch.place import Site
from tare.machine.memory import available_memory_bytes
from tare.model.journals.units import AGREEMENT, calibration_of, given_up, groups_of, planned_alpha
from tare.model.records.campaigns import Calibration, Plan, Prior, Unit
from tare.model.schema import parse
from tare.model.studies.study import CONTROL, HOST, Turns, sampling_of
from tare.stats.fits import turn_values
from tare.stats.intervals import MAD_TO_SD, two_way
from tare.stats.planning import Components, Costs, best_split, pays_for_the_least_only

METRIC = "turn_step_s"
BURST_S = 0.06  # aim of a turn's counted steps: short, since a machine's mood lasts a second
MOST_STEPS = 64  # that count in a turn, however short
WARMUP_STEPS = 8  # a process goes on growing its heap for about ten steps, and each page is a fault
WARMUP_S = 4.0  # long steps: as many as fill it, two at least
LONG_BURST_S = 0.3
LEAST_LONG_STEPS = 6
SLOW_STEP_S = 0.3  # one such step that is discarded outlasts whatever a change of hands leaves behind
TRIAL_DRAWS = 2
MEDIAN_TO_MEAN = 1.2533  # standard error of a median by that of the mean, where data are normal
LEAVE_S = 1.0  # what ending a block takes, about
MOST_DISCARDED = 8
LEAST_DISCARDED_S = 0.04  # what caches take to fill again, whatever few noisy bursts say
CONTEXT_BYTES = 600 << 20  # what a process takes of a CUDA device before its first tensor, about
MEMORY_SHARE = 0.8  # of what is free, that a block's launches may take together


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a calibration tries, for steps of one length."""

    warmup: int
    fewest: int
    long_cycles: int
    long: Burst
    short_cycles: int
    short: Burst


def warmup_of(step_s: float) -> int:
    """Steps before a draw's first turn: eight, or as many as take four seconds, two at least."""
    return max(2, min(WARMUP_STEPS, math.ceil(WARMUP_S / step_s)))


def trial_of(step_s: float) -> Trial:
    """Bursts to try for steps that take so long alone.

    Short steps are many: what is discarded has to outlast the caches' filling, and a long burst has to show what
    comes after. Of slow steps, one is discarded, and three show all that there is to see.
    """
    fewest = max(1, math.ceil(LEAST_DISCARDED_S / step_s))
    steps = max(1, min(MOST_STEPS, round(BURST_S / step_s)))
    slow = step_s >= SLOW_STEP_S
    long_steps = 3 if slow else max(LEAST_LONG_STEPS, 2 * fewest + steps, min(64, math.ceil(LONG_BURST_S / step_s)))
    return Trial(
        warmup=warmup_of(step_s),
        fewest=fewest,
        long_cycles=1 if slow else 4,
        long=Burst(discard=0, steps=long_steps),
        short_cycles=2 if slow else 6,
        short=Burst(discard=fewest, steps=steps),
    )


def turn_spec(workload: str, batch: int, study: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch that takes turns does inside."""
    return job_spec("turns", workload, batch, study)


def turns(setup: Setup) -> Design:
    """The training steps of one workload."""
    study, workload, arm = setup.study, setup.workload, setup.arm
    settings = study["turns"]
    lane = arm is not None and arm.factor == "allocator" and arm.level in settings.get("also", ())
    headline = {
        "stack": "same",
        "allocator": settings["allocator"],
        "page_cache": study["conditions"]["page_cache"],
    }
    plan = declare(
        "turns",
        setup,
        spec=turn_spec(workload, study["workloads"][workload]["batch"], study),
        headline=headline,
        sampling=sampling_of(parse(Turns, settings, "turns"), study["confidence"], METRIC, None if lane else arm),
        discarded=1,
        margins=study["margins"],
        prior=Prior(**settings["prior"]),
    )

    def hopeless(done: Sequence[Unit]) -> str | None:
        gone = given_up(done)
        lost = next((name for name in (HOST, CONTROL) if name in gone), None)
        return f"no launch on the host lives to take turns: {gone[lost]}" if lost else None

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        return run_block({0: Due(plan=plan, number=number, done=done)}, setup.sites)[0]

    def shares(done: Sequence[Unit]) -> int:
        settled = calibration_of(done)
        most = settled.group if settled else None
        return len(groups_of(alive(plan, done), most))

    what = f"{workload} turns{', ' + arm.name if arm else ''}"
    return Design(plan=plan, run_unit=run_unit, values=turn_values, shares=shares, hopeless=hopeless, what=what)


def alive(plan: Plan, done: Sequence[Unit]) -> list[str]:
    """Names of the launches that have not been given up."""
    gone = given_up(done)
    return [name for name in plan.environments if name not in gone]


@dataclass(kw_only=True)
class _Job:
    """One campaign in a block: what is known of it, and what the block shall do for it."""

    due: Due
    lane: Lane
    settled: Calibration | None
    gone: Mapping[str, str]
    names: list[str]
    calibration: dict[str, Any] | None = None

    def here(self, most: int | None) -> list[str]:
        """Launches of its next unit, where `most` fit in memory together."""
        groups = groups_of(self.names, most)
        return groups[sum(unit.counts for unit in self.due.done) % len(groups)]


def _job(number: int, due: Due) -> _Job:
    names, settled = alive(due.plan, due.done), calibration_of(due.done)
    lane = Lane(number=number, names=names, step_s=settled.step_s if settled else 0.0)
    return _Job(due=due, lane=lane, settled=settled, gone=given_up(due.done), names=names)


def run_block(dues: Mapping[Any, Due], sites: Mapping[str, Site]) -> dict[Any, Row]:
    """One block: the first whole one of each campaign calibrates, the others do what it settled.

    Args:
        dues: the campaigns whose next unit is due, by whatever names them.
        sites: by name of the launch.

    Returns:
        Their units. A campaign that would need other launches than the first one, where not all fit in memory
        together, has none: it waits for the next block.
    """
    jobs = {key: _job(number, due) for number, (key, due) in enumerate(dues.items())}
    first = next(iter(jobs.values()))
    most = min((job.settled.group for job in jobs.values() if job.settled and job.settled.group), default=None)
    fresh = [job for job in jobs.values() if job.settled is None]
    if not fresh:
        jobs = fitting_together(jobs, most)
    plan, number = first.due.plan, first.due.number
    groups = groups_of(first.names, None if fresh else most)
    wanted = {name for job in jobs.values() for name in (job.lane.names or ())}
    names = [name for name in plan.environments if name in wanted]
    order, pads = unit_order(plan, first.due.done, names, len(groups))
    generator = random.Random(f"{seed_of(plan)}/{number}/turns")
    dropping = time.monotonic()
    pages = draw_anew({name: sites[name] for name in names}, plan.conditions["page_cache"])
    dropped_s = time.monotonic() - dropping
    free_bytes, block_name = available_memory_bytes(), uuid.uuid4().hex
    with live_block(
        sites,
        spec_of([job.due.plan for job in jobs.values()]),
        {name: as_started(conditions_of(plan, name)) for name in plan.environments},
        order=[HOST] if fresh else _taking_part(order, jobs.values()),
        pads=pads,
        cores=cores_of(number, plan.conditions),
        generator=generator,
        lanes=[job.lane for job in jobs.values()],
    ) as (block, _):
        block.start_s += dropped_s
        if fresh:
            fits = [look_alone(block, job.lane, free_bytes, len(order)) for job in fresh]
            most = min([*fits, *([most] if most else [])])
            for job in jobs.values():
                job.lane.names = groups_of(job.names, most)[0]
            block.start([name for name in _taking_part(order, jobs.values()) if name != HOST])
        settled_bursts: dict[str, Mapping[str, Any]] = {}
        for job in generator.sample(list(jobs.values()), len(jobs)):
            with block.on(job.lane):
                if job.settled is None:
                    shares = len(groups_of(job.names, most))
                    known = settled_bursts.get(job.due.plan.workload)
                    job.calibration = calibrate(block, job.due.plan, shares, known) | {"group": most}
                    settled_bursts.setdefault(job.due.plan.workload, _found_at(job))
                else:
                    block.run(stretch_of(job.settled))
    spec = spec_of([job.due.plan for job in jobs.values()])
    for name in names:
        own = [row[name] for job in jobs.values() if name in (row := job.lane.record["launches"])]
        if own and all(one["status"] == "ok" for one in own):
            warmth.note(sites[name], spec(name))
    return {key: {**_row(job, pages), "block": block_name} for key, job in jobs.items()}


def _found_at(job: _Job) -> dict[str, Any]:
    """What a job's calibration found of its bursts, with the allocator that it had."""
    found = (job.calibration or {})["agreement"]
    return {**found, "found_at": job.due.plan.conditions["allocator"]}


def fitting_together(jobs: Mapping[Any, _Job], most: int | None) -> dict[Any, _Job]:
    """The first of some campaigns, and those of the others whose launches fit in memory beside its own."""
    chosen: dict[Any, _Job] = {}
    alive_now: set[str] = set()
    for key, job in jobs.items():
        here = job.here(most)
        if chosen and most is not None and len(alive_now.union(here)) > max(most, len(alive_now)):
            continue
        alive_now.update(here)
        job.lane.number, job.lane.names = len(chosen), here
        chosen[key] = job
    return chosen


def _taking_part(order: Iterable[str], jobs: Collection[_Job]) -> list[str]:
    return [name for name in order if any(name in (job.lane.names or ()) for job in jobs)]


def _row(job: _Job, pages: Mapping[str, str]) -> Row:
    unit = job.lane.record
    if job.calibration is not None and unit["voided"] is None:
        unit["calibration"] = job.calibration
    for name in job.due.plan.environments:
        if name not in unit["launches"]:
            reason = "launches do not fit in memory together: this block is another environment's"
            unit["launches"][name] = skipped(job.gone.get(name, reason))
    own = {name: pages[name] for name in unit["order"] if name in pages}
    return {**unit, "pages": own, "own_s": job.lane.spent_s}


def spec_of(plans: Sequence[Plan]) -> Callable[[str], Mapping[str, Any]]:
    """What a launch of each name does inside: the jobs of these campaigns, each at its level of the allocator."""
    common = of_several_jobs(plans)

    def spec(name: str) -> Mapping[str, Any]:
        lanes = [
            {**lane, "allocator": conditions_of(plan, name)["allocator"]}
            for lane, plan in zip(common["lanes"], plans, strict=True)
        ]
        return {**common, "lanes": lanes}

    return spec


def as_started(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions of a launch that takes turns: draws set the allocator, so that one launch serves both levels."""
    return {**conditions, "allocator": "default"}


def cores_of(number: int, conditions: Mapping[str, Any]) -> list[int]:
    """Logical CPUs of a block's turns: as many as there are threads, others from block to block."""
    cpus, width = choose_cpus(conditions["cpus"]), conditions["threads"]
    groups = max(1, len(cpus) // width)
    start = number % groups * width
    return list(cpus[start : start + width])


def look_alone(block: Block, lane: Lane, free_bytes: int, count: int) -> int:
    """How many launches fit in memory together, from the first step of the only one that has been started.

    Args:
        block: with that launch.
        lane: the job that is looked at.
        free_bytes: memory that was available before it was started.
        count: launches that there are.

    Raises:
        ConversationError: the launch failed.
    """
    with block.on(lane):
        block.draw(0, 1)
        block.alone(block.workers[0], 1)
        return fitting(block.forget()[0], free_bytes, count)


def fitting(draw: Mapping[str, Any], free_bytes: int, count: int) -> int:
    """How many of `count` launches like this one fit in memory together, the device's too; one at least."""
    fit = count
    if draw.get("peak_rss_bytes"):
        fit = min(fit, int(MEMORY_SHARE * free_bytes / draw["peak_rss_bytes"]))
    if draw.get("device_memory"):
        device = draw["device_memory"]
        fit = min(fit, int(MEMORY_SHARE * device["total_bytes"] / (device["peak_bytes"] + CONTEXT_BYTES)))
    return max(1, fit)


def stretch_of(calibration: Calibration) -> Stretch:
    """What a unit does, as the calibration settled it."""
    return Stretch(
        draws=calibration.draws,
        cycles=calibration.cycles,
        warmup=calibration.warmup,
        burst=Burst(discard=calibration.discard, steps=calibration.steps),
    )


def step_alone_s(block: Block) -> float:
    """Seconds of a step when one launch works and the others idle: every launch warms up by itself.

    Raises:
        ConversationError: a launch failed.
    """
    found = []
    for worker in block.workers:
        first = block.alone(worker, 1)[0]
        rest = block.alone(worker, max(1, warmup_of(first) - 2))  # the draw has made one
        found.append(float(np.median(rest[len(rest) // 2 :])))
    return float(np.median(found))


def calibrate(block: Block, plan: Plan, shares: int = 1, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Burst and split of the units to come, measured on a block that does not count.

    Long bursts show how a step's time settles after a change of hands; short ones how draws and cycles vary, and
    what they cost. Where the budget pays for the least of draws and cycles only, one draw is enough.

    Args:
        block: its launches are started.
        plan: of the campaign.
        shares: units that it takes to have every environment once.
        known: how the step's time settles (`settle`), where the workload's other campaign has found it: it is the
            same job with another allocator, and goes without long bursts.
    """
    started = time.monotonic()
    block.draw(0, 1)
    lane = block.lane
    step_s = lane.step_s = step_alone_s(block)
    trial = trial_of(step_s)
    if known is not None:
        trial = replace(trial, long_cycles=0)
    sampling, short_s = plan.sampling, list[float]()
    fewest = sampling.units or sampling.pilot or 1
    block_s = (block.start_s + LEAVE_S) / len(block.lanes)
    # As if every launch had warmed up side by side, as they do from now on.
    draw_s = lane.draw_s[-1] + (trial.warmup - 1) * step_s * len(block.workers) / plan.conditions["cpus"]

    def left_s() -> float:
        """Of the budget, for each of the units that it takes to have every environment once."""
        return max(0.0, (sampling.budget_s or 0.0) - block_s - time.monotonic() + started) / shares

    for number in range(TRIAL_DRAWS):
        if number:
            least = Costs(block_s=block_s, draw_s=draw_s, cycle_s=float(np.median(short_s)))
            if pays_for_the_least_only(least, budget_s=left_s(), fewest=fewest):
                break  # another draw would only tell how draws vary, and change nothing
            block.draw(number, trial.warmup)
            draw_s = lane.draw_s[-1]
        block.cycles(trial.long_cycles, trial.long)
        done = len(lane.cycle_s)
        block.cycles(trial.short_cycles, trial.short)
        short_s += lane.cycle_s[done:]
        block.drop()
    draws = [[draw["turns"] for draw in block.draws(worker)] for worker in block.workers]
    bursts = [burst for own in draws for one in own for burst in one["step_s"][: trial.long_cycles]]
    tolerance = AGREEMENT * (plan.margins or {})["step"]
    settled = dict(known or settle(bursts, trial.short.steps, tolerance, trial.fewest))
    burst = Burst(discard=settled["discard"], steps=trial.short.steps)
    components = components_of(draws, plan.prior, trial)
    growth = (burst.discard + burst.steps) / (trial.short.discard + trial.short.steps)
    costs = Costs(block_s=block_s, draw_s=draw_s, cycle_s=float(np.median(short_s)) * growth)
    split = best_split(
        components,
        costs,
        budget_s=left_s(),
        fewest=fewest,
        most=sampling.units,
        alpha=planned_alpha(plan),
    )
    return {
        "step_s": step_s,
        "warmup": trial.warmup,
        "discard": burst.discard,
        "steps": burst.steps,
        "agreement": settled,
        "components": asdict(components),
        "costs": asdict(costs),
        "draws": split.draws,
        "cycles": split.cycles,
        "expected": asdict(split),
    }


def settle(bursts: Sequence[Sequence[float]], steps: int, tolerance: float, fewest: int = 1) -> dict[str, Any]:
    """Leading steps to discard, so that the burst's other steps take as long as uninterrupted ones.

    The fewest whose ratio agrees within the tolerance, or within two standard errors where these bursts can't
    resolve the tolerance: a noisy machine must not make bursts long.

    Args:
        bursts: seconds of each step of long bursts; their second halves count as uninterrupted.
        steps: that count in a burst.
        tolerance: of the log-ratio, burst to uninterrupted.
        fewest: steps that are discarded in any case.

    Returns:
        `discard`; `ratio`, `ratio_low`, `ratio_high` (median and two standard errors over bursts) of burst to
        uninterrupted; `agrees`: the ratio is within the tolerance; `resolved`: its error is; `profile`: median
        log-ratio of each step to its burst's second half.
    """
    logs = np.log(np.asarray(bursts, dtype=float))
    half = logs.shape[1] // 2
    relative = logs - np.median(logs[:, half:], axis=1, keepdims=True)
    tried = []
    most = max(1, min(max(MOST_DISCARDED, fewest), half))
    for discard in range(min(fewest, most), most + 1):
        means = np.median(relative[:, discard : discard + steps], axis=1)
        middle = float(np.median(means))
        error = MEDIAN_TO_MEAN * MAD_TO_SD * float(np.median(np.abs(means - middle))) / math.sqrt(len(means))
        tried.append((abs(middle) - max(tolerance, 2 * error), discard, middle, error))
        if tried[-1][0] <= 0:
            break
    _, discard, middle, error = tried[-1] if tried[-1][0] <= 0 else min(tried)
    return {
        "discard": discard,
        "ratio": math.exp(middle),
        "ratio_low": math.exp(middle - 2 * error),
        "ratio_high": math.exp(middle + 2 * error),
        "agrees": abs(middle) <= tolerance,
        "resolved": 2 * error <= tolerance,
        "bursts": len(logs),
        "tolerance": tolerance,
        "profile": np.median(relative, axis=0).tolist(),
    }


def components_of(draws: Sequence[Sequence[Mapping[str, Any]]], prior: Prior | None, trial: Trial) -> Components:
    """Variance components host to host from the short bursts of one block: turns by launch and draw.

    One block says nothing of blocks, and little of draws, one draw nothing at all: the block's part is the study's
    prior, and the draw's at least its prior.
    """
    least = prior or Prior(block=0.0, draw=0.0)
    residuals, effects = [], []
    for number in range(len(draws[0])):
        logs = [turn_logs(own[number])[trial.long_cycles :] for own in draws]
        launch, rest = two_way(np.array(logs).T)
        effects.append(launch - launch.mean())
        residuals.append(rest.ravel())
    launches = len(effects[0])
    freedom = math.sqrt((1 - 1 / trial.short_cycles) * (1 - 1 / launches))  # what the fits have taken away
    cycle = MAD_TO_SD * float(np.median(np.abs(np.concatenate(residuals)))) / freedom
    draw = 0.0
    if len(effects) > 1:
        spread = float(np.var(effects, axis=0, ddof=1).mean()) * launches / (launches - 1)
        draw = math.sqrt(2 * max(0.0, spread - cycle**2 / trial.short_cycles))
    return Components(block=least.block, draw=max(draw, least.draw), cycle=math.sqrt(2) * cycle)


def turn_logs(turns: Mapping[str, Any]) -> np.ndarray:
    """Log of the median counted step of each turn of a draw, shape [cycles]."""
    logs: np.ndarray = np.log([float(np.median(steps)) for steps in turns["step_s"]])
    return logs
