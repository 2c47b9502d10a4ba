"""What a step counts beside its time, environment against host: differences, never a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.report.evidence import Evidence
from tare.report.figures import joint
from tare.report.words.labels import env_order, env_title, metric_order, metric_title, significant, workload_title
from tare.report.words.layout import Table
from tare.report.words.wording import missing

NOTE = (
    "Exploratory: differences to the mean of the two hosts (the control: of the second host to the first), centre "
    "and interval from signed ranks over rounds, at a Bonferroni level over environments and counts. A difference "
    "has no margin and no verdict. Preemptions are involuntary switches: another process got the core."
)


def counts_table(evidence: Evidence, workload: str) -> Table:
    """Page faults and preemptions of a step of the headline."""
    found = joint(evidence.counts)
    rows = found[found["workload"] == workload].to_dict("records")
    return Table.of(
        sorted(rows, key=lambda row: (metric_order(row["metric"]), env_order(row["launch"]))),
        {
            "": lambda row: f"{metric_title(row['metric'])}, {env_title(row['launch'], short=True)}",
            "rounds": lambda row: str(row["n_units"]),
            "host": lambda row: _number(row["host"]),
            "here": lambda row: _number(row["value"]),
            "difference": lambda row: _number(row["difference"], signed=True),
            "interval": lambda row: _interval(row, "ci") if missing(row["reason"]) else f"none: {row['reason']}",
            "control": lambda row: _number(row["control_difference"], signed=True),
            "control's interval": lambda row: _interval(row, "control_ci"),
        },
        caption=f"{workload_title(workload)}: page faults and preemptions of a step, against the host",
        note=NOTE,
        wide=True,
    )


def _interval(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "none" if missing(low) else f"{_number(low, signed=True)} to {_number(high, signed=True)}"


def _number(value: float | None, *, signed: bool = False) -> str | None:
    if value is None or missing(value):
        return None
    sign = "" if not signed or value == 0 else "+" if value > 0 else "−"
    return f"{sign}{significant(abs(value), 2)}" if value else "0"
