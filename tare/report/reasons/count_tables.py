"""What a step counts beside its time, environment against host: differences, never a verdict."""

from __future__ import annotations

from functools import partial

from tare.report.evidence import Evidence
from tare.report.figures import joint
from tare.report.words.labels import env_order, env_title, metric_order, metric_title, significant, workload_title
from tare.report.words.layout import Table, ends
from tare.report.words.wording import missing

_digits = partial(significant, digits=2)
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
            "host": lambda row: _count(row["host"]),
            "here": lambda row: _count(row["value"]),
            "difference": lambda row: _count(row["difference"]),
            "interval": lambda row: (
                ends(row["ci_low"], row["ci_high"], _digits) if missing(row["reason"]) else f"none: {row['reason']}"
            ),
            "control": lambda row: _count(row["control_difference"]),
            "control's interval": lambda row: ends(row["control_ci_low"], row["control_ci_high"], _digits),
        },
        caption=f"{workload_title(workload)}: page faults and preemptions of a step, against the host",
        note=NOTE,
        wide=True,
    )


def _count(value: float | None) -> str | None:
    return None if missing(value) else f"{'−' if value < 0 else ''}{_digits(abs(value))}"
