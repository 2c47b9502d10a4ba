"""Reads torch.profiler's Chrome traces: operators, kernels, copies by direction, memsets.

Times are microseconds in the trace and seconds here. An operator's own time is its duration less that of the
operators called inside it on the same thread.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError
from tare.core.files import is_gzip
from tare.profilers import activity
from tare.worker.families import caller_family, family

OPERATOR_COLUMNS = ["name", "calls", "total_s", "self_s"]
FAMILY_COLUMNS = ["family", "step", "calls", "self_s"]
STEP_NAME = "ProfilerStep#"
COPY_SIDES = re.compile(r"\((\w[\w ]*?)\s*->\s*(\w[\w ]*?)\)")  # "Memcpy HtoD (Pinned -> Device)"
# torch up to 1.10 wrote the second spelling of each.
DEVICE_CATEGORIES = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "memset",
    "Memset": "memset",
}  # fmt: skip
ANNOTATION = "user_annotation"
# What a program or torch itself marks: torch 1.11 wrote it as operators.
MARKED = (STEP_NAME, "Optimizer.", "enumerate(DataLoader)")
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver", "Runtime")
OwnTimes = list[tuple[dict[str, Any], str | None, float]]  # of operators: event, family of its caller, own seconds


def read_events(path: Path) -> list[dict[str, Any]]:
    """The complete ('X') events of a trace.

    Raises:
        IntegrityError: the file is cut short, not a trace, or holds no event.
    """
    try:
        opener = gzip.open if is_gzip(path) else open
        with opener(path, "rt", encoding="utf-8") as handle:
            content = json.load(handle)
        events = [event for event in content["traceEvents"] if event.get("ph") == "X"]
        for event in events:
            _ = event["name"]
            event["ts"], event["dur"] = float(event["ts"]), float(event["dur"])
            if event.get("cat") == "cpu_op" and event["name"].startswith(MARKED):
                event["cat"] = ANNOTATION
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise IntegrityError(f"{path} is no whole torch.profiler trace ({error}); run the profile again") from error
    if not events:
        raise IntegrityError(f"{path} holds no event: the profiler recorded nothing; run the profile again")
    return events


def operators(events: Iterable[dict[str, Any]], own: OwnTimes | None = None) -> pd.DataFrame:
    """Calls, total and own seconds of each operator (category cpu_op), largest own time first.

    `own`: `own_times` of the events, where they are known.
    """
    rows = [(event["name"], event["dur"] / 1e6, own_s) for event, _, own_s in own or own_times(events)]
    table = pd.DataFrame(rows, columns=["name", "total_s", "self_s"]).groupby("name", sort=False, as_index=False)
    found = table.agg(calls=("total_s", "size"), total_s=("total_s", "sum"), self_s=("self_s", "sum"))
    return found.sort_values("self_s", ascending=False, ignore_index=True)[OPERATOR_COLUMNS]


def families(events: Iterable[dict[str, Any]], own: OwnTimes | None = None) -> pd.DataFrame:
    """Calls and own seconds of each family of operators in each profiled step; steps are numbered from 0.

    What runs inside an optimizer's step or a dropout belongs to it (tare/worker/families.py). Operators outside any
    step are left out. `own`: `own_times` of the events, where they are known.
    """
    events = list(events)
    steps = sorted((float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in events if _is_step(e))
    begins, family_of = [begin for begin, _ in steps], cache(family)
    rows: dict[tuple[str, int], list[float]] = {}
    for event, inside, own_s in own or own_times(events):
        step = bisect_right(begins, event["ts"]) - 1
        if step >= 0 and event["ts"] < steps[step][1]:
            row = rows.setdefault((family_of(event["name"], inside), step), [0, 0.0])
            row[0] += 1
            row[1] += own_s
    table = pd.DataFrame([[*key, *values] for key, values in sorted(rows.items())], columns=FAMILY_COLUMNS)
    return table.astype({"step": int, "calls": int, "self_s": float})


def _is_step(event: dict[str, Any]) -> bool:
    return event.get("cat") == ANNOTATION and event["name"].startswith(STEP_NAME)


def own_times(events: Iterable[dict[str, Any]]) -> OwnTimes:
    """Each operator with the family of the caller that it runs inside, and its own seconds.

    Events of a thread nest: an open one closes before its parent.
    """
    by_thread: dict[Any, list[dict[str, Any]]] = {}
    for event in events:
        called = event.get("cat") == ANNOTATION and caller_family(event["name"]) is not None
        if event.get("cat") == "cpu_op" or called:
            by_thread.setdefault((event["pid"], event["tid"]), []).append(event)
    found: list[tuple[dict[str, Any], str | None, list[float]]] = []
    for thread in by_thread.values():
        # End, family inside, own seconds of the innermost operator.
        open_events: list[tuple[float, str | None, list[float] | None]] = []
        for event in sorted(thread, key=lambda e: (e["ts"], -e["dur"])):
            while open_events and open_events[-1][0] <= event["ts"]:
                open_events.pop()
            _, inside, parent = open_events[-1] if open_events else (0.0, None, None)
            end = event["ts"] + event["dur"]
            if event["cat"] != "cpu_op":
                open_events.append((end, caller_family(event["name"]), parent))
                continue
            if parent is not None:
                parent[0] -= event["dur"] / 1e6
            own_s = [event["dur"] / 1e6]
            found.append((event, inside, own_s))
            open_events.append((end, inside or caller_family(event["name"]), own_s))
    return [(event, inside, own_s[0]) for event, inside, own_s in found]


def device_events(events: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """What ran on a CUDA device, as an ACTIVITY table (profilers/activity.py); empty where the trace is of a CPU.

    `start_s` counts from the trace's first event. Annotations that the profiler repeats on the device's timeline
    are no activity.
    """
    events = list(events)
    origin = _origin(events)
    rows = []
    for event in events:
        kind = _device_kind(event)
        if kind is not None:
            rows.append(_device_row(event, kind, origin))
    return activity.make(rows, "the trace")


def _origin(events: list[dict[str, Any]]) -> float:
    """Microseconds of the first event; times are taken from it, as seconds since 1970 would lose digits."""
    return min((float(event["ts"]) for event in events), default=0.0)


def _device_kind(event: dict[str, Any]) -> str | None:
    category = DEVICE_CATEGORIES.get(event.get("cat", ""))
    return activity.operation_kind(event["name"]) if category == "copy" else category


def _device_row(event: dict[str, Any], kind: str, origin: float) -> dict[str, Any]:
    args = event.get("args") or {}
    sides = COPY_SIDES.search(event["name"])
    stream = args.get("stream")
    return {
        "kind": kind,
        "name": event["name"],
        "start_s": (float(event["ts"]) - origin) / 1e6,
        "duration_s": float(event["dur"]) / 1e6,
        "bytes": args.get("bytes") if kind != "kernel" else None,
        "host_memory": activity.host_side(kind, *sides.groups()) if sides else None,
        "stream": int(str(stream)) if str(stream).isdecimal() else None,
    }


def step_windows(events: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Begin and end of each profiled step in seconds, on the clock of `device_events`, in order."""
    events = list(events)
    origin = _origin(events)
    begins = [((float(e["ts"]) - origin) / 1e6, float(e["dur"]) / 1e6) for e in events if _is_step(e)]
    return sorted((begin, begin + duration) for begin, duration in begins)


