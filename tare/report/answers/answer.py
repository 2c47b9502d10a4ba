"""The answer: for each workload and environment what the intervals say, beside the control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from tare.analysis.choice import METRIC_OF, Asked, headlines
from tare.model.journals.units import share_of
from tare.model.roles import CONTROL
from tare.model.studies.layout import STEPS
from tare.model.studies.study import HOST, campaigns
from tare.report.arms.fault_costs import beside_measured
from tare.report.evidence import Evidence
from tare.report.figures import joint
from tare.report.figures.strip import strip
from tare.report.methods.designs import designs
from tare.report.references import Reference
from tare.report.words.labels import (
    arm_title,
    env_order,
    env_title,
    metric_title,
    seconds,
    sentence_case,
    units_text,
    workload_title,
)
from tare.report.words.layout import Comparison
from tare.report.words.wording import (
    control_sentence,
    margin_text,
    missing,
    percent,
    signed,
    stalled,
    tally,
    verdict_sentence,
)
from tare.stats.intervals import BUT_FOR_STALLS, FEWEST_UNITS, LARGEST_RATIO, RULE_OF_THREE

HEADLINES = ("real_s", "step_s")
KINDS = {"real_s": "Whole runs", "step_s": "Training steps"}


@dataclass(frozen=True, kw_only=True)
class EnvironmentAnswer:
    """What one environment costs one workload."""

    env: str
    title: str
    findings: list[Comparison]
    start: str | None


@dataclass(frozen=True, kw_only=True)
class WorkloadAnswer:
    """What the environments cost one workload.

    Attributes:
        designs: of its campaigns: what each answers, and how many units it has and why.
        controls: the sentences on host against host.
    """

    workload: str
    title: str
    designs: list[tuple[str, str]]
    environments: list[EnvironmentAnswer]
    controls: list[str]


@dataclass(frozen=True, kw_only=True)
class Glance:
    """One workload in a few cells.

    Attributes:
        columns: what was timed.
        rows: (environment, title, cells); a cell is an interval and its verdict, the control's has none.
    """

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
    return [
        tally(rows[rows["metric"] == metric].to_dict("records"), what)
        for metric, what in KINDS.items()
        if metric in asked
    ]


def together(evidence: Evidence) -> list[str]:
    """How close all environments are to the host together, by workload, whole runs first."""
    rows = joint(evidence.verdicts)
    return [line for metric in HEADLINES for line in _together(rows[rows["metric"] == metric])]


def _together(rows: pd.DataFrame) -> list[str]:
    """How close all environments of a workload are to the host together, as one statement."""
    told = []
    for workload, own in rows[rows["all_within"].notna()].groupby("workload"):
        if len(own) < 2 or (own["verdict"] == "different").any():  # of one the interval says it; they are not close
            continue
        first = own.iloc[0]
        limit, confidence = percent(first["all_within"], up=True), 100 * (1 - first["family_alpha"])
        inside = "inside" if first["all_within"] <= first["margin"] else "not inside"
        everyone = "both" if len(own) == 2 else f"all {len(own)}"
        told.append(
            f"{KINDS[first['metric']]} of {workload_title(str(workload))}: {everyone} environments together "
            f"lie within {limit} of the host, stalls included ({confidence:.0f}%; {inside} the margin of "
            f"{margin_text(first['margin'])})."
        )
    return told


def glances(evidence: Evidence | Reference) -> list[Glance]:
    """Every interval that answers the question, by workload, in a table for the first screen."""
    verdicts = headlines(evidence.verdicts)
    found = []
    for workload in evidence.workloads:
        rows = verdicts[(verdicts["workload"] == workload) & verdicts["metric"].isin(HEADLINES)]
        shown = _asked(rows)
        if not shown:
            continue
        by_place = {(row["launch"], row["asked"]): row for row in rows.to_dict("records")}
        lines = [
            (env, env_title(env, short=True), [_glance(by_place.get((env, asked))) for asked in shown])
            for env in sorted(rows["launch"].unique(), key=env_order)
        ]
        firsts = [rows[rows["asked"] == asked].iloc[0] for asked in shown]
        control = [(signed(row["control_ci_low"], row["control_ci_high"]), None) for row in firsts]
        lines.append((CONTROL, env_title(CONTROL, short=True), control))
        columns = [asked_title(asked) for asked in shown]
        found.append(Glance(title=workload_title(workload), columns=columns, rows=lines))
    return found


def without_interval(evidence: Evidence) -> list[str]:
    """Why the first screen says "no interval" where it does."""
    shown = _shown(evidence)
    lacking = shown[shown["ci_low"].isna() & shown["ci_high"].isna()]
    return [f"No interval: {_why_none(units)}." for units in dict.fromkeys(map(int, lacking["n_units"]))]


def _why_none(units: int) -> str:
    if units < FEWEST_UNITS:
        return f"it takes {units_text(FEWEST_UNITS, 'rounds')}, and there {'is' if units == 1 else 'are'} {units}"
    return (
        f"that of {units_text(units, 'rounds')} would reach beyond a factor of {LARGEST_RATIO:,}; more rounds in "
        "one campaign make it narrower, another try makes it wider"
    )


def tried_again(evidence: Evidence) -> list[str]:
    """Which answers of the first screen are no first try, and what that costs their intervals."""
    shown = _shown(evidence)
    found: dict[int, list[str]] = {}
    for workload in evidence.workloads:
        own = shown[shown["workload"] == workload]["attempt"].dropna()
        if len(own) and own.max() > 1:
            found.setdefault(int(own.max()), []).append(workload_title(workload))
    return [
        f"{' and '.join(names)}: measured again, this is try {attempt}. It may spend {percent(share_of(attempt))} "
        "of alpha, the share of studies that may find a difference where there is none; the first try may spend "
        f"{percent(share_of(1))}. So its intervals are wider, and whoever measures until something differs is not "
        "fooled."
        for attempt, names in sorted(found.items())
    ]


def _shown(evidence: Evidence) -> pd.DataFrame:
    """Rows of the verdict table that the first screen shows."""
    verdicts = headlines(evidence.verdicts)
    return verdicts[verdicts["workload"].isin(evidence.workloads) & verdicts["metric"].isin(HEADLINES)]


def _asked(rows: pd.DataFrame) -> list[Asked]:
    """What rows of the headlines answer, in the order in which it is shown."""
    return sorted(
        rows["asked"].unique(), key=lambda one: (HEADLINES.index(one.metric), one.arm.name if one.arm else "")
    )


def asked_title(asked: Asked) -> str:
    """Title of what a row of `headlines` answers."""
    return metric_title(asked.metric) + (f", {arm_title(asked.arm.name)}" if asked.arm else "")


def _glance(row: Mapping[str, Any] | None) -> tuple[str, str | None]:
    return ("not run", None) if row is None else (signed(row["ci_low"], row["ci_high"]), row["verdict"])


def answers(evidence: Evidence) -> list[WorkloadAnswer]:
    """One answer per workload of the study."""
    verdicts, metrics = headlines(evidence.verdicts), joint(evidence.metrics)
    return [
        _workload(
            name,
            verdicts[verdicts["workload"] == name],
            metrics[metrics["workload"] == name],
            designs(evidence, name),
            evidence.fault_costs,
        )
        for name in evidence.workloads
    ]


def _workload(
    workload: str,
    verdicts: pd.DataFrame,
    metrics: pd.DataFrame,
    design: list[tuple[str, str]],
    costs: pd.DataFrame,
) -> WorkloadAnswer:
    rows = verdicts[verdicts["metric"].isin(HEADLINES)]
    environments = []
    for env in sorted(rows["launch"].unique(), key=env_order):
        own = {row["asked"]: row for row in rows[rows["launch"] == env].to_dict("records")}
        findings = [_finding(own[asked], _reach(rows, asked), costs) for asked in _asked(rows) if asked in own]
        environments.append(
            EnvironmentAnswer(env=env, title=env_title(env), findings=findings, start=_start(metrics, env))
        )
    firsts = [rows[rows["asked"] == asked].iloc[0].to_dict() for asked in _asked(rows)]
    return WorkloadAnswer(
        workload=workload,
        title=workload_title(workload),
        designs=design,
        environments=environments,
        controls=[sentence_case(control_sentence(row)) for row in firsts],
    )


def _finding(row: Mapping[str, Any], reach: float, costs: pd.DataFrame) -> Comparison:
    notes = [note for note in (stall_note(row), beside_measured(costs, row)) if note]
    return Comparison(
        title=asked_title(row["asked"]),
        verdict=row["verdict"],
        sentence=sentence_case(verdict_sentence(row)),
        strip=Markup(strip(row, reach)),
        note=". ".join(notes) or None,
    )


def stall_note(row: Mapping[str, Any]) -> str | None:
    """What stalls add, where their interval excludes nothing added, and what all time comes to with them; or how
    rare those are that would not have been seen, where that is why a verdict holds but for them."""
    if not stalled(row):
        alike = row["total_verdict"] == "equivalent"  # else all time itself is why
        few = row["verdict"].endswith(BUT_FOR_STALLS) and alike and not missing(row["steps"])
        rare = max(1, round(row["steps"] / RULE_OF_THREE)) if few else 0
        return (
            f"{row['steps']} steps were timed: stalls of one step in {rare} or fewer could have gone unseen"
            if few
            else None
        )
    return (
        f"Stalls count here: they change the ratio by {signed(row['stalls_ci_low'], row['stalls_ci_high'])}; all "
        f"time, stalls included, is {signed(row['total_ci_low'], row['total_ci_high'])}"
    )


def _reach(rows: pd.DataFrame, asked: Asked) -> float:
    """Half-width of the strips of one question, as an exponent's base: the farthest end that any row has."""
    own = rows[rows["asked"] == asked]
    ends = [1 + own["margin"].max()]
    for column in ("ci_low", "ci_high", "control_ci_low", "control_ci_high"):
        ends += [max(value, 1 / value) for value in own[column].dropna() if value > 0]
    return max(ends)


def _start(metrics: pd.DataFrame, env: str) -> str | None:
    """Median time until the program's first line, beside the host's."""
    rows = metrics[(metrics["metric"] == "runtime_start_s") & (metrics["kind"] == "measured")]
    medians = rows.groupby("launch")["value"].median()
    if env not in medians or HOST not in medians:
        return None
    return f"Its start takes {seconds(medians[env])}, the host's {seconds(medians[HOST])} (medians)."
