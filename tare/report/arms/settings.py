"""Environment or settings: what each weighs on this machine, and every comparison at the levels of the arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, SETTING, STACK, level_campaigns
from tare.analysis.decisions import JOB, Decision
from tare.model.records.measured import CurvesRecord
from tare.model.roles import reference_of
from tare.model.studies.layout import arm_of, kind_of
from tare.model.studies.stacks import image_kind
from tare.model.studies.study import HOST
from tare.report.arms.compilers import compiler_table
from tare.report.arms.fault_costs import fault_costs
from tare.report.evidence import Campaign, Evidence
from tare.report.methods.curves import curve_check
from tare.report.methods.designs import design_sentence, verdicts_of
from tare.report.methods.losses import LARGEST_RELATIVE_LOSS, LOSS_OF
from tare.report.words.decisions import COLUMNS, WEIGHTS, title_of
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, sentence_case, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Table
from tare.report.words.wording import percent

Curves = Mapping[tuple[str, str], CurvesRecord]
NO_CURVES: Curves = {}
REASONED = ("put down to", "advised")  # columns of environments


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
            arms=arm_tables(evidence, evidence.arms(name))
        )
        for name in evidence.workloads
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
        if host.empty or (host["kind"] != UNAVAILABLE).any():
            continue
        what = metric_title(host["metric"].iloc[0]).lower()
        why = "; ".join(dict.fromkeys(host["reason"]))
        lines[f"{sentence_case(arm_title(arm_of(name).name))}, {what}: {why}"] = None
    return list(lines)


def arm_tables(evidence: Evidence, campaigns: Sequence[Campaign]) -> list[Table]:
    """Of each campaign of an arm, or of another stack, every comparison, and what page faults cost a step."""
    tables = [table for one in campaigns for table in (arm_table(evidence, one), fault_costs(evidence, one))]
    return [table for table in tables if table is not None]


def arm_table(evidence: Evidence, campaign: Campaign) -> Table | None:
    """The level itself and the environments at it, each beside its headline; None where nothing was compared."""
    found = [one for one in evidence.decided if one.workload == campaign.workload and one.metric != JOB]
    rows = [one for one in found if one.cell.campaign == campaign.name]
    if not rows:
        return None
    arm, metric = campaign.arm, METRIC_OF[campaign.kind]
    headline = {one.env: one for one in found if one.rank and (one.factor, one.metric) == (ENVIRONMENT, metric)}

    def what(one: Decision) -> str:
        title = env_title(one.env)
        if one.factor != ENVIRONMENT:
            level = f"{arm.on_host} instead of {campaign.plan.stack}, on the host"
            return level if arm.other_stack else f"{title}: the level itself"
        return f"{arm.level} in {title} beside {arm.on_host} on the host" if arm.on_host != arm.level else title

    def in_headline(one: Decision) -> str | None:
        beside = headline.get(one.env) if one.factor == ENVIRONMENT else None
        return beside and COLUMNS["longer or shorter"](beside)

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
