"""What the proof of the instrument runs: simulated campaigns of steps, units of known worlds, recorded units.

All go through the functions that real campaigns go through: `sliced.steps.step_seconds`, `intervals.log_ratios_of`,
`planning.decide`, `intervals.trimmed` and `two_stage`, `verdicts.guarded`, `intervals.judge` and `qualified`,
`families.holm_levels`, `job_length.cost_of`. Nothing here knows the truth but the simulation.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tare.analysis.job_length import cost_of
from tare.analysis.verdicts import guarded
from tare.core.files import project_root
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.costs import Cost, CostBox
from tare.stats.families import holm_levels
from tare.stats.intervals import (
    Estimate,
    Interval,
    allowing_unseen,
    judge,
    log_ratios_of,
    qualified,
    student,
    t_interval,
    t_quantile,
    trimmed,
    two_stage,
)
from tare.stats.planning import decide
from tare.stats.sliced.steps import step_seconds

RECORDED = project_root() / "benchmarks/host_host_turns.csv"
RECORDED_HALF_WIDTH = 0.005  # that campaigns of steps wanted in the study in which they were recorded
PILOT = 6
UNIT_S = 10.0
NORMAL_SPREAD = 0.008  # of a launch's log step time
VERDICTS = ("equivalent", "different within margin", "different", "inconclusive")
MEAN = ".mean"  # after a launch's name: its mean step, stalls in full


@dataclass(frozen=True, kw_only=True)
class World:
    """A machine and the environments on it, of which everything is known.

    Attributes:
        effects: by name of the environment, what it adds to a step: 0.02 is two per cent.
        replicates: of a launch; `groups`: of steps, of each replicate; `steps`: of each group.
        launch_spread, replicate_spread, group_spread, step_spread: standard deviations of log step times by level.
        drift: of the machine's log speed, a random walk's standard deviation per group.
        jump_share, jump: how many groups see the machine change its speed for good, and by how much.
        stall_share, stall: how many groups are slower on their own, and by how much at most, from a tenth up.
        stalled: by environment, the share of its steps that are longer, and by how much: (0.03, 0.5) adds 1.5%.
    """

    effects: Mapping[str, float]
    launch_spread: float = 0.004
    replicate_spread: float = 0.006
    group_spread: float = 0.02
    drift: float = 0.01
    jump_share: float = 0.01
    jump: float = 0.15
    stall_share: float = 0.04
    stall: float = 1.0
    replicates: int = 1
    groups: int = 10
    steps: int = 1
    step_spread: float = 0.0
    stalled: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Launches of a unit."""
        return [HOST, CONTROL, *self.effects]


class Machine:
    """A world in which time passes: its speed goes on from unit to unit."""

    def __init__(self, world: World, generator: np.random.Generator) -> None:
        self.world = world
        self.generator = generator
        self.mood = 0.0

    def unit(self) -> np.ndarray:
        """Step times of one unit, seconds, shape [replicate, group, launch, step]."""
        world, generator, names = self.world, self.generator, self.world.names
        shape = (world.replicates, world.groups, len(names))
        moves = generator.normal(0, world.drift, shape)
        moves += (generator.random(shape) < world.jump_share) * generator.normal(0, world.jump, shape)
        moods = self.mood + np.cumsum(moves).reshape(shape)  # in the order of time
        self.mood = float(moods[-1, -1, -1]) * 0.98  # speeds come back, or a long campaign would end at nothing
        places = np.argsort(generator.random(shape), axis=2)  # launches make each group in random order
        logs = np.take_along_axis(moods, places, axis=2)
        logs = logs + generator.normal(0, world.group_spread, shape)
        logs += generator.normal(0, world.replicate_spread, (world.replicates, 1, len(names)))
        logs += generator.normal(0, world.launch_spread, len(names))
        stalled = generator.random(shape) < world.stall_share
        logs += stalled * np.log1p(generator.uniform(0.1, world.stall, shape))
        logs += [0.0, 0.0, *(math.log1p(effect) for effect in world.effects.values())]
        logs = logs[..., None] + generator.normal(0, world.step_spread, (*shape, world.steps))
        for name, (often, longer) in world.stalled.items():
            own = logs[:, :, names.index(name)]
            own += (generator.random(own.shape) < often) * math.log1p(longer)
        times: np.ndarray = np.exp(logs) * 0.05
        return times


