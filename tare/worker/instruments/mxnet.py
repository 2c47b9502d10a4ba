"""MXNet's profiler: its dump, which is a trace of Chrome's format with begins and ends."""

import contextlib
import json
import os
import tempfile
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from tare.worker.instruments.calls import Call, CallInstruments, Step

SECOND_US = 1e6
PLUMBING = frozenset(["DeleteVariable", "WaitForVar", "SetValueOp"])  # of the engine's own


class MXNetInstruments(CallInstruments):
    """MXNet's."""

    def record(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[Step], Optional[str]]:
        """All recorded steps in one dump; each has the calls that began while it ran."""
        with one_by_one(training.model):
            return self.dumped(training, batches, spec), None

    def dumped(self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]) -> List[Step]:
        """As `record`, of a model as it is."""
        profiler = self.framework.module.profiler
        windows = []
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "dump.json")
            profiler.set_config(profile_symbolic=True, profile_imperative=True, filename=path)
            for index in range(spec["warmup_steps"] + spec["steps"]):
                if index == spec["warmup_steps"]:
                    profiler.set_state("run")
                start_us = time.time() * SECOND_US
                training.step(batches[index % len(batches)])
                self.framework.synchronize()
                windows.append((start_us, time.time() * SECOND_US))
            profiler.set_state("stop")
            profiler.dump()
            with open(path, encoding="utf-8") as handle:
                calls = calls_of(json.load(handle)["traceEvents"])
        return [
            Step(start_us, end_us, [call for call in calls if start_us <= call.start_us < end_us])
            for start_us, end_us in windows[spec["warmup_steps"] :]
        ]


INSTRUMENTS = MXNetInstruments


@contextlib.contextmanager
def one_by_one(model: Any) -> Iterator[None]:
    """A graph runs operator by operator meanwhile: of those that it runs as one the profiler has no names."""
    flags = dict(getattr(model, "_flags", ()))
    if getattr(model, "_active", False):
        model.hybridize(True, **dict(flags, forward_bulk_size=0, backward_bulk_size=0))
    try:
        yield
    finally:
        if getattr(model, "_active", False):
            model.hybridize(True, **flags)


def calls_of(events: Iterable[Mapping[str, Any]]) -> List[Call]:
    """Runs of operators: an end belongs to the last begin of its name on its thread."""
    found: List[Call] = []
    begun: Dict[Tuple[Any, str], List[float]] = {}
    for event in events:
        if event.get("cat") != "operator" or event["name"] in PLUMBING:
            continue
        place = (event["tid"], event["name"])
        if event["ph"] == "B":
            begun.setdefault(place, []).append(float(event["ts"]))
        elif event["ph"] == "E" and begun.get(place):
            start_us = begun[place].pop()
            name = "mxnet::" + event["name"]
            found.append(Call(name, start_us, float(event["ts"]) - start_us, int(event["tid"])))
    return found
