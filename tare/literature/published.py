"""What a published study says, as config/published/<paper>.yaml keeps it: every number with its unit and its kind.

Nothing is computed here but units: values come out in seconds, bytes per second or plain counts. A number that its
source prints without a unit keeps the unit `unlabelled`, so that nobody takes it for one that has a unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import UserError
from tare.literature.published_file import (
    Asked,
    Claim,
    Entry,
    Figure,
    Group,
    Labels,
    Log,
    MeasuredWith,
    Paper,
    Plot,
    Stated,
    Table,
    Times,
    read_paper,
)
from tare.model.quantities import Quantity
from tare.model.schema import Record
from tare.model.studies import papers
from tare.model.words import nearest

FIGURE_COLUMNS = (
    "figure", "workload", "env", "batch", "metric", "value", "unit", "kind", "error", "spread", "runs", "printed",
)  # fmt: skip
LOG_COLUMNS = (
    "workload", "env", "series", "batch", "path", "device", "metric", "statistic",
    "value", "unit", "rounding", "printed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One number or name that a study states, and where: a section, a table, a figure or a file."""

    id: str
    where: str
    kind: str
    quantity: Quantity | None  # None where it is a name
    upper: Quantity | None  # end of a range whose beginning is `quantity`
    error: float | None  # how far a digitised number may be off, in base units
    names: tuple[str, ...]
    labels: Mapping[str, Any]  # what it belongs to: workload, env, model, scenario, relation, …
    restates: str | None = None  # the entry that it says again


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """One published study: its file, with its numbers in base units.

    `figures` has FIGURE_COLUMNS, a row for each value: `error` is how far a digitised value may be off, None for a
    label; `spread` and `runs`: standard deviation between the runs that a value is the mean of, and their number,
    None where there was one. `logs` has LOG_COLUMNS, a row for each number: `rounding` is half a unit of the last
    printed digit.
    """

    paper: str
    title: str
    provenance: str
    workloads: tuple[str, ...]
    text: tuple[Fact, ...]
    facts: tuple[Fact, ...]  # what its files show
    settings: tuple[Fact, ...]  # what it was run with
    tables: Mapping[str, tuple[Fact, ...]]  # rows by name
    table_files: Mapping[str, Table]
    names: Mapping[str, str]  # what it calls environments, by ours
    plots: tuple[Group, ...]
    claims: tuple[Claim, ...]
    requests: tuple[Asked, ...]
    measured_with: MeasuredWith | None
    figures: pd.DataFrame
    logs: pd.DataFrame
    path: Path

    @cached_property
    def summaries(self) -> Mapping[tuple[str, str, str], tuple[float, str]]:
        """By workload, environment and metric: value and unit of the logs' own summaries."""
        rows = self.logs[self.logs["statistic"] == "summary"]
        return {(row.workload, row.env, row.metric): (row.value, row.unit) for row in rows.itertuples()}

    @property
    def plotted(self) -> tuple[Plot, ...]:
        """Every figure, in the paper's order."""
        return tuple(plot for group in self.plots for plot in group.figures)

    def plot(self, figure: str) -> Plot:
        """How a figure is drawn, by its number. Raises UserError: it has no such figure."""
        for plot in self.plotted:
            if plot.figure == figure:
                return plot
        raise UserError(f"{self.path}: no figure {figure!r}: {nearest(figure, [p.figure for p in self.plotted])}")

    def facts_of(self, name: str, **labels: str | None) -> list[Fact]:
        """Every fact of this id with these labels, from text, files, settings; None takes any."""
        wanted = {key: value for key, value in labels.items() if value is not None}.items()
        own = [fact for fact in (*self.text, *self.facts, *self.settings) if fact.id == name]
        return [fact for fact in own if all(fact.labels.get(key) == value for key, value in wanted)]

    def fact(self, name: str, **labels: str) -> Fact:
        """The first of `facts_of`. Raises UserError: there is none."""
        if found := self.facts_of(name, **labels):
            return found[0]
        known = {fact.id for fact in (*self.text, *self.facts, *self.settings)}
        raise UserError(f"{self.path}: no entry {name!r} {labels or ''}: {nearest(name, known)}")

    @property
    def stated(self) -> tuple[Fact, ...]:
        """Every number and name of text, files, settings and tables."""
        return (*self.text, *self.facts, *self.settings, *(row for rows in self.tables.values() for row in rows))

    def of_model(self, name: str, model: str) -> dict[str, Fact]:
        """By environment, what is stated of a model under this name; empty where nothing is."""
        return {
            fact.labels["env"]: fact
            for fact in self.stated
            if fact.id == name and fact.labels.get("model") == model and fact.labels.get("env") and fact.quantity
        }


