"""Other stacks: what the packages changed, on the host, beside what an environment changes within each stack.

A stack changes interpreter, framework and libraries at once: this says how much they weigh together, not which of
them it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.analysis.choice import is_level
from tare.model.records.images import OciRecord
from tare.model.studies.stacks import Stack, load_stack
from tare.model.tables import DIFFERENT
from tare.report.arms.settings import ArmAnswers, arm_answer
from tare.report.evidence import Campaign, Evidence
from tare.report.figures.stack_steps import NAMED, REST, step_table
from tare.report.machine.conditions import pythons
from tare.report.methods.curves import curve_check
from tare.report.number_tables import compared
from tare.report.words.labels import env_title, metric_order, metric_title, seconds, workload_title
from tare.report.words.layout import MOST_SHOWN, Row, Table
from tare.report.words.wording import between, listed


@dataclass(frozen=True, kw_only=True)
class StackAnswer(ArmAnswers):
    """What other stacks did to one workload.

    Attributes:
        missing: why campaigns compared nothing.
        phases: which parts of a whole run the stack changed, in a sentence each.
        losses: whether each stack computes the same, in a sentence each.
        tables: the parts of a whole run, in numbers.
        steps: what a step is made of in each stack; None where none was profiled.
    """

    missing: list[str]
    phases: list[str]
    losses: list[str]
    tables: list[Table]
    steps: Table | None

    @property
    def said(self) -> list[str]:
        """What is said of each stack beside its cards."""
        return [*self.phases, *self.losses]

    @property
    def many(self) -> bool:
        """Whether there are so many that what is said of each part is folded, too."""
        return len(self.answers) > MOST_SHOWN

    @property
    def weighing(self) -> str | None:
        """What all of many say alike of stack and environment, to be said once."""
        said = {answer.weighing for answer in self.answers}
        return said.pop() if self.many and len(said) == 1 else None


def sections(evidence: Evidence) -> list[StackAnswer]:
    """One answer per workload that has campaigns of other stacks."""
    return [_of_workload(evidence, name) for name in evidence.workloads if evidence.other_stacks(name)]


def _of_workload(evidence: Evidence, workload: str) -> StackAnswer:
    campaigns = evidence.other_stacks(workload)
    answers = {campaign.name: arm_answer(evidence, campaign) for campaign in campaigns}
    rounds = [campaign for campaign in campaigns if campaign.kind == "rounds" and answers[campaign.name]]
    return StackAnswer(
        name=workload,
        title=workload_title(workload),
        answers=[answer for answer in answers.values() if answer is not None],
        missing=[_why_nothing(campaign) for campaign in campaigns if answers[campaign.name] is None],
        phases=[line for campaign in rounds for line in _phases(evidence, campaign)],
        losses=loss_sentences(evidence, workload),
        tables=[_phase_table(evidence, campaign) for campaign in rounds],
        steps=step_tables(evidence).get(workload),
    )


def _why_nothing(campaign: Campaign) -> str:
    """Why a campaign of another stack compared nothing."""
    what = {"rounds": "Whole runs", "steps": "Training steps"}[campaign.kind]
    reasons = [campaign.ended, *campaign.plan.unavailable.values()]
    reason = next((reason for reason in reasons if reason), "no unit was complete")
    return f"{what} with {campaign.arm.level}: unavailable: {reason}."


def _levels(evidence: Evidence, campaign: Campaign) -> list[Mapping[str, Any]]:
    """What the stack itself does to every metric of a campaign, on the host."""
    table = evidence.verdicts
    own = table[(table["workload"] == campaign.workload) & (table["campaign"] == campaign.name)]
    rows = [row for row in own.to_dict("records") if is_level(row)]
    return sorted(rows, key=lambda row: metric_order(row["metric"]))


def _phases(evidence: Evidence, campaign: Campaign) -> list[str]:
    """Which parts of a whole run differ for sure, and how many can't be told."""
    rows = [row for row in _levels(evidence, campaign) if row["metric"] != "real_s"]
    decided = [row for row in rows if row["verdict"] in DIFFERENT]
    said = [
        f"{metric_title(row['metric']).lower()} {between(row['metric'], row['ci_low'], row['ci_high'])}"
        for row in decided
    ]
    open_ones = sum(row["verdict"] == "inconclusive" for row in rows)
    stack, base = campaign.arm.on_host, campaign.plan.stack
    text = f"With {stack} instead of {base} on the host: {listed(said)}." if said else (
        f"No part of a whole run differs for sure between {stack} and {base} on the host."
    )  # fmt: skip
    return [f"{text} {open_ones} of {len(rows)} parts can't be told yet." if open_ones else text]


