"""Recorded sliced rounds of the host and the second host, made up: units, and the folder of a campaign."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from asked import PLANNED
from campaign_builders import MACHINE, launches_of

from tare.model.records.campaigns import Plan, Unit
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.schema import parse

LEVELS = ("default", "steady")
NS = 1_000_000_000
STEP_S, REPLICATES, STEPS = 0.05, 3, 6
EPOCH_END_S, AFTER_S = 3.0, 0.01  # own seconds until the end of the epoch; from the last mark to the end
MOUNT = {"point": "/", "type": "ext4", "source": "x"}
FACTS = {
    **{"python": "3.11", "executable": "/t/bin/python3", "libc": "glibc 2.36", "kernel": "6.1", "hostname": "box"},
    **{"uid": 0, "gid": 0, "cwd": "/", "affinity": [0, 1], "open_files": {"soft": 1, "hard": 1}, "shm_bytes": None},
    **{"environment_names": [], "environment_bytes": 0, "interfaces": [], "status": {}, "namespaces": {}},
    **{"cgroups": {}, "cpu_quota": None, "cpu_stat": None, "transparent_hugepage": None, "root_mount": MOUNT},
    **{"tree_mount": MOUNT},
}


def host_launch(
    epoch: float = 1.0, steps: Mapping[str, Sequence[Sequence[float]]] | None = None, sliced: bool = True
) -> dict[str, Any]:
    """A launch of the host in its own time, from 1 s on.

    Args:
        epoch: what its time until the end of the epoch is multiplied by.
        steps: seconds of each measured step, by level and replicate.
        sliced: whether others ran in between.
    """
    at = arrived = NS + 5_000_000
    marks = []
    ends = {"entry": 0.02, "imports": 2.0, "data": 2.1, "model": 2.2, "first_step": 2.4, "epoch_end": EPOCH_END_S}
    for name, end in ends.items():
        at = arrived + round(epoch * end * NS)
        marks.append({"name": name, "at_ns": at, "user_s": 1.0, "system_s": 0.1})
    replicates = []
    for level, rows in (steps or {}).items():
        for number, row in enumerate(rows):
            made = [at + round(end * NS) for end in np.cumsum(row)]
            replicates.append(
                {
                    **{"allocator": level, "replicate": number, "forked": True, "reason": None, "pad_bytes": 0},
                    **{"warmup_ends_ns": [], "started_ns": at, "step_ends_ns": made, "cpu_s": 1.0, "system_s": 0.0},
                    **{"faults": 0, "preemptions": 0, "loss_first": 1.0, "loss_last": 1.0, "peak_rss_bytes": 1},
                }
            )
            at = made[-1]
    for name in ("measured_end", "last"):
        marks.append({"name": name, "at_ns": at, "user_s": 1.0, "system_s": 0.1})
    ended = at + round(AFTER_S * NS)
    body_us = (ended - arrived) // 1000
    return {
        **{"status": "ok", "reason": None, "deviations": [], "spawn_ns": NS, "end_ns": ended + 2_000_000},
        "inside": {
            **{"schema": 1, "mode": "train", "status": "ok", "reason": None, "facts": FACTS, "marks": marks},
            "memory": {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1},
            "results": {
                **{"samples": 512, "steps": 8, "step_ends_ns": [], "losses": [], "replicates": replicates},
            },
        },
        "slices": {
            **{"means": "cgroup2", "spawn_ns": NS, "arrived_ns": arrived, "ended_ns": ended},
            **{"end_ns": ended + 2_000_000, "began_us": [0], "length_us": [body_us], "quiet_us": [body_us]},
            **{"quantum_ms": [40 if sliced else 0], "waited_us": [0], "cpu_us": [body_us]},
        },
    }


def host_round(number: int, launches: Mapping[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A unit of these launches; the first one of a campaign is discarded."""
    return {
        **{"unit": number, "discarded": number == 0, "voided": None, "cost_s": 20.0, "order": list(launches)},
        **{"launches": dict(launches), **more},
    }


def simulated(
    generator: np.random.Generator, count: int, *, mood: float, launch: float, replicate: float, epoch: float
) -> list[dict[str, Any]]:
    """A calibration and `count` sliced rounds.

    Args:
        generator: of everything.
        count: of rounds.
        mood: standard deviation of the log of a step between rounds, alike in both hosts.
        launch, replicate: of the log of a step between launches, and between replicates of one.
        epoch: of the log of the time until the end of the epoch, of one launch.
    """
    units = []
    for number in range(count + 1):
        shared = generator.normal(0, mood)
        launches = {}
        for name in (HOST, CONTROL):
            own = shared + generator.normal(0, launch)
            steps = {
                level: [
                    [STEP_S * math.exp(own + more)] * STEPS for more in generator.normal(0, replicate, REPLICATES)
                ]
                for level in LEVELS
            }
            launches[name] = host_launch(math.exp(generator.normal(0, epoch)), steps, sliced=number > 0)
        units.append(host_round(number, launches))
    return units


def as_units(rows: Sequence[Mapping[str, Any]]) -> list[Unit]:
    """Rows as they are read."""
    return [parse(Unit, dict(row), "a unit") for row in rows]


def write_rounds(folder: Path, rows: Sequence[Mapping[str, Any]], **changes: Any) -> Path:
    """The folder of a running campaign of the host alone.

    Args:
        folder: where it is written.
        rows: of its journal.
        changes: to its plan.
    """
    plan = {
        **{"schema": Plan.VERSION, "kind": "rounds", "study": "s", "workload": "mnist_cnn"},
        "launches": launches_of([HOST, CONTROL]),
        **PLANNED,
        **{"sampling": {"confidence": 0.95, "units": 12}, "seed": 1, "discarded": 1},
        **{
            "arm": "stack=same",
            "headline_arm": "stack=same",
            "stack": "torch-2.13",
            "code_sha256": "0",
            "provenance": {},
        },
        "machine": {
            **{"name": MACHINE, "cpus": [0, 1], "governor": None, "kernel": "6.1"},
            **{"machine": "x86_64", "online_cpus": "0-1"},
        },
        "measured": {"levels": list(LEVELS), "replicates": REPLICATES, "warmup_steps": 2, "seconds": 0.3},
    }
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan | changes))
    (folder / "units.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
