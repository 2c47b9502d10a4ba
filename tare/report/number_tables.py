"""Tables of numbers: parts of whole runs, training steps, every verdict, batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from tare.analysis.choice import PRIMARY, joint
from tare.model.roles import read_role
from tare.report.evidence import Evidence
from tare.report.figures.lines import batch_table, failed_launches
from tare.report.figures.runs import OF_WHICH_IMPORTS, late_table, split_table
from tare.report.references import Reference
from tare.report.rows import having
from tare.report.words.labels import env_order, env_title, metric_order, metric_title, workload_title
from tare.report.words.layout import Cell, Reader, Table, field
from tare.report.words.quantities import seconds, significant, with_unit
from tare.report.words.wording import margin_text, missing, stalled, verdict_text, without_time

DESIGNS = {"stein": "pilot", "fixed": "study or budget"}


def times_table(evidence: Evidence | Reference, workload: str) -> Table:
    """Mean seconds of the parts of a whole run, and of the imports within them where these are much of one."""
    metrics = joint(evidence.metrics)
    parts, late = split_table(metrics, workload), late_table(metrics, workload)

    def part_of(part: str, row: Any) -> str | Cell | None:
        text, imports_s = _scaled(row[1][part], "s"), late.loc[row[0], part]
        if text is None or missing(imports_s):
            return text
        return Cell(text=text, below=f"{OF_WHICH_IMPORTS}: {seconds(imports_s)}")

    columns: dict[str, Reader] = {
        "": lambda row: env_title(str(row[0]), short=True),
        **{metric_title(part): partial(part_of, part) for part in parts.columns},
        "Whole run": lambda row: seconds(row[1].sum()),
    }
    caption = f"{workload_title(workload)}: mean parts of a whole run"
    return Table.of(parts.iterrows(), columns, caption=caption, numeric=True)


STEP_COLUMNS = {
    "step_s": "step",
    "step_mean_s": "step, stalls in full",
    "step_cpu_s": "CPU time",
    "step_system_s": "in the kernel",
    "step_page_faults": "page faults",
    "step_preemptions": "preemptions",
    "step_peak_rss_bytes": "peak memory",
}


def means_table(rows: pd.DataFrame, columns: Mapping[str, str], **about: str) -> Table:
    """Means over units: a row for each launch, a column for each metric that was measured, by its title."""
    own = having(rows, metric=tuple(columns), kind="measured")
    units = own.groupby("metric")["unit"].first()
    means = own.pivot_table(index="launch", columns="metric", values="value", aggfunc="mean")

    def mean(metric: str, env: str) -> str | None:
        return _scaled(means.loc[env, metric], units[metric])

    return Table.of(
        sorted(means.index, key=lambda env: (env_order(read_role(env).place.name), env)),
        {
            "": lambda env: env_title(str(env), short=True),
            **{title: partial(mean, metric) for metric, title in columns.items() if metric in means},
        },
        numeric=True,
        **about,
    )


def steps_table(evidence: Evidence | Reference, workload: str) -> Table:
    """What a training step takes: means over rounds."""
    metrics = joint(evidence.metrics)
    return means_table(
        having(metrics, workload=workload),
        STEP_COLUMNS,
        caption=f"{workload_title(workload)}: a training step",
        note="Means over rounds. They depend on how fast the machine was in each round; the ratios don't.",
    )


def _scaled(value: float | None, unit: str) -> str | None:
    return None if value is None or missing(value) else with_unit(value, unit)


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
    "verdict": lambda row: verdict_text(row["verdict"]) + ("" if missing(row["reason"]) else f": {row['reason']}"),
}


def compared(*names: str) -> dict[str, Callable[[Mapping[str, Any]], str | None]]:
    """Some of COMPARED, in this order."""
    return {name: COMPARED[name] for name in names}


def verdicts_table(evidence: Evidence | Reference, workload: str) -> Table:
    """Every comparison of one workload's headline campaigns; the robust ratio next to that of totals."""

    def metric(row: Mapping[str, Any]) -> str | Cell:
        title = metric_title(row["metric"])
        return title if row["role"] == PRIMARY else Cell(text=title, below=row["role"])  # what explores is labelled

    columns: dict[str, Reader] = {
        "metric": metric,
        "environment": field("launch", env_title),
        **compared("n", "ratio", "interval"),
        "all time": lambda row: Cell(
            text=interval_text(row["total_ci_low"], row["total_ci_high"]),
            below="effect of stalls" if stalled(row) else "",
        ),
        **compared("control", "margin"),
        "units by": lambda row: DESIGNS[row["design"]],
        **compared("verdict"),
    }
    rows = having(joint(evidence.verdicts), workload=workload).to_dict("records")
    rows.sort(key=lambda row: (metric_order(row["metric"]), env_order(row["launch"])))
    caption = f"{workload_title(workload)}: every comparison with the host"
    note = "All time: stalls included. “Effect of stalls”: the interval of the time that stalls add excludes zero."
    return Table.of(rows, columns, caption=caption, note=note)


def batch_numbers(evidence: Evidence | Reference, workload: str) -> Table:
    """Real time by batch size; the shortest is marked, and those whose runs overlap its own."""
    found = batch_table(evidence.metrics, workload)
    best = found["median_s"].idxmin() if len(found) > 1 else None

    def median(row: tuple[int, pd.Series]) -> Cell:
        size, own = row
        overlaps = best is not None and own["shortest_s"] <= found.loc[best, "longest_s"]
        mark = "shortest" if size == best else f"overlaps batch {best}" if overlaps else ""
        return Cell(text=seconds(own["median_s"]), below=mark)

    failed = failed_launches(evidence.metrics, workload)
    failures = [f"{len(reasons)} at batch {batch} ({reasons[-1]})" for batch, reasons in failed.items()]
    columns: dict[str, Reader] = {
        "batch": lambda row: str(row[0]),
        "launches": lambda row: str(int(row[1]["launches"])),
        "shortest": lambda row: seconds(row[1]["shortest_s"]),
        "median": median,
        "longest": lambda row: seconds(row[1]["longest_s"]),
        "spread": lambda row: f"{significant(row[1]['spread_percent'], 2)}%",
    }
    caption = f"{workload_title(workload)}: real time by batch size, host"
    note = without_time("Launches", failures) if failures else ""
    return Table.of(found.iterrows(), columns, caption=caption, note=note, numeric=True, wide=False)
