"""Synthetic sealed campaigns: rounds, arms, the batch sweep, as ended ones leave them.

Units are made up; what follows from them (decision, seal) comes from the real code.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from tare.analysis import verdicts
from tare.core.files import Journal, canonical_json, sha256_file, sha256_text
from tare.model.conditions import StudyConditions
from tare.model.journals.sealed import (
    DECISION_KEY,
    ENDED_KEY,
    HEADLINE_LEVEL,
    PLAN,
    SEAL_KEY,
    UNITS,
    SealedCampaign,
    views,
)
from tare.model.journals.units import counted, family_alpha
from tare.model.levels import levels_text
from tare.model.records.campaigns import Plan, Sealed, Unit
from tare.model.records.measured import CopiesRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role
from tare.model.schema import parse
from tare.model.studies import arms
from tare.model.studies.layout import ROUNDS, SEALED, STEPS
from tare.stats import planning
from tare.stats.fits import run_values
from tare.stats.intervals import log_ratios_of

MACHINE = "box"  # as conftest.py names it
CONFIDENCE = 0.95
CONDITIONS = StudyConditions(threads=1, cpus=2, open_files=4096, page_cache="warm", launch_timeout_s=180)
MODES = {"causes": "causes", "starts": "start"}  # of the launches of a kind of campaign, but for whole runs
MARGINS = {"run": 0.05, "step": 0.02}
HEADLINE = {
    "rounds": {"stack": "same", "allocator": "default", "page_cache": "warm"},
}
HEADLINE["sweep"] = HEADLINE["causes"] = HEADLINE["starts"] = HEADLINE["rounds"]
METRIC = {"rounds": "real_s"}
HALF_WIDTH = {"rounds": 0.03}
ROUND_S = 20.0
# Seconds of each phase on the host, then what each environment multiplies them by; `step` is the training step's.
PHASES = {
    "runtime_start": 0.03,
    "imports": 1.9,
    "data": 0.05,
    "model": 0.02,
    "first_step": 0.22,
    "epoch_rest": 1.4,
    "exit": 0.12,
}
FACTORS: dict[str, dict[str, float]] = {
    "docker": {"runtime_start": 14.0, "exit": 2.6, "step": 1.035},
    "apptainer": {"runtime_start": 9.0, "imports": 1.2},
    "charliecloud": {"runtime_start": 1.6},
}
# What the level of an arm multiplies everyone's phases by.
LEVELS: dict[str, dict[str, float]] = {
    "stack=native": {"imports": 1.08},
    "stack=paper-2022": {"imports": 0.4, "step": 1.36},
    "amp=bf16": {"step": 0.62},
    "layout=channels-last": {"step": 1.03},
    "compile=inductor": {"step": 0.9},
    "tf32=on": {"step": 0.97},
    "cudnn=benchmark": {"step": 0.995},
}
# What the level of an arm multiplies the last loss by: it computes something else.
LOSS_FACTORS = {"amp=bf16": 1.004, "tf32=on": 1.00005}
PYTHON, OTHER_PYTHON = "3.11.7", "3.7.17"  # that ran of the study's stack, and of another
MARKS = ("entry", "imports", "data", "model", "first_step", "epoch_end")
STEP_S = {"mnist_cnn": 0.05, "sentiment_rnn": 0.012}
ALLOCATORS = {"steady": 1.0, "default": 1.19}  # what a level of the allocator multiplies a step by
REPLICATES, WARMUP_STEPS, COUNTED = 2, 2, 8
MEASURED = {"levels": list(ALLOCATORS), "replicates": REPLICATES, "warmup_steps": WARMUP_STEPS, "seconds": 0.4}
LOSS = 0.4381  # of the last measured step
QUANTUM_S = 0.04


def facts(env: str) -> dict[str, Any]:
    """What a launch of `env` reports from inside."""
    contained = read_role(env).environment != HOST
    return {
        "python": PYTHON,
        "executable": "/opt/tare/bin/python3.11" if contained else "/cache/tree/bin/python3.11",
        "libc": "glibc 2.36",
        "kernel": "6.1.0",
        "hostname": "box",
        "uid": 0,
        "gid": 0,
        "cwd": "/w",
        "affinity": [0, 1],
        "open_files": {"soft": 4096, "hard": 4096},
        "shm_bytes": 1 << 30,
        "environment_names": ["HOME", "PATH"],
        "environment_bytes": 400,
        "interfaces": ["lo"],
        "status": {"Seccomp": "2" if env == "docker" else "0", "Speculation_Store_Bypass": "vulnerable"},
        "own_namespaces": ["net"] + (["mnt"] if contained else []) + (["pid"] if env == "docker" else []),
        "namespaces": {"mnt": f"mnt:[{1 if not contained else 2}]", "pid": f"pid:[{2 if env == 'docker' else 1}]"},
        "cgroups": {"memory": "/"},
        "cpu_quota": None,
        "cpu_stat": None,
        "transparent_hugepage": "always [madvise] never",
        "root_mount": {"point": "/", "type": "overlay" if contained else "ext4", "source": "x"},
        "tree_mount": {"point": "/", "type": "squashfs" if env == "apptainer" else "ext4", "source": "x"},
        "torch": {
            "version": "2.13.0+cpu",
            "threads": 1,
            "interop_threads": 1,
            "cuda": None,
            "cuda_available": False,
            "cudnn_benchmark": False,
        },
    }


def inside(
    env: str, mode: str, marks: Sequence[Mapping[str, Any]] = (), results: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a worker that succeeded wrote."""
    return {
        **{"schema": 1, "mode": mode, "status": "ok", "reason": None, "facts": facts(env)},
        "memory": {"peak_rss_bytes": 400_000_000, "children_peak_rss_bytes": 1},
        **{"marks": list(marks), "results": dict(results or {})},
    }


