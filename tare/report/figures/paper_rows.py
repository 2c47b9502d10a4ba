"""Numbers of the figures of a published study: as printed, as its own logs have them, as this machine gives them.

Nothing is judged here. What was recomputed comes from the table `published`, what was measured from the table of
metrics; a mean over units has Student's t interval of that mean. It belongs to one environment alone: whether two
environments differ is told by ratios within a round, elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.analysis.choice import PROFILE, SWEEP, compared
from tare.literature.measured_here import OURS, no_scenario, of_model
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import LINE, UNIT_METRICS, kind_of
from tare.model.registry import ALONE, CONTROL
from tare.report.words.labels import env_order, significant
from tare.stats.intervals import t_interval

CONFIDENCE = 0.95
COLUMNS = (
    "series", "workload", "env", "batch", "metric", "value", "low", "high", "n", "kind", "unit", "agrees",
    "printed", "reason",
)  # fmt: skip
PRINTED, LOGGED, REDONE, HERE = "printed", "logged", "redone", "here"
# The check whose `recomputed` is what a figure's number would be, done right.
DONE_RIGHT = {
    "flops": "sum_of_maxima",
    "hbm_transactions": "sum_of_maxima",
    "dram_read_bytes_per_s": "units",
    "dram_write_bytes_per_s": "units",
}
# What stands in for a metric that no device here measures.
STANDS_IN = {"flops": "flops_per_step"}
SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s")),
    "1": ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")),
    "1/s": ((1e3, "thousand a second"), (1.0, "a second")),
    "B": ((1e9, "GB"), (1e6, "MB")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")),
    "ratio": ((1.0, "times the host's"),),
    "slowdown": ((1.0, "times the run alone"),),
    "%": ((1.0, "%"),),
    "W": ((1.0, "W"),),
    "Hz": ((1e9, "GHz"), (1e6, "MHz")),
}


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """All numbers of one figure.

    Attributes:
        plot: how it is drawn: its number, workloads, metrics.
        names: what the paper calls environments, by ours.
        rows: COLUMNS; values in base units. `low` and `high` are the reading error of a height, or an interval.
    """

    plot: Plot
    names: Mapping[str, str]
    rows: pd.DataFrame

    @property
    def metrics(self) -> tuple[str, ...]:
        """What it shows, in the paper's order."""
        return self.plot.metrics

    @property
    def by_batch(self) -> bool:
        """Whether its columns are batch sizes, not environments."""
        return self.plot.kind == LINE

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
    """Numbers of the figures that are drawn, in the study's order: all but those that are tables."""
    return [plot.figure for plot in published.plotted if plot.table is None]


def file_name(paper: str, figure: str) -> str:
    """Name of the file of a figure, without its suffix: nyu2022_fig07."""
    return f"{paper}_fig{int(figure):02d}"


def numbers(published: Published, findings: pd.DataFrame, metrics: pd.DataFrame, figure: str) -> Numbers:
    """Everything that one figure of bars or lines shows.

    Args:
        published: the study.
        findings: the table `published`.
        metrics: the table of metrics, all campaigns.
        figure: its number.
    """
    plot = published.plot(figure)
    printed = published.figures[published.figures["figure"] == figure]
    findings = findings[findings["paper"] == published.paper]
    rows = [*_printed(printed), *_recomputed(LOGGED, findings, "figure_value", figure=figure)]
    for workload in plot.subjects:
        for metric in plot.metrics:
            if plot.kind != LINE:
                rows += _recomputed(REDONE, findings, DONE_RIGHT.get(metric), workload=workload, metric=metric)
            rows += here_rows(metrics, plot, workload, metric)
    return Numbers(plot=plot, names=published.names, rows=as_table(rows))


