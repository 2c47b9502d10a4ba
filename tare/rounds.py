"""Rounds: whole runs of every environment and a second host, one after the other in random order.

The round is the unit of every statistic on whole runs. The batch sweep is a campaign of the same kind: one unit
runs every batch size once on the host, in random order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.campaign import run_campaign
from tare.launch import Site, code_sha256, launch
from tare.study import CONTROL, HOST

LARGEST_PAD_BYTES = 4096  # a page: where the environment block ends shifts the stack by up to this much
LOADER_WORKERS = 1  # as in the paper


def whole_run_spec(workload: str, batch: int, steady_epochs: int, study: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch of a whole run does inside."""
    return {
        "mode": "train",
        "workload": workload,
        "batch": batch,
        "seed": study["seed"],
        "device": study["device"],
        "loader_workers": LOADER_WORKERS,
        "steady_epochs": steady_epochs,
    }


def unit_order(names: Sequence[str], seed: int, workload: str, unit: int) -> tuple[list[str], dict[str, int]]:
    """Random order of a unit's launches and the environment pad of each, from seeds that the plan holds; pure."""
    generator = random.Random(f"{seed}/{workload}/{unit}")
    order = list(names)
    generator.shuffle(order)
    return order, {name: generator.randrange(LARGEST_PAD_BYTES) for name in order}


def run_rounds(
    folder: Path,
    study: Mapping[str, Any],
    workload: str,
    sites: Mapping[str, Site],
    unavailable: Mapping[str, str],
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """The campaign of whole runs of one workload; returns the sealed summary.

    Args:
        folder: where plan, journal and seal lie.
        study: the part of the study that rounds depend on.
        workload: name of the workload.
        sites: available environments, `host` among them.
        unavailable: the others of the study, each with its reason.
        provenance: images and data that were used, for the plan.
    """
    settings = study["workloads"][workload]
    names = [HOST, CONTROL, *(name for name in sites if name != HOST)]
    all_sites = {**sites, CONTROL: sites[HOST]}
    spec = whole_run_spec(workload, settings["batch"], settings["steady_epochs"], study)
    plan = {
        "kind": "rounds",
        "study": study["study"],
        "workload": workload,
        "environments": names,
        "unavailable": dict(unavailable),
        "spec": spec,
        "conditions": study["conditions"],
        "margins": study["margins"],
        "confidence": study["rounds"]["confidence"],
        "seed": study["seed"],
        "units": study["rounds"]["units"],
        "discarded": study["rounds"]["discarded"],
        "arm": arm(study["conditions"]),
        "stack": study["stack"],
        "code_sha256": code_sha256(workload),
        "provenance": dict(provenance),
    }

    def run_unit(number: int, given_up: Mapping[str, str]) -> dict[str, Any]:
        order, pads = unit_order(names, study["seed"], workload, number)
        launches = {
            name: skipped(given_up[name])
            if name in given_up
            else launch(all_sites[name], spec, study["conditions"], pad_bytes=pads[name])
            for name in order
        }
        return {"order": order, "launches": launches}

    return run_campaign(folder, plan, run_unit, what=f"{workload} rounds")


def run_sweep(
    folder: Path, study: Mapping[str, Any], workload: str, site: Site, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """The batch sweep of one workload on the host; returns the sealed summary."""
    batches = study["workloads"][workload]["sweep_batches"]
    names = [str(batch) for batch in batches]
    plan = {
        "kind": "sweep",
        "study": study["study"],
        "workload": workload,
        "environments": [HOST],
        "unavailable": {},
        "batches": list(batches),
        "spec": whole_run_spec(workload, 0, 0, study),
        "conditions": study["conditions"],
        "seed": study["seed"],
        "units": study["sweep"]["repetitions"],
        "discarded": 1 if study["conditions"]["page_cache"] == "warm" else 0,
        "arm": arm(study["conditions"]),
        "stack": study["stack"],
        "code_sha256": code_sha256(workload),
        "provenance": dict(provenance),
    }

    def run_unit(number: int, given_up: Mapping[str, str]) -> dict[str, Any]:
        order, pads = unit_order(names, study["seed"], f"{workload}/sweep", number)
        if number < plan["discarded"]:
            order = order[:1]  # one launch warms the page cache for every batch size
        launches = {
            name: skipped(given_up[name])
            if name in given_up
            else launch(
                site, whole_run_spec(workload, int(name), 0, study), study["conditions"], pad_bytes=pads[name]
            )
            for name in order
        }
        return {"order": order, "launches": launches}

    return run_campaign(folder, plan, run_unit, what=f"{workload} batch sweep")


def arm(conditions: Mapping[str, Any]) -> str:
    """Name of the deliberate variation that a campaign holds."""
    return f"stack=same,allocator={conditions['allocator']},page_cache={conditions['page_cache']}"


def skipped(reason: str) -> dict[str, Any]:
    """Record of a launch that was not tried."""
    return {"status": "skipped", "reason": reason, "inside": None, "deviations": []}
