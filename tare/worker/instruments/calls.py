"""Operators that a framework's own profiler recorded, as a trace and as sums: for profilers of other forms.

PyTorch writes a trace itself; here are what other instruments share. A trace has Chrome's format with the marks of
PyTorch's, so that one reader serves both.
"""

import gzip
import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tare.worker.instruments import Instruments
from tare.worker.kernels import summed

US = 1e-6

# One run of an operator, on the clock of its step. Those of a thread nest or follow one another.
Call = NamedTuple("Call", [("operator", str), ("start_us", float), ("duration_us", float), ("thread", int)])
Step = NamedTuple("Step", [("start_us", float), ("end_us", float), ("calls", List[Call])])


class CallInstruments(Instruments):
    """Of a framework whose profiler names each run of an operator."""

    def __init__(self, framework: Any) -> None:
        super(CallInstruments, self).__init__(framework)
        self.reason = "nothing here counts operations, or switches counters, of {}".format(framework.name)

    def record(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[Step], Optional[str]]:
        """spec["steps"] steps after a warm-up under the profiler: (them, None), or ([], the reason)."""
        raise NotImplementedError

    def recorded(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[Step], Optional[str]]:
        """As `record`; a profiler that fails, or names nothing, is a reason too."""
        try:
            steps, reason = self.record(training, batches, spec)
        except Exception as error:
            said = " ".join("{}: {}".format(type(error).__name__, error).split())
            return [], "the profiler of {} failed: {}".format(self.framework.name, said[:300])
        if reason is None and not all(step.calls for step in steps):
            return [], "the profiler of {} named no operator".format(self.framework.name)
        return steps, reason

    def trace(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[float], Optional[str]]:
        """A trace of Chrome's format, without shapes."""
        steps, reason = self.recorded(training, batches, spec)
        if reason is None:
            write_trace(spec["trace"], steps)
        return [(step.end_us - step.start_us) * US for step in steps], reason

    def operators(self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]) -> Dict[str, Any]:
        """Sums of the calls."""
        steps, reason = self.recorded(training, batches, spec)
        if reason is not None:
            return {"rows": None, "steps": 0, "reason": reason}
        return {"rows": rows_of(steps), "steps": len(steps), "reason": None}


def write_trace(path: str, steps: Sequence[Step]) -> None:
    """Steps and their calls as complete events; gzipped where the name ends so."""
    events: List[Dict[str, Any]] = []
    for number, step in enumerate(steps):
        name = "ProfilerStep#{}".format(number)
        events.append(_event(name, "user_annotation", step.start_us, step.end_us - step.start_us, 0))
        for call in step.calls:
            events.append(_event(call.operator, "cpu_op", call.start_us, call.duration_us, call.thread))
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8") as handle:
        json.dump({"traceEvents": events}, handle)


def _event(name: str, category: str, start_us: float, duration_us: float, thread: int) -> Dict[str, Any]:
    return {"ph": "X", "name": name, "cat": category, "ts": start_us, "dur": duration_us, "pid": 0, "tid": thread}


def rows_of(steps: Sequence[Step]) -> List[Dict[str, Any]]:
    """Calls and own seconds of each operator over all steps, by name."""
    return summed(
        ("operator", call.operator, None, 1, own_us * US)
        for step in steps
        for call, own_us in own_times(step.calls)
    )


def moved(calls: List[Call], start_us: float) -> List[Call]:
    """Calls of a step, the first at its start: clocks of profilers begin when they please."""
    first_us = min((call.start_us for call in calls), default=0.0)
    return [call._replace(start_us=call.start_us - first_us + start_us) for call in calls]


def own_times(calls: Sequence[Call]) -> List[Tuple[Call, float]]:
    """Each call with its own microseconds: without those of the calls that it contains on its thread."""
    found: List[Tuple[Call, List[float]]] = []
    open_calls: List[Tuple[float, int, List[float]]] = []
    for call in sorted(calls, key=lambda one: (one.thread, one.start_us, -one.duration_us)):
        while open_calls and (open_calls[-1][1] != call.thread or open_calls[-1][0] <= call.start_us):
            open_calls.pop()
        if open_calls:
            open_calls[-1][2][0] -= call.duration_us
        own_us = [call.duration_us]
        found.append((call, own_us))
        open_calls.append((call.start_us + call.duration_us, call.thread, own_us))
    return [(call, max(0.0, own_us[0])) for call, own_us in found]
