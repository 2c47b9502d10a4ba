"""Predictions held against measurement: the best candidates and the framework's default, in sliced rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.core.errors import UnavailableError
from tare.model.candidates import Times, Wanted
from tare.model.roles import CONTROL
from tare.predict.choose import Candidate, Choice, default_of
from tare.predict.elapsed import Elapsed
from tare.predict.requests import ALLOCATOR, Request
from tare.predict.targets import TargetRecord
from tare.stats.intervals import t_quantile

LAUNCH_S = 2.0  # of training in a launch, as predicted
FEWEST_STEPS = 8
ALPHA = 0.05  # of all intervals together


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A candidate as predicted and as measured."""

    name: str  # CONTROL for the second reference
    predicted: Elapsed | None  # None where it could not be predicted
    measured_s: float  # elapsed time from mean times of launches
    rest_s: float  # of data, model and first step, which come on top
    # of its whole job to the reference's, a compiler's work included; with an interval at 1 - ALPHA for all
    ratio: float
    low: float
    high: float
    rounds: int
    loss_apart: float | None = None  # largest share by which its loss differs from the reference's, where asked for

    @property
    def error(self) -> float | None:
        """Predicted less measured time, by the measured."""
        return None if self.predicted is None else self.predicted.seconds / self.measured_s - 1


def to_measure(request: Request, choice: Choice, target: TargetRecord, best: int) -> dict[str, Wanted]:
    """The framework's default, which is the reference, and the first candidates of a choice, by name."""
    default = default_of(request, target)
    step_s = {row.candidate: row.step_s for row in choice.ranked}
    first = [row.candidate for row in choice.ranked if row.candidate != default][:best]
    return {one.name: wanted_of(request, one, step_s.get(one)) for one in (default, *first)}


def wanted_of(request: Request, candidate: Candidate, step_s: float | None) -> Wanted:
    """A candidate as it is launched, for a few seconds of training, by what a step of it is expected to take."""
    steps = FEWEST_STEPS if step_s is None else max(FEWEST_STEPS, math.ceil(LAUNCH_S / step_s))
    after = None if request.loss_within is None else request.loss_steps
    levels = dict(candidate.settings)
    allocator = levels.pop(ALLOCATOR, None)
    return Wanted(
        workload=request.workload,
        options=request.options,
        batch=candidate.batch,
        threads=candidate.threads,
        env=candidate.env,
        steps=max(steps, after or 0),
        allocator=allocator,
        settings=levels,
        loss_steps=after,
    )


def compare(
    request: Request,
    choice: Choice,
    wanted: Mapping[str, Wanted],
    rounds: Sequence[Mapping[str, Times]],
    *,
    time_of: Callable[[Times, int], float] = Times.elapsed_s,
    alpha: float = ALPHA,
    intervals: int | None = None,
) -> list[Checked]:
    """Every candidate that has times in each round, in the order of `wanted`, the control after the reference.

    The ratio is the mean over rounds of log(candidate / mean of both references), that of the control
    log(second reference / reference), each of whole jobs, with Student's interval (Bonferroni over all of them).

    `rounds`: times by name, for each round that counts. `time_of`: the measured time, by the times of a launch and
    the steps of the job. `alpha`: of all intervals together; `intervals`: how many they are, where there are others
    than these. Raises UnavailableError: there are too few rounds.
    """
    if len(rounds) < 2:
        raise UnavailableError(f"{len(rounds)} rounds have no interval: give it more --minutes")
    reference = next(iter(wanted))
    rows = {row.candidate.name: row for row in choice.ranked}
    names = [reference, CONTROL, *(name for name in wanted if name != reference)]
    names = [name for name in names if all(name in one for one in rounds)]
    half_of = t_quantile(alpha / (intervals or max(1, len(names) - 1)), len(rounds) - 1) / math.sqrt(len(rounds))
    steps = {name: request.steps_of(wanted[reference if name == CONTROL else name].batch) for name in names}
    taken = {name: [time_of(one[name], steps[name]) for one in rounds] for name in names}
    logs = {name: np.log([one[name].whole_s(steps[name]) for one in rounds]) for name in names}
    found = []
    for name in names:
        base = logs[reference] if name in (reference, CONTROL) else (logs[reference] + logs[CONTROL]) / 2
        ratios = logs[name] - base
        mean, half = float(ratios.mean()), float(half_of * ratios.std(ddof=1))
        row = rows.get(reference if name == CONTROL else name)
        found.append(
            Checked(
                name=name,
                predicted=None if row is None else row.elapsed,
                measured_s=float(np.mean(taken[name])),
                rest_s=float(np.mean([one[name].rest_s for one in rounds])),
                ratio=math.exp(mean),
                low=math.exp(mean - half),
                high=math.exp(mean + half),
                rounds=len(rounds),
                loss_apart=_loss_apart([(one[name].loss, one[reference].loss) for one in rounds]),
            )
        )
    return found


def _loss_apart(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Largest relative difference of the losses of a pair; None where one is not known."""
    apart = [abs(own / other - 1) for own, other in pairs if own is not None and other]
    return max(apart) if apart and len(apart) == len(pairs) else None


def loss_refusal(request: Request, row: Checked) -> str | None:
    """Why a candidate that was measured breaks the request's limit of the loss; None where it keeps to it."""
    if request.loss_within is None or (row.loss_apart is not None and row.loss_apart <= request.loss_within):
        return None
    if row.loss_apart is None:
        return f"its loss after {request.loss_steps} steps is not known: name a smaller loss_steps"
    return (
        f"its loss after {request.loss_steps} steps is {row.loss_apart:.2%} from the default's, and may be "
        f"{request.loss_within:.2%} from it"
    )
