"""Simulated sliced rounds: jobs that advance in slices, one at a time, on a machine whose speed wanders.

Machine: the logarithm of the slowdown is the sum of a slow and a fast Ornstein-Uhlenbeck process and of one-sided
storms, so that runs one after the other differ by 16 to 39% and steps are correlated as recorded. A job has two
phases, imports and steps, each with a sensitivity to the noise. All arrays have rounds as their first axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import signal

from tare.experiments.orders import williams_pairs
from tare.model.registry import HOST
from tare.model.roles import CONTROL

TICK_S = 0.01
IMPORTS_S, STEP_S, STEPS = 2.0, 0.05, 40
QUANTA_S, ODDS = (0.02, 0.04, 0.08), (0.25, 0.5, 0.25)
MOST_CYCLES = 1500
STARTS_S = (0.0, 8.0, 16.0, 24.0, 32.0, 40.0)
PACINGS = ("equal", "by length", "by phase")


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Of the machine: standard deviations of the log slowdown, and how long each part lasts."""

    slow: float = 0.25
    slow_s: float = 9.0
    fast: float = 0.1
    fast_s: float = 0.01
    storm: float = 0.75  # height by standard deviation above the threshold
    storm_s: float = 4.5
    threshold: float = 1.3  # standard deviations beyond which a storm begins

    def slowdown(self, generator: np.random.Generator, rounds: int, seconds: float) -> np.ndarray:
        """Log of the slowdown by tick, shape [rounds, ticks]."""
        ticks = round(seconds / TICK_S)
        storms = _wander(generator, rounds, ticks, self.storm_s)
        found = self.storm * np.maximum(0.0, storms - self.threshold)
        found += self.slow * _wander(generator, rounds, ticks, self.slow_s)
        found += self.fast * _wander(generator, rounds, ticks, self.fast_s)
        return found


def _wander(generator: np.random.Generator, rounds: int, ticks: int, lasts_s: float) -> np.ndarray:
    """A stationary Ornstein-Uhlenbeck process of variance one; shape [rounds, ticks]."""
    keep = math.exp(-TICK_S / lasts_s)
    shocks = generator.standard_normal((rounds, ticks), dtype=np.float32)
    shocks[:, 1:] *= math.sqrt(1 - keep**2)
    return signal.lfilter(np.float32([1.0]), np.float32([1.0, -keep]), shocks, axis=1)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one launch does: seconds of each phase on the undisturbed machine, and what a switch costs it."""

    imports_s: float = IMPORTS_S
    step_s: float = STEP_S
    switch_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Design:
    """How rounds are run.

    Attributes:
        jobs: by launch; the two hosts among them.
        pacing: `equal` slices, slices `by length` of the job, or `by phase` of it.
        sensitivity: of imports and of steps to the noise.
        launch_spread: standard deviation of the log of a launch's imports and steps between rounds.
        known: standard deviation of the log of the expected seconds: one error of all launches (the machine was
            faster or slower then), one of each launch and phase.
        campaign: rounds that share expected seconds.
    """

    jobs: Mapping[str, Job]
    pacing: str = "by phase"
    sensitivity: tuple[float, float] = (1.0, 1.0)
    launch_spread: float = 0.01
    known: tuple[float, float] = (0.1, 0.01)
    campaign: int = 12

    @property
    def names(self) -> list[str]:
        """Of the launches."""
        return list(self.jobs)


@dataclass(kw_only=True)
class Played:
    """What rounds gave; shapes [rounds, launches], those of steps [rounds, steps, launches].

    Attributes:
        own_s: own seconds of the body.
        switches: how often it was stopped.
        truth: log seconds of the job in the long run, shape [launches]: work of each phase by the mean speed.
        alone: if asked for, mean log seconds of the job alone from some instants, without launch spread.
        tail: share of own time after the end of both hosts.
        step_s, step_switches, assigned: of each step, if they were asked for; the last is the mean of 1 / slice.
    """

    own_s: np.ndarray
    switches: np.ndarray
    truth: np.ndarray
    tail: np.ndarray
    alone: np.ndarray | None = None
    step_s: np.ndarray | None = None
    step_switches: np.ndarray | None = None
    assigned: np.ndarray | None = None


class _Speed:
    """Work done from the round's first instant to any later one, by phase."""

    def __init__(self, slowdown: np.ndarray, sensitivity: Sequence[float]) -> None:
        self.rounds, ticks = slowdown.shape
        self.width, self.rows = ticks + 1, np.arange(self.rounds) * (ticks + 1)
        known: dict[float, np.ndarray] = {}
        for one in sensitivity:
            if one not in known:
                known[one] = np.zeros((self.rounds, self.width))
                np.cumsum(np.exp(-one * slowdown) * TICK_S, axis=1, out=known[one][:, 1:])
        self.done = [known[one].ravel() for one in sensitivity]

    def at(self, phase: int, wall: np.ndarray) -> np.ndarray:
        """Work of each round by wall seconds, shape [rounds]; beyond the trace at its last speed."""
        place = wall / TICK_S
        tick = np.minimum(place.astype(np.int64), self.width - 2)
        index = self.rows + tick
        low = self.done[phase][index]
        return low + (place - tick) * (self.done[phase][index + 1] - low)

    def until(self, phase: int, work: np.ndarray) -> np.ndarray:
        """Wall seconds at which each round has done so much work."""
        low, high = np.zeros(self.rounds), np.full(self.rounds, self.width * TICK_S)
        for _ in range(32):
            middle = (low + high) / 2
            late = self.at(phase, middle) >= work
            low, high = np.where(late, low, middle), np.where(late, middle, high)
        return high


