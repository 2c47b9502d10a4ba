"""A launch whose chosen steps a profiler of counters watches: it replays their kernels, so nothing here is a time.

The profiler (ncu, nsys) is told to begin switched off; the CUDA runtime's own calls switch it on for the steps.
"""

from tare.worker.frameworks import synchronize
from tare.worker.train import batches_as_loaded, build, import_workload


def counters_run(spec, marks):
    """Warm up unwatched, then train spec["counter_steps"] watched steps; returns what the record holds."""
    torch, workload = import_workload(spec["workload"], marks, spec["threads"])
    dataset, training = build(torch, workload, spec, marks)
    batches = batches_as_loaded(torch, dataset, spec)
    losses = []
    for index in range(spec["warmup_steps"] + spec["counter_steps"]):
        if index == spec["warmup_steps"]:
            synchronize(torch, spec["device"])
            marks.add("warmed_up")
            torch.cuda.profiler.start()
        losses.append(training.step(batches[index % len(batches)]))
    synchronize(torch, spec["device"])
    torch.cuda.profiler.stop()
    marks.add("counted")
    return torch, {"counter_steps": spec["counter_steps"], "losses": [float(loss) for loss in losses]}
