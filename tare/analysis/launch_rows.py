"""One launch of a whole run as metric rows: every number with its unit, its kind, its source, or its reason.

Kinds: `measured` was read off a clock or a counter; `modelled` follows from a model (operator counts);
`unavailable` could not be had, and says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from tare.model.rows import measured, unavailable

# Phases of a whole run: metric -> (from mark, to mark); None is the launcher's clock.
PHASES = {
    "runtime_start_s": (None, "entry"),
    "imports_s": ("entry", "imports"),
    "data_s": ("imports", "data"),
    "model_s": ("data", "model"),
    "first_step_s": ("model", "first_step"),
    "epoch_rest_s": ("first_step", "epoch_end"),
}


def real_s(launch: Mapping[str, Any]) -> float:
    """Seconds of a successful whole run, the harness's own bookkeeping after the epoch taken off."""
    marks = {mark["name"]: mark["at_ns"] for mark in launch["inside"]["marks"]}
    return (launch["end_ns"] - launch["spawn_ns"] - (marks["last"] - marks["epoch_end"])) / 1e9


def whole_run_metrics(launch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Metrics of one launch of a whole run.

    `real_s` runs from just before the runtime's start to its end, without the harness's own bookkeeping, which lies
    between the end of the paper's epoch and the last mark. `user_s` and `system_s`
    are getrusage inside, loader worker included, from the program's first line to the end of the epoch.
    """
    if launch["status"] != "ok":
        return [unavailable("real_s", "s", "launcher", f"{launch['status']}: {launch['reason']}")]
    inside = launch["inside"]
    marks = {mark["name"]: mark for mark in inside["marks"]}
    results = inside["results"]
    entry, end = marks["entry"], marks["epoch_end"]
    rows = [
        measured("real_s", real_s(launch), "s", "launcher"),
        measured("user_s", end["user_s"] - entry["user_s"], "s", "getrusage"),
        measured("system_s", end["system_s"] - entry["system_s"], "s", "getrusage"),
    ]
    for metric, (start, stop) in PHASES.items():
        from_ns = launch["spawn_ns"] if start is None else marks[start]["at_ns"]
        rows.append(measured(metric, (marks[stop]["at_ns"] - from_ns) / 1e9, "s", "marks"))
    rows += [
        measured("exit_s", (launch["end_ns"] - marks["last"]["at_ns"]) / 1e9, "s", "launcher"),
        measured(
            "samples_per_s", results["samples"] / ((end["at_ns"] - marks["model"]["at_ns"]) / 1e9), "1/s", "marks"
        ),
        measured("loss_mean", statistics.fmean(results["losses"]), "1", "workload"),
        measured("loss_last", results["losses"][-1], "1", "workload"),
        measured("peak_rss_bytes", inside["memory"]["peak_rss_bytes"], "B", "getrusage"),
        _runtime_cpu(launch, entry, marks["last"]),
    ]
    return rows


def _runtime_cpu(launch: Mapping[str, Any], entry: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """CPU time before the first line of the program and after its last: what was reaped, less what lies between."""
    inside = last["user_s"] + last["system_s"] - entry["user_s"] - entry["system_s"]
    helpers = launch["client_user_s"] + launch["client_system_s"] - inside
    if helpers < 0:
        return unavailable(
            "runtime_cpu_s",
            "s",
            "wait4",
            "the program is no descendant of the client, so its helpers can't be told from others",
        )
    return measured("runtime_cpu_s", helpers, "s", "wait4")
