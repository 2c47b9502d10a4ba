"""Rounds: whole runs of every environment and a second host, one after the other in random order.

The round is the unit of every statistic on whole runs. The batch sweep is a campaign of the same kind: one unit
runs every batch size once on the host, in random order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.analysis.launch_rows import real_s
from tare.experiments.campaign import Campaign, given_up, run_campaign, skipped
from tare.launch.run import Site, launch
from tare.model import arms, closure
from tare.model.schema import parse
from tare.model.study import BASELINE, HOST, Rounds, sampling_of

METRIC = "real_s"
LARGEST_PAD_BYTES = 4096  # a page: where the environment block ends shifts the stack by up to this much
LOADER_WORKERS = 1  # as in the paper


def whole_run_spec(workload: str, batch: int, study: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch of a whole run does inside."""
    return {
        "mode": "train",
        "workload": workload,
        "batch": batch,
        "seed": study["seed"],
        "device": study["device"],
        "loader_workers": LOADER_WORKERS,
    }


def unit_order(names: Sequence[str], seed: int, workload: str, unit: int) -> tuple[list[str], dict[str, int]]:
    """Random order of a unit's launches and the environment pad of each, from seeds that the plan holds; pure."""
    generator = random.Random(f"{seed}/{workload}/{unit}")
    order = list(names)
    generator.shuffle(order)
    return order, {name: generator.randrange(LARGEST_PAD_BYTES) for name in order}


def headline_levels(study: Mapping[str, Any]) -> dict[str, str]:
    """Levels at which whole runs are compared: as people run them."""
    return {
        "stack": "same",
        "allocator": study["rounds"]["allocator"],
        "page_cache": study["conditions"]["page_cache"],
    }


def run_rounds(
    folder: Path,
    study: Mapping[str, Any],
    workload: str,
    sites: Mapping[str, Site],
    unavailable: Mapping[str, str],
    provenance: Mapping[str, Any],
    arm: arms.Arm | None = None,
) -> dict[str, Any]:
    """The campaign of whole runs of one workload; returns the sealed summary.

    Args:
        folder: where plan, journal and seal lie.
        study: the part of the study that rounds depend on.
        workload: name of the workload.
        sites: by name of the launch (`arms.launch_names`): available ones, `host` and its control among them.
        unavailable: the others of the study, each with its reason.
        provenance: images and data that were used, for the plan.
        arm: what differs from the headline.
    """
    settings = study["workloads"][workload]
    headline = headline_levels(study)
    levels = arms.levels_of(headline, arm)
    names = list(sites)
    spec = whole_run_spec(workload, settings["batch"], study)
    plan = {
        "kind": "rounds",
        "study": study["study"],
        "workload": workload,
        "environments": names,
        "unavailable": dict(unavailable),
        "spec": spec,
        "conditions": arms.conditions_at(study["conditions"], levels),
        "headline_conditions": arms.conditions_at(study["conditions"], headline),
        "margins": study["margins"],
        "sampling": sampling_of(
            parse(Rounds, study["rounds"], "rounds"), study["confidence"], METRIC, arm
        ).to_json(),
        "seed": study["seed"],
        "discarded": study["rounds"]["discarded"],
        "arm": arms.describe(levels),
        "headline_arm": arms.describe(headline),
        "stack": study["stack"],
        "code_sha256": closure.code_sha256("rounds", workload, *arms.used(names, arm)),
        "provenance": dict(provenance),
        "optional": arm is not None and arm.is_optional,
    }

    def run_unit(number: int, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        gone = given_up(done)
        order, pads = unit_order(names, study["seed"], f"{workload}{'/' + arm.name if arm else ''}", number)
        launches = {}
        for name in order:
            conditions = plan["headline_conditions" if name.endswith(BASELINE) else "conditions"]
            launches[name] = (
                skipped(gone[name]) if name in gone else launch(sites[name], spec, conditions, pad_bytes=pads[name])
            )
        return {"order": order, "launches": launches}

    what = f"{workload} rounds{', ' + arm.name if arm else ''}"
    return run_campaign(Campaign(folder=folder, plan=plan, run_unit=run_unit, values=unit_values, what=what))


def unit_values(unit: Mapping[str, Any]) -> dict[str, float]:
    """Real time of each launch of a round that succeeded."""
    return {name: real_s(row) for name, row in unit["launches"].items() if row["status"] == "ok"}


def run_sweep(
    folder: Path, study: Mapping[str, Any], workload: str, site: Site, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """The batch sweep of one workload on the host; returns the sealed summary."""
    batches = study["workloads"][workload]["sweep_batches"]
    names = [str(batch) for batch in batches]
    levels = headline_levels(study)
    conditions = arms.conditions_at(study["conditions"], levels)
    plan = {
        "kind": "sweep",
        "study": study["study"],
        "workload": workload,
        "environments": [HOST],
        "unavailable": {},
        "batches": list(batches),
        "spec": whole_run_spec(workload, 0, study),
        "conditions": conditions,
        "sampling": {"units": study["sweep"]["repetitions"], "confidence": study["confidence"]},
        "seed": study["seed"],
        "discarded": 1 if conditions["page_cache"] == "warm" else 0,
        "arm": arms.describe(levels),
        "headline_arm": arms.describe(levels),
        "stack": study["stack"],
        "code_sha256": closure.code_sha256("sweep", workload, [HOST]),
        "provenance": dict(provenance),
    }

    def run_unit(number: int, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        gone = given_up(done)
        order, pads = unit_order(names, study["seed"], f"{workload}/sweep", number)
        if number < plan["discarded"]:
            order = order[:1]  # one launch warms the page cache for every batch size
        launches = {
            name: skipped(gone[name])
            if name in gone
            else launch(site, whole_run_spec(workload, int(name), study), conditions, pad_bytes=pads[name])
            for name in order
        }
        return {"order": order, "launches": launches}

    return run_campaign(Campaign(folder=folder, plan=plan, run_unit=run_unit, what=f"{workload} batch sweep"))
