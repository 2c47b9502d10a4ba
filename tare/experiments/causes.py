"""The campaign of causes: launches that say which kernels they run, and what their files cost them.

A unit launches every environment and a second host, one after the other in balanced order. One unit before them
does not count: its host says which files the imports need, and every later launch reads just those before it
imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.core.errors import UnavailableError, UserError
from tare.experiments.designs import Design, Row, Setup, declare, one_after_other, unit_order
from tare.experiments.rounds import headline_levels, whole_run_spec
from tare.model.records.campaigns import Plan, Sampling, Unit
from tare.model.records.launches import LaunchRecord
from tare.model.studies.study import HOST

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


def causes(setup: Setup) -> Design:
    """The causes of one workload.

    Raises:
        UserError: an arm was asked for: causes are looked for in the headline alone.
    """
    if setup.arm is not None:
        raise UserError(f"causes are looked for in the headline; drop the arm {setup.arm.name}")
    study, workload = setup.study, setup.workload
    plan = declare(
        "causes",
        setup,
        spec=causes_spec(workload, study["workloads"][workload]["batch"], study),
        headline=headline_levels(study),
        sampling=Sampling(
            units=study["causes"]["units"],
            confidence=study["confidence"],
            verdict_units=study["causes"]["verdict_units"],
        ),
        discarded=1,
        margins=study["margins"],
    )

    def run_unit(plan: Plan, number: int, done: Sequence[Unit]) -> Row:
        whole = [unit for unit in done if unit.voided is None]
        files = listed(whole[0].launches[HOST]) if whole else None
        order, pads = unit_order(plan, done, plan.environments)
        if files is None and plan.conditions["page_cache"] != "warm":
            order = [HOST]  # nothing has to be warmed up: only the list of files is wanted

        def spec_of(name: str) -> dict[str, Any]:
            return {**plan.spec, **({"files": files} if files else {"keep_list": name == HOST})}

        return one_after_other(plan, setup.sites, done, order, pads, spec_of)

    return Design(plan=plan, run_unit=run_unit, what=f"{workload} causes")


def listed(first: LaunchRecord) -> Mapping[str, Any]:
    """The files that the imports of the host's first launch needed, by their path in the tree.

    Raises:
        UnavailableError: that launch failed, so that nobody knows which files matter.
    """
    if not first.ok:
        raise UnavailableError(f"the host could not list the files that its imports need: {first.reason}")
    files: Mapping[str, Any] = first.seen_inside().results["listed"]
    return files
