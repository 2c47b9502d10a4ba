"""Turns: the training step, compared in blocks of launches that are alive together.

The first block calibrates and does not count: it finds how many leading steps of a burst to discard, and how long
draws and cycles take and vary, from which the split of the time budget follows. Then every block is a unit.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tare.core.errors import UnavailableError
from tare.experiments.blocks import Block, Burst, Stretch, live_block
from tare.experiments.campaign import Campaign, given_up, run_campaign, skipped
from tare.experiments.rounds import unit_order
from tare.launch.run import Site, choose_cpus
from tare.machine.facts import available_memory_bytes
from tare.model import arms, closure
from tare.model.schema import parse
from tare.model.study import CONTROL, HOST, Turns, sampling_of
from tare.stats.intervals import MAD_TO_SD, two_way
from tare.stats.planning import Components, Costs, best_split

METRIC = "turn_step_s"
BURST_S = 0.06  # aim of a turn's counted steps: short, since a machine's mood lasts a second
WARMUP_STEPS = 8  # a process goes on growing its heap for about ten steps, and each page is a fault
LONG_BURST_S = 0.3
LONG_BURST_STEPS = (6, 64)
TRIAL_DRAWS, LONG_CYCLES, SHORT_CYCLES = 2, 4, 6
MEDIAN_TO_MEAN = 1.2533  # standard error of a median by that of the mean, where data are normal
LEAVE_S = 1.0  # what ending a block takes, about
MOST_DISCARDED = 8
LEAST_DISCARDED_S = 0.04  # what caches take to fill again, whatever few noisy bursts say
CONTEXT_BYTES = 600 << 20  # what a process takes of a CUDA device before its first tensor, about
MEMORY_SHARE = 0.8  # of what is free, that a block's launches may take together
AGREEMENT = 0.1  # of the margin, by which bursts and uninterrupted steps may differ


def turn_spec(workload: str, batch: int, study: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch that takes turns does inside."""
    return {
        "mode": "turns",
        "workload": workload,
        "batch": batch,
        "seed": study["seed"],
        "device": study["device"],
    }


def run_turns(
    folder: Path,
    study: Mapping[str, Any],
    workload: str,
    sites: Mapping[str, Site],
    unavailable: Mapping[str, str],
    provenance: Mapping[str, Any],
    arm: arms.Arm | None = None,
) -> dict[str, Any]:
    """The campaign of turns of one workload; returns the sealed summary.

    Args:
        folder: where plan, journal and seal lie.
        study: the part of the study that turns depend on.
        workload: name of the workload.
        sites: by name of the launch (`arms.launch_names`): available ones, `host` and its control among them.
        unavailable: the others, each with its reason.
        provenance: images and data that were used, for the plan.
        arm: what differs from the headline.
    """
    headline = {
        "stack": "same",
        "allocator": study["turns"]["allocator"],
        "page_cache": study["conditions"]["page_cache"],
    }
    levels = arms.levels_of(headline, arm)
    settings = study["turns"]
    plan = {
        "kind": "turns",
        "study": study["study"],
        "workload": workload,
        "environments": list(sites),
        "unavailable": dict(unavailable),
        "spec": turn_spec(workload, study["workloads"][workload]["batch"], study),
        "conditions": arms.conditions_at(study["conditions"], levels),
        "headline_conditions": arms.conditions_at(study["conditions"], headline),
        "margins": study["margins"],
        "sampling": sampling_of(parse(Turns, settings, "turns"), study["confidence"], METRIC, arm).to_json(),
        "prior": settings["prior"],
        "seed": study["seed"],
        "discarded": 1,
        "arm": arms.describe(levels),
        "headline_arm": arms.describe(headline),
        "stack": study["stack"],
        "code_sha256": closure.code_sha256("turns", workload, *arms.used(sites, arm)),
        "provenance": dict(provenance),
        "optional": arm is not None and arm.is_optional,
    }
    runner = _Runner(plan, sites)
    campaign = Campaign(
        folder=folder, plan=plan, run_unit=runner.run_unit, values=unit_values, what=f"{workload} turns"
    )
    return run_campaign(campaign)


