"""When each operator of TensorFlow 2's functions ran, by its profiler, whose form version 2.2 changed.

What a graph compiler took over is one operator to them, whatever is inside.
"""

import contextlib
import glob
import importlib
import os
import re
import tempfile
import time
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from tare.worker.instruments.calls import Call, CallInstruments, Step, moved

EVENT = re.compile(r"^[^\s:]+:(\w+)$")  # of the profiler: "gradient_tape/Conv2DBackpropFilter:Conv2DBackpropFilter"
FORMS = ("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tensorflow.core.profiler.protobuf.xplane_pb2")
# What hands values in, on and out, or holds other operators, which are in the record themselves.
PLUMBING = frozenset(
    "NoOp Const _Arg _Retval _DeviceArg _DeviceRetval _Send _Recv _HostSend _HostRecv PartitionedCall "
    "StatefulPartitionedCall VarHandleOp Placeholder IdentityN".split()
)
SECOND_US = 1e6


class TensorFlowInstruments(CallInstruments):
    """TensorFlow's."""

    def record(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[Step], Optional[str]]:
        """A record of each step by itself."""
        module = self.framework.module
        if not module.executing_eagerly():
            return [], "TensorFlow before version 2 has no profiler of functions"
        watched = self.profiled if hasattr(module, "profiler") else self.traced
        return self.steps(training, batches, spec, watched), None

    def steps(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any], watched: Callable[[], Any]
    ) -> List[Step]:
        """Steps after a warm-up, each with the calls that `watched` gives in the end."""
        steps = []
        for index in range(spec["warmup_steps"] + spec["steps"]):
            with watched() as calls:
                start_us = time.time() * SECOND_US
                training.step(batches[index % len(batches)])
                self.framework.synchronize()
                end_us = time.time() * SECOND_US
            if index >= spec["warmup_steps"]:
                steps.append(Step(start_us, end_us, moved(calls, start_us)))
        return steps

    @contextlib.contextmanager
    def profiled(self) -> Iterator[List[Call]]:
        """What the profiler saw; filled when it ends."""
        profiler = self.framework.module.profiler.experimental
        calls: List[Call] = []
        with tempfile.TemporaryDirectory() as folder:
            profiler.start(folder)
            try:
                yield calls
            finally:
                profiler.stop()
            for path in glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True):
                space = first_of(FORMS).XSpace()
                with open(path, "rb") as handle:
                    space.ParseFromString(handle.read())
                calls.extend(calls_in(space))

    @contextlib.contextmanager
    def traced(self) -> Iterator[List[Call]]:
        """As `profiled`, by the profiler that 2.0 and 2.1 have."""
        from tensorflow.core.protobuf import trace_events_pb2
        from tensorflow.python.eager import profiler

        calls: List[Call] = []
        profiler.start()
        try:
            yield calls
        finally:
            found = profiler.stop()
        trace = trace_events_pb2.Trace()
        trace.ParseFromString(found)
        calls.extend(calls_among(trace.trace_events))


INSTRUMENTS = TensorFlowInstruments


def calls_among(events: Any) -> Iterator[Call]:
    """Runs of operators among events of a trace."""
    for event in events:
        named = EVENT.match(event.args.get("long name", ""))
        if named is not None and named.group(1) not in PLUMBING:
            yield Call(
                "tensorflow::" + named.group(1),
                event.timestamp_ps / 1e6,
                event.duration_ps / 1e6,
                int(event.resource_id),
            )


def calls_in(space: Any) -> Iterator[Call]:
    """Runs of operators that the profiler saw; each of its lines is a thread."""
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                named = EVENT.match(plane.event_metadata[event.metadata_id].name)
                if named is not None and named.group(1) not in PLUMBING:
                    start_us = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                    yield Call("tensorflow::" + named.group(1), start_us, event.duration_ps / 1e6, int(line.id))


def first_of(names: Sequence[str]) -> Any:
    """The first of some modules that this release has. Raises ImportError where it has none of them."""
    for name in names[:-1]:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return importlib.import_module(names[-1])
