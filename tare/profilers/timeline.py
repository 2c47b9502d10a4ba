"""What a device did in the profiled steps, as rows of the table `metrics`, whichever profiler recorded it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tare.model.rows import measured, unavailable
from tare.profilers import activity

MOVES = ("memset", "htod", "dtoh", "dtod")
# By metric: unit. All are per training step but the longest gap.
UNITS = {
    **{f"{kind}_{what}": unit for kind in MOVES for what, unit in (("s", "s"), ("calls", "1"), ("bytes", "B"))},
    "htod_pinned_bytes": "B",
    "dtoh_pinned_bytes": "B",
    "kernel_s": "s",
    "kernel_calls": "1",
    "device_busy_s": "s",
    "device_gap_s": "s",
    "device_gaps": "1",
    "device_longest_gap_s": "s",
}
# Copies that hardly ever occur have rows only where they do, so that none vanishes.
OTHER_UNITS = {f"{kind}_{what}": unit for kind in activity.OTHERS for what, unit in (("s", "s"), ("calls", "1"),
                                                                                  ("bytes", "B"))}  # fmt: skip
NOT_PER_STEP = ("device_longest_gap_s",)
EMPTY = "the profile holds no activity of a device: the launch ran on the CPU, or the driver recorded nothing"
NO_BYTES = "the profiler does not say how many bytes each of them moved"
NO_MEMORY = "the profiler does not say of each copy how the host's memory was allocated"
NO_WINDOW = "needs the times of single pieces of activity"


def missing_rows(source: str, reason: str) -> list[dict[str, Any]]:
    """Every metric, with the reason why there is none."""
    return [unavailable(name, unit, source, reason) for name, unit in UNITS.items()]


def rows(
    table: pd.DataFrame, window: tuple[float, float] | None, steps: float, source: str
) -> list[dict[str, Any]]:
    """Every metric of some steps, from `table`, ACTIVITY of these alone. `window`: where idleness counts, on the
    table's clock; None: from the first piece of activity to the end of the last.
    """
    if table.empty:
        return missing_rows(source, EMPTY)
    if window is None:
        window = (float(table["start_s"].min()), float((table["start_s"] + table["duration_s"]).max()))
    idle = activity.gaps(table, *window)
    totals = activity.totals(table)
    sums = {"s": "total_s"} | {name: name for name in ("calls", "bytes", "pinned_bytes")}
    values = {
        **{
            f"{kind}_{name}": totals.loc[kind, column]
            for kind in (*MOVES, "kernel", *activity.OTHERS)
            for name, column in sums.items()
        },
        "device_busy_s": idle.busy_s,
        "device_gap_s": idle.gap_s,
        "device_gaps": idle.gaps,
        "device_longest_gap_s": idle.longest_gap_s,
    }
    return [_row(name, values[name], steps, source) for name in (*UNITS, *_others(totals["calls"]))]


def summary_rows(summary: pd.DataFrame, steps: float, source: str) -> list[dict[str, Any]]:
    """The same from sums alone (activity.SUMMARY_COLUMNS): what needs single pieces of activity is unavailable."""
    sums = summary.groupby("kind")[["calls", "total_s"]].sum().reindex(activity.KINDS, fill_value=0)
    columns = {"calls": "calls", "s": "total_s"}
    found = {f"{kind}_{name}": sums.loc[kind, one] for kind in activity.KINDS for name, one in columns.items()}
    return [_row(name, found.get(name, pd.NA), steps, source) for name in (*UNITS, *_others(sums["calls"]))]


def _others(calls: Any) -> list[str]:
    return [name for name in OTHER_UNITS if calls[name.partition("_")[0]]]


def _row(name: str, value: Any, steps: float, source: str) -> dict[str, Any]:
    unit = (UNITS | OTHER_UNITS)[name]
    if pd.isna(value):
        lacking = NO_MEMORY if "pinned" in name else NO_BYTES if name.endswith("_bytes") else NO_WINDOW
        return unavailable(name, unit, source, lacking)
    return measured(name, float(value) / (1 if name in NOT_PER_STEP else steps), unit, source)
