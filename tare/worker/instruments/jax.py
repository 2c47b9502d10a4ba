"""JAX's profiler: what XLA's programs ran, read back by JAX itself. XLA fuses operators; a fusion is one."""

import glob
import os
import re
import tempfile
import time
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

from tare.worker.instruments.calls import Call, CallInstruments, Step, moved

OPERATOR = "hlo_op"  # what XLA says of an event that is an operator of a program
NUMBER = re.compile(r"(?:\.\d+|\.clone)+$")  # of a name's own copy in a program, as in dot.12


class JaxInstruments(CallInstruments):
    """JAX's."""

    def record(
        self, training: Any, batches: Sequence[Any], spec: Mapping[str, Any]
    ) -> Tuple[List[Step], Optional[str]]:
        """A recording of each step by itself, one behind the other: their clock is their own."""
        jax, steps, at_us = self.framework.module, [], 0.0
        for index in range(spec["warmup_steps"] + spec["steps"]):
            with tempfile.TemporaryDirectory() as folder:
                with jax.profiler.trace(folder):
                    started = time.perf_counter()
                    training.step(batches[index % len(batches)])
                    self.framework.synchronize()
                    step_us = (time.perf_counter() - started) * 1e6
                if index >= spec["warmup_steps"]:
                    calls = [call for data in self.read(folder) for call in calls_of(data)]
                    steps.append(Step(at_us, at_us + step_us, moved(calls, at_us)))
                    at_us = max([at_us + step_us] + [one.start_us + one.duration_us for one in steps[-1].calls])
        return steps, None

    def read(self, folder: str) -> Iterator[Any]:
        """What was recorded below a folder."""
        from jax.profiler import ProfileData

        for path in glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True):
            yield ProfileData.from_file(path)


INSTRUMENTS = JaxInstruments


def calls_of(data: Any) -> List[Call]:
    """Runs of operators in a recording; each line of it is a thread."""
    found = []
    for plane in data.planes:
        for thread, line in enumerate(plane.lines):
            for event in line.events:
                if any(key == OPERATOR for key, _ in event.stats):
                    name = "xla::" + NUMBER.sub("", event.name)
                    found.append(Call(name, event.start_ns / 1e3, event.duration_ns / 1e3, thread))
    return found
