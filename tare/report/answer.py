"""The answer: for each workload and environment what the intervals say, beside the control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from tare.figures import joint
from tare.figures.strip import strip
from tare.labels import env_order, env_title, metric_title, seconds, workload_title
from tare.report.evidence import Evidence
from tare.report.wording import control_sentence, missing, sentence_case, tally, verdict_sentence
from tare.study import CONTROL, HOST

HEADLINES = ("real_s", "steady_step_s")
LARGEST_RELATIVE_LOSS = 1e-4  # single precision, sums in another order: some thousand roundings of 6e-8


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One environment and metric: the verdict, its sentence, its picture."""

    title: str
    verdict: str
    sentence: str
    strip: str


@dataclass(frozen=True, kw_only=True)
class EnvironmentAnswer:
    """What one environment costs one workload."""

    env: str
    title: str
    findings: list[Finding]
    start: str | None


@dataclass(frozen=True, kw_only=True)
class WorkloadAnswer:
    """What the environments cost one workload; `controls` are the sentences on host against host."""

    workload: str
    title: str
    n_units: int
    environments: list[EnvironmentAnswer]
    controls: list[str]


def summary(evidence: Evidence) -> list[str]:
    """The shortest true answer: how many comparisons came out how."""
    rows = joint(evidence.verdicts)
    if rows.empty:
        return ["No environment but the host ran: there is nothing to compare with it yet."]
    return [
        tally(rows[rows["metric"] == "real_s"].to_dict("records"), "Whole runs"),
        tally(rows[rows["metric"] == "steady_step_s"].to_dict("records"), "Training steps"),
    ]


def answers(evidence: Evidence) -> list[WorkloadAnswer]:
    """One answer per workload of the study."""
    verdicts, metrics = joint(evidence.verdicts), joint(evidence.metrics)
    return [
        _workload(name, verdicts[verdicts["workload"] == name], metrics[metrics["workload"] == name])
        for name in evidence.workloads
    ]


def _workload(workload: str, verdicts: pd.DataFrame, metrics: pd.DataFrame) -> WorkloadAnswer:
    rows = verdicts[verdicts["metric"].isin(HEADLINES)]
    environments = []
    for env in sorted(rows["env"].unique(), key=env_order):
        own = {row["metric"]: row for row in rows[rows["env"] == env].to_dict("records")}
        findings = [
            Finding(
                title=metric_title(metric),
                verdict=own[metric]["verdict"],
                sentence=sentence_case(verdict_sentence(own[metric])),
                strip=Markup(strip(own[metric], _reach(rows, metric))),
            )
            for metric in HEADLINES
            if metric in own
        ]
        environments.append(
            EnvironmentAnswer(env=env, title=env_title(env), findings=findings, start=_start(metrics, env))
        )
    firsts = [
        rows[rows["metric"] == metric].iloc[0].to_dict() for metric in HEADLINES if (rows["metric"] == metric).any()
    ]
    return WorkloadAnswer(
        workload=workload,
        title=workload_title(workload),
        n_units=int(rows["n_units"].max()) if len(rows) else 0,
        environments=environments,
        controls=[sentence_case(control_sentence(row)) for row in firsts],
    )


def _reach(rows: pd.DataFrame, metric: str) -> float:
    """Half-width of the strips of one metric, as a log-ratio's exponent base: the farthest end that any row has."""
    own = rows[rows["metric"] == metric]
    ends = [1 + own["margin"].max()]
    for column in ("ci_low", "ci_high", "control_ci_low", "control_ci_high"):
        ends += [max(value, 1 / value) for value in own[column].dropna() if value > 0]
    return max(ends)


def _start(metrics: pd.DataFrame, env: str) -> str | None:
    """Median time until the program's first line, beside the host's."""
    rows = metrics[(metrics["metric"] == "runtime_start_s") & (metrics["kind"] == "measured")]
    medians = rows.groupby("env")["value"].median()
    if env not in medians or HOST not in medians:
        return None
    return f"Its start takes {seconds(medians[env])}, the host's {seconds(medians[HOST])} (medians)."


