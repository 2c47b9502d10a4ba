"""One table of what ran on a device, whichever profiler saw it: kernels, fills, copies by direction.

Rows of ACTIVITY: `start_s` counts from an origin that one log shares, `bytes` is missing for kernels and where the
log has none, `host_memory` says how the host's side of a copy was allocated, where the log says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pandera.pandas as pa

from tare.core.errors import IntegrityError

KINDS = ("kernel", "memset", "htod", "dtoh", "dtod", "htoh", "ptop", "copy")
CROSSING = ("htod", "dtoh")  # copies with one side on the host
HOST_MEMORY = ("pinned", "pageable")
OTHERS = ("htoh", "ptop", "copy")  # copies between hosts, between devices, and of no known direction
RESOLUTION_S = 1e-9  # of the finest clock among the profilers: less between two pieces is rounding, not idleness
ACTIVITY = pa.DataFrameSchema(
    {
        "kind": pa.Column(str, pa.Check.isin(KINDS)),
        "name": pa.Column(str),
        "start_s": pa.Column(float),
        "duration_s": pa.Column(float, pa.Check.ge(0)),
        "bytes": pa.Column(pd.Int64Dtype(), nullable=True),
        "host_memory": pa.Column(object, pa.Check.isin(HOST_MEMORY), nullable=True),
        "stream": pa.Column(pd.Int64Dtype(), nullable=True),
    },
    strict=True,
    ordered=True,
    coerce=True,
)
SUMMARY_COLUMNS = ["kind", "name", "calls", "total_s", "min_s", "max_s", "mean_s"]
TOTAL_COLUMNS = ["calls", "total_s", "bytes", "pinned_bytes", "pageable_bytes"]

# The profilers' spellings: "HtoD" (torch, nvprof), "Host-to-Device" (nsys), "Host To Device", "HostToDevice".
DIRECTION = re.compile(
    r"\b(?:copy)?(h|d|a|p)(?:ost|evice|rray|eer)?[- ]?to[- ]?(h|d|a|p)(?:ost|evice|rray|eer)?\b", re.IGNORECASE
)
OPERATION = re.compile(r"\bmem(?:cpy|set)\b", re.IGNORECASE)
UNDIRECTED = re.compile(r"^\[CUDA memcpy(?: Unknown)?\]$")


def operation_kind(name: str) -> str:
    """Kind of a memory operation by its printed name, an array on the device; `copy` where it has no direction."""
    if "memset" in name.lower():
        return "memset"
    found = DIRECTION.search(name)
    if found is None:
        return "copy"
    source, target = (side.lower().replace("a", "d") for side in found.groups())
    kind = f"{source}to{target}"
    return kind if kind in KINDS else "copy"


def named_kind(name: str, at: str) -> str:
    """Kind of a row by the name that nsys or nvprof prints: operations on memory are in brackets. Raises
    IntegrityError for an empty one, an unknown operation, or a lost bracket.
    """
    if not name:
        raise IntegrityError(f"{at}: a row without a name: the file is damaged")
    bracketed = name.startswith("[")
    if not bracketed and not (name.endswith("]") and OPERATION.search(name)):
        return "kernel"
    kind = operation_kind(name)
    if not bracketed or (kind == "copy" and not DIRECTION.search(name) and not UNDIRECTED.match(name)):
        raise IntegrityError(f"{at}: {name[:80]!r} is no operation on memory that is known")
    return kind


def host_side(kind: str, source: str | None, target: str | None) -> str | None:
    """`pinned` or `pageable` for the host's side of a copy by the profiler's words for memory; else None."""
    if kind not in CROSSING:
        return None
    word = ((source if kind == "htod" else target) or "").strip().lower()
    return word if word in HOST_MEMORY else None


def make(rows: Iterable[Mapping[str, Any]], where: str) -> pd.DataFrame:
    """An ACTIVITY table, ordered by start; IntegrityError for a row that ends before it starts and the like."""
    table = pd.DataFrame(list(rows), columns=list(ACTIVITY.columns))
    try:
        checked = ACTIVITY.validate(table)
    except (pa.errors.SchemaError, pa.errors.SchemaErrors) as error:
        said = " ".join(str(error).split())
        raise IntegrityError(f"{where}: a piece of device activity makes no sense: {said[:200]}") from error
    return checked.sort_values("start_s", kind="stable", ignore_index=True)


def make_summary(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """A table of SUMMARY_COLUMNS from a profiler's own sums."""
    table = pd.DataFrame(list(rows), columns=SUMMARY_COLUMNS)
    return table.astype({"calls": int, **dict.fromkeys(("total_s", "min_s", "max_s", "mean_s"), float)})


def totals(activity: pd.DataFrame) -> pd.DataFrame:
    """TOTAL_COLUMNS by kind (the index); every kind has a row, kinds that did not occur one of zeros.

    `bytes` is missing where a copy or fill of the kind has none; `pinned_bytes` and `pageable_bytes` are missing
    where the log does not say of every copy how the host's side was allocated, and for kinds without a host's side.
    """
    rows = {}
    for kind in KINDS:
        part = activity[activity["kind"] == kind]
        moved = pd.NA if part["bytes"].isna().any() or kind == "kernel" else int(part["bytes"].sum())
        known = kind in CROSSING and moved is not pd.NA and not part["host_memory"].isna().any()
        by_memory = [
            int(part.loc[part["host_memory"] == word, "bytes"].sum()) if known else pd.NA for word in HOST_MEMORY
        ]
        rows[kind] = [len(part), float(part["duration_s"].sum()), moved, *by_memory]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=TOTAL_COLUMNS)
    return table.astype({"calls": int, "total_s": float} | dict.fromkeys(TOTAL_COLUMNS[2:], "Int64"))


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """How a window of time divides into work and idleness of a device."""

    busy_s: float  # at least one piece of activity runs
    gap_s: float  # none does; busy_s + gap_s is the window
    gaps: int  # stretches in which none does, at the window's ends too
    longest_gap_s: float  # the longest of them; 0 where there is none


def gaps(activity: pd.DataFrame, begin_s: float, end_s: float) -> Gaps:
    """Work and idleness of `activity` in a window on its own clock, over all streams: overlaps count once."""
    starts = activity["start_s"].clip(lower=begin_s)
    ends = (activity["start_s"] + activity["duration_s"]).clip(upper=end_s)
    inside = (ends > starts).to_numpy()
    idle: list[float] = []
    reached = begin_s
    for start, end in sorted(zip(starts.to_numpy()[inside], ends.to_numpy()[inside], strict=True)):
        if start > reached + RESOLUTION_S / 2:
            idle.append(float(start - reached))
        reached = max(reached, float(end))
    if end_s > reached + RESOLUTION_S / 2:
        idle.append(end_s - reached)
    gap_s = sum(idle)
    longest = max(idle, default=0.0)
    return Gaps(busy_s=end_s - begin_s - gap_s, gap_s=gap_s, gaps=len(idle), longest_gap_s=longest)
