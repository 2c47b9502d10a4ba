"""What a launch needs of a framework; each module here is one, found by its name (docs/add-a-framework.md).

A module names its class `FRAMEWORK`. Importing the module imports no framework: `import_` does that, when the
launch says so. What watches a step (profiler, counts) is in tare/worker/instruments/: timed launches do without.
"""

import importlib
import math
import os
import random
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

DEFAULT = "torch"
# As frameworks and their libraries say it, on the processor and on a CUDA device; oneDNN says just the last.
MEMORY_SIGNS = (
    "out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed", "bad_alloc",
    "could not create a primitive",
)  # fmt: skip


class Unable(RuntimeError):
    """What was asked for can't be had here; the message says why."""


def names() -> List[str]:
    """Names of the frameworks that there are."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py") and not name.startswith("_"))


def of(spec: Mapping[str, Any]) -> "Framework":
    """A specification's framework on its device, not yet imported; raises Unable for an unfit one."""
    name = spec.get("framework", DEFAULT)
    if name not in names():
        raise Unable("no framework {!r} in tare/worker/frameworks: there are {}".format(name, ", ".join(names())))
    made: Framework = importlib.import_module("tare.worker.frameworks." + name).FRAMEWORK(spec.get("device", "cpu"))
    if made.cpu_alone and made.device != "cpu":
        raise Unable("{} trains on a CPU here, not on {}".format(name, made.device))
    return made


def training_class(workload: Any, name: str) -> Any:
    """A workload's class in a framework: `FRAMEWORKS[name]`, PyTorch's `Training`; raises Unable without it."""
    known = getattr(workload, "FRAMEWORKS", None) or {DEFAULT: workload.Training}
    if name not in known:
        where = workload.__name__.replace(".", "/")
        raise Unable("{}.py trains with {}, not with {}".format(where, ", ".join(sorted(known)), name))
    return known[name]


def finite(losses: Sequence[Any]) -> List[float]:
    """Losses of steps, from the first on, as floats. Raises ValueError where one of them is no finite number."""
    values = [float(loss) for loss in losses]
    wrong = [number for number, value in enumerate(values, start=1) if not math.isfinite(value)]
    if wrong:
        raise ValueError("the loss of step {} is {}".format(wrong[0], values[wrong[0] - 1]))
    return values


class Framework(object):
    """One framework on one device; what is not said otherwise serves any whose arrays have `nbytes` and slices."""

    name = ""  # of its module
    facts_key = "framework"  # under which a launch's facts hold what it says of itself
    cpu_alone = False  # it trains on no other device
    threads_variable = "OMP_NUM_THREADS"  # which it reads, as it is imported, for how many to compute with
    can_fork = True  # a process that has imported it can fork others that train; else a run measures steps itself

    def __init__(self, device: str) -> None:
        self.device = device
        self.module: Any = None  # what `import_` gave; workloads get it
        # Of this process among those that train together; `workers` of them train, the last ranks serve parameters.
        self.rank, self.size, self.workers = 0, 1, 1

    @property
    def serves(self) -> bool:
        """Whether this process serves parameters, and trains on nothing."""
        return self.rank >= self.workers

    def import_(self) -> None:
        """Import it and set `module`."""
        raise NotImplementedError

    def import_late(self) -> None:
        """Import what it imports by itself at first use in every training, so that no later phase holds that."""

    def set_threads(self, threads: int) -> None:
        """Compute with so many threads, whatever the machine suggests."""

    def facts(self) -> Dict[str, Any]:
        """What it says of itself, as JSON holds it: name, version, threads and what else it knows."""
        threads = os.environ.get(self.threads_variable, "")
        return {
            "name": self.name,
            "version": self.module.__version__,
            "threads": int(threads) if threads.isdigit() else None,
        }

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next means something."""

    def join(self, rank: int, size: int, servers: int = 0) -> None:
        """Meet the others that train together; sets `rank`, `size`, `workers`. Raises Unable: it trains alone."""
        raise Unable("{} trains alone, not in a group of {}".format(self.name, size))

    def share(self, training: Any, way: Optional[str] = None) -> None:
        """Make each step of a job use the gradients of the whole group; `way`: as tare.worker.groups has them."""

    def serve(self, training: Any, steps: int) -> List[int]:
        """A server's part of so many steps; the ends of each, in ns."""
        raise Unable("{} has no parameter server".format(self.name))

    def exchanged(self) -> Optional[Dict[str, Any]]:
        """What the exchanges of a group's steps took, as the record holds it; None where nothing was exchanged."""
        return None

    def leave(self, training: Any) -> Optional[str]:
        """End the group; returns the SHA-256 of the job's weights, which are equal in all its processes."""

    def parameters(self, training: Any) -> int:
        """How many numbers a training job learns."""
        raise NotImplementedError

    def collate(self, samples: Sequence[Any]) -> Any:
        """A batch: a list of arrays, one for each part of a sample; NumPy's, which every framework takes."""
        import numpy

        return [numpy.stack(parts) for parts in zip(*samples)]

    def batches(self, dataset: Any, batch: int) -> Iterator[Any]:
        """Every full batch of a dataset in order, one at a time, in the host's memory."""
        for start in range(0, len(dataset) - batch + 1, batch):
            yield self.collate([dataset[index] for index in range(start, start + batch)])

    def loader(self, dataset: Any, spec: Mapping[str, Any]) -> Iterable[Any]:
        """The batches of one epoch of a whole run, shuffled; the last may be smaller."""
        order = list(range(len(dataset)))
        random.Random(spec["seed"]).shuffle(order)
        for start in range(0, len(order), spec["batch"]):
            yield self.collate([dataset[index] for index in order[start : start + spec["batch"]]])

    def batch_bytes(self, batch: Any) -> int:
        """Memory that a batch takes."""
        return sum(part.nbytes for part in batch)

    def to_device(self, batch: Any) -> Any:
        """A batch where the device trains on it."""
        return batch

    def as_loaded(self, batch: Any) -> Any:
        """A batch in the host's memory as `loader` leaves it: steps move it."""
        return batch

    def burst(self, training: Any, batches: Sequence[Any]) -> Tuple[int, int, List[float], List[Any]]:
        """On a device: a step on each batch, by its own clock: (start and end in ns, seconds of each, losses)."""
        raise NotImplementedError

    def smallest_step(self) -> Optional[Callable[[], Any]]:
        """A call that does what a first step does once in a process; None where launches need no such thing."""
        return None

    def allocated_peak_bytes(self) -> Optional[int]:
        """The most that this process's tensors took of its device; None on a CPU."""
        return None

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error says that memory ended."""
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            return True
        return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in MEMORY_SIGNS)

    def free_memory(self) -> None:
        """Give memory of the device back that nobody holds any more."""
