"""The roofline in words and tables: which roof bounds what, how much of it is reached, and what the roofs are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tare.analysis import ceilings
from tare.analysis.roofs import (
    PRECISION,
    attainable,
    family_points,
    left_out,
    points,
    roof_precision,
    roofline_table,
    roofs,
)
from tare.model.records.measured import CeilingsRecord
from tare.report.evidence import Evidence
from tare.report.figures.rooflines import SHORT
from tare.report.words.labels import decimal_prefix, env_title, seconds, significant, size_bytes, workload_title
from tare.report.words.layout import UNAVAILABLE, Table
from tare.report.words.wording import missing

NO_CEILINGS = (
    "Unavailable: this study has no record of measured ceilings, which are measured where its stack has PyTorch."
)


def section(evidence: Evidence) -> Mapping[str, Any]:
    """What its section shows: points, families and ceilings, or why there are none."""
    record = evidence.ceilings
    if record is None:
        return {"absent": NO_CEILINGS, "record": None}
    return {
        "absent": None,
        "record": record,
        "workloads": evidence.workloads,
        "points": points_table(evidence, record),
        "families": [families_table(evidence, record, name) for name in evidence.workloads],
        "ceilings": ceiling_sentences(record),
        "tables": [bandwidth_table(record), product_table(record)],
    }


def ceiling_sentences(record: CeilingsRecord) -> list[str]:
    """How the ceilings were taken, what they are beside a datasheet or a model, and what could not be had."""
    peak = ceilings.peaks(record)[PRECISION]
    claim = ceilings.claimed(record).get(PRECISION)
    memory, why = ceilings.claimed_memory(record)
    source = ceilings.claim_source(record)
    lines = [
        f"The {SHORT[PRECISION]} roof is the product by {peak['kernel']} at n = {peak['size']}, the faster of "
        "what the framework has. Bytes count as in STREAM: two arrays for copy, three for triad.",
        f"Peak by datasheet or model: {source}."
        if claim is None
        else f"That is {100 * peak['flop_per_s'] / claim:.0f}% of {decimal_prefix(claim)}FLOP/s, {source}.",
        f"Bandwidth of memory by datasheet: {UNAVAILABLE}: {why}."
        if memory is None
        else f"The measured bandwidth of memory is {100 * ceilings.memory(record)['bytes_per_s'] / memory:.0f}% of "
        f"{decimal_prefix(memory)}B/s, {why}.",
    ]
    caches, found = ceilings.caches_of(record) or {}, ceilings.levels(record)
    wanted = [*(name.removesuffix("d") for name in sorted(caches) if not name.endswith("i")), ceilings.MEMORY]
    absent = [name for name in wanted if name not in found]
    if not caches:
        lines.append("The record has no sizes of caches, so working sets have no level; the largest is memory's.")
    elif absent:
        lines.append(f"No working set of this study lies in {', '.join(absent)} alone.")
    return lines


def _share(share: pd.Series) -> str:
    text = f"{significant(share['percent_of_roof'], 2)}%"
    if missing(share["percent_low"]):
        return text
    return f"{text} ({significant(share['percent_low'], 2)} to {significant(share['percent_high'], 2)}%)"


def points_table(evidence: Evidence, record: CeilingsRecord) -> Table:
    """Every workload in every environment."""
    table = roofline_table(evidence.metrics, record)
    return Table.of(
        points(evidence.metrics).itertuples(),
        {
            "": lambda row: f"{workload_title(row.workload)}, {env_title(row.env, short=True)}",
            "intensity": lambda row: f"{significant(row.intensity)} FLOP/B",
            "rate": lambda row: f"{decimal_prefix(row.rate)}FLOP/s",
            "95% interval": _ends,
            "n": lambda row: str(row.n),
            "time of": lambda row: row.basis,
            "bound": lambda row: f"{table['bound'][row.Index]}, {_precision(row, record)}",
            "FLOPs, bytes": lambda row: row.kind,
            "share of the roof": lambda row: _share(table.loc[row.Index]),
        },
        caption="Whole workloads under the roofs of this machine",
        note="Modelled: FLOPs and bytes of operators. Measured: counted by the device. Times are measured.",
        wide=True,
    )


def _precision(row: Any, record: CeilingsRecord) -> str:
    """Whose roof stands above a point: of the precision that ran, or of one in its place."""
    ran, used = str(row.precision), roof_precision(str(row.precision), record)
    return SHORT.get(used, used) + ("" if ran == used else f" in place of {SHORT.get(ran, ran)}, not measured")


def _ends(row: Any) -> str:
    if missing(row.low):
        return "none"
    high = "no upper end" if row.high == float("inf") else decimal_prefix(row.high)
    return f"{decimal_prefix(row.low)} to {high}"


def families_table(evidence: Evidence, record: CeilingsRecord, workload: str) -> Table:
    """Every family of one workload's operators on the host."""
    roof = roofs(record)
    points_of, rest = family_points(evidence.families, workload), left_out(evidence.families, workload)

    def share(row: Any) -> str:
        limit = float(attainable(row.intensity, roof["product"]["flop_per_s"], roof["memory"]["bytes_per_s"]))
        return f"{significant(100 * row.rate / limit, 2)}%"

    columns = {
        "": lambda row: row.family,
        "own time": lambda row: seconds(row.self_s),
        "intensity": lambda row: f"{significant(row.intensity)} FLOP/B",
        "rate": lambda row: f"{decimal_prefix(row.rate)}FLOP/s",
        "95% interval": _ends,
        "FLOPs": lambda row: "one per output element" if row.convention else "counted multiply-adds",
        "share of the roof": share,
    }
    rows = [[cell(row) for cell in columns.values()] for row in points_of.itertuples()]
    for row in rest.itertuples():
        rows.append([row.family, seconds(row.self_s_per_step), None, None, None, "not drawn", None])
    note = "Times of profiled steps, which the profiler slows. More than 100%: a cache feeds it, not memory."
    if points_of.empty:
        note = "Unavailable: no times and counts by operator on the host."
    if points_of.empty and record.device != "cpu":
        note = "Unavailable: kernels run on the device, so that an operator's time on the processor is not theirs."
    return Table(
        caption=f"{workload_title(workload)}: families of operators, host, per training step",
        columns=list(columns),
        rows=rows,
        note=note,
        wide=True,
    )


