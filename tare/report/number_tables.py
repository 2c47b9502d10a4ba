"""Tables of numbers: time split, every verdict, batch sizes, and the papers' metrics from profiled launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tare.report.evidence import Evidence
from tare.report.figures import batch_table, joint, split_table
from tare.report.labels import (
    env_order,
    env_title,
    metric_order,
    metric_title,
    seconds,
    significant,
    with_unit,
    workload_title,
)
from tare.report.layout import Cell, Row, Table
from tare.report.references import Reference
from tare.report.wording import margin_text, missing
from tare.stats.intervals import Interval, judge

DESIGNS = {"stein": "Stein", "fixed": "Student"}


def times_table(evidence: Evidence | Reference, workload: str) -> Table:
    """Mean seconds of the parts of a whole run."""
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


STEP_COLUMNS = {
    "turn_step_s": "step",
    "turn_step_mean_s": "step, stalls in full",
    "step_cpu_s": "CPU time",
    "step_system_s": "in the kernel",
    "step_page_faults": "page faults",
    "turn_peak_rss_bytes": "peak memory",
}


def steps_table(evidence: Evidence | Reference, workload: str) -> Table:
    """What a training step takes in turns: means over blocks."""
    metrics = joint(evidence.metrics)
    own = metrics[(metrics["workload"] == workload) & metrics["metric"].isin(STEP_COLUMNS)]
    own = own[own["kind"] == "measured"]
    units = own.groupby("metric")["unit"].first()
    means = own.pivot_table(index="env", columns="metric", values="value", aggfunc="mean")
    rows: list[Row] = []
    for env in sorted(means.index, key=env_order):
        values = means.loc[env]
        rows.append(
            [
                env_title(str(env), short=True),
                *(None if missing(values.get(m)) else with_unit(values[m], units[m]) for m in STEP_COLUMNS),
            ]
        )
    return Table(
        caption=f"{workload_title(workload)}: a training step, launches taking turns",
        columns=["", *STEP_COLUMNS.values()],
        rows=rows,
        note="Means over blocks. They hold the machine's mood of each block, which the ratios do not.",
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


def verdicts_table(evidence: Evidence | Reference, workload: str) -> Table:
    """Every comparison of one workload's headline campaigns; the robust ratio beside that of totals."""
    rows: list[Row] = []
    for row in _headline_rows(evidence, workload):
        rows.append(
            [
                metric_title(row["metric"]),
                env_title(row["env"]),
                str(row["n_units"]),
                ratio_text(row["ratio"]),
                interval_text(row["ci_low"], row["ci_high"]),
                Cell(
                    text=ratio_text(row["total_ratio"]) or "–",
                    below="stalls: beyond the margin" if apart(row) else "",
                ),
                interval_text(row["control_ci_low"], row["control_ci_high"]),
                margin_text(row["margin"]),
                DESIGNS[row["design"]],
                row["verdict"] if missing(row["reason"]) else f"{row['verdict']}: {row['reason']}",
            ]
        )
    return Table(
        caption=f"{workload_title(workload)}: every comparison with the host",
        columns=[
            *("metric", "environment", "n", "ratio", "interval", "ratio of totals", "control", "margin"),
            *("interval by", "verdict"),
        ],
        rows=rows,
        note=f"{stalls_sentence(evidence, workload)} {bootstrap_sentence(evidence, workload)}",
        wide=True,
    )


def _headline_rows(evidence: Evidence | Reference, workload: str) -> list[dict[str, Any]]:
    found = joint(evidence.verdicts)
    found = found[found["workload"] == workload].to_dict("records")
    return sorted(found, key=lambda r: (metric_order(r["metric"]), env_order(r["env"])))


def apart(row: Mapping[str, Any]) -> bool:
    """Whether the ratio of summed times and the robust one lie further apart than the margin."""
    ratio, total = row["ratio"], row["total_ratio"]
    return not (missing(ratio) or missing(total)) and abs(math.log(total / ratio)) > math.log1p(row["margin"])


def _names(rows: list[dict[str, Any]]) -> str:
    return "; ".join(f"{metric_title(row['metric']).lower()} in {env_title(row['env'])}" for row in rows)


def stalls_sentence(evidence: Evidence | Reference, workload: str) -> str:
    """Where the ratio of totals and the one that decides disagree by more than the margin."""
    found = [row for row in _headline_rows(evidence, workload) if apart(row)]
    if not found:
        return (
            "The ratio of summed times, stalls in full, is nowhere further from the deciding one than the margin."
        )
    where = _names(found)
    return f"The ratio of summed times, stalls in full, is further from the deciding one than the margin: {where}."


def bootstrap_sentence(evidence: Evidence | Reference, workload: str) -> str:
    """A sensitivity check: the comparisons on which a percentile bootstrap would have decided otherwise."""
    rows = [row for row in _headline_rows(evidence, workload) if not missing(row["ci_low"])]
    other = [row for row in rows if bootstrap_verdict(row) not in (None, row["verdict"])]
    if not other:
        return "A bootstrap would have decided the same everywhere."
    told = "; ".join(
        f"{metric_title(row['metric']).lower()} in {env_title(row['env'])} ({bootstrap_verdict(row)})"
        for row in other
    )
    return (
        f"A bootstrap, which with few units covers too little, would have decided {len(other)} of {len(rows)} "
        f"otherwise: {told}."
    )


def bootstrap_verdict(row: Mapping[str, Any]) -> str | None:
    """What the bootstrap's interval would have decided; None where there is none."""
    if missing(row["bootstrap_low"]) or missing(row["bootstrap_high"]):
        return None
    low, high = math.log(row["bootstrap_low"]), math.log(row["bootstrap_high"])
    return judge(Interval(n=row["n_units"], mean=(low + high) / 2, low=low, high=high), row["margin"])


def batch_numbers(evidence: Evidence | Reference, workload: str) -> Table:
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


def batch_sentence(evidence: Evidence | Reference, workload: str) -> str:
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
        text += (
            f" The runs of batches {order.index[0]} and {order.index[1]} overlap: the two can't be told apart here."
        )
    return text
