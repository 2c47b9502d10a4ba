"""What the rounds of the environments say, and the answer that follows from it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tare import __version__
from tare.analysis.reported_steps import NO_STEP, why_no_steps
from tare.experiments.sliced import LEFT_OUT
from tare.machine import facts
from tare.model.choices import Choice
from tare.model.journals.units import SERVED
from tare.model.records.campaigns import Unit
from tare.model.records.launches import LaunchRecord, Steps
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import Interval
from tare.weigh.answer import Answer, CauseFound, Ratio, Weighed
from tare.weigh.causes import Side, Suspicion, suspects
from tare.weigh.conclude import Cost, cost_of, reference_seconds, reference_step_s
from tare.weigh.facts import PythonFacts
from tare.weigh.places import Place
from tare.weigh.request import Request
from tare.weigh.rounds import Rounds, launch_name
from tare.weigh.words import between

CLOSURES = ("LBFGS ",)  # optimizers that calculate the loss several times in a step
NO_PYTHON_FACTS = "With --steps none, Tare can't find causes inside the job's Python."
IN_THE_WAY = (
    "Some runs that took turns with others failed, but the job works alone. Runs of a round share the job's "
    "folder. If they write the same files, use --between true: runs then follow each other."
)


@dataclass(kw_only=True)
class Found:
    """What the first campaign found."""

    request: Request
    places: Mapping[str, Place]
    unavailable: Mapping[str, str]
    units: list[Unit]
    rounds: Rounds
    python: dict[str, PythonFacts | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the facts that the calibration has left."""
        for name in self.places:
            self.python[name] = self.rounds.python_of(name)

    @property
    def alpha(self) -> float:
        """Of each interval: those of all environments hold together (Bonferroni)."""
        return (1 - self.request.confidence) / max(1, len(self.places) - 1)

    def cost(self, name: str) -> Cost:
        """Of an environment by its name."""
        return cost_of(self.units, launch_name(name), self.alpha)

    def side(self, name: str) -> Side:
        """An environment as causes look at it."""
        return self.places[name].side(self.request, self.python[name], self._servers_share(name))

    def _servers_share(self, name: str) -> float:
        used = [
            one.slices.servers_cpu_us / max(1, one.slices.cpu_us[-1])
            for unit in self.units
            if (one := unit.launches.get(launch_name(name))) is not None and one.ok and one.slices is not None
        ]
        return max(used, default=0.0)

    def suspected(self) -> dict[str, list[Suspicion]]:
        """By name of each environment that is not shown to be equal, what may be the cause."""
        reference = self.side(self.request.reference.name)
        found = {}
        for name in list(self.places)[1:]:
            if self.cost(name).verdict(self.request.margin) in ("different", "different within margin"):
                found[name] = suspects(reference, self.side(name))
        return found

    def _steps(self, name: str) -> Steps | None:
        """The steps of a launch of an environment, and what reported them; None where no launch was watched."""
        launches = [unit.launches[name] for unit in self.units if name in unit.launches]
        return next((one.steps for one in reversed(launches) if one.ok and one.steps is not None), None)

    @property
    def hook_ran(self) -> bool:
        """Whether the hook watches the reference."""
        steps = self._steps(HOST)
        return steps is not None and steps.ran

    def answer(
        self,
        minutes: float,
        causes: Mapping[str, Sequence[CauseFound]] | None = None,
        *,
        hook: Interval | None = None,
        interrupted: bool = False,
    ) -> Answer:
        """The answer to write and to print.

        Args:
            minutes: taken.
            causes: by name of the environment; None: none were tried so far.
            hook: log-ratio of whole runs of the reference with the hook to those without it.
            interrupted: the user ended the search for causes.
        """
        request, first = self.request, self.request.reference
        control = cost_of(self.units, CONTROL, 1 - request.confidence)
        steps = self._steps(HOST)
        watched = None if hook is None else Ratio.of(hook)
        return Answer(
            tare=__version__,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            command=request.command,
            workdir=str(request.workdir),
            machine=machine_line(),
            confidence=request.confidence,
            margin=request.margin,
            rounds=len(self.units),
            minutes=minutes,
            budget_minutes=request.minutes,
            reference=first.name,
            reference_text=first.text,
            reference_s=reference_seconds(self.units),
            step_s=reference_step_s(self.units),
            steps=steps.teller if steps is not None else None,
            control=control.run_ratio,
            control_step=control.step_ratio,
            hook=watched,
            interrupted=interrupted,
            environments=tuple(
                self._weighed(choice, (causes or {}).get(choice.name, ())) for choice in request.choices[1:]
            ),
            left_out=request.left_out,
            sought=request.confirm,
            remarks=(
                *self.rounds.remarks,
                *([IN_THE_WAY] if fail_only_in_turn(self.rounds.sealed().units) else []),
                *self._remarks(control),
                *steps_remarks(first.name, steps, watched),
                *([NO_PYTHON_FACTS] if request.steps == "none" and request.confirm else []),
            ),
        )

    def _remarks(self, control: Cost) -> Iterator[str]:
        """What the reader has to know in addition to the rows."""
        ends = control.run.mean_low_high if control.run is not None else None
        if ends is not None:
            _, low, high = ends
            if not low <= 0 <= high:
                yield (
                    "The A/A control does not contain zero: two launches of the same environment differ by more "
                    "than chance. Do not trust differences of this size."
                )
            elif (high - low) / 2 > math.log1p(self.request.margin):
                more = math.ceil(self.request.minutes * (((high - low) / 2) / math.log1p(self.request.margin)) ** 2)
                half = 50 * (math.exp(high) - math.exp(low))
                yield (
                    f"The A/A control spans ±{half:.1f}%, more than the margin, likely because other "
                    "programs use this machine. Do not trust differences smaller than that. "
                    f"--minutes {more} should bring it within the margin."
                )
        step = control.step.mean_low_high if control.step is not None else None
        if step is not None and not step[1] <= 0 <= step[2]:
            yield (
                "The A/A control of steps does not contain zero: two launches of the same environment differ by "
                "more than chance. Do not trust differences of steps of this size."
            )

    def _weighed(self, choice: Choice, causes: Sequence[CauseFound]) -> Weighed:
        if choice.name in self.unavailable:
            reason = self.unavailable[choice.name]
            return Weighed(name=choice.name, text=choice.text, status="unavailable", reason=reason)
        place, cost, name = self.places[choice.name], self.cost(choice.name), launch_name(choice.name)
        launches = [unit.launches[name] for unit in self.units if name in unit.launches]
        if cost.run is None:
            reason = failure_of(launches) or "it has no complete round"
            return Weighed(name=choice.name, text=choice.text, digest=place.digest, status="failed", reason=reason)
        served = any(name in unit.whole for unit in self.units)
        was_sliced = not served and any(one.slices is not None and one.slices.is_sliced for one in launches)
        return Weighed(
            name=choice.name,
            text=choice.text,
            digest=place.digest,
            status="weighed",
            verdict=cost.verdict(self.request.margin),
            run=cost.run_ratio,
            parts=cost.part_seconds,
            step=cost.step_ratio,
            steps_reason=None
            if cost.step is not None or self.request.steps == "none"
            else self._why_no_steps(name),
            sliced=was_sliced,
            unsliced_reason=SERVED if served else None if was_sliced else place.alone or self._refused(),
            causes=tuple(causes),
            remarks=(*self._other_programs(place), *self._other_site(name)),
        )

    def _why_no_steps(self, name: str) -> str:
        """Why steps of an environment are not compared: it lacks them, or the reference does."""
        for one in (name, HOST):
            if (why := why_no_steps(self._steps(one))) is not None:
                if why == NO_STEP and self.request.steps != "auto":
                    why = f"no line of the output of its Python matched --steps {self.request.steps!r}"
                return why if one == name else f"in {self.request.reference.name}, {why}"
        return "not every round has them"

    def _other_programs(self, place: Place) -> Iterator[str]:
        """Programs of the job that are not those of the reference: more than the environment is compared then."""
        first = self.request.reference.name
        theirs, ours = self.places[first].seen.programs, place.seen.programs
        for path in sorted(theirs.keys() | ours.keys()):
            if theirs.get(path) != ours.get(path):
                yield f"Its {path} is a different file than in {first}, so this compares more than the environment."

    def _other_site(self, name: str) -> Iterator[str]:
        """A `sitecustomize` that the reference does not have."""
        own, theirs = self._steps(name), self._steps(HOST)
        if own is not None and own.shadowed and (theirs is None or own.shadowed != theirs.shadowed):
            yield f"Tare's hook also runs the environment's own {own.shadowed}, as Python would do."

    def _refused(self) -> str | None:
        plan = self.rounds.sealed().plan
        reasons = (str(unit.slicing["refused"]) for unit in self.units if unit.slicing and unit.slicing["refused"])
        return plan.slicing_refused or next(reasons, None)


