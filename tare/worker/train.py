"""A whole training run as the paper timed it, and the parts of one that other launches share."""

import math

from tare.worker import settings
from tare.worker.frameworks import import_torch, synchronize
from tare.worker.marks import now_ns


def import_workload(name, marks, threads):
    """Import the framework and what the workload's description names; returns (torch, workload module)."""
    import importlib

    workload = importlib.import_module("workloads." + name)
    torch = import_torch(threads)
    for module in workload.DESCRIPTION["imports"]:
        import_first(importlib, module if isinstance(module, (tuple, list)) else (module,))
    marks.add("imports")
    return torch, workload


def import_first(importlib, names):
    """Import the first of `names` that this stack has.

    Raises:
        ImportError: it has none of them.
    """
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            if getattr(error, "name", None) != name:  # it is there, and something that it needs is not
                raise
    return importlib.import_module(names[-1])


def build(torch, workload, spec, marks):
    """Data, then model; returns (dataset, training)."""
    dataset = workload.Training.load(spec["data"])
    marks.add("data")
    training = build_model(torch, workload, spec)
    marks.add("model")
    return dataset, training


def build_model(torch, workload, spec):
    """The training job on its device, at the launch's settings. Asserts the size of the model."""
    wanted = spec.get("settings") or {}
    settings.prepare(torch, wanted)
    training = workload.Training(torch, spec["device"])
    synchronize(torch, spec["device"])
    parameters = sum(p.numel() for p in training.model.parameters() if p.requires_grad)
    expected = workload.DESCRIPTION["parameters"]
    if parameters != expected:
        raise ValueError("the model has {} parameters, its description says {}".format(parameters, expected))
    settings.apply(torch, training, wanted, spec["device"])
    return training


def loader_of(torch, dataset, spec):
    """The paper's loader: shuffled, one worker process; pinned memory only where there is a device."""
    generator = torch.Generator()
    generator.manual_seed(spec["seed"])
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=spec["batch"],
        shuffle=True,
        num_workers=spec["loader_workers"],
        pin_memory=spec["device"] == "cuda",
        generator=generator,
    )


def run_epoch(torch, training, loader, spec, marks=None):
    """One epoch. Returns (ends of its steps in ns, losses as floats, samples).

    On a CUDA device a step's end is the end of its submission; the epoch's own end is synchronised.
    """
    ends, losses, samples = [], [], 0
    for batch in loader:
        losses.append(training.step(batch))
        samples += len(batch[-1])
        if marks is not None and not ends:
            synchronize(torch, spec["device"])
            ends.append(marks.add("first_step"))
        else:
            ends.append(now_ns())
    synchronize(torch, spec["device"])
    values = [float(loss) for loss in losses]
    wrong = [number for number, value in enumerate(values, start=1) if not math.isfinite(value)]
    if wrong:
        raise ValueError("the loss of step {} is {}".format(wrong[0], values[wrong[0] - 1]))
    training.end_epoch()
    return ends, values, samples


def load_data(torch, workload, spec, marks):
    """Every full batch of the workload's data, in order, collated in memory and not yet on a device."""
    dataset = workload.Training.load(spec["data"])
    marks.add("data")
    batches = collated(torch, dataset, spec["batch"])
    marks.add("batches")
    return batches


def collated(torch, dataset, batch):
    """Every full batch of a dataset, in order."""
    return list(torch.utils.data.DataLoader(dataset, batch_size=batch, shuffle=False, drop_last=True))


def in_memory(batches, device):
    """Batches on the device that trains on them."""
    return [[part.to(device) for part in batch] for batch in batches]


def batches_as_loaded(torch, dataset, spec):
    """Every full batch of the dataset, in order, in the host's memory as `loader_of` leaves it: steps move it."""
    batches = collated(torch, dataset, spec["batch"])
    if spec["device"] != "cuda":
        return batches
    return [[part.pin_memory() for part in batch] for batch in batches]


def steady_steps(torch, training, batches, count, device):
    """Seconds of each of `count` training steps on batches in memory, in turn, synchronised step by step."""
    durations = []
    for index in range(count):
        batch = batches[index % len(batches)]
        started = now_ns()
        training.step(batch)
        synchronize(torch, device)
        durations.append((now_ns() - started) / 1e9)
    return durations


def whole_run(spec, marks):
    """The timed run; returns what the record holds."""
    torch, workload = import_workload(spec["workload"], marks, spec["threads"])
    dataset, training = build(torch, workload, spec, marks)
    ends, losses, samples = run_epoch(torch, training, loader_of(torch, dataset, spec), spec, marks)
    marks.add("epoch_end")
    return torch, {
        "samples": samples,
        "steps": len(ends),
        "step_ends_ns": ends,
        "losses": losses,
    }