def load(paper: str, folder: Path | None = None) -> Published:
    """One study by its name, such as `nyu2022`, from config/published or another folder.

    Raises UserError: no such study; a key missing, unknown or twice; a number without its unit, with an unknown
    unit or with one of another kind; an unknown workload. Each message names file and key.
    """
    folder = folder or papers.folder()
    known = papers.paper_names(folder)
    if paper not in known:
        raise UserError(f"no published study {paper!r} in {folder}: {nearest(paper, known)}")
    path = folder / f"{paper}.yaml"
    content = read_paper(path)
    return Published(
        paper=paper,
        title=content.title,
        provenance=content.provenance.strip(),
        workloads=content.workloads,
        text=_facts(content.text),
        facts=_facts(content.facts),
        settings=_facts(content.settings),
        tables={table.name: _table(table) for table in content.tables},
        table_files={table.name: table for table in content.tables},
        names=content.names,
        plots=content.plots,
        claims=content.claims,
        requests=content.requests,
        measured_with=content.measured_with,
        figures=_figures(content.figures),
        logs=_logs(content),
        path=path,
    )


def _facts(entries: Sequence[Entry]) -> tuple[Fact, ...]:
    return tuple(_fact(entry, entry.id, entry.where, entry.kind) for entry in entries)


def _fact(entry: Stated, name: str, where: str, kind: str) -> Fact:
    labels = {key: getattr(entry, key) for key in Labels.model_fields if key in entry.model_fields_set}
    return Fact(
        id=name,
        where=where,
        kind=kind,
        quantity=entry.value,
        upper=entry.to,
        error=entry.error.value if entry.error else None,
        names=entry.names or ((entry.name,) if entry.name else ()),
        labels=labels,
        restates=getattr(entry, "restates", None),
    )


def _table(table: Table) -> tuple[Fact, ...]:
    return tuple(_fact(row, row.specification, f"table {table.name}", table.kind) for row in table.rows)


def _figures(figures: Sequence[Figure]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for one in figures:
        bars: list[tuple[str | None, int | None, Quantity]]
        bars = [(env, None, quantity) for env, quantity in (one.values or {}).items()]
        bars += [(one.env, int(batch), quantity) for batch, quantity in (one.batches or {}).items()]
        about = {name: getattr(one, name) for name in ("figure", "workload", "metric", "kind", "runs")}
        about |= {name: given.value if (given := getattr(one, name)) else None for name in ("error", "spread")}
        for env, batch, quantity in bars:
            number = {"value": quantity.value, "unit": quantity.unit, "printed": str(quantity)}
            rows.append({**about, **number, "env": env, "batch": batch})
    return pd.DataFrame(rows, columns=list(FIGURE_COLUMNS)).astype(
        {"batch": "Int64", "error": float, "spread": float, "runs": "Int64"}
    )


def _logs(content: Paper) -> pd.DataFrame:
    """Profiler's logs and the times of `time`, one row per number."""
    rows: list[dict[str, Any]] = []

    def add(entry: Log | Times, series: str, metric: str, statistic: str, quantity: Quantity) -> None:
        labels = {key: getattr(entry, key, None) for key in ("workload", "env", "batch", "path", "device")}
        numbers = {"value": quantity.value, "unit": quantity.unit, "rounding": quantity.rounding}
        printed = {"printed": str(quantity)}
        rows.append({**labels, "series": series, "metric": metric, "statistic": statistic, **numbers, **printed})

    for log in content.logs:
        for name, operation in _given(log.operations):
            for statistic, quantity in _given(operation):
                add(log, "profile", f"{name}_s", statistic, quantity)
        for name, quantity in _given(log.counters):
            add(log, "profile", name, "summary", quantity)
        add(log, "profile", "kernels_logged", "summary", log.kernels_logged)
        add(log, "profile", "kernel_s", "summary", log.kernel_time)
    for times in content.times:
        for name in ("real", "user", "system"):
            add(times, times.series, f"{name}_s", "run", getattr(times, name))
    return pd.DataFrame(rows, columns=list(LOG_COLUMNS)).astype({"batch": "Int64", "value": float})


def _given(record: Record) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in record if value is not None]