def bandwidth_table(record: CeilingsRecord) -> Table:
    """Every working set."""
    return Table.of(
        ceilings.bandwidths(record).itertuples(),
        {
            "level": lambda row: f"{row.level}, {row.kernel}",
            "arrays together": lambda row: size_bytes(row.working_set_bytes),
            "best": lambda row: _rate(row.bytes_per_s, "B/s"),
            "median": lambda row: _rate(row.median_bytes_per_s, "B/s"),
            "spread": lambda row: f"{100 * row.spread:.0f}%",
            "repetitions": lambda row: str(row.repetitions),
            "traffic, modelled": lambda row: _rate(row.traffic_bytes_per_s, "B/s"),
        },
        caption="Bandwidth by working set",
        note="Spread: the best by the worst repetition, less one. In L1 the framework's loop weighs as much as the "
        "work: a lower bound of the hardware's rate.",
        numeric=True,
        wide=True,
    )


def _rate(value: float | None, unit: str) -> str | None:
    return None if missing(value) else f"{decimal_prefix(value)}{unit}"


def product_table(record: CeilingsRecord) -> Table:
    """Every product of matrices, and what was left out."""
    skipped = ceilings.skipped(record)
    return Table.of(
        ceilings.products(record).itertuples(),
        {
            "precision, kernel": lambda row: f"{row.precision}, {row.kernel}",
            "n": lambda row: str(row.size),
            "best": lambda row: _rate(row.flop_per_s, "FLOP/s"),
            "median": lambda row: _rate(row.median_flop_per_s, "FLOP/s"),
            "spread": lambda row: f"{100 * row.spread:.0f}%",
            "claimed peak": lambda row: _rate(row.modelled_flop_per_s, "FLOP/s"),
            "share": lambda row: None if missing(row.share) else f"{100 * row.share:.0f}%",
        },
        caption="Products of matrices by precision",
        note=f"Left out: {'; '.join(skipped)}." if skipped else "Nothing was left out.",
        numeric=True,
        wide=True,
    )
