"""A profiled launch: operator (and kernel) times by the framework's profiler, counts, utilisation, what was mapped.

Nothing of a profiled launch is used as a timing. Its own slow-down is reported: the same steps are timed without
the profiler first; and what sampling costs: steps with and without it, in turns.
"""

import math
import time
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from tare.worker import elf, instruments
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks, now_ns
from tare.worker.plain import plain_run
from tare.worker.sampling import Sampler
from tare.worker.train import build, epoch, first_batches, import_workload, steady_steps

TURNS_S = 2.0  # of steps with the sampler, and as long without: enough, and a slow job pays no more for it
SAMPLES_A_TURN = 2  # of the sampler, in a turn with it: a step may be shorter than the time between two


def spans(framework: Framework, training: Any, batches: Iterable[Any], most: int) -> List[List[int]]:
    """Start, end and samples of each of at most `most` steps; a step begins when its batch is asked for."""
    found: List[List[int]] = []
    started = now_ns()
    for batch in batches:
        training.step(batch)
        framework.synchronize()
        ended = now_ns()
        found.append([started, ended, len(batch[-1])])
        if len(found) >= most:
            break
        started = ended
    return found


def steps_in_turns(
    framework: Framework, training: Any, batches: Sequence[Any], count: int, step_s: float, sampler: Sampler
) -> Tuple[List[float], List[float]]:
    """Seconds of `count` steps or more, and SAMPLES_A_TURN, with the sampler and without, in turns (A B B A)."""
    burst = max(1, math.ceil(SAMPLES_A_TURN * sampler.interval_s / max(step_s, 1e-6)))
    burst = min(burst, (count + 1) // 2)
    found: Dict[bool, List[float]] = {True: [], False: []}
    for number in range(2 * math.ceil(count / float(burst))):
        sampled = number % 4 in (0, 3)
        if sampled:
            sampler.resume()
        else:
            sampler.pause()
        found[sampled] += steady_steps(framework, training, batches, burst)
    sampler.resume()
    return found[True], found[False]


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
    """The whole profiled launch; returns what the record holds. `plain`: without a profiler (tare.worker.plain)."""
    if spec.get("plain"):
        return plain_run(spec, marks)
    sampler = Sampler(spec["sample_interval_s"]).start()
    framework, workload = import_workload(spec, marks, spec["threads"])
    watcher = instruments.of(framework)
    dataset, training = build(framework, workload, spec, marks)
    batches = [framework.as_loaded(batch) for batch in first_batches(framework, dataset, spec["batch"])]
    marks.add("first_step_start")
    training.step(batches[0])
    framework.synchronize()
    marks.add("first_step")
    warmup = spec["warmup_steps"]
    loaded = spans(framework, training, epoch(framework, dataset, spec), spec["steps"])
    marks.add("loaded_steps")
    plain = steady_steps(framework, training, batches, warmup + spec["steps"])[warmup:]
    marks.add("plain_steps")
    steady = train_for(framework, training, batches, spec.get("steady_s", 0), min(plain))
    marks.add("steady")
    profiled, reason = watcher.trace(training, batches, spec)
    marks.add("profiled_steps")
    count = max(2, min(spec["steps"], int(TURNS_S / min(plain))))
    turns = steps_in_turns(framework, training, batches, count, min(plain), sampler)
    marks.add("sampling_turns")
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
        "loaded_steps": loaded,
        "samples": samples,
        "sample_reasons": sampler.reasons,
        "sampler_cpu_s": sampler.own_cpu_s,
        "sampled_step_s": turns[0],
        "unsampled_step_s": turns[1],
        "mapped": mapped,
        "memory_allocated_peak_bytes": peak,
    }


def counters_run(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """Warm up unwatched, then train spec["counter_steps"] steps that a profiler of counters (ncu) watches.

    The profiler was started switched off, and replays their kernels, so that nothing here is a time.
    """
    framework, workload = import_workload(spec, marks, spec["threads"])
    watcher = instruments.of(framework)
    dataset, training = build(framework, workload, spec, marks)
    batches = [framework.as_loaded(batch) for batch in first_batches(framework, dataset, spec["batch"])]
    losses = []
    for index in range(spec["warmup_steps"] + spec["counter_steps"]):
        if index == spec["warmup_steps"]:
            framework.synchronize()
            marks.add("warmed_up")
            watcher.watch()
        losses.append(training.step(batches[index % len(batches)]))
    framework.synchronize()
    watcher.unwatch()
    marks.add("counted")
    return framework, {"counter_steps": spec["counter_steps"], "losses": [float(loss) for loss in losses]}
