"""A profiled launch: operator (and kernel) times by the framework's profiler, counts, utilisation, what was mapped.

Nothing of a profiled launch is used as a timing. Its own slow-down is reported: the same steps are timed without
the profiler first.
"""

import os
import threading
import time
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from tare.worker import elf, facts, instruments
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks, now_ns
from tare.worker.train import build, first_batches, import_workload, steady_steps

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Samples CPU time and memory of this process and its cgroup, at an interval, in a thread."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.rows: List[Dict[str, Any]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Sampler":
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> List[Dict[str, Any]]:
        """End, and give the samples."""
        self._stop.set()
        self._thread.join()
        return self.rows

    def _run(self) -> None:
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


def train_for(framework: Framework, training: Any, batches: Sequence[Any], steady_s: float, step_s: float) -> int:
    """On a CUDA device, train so many seconds unwatched: its sensors answer rarely. Steps made."""
    if framework.device != "cuda":
        return 0
    made, until = 0, time.perf_counter() + steady_s
    while time.perf_counter() < until:
        left = int((until - time.perf_counter()) / step_s)
        for _ in range(max(1, min(len(batches), left))):
            training.step(batches[made % len(batches)])
            made += 1
        framework.synchronize()
    return made


def profiled_run(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """The whole profiled launch; returns what the record holds."""
    sampler = Sampler(spec["sample_interval_s"]).start()
    framework, workload = import_workload(spec, marks, spec["threads"])
    watcher = instruments.of(framework)
    dataset, training = build(framework, workload, spec, marks)
    batches = [framework.as_loaded(batch) for batch in first_batches(framework, dataset, spec["batch"])]
    training.step(batches[0])
    framework.synchronize()
    marks.add("first_step")
    warmup = spec["warmup_steps"]
    plain = steady_steps(framework, training, batches, warmup + spec["steps"])[warmup:]
    marks.add("plain_steps")
    steady = train_for(framework, training, batches, spec.get("steady_s", 0), min(plain))
    marks.add("steady")
    profiled, reason = watcher.trace(training, batches, spec)
    marks.add("profiled_steps")
    peak = framework.allocated_peak_bytes()
    counts = watcher.count(training, batches[0])
    samples = sampler.stop()
    mapped = [elf.fingerprint(path) for path in elf.mapped_paths()]
    return framework, {
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
