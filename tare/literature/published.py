"""What a published study says, as config/published/<paper>.yaml keeps it: every number with its unit and its kind.

Nothing is computed here but units: values come out in seconds, bytes per second or plain counts. A number that its
source prints without a unit keeps the unit `unlabelled`, so that nobody takes it for one that has a unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.literature.published_file import read_kernels, read_paper
from tare.model.quantities import Quantity, parse, parse_as
from tare.model.words import nearest

FIGURE_COLUMNS = ("figure", "workload", "env", "batch", "metric", "value", "unit", "kind", "error", "printed")
LOG_COLUMNS = (
    "workload", "env", "series", "batch", "path", "device", "metric", "statistic",
    "value", "unit", "rounding", "printed",
)  # fmt: skip
# Base unit of each metric that a figure may show.
FIGURE_METRICS = {
    "real_s": "s",
    "system_s": "s",
    "memset_s": "s",
    "htod_s": "s",
    "dram_read_bytes_per_s": "B/s",
    "dram_write_bytes_per_s": "B/s",
    "flops": "1",
    "hbm_transactions": "1",
    "log2_intensity": "1",
    "log2_gflops": "1",
}
COUNTERS = {
    "warp_execution_efficiency": "%",
    "dram_read_transactions": "1",
    "dram_write_transactions": "1",
    "dram_read_bytes_per_s": "unlabelled",
    "dram_write_bytes_per_s": "unlabelled",
    "flops": "1",
    "tex_cache_hit_rate": "%",
}
STATISTICS = {"total": "s", "calls": "1", "average": "s", "smallest": "s", "largest": "s", "share": "%"}


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One number or name that a study states.

    Attributes:
        id: our name of it.
        where: section, table, figure or file that states it.
        kind: text, table, figure_label, figure_digitised, raw or derived.
        quantity: the number; None where it is a name.
        upper: end of a range whose beginning is `quantity`.
        error: how far a digitised number may be off, in base units.
        names: one name or more; empty where it is a number.
        labels: what it belongs to: workload, env, model, scenario, relation, …
    """

    id: str
    where: str
    kind: str
    quantity: Quantity | None
    upper: Quantity | None
    error: float | None
    names: tuple[str, ...]
    labels: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One thing that a study says about its environments.

    Attributes:
        id: our name of it.
        where: section that says it.
        figures: those that should show it.
        workloads, metrics: what it is about.
        relation: highest, lowest, equal or differ.
        env: the environment that is highest, lowest or different; None for `equal`.
        statement: the claim in our words.
    """

    id: str
    where: str
    figures: tuple[str, ...]
    workloads: tuple[str, ...]
    metrics: tuple[str, ...]
    relation: str
    env: str | None
    statement: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """One published study.

    Attributes:
        paper, title, provenance: which, and where the numbers are from.
        text, facts, settings: what its text says, what its files show, what it was run with.
        tables: by name, rows of (specification, value, unit): a number in base units, or a name with unit `text`.
        table_facts: by name, the same rows with their printed digits and labels.
        claims: what it says about its environments.
        figures: one row per value of a figure: FIGURE_COLUMNS, values in base units; `error` is how far a digitised
            value may be off, None for a label; `printed` the text.
        logs: one row per number of a log: LOG_COLUMNS; `rounding` is half a unit of the last printed digit.
        kernels: one row per kernel and metric: workload, env, kernel_index, kernel, invocations, metric, unit, and
            min, max, avg in base units, each with its printed number and unit (`avg_printed`, `avg_unit`).
        kernels_listed: names of the kernels by workload and environment, as a log lists them.
        path: of its file.
    """

    paper: str
    title: str
    provenance: str
    text: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    settings: tuple[Fact, ...]
    tables: Mapping[str, list[tuple[str, float | str, str]]]
    table_facts: Mapping[str, tuple[Fact, ...]]
    claims: tuple[Claim, ...]
    figures: pd.DataFrame
    logs: pd.DataFrame
    kernels: pd.DataFrame
    kernels_listed: Mapping[tuple[str, str], tuple[str, ...]]
    path: Path

    @cached_property
    def summaries(self) -> Mapping[tuple[str, str, str], tuple[float, str]]:
        """By workload, environment and metric: value and unit of the logs' own summaries."""
        rows = self.logs[self.logs["statistic"] == "summary"]
        return {(row.workload, row.env, row.metric): (row.value, row.unit) for row in rows.itertuples()}

    def fact(self, name: str, **labels: str) -> Fact:
        """The first fact of this id with these labels, from text, files, settings.

        Raises:
            UserError: there is none.
        """
        known = [*self.text, *self.facts, *self.settings]
        for fact in known:
            if fact.id == name and all(fact.labels.get(key) == value for key, value in labels.items()):
                return fact
        raise UserError(f"{self.path}: no entry {name!r} {labels or ''}: {nearest(name, {f.id for f in known})}")

    def specification(self, table: str, name: str) -> Fact:
        """One row of a table.

        Raises:
            UserError: there is none.
        """
        rows = self.table_facts.get(table, ())
        for row in rows:
            if row.id == name:
                return row
        raise UserError(f"{self.path}: table {table}: no row {name!r}: {nearest(name, {r.id for r in rows})}")


def papers(folder: Path | None = None) -> list[str]:
    """Names of the studies that have a file."""
    return sorted(path.stem for path in (folder or _folder()).glob("*.yaml"))


