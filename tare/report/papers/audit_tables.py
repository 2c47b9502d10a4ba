"""The audit's findings as tables, grouped by check; each row says how a reader can redo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tare.literature.finding import amount, words
from tare.literature.published import Published
from tare.report.evidence import Evidence
from tare.report.figures.paper_rows import theirs
from tare.report.papers.paper import SPECIFICATION, own, readable
from tare.report.words.labels import workload_title
from tare.report.words.layout import Cell, Table, field
from tare.report.words.wording import missing

# Check -> (title, what `recomputed` is). The order is that of the page; a check that is not here comes last.
CHECKS = {
    "figure_value": ("Values in figures", "the number of the figure's own log"),
    "swapped": ("Values that another log has", "the number of that other log"),
    "repeated": ("Values that stand elsewhere too", "the number found there"),
    "not_in_logs": ("Values in no log, or in more than one", ""),
    "sum_of_maxima": ("Sums of maxima", "every invocation counted: invocations × average"),
    "kernel_sum": ("Summaries of logs", "what the log's own kernels give"),
    "units": ("Throughput added up without units", "the same mean with its units"),
    "mean_throughput": ("Mean throughput", "bytes by time"),
    "kernel_time": ("Time of the kernels", "from transactions and throughput"),
    "calls_times_average": ("Totals and calls × average", "calls × average"),
    "contradiction": ("Statements and what they rest on", "the value that it is held against"),
    "restated": ("Statements that are made twice", "what is said the other time"),
    "formula": ("Values that a formula gives", "the product of the formula's factors"),
    "formula_ceiling": ("Ceilings of formulas", "the formula at 100%"),
    "formula_factor": ("Factors of formulas", "what the largest value implies"),
    "not_measured": ("What was computed and not measured", ""),
    "copied_rows": ("Rows of recordings", "rows that no other recording has"),
    "own_maximum": ("Maxima of a recording's own rows", "the largest of its own rows"),
    "own_mean": ("Means of a recording's own rows", "the mean of its own rows"),
    "loss": ("Losses", ""),
    "ridge": ("Ridge of the roofline", "peak rate by peak bandwidth"),
    "roof": ("Roof and points of the roofline", "by the datasheet, or by the formula"),
    "not_recomputable": ("What can't be recomputed", ""),
    "not_judged": ("What the text says that no claim judges", ""),
}
PLACES = {check: place for place, check in enumerate(CHECKS)}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Findings of one check: its title, how they came out, the table."""

    title: str
    outcome: str
    table: Table


def groups(evidence: Evidence, published: Published) -> list[Group]:
    """Every finding but the specifications, which have tables of their own."""
    findings = own(evidence.published, published.paper)
    checks = set(findings["check"]) - {SPECIFICATION}
    ordered = sorted(checks, key=lambda check: (PLACES.get(check, len(PLACES)), check))
    return [_group(check, findings[findings["check"] == check], published.names) for check in ordered]


def _group(check: str, rows: pd.DataFrame, names: Mapping[str, str]) -> Group:
    title, meaning = CHECKS.get(check, (check.replace("_", " ").capitalize(), ""))
    with_here = rows["measured"].notna().any()
    notes = [f"Recomputed: {meaning}."] if meaning else []
    columns = {
        "what": lambda row: Cell(text=where(row, names), below=words(row["metric"])),
        "published": lambda row: _number(row, "published"),
        "recomputed": lambda row: _number(row, "recomputed"),
        **({"here": lambda row: _number(row, "measured")} if with_here else {}),
        "agrees": field("agrees"),
        "how to redo it": field("note", readable),
    }
    note = " ".join([*notes, "Here: medians."] if with_here else notes)
    table = Table.of(rows.to_dict("records"), columns, caption=title, note=note, wide=True)
    return Group(title=title, outcome=outcome(rows["agrees"]), table=table)


def outcome(agrees: pd.Series) -> str:
    """How the findings of a check came out: "32 of 62 disagree, 1 not recomputable"."""
    counts, total = agrees.value_counts(), len(agrees)
    open_ones = counts.get("not recomputable", 0)
    if open_ones == total:
        return f"{total} not recomputable"
    text = f"{counts.get('no', 0)} of {total} disagree"
    return f"{text}, {open_ones} not recomputable" if open_ones else text


def _number(row: Mapping[str, Any], column: str) -> str | Cell | None:
    """A number of a finding; below one of this machine that it is modelled."""
    if missing(row[column]):
        return None
    text = readable(amount(row[column], row["unit"]))
    return (
        Cell(text=text, below="modelled") if column == "measured" and row["measured_kind"] == "modelled" else text
    )


def where(row: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Figure 5, CNN on MNIST, Docker, batch 64: what a finding is about, in the paper's words."""
    figure = str(row["figure"])
    forms = {
        "workload": workload_title,
        "env": lambda env: theirs(names, env),
        "batch": lambda size: f"batch {size}",
    }
    told = [form(row[column]) for column, form in forms.items() if not missing(row[column])]
    return ", ".join([f"Figure {figure}" if figure.isdigit() else figure.capitalize(), *told])
