"""Training steps that a whole run measures after its epoch, by replicates of its training job.

`measured` of a specification says `levels` of the allocator, `replicates` of each, `warmup_steps` and `steps`, and
the
`cpus` on which they train: the same in all launches of a round, since two processors are seldom equally busy. A
replicate is a process forked from this one: its own model, optimizer and heap, some steps to warm up, then steps
that are timed each. They run one after the other, and the launch waits for each.

Launches of a round make each replicate at the same time: before each, and after the last, they meet at a gate
(`meet`), where there is one.

Where a process that has trained can't be followed by children that train (`why_not_forked`), this process itself
makes one replicate of each level, with the job that it has trained: its model is there, and compiled.
"""

import contextlib
import gc
import os
import random
import resource
import time
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from tare.worker import allocator
from tare.worker.apart import apart, can
from tare.worker.frameworks import Framework, finite
from tare.worker.marks import now_ns, peak_rss_bytes

GATE_AT, GATE_GO = "gate-at", "gate-go"  # FIFOs next to the record, of a launch that is held
LARGEST_PAD_BYTES = 1 << 20
LEVELS = (allocator.DEFAULT, allocator.STEADY)


def measure(
    framework: Framework, training: Any, build: Callable[[], Any], batches: Sequence[Any], spec: Mapping[str, Any]
) -> Dict[str, Any]:
    """Make all replicates of the job that `framework` trained, by `training` where they can't be forked, on
    `batches` in the host's memory; for the record. Raises ValueError for an unknown level or a loss that is not
    finite, ChildError.
    """
    wanted = spec["measured"]
    unknown = sorted(set(wanted["levels"]) - set(LEVELS))
    if unknown:
        raise ValueError("no level {} of the allocator for replicates".format(", ".join(map(repr, unknown))))
    reason = why_not_forked(framework, spec)
    found: List[Dict[str, Any]] = []
    left_out: Dict[str, str] = {}
    in_place: List[str] = []  # levels that this process itself was brought to
    for level in wanted["levels"]:
        lacking = why_not(level, in_place)
        if lacking is None and reason is None:
            found += forked(framework, build, batches, spec, level)
            continue
        meet(spec["record"])
        if lacking is not None:
            left_out[level] = lacking
        else:
            allocator.use(level)
            in_place.append(level)
            made = steps_of(framework, training, batches, wanted)
            found.append(dict(made, allocator=level, replicate=0, forked=False, reason=reason, pad_bytes=0))
        for _ in range(1, wanted["replicates"]):  # others make theirs
            meet(spec["record"])
    meet(spec["record"])
    return {"replicates": found, "levels_left_out": left_out}


def meet(record: str) -> None:
    """Say that this launch has come so far, and wait until the others have; `record` is its record's path."""
    folder = os.path.dirname(record)
    with contextlib.suppress(FileNotFoundError):  # nobody waits for it
        at, go = (os.open(os.path.join(folder, name), os.O_RDWR) for name in (GATE_AT, GATE_GO))
        os.write(at, b".")
        os.read(go, 1)
        os.close(at)
        os.close(go)


def why_not_forked(framework: Framework, spec: Mapping[str, Any]) -> Optional[str]:
    """Why forks of this trained process should not train (pools' threads are in none); None where they can."""
    if framework.device != "cpu":
        return "a device that this process uses can't be shared with forked processes"
    if not framework.can_fork:
        return "{} does not go on in a forked process".format(framework.name)
    if spec["threads"] > 1:
        return "the pool of {} threads would not be in a forked process".format(spec["threads"])
    if (spec.get("settings") or {}).get("compile"):
        return "each forked process would compile its model again"
    smallest = framework.smallest_step()
    if smallest is not None and not can(smallest):
        return "a child of a process that has trained with {} can't train".format(framework.name)
    return None