def factors_of(
    name: str, arm: arms.Arm | None = None, given: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, float]:
    """What a launch of this name multiplies each phase by: its environment's part, and its arm's."""
    own = (FACTORS if given is None else given).get(read_role(name).environment, {})
    level = LEVELS.get(arm.name, {}) if arm and not read_role(name).is_reference else {}
    return {key: own.get(key, 1.0) * level.get(key, 1.0) for key in {*own, *level}}


def launch_record(
    env: str, generator: random.Random, *, factors: Mapping[str, float] | None = None, loss: float = 1.25,
    scale: float = 1.0, replicates: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:  # fmt: skip
    """A successful whole run with phases as PHASES says, times `factors`, with one per cent of noise.

    Instants of its replicates are nanoseconds since the end of its epoch.
    """
    factors = factors_of(env) if factors is None else factors
    at, marks = 1_000_000_000, []
    spans = {name: s * scale * factors.get(name, 1.0) * generator.gauss(1, 0.01) for name, s in PHASES.items()}
    for mark, span in zip(MARKS, list(spans.values())[:-1], strict=True):
        at += int(span * 1e9)
        marks.append({"name": mark, "at_ns": at, "user_s": at / 1e9 * 0.9, "system_s": at / 1e9 * 0.05})
    moved = [
        {
            **one,
            "started_ns": at + one["started_ns"],
            **{name: [at + end for end in one[name]] for name in ("warmup_ends_ns", "step_ends_ns")},
        }
        for one in replicates
    ]
    last = max([at, *(one["step_ends_ns"][-1] for one in moved)]) + 2_000_000
    marks.append({"name": "last", "at_ns": last, "user_s": last / 1e9 * 0.9, "system_s": last / 1e9 * 0.05})
    return {
        "status": "ok",
        "reason": None,
        "argv": ["env"],
        "spawn_ns": 1_000_000_000,
        "end_ns": last + int(spans["exit"] * 1e9),
        "client_user_s": last / 1e9 * 0.95,
        "client_system_s": last / 1e9 * 0.06,
        "at": "2026-01-02T03:04:05Z",
        "deviations": [],
        "inside": inside(
            env,
            "train",
            marks,
            {"samples": 512, "steps": 8, "step_ends_ns": [], "losses": [2.3, loss], "replicates": moved},
        ),
    }


def replicate_records(
    generator: random.Random, rows: Mapping[str, Sequence[float]], *, step_s: float, loss: float = LOSS
) -> list[dict[str, Any]]:
    """Replicates of a launch, with instants since the end of its epoch.

    Args:
        generator: of what is the launch's own: its level, its replicates' and its steps' noise, and rare stalls.
        rows: by level of the allocator, what all launches of the round share, of each step in the logarithm.
        step_s: seconds of a step at the level `steady`.
        loss: of the last step.
    """
    found, at = [], 0
    launch = generator.gauss(0, 0.002)
    for level, shared in rows.items():
        for number in range(REPLICATES):
            own = launch + generator.gauss(0, 0.002)
            count = len(shared) // REPLICATES
            steps = [
                step_s * ALLOCATORS[level] * math.exp(own + row + generator.gauss(0, 0.006))
                for row in shared[number * count : (number + 1) * count]
            ]
            if generator.random() < 0.1:
                steps[0] *= 1.6  # a stall
            warmup = [step_s * 1.3] * WARMUP_STEPS
            warmup_ends, started = _ends(at, warmup)
            ends, at = _ends(started, steps)
            found.append(
                {
                    **{"allocator": level, "replicate": number, "forked": True, "reason": None, "pad_bytes": 4096},
                    **{"warmup_ends_ns": warmup_ends, "started_ns": started, "step_ends_ns": ends},
                    **{"cpu_s": sum(steps), "system_s": 0.01 * sum(steps), "faults": 12 * count, "preemptions": 0},
                    **{"loss_first": 2.3, "loss_last": loss},
                    "peak_rss_bytes": 360_000_000 + generator.randrange(1 << 20),
                }
            )
    return found


def _ends(start: int, seconds: Sequence[float]) -> tuple[list[int], int]:
    """When each of some steps ended, ns, and when the last did."""
    ends = []
    for one in seconds:
        start += round(one * 1e9)
        ends.append(start)
    return ends, start


def in_slices(
    unit: Mapping[str, Any], *, start_s: float = 0.02, exit_s: float = 0.05, tail_s: float = 0.0
) -> dict[str, Any]:
    """A unit whose launches ran in slices, one at a time, and ended together; those that failed are as they were.

    Args:
        unit: of whole runs one after the other.
        start_s, exit_s: of every launch, before and after its slices.
        tail_s: own seconds that every launch but the hosts' still had when both hosts had ended.
    """
    launches, quantum_us = dict(unit["launches"]), round(QUANTUM_S * 1e6)
    own = {name: launch for name, launch in launches.items() if launch["status"] == "ok"}
    around_ns = round((start_s + exit_s) * 1e9)
    bodies_us = {name: (one["end_ns"] - one["spawn_ns"] - around_ns) // 1000 for name, one in own.items()}
    end_us = 2 * max(bodies_us.values(), default=0)
    for name, launch in own.items():
        arrived_ns = launch["spawn_ns"] + round(start_s * 1e9)
        whole, rest = divmod(bodies_us[name], quantum_us)
        lengths = [quantum_us] * whole + ([rest] if rest else [])
        step = (end_us - lengths[-1]) // (len(lengths) - 1)
        began = [number * step for number in range(len(lengths))]
        late = 0 if name in (HOST, CONTROL) else round(tail_s * 1e6) // quantum_us
        began = [at + (end_us if number >= len(lengths) - late else 0) for number, at in enumerate(began)]
        ended_ns = arrived_ns + 1000 * (began[-1] + lengths[-1])
        launches[name] = launch | {
            "slices": {
                **{"means": "cgroup2", "servers": 0, "spawn_ns": launch["spawn_ns"], "arrived_ns": arrived_ns},
                **{"ended_ns": ended_ns, "end_ns": ended_ns + round(exit_s * 1e9)},
                **{"began_us": began, "length_us": lengths, "quiet_us": lengths},
                "quantum_ms": [round(1000 * QUANTUM_S)] * len(lengths),
                **{"waited_us": [0] * len(lengths), "cpu_us": lengths},
            }
        }
    return {**unit, "launches": launches}


def launches_of(names: Sequence[str | Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Launches of a unit as a plan's JSON has them, from their names; what is one already stays."""
    return [read_role(name).to_json() if isinstance(name, str) else name for name in names]


def base_plan(
    study: str, workload: str, kind: str, names: Sequence[str], units: int, arm: arms.Arm | None = None
) -> dict[str, Any]:
    """The part of a plan that every campaign has; the budget of a chosen number of units pays for `units`."""
    sampling: dict[str, Any] = {"units": units, "confidence": CONFIDENCE}
    if kind in METRIC and not (arm and arm.other_stack):  # whose number of units the study fixes
        budget_s = (units + 1.5) * ROUND_S
        sampling = {
            **{"metric": METRIC[kind], "confidence": CONFIDENCE, "budget_s": budget_s},
            **{"pilot": min(6, units), "half_width": HALF_WIDTH[kind]},
        }
    sampling["verdict_units"] = min(6, units)
    levels = arms.levels_of(HEADLINE[kind], arm)
    return {
        "kind": kind,
        "study": study,
        "workload": workload,
        "launches": launches_of(names),
        "unavailable": {},
        "spec": {"mode": MODES.get(kind, "train"), "batch": 64, "loader_workers": 1, "device": "cpu"},
        "conditions": arms.conditions_at(CONDITIONS, levels).to_json(),
        "headline_conditions": arms.conditions_at(CONDITIONS, HEADLINE[kind]).to_json(),
        "margins": MARGINS,
        "sampling": sampling,
        "seed": 2022,
        "discarded": 1,
        "arm": levels_text(levels),
        "headline_arm": levels_text(HEADLINE[kind]),
        "stack": "torch-2.13",
        "code_sha256": "0" * 64,
        "provenance": {},
        "attempt": 1,
        "machine": {
            **{"name": MACHINE, "kernel": "6.1.0", "cpus": [0, 1], "machine": "x86_64"},
            **{"governor": None, "online_cpus": "0-1"},
        },
    }


def write_campaign(
    folder: Path, plan: Mapping[str, Any], units: list[dict[str, Any]], ended: str | None = None
) -> None:
    """Plan, journal, decision and seal, as a campaign that ended leaves them."""
    checked = parse(Plan, {key: value for key, value in plan.items() if key != "schema"}, "plan")
    checked.write(folder / PLAN)
    journal = Journal(folder / UNITS)
    for unit in units:
        journal.append(unit)
    own = counted(parse(Unit, unit, f"unit {number}") for number, unit in enumerate(units))
    decision = None
    if checked.sampling.pilot is not None:
        pilot = own[: checked.sampling.pilot]
        decision = planning.decide(
            log_ratios_of([run_values(unit) for unit in pilot], checked.launch_names),
            plan["sampling"],
            alpha=family_alpha(checked),
            spent_s=sum(unit.cost_s for unit in pilot),
            unit_s=pilot[0].cost_s,
        )
        decision["units"] = min(decision["units"], len(own))
        journal.append({DECISION_KEY: decision})
    if ended:
        journal.append({ENDED_KEY: ended})
    journal.append({SEAL_KEY: sha256_text(canonical_json(units))})
    seal = {
        **{"status": "ended" if ended else "sealed", "reason": ended, "decision": decision, "failures": {}},
        **{"plan_sha256": sha256_file(folder / PLAN), "units_sha256": sha256_file(folder / UNITS)},
        **{"units": len(own), "voided": sum(unit["voided"] is not None for unit in units)},
        **{"machine_s": sum(unit["cost_s"] for unit in units), "sealed_at": "2026-01-02T03:04:05Z"},
    }
    parse(Sealed, seal, "seal").write(folder / SEALED)


def verdict_rows(campaign: SealedCampaign, metrics: pd.DataFrame, share: float = 1.0) -> list[dict[str, Any]]:
    """Rows of the verdict table for one campaign, as if it were the whole study."""
    return verdicts.study_rows([verdicts.Measured(campaign=campaign, metrics=metrics, share=share)])


def with_units(campaign: SealedCampaign, units: Sequence[Mapping[str, Any]]) -> SealedCampaign:
    """The same campaign with other units, as JSON holds them."""
    return replace(campaign, units=tuple(parse(Unit, unit, f"unit {unit['unit']}") for unit in units))


def with_plan(campaign: SealedCampaign, **changes: Any) -> SealedCampaign:
    """The same campaign with another plan."""
    return replace(campaign, plan=parse(Plan, campaign.plan.to_json() | changes, "plan"))


def steps_of(campaign: SealedCampaign, level: str = HEADLINE_LEVEL) -> SealedCampaign:
    """The view of the training steps that a campaign measured at a level of the allocator."""
    return next(view for view in views(campaign) if view.level == level)


def json_units(campaign: SealedCampaign) -> list[dict[str, Any]]:
    """Units as JSON holds them, to be changed."""
    return [unit.to_json() for unit in campaign.units]


def sealed_campaign(
    plan: Mapping[str, Any], units: Sequence[Mapping[str, Any]] = (), name: str = "c", *, ended: str | None = None,
    design: str | None = None, level: str | None = None,
) -> SealedCampaign:  # fmt: skip
    """A campaign as it is read back, without files; what plan and units lack is filled in.

    `level`: of the allocator, for the view of its training steps; so is the kind `steps`.
    """
    if plan["kind"] == STEPS:
        plan, name, level = {**plan, "kind": ROUNDS}, name.replace(STEPS, ROUNDS), level or HEADLINE_LEVEL
    whole = base_plan("s", "mnist_cnn", plan["kind"], (), 6) | dict(plan)
    whole["launches"] = launches_of(whole["launches"])
    rows = [
        parse(Unit, {"cost_s": 1.0, "order": list(unit["launches"]), **unit}, f"unit {unit['unit']}")
        for unit in units
    ]
    decision = {
        **{"units": 12, "design": design, "wanted": 12, "cap": 99, "spread": {}, "widest": None, "alpha": 0.05},
        **{"half_width": 0.01, "unit_s": 1.0, "spent_s": 6.0},
    }
    seal = {
        **{"status": "ended" if ended else "sealed", "reason": ended, "failures": {}, "machine_s": 1.0},
        **{"plan_sha256": "0" * 64, "units_sha256": "0" * 64, "units": len(counted(rows)), "voided": 0},
        **{"decision": decision if design else None, "sealed_at": "2026-01-02T03:04:05Z"},
    }
    return SealedCampaign(
        path=Path("campaigns") / whole["study"] / whole["machine"]["name"] / whole["workload"] / name / SEALED,
        plan=parse(Plan, whole, "plan"), units=tuple(rows), sealed=parse(Sealed, seal, "seal"), level=level,
    )  # fmt: skip


def rounds_campaign(
    study: str, workload: str, names: Sequence[str], unavailable: Mapping[str, str], units: int,
    generator: random.Random, factors: Mapping[str, Mapping[str, float]] | None = None, arm: arms.Arm | None = None,
    measured: Mapping[str, Any] | None = MEASURED,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # fmt: skip
    """Plan and units of whole runs and the steps that they measured; `factors` by environment replaces FACTORS."""
    everyone = arms.launch_names(arm, names)
    plan = {**base_plan(study, workload, "rounds", everyone, units, arm), "unavailable": dict(unavailable)}
    levels = measured["levels"] if measured else ()
    plan |= {"measured": dict(measured)} if measured else {}
    scale = 1.0 if workload == "mnist_cnn" else 0.7
    others = random.Random(str(generator.getstate()))  # steps do not change the whole runs
    rows = []
    for number in range(units + 1):
        speed = others.gauss(0, 0.05)
        shared = {level: [speed + others.gauss(0, 0.01) for _ in range(REPLICATES * COUNTED)] for level in levels}
        launches = {}
        for name in everyone:
            own = factors_of(name, arm, factors)
            step_s = STEP_S.get(workload, 0.05) * own.get("step", 1.0)
            loss = LOSS * (LOSS_FACTORS.get(arm.name, 1.0) if arm and not read_role(name).is_reference else 1.0)
            replicates = replicate_records(others, shared, step_s=step_s, loss=loss)
            launches[name] = launch_record(name, generator, factors=own, scale=scale, replicates=replicates)
        rows.append(_unit(number, everyone, launches, ROUND_S))
    return plan, rows


def _unit(number: int, order: Sequence[str], launches: Mapping[str, Any], cost_s: float) -> dict[str, Any]:
    return {
        **{"unit": number, "discarded": number == 0, "voided": None, "order": list(order)},
        **{"launches": dict(launches), "cost_s": cost_s},
    }


def sweep_campaign(
    study: str, workload: str, batches: Sequence[int], repetitions: int, generator: random.Random
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Plan and units of the batch sweep."""
    plan = {**base_plan(study, workload, "sweep", [HOST], repetitions), "batches": list(batches), "discarded": 0}
    plan.pop("margins")
    rows = []
    for number in range(repetitions):
        launches = {
            str(batch): launch_record(HOST, generator, factors={"epoch_rest": (batch / 128) ** -0.2})
            for batch in batches
        }
        rows.append({**_unit(number, list(launches), launches, ROUND_S), "discarded": False})
    return plan, rows


def copies_record(**changes: Any) -> CopiesRecord:
    """What a benchmark of copies of the stack's tree found."""
    found = {
        **{"workload": "mnist_cnn", "stack": "torch-2.13", "tree": "sha256:0", "allocator": "steady"},
        **{"page_cache": "warm", "kernel": "6.1.0", "copies": list("abcdef"), "at": "2026-01-02T03:04:05Z"},
        **{"cpu": "Example", "rounds": 9, "replicates": 4, "warmup_steps": 1, "steps": 6},
        **{"pages": ["drawn anew"], "load": {"load_1min": {"median": 0.1, "highest": 0.2}}, "p": 0.4},
        **{"sd_between": {"value": 0.0004, "low": 0.0, "high": 0.002}, "effects": dict.fromkeys("abcdef", 0.0)},
        **{"sd_within": {"value": 0.006, "low": 0.005, "high": 0.007}, "half_width": 0.005},
        **{"widened": {"value": 1.03, "high": 1.61}},
    }
    return parse(CopiesRecord, found | changes, "copies")


def served_rounds(campaign: str, units: int = 16, *, together: bool = False) -> SealedCampaign:
    """A calibration that saw a server of apptainer; sliced rounds by turns with rounds of its whole runs.

    Runs of apptainer take 20% less in slices than alone. Steps are in slices in every round. `together`: apptainer
    is in every round, as where jobs of the user's own are weighed.
    """
    base, rows = rounds_campaign("s", "mnist_cnn", [HOST, "docker", "apptainer"], {}, units, random.Random(4))
    skipped = {"status": "skipped", "reason": "left out: this round is of other launches"}

    def one(unit: Mapping[str, Any]) -> dict[str, Any]:
        if unit["unit"] % 2:
            found = in_slices(unit, tail_s=0.6)
            own = found["launches"]["apptainer"]
            cut = {key: [round(0.8 * each) for each in own["slices"][key]] for key in ("length_us", "quiet_us")}
            end_ns = own["spawn_ns"] + round(0.8 * (own["end_ns"] - own["spawn_ns"]))
            faster = own | {"end_ns": end_ns, "slices": own["slices"] | cut}
            own = faster if together else skipped
            return {**found, "slicing": {"refused": None}, "launches": found["launches"] | {"apptainer": own}}
        launches = {
            name: own | {"slices": own["slices"] | {"quantum_ms": [0, *own["slices"]["quantum_ms"][1:]]}}
            for name, own in in_slices(unit)["launches"].items()
        } | {"docker": skipped}
        return {**unit, "slicing": {"refused": None, "whole": ["apptainer"]}, "launches": launches}

    first = rows[0] | {"slicing": {"refused": None, "served": ["apptainer"]}}
    return sealed_campaign(base, [first, *map(one, rows[1:])], campaign)
