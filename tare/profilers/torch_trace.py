"""Reads torch.profiler's Chrome traces: operators, kernels, copies by direction, memsets.

Times are microseconds in the trace and seconds here. An operator's own time is its duration less that of the
operators called inside it on the same thread.

torch writes names of functions as they are, so that some traces are no JSON: backslashes of Windows' paths, control
characters, bytes of other encodings. What has to be replaced to read them is in a warning.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

import pandas as pd

from tare.core.errors import IntegrityError, UserError
from tare.profilers import activity, fields
from tare.profilers.numerals import LARGEST
from tare.profilers.printed import REPLACED, decoded, read_bytes
from tare.worker.families import caller_family, family

OPERATOR_COLUMNS = ["name", "calls", "total_s", "self_s"]
FAMILY_COLUMNS = ["family", "step", "calls", "self_s"]
STEP_NAME = "ProfilerStep#"
LONGEST_COPY = 200  # characters of the name of a copy that say which way it went
LONGEST_NUMBER = 20  # characters of a stream's, which no table holds then
COPY_SIDES = re.compile(r"\((\w[\w ]*?)\s*->\s*(\w[\w ]*?)\)")  # "Memcpy HtoD (Pinned -> Device)"
# torch up to 1.10 wrote the second spelling of each.
DEVICE_CATEGORIES = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "memset",
    "Memset": "memset",
}  # fmt: skip
ANNOTATION = "user_annotation"
OPERATOR = "cpu_op"
# What a program or torch itself marks: torch up to 1.11 wrote it as operators.
MARKED = (STEP_NAME, "Optimizer.", "enumerate(DataLoader)")
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver", "Runtime")
OPERATOR_CATEGORIES = (OPERATOR, "Operator")
READ_CATEGORIES = {*DEVICE_CATEGORIES, *LAUNCH_CATEGORIES, *OPERATOR_CATEGORIES, ANNOTATION}
# Of no account here: events of others, and those that only lead from one to another.
OTHER_CATEGORIES = {
    "gpu_user_annotation", "cpu_instant_event", "python_function", "PythonFunction", "overhead", "Overhead",
    "cuda_sync", "cuda_event", "cuda_profiler_range", "external_correlation", "collective_comm", "Trace", "async",
    "ac2g", "fwdbwd",
}  # fmt: skip
OPERATORS_ALONE = ("CPU functions", "CUDA functions")  # pids of torch.autograd's profiler
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
DIRECTED = re.compile(rf".*{activity.DIRECTION.pattern}", re.IGNORECASE)
ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
OwnTimes = list[tuple[dict[str, Any], str | None, float]]  # of operators: event, family of its caller, own seconds


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What one file holds."""

    events: list[dict[str, Any]]  # the complete ('X') events, their times and arguments checked
    warnings: tuple[str, ...]  # what was replaced to read them, and what is left out


def read_events(path: Path) -> list[dict[str, Any]]:
    """The complete ('X') events of a trace; raises IntegrityError where it is cut short, no trace, or empty."""
    return read_trace(path).events


def read_trace(path: Path) -> Trace:
    """A trace, as an object or an older list. Raises UserError where it can't be read or is another profiler's,
    IntegrityError where it is cut short, damaged, no trace or empty.
    """
    try:
        return _checked(path)
    except RecursionError as error:
        raise IntegrityError(f"{path}: its values are nested deeper than any trace's; it is damaged") from error


def _checked(path: Path) -> Trace:
    try:
        data = read_bytes(path)
    except IntegrityError as error:
        raise IntegrityError(f"{error}: copy it again, or run the profile again") from error
    text = decoded(data)
    content, warnings = _parsed(text, path)
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise IntegrityError(
            f"{path} is no whole torch.profiler trace, as it has no list of traceEvents: name the file that "
            "torch.profiler wrote"
        )
    if not events:
        raise IntegrityError(f"{path} holds no event: the profiler recorded nothing; run the profile again")
    if not any(isinstance(event, dict) and "ph" in event for event in events):
        if any(isinstance(event, dict) and {"Total Time (ns)", "Start (ns)"} & set(event) for event in events):
            raise UserError(f"{path} is of nsys stats, whose reports are not read: take nsys export")
        raise UserError(f"{path} is no trace of torch.profiler: no event has a ph")
    if _is_of_another(events):
        raise UserError(
            f"{path} is a trace of another program, such as TensorFlow or JAX: no event has a category of "
            "torch.profiler's; nsys and ncu show what they did on a device"
        )
    check = _Check(text, path)
    found = [event for place, event in enumerate(events) if check.keeps(place, event)]
    if not found:
        raise UserError(f"{path} holds no complete event (ph X): it is no trace of torch.profiler")
    return Trace(events=found, warnings=(*warnings, *check.left_out()))


