"""Training steps of a command, from the ends that a hook inside it reported."""

from __future__ import annotations

import itertools

from tare.model.records.launches import LaunchRecord, Steps

WARMUP_STEPS = 2  # of each launch: the first ones allocate, and compile
FEWEST_STEPS = 8
NO_STEP = "no optimizer took a step: call tare.mark() at the end of a step, or give --steps a pattern of its output"
BEFORE, STEPS, AFTER = "before the first step", "the steps", "after the last step"


def step_times(launch: LaunchRecord) -> list[float]:
    """Seconds of the steps of a launch that count, in its own time; none where too few were seen."""
    ends = launch.steps.ends_ns if launch.steps is not None else ()
    if len(ends) < FEWEST_STEPS:
        return []
    return [max(1e-9, (later - sooner) / 1e9) for sooner, later in itertools.pairwise(ends)][WARMUP_STEPS:]


def parts_by_steps(launch: LaunchRecord) -> dict[str, float] | None:
    """Own seconds of a program before its first step, of its steps, and after the last one."""
    if launch.slices is None or launch.steps is None or len(launch.steps.ends_ns) < FEWEST_STEPS:
        return None
    arrived, ends = launch.slices.arrived_ns, launch.steps.ends_ns
    ended = int(launch.slices.own_ns(launch.slices.ended_ns))
    return {
        BEFORE: (ends[0] - arrived) / 1e9,
        STEPS: (ends[-1] - ends[0]) / 1e9,
        AFTER: (ended - ends[-1]) / 1e9,
    }


def why_no_steps(steps: Steps | None) -> str | None:
    """Why a launch reported no steps, or too few of them; None where it reported enough."""
    if steps is not None and steps.ends_ns:
        count = len(steps.ends_ns)
        return None if count >= FEWEST_STEPS else f"a run has {count} of them, and it takes {FEWEST_STEPS}"
    if steps is None or not steps.ran:
        return "the hook did not run: the job starts no Python, or one that ignores PYTHONPATH (python -I, -E)"
    if steps.lacking:
        return steps.lacking[0]
    if steps.errors:
        return f"the hook failed: {steps.errors[0]}"
    return NO_STEP
