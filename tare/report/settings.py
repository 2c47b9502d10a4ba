"""Environment or settings: what each weighs, comparisons at the levels of arms, graph compilers, other stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, SETTING, STACK, is_level, level_campaigns
from tare.analysis.compilers import Compiled, compiled
from tare.analysis.decisions import JOB, Decision
from tare.model.records.measured import CurvesRecord
from tare.model.registry import HOST
from tare.model.roles import reference_of
from tare.model.studies.layout import arm_of, kind_of
from tare.model.studies.stacks import image_kind, load_stack
from tare.report.answer import KINDS
from tare.report.evidence import Campaign, Evidence
from tare.report.figures.runs import NAMED, REST, step_table
from tare.report.machine import pythons
from tare.report.method import LARGEST_RELATIVE_LOSS, LOSS_OF, curve_check, design_sentence, verdicts_of
from tare.report.number_tables import compared
from tare.report.words.decisions import COLUMNS, WEIGHTS, title_of
from tare.report.words.labels import arm_title, env_order, env_title, metric_order, metric_title, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Reader, Row, Table, field
from tare.report.words.quantities import seconds
from tare.report.words.wording import percent, sentence_case

Curves = Mapping[tuple[str, str], CurvesRecord]  # by workload and campaign
NO_CURVES: Curves = {}
# Whether losses without dropout are those of the headline's launch; "" where nobody compared them.
SAME = {"": "not compared", None: "not known", True: "yes", False: "no"}
# The columns of decisions but those of environments alone.
COMPARED = {name: cell for name, cell in COLUMNS.items() if name not in ("attributed to", "advised")}


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
            "compile time, s": _reported("compile_s", "{:.2f}".format),
            "first step, s": lambda one: _both(one, lambda each: f"{each.first_s:.2f}"),
            "later steps, ms": lambda one: _both(one, lambda each: f"{each.later_s * 1e3:.1f}"),
            "peak memory, MiB": lambda one: _both(one, lambda each: _mib(each.peak_bytes)),
            "programs called, MiB": lambda one: field("child_bytes", _mib)(one.compiled) or "none",
            "pays off at step": lambda one: (
                "always compiles" if one.plain is None else str(one.pays_from or "never")
            ),
            "graphs": _reported("graphs"),
            "breaks": _reported("breaks"),
            "operators inside": _reported("operators"),
            "operators outside": _reported("left"),
            "unsupported": _reported("unsupported"),
            "computes the same": lambda one: SAME[same.get(one.campaign, "")],
        },
        caption=f"{workload_title(workload)}: whole runs on the host with and without graph compilers",
        note="Medians over launches. In pairs: with / without the compiler. Compile time: how much longer the "
        "first step takes; for a framework that always compiles, the time that it reports for all its programs. It "
        "pays off from the step at which faster later steps have made up for the compile time. Programs called: "
        "the peak memory of a called program, such as inductor's C++ compiler, or of the launch itself when it "
        "called one, whichever is more. Operators outside: unsupported ones, inputs, and those too small to "
        "compile. If a setting does not compute the same, its times are those of a different job.",
    )


def _reported(name: str, form: Callable[[Any], str] = str) -> Reader:
    return lambda one: field(name, form)(one) or "not reported"


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.0f}"


def _both(one: Compiled, text: Callable[[Any], str]) -> str:
    """With the compiler and without it."""
    return " / ".join(text(each) for each in (one.compiled, one.plain) if each is not None)


def sections(evidence: Evidence) -> list[SimpleNamespace]:
    """One answer per workload of which a setting or a stack was varied; none where nothing was."""
    found = []
    for name in evidence.networks:
        if level_campaigns(evidence.metrics, name):
            arms = [table for one in evidence.arms(name) if (table := arm_table(evidence, one)) is not None]
            found.append(weighed(evidence.decided, evidence.metrics, name, evidence.curves, arms))
    return found


def weighed(
    found: Sequence[Decision], metrics: pd.DataFrame, workload: str, curves: Curves = NO_CURVES,
    arms: Sequence[Table] = (),
) -> SimpleNamespace:  # fmt: skip
    """What weighs in one workload, what could not be had, graph compilers, every comparison of each arm.

    From the decisions of its campaigns and its metrics.
    """
    return SimpleNamespace(
        name=workload, title=workload_title(workload), table=ranked_table(ranked(found, workload), metrics, curves),
        unavailable=unavailable_settings(metrics, workload), compilers=compiler_table(metrics, workload, curves),
        arms=arms,
    )  # fmt: skip


def ranked(found: Sequence[Decision], workload: str) -> list[Decision]:
    """Environments and levels of a workload as they rank, by what was timed: steps first."""
    order = list(METRIC_OF.values())
    own = [one for one in found if one.workload == workload and one.rank is not None]
    return sorted(own, key=lambda one: (-order.index(one.metric), one.rank))


def ranked_table(rows: Sequence[Decision], metrics: pd.DataFrame, curves: Curves = NO_CURVES) -> Table:
    """Every environment, setting and stack in one table."""

    def loss(workload: str, campaign: str) -> str | None:
        return loss_text(metrics, workload, campaign, curves.get((workload, campaign)))

    title = workload_title(rows[0].workload) if rows else ""
    levels = [100 * (1 - one.alpha) for one in rows if one.alpha is not None]
    return Table.of(
        rows,
        {
            "what": lambda one: Cell(text=title_of(one), below=_group(one)),
            "metric": field("metric", metric_title),
            **COMPARED,
            "compared with the environments": lambda one: None if one.weight is None else WEIGHTS[one.weight],
            "last loss": lambda one: None if one.weight is None else loss(one.workload, one.cell.campaign),
        },
        caption=f"{title}: environments and settings, largest effect first",
        note="Environments: ratio to the host, from the headline campaign. Settings and stacks: ratio to the "
        "default, on the host, each from a separate campaign with its own A/A control. One matters more than "
        "another if the smallest effect in its interval is larger than the largest effect in the other interval"
        + (f" (intervals of at least {min(levels):.3g}%, each by itself; exploratory)." if levels else "."),
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
    """The last loss at the level compared with the headline's, unit by unit on the host; None where there is none.

    Another loss is no failure: `curves` say why, where there are any.
    """
    if curves is not None:
        return curve_check(curves).clause
    own = metrics[(metrics["workload"] == workload) & (metrics["campaign"] == campaign)]
    own = own[(own["metric"] == LOSS_OF[kind_of(campaign)]) & (own["kind"] == "measured")]
    pairs = own.pivot_table(index="rep", columns="launch", values="value")
    pairs = pairs.reindex(columns=[HOST, reference_of(HOST)]).dropna()
    level, headline = (pairs[name] for name in pairs.columns)
    if level.empty:
        return None
    distance = float(((level - headline).abs() / headline.abs()).max())
    if distance == 0:
        return "identical"
    if distance <= LARGEST_RELATIVE_LOSS:
        return f"the same within rounding, at most {distance:.1e} apart"
    return f"different, up to {percent(distance, up=True)} apart: different rounding, or a different computation"


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
    """The level itself and the environments at it, each next to its headline; None where nothing was compared."""
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
            return level if arm.other_stack else f"{title}: the setting itself"
        return f"{arm.level} in {title}, {arm.on_host} on the host" if arm.on_host != arm.level else title

    def in_headline(one: Decision) -> str | None:
        default = headline.get(one.env) if one.factor == ENVIRONMENT else None
        return None if default is None else COLUMNS["longer or shorter"](default)

    design = design_sentence(campaign, verdicts_of(evidence, campaign))
    if arm.other_stack:
        own, base = arm.other_stack, campaign.plan.stack
        design += f". Kind of image: {own}, {image_kind(own)}; {base}, {image_kind(base)}"
    return Table.of(
        sorted(rows, key=lambda one: (one.factor == ENVIRONMENT, env_order(one.env))),
        {"comparison": what, **COMPARED, **({} if arm.other_stack else {"at the default": in_headline})},
        caption=f"{workload_title(campaign.workload)}, {arm_title(arm.name)}: {metric_title(metric).lower()}",
        note=f"{design}.",
    )


def stack_sections(evidence: Evidence) -> list[SimpleNamespace]:
    """One answer per workload that has campaigns of other stacks.

    Why campaigns compared nothing; every comparison and part of a run; what a step is made of.
    """
    return [_stack_answer(evidence, name) for name in evidence.networks if evidence.other_stacks(name)]


def _stack_answer(evidence: Evidence, workload: str) -> SimpleNamespace:
    profiles, missing, tables, phases = evidence.stack_profiles, [], [], []
    for one in evidence.other_stacks(workload):
        table = arm_table(evidence, one)
        if table is not None:
            tables.append(table)
            phases += [_phase_table(evidence, one)] if one.kind == "rounds" else []
        elif one.arm is not None:
            reasons = filter(None, [one.ended, *one.plan.unavailable.values(), "no round was complete"])
            missing.append(f"{KINDS[METRIC_OF[one.kind]]} with {one.arm.level}: unavailable: {next(reasons)}.")
    return SimpleNamespace(
        name=workload, title=workload_title(workload), missing=missing, tables=[*tables, *phases],
        steps=_step_table(profiles, workload) if (profiles["workload"] == workload).any() else None,
    )  # fmt: skip


def _phase_table(evidence: Evidence, campaign: Campaign) -> Table:
    """What the stack itself does to every metric of a campaign, on the host."""
    rows = [row for row in verdicts_of(evidence, campaign).to_dict("records") if is_level(row)]
    other, own = campaign.arm.on_host if campaign.arm else "", campaign.plan.stack
    return Table.of(
        sorted(rows, key=lambda row: metric_order(row["metric"])),
        {"metric": field("metric", metric_title), **compared("n", "ratio", "interval", "verdict")},
        caption=f"{workload_title(campaign.workload)}: {other} compared with {own} on the host, by metric",
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
    rows: list[Row] = [["Image", *(stack.image_kind for stack in stacks)]]
    rows += [["Python", *(ran[stack.name] for stack in stacks)]]
    rows += [[name, *(versions.get(stack.name, {}).get(name) for stack in stacks)] for name in sorted(named)]
    own = ", ".join(f"{stack.name} {len(versions.get(stack.name, {}))}" for stack in stacks)
    images = "".join(f" {line}" for line in image_sentences(evidence))
    return Table(
        caption="The stacks: packages that all of them have",
        columns=["package", *names],
        rows=rows,
        note=f"Number of packages: {own}. Packages of a lock are installed by hash (containers/stacks/).{images}",
        wide=False,
    )


def image_sentences(evidence: Evidence) -> list[str]:
    """Which library of a stack was compiled here, and which image an official stack is, or why there is none."""
    lines = [
        f"In {name}, {one.name} {one.version} was compiled from source for {one.target} by {one.compiler} in "
        f"{tree.seconds['tree_library']:.0f} s."
        for name, tree in evidence.trees.items()
        if (one := tree.library) is not None
    ]
    for name, image in evidence.official.items():
        held = image.base and f"{name} is {image.base.name}, {image.base.digest}, used unchanged."
        lines.append(held or f"{name}: {image.reason}.")
    return lines


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
        note="Families follow the operators' names. An optimizer made of many operators counts as element-wise. A "
        "fused operator counts by a part of its name, or as other if the name says nothing. XLA may run operators "
        "in parallel, so they may add up to more than a step.",
    )
