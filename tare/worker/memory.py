"""What happens when memory ends: the launch fails, and says the largest batch that trains in what there is."""

import gc

from tare.worker.frameworks import synchronize
from tare.worker.train import build_model

# As frameworks and their libraries say it, on the processor and on a CUDA device; oneDNN says no more than that.
SIGNS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
    "bad_alloc",
    "could not create a primitive",
)
STEPS = 2  # the optimizer's state appears in the first step, and is there in the second


def is_out_of_memory(error):
    """Whether an error says that memory ended."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in SIGNS)


def explain(error, spec):
    """Why a launch ended for want of memory, and the largest batch that fits; None where nobody found it."""
    said = (str(error).strip().splitlines() or ["the allocator gave nothing"])[0][:200]
    reason = "out of memory at batch {}: {}".format(spec.get("batch"), said)
    if spec.get("mode") not in ("train", "profile", "turns") or not spec.get("batch"):
        return reason, None
    try:
        largest = largest_batch(spec)
    except Exception as trouble:  # the search is a service: whatever ends it must not hide the first failure
        return "{}; the largest batch that fits could not be found: {}".format(reason, trouble), None
    if not largest:
        return "{}; not even a batch of 1 fits".format(reason), 0
    return "{}; the largest batch that fits is {}: set `batch` to that or less".format(reason, largest), largest


def largest_batch(spec):
    """The largest batch below spec["batch"] that trains STEPS steps; 0 where none does.

    By halving the range; each try begins with memory given back. The first samples of the data make the batch.
    """
    import importlib

    import torch

    workload = importlib.import_module("workloads." + spec["workload"])
    dataset = workload.Training.load(spec["data"])
    fits, too_large = 0, spec["batch"]
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if trains(torch, workload, dataset, middle, spec):
            fits = middle
        else:
            too_large = middle
    return fits


def trains(torch, workload, dataset, batch, spec):
    """Whether a batch of this size trains in the memory that there is."""
    give_back(torch, spec["device"])
    try:
        samples = [dataset[index % len(dataset)] for index in range(batch)]
        collated = torch.utils.data.default_collate(samples)
        training = build_model(torch, workload, spec)
        parts = [part.to(spec["device"]) for part in collated]
        for _ in range(STEPS):
            training.step(parts)
        synchronize(torch, spec["device"])
        return True
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return False


def give_back(torch, device):
    """Free what nobody holds any more."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