def load(paper: str, folder: Path | None = None) -> Published:
    """One study.

    Args:
        paper: its name, such as `nyu2022`.
        folder: of the files; config/published where it is not given.

    Raises:
        UserError: no such study; a key missing, unknown or twice; a number without its unit, with an unknown unit
            or with one of another kind; an unknown workload; a table of kernels with other columns. Each message
            names file and key.
    """
    folder = folder or _folder()
    if paper not in papers(folder):
        raise UserError(f"no published study {paper!r} in {folder}: {nearest(paper, papers(folder))}")
    path = folder / f"{paper}.yaml"
    content = read_paper(path)
    tables = {table["name"]: _table(table, path) for table in content["tables"]}
    return Published(
        paper=paper,
        title=content["title"],
        provenance=content["provenance"].strip(),
        **{
            part: tuple(
                _fact(entry, entry["id"], entry["where"], entry["kind"], f"{path}: {part}: {number}")
                for number, entry in enumerate(content.get(part, []))
            )
            for part in ("text", "facts", "settings")
        },
        tables={name: [_triple(row) for row in rows] for name, rows in tables.items()},
        table_facts=tables,
        claims=tuple(_claim(entry) for entry in content.get("claims", [])),
        figures=_figures(content.get("figures", []), path),
        logs=_logs(content, path),
        kernels=read_kernels(folder / f"{paper}_kernels.csv"),
        kernels_listed={
            (entry["workload"], entry["env"]): tuple(entry["names"]) for entry in content.get("kernels_listed", [])
        },
        path=path,
    )


def _folder() -> Path:
    return project_root() / "config/published"


def _fact(entry: Mapping[str, Any], name: str, where: str, kind: str, at: str) -> Fact:
    label_keys = ("workload", "env", "envs", "model", "models", "scenario", "frameworks", "relation")
    return Fact(
        id=name,
        where=where,
        kind=kind,
        quantity=parse(entry["value"], f"{at}: {name}") if "value" in entry else None,
        upper=parse(entry["to"], f"{at}: {name}: to") if "to" in entry else None,
        error=parse(entry["error"], f"{at}: {name}: error").value if "error" in entry else None,
        names=tuple(entry.get("names", [entry["name"]] if "name" in entry else [])),
        labels={key: entry[key] for key in label_keys if key in entry},
    )


def _table(table: Mapping[str, Any], path: Path) -> tuple[Fact, ...]:
    where = f"table {table['name']}"
    return tuple(
        _fact(row, row["specification"], where, table["kind"], f"{path}: tables: {table['name']}")
        for row in table["rows"]
    )


def _triple(row: Fact) -> tuple[str, float | str, str]:
    if row.quantity is not None:
        return row.id, row.quantity.value, row.quantity.unit
    return row.id, ", ".join(row.names), "text"


def _claim(entry: Mapping[str, Any]) -> Claim:
    lists = {key: tuple(entry[key]) for key in ("figures", "workloads", "metrics")}
    rest = {key: entry[key] for key in ("id", "where", "relation", "statement")}
    return Claim(**rest, **lists, env=entry.get("env"))


def _figures(entries: list[Mapping[str, Any]], path: Path) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for entry in entries:
        at = f"{path}: figures: figure {entry['figure']}"
        if entry["metric"] not in FIGURE_METRICS:
            raise UserError(f"{at}: unknown metric {entry['metric']!r}: {nearest(entry['metric'], FIGURE_METRICS)}")
        unit = FIGURE_METRICS[entry["metric"]]
        if (entry["kind"] == "figure_digitised") != ("error" in entry):
            raise UserError(f"{at}: a digitised value, and no other, needs `error`: how far it may be off")
        error = parse_as(entry["error"], unit, f"{at}: error").value if "error" in entry else None
        bars = [(env, None, text) for env, text in entry.get("values", {}).items()]
        bars += [(entry["env"], int(batch), text) for batch, text in entry.get("batches", {}).items()]
        for env, batch, text in bars:
            quantity = parse_as(text, unit, f"{at}: {batch or env}")
            rows.append(
                {
                    "figure": entry["figure"],
                    "workload": entry["workload"],
                    "env": env,
                    "batch": batch,
                    "metric": entry["metric"],
                    "value": quantity.value,
                    "unit": unit,
                    "kind": entry["kind"],
                    "error": error,
                    "printed": str(quantity),
                }
            )
    return pd.DataFrame(rows, columns=list(FIGURE_COLUMNS)).astype({"batch": "Int64", "error": float})


def _logs(content: Mapping[str, Any], path: Path) -> pd.DataFrame:
    """Profiler's logs and the times of `time`, one row per number."""
    rows: list[dict[str, Any]] = []

    def add(entry: Mapping[str, Any], series: str, metric: str, statistic: str, text: str, unit: str) -> None:
        at = f"{path}: {entry['workload']} on {entry['env']}: {metric} {statistic}"
        quantity = parse_as(text, unit, at)
        labels = {key: entry.get(key) for key in ("workload", "env", "batch", "path", "device")}
        numbers = {"value": quantity.value, "unit": unit, "rounding": quantity.rounding, "printed": str(quantity)}
        rows.append({**labels, "series": series, "metric": metric, "statistic": statistic, **numbers})

    for entry in content.get("logs", []):
        for name, numbers in entry["operations"].items():
            for statistic, text in numbers.items():
                add(entry, "profile", f"{name}_s", statistic, text, STATISTICS[statistic])
        for name, text in entry["counters"].items():
            add(entry, "profile", name, "summary", text, COUNTERS[name])
        add(entry, "profile", "kernels_logged", "summary", entry["kernels_logged"], "1")
        add(entry, "profile", "kernel_s", "summary", entry["kernel_time"], "s")
    for entry in content.get("times", []):
        for name in ("real", "user", "system"):
            add(entry, entry["series"], f"{name}_s", "run", entry[name], "s")
    return pd.DataFrame(rows, columns=list(LOG_COLUMNS)).astype({"batch": "Int64", "value": float})
