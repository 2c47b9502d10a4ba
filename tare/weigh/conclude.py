"""From rounds of a user's job to what each environment costs: whole runs, their parts, training steps.

Whole runs are put together from their terms as those of studies are (tare.stats.sliced.whole). Steps are compared
by their index within a round (tare.stats.sliced.steps): the mean over rounds with Student's interval. Rounds count
where both launches of the reference, and the environment's own, have succeeded. Rounds that were made without
slices for the whole runs of some launches (`Unit.whole`) count for these runs, and no other rounds do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.reported_steps import AFTER, BEFORE, STEPS, parts_by_steps, step_times
from tare.analysis.sliced_rounds import Terms, terms_of
from tare.model.journals.units import real_s
from tare.model.records.campaigns import Unit
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import Estimate, Interval, Verdict, body_estimates, judge, student, trimmed
from tare.stats.sliced.steps import step_seconds
from tare.stats.sliced.whole import BODY, EXIT, START, TOTAL, Once, WholeRun, whole_run
from tare.weigh.answer import Ratio, Seconds
from tare.weigh.request import FEWEST_ROUNDS


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one environment's rounds say.

    Attributes:
        run: log-ratio of whole runs; None where there is no round.
        parts: seconds by part, more than the reference takes.
        step: log-ratio of a training step; None where steps were not seen in both.
    """

    run: Interval | None
    parts: Mapping[str, Interval]
    step: Interval | None

    def verdict(self, margin: float) -> Verdict:
        """Of whole runs."""
        if self.run is None or self.run.n < FEWEST_ROUNDS:
            return "inconclusive"
        return judge(self.run, margin)

    @property
    def run_ratio(self) -> Ratio | None:
        """Of whole runs, as the answer has it."""
        return None if self.run is None else Ratio.of(self.run)

    @property
    def step_ratio(self) -> Ratio | None:
        """Of steps, as the answer has it."""
        return None if self.step is None else Ratio.of(self.step)

    @property
    def part_seconds(self) -> dict[str, Seconds]:
        """Of its parts, as the answer has them."""
        found = {name: Seconds.of(interval) for name, interval in self.parts.items()}
        return {name: one for name, one in found.items() if one is not None}


def cost_of(units: Sequence[Unit], name: str, alpha: float, reference: str = HOST) -> Cost:
    """What an environment costs.

    Args:
        units: rounds that count.
        name: of its launch; CONTROL for the A/A control, which is held against the first launch alone.
        alpha: of each interval.
        reference: the launch that it is held against; that of the reference with its second one, or another
            environment's.
    """
    hosts = (HOST, CONTROL) if reference == HOST and name != CONTROL else (reference, reference)
    both = [unit for unit in units if all(_ran(unit, one) for one in (name, *hosts))]
    sliced = [unit for unit in both if not unit.whole]
    apart = {name, reference} & {one for unit in units for one in unit.whole}
    rounds = [unit for unit in both if unit.whole] if apart else sliced
    step = _step(sliced, name, hosts, alpha)
    whole = _whole(rounds, (name, *hosts))
    if whole is None:
        values = [{one: real_s(unit.launches[one]) for one in {name, *hosts}} for unit in rounds]
        run = _mean_ratio(values, name, hosts).interval(alpha) if rounds else None
        return Cost(run=run, parts={}, step=step)
    parts = {key: whole.seconds[key].interval(alpha) for key in (START, BODY, EXIT, TOTAL)}
    parts |= {key: one.interval(alpha) for key, one in _body_parts(rounds, (name, *hosts)).items()}
    return Cost(run=whole.estimate.interval(alpha), parts=parts, step=step)


def _ran(unit: Unit, name: str) -> bool:
    return name in unit.launches and unit.launches[name].ok


def _mean_ratio(values: Sequence[Mapping[str, float]], name: str, hosts: tuple[str, str]) -> Estimate:
    logs = [math.log(one[name]) - statistics.fmean(math.log(one[host]) for host in hosts) for one in values]
    return student(logs)


def _whole(rounds: Sequence[Unit], names: tuple[str, str, str]) -> WholeRun | None:
    """Whole runs from their terms; None where launches were not held, or there is no round."""
    rows: list[list[Terms]] = []
    for unit in rounds:
        found = [terms_of(unit.launches[name]) for name in names]
        if None in found:
            return None
        rows.append([one for one in found if one is not None])
    if not rows:
        return None
    empty = [
        [group[name] for name in names] for unit in rounds for group in unit.empty_launches if {*names} <= {*group}
    ]

    def once(term: str, *, with_empty: bool) -> Once:
        table = [[float(getattr(one, term)) for one in row] for row in rows]
        table += [[float(getattr(one, term)) for one in row] for row in empty] if with_empty else []
        env, host, control = zip(*table, strict=True)
        return Once(env=env, host=host, control=control)

    return whole_run(
        once("start_s", with_empty=True), once("body_s", with_empty=False), once("exit_s", with_empty=True)
    )


def _body_parts(rounds: Sequence[Unit], names: tuple[str, str, str]) -> dict[str, Estimate]:
    """Seconds of the parts of a program that reports its steps, more than in the reference."""
    rows = [[parts_by_steps(unit.launches[name]) for name in names] for unit in rounds]
    whole = [[one for one in row if one is not None] for row in rows if None not in row]
    if len(whole) < len(rows) or not rows:
        return {}
    return {
        key: trimmed([row[0][key] - row[1][key] for row in whole], [row[0][key] - row[2][key] for row in whole])
        for key in (BEFORE, STEPS, AFTER)
    }


def _step(rounds: Sequence[Unit], name: str, hosts: tuple[str, str], alpha: float) -> Interval | None:
    """The log-ratio of a step; None where a round lacks the steps of one of them."""
    names = tuple(dict.fromkeys((name, *hosts)))
    found = []
    for unit in rounds:
        own = [step_times(unit.launches[one]) for one in names]
        if not all(own):
            return None
        matrix = np.full((max(map(len, own)), len(own)), np.nan)
        for column, steps in enumerate(own):
            matrix[: len(steps), column] = np.log(steps)
        found.append(step_seconds(matrix, names))
    if not found:
        return None
    if hosts == (HOST, CONTROL):
        return body_estimates(found, [HOST, CONTROL, name])[name].interval(alpha)
    return _mean_ratio(found, name, hosts).interval(alpha)


def reference_seconds(units: Sequence[Unit]) -> dict[str, float]:
    """Seconds of a whole run of the reference by part, medians over rounds; `total` where it was not held."""
    terms = [found for unit in units if _ran(unit, HOST) and (found := terms_of(unit.launches[HOST])) is not None]
    if not terms:
        runs = [real_s(unit.launches[HOST]) for unit in units if _ran(unit, HOST)]
        return {TOTAL: statistics.median(runs)} if runs else {}
    return {
        START: statistics.median(one.start_s for one in terms),
        BODY: statistics.median(one.body_s for one in terms),
        EXIT: statistics.median(one.exit_s for one in terms),
    }


def reference_step_s(units: Sequence[Unit]) -> float | None:
    """Seconds of a typical step of the reference; None where none were seen."""
    found = [
        statistics.median(steps)
        for unit in units
        if _ran(unit, HOST) and (steps := step_times(unit.launches[HOST]))
    ]
    return statistics.median(found) if found else None
