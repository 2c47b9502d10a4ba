"""The campaign of causes: launches that say which kernels they run, and what their files cost them.

A unit launches every environment and a second host, one after the other in random order. One unit before them does
not count: its host says which files the imports need, and every later launch reads just those before it imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError, UserError
from tare.experiments.campaign import Campaign, given_up, run_campaign, skipped
from tare.experiments.rounds import headline_levels, unit_order, whole_run_spec
from tare.launch.run import Site, launch
from tare.model import arms, closure
from tare.model.study import HOST

PASSES = 3  # over the files, once they have been read


def causes_spec(workload: str, batch: int, study: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch does inside, but for the list of files."""
    return {
        **whole_run_spec(workload, batch, study),
        "mode": "causes",
        "steps": study["causes"]["steps"],
        "warmup_steps": study["causes"]["warmup_steps"],
        "repetitions": PASSES,
    }


def run_causes(
    folder: Path,
    study: Mapping[str, Any],
    workload: str,
    sites: Mapping[str, Site],
    unavailable: Mapping[str, str],
    provenance: Mapping[str, Any],
    arm: arms.Arm | None = None,
) -> dict[str, Any]:
    """The campaign of one workload; returns the sealed summary. Arguments as for `rounds.run_rounds`.

    Raises:
        UserError: an arm was asked for: causes are looked for in the headline alone.
        UnavailableError: the host's own launch failed, so that nobody knows which files matter.
    """
    if arm is not None:
        raise UserError(f"causes are looked for in the headline; drop the arm {arm.name}")
    levels = headline_levels(study)
    names = list(sites)
    spec = causes_spec(workload, study["workloads"][workload]["batch"], study)
    plan = {
        "kind": "causes",
        "study": study["study"],
        "workload": workload,
        "environments": names,
        "unavailable": dict(unavailable),
        "spec": spec,
        "conditions": arms.conditions_at(study["conditions"], levels),
        "margins": study["margins"],
        "sampling": {"units": study["causes"]["units"], "confidence": study["confidence"]},
        "seed": study["seed"],
        "discarded": 1,
        "arm": arms.describe(levels),
        "headline_arm": arms.describe(levels),
        "stack": study["stack"],
        "code_sha256": closure.code_sha256("causes", workload, *arms.used(names, arm)),
        "provenance": dict(provenance),
    }

    def run_unit(number: int, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return _unit(plan, sites, number, done)

    return run_campaign(Campaign(folder=folder, plan=plan, run_unit=run_unit, what=f"{workload} causes"))


def _unit(
    plan: Mapping[str, Any], sites: Mapping[str, Site], number: int, done: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    files = listed(done) if done else None
    gone = given_up(done)
    order, pads = unit_order(list(sites), plan["seed"], f"{plan['workload']}/causes", number)
    if files is None and plan["conditions"]["page_cache"] != "warm":
        order = [HOST]  # nothing has to be warmed up: only the list of files is wanted
    launches = {}
    for name in order:
        spec = {**plan["spec"], **({"files": files} if files else {"keep_list": name == HOST})}
        launches[name] = (
            skipped(gone[name])
            if name in gone
            else launch(sites[name], spec, plan["conditions"], pad_bytes=pads[name])
        )
    return {"order": order, "launches": launches}


def listed(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The files that the host's imports needed, by their path in the tree.

    Raises:
        UnavailableError: that launch failed.
    """
    first = done[0]["launches"][HOST]
    if first["status"] != "ok":
        raise UnavailableError(f"the host could not list the files that its imports need: {first['reason']}")
    return first["inside"]["results"]["listed"]
