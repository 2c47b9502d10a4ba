"""A profiled launch: operator (and kernel) times by torch.profiler, counts, utilisation, what was mapped.

Nothing of a profiled launch is used as a timing. Its own slow-down is reported: the same steps are timed without
the profiler first.
"""

import os
import threading
import time

from tare.worker import elf, facts
from tare.worker.counting import count_step
from tare.worker.frameworks import synchronize
from tare.worker.marks import now_ns
from tare.worker.train import batches_as_loaded, build, import_workload, steady_steps

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Samples CPU time and memory of this process and its cgroup, at an interval, in a thread."""

    def __init__(self, interval_s):
        self.interval_s = interval_s
        self.rows = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        """Begin."""
        self._thread.start()
        return self

    def stop(self):
        """End, and give the samples."""
        self._stop.set()
        self._thread.join()
        return self.rows

    def _run(self):
        while True:
            resident = facts.read_text("/proc/self/statm")
            memory = facts.cgroup_value("memory", "memory.usage_in_bytes", "memory.current")
            at_ns, times = now_ns(), os.times()  # side by side: their quotient is the CPU use
            self.rows.append(
                {
                    "at_ns": at_ns,
                    "cpu_s": times.user + times.system + times.children_user + times.children_system,
                    "rss_bytes": int(resident.split()[1]) * PAGE_BYTES if resident else None,
                    "cgroup_memory_bytes": int(memory) if memory and memory.isdigit() else None,
                }
            )
            if self._stop.wait(self.interval_s):
                return


def record_trace(torch, training, batches, spec):
    """Profile some steps; returns seconds of each recorded step. The trace goes to spec['trace']."""
    try:
        from torch.profiler import ProfilerActivity, profile, schedule
    except ImportError as error:
        return [], "torch {} has no torch.profiler: {}".format(torch.__version__, error)
    activities = [ProfilerActivity.CPU]
    if spec["device"] == "cuda":
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=0, warmup=spec["warmup_steps"], active=spec["steps"], repeat=1)
    durations = []
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for index in range(spec["warmup_steps"] + spec["steps"]):
            started = time.perf_counter()
            training.step(batches[index % len(batches)])
            synchronize(torch, spec["device"])
            durations.append(time.perf_counter() - started)
            profiler.step()
    profiler.export_chrome_trace(spec["trace"])
    return durations[spec["warmup_steps"] :], None


def train_for(torch, training, batches, spec):
    """On a CUDA device, train spec["steady_s"] seconds unwatched: its sensors answer rarely. Steps made."""
    if spec["device"] != "cuda":
        return 0
    made, until = 0, time.perf_counter() + spec.get("steady_s", 0)
    while time.perf_counter() < until:
        for _ in range(len(batches)):
            training.step(batches[made % len(batches)])
            made += 1
        synchronize(torch, spec["device"])
    return made


def profiled_run(spec, marks):
    """The whole profiled launch; returns what the record holds."""
    sampler = Sampler(spec["sample_interval_s"]).start()
    torch, workload = import_workload(spec["workload"], marks, spec["threads"])
    dataset, training = build(torch, workload, spec, marks)
    batches = batches_as_loaded(torch, dataset, spec)
    training.step(batches[0])
    synchronize(torch, spec["device"])
    marks.add("first_step")
    warmup = spec["warmup_steps"]
    plain = steady_steps(torch, training, batches, warmup + spec["steps"], spec["device"])[warmup:]
    marks.add("plain_steps")
    steady = train_for(torch, training, batches, spec)
    marks.add("steady")
    profiled, reason = record_trace(torch, training, batches, spec)
    marks.add("profiled_steps")
    peak = torch.cuda.max_memory_allocated() if spec["device"] == "cuda" else None
    counts = count_step(torch, training, batches[0])
    samples = sampler.stop()
    mapped = [elf.fingerprint(path) for path in elf.mapped_paths()]
    return torch, {
        "plain_step_s": plain,
        "steady_steps": steady,
        "profiled_step_s": profiled,
        "profiler_reason": reason,
        "profiled_steps": len(profiled),
        "counts": counts,
        "samples": samples,
        "mapped": mapped,
        "memory_allocated_peak_bytes": peak,
    }