def unavailable(evidence: Evidence) -> list[dict[str, str | None]]:
    """Environments of the study that did not run, or not always, each with its reason and remedy."""
    reasons: dict[str, str] = {}
    for env in evidence.environments:
        probe = evidence.probes.get(env)
        if probe is not None and not probe["available"]:
            reasons[env] = probe["reason"] or "no reason was recorded"
    for campaign in evidence.campaigns:
        for env, reason in campaign.plan["unavailable"].items():
            reasons.setdefault(env, reason)
    return [
        {
            "title": env_title(env),
            "reason": reason,
            "remedy": (evidence.probes.get(env) or {}).get("remedy"),
        }
        for env, reason in sorted(reasons.items())
        if env in evidence.environments
    ]


def failures(evidence: Evidence) -> list[str]:
    """Launches that failed in environments that are there: how many of how many, and the last reason."""
    lines = []
    for campaign in evidence.campaigns:
        for env in campaign.units[0]["launches"] if campaign.units else ():
            launches = [unit["launches"][env] for unit in campaign.units]
            bad = [row for row in launches if row["status"] != "ok"]
            if bad:
                where = env_title(env) if campaign.plan["kind"] == "rounds" else f"batch {env}"
                lines.append(
                    f"{workload_title(campaign.workload)}, {where}: {len(bad)} of {len(launches)} launches did not "
                    f"succeed ({bad[-1]['status']}: {bad[-1]['reason']})"
                )
    return lines


@dataclass(frozen=True, kw_only=True)
class LossCheck:
    """Whether the environments computed the same thing."""

    workload: str
    equal: bool | None
    sentence: str


def loss_checks(evidence: Evidence) -> list[LossCheck]:
    """Largest relative difference of the last loss between any launch and the first host's."""
    found = []
    metrics = joint(evidence.metrics)
    for workload in evidence.workloads:
        rows = metrics[
            (metrics["workload"] == workload) & (metrics["metric"] == "loss_last") & (metrics["kind"] == "measured")
        ]
        found.append(loss_check(workload, rows))
    return found


def loss_check(workload: str, rows: pd.DataFrame) -> LossCheck:
    """The check of one workload, from its rows of the last loss."""
    title = workload_title(workload)
    hosts = rows[rows["env"] == HOST].sort_values("rep")["value"]
    if hosts.empty:
        return LossCheck(workload=workload, equal=None, sentence=f"{title}: no launch on the host left a loss.")
    reference = float(hosts.iloc[0])
    distance = (rows["value"] - reference).abs() / abs(reference)
    largest = float(distance.max())
    where = env_title(str(rows.loc[distance.idxmax(), "env"]))
    places = rows.loc[rows["env"] != CONTROL, "env"].nunique()
    counted = f"{len(rows)} launches in {places} environment{'s' if places > 1 else ''}"
    if largest == 0:
        text = f"{title}: {counted} ended the epoch with the very same loss, {reference:.6f}."
    elif largest <= LARGEST_RELATIVE_LOSS:
        text = (
            f"{title}: {counted} ended the epoch with the same loss within floating-point tolerance: "
            f"{reference:.6f}; the largest relative difference is {largest:.1e} ({where})."
        )
    else:
        text = (
            f"{title}: the losses differ by up to {largest:.2g} of {reference:.6f} ({where}), more than rounding "
            f"explains ({LARGEST_RELATIVE_LOSS:.0e}). What is faster here may compute something else."
        )
    return LossCheck(workload=workload, equal=largest <= LARGEST_RELATIVE_LOSS, sentence=text)


def verdict_table(evidence: Evidence, workload: str) -> list[Mapping[str, Any]]:
    """All rows of one workload's joint campaign, with their sentences."""
    rows = joint(evidence.verdicts)
    return [
        {**row, "has_interval": not missing(row["ci_low"])}
        for row in rows[rows["workload"] == workload].to_dict("records")
    ]
