"""Reads the record of the measured ceilings: bandwidths by level of the memory, products by precision.

A working set belongs to a level of cache that it fills to three quarters at most, and to memory (DRAM) from four
times the last cache on; between the two it belongs to none, as part of it stays cached. The first two levels are
private to a core, so their size counts once for each thread.

Bytes are counted as STREAM counts them: two arrays for copy, three for triad. With ordinary stores a written line
is read first (write-allocate), so the traffic of copy is 3/2 and that of triad 4/3 of what is counted. That
corrected number is modelled; the rates of kernels with non-temporal stores support it (docs/ceilings.md).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError
from tare.model import tables
from tare.model.records.launches import Bandwidth, CeilingsResults, Product
from tare.model.records.measured import CeilingsRecord
from tare.model.schema import read
from tare.model.studies import layout

MEMORY = "DRAM"
# What a product in each precision runs on where a datasheet lists it, first choice first: libraries take the tensor
# cores for fp64 too where there are such.
SHEET_PRECISION = {
    "float64": ("fp64_tensor", "fp64"),
    "float32": ("fp32",),
    "tf32": ("tf32_tensor",),
    "bfloat16": ("bf16_tensor",),
    "float16": ("fp16_tensor",),
    "float8_e4m3fn": ("fp8_tensor",),
}
NO_MODEL = "the record holds no model of the device"
BETWEEN = "between"
UNKNOWN = "unknown"
PRIVATE = ("L1d", "L2")
FITS = 0.75
BEYOND = 4.0
SAME_SIZE = 0.99  # working sets of one size differ a little between kernels, which cut arrays to whole lines
WRITE_ALLOCATE = {"copy": 3 / 2, "triad": 4 / 3}
LEVEL_COLUMNS = [
    *("level", "kernel", "working_set_bytes", "bytes_per_s", "median_bytes_per_s", "spread", "repetitions"),
    "traffic_bytes_per_s",
]
PRODUCT_COLUMNS = [
    *("precision", "kernel", "size", "flop_per_s", "median_flop_per_s", "spread", "repetitions"),
    *("modelled_flop_per_s", "share"),
]


def ceilings_of(table: pd.DataFrame, results: Path) -> Path:
    """Where a study's results have the ceilings of the machine that a table of it is of."""
    return layout.of_machine(results, tables.machine_of(table) or "", layout.CEILINGS_FILE)


def read_ceilings(path: Path) -> CeilingsRecord:
    """The record of measured ceilings.

    Raises UserError: there is none. IntegrityError: it is not what a launch that measures ceilings leaves.
    """
    record = read(CeilingsRecord, path)
    try:
        results(record)
    except IntegrityError as error:
        raise IntegrityError(f"{path}: {error}; {record.REMAKE}") from None
    return record


def results(record: CeilingsRecord) -> CeilingsResults:
    """What was measured inside."""
    return record.seen_inside().results_as(CeilingsResults)


def level_of(size_bytes: float, caches: Mapping[str, int] | None, threads: int = 1) -> str:
    """Level of the memory that a working set is in: L1, L2, L3, DRAM; `between` or `unknown` where it is none."""
    if not caches:
        return UNKNOWN
    last = 0.0
    for name in sorted(name for name in caches if not name.endswith("i")):
        last = caches[name] * (threads if name in PRIVATE else 1)
        if size_bytes <= FITS * last:
            return name.removesuffix("d")
    return MEMORY if size_bytes >= BEYOND * last else BETWEEN


def bandwidths(record: CeilingsRecord) -> pd.DataFrame:
    """One row per kernel and working set, smallest first: best, median and spread (best by worst, less 1)."""
    found = results(record)
    on_cpu = record.device == "cpu"
    caches, threads = caches_of(record), found.threads if on_cpu else 1
    rows = []
    for row in sorted(found.bandwidth, key=lambda row: row.working_set_bytes):
        level = level_of(row.working_set_bytes, caches, threads)
        # modelled: only memory's traffic follows from the stores alone
        traffic = row.bytes_per_s * WRITE_ALLOCATE[row.kernel] if on_cpu and level == MEMORY else None
        rows.append(
            {
                "level": level,
                "kernel": row.kernel,
                "working_set_bytes": row.working_set_bytes,
                **_rate(row, "bytes_per_s"),
                "traffic_bytes_per_s": traffic,
            }
        )
    return pd.DataFrame(rows, columns=LEVEL_COLUMNS)


