"""Synthetic campaigns of causes: what launches ran and what their files cost, planted where asked for."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from campaign_builders import base_plan, inside

from tare.model.roles import read_role
from tare.model.studies import arms

UNIT_S = 25.0
# Seconds on the host, then what a slow file system multiplies them by.
FILES = {"modules_s": 0.016, "libraries_s": 0.014, "stat_s": 0.006, "read_s": 0.016, "map_s": 0.014}
IMPORTS_S = 1.87
SLOW = {"apptainer": 12.0}
OPERATORS = {  # calls and own milliseconds of one step
    "aten::convolution_backward": (2, 20.0),
    "aten::mkldnn_convolution": (2, 10.0),
    "aten::mm": (4, 4.0),
    "aten::tanh": (4, 3.0),
    "aten::copy_": (6, 1.0),
    "aten::t": (8, 0.01),
}
KERNELS = {
    ("mkl", "SGEMM T,N", "128,64,9216"): (1, 2.0),
    ("onednn", "convolution jit:avx512_core forward_training", "mb64_ic1oc32"): (2, 9.0),
    ("onednn", "convolution jit:avx512_core backward_weights", "mb64_ic1oc32"): (2, 18.0),
}
# By environment: what operators take times more, and which kernel runs instead of which.
SLOWER: dict[str, dict[str, float]] = {}
OTHER: dict[str, dict[str, str]] = {}


def causes_record(
    env: str, generator: random.Random, *, slow: float = 1.0, operators: Mapping[str, float] | None = None,
    other: Mapping[str, str] | None = None, steps: int = 4, noise: float = 0.02,
) -> dict[str, Any]:  # fmt: skip
    """A successful launch: `slow` multiplies its files' costs, `operators` their times, `other` renames kernels."""

    def drawn(value: float) -> float:
        return value * math.exp(generator.gauss(0, noise))

    at = 1_000_000_000
    read = drawn(FILES["modules_s"] * slow), drawn(FILES["libraries_s"] * slow)
    marks = [("entry", 0.03), ("read", sum(read)), ("imports", drawn(IMPORTS_S)), ("last", 1.0)]
    rows = []
    for name, span in marks:
        at += int(span * 1e9)
        rows.append({"name": name, "at_ns": at, "user_s": 0.1, "system_s": 0.01})
    timed = [
        {"library": "operator", "kernel": name, "shape": None, "calls": calls * steps,
         "s": drawn(own * (operators or {}).get(name, 1.0)) * steps / 1e3}
        for name, (calls, own) in OPERATORS.items()
    ]  # fmt: skip
    kernels = [
        {
            "library": library,
            "kernel": (other or {}).get(name, name),
            "shape": shape,
            "calls": calls,
            "s": own / 1e3,
        }
        for (library, name, shape), (calls, own) in KERNELS.items()
    ]
    results = {
        "first": {"modules_s": read[0], "libraries_s": read[1]},
        "files": {
            **{key: [drawn(FILES[key] * slow) for _ in range(3)] for key in ("stat_s", "read_s", "map_s")},
            **{"modules": 1995, "modules_bytes": 54_000_000},
            **{"libraries": 83, "libraries_bytes": 560_000_000, "touched_bytes": 87_000_000},
        },
        "kernels": {"rows": kernels, "reason": None},
        "operators": {"rows": timed, "steps": steps, "reason": None},
    }
    return {
        **{"status": "ok", "reason": None, "argv": ["env"], "at": "2026-01-02T03:04:05Z", "deviations": []},
        **{"spawn_ns": 1_000_000_000, "end_ns": at},
        "inside": inside(env, "causes", rows, results),
    }


def causes_campaign(
    study: str, workload: str, names: Sequence[str], unavailable: Mapping[str, str], units: int,
    generator: random.Random, *, slow: Mapping[str, float] | None = None,
    slower: Mapping[str, Mapping[str, float]] | None = None, other: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # fmt: skip
    """Plan and units; the first unit only lists the files of the host's imports.

    Args:
        slow: by environment, what its files cost times the host's, instead of SLOW.
        slower: by environment and operator, what operators take times the host's.
        other: by environment and kernel, the kernel that runs instead.
    """
    everyone = arms.launch_names(None, names)
    plan = {**base_plan(study, workload, "causes", everyone, units), "unavailable": dict(unavailable)}
    plan["spec"] = {"mode": "causes", "batch": 64, "device": "cpu"}
    slow, slower, other = (SLOW if slow is None else slow), slower or SLOWER, other or OTHER
    listing = causes_record("host", generator)
    listing["inside"]["results"] = {"listed": {"modules": ["lib/a.pyc"], "libraries": [["lib/b.so", [[0, 2]]]]}}
    rows = [_unit(0, {"host": listing})]
    for number in range(1, units + 1):
        launches = {}
        for name in everyone:
            env = read_role(name).environment
            launches[name] = causes_record(
                name, generator, slow=slow.get(env, 1.0), operators=slower.get(env), other=other.get(env)
            )
        rows.append(_unit(number, launches))
    return plan, rows


def _unit(number: int, launches: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{"unit": number, "discarded": number == 0, "voided": None, "order": list(launches)},
        **{"launches": dict(launches), "cost_s": UNIT_S},
    }
