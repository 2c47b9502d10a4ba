"""Other stacks: what interpreter, framework and libraries weigh together, beside the environments within each."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from tare.analysis.choice import is_level
from tare.model.studies.stacks import load_stack
from tare.report.arms.settings import arm_table
from tare.report.evidence import Campaign, Evidence
from tare.report.figures.stack_steps import NAMED, REST, step_table
from tare.report.machine.conditions import pythons
from tare.report.number_tables import compared
from tare.report.words.labels import env_title, metric_order, metric_title, seconds, workload_title
from tare.report.words.layout import Row, Table


class StackAnswer(NamedTuple):
    """One workload: why campaigns compared nothing; every comparison and part of a run; what a step is made of."""

    name: str
    title: str
    missing: list[str]
    tables: list[Table]
    steps: Table | None


def sections(evidence: Evidence) -> list[StackAnswer]:
    """One answer per workload that has campaigns of other stacks."""
    return [_of_workload(evidence, name) for name in evidence.workloads if evidence.other_stacks(name)]


def _of_workload(evidence: Evidence, workload: str) -> StackAnswer:
    campaigns, profiles = evidence.other_stacks(workload), evidence.stack_profiles
    found = {one.name: table for one in campaigns if (table := arm_table(evidence, one)) is not None}
    whole = [one for one in campaigns if one.kind == "rounds" and one.name in found]
    return StackAnswer(
        name=workload,
        title=workload_title(workload),
        missing=[_why_nothing(one) for one in campaigns if one.name not in found],
        tables=[*found.values(), *(_phase_table(evidence, campaign) for campaign in whole)],
        steps=_step_table(profiles, workload) if (profiles["workload"] == workload).any() else None,
    )


def _why_nothing(campaign: Campaign) -> str:
    """Why a campaign of another stack compared nothing."""
    what = {"rounds": "Whole runs", "steps": "Training steps"}[campaign.kind]
    reasons = [campaign.ended, *campaign.plan.unavailable.values()]
    reason = next((reason for reason in reasons if reason), "no unit was complete")
    return f"{what} with {campaign.arm.level}: unavailable: {reason}."


def _phase_table(evidence: Evidence, campaign: Campaign) -> Table:
    """What the stack itself does to every metric of a campaign, on the host."""
    table = evidence.verdicts
    own = table[(table["workload"] == campaign.workload) & (table["campaign"] == campaign.name)]
    rows = [row for row in own.to_dict("records") if is_level(row)]
    return Table.of(
        sorted(rows, key=lambda row: metric_order(row["metric"])),
        {
            "metric": lambda row: metric_title(row["metric"]),
            **compared("n", "ratio", "interval", "verdict"),
        },
        caption=f"{workload_title(campaign.workload)}: {campaign.arm.on_host} against {campaign.plan.stack} "
        f"on the {env_title('host').lower()}, by metric",
        wide=True,
    )


def package_table(evidence: Evidence) -> Table:
    """Versions in the study's stack and in the others, of packages that all have: of locks, and of official images.

    A lock fits several Pythons: the one that ran is shown.
    """
    names = evidence.study.stacks_needed
    ran_as = {name: record.variant for name, record in evidence.trees.items() if record.status == "ok"}
    stacks = [load_stack(name, ran_as.get(name, evidence.study.device)) for name in names]
    locked = [{r.name: r.version for r in stack.requirements} for stack in stacks if stack.official is None]
    held = {name: {one.name: one.version for one in record.packages} for name, record in evidence.official.items()}
    versions = {name: packages for name, packages in held.items() if packages}
    versions |= zip((stack.name for stack in stacks if stack.official is None), locked, strict=True)
    named = [name for name in locked[0] if all(name in other for other in locked[1:])]
    ran = {one.name: "its own, none ran" if one.official else f"{one.python} wanted, none ran" for one in stacks}
    ran |= pythons(evidence)
    rows: list[Row] = [
        ["Image", *(stack.image_kind for stack in stacks)],
        ["Python", *(ran[stack.name] for stack in stacks)],
    ]
    rows += [[name, *(versions.get(stack.name, {}).get(name) for stack in stacks)] for name in sorted(named)]
    own = ", ".join(f"{stack.name} {len(versions.get(stack.name, {}))}" for stack in stacks)
    told = "".join(f" {line}" for line in (*compiled_sentences(evidence), *official_sentences(evidence)))
    return Table(
        caption="The stacks: packages that all of them hold",
        columns=["package", *names],
        rows=rows,
        note=f"Packages in all: {own}. Every one of a lock is installed by hash (containers/stacks/).{told}",
    )


def official_sentences(evidence: Evidence) -> list[str]:
    """Which image an official stack is, by the digest that was pulled, or why there is none."""
    return [
        f"{name}: {one.reason}."
        if one.base is None
        else f"{name} is {one.base.name}, {one.base.digest}, pulled and left as it is."
        for name, one in evidence.official.items()
    ]


def compiled_sentences(evidence: Evidence) -> list[str]:
    """Which library of which stack was compiled on this machine, for what, by what, and how long that took."""
    return [
        f"Of {name}, {one.name} {one.version} was compiled from source for {one.target} by {one.compiler} in "
        f"{tree.seconds['tree_library']:.0f} s."
        for name, tree in evidence.trees.items()
        if (one := tree.library) is not None
    ]


def _step_table(profiles: pd.DataFrame, workload: str) -> Table:
    """What a step is made of in each stack that was profiled."""
    parts = {name: lambda row, name=name: _seconds(row[name]) for name in (*NAMED, REST)}
    return Table.of(
        step_table(profiles, workload).to_dict("records"),
        {
            "stack": lambda row: row["label"],
            "step, no profiler": lambda row: _seconds(row["plain_step_s"]),
            **parts,
            "operators not named, because": lambda row: row["reason"] if isinstance(row["reason"], str) else None,
        },
        caption=f"{workload_title(workload)}: own time of a step's operators by family, a profiled launch each",
        wide=True,
        note="Families go by the operators' names: an optimizer made of many operators counts as element-wise, and "
        "what a graph compiler fused goes by some of what is in it, or by nothing: then it is other. "
        "XLA may run operators side by side, which then add up to more than a step.",
    )


def _seconds(value: float) -> str | None:
    return None if pd.isna(value) else seconds(value)
