"""What a second job on the machine costs in each environment, and what the machine did meanwhile.

Rows of the tables `verdicts` and `metrics` in, tables out; nothing is computed but means.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from tare.analysis.launch_rows import SLOWDOWN
from tare.model.records.launches import CONTENTION
from tare.model.registry import HOST, SHARED
from tare.model.roles import alone_of, read_role
from tare.model.studies.study import Shared
from tare.report.evidence import Campaign, Evidence
from tare.report.number_tables import compared
from tare.report.words.labels import arm_title, env_order, env_title, metric_title, with_unit, workload_title
from tare.report.words.layout import Table, field
from tare.report.words.wording import missing

NEIGHBOURS = ("neighbour_steps_per_s", "neighbour_cpus")
OWN = ("real_s", "user_s", "system_s", "waited_s", "preemptions")
REASONS_OF = (*OWN, *CONTENTION, *NEIGHBOURS)


class BesideAnswer(NamedTuple):
    """One campaign: whose runs, beside what; what that costs; what the machine did meanwhile; what is lacking."""

    title: str
    table: Table
    meanwhile: Table
    lacking: list[str]


def answers(evidence: Evidence) -> list[BesideAnswer]:
    """One answer for each campaign of the scenario, workload by workload; none where the study has none."""
    return [_answer(evidence, one) for one in evidence.campaigns if one.plan.scenario == SHARED]


def _answer(evidence: Evidence, campaign: Campaign) -> BesideAnswer:
    rows = sorted(_of(evidence.verdicts, campaign).to_dict("records"), key=lambda row: env_order(row["launch"]))
    itself = [row for row in rows if row["metric"] == "real_s" and row["reference"] == alone_of(row["launch"])]
    host = [row for row in rows if row["metric"] == SLOWDOWN and row["reference"] == HOST]
    metrics = _of(evidence.metrics, campaign)
    return BesideAnswer(
        title=_title(campaign, evidence.study.shared),
        table=Table.of(
            [*itself, *host],
            {
                "environment": field("launch", env_title),
                "by": field("reference", env_title),
                "metric": field("metric", metric_title),
                **compared("n", "ratio", "interval", "control", "margin", "verdict"),
            },
            caption="What the second job costs each environment, and whether that is more than on the host",
            wide=True,
        ),
        meanwhile=_meanwhile(metrics),
        lacking=[
            *(f"{env_title(env)}: unavailable, {reason}" for env, reason in campaign.plan.unavailable.items()),
            *_lacking(metrics),
        ],
    )


def _of(table: pd.DataFrame, campaign: Campaign) -> pd.DataFrame:
    return table[(table["workload"] == campaign.workload) & (table["campaign"] == campaign.name)]


def _title(campaign: Campaign, settings: Shared | None) -> str:
    part: dict[str, Any] = dict((campaign.plan.part or {}).get("shared") or {})
    if not part and settings is not None:
        part = settings.to_json()
    arm = campaign.arm
    small = arm is not None and arm.factor == "neighbour"
    is_cut = arm is not None and arm.level == "cpuset"  # to its CPUs
    threads = f" in {part['threads']} threads" if part.get("threads") and not is_cut else ""
    batch = part.get("small_batch") if small else part.get("batch")
    beside = f"{workload_title(part.get('workload', 'a job'))} at batch {batch}{threads}"
    how = f", {arm_title(arm.name)}" if arm is not None and not small else ""
    return f"{workload_title(campaign.workload)} beside {beside}{how}"


def _meanwhile(metrics: pd.DataFrame) -> Table:
    """Means over units of what a launch took and the machine did, beside a neighbour and alone."""
    own = metrics[metrics["metric"].isin(REASONS_OF) & (metrics["kind"] == "measured")]
    units = own.groupby("metric")["unit"].first()
    means = own.pivot_table(index="launch", columns="metric", values="value", aggfunc="mean")
    shown = [name for name in REASONS_OF if name in means]

    def text(env: str, name: str) -> str | None:
        value = means[name].get(env)
        return None if missing(value) else with_unit(value, units[name])

    return Table.of(
        sorted(means.index, key=lambda env: (env_order(read_role(env).place.name), env)),
        {
            "": lambda env: env_title(str(env), short=True),
            **{metric_title(name): lambda env, name=name: text(env, name) for name in shown},
        },
        caption="Where the time went, and what the machine did meanwhile: means over rounds",
        note="Whole run, user and system time, waiting and preemptions are the launch's own; all else is the "
        "machine's.",
        numeric=True,
        wide=True,
    )


def _lacking(metrics: pd.DataFrame) -> list[str]:
    """What could not be counted, and why, each reason once."""
    own = metrics[metrics["metric"].isin(REASONS_OF) & (metrics["kind"] == "unavailable")]
    reasons = own[own["launch_role"] != "control"].groupby("reason", sort=True)["metric"].unique()
    return [
        f"{', '.join(metric_title(name) for name in names)}: unavailable, {reason}"
        for reason, names in reasons.items()
    ]