def _is_of_another(events: list[Any]) -> bool:
    """Whether no whole event has a category of torch's; its profiler of operators alone wrote pids only."""
    known = {*READ_CATEGORIES, *OTHER_CATEGORIES}
    objects = [event for event in events if isinstance(event, dict)]
    if any(str(event.get("cat")) in known or str(event.get("pid")) in OPERATORS_ALONE for event in objects):
        return False
    words = (str, NoneType)
    return any({"ph", "name", "ts"} <= set(event) and isinstance(event.get("cat"), words) for event in objects)


def _parsed(text: str, path: Path) -> tuple[Any, list[str]]:
    """What a text of JSON holds, and what was replaced in it first."""
    warnings = []
    if replaced := text.count(REPLACED):
        warnings.append(f"bytes that are no UTF-8 were replaced: {replaced}")
    try:
        try:
            return json.loads(text), warnings
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Invalid"):
                raise
        if controls := len(CONTROL.findall(text)):
            warnings.append(f"control characters in names were kept: {controls}")
        escaped = 0

        def double(found: re.Match[str]) -> str:
            nonlocal escaped
            if len(found[0]) > 1:
                return found[0]
            escaped += 1
            return "\\\\"

        text = ESCAPE.sub(double, text)
        if escaped:
            warnings.append(f"backslashes that JSON does not know, such as those of paths, were kept: {escaped}")
        return json.loads(text, strict=False), warnings
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        how = "it is cut short: copy it again, or run the profile again" if cut else "it is damaged: copy it again"
        raise IntegrityError(
            f"{path} line {error.lineno}: no whole torch.profiler trace ({error.msg}, column {error.colno}); {how}"
        ) from error
    except (ValueError, RecursionError) as error:
        said = "it is nested deeper than any trace" if isinstance(error, RecursionError) else str(error)
        raise IntegrityError(f"{path} is no whole torch.profiler trace ({said}); it is damaged") from error


