"""Tables of numbers: time split, every verdict, batch sizes, and the papers' metrics from profiled launches."""

from __future__ import annotations

import pandas as pd

from tare.figures import batch_table, joint, split_table
from tare.figures.roofs import PROFILE, points
from tare.labels import (
    decimal_prefix,
    env_order,
    env_title,
    metric_meaning,
    metric_order,
    metric_title,
    seconds,
    significant,
    with_unit,
    workload_title,
)
from tare.report.evidence import Evidence
from tare.report.layout import UNAVAILABLE, Cell, Row, Table
from tare.report.wording import margin_text, missing
from tare.study import HOST


def times_table(evidence: Evidence, workload: str) -> Table:
    """Mean seconds of the parts of a whole run and of the steady step."""
    metrics = joint(evidence.metrics)
    parts = split_table(metrics, workload)
    rows: list[Row] = []
    for env, values in parts.iterrows():
        rows.append(
            [env_title(str(env), short=True), *(_or_none(value) for value in values), seconds(values.sum())]
        )
    return Table(
        caption=f"{workload_title(workload)}: mean parts of a whole run",
        columns=["", *(metric_title(part) for part in parts.columns), "Whole run"],
        rows=rows,
        numeric=True,
        wide=True,
    )


def _or_none(value: float) -> str | None:
    return None if missing(value) else seconds(value)


def ratio_text(value: float | None) -> str | None:
    """A ratio with four digits, as tables show it."""
    return None if value is None or missing(value) else f"{value:.4f}" if value < 10 else f"{value:.1f}"


def interval_text(low: float | None, high: float | None) -> str:
    """Both ends of an interval of ratios."""
    if missing(low) or missing(high):
        return "none"
    return f"{ratio_text(low)} to {ratio_text(high)}"


def verdicts_table(evidence: Evidence, workload: str) -> Table:
    """Every comparison of one workload's joint campaign: the interval that decided, the control, the verdict."""
    found = joint(evidence.verdicts)
    found = found[found["workload"] == workload]
    rows: list[Row] = []
    for row in sorted(found.to_dict("records"), key=lambda r: (metric_order(r["metric"]), env_order(r["env"]))):
        rows.append(
            [
                metric_title(row["metric"]),
                env_title(row["env"]),
                str(row["n_units"]),
                ratio_text(row["ratio"]),
                interval_text(row["ci_low"], row["ci_high"]),
                ratio_text(row["total_ratio"]),
                interval_text(row["control_ci_low"], row["control_ci_high"]),
                margin_text(row["margin"]),
                row["verdict"] if missing(row["reason"]) else f"{row['verdict']}: {row['reason']}",
            ]
        )
    return Table(
        caption=f"{workload_title(workload)}: every comparison with the host",
        columns=[
            "metric",
            "environment",
            "n",
            "ratio",
            "interval",
            "ratio of totals",
            "control",
            "margin",
            "verdict",
        ],
        rows=rows,
        wide=True,
    )


def batch_numbers(evidence: Evidence, workload: str) -> Table:
    """Real time by batch size."""
    found = batch_table(evidence.metrics, workload)
    rows: list[Row] = [
        [
            str(batch),
            str(int(row["launches"])),
            seconds(row["shortest_s"]),
            seconds(row["median_s"]),
            seconds(row["longest_s"]),
            f"{significant(row['spread_percent'], 2)}%",
        ]
        for batch, row in found.iterrows()
    ]
    return Table(
        caption=f"{workload_title(workload)}: real time by batch size, host",
        columns=["batch", "launches", "shortest", "median", "longest", "spread"],
        rows=rows,
        numeric=True,
    )


def batch_sentence(evidence: Evidence, workload: str) -> str:
    """Which batch size is shortest, and whether the repetitions can tell it from the next."""
    found = batch_table(evidence.metrics, workload)
    title = workload_title(workload)
    if len(found) < 2:
        return f"{title}: fewer than two batch sizes ran, so there is nothing to compare."
    order = found.sort_values("median_s")
    best, second, worst = order.iloc[0], order.iloc[1], order.iloc[-1]
    text = (
        f"{title}: shortest at batch {order.index[0]} (median {seconds(best['median_s'])}), longest at batch "
        f"{order.index[-1]} ({seconds(worst['median_s'])})."
    )
    if best["longest_s"] >= second["shortest_s"]:
        text += f" Its runs overlap those of batch {order.index[1]}: the two can't be told apart here."
    return text


def roofline_sentences(evidence: Evidence) -> list[str]:
    """Where each workload lies on the host."""
    found = points(evidence.metrics)
    return [
        f"{workload_title(row.workload)}: {significant(row.intensity, 2)} FLOP per byte (modelled), "
        f"{decimal_prefix(row.rate)}FLOP/s (modelled FLOPs by measured time)."
        for row in found[found["env"] == HOST].itertuples()
    ]


def profile_table(evidence: Evidence, workload: str) -> Table:
    """The papers' metrics from profiled launches, by environment, each with its kind."""
    rows_of = evidence.metrics[
        (evidence.metrics["campaign"] == PROFILE) & (evidence.metrics["workload"] == workload)
    ]
    ran = [env for env in evidence.environments if (rows_of[rows_of["env"] == env]["kind"] != UNAVAILABLE).any()]
    rows: list[Row] = []
    for metric in sorted(rows_of["metric"].unique(), key=metric_order):
        own = rows_of[(rows_of["metric"] == metric) & rows_of["env"].isin(ran)].set_index("env")
        if own.empty:
            continue
        head = Cell(text=metric_title(metric), below=metric_meaning(metric))
        if (own["kind"] == UNAVAILABLE).all():
            rows.append([head, Cell(text=f"{UNAVAILABLE}: {_why(own)}", span=len(ran) + 2)])
            continue
        cells = [_cell(own.loc[env]) if env in own.index else None for env in ran]
        rows.append([head, *cells, _kinds(own), _why(own)])
    return Table(
        caption=f"{workload_title(workload)}: metrics of the papers, from one profiled launch per environment",
        columns=["metric", *(env_title(env, short=True) for env in ran), "kind", "source"],
        rows=rows,
        note="Per training step where the name says so. A profiled launch is never a timed one.",
        wide=True,
    )


def _cell(row: pd.Series) -> str:
    return "–" if row["kind"] == UNAVAILABLE else with_unit(row["value"], row["unit"])


def _kinds(own: pd.DataFrame) -> str:
    return ", ".join(sorted(own["kind"].unique()))


def _why(own: pd.DataFrame) -> str:
    reasons = own["reason"].dropna().unique()
    return "; ".join(reasons) if len(reasons) else ", ".join(own["source"].unique())
