"""Environment or settings: what each weighs, comparisons at the levels of arms, graph compilers, other stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, SETTING, STACK, is_level, level_campaigns
from tare.analysis.compilers import Compiled, compiled
from tare.analysis.decisions import JOB, Decision
from tare.model.records.measured import CurvesRecord
from tare.model.roles import reference_of
from tare.model.studies.arms import Arm
from tare.model.studies.layout import arm_of, kind_of
from tare.model.studies.stacks import image_kind, load_stack
from tare.model.studies.study import HOST
from tare.report.evidence import Campaign, Evidence
from tare.report.figures.runs import NAMED, REST, step_table
from tare.report.machine import pythons
from tare.report.method import LARGEST_RELATIVE_LOSS, LOSS_OF, curve_check, design_sentence, verdicts_of
from tare.report.number_tables import compared
from tare.report.words.decisions import COLUMNS, WEIGHTS, title_of
from tare.report.words.labels import (
    arm_title,
    env_order,
    env_title,
    metric_order,
    metric_title,
    seconds,
    sentence_case,
    workload_title,
)
from tare.report.words.layout import UNAVAILABLE, Cell, Reader, Row, Table, field
from tare.report.words.wording import percent

Curves = Mapping[tuple[str, str], CurvesRecord]  # by workload and campaign
NO_CURVES: Curves = {}
# Whether losses without dropout are those of the headline's launch; "" where nobody compared them.
SAME = {"": "not compared", None: "not known", True: "yes", False: "no"}
REASONED = ("put down to", "advised")  # columns of environments


def compiler_table(metrics: pd.DataFrame, workload: str, curves: Curves = NO_CURVES) -> Table | None:
    """Compile time, steps, memory, counts of every compiler; None where none was measured."""
    found = compiled(metrics, workload)
    if not found:
        return None
    same = {campaign: curve_check(record).equal for (name, campaign), record in curves.items() if name == workload}
    return Table.of(
        found,
        {
            "stack": field("stack"),
            "compiler": field("compiler"),
            "compile time, s": _told("compile_s", "{:.2f}".format),
            "first step, s": lambda one: _both(one, lambda each: f"{each.first_s:.2f}"),
            "later steps, ms": lambda one: _both(one, lambda each: f"{each.later_s * 1e3:.1f}"),
            "peak memory, MiB": lambda one: _both(one, lambda each: f"{each.peak_bytes / 2**20:.0f}"),
            "programs called, MiB": lambda one: (
                "none" if one.compiled.child_bytes is None else f"{one.compiled.child_bytes / 2**20:.0f}"
            ),
            "pays from step": lambda one: "always compiles" if one.plain is None else str(one.pays_from or "never"),
            "graphs": _told("graphs"),
            "breaks": _told("breaks"),
            "operators inside": _told("operators"),
            "operators outside": _told("left"),
            "unsupported": _told("unsupported"),
            "computes the same": lambda one: SAME[same.get(one.campaign, "")],
        },
        caption=f"{workload_title(workload)}: graph compilers in whole runs on the host, with and without",
        note="Medians over launches; in pairs, with the compiler and without it. Compile time: what the first step "
        "takes longer; of a framework that always compiles, what it says itself, of all its programs. It pays from "
        "the step on at which faster later steps have made good for that. Programs called: the most that one took, "
        "such as the compiler of C++ that inductor writes for, or the launch itself when it called one, whichever "
        "is more. Operators outside of clusters: unsupported ones, what is fed, and what is too small to compile. "
        "Of what does not compute the same the times are another job's.",
        wide=True,
    )


def _told(name: str, form: Callable[[Any], str] = str) -> Reader:
    return lambda one: field(name, form)(one) or "not told"


def _both(one: Compiled, text: Callable[[Any], str]) -> str:
    """With the compiler and without it."""
    return " / ".join(text(each) for each in (one.compiled, one.plain) if each is not None)


class WorkloadSettings(NamedTuple):
    """One workload: what weighs, what could not be had, graph compilers, every comparison of each arm.

    `drawing`: of another machine's, drawn already; this machine's is a figure.
    """

    name: str
    title: str
    table: Table
    unavailable: list[str]
    compilers: Table | None
    arms: list[Table]
    drawing: str | None = None


def sections(evidence: Evidence) -> list[WorkloadSettings]:
    """One answer per workload of which a setting or a stack was varied; none where nothing was."""
    return [
        weighed(evidence.decided, evidence.metrics, name, evidence.curves)._replace(
            arms=[table for one in evidence.arms(name) if (table := arm_table(evidence, one)) is not None]
        )
        for name in evidence.networks
        if level_campaigns(evidence.metrics, name)
    ]


def weighed(
    found: Sequence[Decision], metrics: pd.DataFrame, workload: str, curves: Curves = NO_CURVES
) -> WorkloadSettings:
    """What is known of one workload, from the decisions of its campaigns and its metrics."""
    return WorkloadSettings(
        name=workload,
        title=workload_title(workload),
        table=ranked_table(ranked(found, workload), metrics, curves),
        unavailable=unavailable_settings(metrics, workload),
        compilers=compiler_table(metrics, workload, curves),
        arms=[],
    )


def ranked(found: Sequence[Decision], workload: str) -> list[Decision]:
    """Environments and levels of a workload as they rank, by what was timed: steps first."""
    order = list(METRIC_OF.values())
    own = [one for one in found if one.workload == workload and one.rank is not None]
    return sorted(own, key=lambda one: (-order.index(one.metric), one.rank))


def ranked_table(rows: Sequence[Decision], metrics: pd.DataFrame, curves: Curves = NO_CURVES) -> Table:
    """Every environment, setting and stack beside each other."""
    title = workload_title(rows[0].workload) if rows else ""
    levels = [100 * (1 - one.alpha) for one in rows if one.alpha is not None]
    return Table.of(
        rows,
        {
            "what": lambda one: Cell(text=title_of(one), below=_group(one)),
            "metric": lambda one: metric_title(one.metric),
            **{name: cell for name, cell in COLUMNS.items() if name not in REASONED},
            "beside the environments": lambda one: None if one.weight is None else WEIGHTS[one.weight],
            "last loss": lambda one: (
                None
                if one.weight is None
                else loss_text(
                    metrics, one.workload, one.cell.campaign, curves.get((one.workload, one.cell.campaign))
                )
            ),
        },
        caption=f"{title}: environments and settings, farthest from zero first",
        note="Environments: by the host, in the headline's campaign. Settings and stacks: the level by the "
        "headline's, on the host, each in a campaign of its own with its own control. One matters more than the "
        "other where the least that its interval holds is more than the most that the other's does"
        + (f" (intervals of {min(levels):.3g}% at least, each by itself; levels explore)." if levels else "."),
        wide=True,
    )


def _group(one: Decision) -> str:
    """What a row is of."""
    if one.factor == ENVIRONMENT:
        return ENVIRONMENT
    arm = arm_of(one.cell.campaign)
    return f"{STACK if arm is not None and arm.other_stack else SETTING}, {HOST}"


def loss_text(
    metrics: pd.DataFrame, workload: str, campaign: str, curves: CurvesRecord | None = None
) -> str | None:
    """The last loss at the level beside the headline's, unit by unit on the host; None where there is none.

    Another loss is no failure: `curves` say why, where there are any.
    """
    if curves is not None:
        return curve_check(curves).clause
    own = metrics[(metrics["workload"] == workload) & (metrics["campaign"] == campaign)]
    own = own[(own["metric"] == LOSS_OF[kind_of(campaign)]) & (own["kind"] == "measured")]
    pairs = own.pivot_table(index="rep", columns="launch", values="value").reindex(
        columns=[HOST, reference_of(HOST)]
    )
    level, headline = (pairs.dropna()[name] for name in pairs.columns)
    if level.empty:
        return None
    distance = float(((level - headline).abs() / headline.abs()).max())
    if distance == 0:
        return "the very same"
    if distance <= LARGEST_RELATIVE_LOSS:
        return f"the same but for rounding, at most {distance:.1e} apart"
    return f"another, up to {percent(distance, up=True)} apart: other rounding, or another computation"


def unavailable_settings(metrics: pd.DataFrame, workload: str) -> list[str]:
    """Settings and stacks that ran nowhere on the host, each with the reasons that its rows give."""
    lines: dict[str, None] = {}
    for name in level_campaigns(metrics, workload):
        own = metrics[(metrics["workload"] == workload) & (metrics["campaign"] == name)]
        host = own[(own["launch"] == HOST) & (own["metric"] == METRIC_OF[kind_of(name)])]
        arm = arm_of(name)
        if arm is None or host.empty or (host["kind"] != UNAVAILABLE).any():
            continue
        what = metric_title(host["metric"].iloc[0]).lower()
        why = "; ".join(dict.fromkeys(host["reason"]))
        lines[f"{sentence_case(arm_title(arm.name))}, {what}: {why}"] = None
    return list(lines)


def arm_table(evidence: Evidence, campaign: Campaign) -> Table | None:
    """The level itself and the environments at it, each beside its headline; None where nothing was compared."""
    found = [one for one in evidence.decided if one.workload == campaign.workload and one.metric != JOB]
    rows = [one for one in found if one.cell.campaign == campaign.name]
    arm, metric = campaign.arm, METRIC_OF[campaign.kind]
    if arm is None or not rows:
        return None
    headline = {one.env: one for one in found if one.rank and (one.factor, one.metric) == (ENVIRONMENT, metric)}

    def what(one: Decision) -> str:
        title = env_title(one.env)
        if one.factor != ENVIRONMENT:
            level = f"{arm.on_host} instead of {campaign.plan.stack}, on the host"
            return level if arm.other_stack else f"{title}: the level itself"
        return f"{arm.level} in {title} beside {arm.on_host} on the host" if arm.on_host != arm.level else title

    def in_headline(one: Decision) -> str | None:
        beside = headline.get(one.env) if one.factor == ENVIRONMENT else None
        return None if beside is None else COLUMNS["longer or shorter"](beside)

    design = design_sentence(campaign, verdicts_of(evidence, campaign))
    if arm.other_stack:
        own, base = arm.other_stack, campaign.plan.stack
        design += f". Kind of image: {own}, {image_kind(own)}; {base}, {image_kind(base)}"
    return Table.of(
        sorted(rows, key=lambda one: (one.factor == ENVIRONMENT, env_order(one.env))),
        {
            "comparison": what,
            **{name: cell for name, cell in COLUMNS.items() if name not in REASONED},
            **({} if arm.other_stack else {"in the headline": in_headline}),
        },
        caption=f"{workload_title(campaign.workload)}, {arm_title(arm.name)}: {metric_title(metric).lower()}",
        note=f"{design}.",
        wide=True,
    )


class StackAnswer(NamedTuple):
    """One workload: why campaigns compared nothing; every comparison and part of a run; what a step is made of."""

    name: str
    title: str
    missing: list[str]
    tables: list[Table]
    steps: Table | None


def stack_sections(evidence: Evidence) -> list[StackAnswer]:
    """One answer per workload that has campaigns of other stacks."""
    return [_stack_answer(evidence, name) for name in evidence.networks if evidence.other_stacks(name)]


def _stack_answer(evidence: Evidence, workload: str) -> StackAnswer:
    campaigns, profiles = evidence.other_stacks(workload), evidence.stack_profiles
    found = {one.name: table for one in campaigns if (table := arm_table(evidence, one)) is not None}
    varied = [(one, one.arm) for one in campaigns if one.arm is not None]
    whole = [pair for pair in varied if pair[0].kind == "rounds" and pair[0].name in found]
    return StackAnswer(
        name=workload,
        title=workload_title(workload),
        missing=[_why_nothing(*pair) for pair in varied if pair[0].name not in found],
        tables=[*found.values(), *(_phase_table(evidence, *pair) for pair in whole)],
        steps=_step_table(profiles, workload) if (profiles["workload"] == workload).any() else None,
    )


def _why_nothing(campaign: Campaign, arm: Arm) -> str:
    """Why a campaign of another stack compared nothing."""
    what = {"rounds": "Whole runs", "steps": "Training steps"}[campaign.kind]
    reasons = [campaign.ended, *campaign.plan.unavailable.values()]
    reason = next((reason for reason in reasons if reason), "no unit was complete")
    return f"{what} with {arm.level}: unavailable: {reason}."


def _phase_table(evidence: Evidence, campaign: Campaign, arm: Arm) -> Table:
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
        caption=f"{workload_title(campaign.workload)}: {arm.on_host} against {campaign.plan.stack} "
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
    told = "".join(f" {line}" for line in image_sentences(evidence))
    return Table(
        caption="The stacks: packages that all of them hold",
        columns=["package", *names],
        rows=rows,
        note=f"Packages in all: {own}. Every one of a lock is installed by hash (containers/stacks/).{told}",
    )


def image_sentences(evidence: Evidence) -> list[str]:
    """Which library of a stack was compiled here, and which image an official stack is, or why there is none."""
    told = [
        f"Of {name}, {one.name} {one.version} was compiled from source for {one.target} by {one.compiler} in "
        f"{tree.seconds['tree_library']:.0f} s."
        for name, tree in evidence.trees.items()
        if (one := tree.library) is not None
    ]
    for name, image in evidence.official.items():
        held = image.base and f"{name} is {image.base.name}, {image.base.digest}, pulled and left as it is."
        told.append(held or f"{name}: {image.reason}.")
    return told


def _step_table(profiles: pd.DataFrame, workload: str) -> Table:
    """What a step is made of in each stack that was profiled."""
    return Table.of(
        step_table(profiles, workload).to_dict("records"),
        {
            "stack": field("label"),
            "step, no profiler": field("plain_step_s", seconds),
            **{name: field(name, seconds) for name in (*NAMED, REST)},
            "operators not named, because": field("reason"),
        },
        caption=f"{workload_title(workload)}: own time of a step's operators by family, a profiled launch each",
        wide=True,
        note="Families go by the operators' names: an optimizer made of many operators counts as element-wise, and "
        "what a graph compiler fused goes by some of what is in it, or by nothing: then it is other. "
        "XLA may run operators side by side, which then add up to more than a step.",
    )