def values_of(times: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Seconds of a typical step by launch, as campaigns fit them; `times` is [replicate, group, launch, step]."""
    rows = np.moveaxis(times, 2, -1).reshape(-1, len(names))
    return step_seconds(np.log(rows), names)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one campaign ends with: by name of the environment (or the control), the interval and the verdict; the
    interval of all time where it was judged."""

    design: str
    units: int
    intervals: Mapping[str, Interval]
    verdicts: Mapping[str, str]
    totals: Mapping[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Design:
    """What is declared before the data.

    Attributes:
        half_width: wanted, relative; None for a fixed number of units, which is `cap` then.
        confidence: of all environments together.
        margin: of the verdict, relative.
        cap: most units that the budget pays.
    """

    half_width: float | None
    confidence: float
    margin: float = 0.02
    cap: int = 10**6


def typical_of(units: Sequence[Mapping[str, float]], name: str, decided: str) -> Estimate:
    """The estimate of one environment, or of the control: as `verdicts.estimate_of`, without tables."""
    logs = {key: np.log([unit[key] for unit in units]) for key in {HOST, CONTROL, name}}
    second = HOST if name == CONTROL else CONTROL
    found = trimmed(logs[name] - logs[HOST], logs[name] - logs[second])
    pilot = (logs[name] - (logs[HOST] + logs[second]) / 2)[:PILOT]
    return two_stage(found, pilot) if decided == "stein" else found


def estimates_of(units: Sequence[Mapping[str, float]], names: Sequence[str], decided: str) -> dict[str, Estimate]:
    """Of all environments and the control, each with the others' spreads beside its own."""
    found = {(name, HOST): typical_of(units, name, decided) for name in names if name != HOST}
    return {name: estimate for (name, _), estimate in guarded(found).items()}


def campaign(
    next_unit: Callable[[], Mapping[str, float]], names: Sequence[str], design: Design, *, steps: int = 0
) -> Outcome:
    """Pilot, decision, the units that it asks for, intervals and verdicts.

    Args:
        next_unit: values of the next unit by name of the launch.
        names: launches; the control is judged as well.
        design: what is declared.
        steps: that count in a unit, of each launch, where the units hold means, stalls in full, as well: verdicts
            say where they do not say the same.
    """
    judged = [name for name in names if name not in (HOST, CONTROL)]
    alpha = (1 - design.confidence) / max(1, len(judged))
    decision = None
    if design.half_width is None:
        units = [next_unit() for _ in range(design.cap)]
    else:
        units = [next_unit() for _ in range(PILOT)]
        sampling = {"pilot": PILOT, "half_width": design.half_width, "budget_s": design.cap * UNIT_S}
        ratios = log_ratios_of(units, names)
        decision = decide(ratios, sampling, alpha=alpha, spent_s=PILOT * UNIT_S, unit_s=UNIT_S)
        units += [next_unit() for _ in range(decision["units"] - PILOT)]
    decided = decision["design"] if decision else "fixed"
    intervals = {name: found.interval(alpha) for name, found in estimates_of(units, names, decided).items()}
    verdicts = {name: judge(interval, design.margin) for name, interval in intervals.items()}
    whole: dict[str, Interval] = {}
    if steps:
        whole = {name: total_of(units, name).interval(alpha) for name in judged}
        stalls = {name: t_interval(_stalls(units, name), alpha) for name in judged}
        for name in judged:
            seen = (
                allowing_unseen(whole[name], steps * len(units)) if verdicts[name] == "equivalent" else whole[name]
            )
            verdicts[name] = qualified(verdicts[name], judge(seen, design.margin), stalls[name])
    return Outcome(design=decided, units=len(units), intervals=intervals, verdicts=verdicts, totals=whole)


def total_of(units: Sequence[Mapping[str, float]], name: str) -> Estimate:
    """Of all time of one environment, stalls included."""
    logs = {key: np.log([unit[key + MEAN] for unit in units]) for key in (HOST, CONTROL, name)}
    return student(logs[name] - (logs[HOST] + logs[CONTROL]) / 2)


def _stalls(units: Sequence[Mapping[str, float]], name: str) -> np.ndarray:
    """Per unit, the log-ratio of all time less that of the typical time."""
    more = {key: np.log([unit[key + MEAN] / unit[key] for unit in units]) for key in (HOST, CONTROL, name)}
    return more[name] - (more[HOST] + more[CONTROL]) / 2


def simulate(world: World, generator: np.random.Generator, design: Design) -> Outcome:
    """One campaign in a world; with more than one step a group, or stalls, all time is judged as well."""
    machine = Machine(world, generator)
    totals = world.steps > 1 or bool(world.stalled)

    def next_unit() -> dict[str, float]:
        times = machine.unit()
        return values_of(times, world.names) | (means_of(times, world.names) if totals else {})

    steps = world.replicates * world.groups * world.steps if totals else 0
    return campaign(next_unit, world.names, design, steps=steps)


def means_of(times: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """The mean step of each launch of a unit, stalls in full: the metric `step_mean_s`."""
    return {name + MEAN: float(times[:, :, number].mean()) for number, name in enumerate(names)}


# --- worlds of units: what is left is the statistics of campaigns alone


def _storms(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normal values of which a tenth is longer, never shorter, by eight standard deviations in the mean."""
    return generator.normal(0, 1, shape) + (generator.random(shape) < 0.1) * generator.exponential(8, shape)


UNIT_WORLDS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda generator, shape: generator.normal(0, 1, shape),
    "heavy tails (t3)": lambda generator, shape: generator.standard_t(3, shape),
    "one environment varies 3 times as much": lambda generator, shape: (
        generator.normal(0, 1, shape) * [1, 1, 3, 1, 1]
    ),
    "the same, and its hosts half": lambda generator, shape: generator.normal(0, 1, shape) * [0.5, 0.5, 3, 1, 1],
    "one environment varies a third": lambda generator, shape: generator.normal(0, 1, shape) * [1, 1, 1 / 3, 1, 1],
    "one-sided storms": _storms,
    "recorded hosts": lambda generator, shape: (
        generator.choice(control_logs(read_recorded(RECORDED)), shape) * generator.choice((-1.0, 1.0), shape)
        / math.sqrt(2)
        / NORMAL_SPREAD
    ),
}  # fmt: skip
WORLD_EFFECTS = {"first": 0.0, "second": 0.005, "third": 0.02}


@dataclass(frozen=True, kw_only=True)
class Cover:
    """Of many campaigns of one world and number of units: coverage by environment, and widths.

    Attributes:
        covered: by name of the environment, the share of intervals that hold its effect.
        width: the deciding interval's median width by that of Student's.
    """

    covered: Mapping[str, float]
    width: float


def cover(world: str, units: int, campaigns: int, alpha: float, seed: int = 1) -> Cover:
    """Campaigns of a fixed number of units of a world, three environments with planted effects."""
    generator = np.random.default_rng(seed)
    names = [HOST, CONTROL, *WORLD_EFFECTS]
    logs = UNIT_WORLDS[world](generator, (campaigns, units, len(names))) * NORMAL_SPREAD
    logs += [0.0, 0.0, *(math.log1p(effect) for effect in WORLD_EFFECTS.values())]
    held: dict[str, list[bool]] = {name: [] for name in WORLD_EFFECTS}
    widths, plain = [], []
    for rows in np.exp(logs):
        drawn = [dict(zip(names, row, strict=True)) for row in rows]
        found = {name: one.interval(alpha) for name, one in estimates_of(drawn, names, "fixed").items()}
        for name, effect in WORLD_EFFECTS.items():
            held[name].append(covers(found[name], effect))
        widths.append(found["second"].width)
        plain.append(t_interval(log_ratios_of(drawn, names)["second"], alpha).width)
    covered = {name: share(flags) for name, flags in held.items()}
    return Cover(covered=covered, width=float(np.median(widths) / np.median(plain)))


def ladder(effects: Sequence[float], studies: int, *, units: int = 8, margin: float = 0.02) -> tuple[float, float]:
    """Studies of primary comparisons, three to a pair of hosts, by Holm's ladder at 5%.

    Returns:
        The shares of studies with any false "differs", and with any false "inside the margin".
    """
    generator = np.random.default_rng(3)
    false, inside = 0, 0
    for _ in range(studies):
        found: list[Estimate] = []
        for start in range(0, len(effects), 3):
            own = {str(number): effect for number, effect in enumerate(effects[start : start + 3])}
            names = [HOST, CONTROL, *own]
            logs = generator.normal(0, NORMAL_SPREAD, (units, len(names)))
            logs += [0.0, 0.0, *(math.log1p(effect) for effect in own.values())]
            drawn = [dict(zip(names, row, strict=True)) for row in np.exp(logs)]
            estimates = estimates_of(drawn, names, "fixed")
            found += [estimates[name] for name in own]
        levels = holm_levels([one.p_value for one in found], 0.05)
        said = [judge(one.interval(level), margin) for one, level in zip(found, levels, strict=True)]
        told = list(zip(effects, said, strict=True))
        false += any(effect == 0 and word.startswith("different") for effect, word in told)
        inside += any(
            effect >= margin and word in ("equivalent", "different within margin") for effect, word in told
        )
    return false / studies, inside / studies


# --- seconds that are planted in what happens once, and what follows for jobs of any length

ONCE_S = 3.0  # that a whole run takes once on the host
RUN_WORLDS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "launches vary by 1%": lambda generator, shape: generator.normal(0, 0.01, shape),
    "launches vary by 4%": lambda generator, shape: generator.normal(0, 0.04, shape),
    "one-sided storms": lambda generator, shape: 0.01 * _storms(generator, shape),
}
PLANTED_S = {"first": (0.0, 0.0), "second": (0.05, 0.005), "third": (0.25, 0.02)}  # once; share of a step
JOBS_S = (1.0, 30.0, 1000.0, 1e6)


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Of many campaigns of whole runs and steps with planted seconds.

    Attributes:
        covered: by name of the environment, the share of intervals that hold the planted seconds.
        found: the share that excludes zero.
        half_width_s: median, of the first.
        boxes: by name, the share of boxes that hold the true cost of every job, and the length beyond which it is
            below 1%.
    """

    covered: Mapping[str, float]
    found: Mapping[str, float]
    half_width_s: float
    boxes: Mapping[str, float]


def planted_seconds(world: str, units: int, campaigns: int, alpha: float, seed: int = 1) -> Seconds:
    """Campaigns of whole runs and of steps, judged as `job_length` does: each part at half of alpha."""
    generator, names = np.random.default_rng(seed), [HOST, CONTROL, *PLANTED_S]
    held: dict[str, dict[str, list[bool]]] = {kind: {name: [] for name in PLANTED_S} for kind in ("s", "0", "box")}
    widths = []
    for _ in range(campaigns):
        seconds = ONCE_S * np.exp(RUN_WORLDS[world](generator, (units, len(names))))
        seconds += [0.0, 0.0, *(once_s for once_s, _ in PLANTED_S.values())]
        runs = dict(zip(names, seconds.T, strict=True))
        once = guarded({(name, HOST): _once_of(runs, name) for name in names if name != HOST})
        logs = generator.normal(0, NORMAL_SPREAD, (units, len(names)))
        logs += [0.0, 0.0, *(math.log1p(step) for _, step in PLANTED_S.values())]
        drawn = [dict(zip(names, row, strict=True)) for row in np.exp(logs)]
        steps = estimates_of(drawn, names, "fixed")
        host_s = float((runs[HOST] + runs[CONTROL]).mean() / 2)
        for name, (once_s, step) in PLANTED_S.items():
            fixed = once[name, HOST].interval(alpha / 2)
            held["s"][name].append(fixed.low <= once_s <= fixed.high)
            held["0"][name].append(not fixed.low <= 0 <= fixed.high)
            ends = [math.expm1(log) for log in steps[name].interval(alpha / 2).mean_low_high]
            _, box = cost_of(host_s, fixed.mean_low_high, ends)
            held["box"][name].append(_holds(box, Cost(host_s=ONCE_S, fixed_s=once_s, step=step)))
        widths.append(once["first", HOST].interval(alpha / 2).width / 2)
    covered, found, boxes = ({name: share(flags) for name, flags in held[kind].items()} for kind in held)
    return Seconds(covered=covered, found=found, half_width_s=float(np.median(widths)), boxes=boxes)


def _once_of(runs: Mapping[str, np.ndarray], name: str) -> Estimate:
    """Seconds of one environment less those of either host, or of the second host less the first."""
    return trimmed(runs[name] - runs[HOST], runs[name] - runs[HOST if name == CONTROL else CONTROL])


def _holds(box: CostBox, truth: Cost) -> bool:
    """Whether a box holds the cost of every job, and the length beyond which it is below 1%."""
    ranges = [(box.at(length_s), truth.at(length_s)) for length_s in JOBS_S]
    return all(low <= cost <= high for (low, high), cost in [*ranges, (box.below(0.01), truth.below(0.01))])


def normal_campaigns(design: Design, campaigns: int) -> list[Outcome]:
    """Campaigns of units that are normal and fitted exactly: what is left is the statistics of campaigns alone."""
    generator = np.random.default_rng(1)

    def unit() -> dict[str, float]:
        host, control, none = np.exp(generator.normal(0, NORMAL_SPREAD, 3)).tolist()
        return {HOST: host, CONTROL: control, "none": none}

    return [campaign(unit, [HOST, CONTROL, "none"], design) for _ in range(campaigns)]


def covers(interval: Interval, effect: float) -> bool:
    """Whether an interval of log-ratios holds a relative effect."""
    return bool(interval.low <= math.log1p(effect) <= interval.high)


def share(flags: Sequence[bool]) -> float:
    """How many of them, from 0 to 1."""
    return sum(flags) / len(flags)


def binomial_error(probability: float, trials: int) -> float:
    """Standard error of a share."""
    return math.sqrt(probability * (1 - probability) / trials)


def read_recorded(path: Path) -> list[dict[str, float]]:
    """Recorded host-host units: robust steps by name of the launch, and the means that hold the stalls."""
    with path.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    return [
        {
            HOST: float(row["host_step_s"]),
            CONTROL: float(row["control_step_s"]),
            "host_mean": float(row["host_mean_s"]),
            "control_mean": float(row["control_mean_s"]),
        }
        for row in rows
    ]


def control_logs(units: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Log-ratios of the control to the host, unit by unit."""
    return np.array(log_ratios_of(units, [HOST, CONTROL])[CONTROL])


class Pool:
    """Recorded log-ratios host to host, from which units are drawn with replacement.

    Args:
        logs: the recorded log-ratios; their true mean is zero, their own is not quite.
        generator: of the draws.
        swap: exchange the two hosts of each drawn unit at random: they are told apart by name alone, and the
            pool's mean is exactly zero then. Without it a pseudo-campaign is about the pool, whose mean is as far
            from zero as some hundred units leave it.
    """

    def __init__(self, logs: np.ndarray, generator: np.random.Generator, *, swap: bool) -> None:
        self.logs = logs
        self.generator = generator
        self.swap = swap

    def unit(self) -> dict[str, float]:
        """Values of one unit: the host's is 1 s."""
        log = self.generator.choice(self.logs)
        sign = self.generator.choice((-1.0, 1.0)) if self.swap else 1.0
        return {HOST: 1.0, CONTROL: math.exp(sign * log)}


def decided_size(logs: np.ndarray, half_width: float, confidence: float) -> int:
    """The fewest units, of the recording's spread, whose t interval has the wanted half-width."""
    spread, wanted = float(np.std(logs, ddof=1)), math.log1p(half_width)
    for size in range(PILOT, len(logs)):
        if t_quantile(1 - confidence, size - 1) * spread / math.sqrt(size) <= wanted:
            return size
    return len(logs)


def resample(
    logs: np.ndarray, design: Design, campaigns: int, generator: np.random.Generator, *, swap: bool
) -> list[Outcome]:
    """Pseudo-campaigns of host against host."""
    pool = Pool(logs, generator, swap=swap)
    return [campaign(pool.unit, [HOST, CONTROL], design) for _ in range(campaigns)]


def summary(outcomes: Sequence[Outcome], name: str, effect: float) -> dict[str, float]:
    """Shares of campaigns: intervals that hold the truth, each verdict; the mean and largest number of units."""
    verdicts = [outcome.verdicts[name] for outcome in outcomes]
    found = {verdict: share([each == verdict for each in verdicts]) for verdict in VERDICTS}
    return {
        "coverage": share([covers(outcome.intervals[name], effect) for outcome in outcomes]),
        "excludes zero": found["different"] + found["different within margin"],
        **found,
        "units": sum(outcome.units for outcome in outcomes) / len(outcomes),
        "most_units": max(outcome.units for outcome in outcomes),
        "capped": share([outcome.design == "fixed" for outcome in outcomes]),
    }


def consecutive(logs: np.ndarray, size: int, alpha: float) -> list[bool]:
    """Whether the t interval of each run of `size` consecutive units holds zero: whether order matters."""
    quantile = t_quantile(alpha, size - 1)
    found = []
    for start in range(0, len(logs) - size + 1, size):
        part = logs[start : start + size]
        found.append(bool(abs(part.mean()) <= quantile * part.std(ddof=1) / math.sqrt(size)))
    return found


def autocorrelation(logs: np.ndarray) -> float:
    """Of a unit's log-ratio with the one before."""
    centred = logs - logs.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