class _Check:
    """Checks the fields of events that are read, and makes those of older versions the same as of later ones."""

    def __init__(self, text: str, path: Path) -> None:
        self._text = text
        self._path = path
        self._unknown: Counter[str] = Counter()
        self._undirected: Counter[str] = Counter()
        self._seen: set[tuple[str, ...]] = set()
        self._strange = not text.isascii() or CONTROL.search(text) is not None

    def keeps(self, place: int, event: Any) -> bool:
        """Whether an event is complete; raises IntegrityError where a field is missing or of another type."""

        def at() -> str:
            return f"{self._path}{self._line(place)}: event {place + 1}"

        if not isinstance(event, dict):
            raise IntegrityError(f"{at()} is {str(event)[:40]!r}, no object: the file is damaged")
        category = fields.text(event.get("cat", ""), "cat", at)
        if self._strange:
            _refuse_strange(event, at)
        phase = fields.text(event.get("ph"), "ph", at)
        if phase != "X":
            if category in DEVICE_CATEGORIES or str(event.get("name")).startswith(STEP_NAME):
                raise IntegrityError(f"{at()} ({category}) has no begin and duration: ph is {phase[:40]!r}")
            return False
        name = fields.text(event.get("name"), "name", at)
        if _is_almost_a_step(name):
            raise IntegrityError(f"{at()}: {name[:40]!r} looks like the mark of a step: the file is damaged")
        event["ts"] = fields.number(event.get("ts"), "ts", at, printed=True)
        read = category in READ_CATEGORIES
        if not read and category not in OTHER_CATEGORIES:
            self._unknown[category] += 1
        event["dur"] = fields.number(event.get("dur", None if read else 0.0), "dur", at, printed=True)
        if read and event["dur"] < 0:
            raise IntegrityError(f"{at()} ends before it starts: the file is damaged")
        if category in OPERATOR_CATEGORIES:
            event["cat"] = ANNOTATION if name.startswith(MARKED) else OPERATOR
        if category in DEVICE_CATEGORIES or category in LAUNCH_CATEGORIES:
            _check_arguments(event, at)
        if category in DEVICE_CATEGORIES or name.startswith(STEP_NAME):
            self._refuse_again(event, at)
        if DEVICE_CATEGORIES.get(category) == "copy" and not DIRECTED.match(name):
            self._undirected[name[:60]] += 1
        if category in (*OPERATOR_CATEGORIES, ANNOTATION):
            for key in ("pid", "tid"):
                if not isinstance(event.get(key), str | int | float | None):
                    raise IntegrityError(f"{at()}: {key} is {str(event[key])[:40]!r}: the file is damaged")
        return True

    def _refuse_again(self, event: dict[str, Any], at: fields.At) -> None:
        """A piece of activity, or a step, that is the same as one before in everything is that one."""
        args = event.get("args") or {}
        same = (*(str(event.get(key)) for key in ("cat", "name", "pid", "tid", "ts", "dur")), str(args))
        if event["dur"] > 0 and same in self._seen:
            raise IntegrityError(f"{at()} is the same as one before: it is there twice")
        self._seen.add(same)

    def _line(self, place: int) -> str:
        """Where an event begins, in words; nothing where that can't be determined."""
        decoder = json.JSONDecoder(strict=False)
        found = re.match(r'\s*(?:\{(?s:.*?)"traceEvents"\s*:\s*)?\[\s*', self._text)
        if found is None:
            return ""
        position = found.end()
        try:
            for _ in range(place):
                _, position = decoder.raw_decode(self._text, position)
                position = re.compile(r"\s*,?\s*").match(self._text, position).end()  # type: ignore[union-attr]
        except ValueError:
            return ""
        return f" line {self._text.count(chr(10), 0, position) + 1}"

    def left_out(self) -> list[str]:
        unknown = [
            f"events of the category {category!r}, which is not known, are left out: {count}"
            for category, count in self._unknown.most_common(5)
        ]
        return unknown + [
            f"copies whose direction is not known, counted as copy_calls: {name!r}, {count}"
            for name, count in self._undirected.most_common(5)
        ]


def _is_almost_a_step(name: str) -> bool:
    """Whether one letter of a step's mark was changed."""
    half = len(STEP_NAME) // 2
    if not (name.startswith(STEP_NAME[:half]) or name[half : len(STEP_NAME)] == STEP_NAME[half:]):
        return False
    return sum(one != other for one, other in zip(name, STEP_NAME, strict=False)) == 1


def _refuse_strange(event: dict[str, Any], at: fields.At) -> None:
    """Names of functions may hold anything; the words of the format itself do not."""
    args = event.get("args")
    words = [*event, event.get("cat", ""), event.get("ph", ""), *(args if isinstance(args, dict) else ())]
    for word in words:
        if not isinstance(word, str) or not word.isascii() or not word.isprintable():
            raise IntegrityError(f"{at()}: {str(word)[:40]!r} has bytes that are no text: the file is damaged")


def _check_arguments(event: dict[str, Any], at: fields.At) -> None:
    args = event.get("args")
    if args is None:
        args = event["args"] = {}
    if not isinstance(args, dict):
        raise IntegrityError(f"{at()}: args is {str(args)[:40]!r}, no object: the file is damaged")
    if "bytes" in args:
        args["bytes"] = fields.count(args["bytes"], "bytes", at, printed=True)
    if not isinstance(args.get("correlation"), int | str | None):
        raise IntegrityError(f"{at()}: correlation is {str(args['correlation'])[:40]!r}: the file is damaged")
    stream = args.get("stream")
    if not isinstance(stream, int | str | None) or (_number_of(stream) or 0) > LARGEST:
        raise IntegrityError(f"{at()}: stream is {str(stream)[:40]!r}: the file is damaged")


def _number_of(stream: int | str | None) -> int | None:
    """The number of a stream; None where it is a word."""
    text = str(stream)[:LONGEST_NUMBER]
    return int(text) if text.isdecimal() else None


