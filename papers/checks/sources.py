"""A published study with what only its findings need: kernels of profiles, formulas of scripts, sentences."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import UserError
from tare.literature import published
from tare.literature.published_file import Formula, Sentence, read_paper
from tare.model.quantities import parse
from tare.model.registry import module_names
from tare.model.words import nearest

KERNEL_COLUMNS = (
    "workload", "env", "kernel_index", "kernel", "invocations", "metric",
    "min", "min_unit", "max", "max_unit", "avg", "avg_unit",
)  # fmt: skip
# Base unit of each metric of a kernel, by the profiler's name of it.
KERNEL_METRICS = {
    "warp_execution_efficiency": "%",
    "dram_read_transactions": "1",
    "dram_write_transactions": "1",
    "dram_read_throughput": "B/s",
    "dram_write_throughput": "B/s",
    "flop_count_dp": "1",
    "flop_count_sp": "1",
    "flop_count_hp": "1",
    "dram_utilization": "1",
    "sysmem_utilization": "1",
    "tex_cache_hit_rate": "%",
}
STATISTICS = ("min", "max", "avg")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sources(published.Published):
    """One published study.

    Attributes:
        kernels: one row per kernel and metric: workload, env, kernel_index, kernel, invocations, metric, unit, and
            min, max, avg in base units, each with its printed number and unit (`avg_printed`, `avg_unit`).
        kernels_listed: names of the kernels by workload and environment, as a log lists them.
        formulas: how it computed what its tables call measured.
        sentences: what its text says of its results, with the claims that judge it or why none does.
    """

    kernels: pd.DataFrame
    kernels_listed: Mapping[tuple[str, str], tuple[str, ...]]
    formulas: tuple[Formula, ...]
    sentences: tuple[Sentence, ...]

    def table_with(self, *names: str) -> dict[str, published.Fact]:
        """Rows of these names of the first table that has them all; empty where none has."""
        for rows in self.tables.values():
            found = {row.id: row for row in rows if row.id in names}
            if len(found) == len(names):
                return found
        return {}


def load(paper: str, folder: Path | None = None) -> Sources:
    """One study, of config/published or of another folder.

    Raises:
        UserError: as tare.literature.published.load; and where the table of kernels is broken.
    """
    study = published.load(paper, folder)
    content = read_paper(study.path)
    return Sources(
        **{one.name: getattr(study, one.name) for one in fields(study)},
        kernels=read_kernels(study.path.with_name(f"{paper}_kernels.csv")),
        kernels_listed={(entry.workload, entry.env): entry.names for entry in content.kernels_listed},
        formulas=content.formulas,
        sentences=content.sentences,
    )


def read_kernels(path: Path) -> pd.DataFrame:
    """One row per kernel and metric, in base units, and the printed numbers; empty where there is no file.

    Raises:
        UserError: a column too many or too few, a number or unit that is broken, an unknown metric or workload; the
            message names file and line.
    """
    columns = [*KERNEL_COLUMNS, "unit", *(f"{name}_printed" for name in STATISTICS)]
    if not path.exists():
        return pd.DataFrame(columns=columns)
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.DictReader(handle)
        header = list(reader.fieldnames or [])
        for name in header:
            if name not in KERNEL_COLUMNS:
                raise UserError(f"{path}: unknown column {name!r}: {nearest(name, KERNEL_COLUMNS)}")
        if missing := [name for name in KERNEL_COLUMNS if name not in header]:
            raise UserError(f"{path}: column {', '.join(missing)} missing")
        rows = [_kernel_row(row, f"{path} line {reader.line_num}") for row in reader]
    return pd.DataFrame(rows, columns=columns)


def _kernel_row(row: Mapping[str, Any], at: str) -> dict[str, Any]:
    if None in row or None in row.values():
        raise UserError(f"{at}: {len(KERNEL_COLUMNS)} columns are wanted; the line has more or fewer")
    for name, known in (("workload", module_names("workloads")), ("metric", KERNEL_METRICS)):
        if row[name] not in known:
            raise UserError(f"{at}: {name}: {row[name]!r}: {nearest(row[name], known)}")
    for name in ("kernel_index", "invocations"):
        if not row[name].isdecimal() or int(row[name]) < 1:
            raise UserError(f"{at}: {name}: {row[name]!r} must be a whole number, 1 or more")
    unit = KERNEL_METRICS[row["metric"]]
    found: dict[str, Any] = {**row, "unit": unit}
    for name in ("kernel_index", "invocations"):
        found[name] = int(row[name])
    for name in STATISTICS:
        found[name] = parse(f"{row[name]} {row[f'{name}_unit']}", f"{at}: {name}", unit).value
        found[f"{name}_printed"] = float(row[name])
    return found
