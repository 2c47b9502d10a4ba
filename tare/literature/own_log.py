"""A profiler's log beside what a study published of the same workload and environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from tare.core.errors import UserError
from tare.literature import kernel_sums
from tare.literature.figure_values import Logged, fits
from tare.literature.published import Published
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
SUMMED = ("flop_count_sp", *(f"dram_{way}_{what}" for way in ("read", "write") for what in ("transactions",
                                                                                        "throughput")))  # fmt: skip


def beside(
    published: Published, workload: str, env: str, rows: Iterable[Mapping[str, Any]], metrics: pd.DataFrame | None
) -> list[dict[str, Any]]:
    """Every published number of one workload in one environment that the log has too.

    Args:
        published: the study.
        workload, env: ours, as its file names them.
        rows: of the whole log (tare.profilers.logs.rows).
        metrics: counters by kernel; with them, the study's own sums are done again.

    Returns:
        Rows of metric, where (`figure 7`, `log`, or the check), published, value, unit, agrees, note.

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
    return found + _sums(published, workload, env, metrics)


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
    slack = DIGITS * row["value"] if row["unit"] == "s" else 0.0
    logged = Logged(
        workload=workload, env=env, batch=None, series="profile", value=float(row["value"]), slack=slack
    )
    return [
        _pair(row, f"figure {one.figure}", float(one.value), fits(one, logged), f"{one.kind}, {one.printed}")
        for one in own.itertuples()
    ]


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
            said, rounding = said * 1e9, kernel_sums.CUT
        slack = rounding + (DIGITS * row["value"] if row["unit"] == "s" else 0.0)
        agrees = abs(row["value"] - said) <= slack
        found.append(_pair(row, f"log, {one.statistic}", said, agrees, f"{one.path}, {one.printed}"))
    return found


def _sums(published: Published, workload: str, env: str, metrics: pd.DataFrame | None) -> list[dict[str, Any]]:
    """The audit's own checks of sums over kernels, on this log's kernels."""
    if metrics is None or not set(SUMMED) <= set(metrics["metric"]) or metrics["avg"].isna().any():
        return []
    ours = replace(published, kernels=metrics.assign(workload=workload, env=env))
    return [
        {
            "metric": finding.metric, "where": f"check {finding.check}", "published": finding.published,
            "value": finding.recomputed, "unit": finding.unit, "agrees": finding.agrees, "note": finding.note,
        }
        for finding in kernel_sums.findings(ours)
    ]  # fmt: skip
