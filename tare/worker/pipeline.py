"""The input alone: batches from the disk to memory by the loader of a training run, and nothing trained on them.

A pass takes a workload's first samples through its own data set (read, decode, augment) and the framework's
loader, and touches no model. Its clock starts when the loader is asked for its first batch and ends with its last:
the start of loader processes is in it, as in an epoch. A repetition makes a cold and a warm pass for each number of
loader processes, in turn: cold right after this machine's page cache was emptied, warm with what the cold one left
there. Where the cache can't be emptied there are warm passes only; an untimed pass comes first.

In addition steps of training on one batch in memory say how fast a job asks for its input. They have the processor
for themselves: while loader processes are busy, both are slower.
"""

import os
from typing import Any, Dict, List, Mapping, Tuple

from tare.worker.frameworks import Framework
from tare.worker.marks import Marks, now_ns
from tare.worker.train import build, first_batches, import_workload, steady_steps

DROP_CACHES = "/proc/sys/vm/drop_caches"
COLD, WARM = "cold", "warm"


class First(object):
    """The first `count` samples of a map-style data set."""

    def __init__(self, dataset: Any, count: int) -> None:
        self.dataset = dataset
        self.count = count

    def __len__(self) -> int:
        """How many."""
        return self.count

    def __getitem__(self, index: int) -> Any:
        """One sample."""
        return self.dataset[index]


def empty_page_cache() -> None:
    """Write back what is dirty, then drop the page cache, names and inodes of the whole machine."""
    os.sync()
    with open(DROP_CACHES, "w") as switch:
        switch.write("3")


def timed_pass(framework: Framework, samples: Any, spec: Mapping[str, Any], workers: int) -> Dict[str, Any]:
    """One pass: seconds until the first batch and until the last, and how many samples came."""
    started = now_ns()
    first_ns, count = None, 0
    for batch in framework.loader(samples, dict(spec, loader_workers=workers)):
        if first_ns is None:
            first_ns = now_ns()
        count += len(batch[-1])
    ended = now_ns()
    first_s = None if first_ns is None else (first_ns - started) / 1e9
    return {"workers": workers, "samples": count, "first_batch_s": first_s, "seconds": (ended - started) / 1e9}


def passes(framework: Framework, samples: Any, spec: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """All passes; the order of the numbers of loader processes moves on by one with each repetition."""
    found = []
    for repetition in range(spec["repetitions"]):
        shift = repetition % len(spec["workers"])
        for workers in spec["workers"][shift:] + spec["workers"][:shift]:
            for cache in (WARM,) if spec["no_cold"] else (COLD, WARM):
                if cache == COLD:
                    empty_page_cache()
                row = timed_pass(framework, samples, spec, workers)
                found.append(dict(row, cache=cache, repetition=repetition))
    return found


def measure(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """Every pass, and the steps in memory, for the record; ValueError where the data loads whole batches."""
    framework, workload = import_workload(spec, marks, spec["threads"])
    dataset, training = build(framework, workload, spec, marks)
    if hasattr(dataset, "batches"):
        raise ValueError("the workload's data gives whole batches by itself: there is no loader to measure")
    samples = First(dataset, min(spec["images"], len(dataset)))
    timed_pass(framework, samples, spec, 0)
    marks.add("warmed")
    rows = passes(framework, samples, spec)
    marks.add("passes")
    batch = framework.to_device(first_batches(framework, dataset, spec["batch"])[0])
    step_s = steady_steps(framework, training, [batch], spec["warmup_steps"] + spec["steps"])
    return framework, {"passes": rows, "step_s": step_s[spec["warmup_steps"] :]}