def play(
    design: Design,
    slowdown: np.ndarray,
    generator: np.random.Generator,
    *,
    with_steps: bool = False,
    with_alone: bool = False,
) -> Played:
    """Run one round on each trace of the machine's slowdown, shape [rounds, ticks]."""
    jobs, rounds = list(design.jobs.values()), len(slowdown)
    base = np.array([[job.imports_s, job.step_s * STEPS] for job in jobs])
    speed = _Speed(slowdown, design.sensitivity)
    work = base * np.exp(design.launch_spread * generator.standard_normal((rounds, len(jobs), 2)))
    quanta = generator.choice(QUANTA_S, (rounds, MOST_CYCLES), p=ODDS)
    pace = _Pace(design, base, slowdown, generator)
    hosts = [design.names.index(name) for name in (HOST, CONTROL)]
    round_ = _Round(speed, work, np.array([job.switch_s for job in jobs]), hosts, with_steps)
    rows = np.array([row for pair in williams_pairs(len(jobs)) for row in pair])
    first, progress = generator.integers(0, len(rows), rounds), np.zeros(rounds)
    for cycle in range(MOST_CYCLES):
        progress = progress + quanta[:, cycle]
        target = pace.target(progress)
        before = pace.target(progress - quanta[:, cycle])
        order = rows[(first + cycle) % len(rows)]
        for place in range(len(jobs)):
            round_.slice(order[:, place], target)
        round_.note(target - before)
        if round_.over:
            break
    else:
        raise RuntimeError("a round did not end")
    truth = np.log((base / [np.exp(-one * slowdown).mean() for one in design.sensitivity]).sum(axis=1))
    found = Played(own_s=round_.own, switches=round_.count, truth=truth, tail=round_.alone / round_.own)
    if with_alone:
        starts = [[np.log(_alone(speed, one, at)) for at in STARTS_S] for one in base]
        found.alone = np.mean(starts, axis=1).T
    if with_steps:
        round_.steps(found)
    return found


def _alone(speed: _Speed, base: np.ndarray, start: np.ndarray | float = 0.0) -> np.ndarray:
    """Seconds of a job alone that starts at this instant of the trace, shape [rounds]."""
    start = np.broadcast_to(np.asarray(start, dtype=float), (speed.rounds,))
    imported = speed.until(0, speed.at(0, start) + base[0])
    return speed.until(1, speed.at(1, imported) + base[1]) - start


