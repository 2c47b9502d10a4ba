"""What happens when memory ends: the launch fails, and says the largest batch that trains in what there is."""

import gc
import importlib
from typing import Any, Mapping, Optional, Tuple

from tare.worker import frameworks
from tare.worker.frameworks import Framework
from tare.worker.train import build_model, load

STEPS = 2  # the optimizer's state appears in the first step, and is there in the second


def is_out_of_memory(error: BaseException, spec: Mapping[str, Any]) -> bool:
    """Whether an error of a launch says that memory ended."""
    try:
        framework = frameworks.of(spec)
    except frameworks.Unable:
        framework = frameworks.Framework("cpu")
    return framework.is_out_of_memory(error)


def explain(error: BaseException, spec: Mapping[str, Any]) -> Tuple[str, Optional[int]]:
    """Why a launch ended for want of memory, and the largest batch that fits; None where nobody found it."""
    said = (str(error).strip().splitlines() or ["the allocator gave nothing"])[0][:200]
    reason = "out of memory at batch {}: {}".format(spec.get("batch"), said)
    if spec.get("mode") not in ("train", "profile") or not spec.get("batch"):
        return reason, None
    try:
        largest = largest_batch(spec)
    except Exception as trouble:  # the search is a service: whatever ends it must not hide the first failure
        return "{}; the largest batch that fits could not be found: {}".format(reason, trouble), None
    if not largest:
        return "{}; not even a batch of 1 fits".format(reason), 0
    return "{}; the largest batch that fits is {}: set `batch` to that or less".format(reason, largest), largest


def largest_batch(spec: Mapping[str, Any]) -> int:
    """The largest batch of first samples below spec["batch"] that trains STEPS steps, by halving; 0 for none."""
    workload = importlib.import_module("workloads." + spec["workload"])
    framework = frameworks.of(spec)
    framework.import_()
    dataset = load(framework, workload, spec)
    fits, too_large = 0, spec["batch"]
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if trains(framework, workload, dataset, middle, spec):
            fits = middle
        else:
            too_large = middle
    return fits


def trains(framework: Framework, workload: Any, dataset: Any, batch: int, spec: Mapping[str, Any]) -> bool:
    """Whether a batch of this size trains in the memory that there is."""
    gc.collect()
    framework.free_memory()
    try:
        collated = framework.collate([dataset[index % len(dataset)] for index in range(batch)])
        training = build_model(framework, workload, spec)
        parts = framework.to_device(collated)
        for _ in range(STEPS):
            training.step(parts)
        framework.synchronize()
        return True
    except Exception as error:
        if not framework.is_out_of_memory(error):
            raise
        return False