def why_not(level: str, in_place: Sequence[str]) -> Optional[str]:
    """Why this process or a fork can't come to an allocator's level after those `in_place`; None where it can."""
    if level == allocator.STEADY:
        return allocator.why_not_steady()
    if allocator.STEADY in in_place:
        return "this process's allocator was made steady before: ask for the default first"
    return allocator.why_not_default(os.environ)


def forked(
    framework: Framework, build: Callable[[], Any], batches: Sequence[Any], spec: Mapping[str, Any], level: str
) -> List[Dict[str, Any]]:
    """All replicates of a level, one forked process after the other."""
    found = []
    for number in range(spec["measured"]["replicates"]):
        seed = "{}/{}/{}/{}".format(spec["seed"], len(os.environ.get("TARE_PAD", "")), level, number)
        pad_bytes = random.Random(seed).randrange(LARGEST_PAD_BYTES)  # alike for equal seeds and environment blocks
        meet(spec["record"])
        made = apart(
            partial(replicate, framework, build, batches, spec["measured"], level, pad_bytes),
            spec["record"] + ".replicate",
            "replicate {} at allocator {}".format(number, level),
        )
        found.append(dict(made, allocator=level, replicate=number, forked=True, reason=None, pad_bytes=pad_bytes))
    return found


def replicate(
    framework: Framework,
    build: Callable[[], Any],
    batches: Sequence[Any],
    wanted: Mapping[str, Any],
    level: str,
    pad_bytes: int,
) -> Dict[str, Any]:
    """The life of one forked replicate."""
    if wanted.get("cpus"):
        os.sched_setaffinity(0, wanted["cpus"])
    if hasattr(gc, "freeze"):
        gc.freeze()  # what is shared with the parent is not walked, so not copied, by this process's collections
    allocator.give_back()
    allocator.use(level)
    pad = bytearray(pad_bytes)  # moves the heap, so that replicates differ where addresses matter
    made = steps_of(framework, build(), batches, wanted)
    del pad
    return made


def steps_of(
    framework: Framework, training: Any, batches: Sequence[Any], wanted: Mapping[str, Any]
) -> Dict[str, Any]:
    """Steps to warm up, then the timed ones, on batches in turn; what the record holds of them."""
    batches = [framework.to_device(batch) for batch in batches]
    warmup, steps = wanted["warmup_steps"], wanted["steps"]
    chosen = [batches[index % len(batches)] for index in range(warmup + steps)]
    _, warm, losses = timed(framework, training, chosen[:warmup])
    before, cpu_s = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    started, found, later = timed(framework, training, chosen[warmup:])
    cpu_s = time.process_time() - cpu_s  # getrusage's may be a tick of the kernel old
    after = resource.getrusage(resource.RUSAGE_SELF)
    values = finite(losses + later)
    on_cpu = framework.device == "cpu"
    return {
        "warmup_ends_ns" if on_cpu else "warmup_s": warm,
        "started_ns": started,
        "step_ends_ns" if on_cpu else "step_s": found,
        "cpu_s": cpu_s,
        "system_s": after.ru_stime - before.ru_stime,
        "faults": after.ru_minflt - before.ru_minflt,
        "preemptions": after.ru_nivcsw - before.ru_nivcsw,
        "loss_first": values[0],
        "loss_last": values[-1],
        "peak_rss_bytes": peak_rss_bytes(),
    }


def timed(framework: Framework, training: Any, batches: Sequence[Any]) -> Tuple[int, Sequence[float], List[Any]]:
    """A step on each batch; returns (start in ns, ends of the steps in ns, losses).

    On a device the seconds of each step, by the device's events, instead of the ends: there the host's instants say
    when a step was submitted.
    """
    if framework.device != "cpu":
        started, _, step_s, losses = framework.burst(training, batches)
        return started, step_s, losses
    ends, losses = [], []
    started = now_ns()
    for batch in batches:
        losses.append(training.step(batch))
        framework.synchronize()
        ends.append(now_ns())
    return started, ends, losses
