"""A profiled launch without its profiler: its steps are timed for a while, and one is counted from shapes alone.

Nothing watches it, so that these times may be used. After `warmup_steps` come `plain_steps` steps, or `steady_s`
seconds of them; none where both are 0. `counts` says whether a step is counted, which takes its own imports and
comes last.
"""

from functools import partial
from typing import Any, Dict, List, Mapping, Tuple

from tare.worker import frameworks, instruments
from tare.worker.counting import count_shapes
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks, usage
from tare.worker.train import (
    between,
    build,
    chosen,
    first_batches,
    import_workload,
    steady_steps,
    step_instants,
)

LEAST_STEPS, MOST_STEPS = 3, 2000
NOT_ASKED = "not asked for"


def plain_run(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """The whole launch; returns what the record of a profiled one holds, as far as there is any of it."""
    framework, workload = import_workload(spec, marks, spec["threads"])
    dataset, training = build(framework, workload, spec, marks)
    batches = [framework.to_device(batch) for batch in first_batches(framework, dataset, spec["batch"])]
    instants: List[int] = []
    if spec["steady_s"] or spec["plain_steps"]:
        marks.add("first_step_start")
        training.step(batches[0])
        framework.synchronize()
        marks.add("first_step")
        warm = steady_steps(framework, training, batches, spec["warmup_steps"])
        count = spec["plain_steps"] or min(MOST_STEPS, max(LEAST_STEPS, int(spec["steady_s"] / min(warm))))
        instants = step_instants(framework, training, batches, count)
        marks.add("plain_steps")
    marks.usage = usage()
    counts: Dict[str, Any] = {"operators": None, "families": None, "reason": NOT_ASKED}
    if spec["counts"]:
        counts = counted(framework, workload, spec, training, batches[0])
    return framework, {
        "plain_step_s": between(instants),
        "plain_instants_ns": instants,
        "profiled_step_s": [],
        "profiler_reason": NOT_ASKED,
        "profiled_steps": 0,
        "counts": counts,
        "samples": [],
        "mapped": [],
        "memory_allocated_peak_bytes": framework.allocated_peak_bytes(),
    }


def counted(
    framework: Framework, workload: Any, spec: Mapping[str, Any], training: Any, batch: Any
) -> Dict[str, Any]:
    """Counts of a step on such a batch: from its shapes, or by another framework's own way."""
    if framework.name != frameworks.DEFAULT:
        return instruments.of(framework).count(training, batch)
    job = partial(frameworks.training_class(workload, framework.name), framework.module, "cpu", *chosen(spec))
    return count_shapes(framework.module, job, [(tuple(part.shape), part.dtype) for part in batch])
