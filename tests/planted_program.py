"""Runs inside in place of tare/worker/main.py: the same program, with a known fault planted in the training step.

    python planted_program.py CODE FAULT SPEC

CODE is the folder of the staged code, SPEC the launch's specification. FAULT is JSON: `{"waste": 0.02}` spins after
each step for that share of the step's own processor time, since the clock goes on while a process is stopped;
`{"batch_share": 0.5}` trains on the first half of each batch; `{"cpu": 0.03}` spins after each step until the
process has used 3% more processor time than its work alone, what came before the first step included.
"""

import json
import sys
import time


def wasting(step, share):
    """A step that takes `share` more processor time than it does."""

    def wasted(self, batch):
        started = time.process_time_ns()
        loss = step(self, batch)
        until = started + (time.process_time_ns() - started) * (1 + share)
        while time.process_time_ns() < until:
            pass
        return loss

    return wasted


def owing(step, share, clock=time.process_time):
    """A step that is followed by a spin for a share of the processor time of all the process's work so far."""
    wasted = [0.0]

    def charged(self, batch):
        loss = step(self, batch)
        own = clock() - wasted[0]
        now = clock()
        while now < own * (1 + share):
            now = clock()
        wasted[0] = max(wasted[0], now - own)
        return loss

    return charged


def shortening(step, share):
    """A step that computes less than it was given."""

    def shortened(self, batch):
        return step(self, [part[: int(len(part) * share)] for part in batch])

    return shortened


def plant(training, fault):
    """Put the fault into the class of a workload's training jobs."""
    if "waste" in fault:
        training.step = wasting(training.step, fault["waste"])
    if "cpu" in fault:
        training.step = owing(training.step, fault["cpu"])
    if "batch_share" in fault:
        training.step = shortening(training.step, fault["batch_share"])


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv):
        sys.exit(print(__doc__))
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    code, fault_json, spec_path = sys.argv[1:]
    sys.path[0] = code
    import importlib

    from tare.worker import main as program

    with open(spec_path) as handle:  # noqa: PTH123
        spec = json.load(handle)
    for job in spec.get("jobs", [spec]):
        plant(importlib.import_module("workloads." + job["workload"]).Training, json.loads(fault_json))
    sys.exit(program.main(spec_path))
