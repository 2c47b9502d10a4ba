"""A launch whose chosen steps a profiler of counters watches: it replays their kernels, so nothing here is a time.

The profiler (ncu) is told to begin switched off; the framework switches it on for the steps.
"""

from typing import Any, Dict, Mapping, Tuple

from tare.worker import instruments
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks
from tare.worker.train import build, first_batches, import_workload


def counters_run(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """Warm up unwatched, then train spec["counter_steps"] watched steps; returns what the record holds."""
    framework, workload = import_workload(spec, marks, spec["threads"])
    watcher = instruments.of(framework)
    dataset, training = build(framework, workload, spec, marks)
    batches = [framework.as_loaded(batch) for batch in first_batches(framework, dataset, spec["batch"])]
    losses = []
    for index in range(spec["warmup_steps"] + spec["counter_steps"]):
        if index == spec["warmup_steps"]:
            framework.synchronize()
            marks.add("warmed_up")
            watcher.watch()
        losses.append(training.step(batches[index % len(batches)]))
    framework.synchronize()
    watcher.unwatch()
    marks.add("counted")
    return framework, {"counter_steps": spec["counter_steps"], "losses": [float(loss) for loss in losses]}