def steps_activity(events: Iterable[dict[str, Any]]) -> tuple[pd.DataFrame, tuple[float, float]]:
    """What the profiled steps made the device do, and the window in which it did it.

    A piece of activity belongs to the steps if the call that launched it (the same correlation id) began inside
    one; where the trace has no such call, if it began itself inside one. The window runs from the begin of the
    first step to the end of the last, or of its last activity, as a device may finish after the host.

    Raises:
        IntegrityError: the trace has no profiled step.
    """
    events = list(events)
    windows = step_windows(events)
    if not windows:
        raise IntegrityError("the trace holds no profiled step; run the profile again")
    origin = _origin(events)
    launched = {
        (event.get("args") or {}).get("correlation"): float(event["ts"])
        for event in events
        if event.get("cat") in LAUNCH_CATEGORIES
    }
    launched.pop(None, None)
    kept = []
    for event in events:
        if _device_kind(event) is None:
            continue
        at = launched.get((event.get("args") or {}).get("correlation"), float(event["ts"]))
        if any(begin <= (at - origin) / 1e6 < end for begin, end in windows):
            kept.append(_device_row(event, str(_device_kind(event)), origin))
    table = activity.make(kept, "the trace")
    last = float((table["start_s"] + table["duration_s"]).max()) if len(table) else windows[-1][1]
    return table, (windows[0][0], max(windows[-1][1], last))


def step_count(events: Iterable[dict[str, Any]]) -> int:
    """Number of profiled steps that the trace holds, from the profiler's own annotations."""
    return len({event["name"] for event in events if _is_step(event)})