def _phase_table(evidence: Evidence, campaign: Campaign) -> Table:
    return Table.of(
        _levels(evidence, campaign),
        {
            "metric": lambda row: metric_title(row["metric"]),
            **compared("n", "ratio", "interval", "verdict"),
        },
        caption=f"{workload_title(campaign.workload)}: {campaign.arm.on_host} against {campaign.plan.stack} "
        f"on the {env_title('host').lower()}, by metric",
        wide=True,
    )


def package_table(evidence: Evidence) -> Table:
    """Versions in the study's stack and in the others; packages that only one of them has are left to the locks.

    Packages are the locks', which are installed by hash; those of an official image are what it holds. A lock fits
    several Pythons: the one that ran is shown.
    """
    names = evidence.study.stacks_needed
    ran_as = {name: record.variant for name, record in evidence.trees.items() if record.status == "ok"}
    stacks = [load_stack(name, ran_as.get(name, evidence.study.device)) for name in names]
    locked = [{r.name: r.version for r in stack.requirements} for stack in stacks if stack.official is None]
    versions = {name: held for name, record in evidence.official.items() if (held := packages_of(record))}
    versions |= zip((stack.name for stack in stacks if stack.official is None), locked, strict=True)
    named = [name for name in locked[0] if all(name in other for other in locked[1:])]
    ran = pythons(evidence)
    rows: list[Row] = [
        ["Image", *(stack.image_kind for stack in stacks)],
        ["Python", *(ran.get(stack.name, _python_wanted(stack)) for stack in stacks)],
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


def _python_wanted(stack: Stack) -> str:
    return "its own, none ran" if stack.official is not None else f"{stack.python} wanted, none ran"


def packages_of(record: OciRecord) -> dict[str, str]:
    """Package -> version of an image."""
    return {package.name: package.version for package in record.packages}


def official_sentences(evidence: Evidence) -> list[str]:
    """Which image an official stack is, by the digest that was pulled, or why there is none."""
    return [
        f"{name} is {record.base.name}, {record.base.digest}, pulled and left as it is."
        if record.base is not None
        else f"{name}: {record.reason}."
        for name, record in evidence.official.items()
    ]


def compiled_sentences(evidence: Evidence) -> list[str]:
    """Which library of which stack was compiled on this machine, for what, by what, and how long that took."""
    return [
        f"Of {name}, {one.name} {one.version} was compiled from source for {one.target} by {one.compiler} in "
        f"{tree.seconds['tree_library']:.0f} s."
        for name, tree in evidence.trees.items()
        if (one := tree.library) is not None
    ]


def step_tables(evidence: Evidence) -> dict[str, Table]:
    """By workload, what a step is made of in each stack that was profiled; none where the study asks for none."""
    profiles = evidence.stack_profiles
    return {
        name: _step_table(profiles, name) for name in evidence.workloads if (profiles["workload"] == name).any()
    }


def _step_table(profiles: pd.DataFrame, workload: str) -> Table:
    parts = (*NAMED, REST)
    return Table.of(
        step_table(profiles, workload).to_dict("records"),
        {
            "stack": lambda row: row["label"],
            "step, no profiler": lambda row: _seconds(row["plain_step_s"]),
            **{part: lambda row, part=part: _seconds(row[part]) for part in parts},
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


def loss_sentences(evidence: Evidence, workload: str) -> list[str]:
    """Whether each stack computes the same, by curves of losses; without any, how far apart the last losses are."""
    found = []
    for campaign in evidence.other_stacks(workload):
        record = evidence.curves.get((workload, campaign.name))
        told = curve_check(record).sentence if record is not None else _last_losses(evidence, campaign)
        found += [told] if told is not None and campaign.kind == "rounds" else []
    return found


def _last_losses(evidence: Evidence, campaign: Campaign) -> str | None:
    """How far apart the losses of two stacks are, which may compute in another order; None without both."""
    workload, table = campaign.workload, evidence.metrics
    own = table[(table["workload"] == workload) & (table["campaign"] == campaign.name)]
    losses = own[(own["metric"] == "loss_last") & (own["kind"] == "measured")].groupby("stack")["value"].median()
    stack, base = campaign.arm.other_stack, campaign.plan.stack
    if not {stack, base} <= set(losses.index):
        return None
    apart = abs(losses[stack] - losses[base]) / abs(losses[base])
    if f"{losses[stack]:.6f}" == f"{losses[base]:.6f}":
        both = f"with both {stack} and {base}"
        return f"{workload_title(workload)}: the epoch's last loss is {losses[base]:.6f} {both}."
    return (
        f"{workload_title(workload)}: the epoch's last loss is {losses[stack]:.6f} with {stack} "
        f"and {losses[base]:.6f} with {base}, {apart:.1e} of it apart. Other versions may compute in "
        "another order: across stacks that is a fact, not a fault."
    )
