"""A profiler's log beside what a study published of the same workload and environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from tare.core.errors import UserError
from tare.literature.finding import amount
from tare.literature.published import Published
from tare.model.quantities import parse
from tare.model.words import nearest

# Our metric of a whole log: what the study calls the same.
NAMES = {
    "memset_s": "memset_s",
    "htod_s": "htod_s",
    "kernel_s": "kernel_s",
    "flops_fp32": "flops",
    "hbm_transactions": "hbm_transactions",
    "dram_read_sectors": "dram_read_transactions",
    "dram_write_sectors": "dram_write_transactions",
    "dram_read_bytes_per_s": "dram_read_bytes_per_s",
    "dram_write_bytes_per_s": "dram_write_bytes_per_s",
    "warp_execution_efficiency": "warp_execution_efficiency",
    "tex_cache_hit_rate": "tex_cache_hit_rate",
}
DIGITS = 5e-5  # of a time, half a unit of the fifth digit, which is the last that profilers print
HAIR = 1e-9  # of a number: more than its digits allow, for binary fractions
CUT = 1e9  # a study's summaries of throughput are cut to whole numbers, which its figures call GB/s
# Counts that a study's summary adds up otherwise: the counter of each kernel.
SUMMED = {
    "flops": "flop_count_sp",
    "dram_read_transactions": "dram_read_transactions",
    "dram_write_transactions": "dram_write_transactions",
}


def beside(
    published: Published, workload: str, env: str, rows: Iterable[Mapping[str, Any]], metrics: pd.DataFrame | None
) -> list[dict[str, Any]]:
    """Every published number of one workload in one environment that the log has too.

    Raises UserError: the study has no such workload or environment.
    """
    _refuse_unknown(published, workload, env)
    found = []
    for row in rows:
        name = NAMES.get(row["metric"])
        if name is None or row["value"] is None:
            continue
        found += _figures(_of(published.figures, workload, env, name), row)
        found += _logs(_of(published.logs, workload, env, name), row)
    return found + _maxima(published, workload, env, metrics)


def _refuse_unknown(published: Published, workload: str, env: str) -> None:
    for what, name in (("workload", workload), ("env", env)):
        known = set(published.logs[what])
        if name not in known:
            raise UserError(f"{published.paper} has no {what} {name!r}: {nearest(name, sorted(known))}")


def _pair(row: Mapping[str, Any], where: str, published: float, agrees: bool, note: str) -> dict[str, Any]:
    numbers = {"published": published, "value": row["value"], "unit": row["unit"]}
    return {"metric": row["metric"], "where": where, **numbers, "agrees": "yes" if agrees else "no", "note": note}


def _of(table: pd.DataFrame, workload: str, env: str, name: str) -> pd.DataFrame:
    return table[(table["workload"] == workload) & (table["env"] == env) & (table["metric"] == name)]


def _figures(own: pd.DataFrame, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values of figures by environment; a height may be off by its reading error, a label by its last digit."""
    digits = DIGITS * row["value"] if row["unit"] == "s" else 0.0
    found = []
    for one in own[own["batch"].isna()].itertuples():
        label = pd.isna(one.error) and one.unit != "1"
        digit = parse(one.printed, f"figure {one.figure}").rounding if label else 0.0
        slack = digit if pd.isna(one.error) else float(one.error)
        agrees = abs(one.value - row["value"]) <= slack + digits + HAIR * abs(row["value"])
        found.append(_pair(row, f"figure {one.figure}", float(one.value), agrees, f"{one.kind}, {one.printed}"))
    return found


def _logs(own: pd.DataFrame, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Totals of operations and the log's own summaries; a number without a unit is taken as the study takes it."""
    digits = DIGITS * row["value"] if row["unit"] == "s" else 0.0
    found = []
    for one in own[own["statistic"].isin(("total", "summary"))].itertuples():
        unlabelled = one.unit == "unlabelled"
        said, rounding = (float(one.value) * 1e9, CUT) if unlabelled else (float(one.value), float(one.rounding))
        agrees = abs(row["value"] - said) <= rounding + digits
        found.append(_pair(row, f"log, {one.statistic}", said, agrees, f"{one.path}, {one.printed}"))
    return found


def _maxima(published: Published, workload: str, env: str, metrics: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Sums as the study's summaries have them: the largest invocation of each kernel, once."""
    found = []
    for name, counter in SUMMED.items():
        said, _ = published.summaries.get((workload, env, name), (None, ""))
        own = metrics[metrics["metric"] == counter] if metrics is not None else pd.DataFrame()
        if said is None or own.empty or own["max"].isna().any():
            continue
        value = float(own["max"].sum())
        note = f"the largest invocation of each of {len(own)} kernels, once: {amount(value, '1')}"
        row = {"metric": name, "value": value, "unit": "1"}
        found.append(_pair(row, "log, sum of maxima", said, said == value, note))
    return found
