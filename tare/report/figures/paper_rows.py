"""Numbers of the figures of a published study: as printed, as its own logs have them, as this machine gives them.

Nothing is judged here. What was recomputed comes from the table `published`, what was measured from the table of
metrics; a mean over units has Student's t interval of that mean. It belongs to one environment alone: whether two
environments differ is told by ratios within a round, elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.analysis.choice import PROFILE, SWEEP, joint, kind_of
from tare.literature.published import Published
from tare.model.studies.study import CONTROL
from tare.report.words.labels import env_order, significant
from tare.stats.intervals import t_interval

CONFIDENCE = 0.95
COLUMNS = (
    "series", "env", "batch", "metric", "value", "low", "high", "n", "kind", "unit", "agrees", "printed", "reason",
)  # fmt: skip
PRINTED, LOGGED, REDONE, HERE = "printed", "logged", "redone", "here"
# The check whose `recomputed` is what a figure's number would be, done right.
DONE_RIGHT = {
    "flops": "sum_of_maxima",
    "hbm_transactions": "sum_of_maxima",
    "dram_read_bytes_per_s": "units",
    "dram_write_bytes_per_s": "units",
}
RUN_METRICS = ("real_s", "system_s")
# What stands in for a metric that no device here measures.
STANDS_IN = {"flops": "flops_per_step"}
SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s")),
    "1": ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")),
}


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """All numbers of one figure.

    Attributes:
        figure: its number in the paper.
        workload: of the figure.
        metrics: it shows, in the paper's order.
        by_batch: whether its bars are batch sizes, not environments.
        rows: COLUMNS; values in base units. `low` and `high` are the reading error of a height, or an interval.
    """

    figure: str
    workload: str
    metrics: tuple[str, ...]
    by_batch: bool
    rows: pd.DataFrame

    def of(self, series: str) -> pd.DataFrame:
        """Rows of one series that have a value."""
        return self.rows[(self.rows["series"] == series) & self.rows["value"].notna()]

    def missing(self) -> list[str]:
        """Why this machine has no number, each reason once; empty where nothing is missing."""
        here = self.rows[self.rows["series"] == HERE]
        return list(dict.fromkeys(here.loc[here["value"].isna(), "reason"]))

    def places(self) -> list[Any]:
        """What the bars stand for: the paper's environments in its order, then ours; or batch sizes."""
        if self.by_batch:
            return sorted({int(batch) for batch in self.rows["batch"].dropna()})
        theirs, ours = dict.fromkeys(self.of(PRINTED)["env"]), self.of(HERE)["env"]
        return [*theirs, *sorted(set(ours) - set(theirs), key=env_order)]


def figure_names(published: Published) -> list[str]:
    """Numbers of the figures that the study has, in its order."""
    return list(dict.fromkeys(published.figures["figure"]))


def file_name(paper: str, figure: str) -> str:
    """Name of the file of a figure, without its suffix: nyu2022_fig07."""
    return f"{paper}_fig{int(figure):02d}"


def numbers(published: Published, findings: pd.DataFrame, metrics: pd.DataFrame, figure: str) -> Numbers:
    """Everything that one figure shows.

    Args:
        published: the study.
        findings: the table `published`.
        metrics: the table of metrics, all campaigns.
        figure: its number.
    """
    printed = published.figures[published.figures["figure"] == figure]
    workload, names = str(printed["workload"].iloc[0]), tuple(dict.fromkeys(printed["metric"]))
    by_batch = bool(printed["batch"].notna().any())
    findings = findings[findings["paper"] == published.paper]
    rows = [*_printed(printed), *_recomputed(LOGGED, findings, "figure_value", figure=figure)]
    for metric in names:
        if not by_batch:
            rows += _recomputed(REDONE, findings, DONE_RIGHT.get(metric), workload=workload, metric=metric)
        rows += _here(metrics[metrics["workload"] == workload], metric, by_batch)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = table.astype({"batch": "Int64", "n": "Int64", "value": float, "low": float, "high": float})
    return Numbers(figure=figure, workload=workload, metrics=names, by_batch=by_batch, rows=table)


def _printed(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "series": PRINTED, "env": row.env, "batch": row.batch, "metric": row.metric, "value": row.value,
            "low": row.value - row.error, "high": row.value + row.error, "n": 1, "kind": row.kind, "unit": row.unit,
            "printed": row.printed.replace(" us", " µs"),
        }
        for row in rows.itertuples()
    ]  # fmt: skip


def _recomputed(series: str, findings: pd.DataFrame, check: str | None, **labels: str) -> list[dict[str, Any]]:
    """What a check recomputed, of the findings with these labels."""
    own = findings[(findings["check"] == check) & findings["recomputed"].notna()]
    for name, value in labels.items():
        own = own[own[name] == value]
    return [
        {
            "series": series, "env": row.env, "batch": row.batch, "metric": row.metric, "value": row.recomputed,
            "n": 1, "kind": "derived", "unit": row.unit, "agrees": row.agrees,
        }
        for row in own.itertuples()
    ]  # fmt: skip


def _here(own: pd.DataFrame, metric: str, by_batch: bool) -> list[dict[str, Any]]:
    """This machine's numbers of one workload, by environment or by batch size; a reason where there is none."""
    if own.empty:
        return [_none(metric, "this workload is not part of this study")]
    if by_batch:
        chosen = own[own["campaign"] == SWEEP]
    elif metric in RUN_METRICS:
        headline = joint(own)
        chosen = headline[headline["campaign"].map(kind_of) == "rounds"]
    else:
        chosen = own[own["campaign"] == PROFILE]
    chosen = chosen[chosen["env"] != CONTROL]
    rows = chosen[chosen["metric"] == metric]
    if rows.empty and metric in STANDS_IN:
        rows = chosen[chosen["metric"] == STANDS_IN[metric]]
    if rows.empty:
        return [_none(metric, "this study has no launch that would give it")]
    keys = rows["batch"] if by_batch else rows["env"]
    return [_of_units(metric, part) for _, part in rows.groupby(keys, sort=True)]


def _of_units(metric: str, rows: pd.DataFrame) -> dict[str, Any]:
    """Mean and interval over the units of one environment, or why there is none."""
    first = rows.iloc[0]
    found = rows[rows["kind"] != "unavailable"]
    labels = {"series": HERE, "env": first["env"], "batch": first["batch"], "metric": metric, "unit": first["unit"]}
    if found.empty:
        return {**labels, "kind": "unavailable", "reason": str(first["reason"])}
    interval = t_interval(list(found["value"]), 1 - CONFIDENCE)
    kind = str(found["kind"].iloc[0])
    low = None if interval.low is None else max(interval.low, 0.0)  # few units; nothing here can be negative
    spread = {"low": low, "high": interval.high} if kind == "measured" else {}
    return {**labels, "value": interval.mean, **spread, "n": len(found), "kind": kind}


def _none(metric: str, reason: str) -> dict[str, Any]:
    return {"series": HERE, "metric": metric, "kind": "unavailable", "reason": reason}


def scale_of(unit: str, largest: float) -> tuple[float, str]:
    """The size and name of the unit in which a panel is read, from its largest value."""
    known = SCALES[unit]
    return next(((size, name) for size, name in known if largest >= size), known[-1])


def amount(value: float, unit: str, digits: int = 3) -> str:
    """A number in its own best unit, such as 871 µs or 1.40 billion."""
    if unit == "1" and abs(value) < 1e3:
        return significant(value, digits)
    size, name = scale_of(unit, abs(value))
    return f"{significant(value / size, digits)} {name}"
