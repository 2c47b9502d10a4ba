"""One launch that looked for causes as metric rows and kernel rows: what its files cost, what its step ran."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from tare.core.errors import IntegrityError
from tare.model.rows import measured, unavailable

WHAT = ("first", "files", "kernels", "operators")
FIRST = "imports_after_read_s"  # stands for the launch where it failed


def cause_metrics(launch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Metrics of one launch.

    The first pass over the files comes before the imports of the same launch; the later ones after them, their
    median counts.

    Raises:
        IntegrityError: the record is of another kind of launch.
    """
    if launch["status"] != "ok":
        return [unavailable(FIRST, "s", "marks", f"{launch['status']}: {launch['reason']}")]
    results = results_of(launch)
    first, files = results["first"], results["files"]
    marks = {mark["name"]: mark["at_ns"] for mark in launch["inside"]["marks"]}
    rows = [
        measured("files_first_s", first["modules_s"] + first["libraries_s"], "s", "clock"),
        measured("files_first_read_s", first["modules_s"], "s", "clock"),
        measured("libraries_first_map_s", first["libraries_s"], "s", "clock"),
        measured(FIRST, (marks["imports"] - marks["read"]) / 1e9, "s", "marks"),
        measured("files_stat_s", statistics.median(files["stat_s"]), "s", "clock"),
        measured("files_read_s", statistics.median(files["read_s"]), "s", "clock"),
        measured("libraries_map_s", statistics.median(files["map_s"]), "s", "clock"),
        measured("files_count", files["modules"], "1", "imports"),
        measured("files_bytes", files["modules_bytes"], "B", "imports"),
        measured("libraries_count", files["libraries"], "1", "/proc/self/maps"),
        measured("libraries_touched_bytes", files["touched_bytes"], "B", "/proc/self/pagemap"),
    ]
    return [*rows, _count(results["operators"], "operators_per_step", "torch.profiler"),
            _count(results["kernels"], "kernels_per_step", "oneDNN and MKL")]  # fmt: skip


def _count(found: Mapping[str, Any], metric: str, source: str) -> dict[str, Any]:
    """Calls of one step, or the reason why nobody counted them."""
    if found["rows"] is None:
        return unavailable(metric, "1", source, found["reason"])
    return measured(metric, sum(row["calls"] for row in found["rows"]) / found.get("steps", 1), "1", source)


def kernel_rows(launch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Operators, kernels of libraries and kernels of a device, each with its calls and own seconds per step."""
    if launch["status"] != "ok":
        return []
    results = results_of(launch)
    rows = []
    for part, steps in ((results["operators"], results["operators"]["steps"]), (results["kernels"], 1)):
        for row in part["rows"] or ():
            rows.append(
                {
                    "library": row["library"],
                    "kernel": row["kernel"],
                    "shape": row["shape"] or None,
                    "calls_per_step": row["calls"] / steps,
                    "s_per_step": row["s"] / steps,
                }
            )
    return rows


def results_of(launch: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a successful launch found.

    Raises:
        IntegrityError: it looked for something else.
    """
    inside = launch.get("inside") or {}
    results = inside.get("results") or {}
    missing = [name for name in WHAT if not results.get(name)]
    if inside.get("mode") != "causes" or missing:
        what = f"has no {', '.join(missing)}" if missing else f"is of mode {inside.get('mode')!r}"
        raise IntegrityError(f"a launch in a campaign of causes {what}: run the campaign again")
    return results
