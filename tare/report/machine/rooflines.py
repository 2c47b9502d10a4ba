"""The roofline in words and tables: which roof bounds what, how much of it is reached, and what the roofs are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tare.analysis import ceilings
from tare.analysis.roofs import (
    PRECISION,
    REPLICATES_BASIS,
    attainable,
    family_points,
    left_out,
    points,
    roof_precision,
    roofline_table,
    roofs,
)
from tare.model.records.measured import CeilingsRecord
from tare.model.studies.study import HOST
from tare.report.evidence import Evidence
from tare.report.words.labels import decimal_prefix, env_title, seconds, significant, size_bytes, workload_title
from tare.report.words.layout import UNAVAILABLE, Row, Table
from tare.report.words.wording import missing

NO_CEILINGS = (
    "Unavailable: this study has no record of measured ceilings, which are measured where its stack has PyTorch."
)
SHORT = {
    "float32": "fp32",
    "float64": "fp64",
    "bfloat16": "bf16",
    "float16": "fp16",
    "tf32": "TF32",
    "float8_e4m3fn": "fp8",
}


def section(evidence: Evidence) -> Mapping[str, Any]:
    """What its section shows: sentences on points, families and ceilings, and the tables."""
    record = evidence.ceilings
    if record is None:
        return {"points": [NO_CEILINGS], "families": [], "ceilings": [], "tables": []}
    return {
        "points": point_sentences(evidence, record) or ["No profiled launch gave FLOPs, bytes and a step time."],
        "workloads": evidence.workloads,
        "families": [line for name in evidence.workloads for line in family_sentences(evidence, record, name)],
        "ceilings": ceiling_sentences(record),
        "tables": [
            points_table(evidence, record),
            *(families_table(evidence, record, name) for name in evidence.workloads),
            bandwidth_table(record),
            product_table(record),
        ],
    }


def point_sentences(evidence: Evidence, record: CeilingsRecord) -> list[str]:
    """Each workload on the host: where it lies, which roof bounds it, what share of the roof it reaches."""
    table = roofline_table(evidence.metrics, record)
    found = points(evidence.metrics)
    lines = []
    for (_, row), (_, share) in zip(found.iterrows(), table.iterrows(), strict=True):
        if row["env"] != HOST:
            continue
        lines.append(
            f"{workload_title(row['workload'])}: {significant(row['intensity'], 2)} FLOP per byte ({row['kind']}), "
            f"{decimal_prefix(row['rate'])}FLOP/s{_interval(row)}. Under the {_short(row, record)} roofs the "
            f"{_bound(share['bound'])} is the lower one; the workload reaches {_share(share)} of it. "
            f"{_other_roofs(row, record)}"
        )
    return lines


def _interval(row: pd.Series) -> str:
    if missing(row["low"]):
        return f" ({row['kind']} FLOPs by measured time of {row['basis']}, no interval)"
    unit = "rounds" if row["basis"] == REPLICATES_BASIS else row["basis"]
    return f" ({decimal_prefix(row['low'])} to {decimal_prefix(row['high'])}, 95%, {row['n']} {unit})"


def _short(row: pd.Series, record: CeilingsRecord) -> str:
    """Name of the roof's precision; said where it stands for another that has no measured ceiling."""
    ran, used = str(row["precision"]), roof_precision(str(row["precision"]), record)
    name = SHORT.get(used, used)
    return name if ran == used else f"{name} (no ceiling of {SHORT.get(ran, ran)}, which ran, was measured)"


def _bound(bound: str) -> str:
    return "roof of memory" if bound == "memory" else "roof of arithmetic"


def _share(share: pd.Series) -> str:
    text = f"{significant(share['percent_of_roof'], 2)}%"
    if missing(share["percent_low"]):
        return text
    return f"{text} ({significant(share['percent_low'], 2)} to {significant(share['percent_high'], 2)}%)"


def _other_roofs(row: pd.Series, record: CeilingsRecord) -> str:
    """What the same point would look like under the higher roofs of precisions that did not run."""
    memory, peaks = ceilings.memory(record)["bytes_per_s"], ceilings.peaks(record)
    own = peaks[roof_precision(str(row["precision"]), record)]["flop_per_s"]
    told = []
    for precision, peak in peaks.items():
        if peak["flop_per_s"] > own:
            limit = float(attainable(row["intensity"], peak["flop_per_s"], memory))
            bound = "memory" if limit < peak["flop_per_s"] else "arithmetic"
            told.append(
                f"{SHORT.get(precision, precision)} {significant(100 * row['rate'] / limit, 2)}% of {bound}'s"
            )
    return f"Under a roof of a precision that did not run it would be {', '.join(told)}." if told else ""