class _Pace:
    """Own seconds that a launch is to have at a progress."""

    def __init__(
        self, design: Design, base: np.ndarray, slowdown: np.ndarray, generator: np.random.Generator
    ) -> None:
        rounds = len(slowdown)
        campaigns = -(-rounds // design.campaign)
        mean = np.array([float(np.exp(one * slowdown).mean()) for one in design.sensitivity])
        together, apart = design.known
        errors = together * generator.standard_normal((campaigns, 1, 1))
        errors = errors + apart * generator.standard_normal((campaigns, *base.shape))
        self.expected = np.repeat(base * mean * np.exp(errors), design.campaign, axis=0)[:rounds]
        if design.pacing == "equal":
            self.expected = np.repeat(self.expected.mean(axis=1, keepdims=True), len(base), axis=1)
        if design.pacing == "by length":
            length = self.expected.sum(axis=2, keepdims=True)
            self.expected = length / length.mean(axis=1, keepdims=True) * self.expected.mean(axis=1, keepdims=True)
        self.mean = self.expected.mean(axis=1)

    def target(self, progress: np.ndarray) -> np.ndarray:
        """Shape [rounds, launches]."""
        early = np.minimum(progress, self.mean[:, 0]) / self.mean[:, 0]
        late = np.maximum(progress - self.mean[:, 0], 0.0) / self.mean[:, 1]
        return early[:, None] * self.expected[:, :, 0] + late[:, None] * self.expected[:, :, 1]


@dataclass
class _Round:
    """The state of all rounds at once."""

    speed: _Speed
    left: np.ndarray  # work, shape [rounds, launches, 2]
    switch_s: np.ndarray
    hosts: list[int]
    with_steps: bool
    history: list[tuple[np.ndarray, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = self.left.copy()
        self.total = self.left[:, :, 1].copy()
        self.wall, self.all = np.zeros(len(self.left)), np.arange(len(self.left))
        shape = self.left.shape[:2]
        self.own, self.count, self.begun, self.alone = (np.zeros(shape) for _ in range(4))

    @property
    def over(self) -> bool:
        """Whether every launch has ended."""
        return bool((self.left[:, :, 1] <= 0).all())

    def slice(self, who: np.ndarray, target: np.ndarray) -> None:
        """Give one launch of each round its slice."""
        here, hosted = (self.all, who), (self.left[:, self.hosts, 1] > 0).any(axis=1)
        length = np.where(self.left[(*here, 1)] > 0, np.maximum(target[here] - self.own[here], 0.0), 0.0)
        start = self.wall + np.minimum(self.switch_s[who], length)
        end, crossed = self.wall + length, self.wall.copy()
        gain = self.speed.at(0, end) - self.speed.at(0, start)
        part = np.minimum(1.0, self.left[(*here, 0)] / np.maximum(gain, 1e-12))
        importing = self.left[(*here, 0)] > 0
        crossed = np.where(importing, start + part * (end - start), start)
        self.left[(*here, 0)] = np.maximum(0.0, self.left[(*here, 0)] - np.where(part < 1, np.inf, gain))
        passed = importing & (self.left[(*here, 0)] <= 0)
        self.begun[here] = np.where(passed, self.own[here] + crossed - self.wall, self.begun[here])
        gain = self.speed.at(1, end) - self.speed.at(1, crossed)
        share = np.minimum(1.0, self.left[(*here, 1)] / np.maximum(gain, 1e-12))
        finished = (length > 0) & (gain >= self.left[(*here, 1)])
        used = np.where(finished, crossed + share * (end - crossed) - self.wall, length)
        self.left[(*here, 1)] = np.where(finished, 0.0, self.left[(*here, 1)] - gain)
        self.own[here] += used
        self.alone[here] += np.where(hosted, 0.0, used)
        self.count[here] += (length > 0) & ~finished
        self.wall += used

    def note(self, slices: np.ndarray) -> None:
        """Keep where every launch is at the end of a cycle whose slices were these."""
        if self.with_steps:
            done = self.total - self.left[:, :, 1]
            self.history.append((self.own.copy(), done, slices, self.count.copy()))

    def steps(self, found: Played) -> None:
        """Own instants of the steps, the switches within them and the slices assigned over them."""
        own, done, slices, count = (np.stack(one, axis=-1) for one in zip(*self.history, strict=True))
        shape = (len(own), STEPS, own.shape[1])
        found.step_s, found.step_switches, found.assigned = (np.empty(shape) for _ in range(3))
        for r, e in np.ndindex(own.shape[:2]):
            stepping = own[r, e] > self.begun[r, e]
            work, at = done[r, e][stepping], own[r, e][stepping]
            # A switch costs its time when the slice begins: work stands still until then.
            at = np.concatenate([[self.begun[r, e]], np.column_stack([at, at + self.switch_s[e]]).ravel()[:-1]])
            work = np.concatenate([[0.0], np.repeat(work, 2)[:-1]])
            marks = np.interp(np.linspace(0, self.total[r, e] * (1 - 1e-12), STEPS + 1), work, at)
            ends = own[r, e]
            rate = np.concatenate([[0.0], np.cumsum(np.diff(ends, prepend=0.0) / slices[r, e])])
            found.step_s[r, :, e] = np.diff(marks)
            found.step_switches[r, :, e] = np.diff(np.interp(marks, ends, count[r, e]).astype(int))
            found.assigned[r, :, e] = np.diff(np.interp(marks, np.concatenate([[0.0], ends]), rate)) / np.diff(
                marks
            )


def sequential(slowdown: np.ndarray, sensitivity: tuple[float, float] = (1.0, 1.0)) -> np.ndarray:
    """Log-ratio by round of two equal jobs that run one after the other."""
    speed, base = _Speed(slowdown, sensitivity), np.array([IMPORTS_S, STEP_S * STEPS])
    first = _alone(speed, base)
    return np.log(_alone(speed, base, first) / first)


def autocorrelation(slowdown: np.ndarray, step_s: float, lag: int) -> float:
    """Of the log time of consecutive steps of a job alone."""
    size = round(step_s / TICK_S)
    count = slowdown.shape[1] // size
    logs = np.log(np.exp(slowdown[:, : count * size]).reshape(len(slowdown), count, size).mean(axis=2))
    logs = logs - logs.mean()
    return float((logs[:, lag:] * logs[:, :-lag]).mean() / (logs**2).mean())


def jobs(where: str, effects: Mapping[str, float], switch_s: Mapping[str, float] | float = 0.0) -> dict[str, Job]:
    """Two hosts, and environments that are slower by their effect in `imports`, `steps` or `both`."""

    def one(name: str) -> Job:
        more = 1 + effects.get(name, 0.0)
        return Job(
            imports_s=IMPORTS_S * (more if where in ("imports", "both") else 1.0),
            step_s=STEP_S * (more if where in ("steps", "both") else 1.0),
            switch_s=switch_s if isinstance(switch_s, float) else switch_s[name],
        )

    return {name: one(name) for name in (HOST, CONTROL, *effects)}
