"""Candidates of a choice that are to be measured, and what one launch of one took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A candidate that is to be measured."""

    workload: str
    batch: int
    threads: int
    env: str
    steps: int  # that a launch trains; two at least
    options: Mapping[str, int | float] = field(default_factory=dict)
    allocator: str | None = None  # None for the study's
    settings: Mapping[str, str] = field(default_factory=dict)  # levels of the framework's settings, by factor
    loss_steps: int | None = None  # after which the loss is wanted; None for no loss


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of one launch, in its own time."""

    start_s: float  # until the first line of the program, and after its last
    imports_s: float
    step_s: float  # mean of the steps after the first
    rest_s: float  # data, model and first step
    loss: float | None = None  # after the steps that were wanted

    def elapsed_s(self, steps: int) -> float:
        """Of a job of so many steps, without data, model and first step."""
        return self.start_s + self.imports_s + steps * self.step_s

    def whole_s(self, steps: int) -> float:
        """Of a job of so many steps; what `rest_s` has of it includes the first step, and so a compiler's work."""
        return self.start_s + self.imports_s + self.rest_s + (steps - 1) * self.step_s
