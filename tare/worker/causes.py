"""A launch that looks for causes: files first, then the kernels of a step, then its operators.

Nothing of it is used as a time of a whole run or of a step. A launch that knows which files the imports need reads
them before it imports: what is left of the imports is then no matter of files.
"""

from tare.worker import kernels, needed
from tare.worker.frameworks import synchronize
from tare.worker.train import build_model, collated, import_workload, in_memory

US = 1e-6


def causes_run(spec, marks):
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
    torch, workload = import_workload(
        spec["workload"], marks, 1
    )  # one thread: a pool would not live through a fork
    if not files:
        torch.set_num_threads(spec["threads"])
        return torch, {"listed": needed.needed() if spec.get("keep_list", True) else None}
    results = {"first": first, "files": needed.passes(files, spec["repetitions"])}
    marks.add("files")
    dataset = workload.Training.load(spec["data"])
    batches = collated(torch, dataset, spec["batch"])
    results["kernels"] = kernels.capture(torch, workload, batches, spec)
    marks.add("kernels")
    torch.set_num_threads(spec["threads"])
    training = build_model(torch, workload, spec)
    results["operators"] = operators(torch, training, in_memory(batches, spec["device"]), spec)
    marks.add("operators")
    return torch, results


def operators(torch, training, batches, spec):
    """Calls and own seconds of every operator over the recorded steps: {"rows", "steps", "reason"}."""
    try:
        from torch.profiler import ProfilerActivity, profile, schedule
    except ImportError as error:
        return {"rows": None, "steps": 0, "reason": "torch {}: {}".format(torch.__version__, error)}
    on_cuda = spec["device"] == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_cuda else [])
    plan = schedule(wait=0, warmup=spec["warmup_steps"], active=spec["steps"], repeat=1)
    with profile(activities=activities, schedule=plan) as profiler:
        for index in range(spec["warmup_steps"] + spec["steps"]):
            training.step(batches[index % len(batches)])
            synchronize(torch, spec["device"])
            profiler.step()
    return {"rows": rows_of(profiler.key_averages()), "steps": spec["steps"], "reason": None}


def rows_of(averages):
    """The profiler's sums as rows: operators by their own time on the CPU, kernels by theirs on the device."""
    table = {}
    for average in averages:
        if average.key.startswith("ProfilerStep"):
            continue
        on_device = str(getattr(average, "device_type", "")).endswith("CUDA")
        if on_device and getattr(average, "is_user_annotation", False):
            continue  # the device's whole time inside an optimizer's step, whose kernels have rows of their own
        library = "cuda" if on_device else "operator"
        name = kernels.without_hash(average.key) if on_device else average.key
        own = _device_us(average) if on_device else average.self_cpu_time_total
        row = table.setdefault((library, name), [0, 0.0])
        row[0] += average.count
        row[1] += own * US
    return [
        {"library": key[0], "kernel": key[1], "shape": None, "calls": row[0], "s": row[1]}
        for key, row in sorted(table.items())
    ]


def _device_us(average):
    """Own microseconds on the device, under the name of this version of the profiler."""
    for name in ("self_device_time_total", "self_cuda_time_total"):
        if hasattr(average, name):
            return getattr(average, name)
    return 0.0
