"""A job that trains while another launch runs, until it is asked to end: loader, model, one epoch after the other.

It says `training` once its first steps are made, and trains on without being asked anything; after each step it
looks whether it was asked to end. When each of its steps ended, and the CPU time of them all, go into its last
line: whoever reads it knows what really ran while the other launch did.

The line protocol is PROTOCOL: `training {steps}`, `end {}`, `ended {step_ends_ns, seconds, cpu_s}`.
"""

import resource
import select
from typing import Any, Dict, List, Mapping, Tuple

from tare.worker.frameworks import Framework
from tare.worker.line import Line, reason_of
from tare.worker.marks import Marks, now_ns
from tare.worker.train import build, epoch, import_workload

PROTOCOL = "tare-co-runner/1"
FIRST_STEPS = 2  # the first one does what is done once


def cpu_s() -> float:
    """CPU time of this process and of the children that were reaped."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def keep_training(
    line: Line, framework: Framework, dataset: Any, training: Any, spec: Mapping[str, Any]
) -> List[int]:
    """Train until asked to end; the ends of the steps after the first ones, in ns."""
    made = 0
    ends: List[int] = []
    while True:
        for batch in epoch(framework, dataset, spec):
            training.step(batch)
            framework.synchronize()
            made += 1
            if made > FIRST_STEPS:
                ends.append(now_ns())
            elif made == FIRST_STEPS:
                line.say("training", steps=made)
            if made >= FIRST_STEPS and (line.rest or select.select([line.input], [], [], 0)[0]):
                return ends
        training.end_epoch()


def serve(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """The life of a co-runner; returns what the record holds."""
    line = Line(PROTOCOL, spec.get("fifos"))
    try:
        framework, workload = import_workload(spec, marks, spec["threads"])
        dataset, training = build(framework, workload, spec, marks)
        started, before = now_ns(), cpu_s()
        ends = keep_training(line, framework, dataset, training, spec)
        line.hear()  # the word to end: over a channel the next to read would take it for its own
        results = {"step_ends_ns": ends, "seconds": (now_ns() - started) / 1e9, "cpu_s": cpu_s() - before}
    except Exception as error:
        line.say("failed", reason=reason_of(error))
        raise
    line.say("ended", **results)
    return framework, results
