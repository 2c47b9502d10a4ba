"""Tables of numbers: time split, every verdict, batch sizes, and the papers' metrics from profiled launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tare.analysis.choice import PRIMARY
from tare.report.evidence import Evidence
from tare.report.figures import (
    OF_WHICH_IMPORTS,
    batch_table,
    failed_launches,
    joint,
    late_table,
    split_table,
)
from tare.report.references import Reference
from tare.report.words.labels import (
    env_order,
    env_title,
    metric_order,
    metric_title,
    seconds,
    significant,
    with_unit,
    workload_title,
)
from tare.report.words.layout import Cell, Table
from tare.report.words.wording import margin_text, missing, stalled, without_time
from tare.stats.intervals import BUT_FOR_STALLS, Interval, judge

DESIGNS = {"stein": "pilot", "fixed": "study or budget"}


def times_table(evidence: Evidence | Reference, workload: str) -> Table:
    """Mean seconds of the parts of a whole run, and of the imports within them where these are much of one."""
    metrics = joint(evidence.metrics)
    parts, late = split_table(metrics, workload), late_table(metrics, workload)

    def part_of(row: Any, part: str) -> str | Cell | None:
        text, imports_s = _scaled(row[1][part], "s"), late.loc[row[0], part]
        return text if text is None or missing(imports_s) else Cell(
            text=text, below=f"{OF_WHICH_IMPORTS}: {seconds(imports_s)}"
        )  # fmt: skip

    return Table.of(
        parts.iterrows(),
        {
            "": lambda row: env_title(str(row[0]), short=True),
            **{metric_title(part): lambda row, part=part: part_of(row, part) for part in parts.columns},
            "Whole run": lambda row: seconds(row[1].sum()),
        },
        caption=f"{workload_title(workload)}: mean parts of a whole run",
        numeric=True,
        wide=True,
    )


STEP_COLUMNS = {
    "step_s": "step",
    "step_mean_s": "step, stalls in full",
    "step_cpu_s": "CPU time",
    "step_system_s": "in the kernel",
    "step_page_faults": "page faults",
    "step_preemptions": "preemptions",
    "step_peak_rss_bytes": "peak memory",
}


def steps_table(evidence: Evidence | Reference, workload: str) -> Table:
    """What a training step takes: means over rounds."""
    metrics = joint(evidence.metrics)
    own = metrics[(metrics["workload"] == workload) & metrics["metric"].isin(STEP_COLUMNS)]
    own = own[own["kind"] == "measured"]
    units = own.groupby("metric")["unit"].first()
    means = own.pivot_table(index="launch", columns="metric", values="value", aggfunc="mean")
    return Table.of(
        sorted(means.index, key=env_order),
        {
            "": lambda env: env_title(str(env), short=True),
            **{
                title: lambda env, metric=metric: _scaled(means.loc[env].get(metric), units.get(metric))
                for metric, title in STEP_COLUMNS.items()
            },
        },
        caption=f"{workload_title(workload)}: a training step",
        note="Means over rounds. They hold how fast the machine was in each round, which the ratios do not.",
        numeric=True,
        wide=True,
    )


def _scaled(value: float | None, unit: str) -> str | None:
    return None if missing(value) else with_unit(value, unit)


def ratio_text(value: float | None) -> str | None:
    """A ratio with four digits, as tables show it."""
    return None if value is None or missing(value) else f"{value:.4f}" if value < 10 else f"{value:.1f}"


def interval_text(low: float | None, high: float | None) -> str:
    """Both ends of an interval of ratios."""
    if missing(low) or missing(high):
        return "none"
    return f"{ratio_text(low)} to {ratio_text(high)}"


# Columns of tables of comparisons, each from a row of the verdict table.
COMPARED: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "n": lambda row: str(row["n_units"]),
    "ratio": lambda row: ratio_text(row["ratio"]),
    "interval": lambda row: interval_text(row["ci_low"], row["ci_high"]),
    "ratio of totals": lambda row: ratio_text(row["total_ratio"]),
    "control": lambda row: interval_text(row["control_ci_low"], row["control_ci_high"]),
    "margin": lambda row: margin_text(row["margin"]),
    "verdict": lambda row: row["verdict"] if missing(row["reason"]) else f"{row['verdict']}: {row['reason']}",
}


def compared(*names: str) -> dict[str, Callable[[Mapping[str, Any]], str | None]]:
    """Some of COMPARED, in this order."""
    return {name: COMPARED[name] for name in names}


def verdicts_table(evidence: Evidence | Reference, workload: str) -> Table:
    """Every comparison of one workload's headline campaigns; the robust ratio beside that of totals."""
    return Table.of(
        _headline_rows(evidence, workload),
        {
            "metric": _with_role,
            "environment": lambda row: env_title(row["launch"]),
            **compared("n", "ratio", "interval"),
            "all time": lambda row: Cell(
                text=interval_text(row["total_ci_low"], row["total_ci_high"]),
                below="stalls count" if stalled(row) else "",
            ),
            **compared("control", "margin"),
            "units by": lambda row: DESIGNS[row["design"]],
            **compared("verdict"),
        },
        caption=f"{workload_title(workload)}: every comparison with the host",
        note=f"{stalls_sentence(evidence, workload)} {bootstrap_sentence(evidence, workload)}",
        wide=True,
    )