def operators(events: Iterable[dict[str, Any]], own: OwnTimes | None = None) -> pd.DataFrame:
    """Calls, total and own seconds of each operator (category cpu_op), largest own first; `own`: `own_times`."""
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
    """Each operator with the family that it runs inside, and its own seconds; an event's parent closes after it."""
    by_thread: dict[Any, list[dict[str, Any]]] = {}
    for event in events:
        called = event.get("cat") == ANNOTATION and caller_family(event["name"]) is not None
        if event.get("cat") == "cpu_op" or called:
            by_thread.setdefault((event.get("pid"), event.get("tid")), []).append(event)
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


def device_events(
    events: Iterable[dict[str, Any]],
    where: str = "the trace",
    keeps: Callable[[dict[str, Any]], bool] = lambda event: True,
) -> pd.DataFrame:
    """What ran on a CUDA device, as an ACTIVITY table (profilers/activity.py); empty where the trace is of a CPU.

    `start_s` counts from the trace's first event. Annotations that the profiler repeats on the device's timeline
    are no activity. `keeps`: whether a piece counts.
    """
    events = list(events)
    origin = _origin(events)
    rows = [
        _device_row(event, kind, origin)
        for event in events
        if (kind := _device_kind(event)) is not None and keeps(event)
    ]
    return activity.make(rows, where)


def _origin(events: list[dict[str, Any]]) -> float:
    """Microseconds of the first event; times are taken from it, as seconds since 1970 would lose digits."""
    return min((float(event["ts"]) for event in events), default=0.0)


def _device_kind(event: dict[str, Any]) -> str | None:
    category = DEVICE_CATEGORIES.get(event.get("cat", ""))
    return activity.operation_kind(event["name"]) if category == "copy" else category


def _device_row(event: dict[str, Any], kind: str, origin: float) -> dict[str, Any]:
    args = event.get("args") or {}
    sides = COPY_SIDES.search(event["name"][:LONGEST_COPY])
    return {
        "kind": kind,
        "name": event["name"],
        "start_s": (float(event["ts"]) - origin) / 1e6,
        "duration_s": float(event["dur"]) / 1e6,
        "bytes": args.get("bytes") if kind != "kernel" else None,
        "host_memory": activity.host_side(kind, *sides.groups()) if sides else None,
        "stream": _number_of(args.get("stream")),
    }


def step_windows(events: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Begin and end of each profiled step in seconds, on the clock of `device_events`, in order."""
    events = list(events)
    origin = _origin(events)
    begins = [((float(e["ts"]) - origin) / 1e6, float(e["dur"]) / 1e6) for e in events if _is_step(e)]
    return sorted((begin, begin + duration) for begin, duration in begins)


def steps_activity(
    events: Iterable[dict[str, Any]], where: str = "the trace"
) -> tuple[pd.DataFrame, tuple[float, float]]:
    """What the profiled steps made the device do, and the window in which it did it.

    A piece of activity belongs to the steps if the call that launched it (the same correlation id) began inside
    one; where the trace has no such call, if it began itself inside one. The window runs from the begin of the
    first step to the end of the last, or of its last activity, as a device may finish after the host.
    Raises IntegrityError where the trace has no profiled step.
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
    whole: list[tuple[float, float]] = []  # windows that meet are one
    for begin, end in windows:
        if whole and begin <= whole[-1][1]:
            begin, end = whole[-1][0], max(end, whole.pop()[1])
        whole.append((begin, end))
    begins = [begin for begin, _ in whole]

    def of_steps(event: dict[str, Any]) -> bool:
        at = (launched.get((event.get("args") or {}).get("correlation"), float(event["ts"])) - origin) / 1e6
        place = bisect_right(begins, at) - 1
        return place >= 0 and at < whole[place][1]

    table = device_events(events, where, of_steps)
    last = float((table["start_s"] + table["duration_s"]).max()) if len(table) else windows[-1][1]
    return table, (windows[0][0], max(windows[-1][1], last))


def step_count(events: Iterable[dict[str, Any]]) -> int:
    """Number of profiled steps that the trace holds, from the profiler's own annotations."""
    return len({event["name"] for event in events if _is_step(event)})