def _rate(row: Bandwidth | Product, name: str) -> dict[str, Any]:
    """The best of a rate, its median and spread (best by worst, less 1)."""
    rates = getattr(row, f"all_{name}")
    spread = max(rates) / min(rates) - 1
    return {
        **{name: getattr(row, name), f"median_{name}": statistics.median(rates)},
        **{"spread": spread, "repetitions": len(rates)},
    }


def caches_of(record: CeilingsRecord) -> Mapping[str, int] | None:
    """Caches of the device that was measured, in bytes by level; of a CUDA device the second level is known."""
    if record.device == "cpu":
        return record.machine.cpu_caches_bytes if record.machine else None
    framework = record.seen_inside().facts.framework
    seen = (framework.device if framework else None) or {}
    return {"L2": seen["l2_bytes"]} if seen.get("l2_bytes") else None


def levels(record: CeilingsRecord) -> dict[str, pd.Series]:
    """The best bandwidth of each level, nearest to the core first; a record without cache sizes has none."""
    table = bandwidths(record)
    own = table[~table["level"].isin((BETWEEN, UNKNOWN))]
    best = own.loc[own.groupby("level")["bytes_per_s"].idxmax()]
    order = sorted(best["level"], key=lambda name: (name == MEMORY, name))
    return {name: best[best["level"] == name].iloc[0] for name in order}


def memory(record: CeilingsRecord) -> pd.Series:
    """The roof of bandwidth: memory's, or the largest working set's where none is known to be in memory."""
    found = levels(record)
    if MEMORY in found:
        return found[MEMORY]
    table = bandwidths(record)
    largest = table[table["working_set_bytes"] > table["working_set_bytes"].max() * SAME_SIZE]
    return largest.loc[largest["bytes_per_s"].idxmax()]


def claimed(record: CeilingsRecord) -> dict[str, float]:
    """Peak FLOP/s by precision as a datasheet or the model of the processor says; modelled, never measured."""
    if record.datasheet:
        peaks = record.datasheet.peak_flop_per_s
        chosen = {name: next((key for key in keys if key in peaks), None) for name, keys in SHEET_PRECISION.items()}
        return {name: peaks[key] for name, key in chosen.items() if key is not None}
    return dict((record.modelled.peak_flop_per_s if record.modelled else None) or {})


def claim_source(record: CeilingsRecord) -> str:
    """Where `claimed` is from, in a few words; or why there is none."""
    if record.datasheet:
        return f"datasheet ({record.datasheet.document})"
    model = record.modelled
    if model is None:
        return f"unavailable: {record.datasheet_reason or NO_MODEL}"
    return (
        f"unavailable: {model.reason}"
        if model.kind == "unavailable"
        else f"modelled: {'; '.join(model.assumptions)}"
    )


def claimed_memory(record: CeilingsRecord) -> tuple[float | None, str]:
    """Bytes per second of the memory as a datasheet says, with its source; or None and the reason."""
    sheet = record.datasheet
    if sheet:
        return sheet.memory_bytes_per_s, f"datasheet ({sheet.document})"
    return None, (record.modelled.memory_reason if record.modelled else None) or NO_MODEL


def products(record: CeilingsRecord) -> pd.DataFrame:
    """One row per precision, kernel and size, with the modelled peak, and the share of it that was reached."""
    peaks = claimed(record)
    rows = []
    for row in results(record).gemm:
        peak = peaks.get(row.precision)
        rows.append(
            {
                "precision": row.precision,
                "kernel": row.kernel,
                "size": row.size,
                **_rate(row, "flop_per_s"),
                "modelled_flop_per_s": peak,
                "share": row.flop_per_s / peak if peak else None,
            }
        )
    return pd.DataFrame(rows, columns=PRODUCT_COLUMNS)


def peaks(record: CeilingsRecord) -> dict[str, pd.Series]:
    """The best product of each precision, fastest first."""
    table = products(record)
    best = table.loc[table.groupby("precision")["flop_per_s"].idxmax()].sort_values("flop_per_s", ascending=False)
    return {row["precision"]: row for _, row in best.iterrows()}


def skipped(record: CeilingsRecord) -> list[str]:
    """Products and passes over memory that were left out, each with its reason."""
    found = results(record)
    return [
        *(f"{row.precision} ({row.kernel}, n = {row.size}): {row.reason}" for row in found.skipped),
        *(f"{row.kernel} of {row.working_set_bytes >> 10} KiB: {row.reason}" for row in found.skipped_bandwidth),
    ]