class _Runner:
    """Runs the units of one campaign; holds nothing that is not in its plan or its journal."""

    def __init__(self, plan: Mapping[str, Any], sites: Mapping[str, Site]) -> None:
        self.plan = plan
        self.sites = sites

    def run_unit(self, number: int, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        gone = given_up(done)
        for name in (HOST, CONTROL):
            if name in gone:
                raise UnavailableError(f"no launch on the host lives to take turns: {gone[name]}")
        settled = next((unit["calibration"] for unit in done if unit.get("calibration")), None)
        names = [name for name in self.plan["environments"] if name not in gone]
        if settled is not None and settled["group"] < len(names):
            names = group_of(names, sum(not unit["discarded"] for unit in done))
        seeds = f"{self.plan['arm']}/{self.plan['kind']}"
        order, pads = unit_order(names, self.plan["seed"], f"{self.plan['workload']}/{seeds}", number)
        generator = random.Random(f"{self.plan['seed']}/{self.plan['workload']}/{seeds}/{number}/turns")
        cores = cores_of(number, self.plan["conditions"])
        calibration = None
        with live_block(
            {name: self.sites[name] for name in names},
            self.plan["spec"],
            {name: self._conditions(name) for name in names},
            order=order,
            pads=pads,
            cores=cores,
            generator=generator,
        ) as (block, unit):
            if settled is None:
                calibration = calibrate(block, unit["start_s"], self.plan)
            else:
                block.run(stretch_of(settled))
        if calibration is not None and unit["voided"] is None:
            unit["calibration"] = calibration | {"group": fitting(unit, len(self.plan["environments"]))}
        missing = [name for name in self.plan["environments"] if name not in names]
        for name in missing:
            reason = gone.get(name, "launches do not fit in memory together: this block is another environment's")
            unit["launches"][name] = skipped(reason)
        return unit

    def _conditions(self, name: str) -> Mapping[str, Any]:
        at_headline = name.endswith(arms.BASELINE)
        return self.plan["headline_conditions" if at_headline else "conditions"]


def cores_of(number: int, conditions: Mapping[str, Any]) -> list[int]:
    """Logical CPUs of a block's turns: as many as there are threads, others from block to block."""
    cpus, width = choose_cpus(conditions["cpus"]), conditions["threads"]
    groups = max(1, len(cpus) // width)
    start = number % groups * width
    return list(cpus[start : start + width])


def group_of(names: Sequence[str], number: int) -> list[str]:
    """Host, one environment, host: blocks of a machine whose memory does not hold all of them."""
    others = [name for name in names if name not in (HOST, CONTROL)]
    return [HOST, CONTROL, others[number % len(others)]] if others else [HOST, CONTROL]


def fitting(unit: Mapping[str, Any], count: int) -> int:
    """How many of a unit's launches fit in memory together, the device's too, three at least."""
    draws = [draw for launch in unit["launches"].values() for draw in launch.get("draws", ())]
    peaks = [draw["peak_rss_bytes"] for draw in draws]
    crowded = bool(peaks) and count * max(peaks) > MEMORY_SHARE * available_memory_bytes()
    for device in (draw["device_memory"] for draw in draws if draw.get("device_memory")):
        taken = count * (device["peak_bytes"] + CONTEXT_BYTES)
        crowded = crowded or taken > MEMORY_SHARE * device["total_bytes"]
    return min(3, count) if crowded else count


def stretch_of(calibration: Mapping[str, Any]) -> Stretch:
    """What a unit does, as the calibration settled it."""
    return Stretch(
        draws=calibration["draws"],
        cycles=calibration["cycles"],
        warmup=WARMUP_STEPS,
        burst=Burst(discard=calibration["discard"], steps=calibration["steps"]),
    )


def calibrate(block: Block, start_s: float, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Burst and split of the units to come, measured on a block that does not count.

    Long bursts show how a step's time settles after a change of hands; short ones how draws and cycles vary, and
    what they cost.
    """
    started = time.monotonic()
    low, high = LONG_BURST_STEPS
    short_s: list[float] = []
    for number in range(TRIAL_DRAWS):
        block.draw(number, WARMUP_STEPS)
        if number == 0:
            last = [step for worker in block.workers for step in worker.draws[0]["warmup_s"][-2:]]
            step_s = float(np.median(last))
            long_burst = Burst(discard=0, steps=min(high, max(low, math.ceil(LONG_BURST_S / step_s))))
            short_burst = Burst(discard=1, steps=max(1, round(BURST_S / step_s)))
        block.cycles(LONG_CYCLES, long_burst)
        done = len(block.cycle_s)
        block.cycles(SHORT_CYCLES, short_burst)
        short_s += block.cycle_s[done:]
        block.drop()
    draws = [worker.draws[number]["turns"] for worker in block.workers for number in range(TRIAL_DRAWS)]
    bursts = [burst for turns in draws for burst in turns["step_s"][:LONG_CYCLES]]
    fewest = max(1, math.ceil(LEAST_DISCARDED_S / step_s))
    settled = settle(bursts, short_burst.steps, AGREEMENT * plan["margins"]["step"], fewest)
    burst = Burst(discard=settled["discard"], steps=short_burst.steps)
    components = components_of(block, plan["prior"])
    growth = (burst.discard + burst.steps) / (short_burst.discard + short_burst.steps)
    costs = Costs(
        block_s=start_s + LEAVE_S,
        draw_s=float(np.median(block.draw_s)),
        cycle_s=float(np.median(short_s)) * growth,
    )
    others = sum(name not in (HOST, CONTROL) for name in plan["environments"])
    sampling = plan["sampling"]
    spent_s = start_s + time.monotonic() - started + LEAVE_S
    split = best_split(
        components,
        costs,
        budget_s=max(0.0, sampling["budget_s"] - spent_s),
        fewest=sampling.get("units") or sampling["pilot"],
        most=sampling.get("units"),
        alpha=(1 - sampling["confidence"]) / max(1, others),
    )
    return {
        "step_s": step_s,
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
    most = max(1, min(MOST_DISCARDED, half))
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


def components_of(block: Block, prior: Mapping[str, float]) -> Components:
    """Variance components host to host from the short bursts of one block.

    One block says nothing of blocks, and little of draws: the block's part is the study's prior, and the draw's at
    least its prior.
    """
    residuals, effects = [], []
    for number in range(TRIAL_DRAWS):
        turns = [turn_logs(worker.draws[number]["turns"])[LONG_CYCLES:] for worker in block.workers]
        launch, rest = two_way(np.array(turns).T)
        effects.append(launch - launch.mean())
        residuals.append(rest.ravel())
    launches = len(block.workers)
    freedom = math.sqrt((1 - 1 / SHORT_CYCLES) * (1 - 1 / launches))  # what the fits have taken away
    cycle = MAD_TO_SD * float(np.median(np.abs(np.concatenate(residuals)))) / freedom
    spread = float(np.var(effects, axis=0, ddof=1).mean()) * launches / (launches - 1)
    draw = math.sqrt(2 * max(0.0, spread - cycle**2 / SHORT_CYCLES))
    return Components(block=prior["block"], draw=max(draw, prior["draw"]), cycle=math.sqrt(2) * cycle)


def turn_logs(turns: Mapping[str, Any]) -> np.ndarray:
    """Log of the median counted step of each turn of a draw, shape [cycles]."""
    return np.log([float(np.median(steps)) for steps in turns["step_s"]])


def unit_values(unit: Mapping[str, Any]) -> dict[str, float]:
    """Seconds per step of each launch of a block: one robust fit of launch + cycle to all cycles of all its draws.

    A process whose memory fell badly is several per cent slower for its whole life: with three draws or more, such
    a draw is weighed down as stalls are. The ratio of totals keeps it in full.
    """
    names = [name for name, row in unit["launches"].items() if row["status"] == "ok"]
    if unit["voided"] or not names:
        return {}
    logs = [
        np.concatenate([turn_logs(draw["turns"]) for draw in unit["launches"][name]["draws"]]) for name in names
    ]
    effects, _ = two_way(np.array(logs).T)
    return {name: float(math.exp(effect)) for name, effect in zip(names, effects, strict=True)}


def cycle_ratios(unit: Mapping[str, Any]) -> list[list[float]]:
    """Log-ratios of the second host to the first, by draw and cycle: variance components come from them."""
    rows = [unit["launches"].get(name, {}) for name in (HOST, CONTROL)]
    if unit["voided"] or any(row.get("status") != "ok" for row in rows):
        return []
    return [
        (turn_logs(second["turns"]) - turn_logs(first["turns"])).tolist()
        for first, second in zip(rows[0]["draws"], rows[1]["draws"], strict=True)
    ]
