"""Rows of a profiled launch on a CUDA device: what ncu counted, what nsys saw, what the device's sensors said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tare.experiments import counter_launches
from tare.machine import nvml
from tare.model.rows import measured, unavailable
from tare.profilers import counters, timeline

Row = dict[str, Any]
NO_LAUNCH = {"status": "unavailable", "reason": "no launch was made under the profiler"}


def rows(record: Mapping[str, Any], folder: Path, timed: Iterable[Row]) -> list[Row]:
    """Metric rows, without identity.

    Args:
        record: of a profiled launch that succeeded.
        folder: holds the files that it names.
        timed: rows of the launch's own timeline, `kernel_s` among them.

    Raises:
        IntegrityError: a file is not the one that the record names.
    """
    return [*_by_ncu(record, folder, timed), *_by_nsys(record, folder), *_sensors(record)]


def _by_ncu(record: Mapping[str, Any], folder: Path, timed: Iterable[Row]) -> list[Row]:
    found = record.get("counters") or NO_LAUNCH
    if found["status"] != "ok":
        units = {**counters.UNITS, **counters.RATES}
        return [unavailable(name, unit, "ncu", found["reason"]) for name, unit in units.items()]
    counted = counters.metric_rows(counter_launches.read_counters(found, folder), found["steps"], "ncu")
    calls = found["parts"][0]["launches"] / found["steps"]
    return [
        *(row for row in counted if row["metric"] not in counters.RATES),
        *_rates({row["metric"]: row for row in counted}, {row["metric"]: row for row in timed}["kernel_s"]),
        measured("counted_kernel_calls", calls, "1", "ncu"),  # kernel_calls of the timed launch should be as many
    ]


def _rates(counted: Mapping[str, Row], kernels: Row) -> list[Row]:
    """Bytes of the counted launch by the kernels' time of the timed one: a launch under ncu has no time."""
    found, source = [], "ncu, torch.profiler"
    for name, unit in counters.RATES.items():
        moved = counted[name.removesuffix("_per_s")]
        reason = moved["reason"] or kernels["reason"] or (None if kernels["value"] else "no kernel ran")
        if reason:
            found.append(unavailable(name, unit, source, reason))
        else:
            found.append(measured(name, moved["value"] / kernels["value"], unit, source))
    return found


def _by_nsys(record: Mapping[str, Any], folder: Path) -> list[Row]:
    """Rows of the same names as torch.profiler's, by another tool; none where the machine has no nsys."""
    found = record.get("nsys") or NO_LAUNCH
    if found["status"] != "ok":
        return []
    return timeline.rows(counter_launches.read_timeline(found, folder), None, found["steps"], "nsys")


def _sensors(record: Mapping[str, Any]) -> list[Row]:
    """Means while the launch trained unwatched."""
    marks = {mark["name"]: mark["at_ns"] for mark in record["inside"].get("marks", ())}
    first, last = marks.get("plain_steps", 0), marks.get("steady", -1)
    chosen = [row for row in record.get("device_samples") or () if first <= row["at_ns"] <= last]
    summary = nvml.summarise(chosen, record.get("device_sample_reasons") or {})
    return [
        unavailable(name, row["unit"], "NVML", row["reason"])
        if row["value"] is None
        else measured(name, row["value"], row["unit"], "NVML")
        for name, row in summary.items()
    ]


def samples(record: Mapping[str, Any]) -> list[Row]:
    """Sensors over time, from the launcher's call on."""
    return [
        {
            "at_s": (row["at_ns"] - record["spawn_ns"]) / 1e9,
            **{name: row[name] for name in nvml.SENSORS},
            "throttle_reasons": "; ".join(row["throttle_reasons"] or ()) or None,
        }
        for row in record.get("device_samples") or ()
    ]