def family_sentences(evidence: Evidence, record: CeilingsRecord, workload: str) -> list[str]:
    """What the families of one workload reach: the longest ones, and those that only a cache can feed."""
    found = family_points(evidence.families, workload)
    if found.empty:
        why = (
            "kernels run on the device, so that an operator's time on the processor is not theirs"
            if record.device != "cpu"
            else "no times and counts by operator on the host"
        )
        return [f"{workload_title(workload)}: {UNAVAILABLE}: {why}."]
    total = found["self_s"].sum() + left_out(evidence.families, workload)["self_s_per_step"].sum()
    peak, memory = (roofs(record)[name] for name in ("product", "memory"))
    first = found.iloc[0]
    limit = float(attainable(first["intensity"], peak["flop_per_s"], memory["bytes_per_s"]))
    text = (
        f"{workload_title(workload)}: {first['family']} takes {100 * first['self_s'] / total:.0f}% of the "
        f"operators' own time and reaches {significant(100 * first['rate'] / limit, 2)}% of the roof above it."
    )
    fed = found[found["rate"] > found["intensity"] * memory["bytes_per_s"]]["family"]
    if len(fed):
        text += (
            " Moves its modelled bytes faster than memory's measured roof, so caches serve part of them: "
            f"{', '.join(fed)}."
        )
    return [text]


def ceiling_sentences(record: CeilingsRecord) -> list[str]:
    """How the ceilings were taken, what they are beside a datasheet or a model, and what could not be had."""
    peak = ceilings.peaks(record)[PRECISION]
    claim = ceilings.claimed(record).get(PRECISION)
    memory, why = ceilings.claimed_memory(record)
    lines = [
        f"The {SHORT[PRECISION]} roof is the product by {peak['kernel']} at n = {peak['size']}, the faster of "
        "what the framework has. Bytes count as in STREAM: two arrays for copy, three for triad."
    ]
    if claim is None:
        lines.append(f"Peak by datasheet or model: {ceilings.claim_source(record)}.")
    else:
        share = f"{100 * peak['flop_per_s'] / claim:.0f}%"
        lines.append(f"That is {share} of {decimal_prefix(claim)}FLOP/s, {ceilings.claim_source(record)}.")
    if memory is None:
        lines.append(f"Bandwidth of memory by datasheet: {UNAVAILABLE}: {why}.")
    else:
        share = f"{100 * ceilings.memory(record)['bytes_per_s'] / memory:.0f}%"
        lines.append(f"The measured bandwidth of memory is {share} of {decimal_prefix(memory)}B/s, {why}.")
    lines += _levels_told(record)
    lines.append(
        "Without counters of the traffic of each level a point has one intensity: the roofline is not hierarchical."
    )
    return lines


def _levels_told(record: CeilingsRecord) -> list[str]:
    caches = ceilings.caches_of(record) or {}
    found = ceilings.levels(record)
    wanted = [name.removesuffix("d") for name in sorted(caches) if not name.endswith("i")]
    absent = [name for name in (*wanted, ceilings.MEMORY) if name not in found]
    lines = [f"No working set of this study lies in {', '.join(absent)} alone."] if caches and absent else []
    if not caches:
        lines.append(
            "The record has no sizes of caches, so working sets have no level; the largest stands for memory."
        )
    traffic = ceilings.bandwidths(record)
    traffic = traffic[traffic["traffic_bytes_per_s"].notna()]
    told = [
        f"{row.kernel} {decimal_prefix(row.bytes_per_s)}B/s counted, {decimal_prefix(row.traffic_bytes_per_s)}B/s"
        for row in traffic.itertuples()
    ]
    if told:
        lines.append(f"With the read of written lines, which STREAM leaves out (modelled): {'; '.join(told)}.")
    return lines


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
            "bound": lambda row: f"{table['bound'][row.Index]}, {SHORT.get(row.precision, row.precision)}",
            "FLOPs, bytes": lambda row: row.kind,
            "share of the roof": lambda row: _share(table.loc[row.Index]),
        },
        caption="Whole workloads under the roofs of this machine",
        note="Modelled: FLOPs and bytes of operators. Measured: counted by the device. Times are measured.",
        wide=True,
    )


def _ends(row: Any) -> str:
    if missing(row.low):
        return "none"
    high = "no upper end" if row.high == float("inf") else decimal_prefix(row.high)
    return f"{decimal_prefix(row.low)} to {high}"


def families_table(evidence: Evidence, record: CeilingsRecord, workload: str) -> Table:
    """Every family of one workload's operators on the host."""
    roof = roofs(record)
    rows: list[Row] = []
    for row in family_points(evidence.families, workload).itertuples():
        limit = float(attainable(row.intensity, roof["product"]["flop_per_s"], roof["memory"]["bytes_per_s"]))
        rows.append(
            [
                row.family,
                seconds(row.self_s),
                f"{significant(row.intensity)} FLOP/B",
                f"{decimal_prefix(row.rate)}FLOP/s",
                _ends(row),
                "one per output element" if row.convention else "counted multiply-adds",
                f"{significant(100 * row.rate / limit, 2)}%",
            ]
        )
    for row in left_out(evidence.families, workload).itertuples():
        rows.append([row.family, seconds(row.self_s_per_step), None, None, None, "not drawn", None])
    return Table(
        caption=f"{workload_title(workload)}: families of operators, host, per training step",
        columns=["", "own time", "intensity", "rate", "95% interval", "FLOPs", "share of the roof"],
        rows=rows,
        note="Times of profiled steps, which the profiler slows. More than 100%: a cache feeds it, not memory.",
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