def steps_remarks(reference: str, steps: Steps | None, hook: Ratio | None) -> Iterator[str]:
    """What the reader has to know of steps: what is not counted, what each holds, what the hook costs."""
    if steps is not None and steps.others:
        yield f"Tare counted the steps of {steps.teller}, and not those of {', '.join(steps.others)}."
    elif steps is not None and steps.passes is not None and round(steps.passes / len(steps.ends_ns)) > 1:
        passes = round(steps.passes / len(steps.ends_ns))
        again = (steps.teller or "").startswith(CLOSURES)
        why = "the optimizer calculates the loss again" if again else "it accumulates their gradients"
        yield f"A step has about {passes} backward passes: {why}."
    if steps is not None and steps.processes > 1:
        yield f"{steps.processes} processes make steps. Tare compares the process with the most steps."
    if hook is not None:
        yield f"With the hook that detects steps, a run of {reference} takes {between(hook)}."
    elif steps is not None and steps.ran:
        yield "The cost of the hook that detects steps was not measured."


def fail_only_in_turn(units: Sequence[Unit]) -> bool:
    """Whether launches fail that take turns with others, of environments in which the job runs by itself."""
    every = [
        (name, one.ok, one.slices.is_sliced)
        for unit in units
        for name, one in unit.launches.items()
        if one.slices is not None
    ]
    alone = {name for name, ok, is_sliced in every if ok and not is_sliced}
    return any(name in alone and is_sliced and not ok for name, ok, is_sliced in every)


def failure_of(launches: Iterable[LaunchRecord]) -> str | None:
    """Why launches of an environment failed, as the first of them says; None where none did.

    That a round was made for others is no failure.
    """
    return next((one.reason for one in launches if one.reason and one.reason != LEFT_OUT), None)


def machine_line() -> str:
    """The processor and the kernel in a line."""
    found = facts.describe()
    cpu = found.get("cpu_model") or "an unnamed processor"
    return f"{cpu}, {os.cpu_count()} CPUs, Linux {os.uname().release}"