def _with_role(row: Mapping[str, Any]) -> str | Cell:
    """The metric; what explores is labelled."""
    title = metric_title(row["metric"])
    return title if row["role"] == PRIMARY else Cell(text=title, below=row["role"])


def _headline_rows(evidence: Evidence | Reference, workload: str) -> list[dict[str, Any]]:
    found = joint(evidence.verdicts)
    found = found[found["workload"] == workload].to_dict("records")
    return sorted(found, key=lambda r: (metric_order(r["metric"]), env_order(r["launch"])))


def _names(rows: list[dict[str, Any]]) -> str:
    return "; ".join(f"{metric_title(row['metric']).lower()} in {env_title(row['launch'])}" for row in rows)


def stalls_sentence(evidence: Evidence | Reference, workload: str) -> str:
    """Where stalls change a ratio for sure, and where a verdict holds but for them."""
    rows = _headline_rows(evidence, workload)
    found = [row for row in rows if stalled(row)]
    qualified = [row for row in rows if row["verdict"].endswith("stalls")]
    text = (
        f"Stalls change the ratio: {_names(found)}." if found else "Nowhere is it sure that stalls change a ratio."
    )
    return f"{text} Equivalent or within the margin but for stalls: {_names(qualified)}." if qualified else text


def bootstrap_sentence(evidence: Evidence | Reference, workload: str) -> str:
    """A sensitivity check: the comparisons on which a percentile bootstrap would have decided otherwise."""
    rows = [row for row in _headline_rows(evidence, workload) if not missing(row["ci_low"])]
    other = [
        row for row in rows if bootstrap_verdict(row) not in (None, row["verdict"].removesuffix(BUT_FOR_STALLS))
    ]
    if not other:
        return "A bootstrap would have decided the same everywhere."
    told = "; ".join(
        f"{metric_title(row['metric']).lower()} in {env_title(row['launch'])} ({bootstrap_verdict(row)})"
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
    return Table.of(
        batch_table(evidence.metrics, workload).iterrows(),
        {
            "batch": lambda row: str(row[0]),
            "launches": lambda row: str(int(row[1]["launches"])),
            "shortest": lambda row: seconds(row[1]["shortest_s"]),
            "median": lambda row: seconds(row[1]["median_s"]),
            "longest": lambda row: seconds(row[1]["longest_s"]),
            "spread": lambda row: f"{significant(row[1]['spread_percent'], 2)}%",
        },
        caption=f"{workload_title(workload)}: real time by batch size, host",
        numeric=True,
    )


def batch_sentence(evidence: Evidence | Reference, workload: str) -> str:
    """Which batch size is shortest, whether the repetitions can tell it from the next, and what has no time."""
    failed = failed_launches(evidence.metrics, workload)
    told = [f"{len(reasons)} at batch {batch} ({reasons[-1]})" for batch, reasons in failed.items()]
    text = _shortest(evidence, workload)
    return f"{text} {without_time('Launches', told)}" if told else text


def _shortest(evidence: Evidence | Reference, workload: str) -> str:
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
