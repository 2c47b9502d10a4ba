"""A launch that looks for causes: files first, then the kernels of a step, then its operators.

Nothing of it is used as a time of a whole run or of a step. A launch that knows which files the imports need reads
them before it imports: what is left of the imports is then no matter of files.
"""

from typing import Any, Dict, Mapping, Tuple

from tare.worker import instruments, kernels, needed
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks
from tare.worker.train import build_model, first_batches, import_workload, load


def causes_run(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """The whole launch; returns what the record holds.

    spec["files"] is what `needed.needed` gave in an earlier launch on the host; without it, the launch only
    says what its own imports needed.
    """
    files = spec.get("files")
    first = None
    if files:
        files = needed.in_this_tree(files)
        first = needed.first_pass(files)
        marks.add("read")
    framework, workload = import_workload(spec, marks, 1)  # one thread: a pool would not live through a fork
    if not files:
        framework.set_threads(spec["threads"])
        return framework, {"listed": needed.needed() if spec.get("keep_list", True) else None}
    results = {"first": first, "files": needed.passes(files, spec["repetitions"])}
    marks.add("files")
    batches = first_batches(framework, load(framework, workload, spec), spec["batch"])
    training = build_model(framework, workload, spec)  # before the fork, which then has what a model imports late
    results["kernels"] = kernels.capture(framework, workload, batches[0], spec)
    marks.add("kernels")
    framework.set_threads(spec["threads"])
    on_device = [framework.to_device(batch) for batch in batches]
    results["operators"] = instruments.of(framework).operators(training, on_device, spec)
    marks.add("operators")
    return framework, results
