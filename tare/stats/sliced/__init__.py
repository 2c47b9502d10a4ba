"""Statistics of sliced rounds: whole jobs that advance in slices, one at a time; numbers in, numbers out.

A round launches every environment and the host a second time. A launch's own time is the sum of its slices. A slice
is a payment, not an observation: the round is the unit of every interval.
"""

from tare.stats.sliced.ratios import body_estimates, body_log_ratios, rounds_needed
from tare.stats.sliced.steps import StepFit, step_effects, step_seconds
from tare.stats.sliced.switches import SwitchCost, SwitchCosts, at_long_quantum, switch_cost
from tare.stats.sliced.whole import Once, WholeRun, whole_run

__all__ = [
    "Once",
    "StepFit",
    "SwitchCost",
    "SwitchCosts",
    "WholeRun",
    "at_long_quantum",
    "body_estimates",
    "body_log_ratios",
    "rounds_needed",
    "step_effects",
    "step_seconds",
    "switch_cost",
    "whole_run",
]
