"""The answer: for each workload and environment what the intervals say, beside the control."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from tare.analysis.choice import ENVIRONMENT, METRIC_OF, PRIMARY, Asked, headlines
from tare.analysis.decisions import Decision
from tare.model.journals.units import share_of
from tare.model.roles import CONTROL
from tare.model.studies.layout import STEPS, arm_of
from tare.model.studies.study import campaigns
from tare.report.evidence import Evidence
from tare.report.figures import joint
from tare.report.figures.strip import strip
from tare.report.methods.designs import designs
from tare.report.references import Reference
from tare.report.words.decisions import COLUMNS, title_of
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, units_text, workload_title
from tare.report.words.layout import Cell, Table
from tare.report.words.wording import control_sentence, margin_text, percent, signed, tally
from tare.stats.intervals import FEWEST_UNITS, LARGEST_RATIO

KINDS = {"real_s": "Whole runs", "step_s": "Training steps"}
HEADLINES = tuple(KINDS)


class WorkloadAnswer(NamedTuple):
    """What the environments cost one workload; what its campaigns answer, with how many units and why; controls."""

    workload: str
    title: str
    designs: list[tuple[str, str]]
    table: Table | None
    controls: list[str]


class Glance(NamedTuple):
    """One workload in a few cells by what was timed; a row: environment, title, intervals and verdicts."""

    title: str
    columns: list[str]
    rows: list[tuple[str, str, list[tuple[str, str | None]]]]


def summary(evidence: Evidence) -> list[str]:
    """The shortest true answer: how many comparisons came out how."""
    rows = joint(evidence.verdicts)
    if rows.empty:
        return ["No environment but the host ran: there is nothing to compare with it yet."]
    asked = {METRIC_OF[one.kind] for one in campaigns(evidence.study) if one.kind in METRIC_OF}
    asked |= {METRIC_OF[STEPS]} if evidence.study.rounds.steps else set()
    shown = [(metric, what) for metric, what in KINDS.items() if metric in asked]
    return [tally(rows[rows["metric"] == metric].to_dict("records"), what) for metric, what in shown]


def together(evidence: Evidence) -> list[str]:
    """How close all environments are to the host together, by workload, whole runs first."""
    rows = joint(evidence.verdicts)
    told = []
    for metric in HEADLINES:
        for workload, own in rows[rows["all_within"].notna() & (rows["metric"] == metric)].groupby("workload"):
            if len(own) < 2 or (own["verdict"] == "different").any():  # of one the interval says it
                continue
            first = own.iloc[0]
            told.append(
                f"{KINDS[metric]} of {workload_title(str(workload))}: {len(own)} environments together lie within "
                f"{percent(first['all_within'], up=True)} of the host, stalls included "
                f"({100 * (1 - first['family_alpha']):.0f}%; margin {margin_text(first['margin'])})."
            )
    return told


def glances(evidence: Evidence | Reference) -> list[Glance]:
    """Every interval that answers the question, by workload, in a table for the first screen."""
    found = []
    for workload in evidence.workloads:
        rows = _shown(evidence, [workload])
        firsts = {asked: rows[rows["asked"] == asked].iloc[0] for asked in _asked(rows)}
        if not firsts:
            continue
        cells = {
            (row["launch"], row["asked"]): (signed(row["ci_low"], row["ci_high"]), row["verdict"])
            for row in rows.to_dict("records")
        }
        lines = [
            (env, env_title(env, short=True), [cells.get((env, asked), ("not run", None)) for asked in firsts])
            for env in sorted(rows["launch"].unique(), key=env_order)
        ]
        control = [(signed(row["control_ci_low"], row["control_ci_high"]), None) for row in firsts.values()]
        lines.append((CONTROL, env_title(CONTROL, short=True), control))
        found.append(Glance(workload_title(workload), [asked_title(asked) for asked in firsts], lines))
    return found


def without_interval(evidence: Evidence) -> list[str]:
    """Why the first screen says "no interval" where it does."""
    shown = _shown(evidence, evidence.workloads)
    lacking = shown[shown["ci_low"].isna() & shown["ci_high"].isna()]
    told = []
    for units in dict.fromkeys(map(int, lacking["n_units"])):
        few = f"it takes {units_text(FEWEST_UNITS, 'rounds')}, and there {'is' if units == 1 else 'are'} {units}"
        wide = (
            f"that of {units_text(units, 'rounds')} would reach beyond a factor of {LARGEST_RATIO:,}; more rounds"
        )
        wide += " in one campaign make it narrower, another try makes it wider"
        told.append(f"No interval: {few if units < FEWEST_UNITS else wide}.")
    return told


def tried_again(evidence: Evidence) -> list[str]:
    """Which answers of the first screen are no first try, and what that costs their intervals."""
    tries = _shown(evidence, evidence.workloads).groupby("workload")["attempt"].max()
    tries = tries.reindex(evidence.workloads).dropna()  # in the order of the study
    told = []
    for attempt in sorted(int(number) for number in tries.unique() if number > 1):
        names = " and ".join(workload_title(name) for name in tries[tries == attempt].index)
        told.append(
            f"{names}: measured again, this is try {attempt}. It may spend {percent(share_of(attempt))} of alpha, "
            "the share of studies that may find a difference where there is none; the first try may spend "
            f"{percent(share_of(1))}. So its intervals are wider, and whoever measures until something differs is "
            "not fooled."
        )
    return told


def _shown(evidence: Evidence | Reference, workloads: list[str]) -> pd.DataFrame:
    """Rows of the verdict table that the first screen shows."""
    verdicts = headlines(evidence.verdicts)
    return verdicts[verdicts["workload"].isin(workloads) & verdicts["metric"].isin(HEADLINES)]


def _asked(rows: pd.DataFrame) -> list[Asked]:
    """What rows of the headlines answer, in the order in which it is shown."""
    return sorted(rows["asked"].unique(), key=_place)


def _place(asked: Asked) -> tuple[int, str]:
    return HEADLINES.index(asked.metric), asked.arm.name if asked.arm else ""


def asked_title(asked: Asked) -> str:
    """Title of what a row of `headlines` answers."""
    return metric_title(asked.metric) + (f", {arm_title(asked.arm.name)}" if asked.arm else "")


def answers(evidence: Evidence) -> list[WorkloadAnswer]:
    """One answer per workload of the study."""
    return [_workload(evidence, name) for name in evidence.workloads]


def _workload(evidence: Evidence, workload: str) -> WorkloadAnswer:
    rows = _shown(evidence, [workload])
    controls = [control_sentence(rows[rows["asked"] == asked].iloc[0].to_dict()) for asked in _asked(rows)]
    found = [
        one for one in evidence.decided if (one.workload, one.factor, one.role) == (workload, ENVIRONMENT, PRIMARY)
    ]
    table = answer_table(found) if found else None
    return WorkloadAnswer(workload, workload_title(workload), designs(evidence, workload), table, controls)


def answer_table(found: Sequence[Decision]) -> Table:
    """What each environment costs, beside the control, what it is put down to, and what is advised."""
    return Table.of(
        sorted(found, key=lambda one: (env_order(one.env), _place(_answered(one)))),
        {
            "environment": lambda one: Cell(text=title_of(one), below=asked_title(_answered(one))),
            "longer or shorter": lambda one: Cell(
                text=COLUMNS["longer or shorter"](one), below=Markup(strip(_drawn(one), _reach(found, one)))
            ),
            **{name: cell for name, cell in COLUMNS.items() if name != "longer or shorter"},
        },
        caption=f"{workload_title(found[0].workload)}: what each environment costs, against the host",
        wide=True,
    )


def _answered(one: Decision) -> Asked:
    """What a decision of a headline answers."""
    return Asked(metric=one.metric, arm=arm_of(one.cell.campaign))


def _drawn(one: Decision) -> dict[str, Any]:
    """What its strip is drawn from; the control's point stands in the middle of its interval."""
    low, high = one.control or (math.nan, math.nan)
    return {**one.row(), "control_ratio": math.sqrt(low * high)}


def _reach(found: Sequence[Decision], one: Decision) -> float:
    """Half-width of the strips of one question, as an exponent's base: the farthest end that any row has."""
    own = [other for other in found if _answered(other) == _answered(one)]
    ends = [end for other in own for end in (other.low, other.high, *(other.control or ())) if end]
    return max([1 + one.margin, *(max(end, 1 / end) for end in ends)])
