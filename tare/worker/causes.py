"""A launch that looks for causes: files first, then the kernels of a step, then its operators.

Nothing of it is used as a time of a whole run or of a step. A launch that knows which files the imports need reads
them before it imports: what is left of the imports is then no matter of files.

One launch may serve several jobs (`jobs`): it imports what all of them need, and looks at the steps of each in a
separate process, forked from it, so that none finds what another has left in memory.
"""

from functools import partial
from typing import Any, Dict, Mapping, Tuple

from tare.worker import frameworks, instruments, kernels, needed
from tare.worker.apart import apart, refuse_if_alone
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks
from tare.worker.train import build_model, first_batches, import_workloads, jobs_of, load


def causes_run(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """The whole launch, for the record; of several jobs `jobs` has what was found of each. spec["files"]: from
    `needed.needed` of an earlier launch on the host, else only its own imports are reported. Raises ChildError.
    """
    files = spec.get("files")
    first = None
    if "jobs" in spec:
        refuse_if_alone(frameworks.of(spec))
    if files:
        files = needed.in_this_tree(files)
        first = needed.first_pass(files)
        marks.add("read")
    jobs = jobs_of(spec)
    framework, workloads = import_workloads(jobs, marks, 1)  # one thread: a pool would not live through a fork
    if not files:
        framework.set_threads(spec["threads"])
        return framework, {"listed": needed.needed() if spec.get("keep_list", True) else None}
    results: Dict[str, Any] = {"first": first, "files": needed.passes(files, spec["repetitions"])}
    marks.add("files")
    if "jobs" in spec:
        path = spec["record"] + ".job"
        results["jobs"] = [
            apart(partial(look, framework, workload, job), path, job["workload"])
            for workload, job in zip(workloads, jobs)
        ]
        framework.set_threads(spec["threads"])  # for the facts: those processes' number
    else:
        results.update(look(framework, workloads[0], spec))
    marks.add("operators")
    return framework, results


def look(framework: Framework, workload: Any, spec: Mapping[str, Any]) -> Dict[str, Any]:
    """Kernels and operators of one job's step."""
    batches = first_batches(framework, load(framework, workload, spec), spec["batch"])
    training = build_model(framework, workload, spec)  # before the fork, which then has what a model imports late
    found = {"kernels": kernels.capture(framework, workload, batches[0], spec)}
    framework.set_threads(spec["threads"])
    on_device = [framework.to_device(batch) for batch in batches]
    found["operators"] = instruments.of(framework).operators(training, on_device, spec)
    return found