def as_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows in COLUMNS and their types."""
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"batch": "Int64", "n": "Int64", "value": float, "low": float, "high": float})


def _printed(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "series": PRINTED, "workload": row.workload, "env": row.env, "batch": row.batch, "metric": row.metric,
            "value": row.value, "low": row.value - row.error, "high": row.value + row.error, "n": 1,
            "kind": row.kind, "unit": row.unit, "printed": row.printed.replace(" us", " µs"),
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
            "series": series, "workload": row.workload, "env": row.env, "batch": row.batch, "metric": row.metric,
            "value": row.recomputed, "n": 1, "kind": "derived", "unit": row.unit, "agrees": row.agrees,
        }
        for row in own.itertuples()
    ]  # fmt: skip


def here_rows(metrics: pd.DataFrame, plot: Plot, workload: str, metric: str) -> list[dict[str, Any]]:
    """This machine's numbers of one workload, by environment or by batch size; a reason where there is none."""
    lacking = why_nothing(metrics, plot, workload)
    if lacking:
        return [none_here(workload, metric, lacking)]
    own = metrics[metrics["workload"] == workload]
    if plot.kind == LINE:
        chosen = own[own["campaign"] == SWEEP]
    elif metric in UNIT_METRICS:
        chosen = _widest(compared(own, kind_of(metric), plot.arm, plot.scenario))
    else:
        chosen = own[own["campaign"] == PROFILE]
    chosen = chosen[(chosen["env"] != CONTROL) & ~chosen["env"].str.endswith(ALONE)]
    if plot.environments:
        chosen = chosen[chosen["env"].isin(plot.environments)]
    rows = chosen[chosen["metric"] == OURS.get(metric, metric)]
    if rows.empty and metric == "flop_per_s":
        return _modelled_rates(workload, chosen)
    if rows.empty and metric in STANDS_IN:
        rows = chosen[chosen["metric"] == STANDS_IN[metric]]
    if rows.empty:
        return [none_here(workload, metric, _no_launch(plot))]
    keys = rows["batch"] if plot.kind == LINE else rows["env"]
    return [_of_units(metric, part) for _, part in rows.groupby(keys, sort=True)]


def why_nothing(metrics: pd.DataFrame, plot: Plot, workload: str) -> str | None:
    """Why a study has nothing of what a figure shows of a workload; None where it may have."""
    if lacking := no_scenario(metrics, plot.scenario):
        return lacking
    return None if (metrics["workload"] == workload).any() else "this workload is not part of this study"


def _no_launch(plot: Plot) -> str:
    at = f" at {plot.arm}" if plot.arm else ""
    return f"this study has no launch{at} that would give it"


def _widest(rows: pd.DataFrame) -> pd.DataFrame:
    """Of several campaigns the one with the most environments."""
    if rows.empty:
        return rows
    return rows[rows["campaign"] == rows.groupby("campaign")["env"].nunique().idxmax()]


def _modelled_rates(workload: str, profiles: pd.DataFrame) -> list[dict[str, Any]]:
    """FLOP/s of the profiled launch of each environment: counted operators by measured steps."""
    found = []
    for env, own in profiles.groupby("env", sort=True):
        value = of_model(own, "flop_per_s")
        labels = {
            "series": HERE,
            "workload": workload,
            "env": env,
            "metric": "flop_per_s",
            "unit": "FLOP/s",
            "n": 1,
        }
        reason = value.note if value.value is None else None
        found.append({**labels, "value": value.value, "kind": value.kind, "reason": reason})
    return found or [none_here(workload, "flop_per_s", "this study has no profiled launch")]


def _of_units(metric: str, rows: pd.DataFrame) -> dict[str, Any]:
    """Mean and interval over the units of one environment, or why there is none."""
    first = rows.iloc[0]
    found = rows[rows["kind"] != "unavailable"]
    labels = {
        "series": HERE,
        **{name: first[name] for name in ("workload", "env", "batch", "unit")},
        "metric": metric,
    }
    if found.empty:
        return {**labels, "kind": "unavailable", "reason": str(first["reason"])}
    interval = t_interval(list(found["value"]), 1 - CONFIDENCE)
    kind = str(found["kind"].iloc[0])
    low = None if interval.low is None else max(interval.low, 0.0)  # few units; nothing here can be negative
    spread = {"low": low, "high": interval.high} if kind == "measured" else {}
    return {**labels, "value": interval.mean, **spread, "n": len(found), "kind": kind}


def none_here(workload: str, metric: str, reason: str) -> dict[str, Any]:
    """The row of what this machine has no number of."""
    return {"series": HERE, "workload": workload, "metric": metric, "kind": "unavailable", "reason": reason}


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
