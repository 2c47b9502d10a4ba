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

    Args:
        published: the study.
        workload, env: ours, as its file names them.
        rows: of the whole log (tare.profilers.logs.rows).
        metrics: counters by kernel; with them, sums are taken as the study took them too.

    Returns:
        Rows of metric, where (`figure 7`, `log, total`, …), published, value, unit, agrees, note.

    Raises:
        UserError: the study has no such workload or environment.
    """
    _refuse_unknown(published, workload, env)
    found = []
    for row in rows:
        name = NAMES.get(row["metric"])
        if name is None or row["value"] is None:
            continue
        found += _figures(published, workload, env, name, row)
        found += _logs(published, workload, env, name, row)
    return found + _maxima(published, workload, env, metrics)


def _refuse_unknown(published: Published, workload: str, env: str) -> None:
    known = published.logs[["workload", "env"]].drop_duplicates()
    for what, name in (("workload", workload), ("env", env)):
        if name not in set(known[what]):
            raise UserError(f"{published.paper} has no {what} {name!r}: {nearest(name, sorted(set(known[what])))}")


def _pair(row: Mapping[str, Any], where: str, published: float, agrees: bool, note: str) -> dict[str, Any]:
    return {
        "metric": row["metric"], "where": where, "published": published, "value": row["value"],
        "unit": row["unit"], "agrees": "yes" if agrees else "no", "note": note,
    }  # fmt: skip


def _figures(
    published: Published, workload: str, env: str, name: str, row: Mapping[str, Any]
) -> list[dict[str, Any]]:
    table = published.figures
    own = table[
        (table["workload"] == workload) & (table["env"] == env) & (table["metric"] == name) & table["batch"].isna()
    ]
    digits = DIGITS * row["value"] if row["unit"] == "s" else 0.0
    found = []
    for one in own.itertuples():
        if not pd.isna(one.error):
            slack = float(one.error)
        else:
            slack = 0.0 if one.unit == "1" else parse(one.printed, f"figure {one.figure}").rounding
        agrees = abs(one.value - row["value"]) <= slack + digits + HAIR * abs(row["value"])
        found.append(_pair(row, f"figure {one.figure}", float(one.value), agrees, f"{one.kind}, {one.printed}"))
    return found


def _logs(published: Published, workload: str, env: str, name: str, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Totals of operations and the log's own summaries; a number without a unit is taken as the study takes it."""
    table = published.logs
    own = table[
        (table["workload"] == workload)
        & (table["env"] == env)
        & (table["metric"] == name)
        & table["statistic"].isin(("total", "summary"))
    ]
    found = []
    for one in own.itertuples():
        said, rounding = float(one.value), float(one.rounding)
        if one.unit == "unlabelled":
            said, rounding = said * 1e9, CUT
        slack = rounding + (DIGITS * row["value"] if row["unit"] == "s" else 0.0)
        agrees = abs(row["value"] - said) <= slack
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
        row = {"metric": name, "value": value, "unit": "1"}
        note = f"the largest invocation of each of {len(own)} kernels, once: {amount(value, '1')}"
        found.append(_pair(row, "log, sum of maxima", said, said == value, note))
    return found
