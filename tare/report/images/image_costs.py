"""What an image costs, in sentences: seconds until it can start, bytes, first starts, and when a conversion pays.

No verdicts: the numbers are observations of one machine, and the builds were made once. Ratios and differences of
starts get an interval of their own, each at the study's level, from three repetitions on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from tare.analysis import image_costs
from tare.analysis.choice import of_rounds
from tare.model.journals.units import COLD, COLD_MEANS, WARM
from tare.model.roles import CONTROL
from tare.model.studies.study import HOST
from tare.report.evidence import Evidence
from tare.report.images import image_cost_tables
from tare.report.words.labels import (
    decimal_prefix,
    env_order,
    env_title,
    seconds,
    significant,
    size_bytes,
    workload_title,
)
from tare.report.words.layout import Argument, Step
from tare.report.words.wording import TIMES_FROM, between, listed, percent, without_time
from tare.stats.intervals import Interval, log_ratios_of, t_interval

FEWEST = 3  # repetitions that give an interval
STARTS = "starts"  # the campaign of starts alone
REFERENCE = "docker"  # what other forms are compared with: the one that people start from


def parts(evidence: Evidence) -> list[Argument]:
    """One per stack of the table of what images cost."""
    found = []
    for stack in image_costs.stacks_of(evidence.image_costs):
        case = Case(evidence, stack)
        answers = {
            "Which environments have no image?": case.missing(),
            "How long until something can start?": case.ready(),
            "What does a form of its own cost?": case.conversion(),
            "How large is it?": case.sizes(),
            "How long does the first start take?": case.starts(),
            "Do starts pay a conversion back?": case.paying_back(),
        }
        steps = [Step(question=question, sentences=lines) for question, lines in answers.items() if lines]
        tables = [make(case.table, stack) for make in (image_cost_tables.cost_list, image_cost_tables.starts_table)]
        found.append(Argument(name=stack, title=stack, steps=steps, tables=tables))
    return found


class Case:
    """What the images of one stack cost."""

    def __init__(self, evidence: Evidence, stack: str) -> None:
        self.evidence = evidence
        self.table = evidence.image_costs
        self.stack = stack
        self.environments = sorted(image_costs.environments_of(self.table, stack), key=env_order)
        self.alpha = 1 - evidence.study.confidence

    def cost(self, env: str, item: str) -> float | None:
        """One cost, the median of several."""
        return image_costs.cost(self.table, self.stack, env, item)

    def costs(self, item: str) -> dict[str, float]:
        """A cost by environment, of those that have it."""
        found = {env: self.cost(env, item) for env in self.environments}
        return {env: value for env, value in found.items() if value is not None}

    def missing(self) -> list[str]:
        """Environments without an image, each with its reason."""
        found = []
        for env in self.environments:
            reason = image_costs.why_not(self.table, self.stack, env, "archive_bytes")
            if reason and env not in self.costs("disk_bytes"):
                found.append(f"{env_title(env)} has no image of {self.stack}: {reason}.")
        return found

    def ready(self) -> list[str]:
        """How long from locked packages to a startable image."""
        made = self.costs("ready_s")
        if not made:
            return []
        line = f"From locked packages to what can be started: {_by_env(made, seconds)}."
        fetch, tree = self.cost(next(iter(made)), "fetch_s"), self.cost(next(iter(made)), "tree_s")
        if fetch is not None and tree is not None:
            line += f" All share the download, {seconds(fetch)}, and the tree, {seconds(tree)}."
        line += (
            " Each stage counts as it took when it was made; what the cache holds is not made again: a study pays "
            "once."
        )
        return [line, *self._in_runs(made)]

    def _in_runs(self, made: Mapping[str, float]) -> list[str]:
        """The longest build beside a whole run on the host, the thing that it is built for."""
        workload = self.evidence.workloads[0]
        rows = of_rounds(self.evidence.metrics, workload)
        runs = rows[(rows["launch"] == HOST) & (rows["metric"] == "real_s") & (rows["stack"] == self.stack)]
        if runs["value"].isna().all():
            return []
        run_s = float(runs["value"].median())
        env = max(made, key=lambda name: made[name])
        return [
            f"The longest of them, that of {env_title(env)}, took as long as {significant(made[env] / run_s, 2)} "
            f"whole runs of {workload_title(workload)} on the host (median {seconds(run_s)})."
        ]

    def conversion(self) -> list[str]:
        """What turning the one image into a runtime's own form takes."""
        took, rates = self.costs("convert_s"), self.costs("convert_bytes_per_s")
        if not took:
            return []
        told = [
            f"{env_title(env)} {seconds(value)}"
            f"{f' ({decimal_prefix(rates[env])}B/s of the archive)' if rates.get(env) else ''}"
            for env, value in took.items()
        ]
        lines = [f"Converting the one image into a runtime's own form: {listed(told)}."]
        starts = {env: start for env, start in self.costs(f"{WARM}_start_s").items() if start and env in took}
        counts = [f"{significant(took[env] / start, 2)} in {env_title(env)}" for env, start in starts.items()]
        return [
            *lines,
            *([f"Counted in warm starts of the same form, that is {listed(counts)}."] if counts else []),
        ]

    def sizes(self) -> list[str]:
        """Bytes on the disk beside Docker's form, and what is shared."""
        own, added = self.costs("disk_bytes"), self.costs("added_bytes")
        if not own:
            return []
        lines = [f"On the disk, in allocated blocks: {_by_env(own, size_bytes)}."]
        reference = own.get(REFERENCE)
        others = {env: size for env, size in own.items() if env not in (HOST, REFERENCE)}
        if reference and others:
            lines.append(f"Beside Docker's form: {_by_env(others, lambda size: _beside(size, reference))}.")
        contained = [env for env in own if env != HOST and env in added]
        if contained:
            lines.append(
                "No form shares a block with the host's tree, whose files each holds again: all of it is added."
                if all(added[env] == own[env] for env in contained)
                else "Some blocks are the host's tree's own: the column of added bytes leaves them out."
            )
        kept = self.cost(image_costs.SHARED, "disk_bytes")
        if kept:
            lines.append(
                f"The image that they are made from, as an archive, takes {size_bytes(kept)} more in "
                "the cache, once; nothing that runs needs it."
            )
        return lines

    def starts(self) -> list[str]:
        """Cold against warm, each beside the host."""
        phases = [phase for phase in (COLD, WARM) if self._starters(phase)]
        lines = []
        for phase in phases:
            told = [f"{env_title(env)} {_told(self._values(env, phase))}" for env in self._starters(phase)]
            after = "right after" if self._together() else "as whole runs begin"
            what = f"Cold starts ({COLD_MEANS})" if phase == COLD else f"Warm starts, {after}"
            lines.append(f"{what}, until the framework is imported: {listed(told)}.")
            lines += [*self._beside_host(phase), *self._failed(phase)]
        reason = image_costs.why_not(self.table, self.stack, HOST, f"{COLD}_start_s")
        if reason and COLD not in phases:
            lines.append(f"{'Cold starts' if phases else 'Starts'} are unavailable: {reason}.")
        return lines + self._cold_beside_warm()

    def _failed(self, phase: str) -> list[str]:
        """Starts that failed, of environments that have others."""
        told = []
        for env in self._starters(phase):
            reasons = image_costs.failed(self.table, self.stack, env, f"{phase}_start_s")
            if reasons:
                count = len(reasons) + len(self._values(env, phase))
                told.append(f"{env_title(env)} {len(reasons)} of {count} ({reasons[-1]})")
        return [without_time(f"{phase.capitalize()} starts", told)] if told else []

    def _together(self) -> bool:
        """Whether every warm start came right after a cold one: else they are of whole runs."""
        return image_costs.campaigns_of(self.table, self.stack, f"{WARM}_start_s") <= {STARTS}

    def _starters(self, phase: str) -> list[str]:
        return [env for env in self.environments if self._values(env, phase)]

    def _values(self, env: str, phase: str) -> dict[int, float]:
        return image_costs.repeated(self.table, self.stack, env, f"{phase}_start_s")

    def _beside_host(self, phase: str) -> list[str]:
        """Each environment's starts beside those of both hosts of the same repetition."""
        names = [HOST, CONTROL, *(env for env in self._starters(phase) if env != HOST)]
        values = {name: self._values(name, phase) for name in names}
        units = [
            {name: found[rep] for name, found in values.items() if rep in found}
            for rep in sorted({rep for found in values.values() for rep in found})
        ]
        logs = log_ratios_of(units, names)
        told = [
            f"{env_title(name, short=True)} {self._ratio(name, found)}" for name, found in logs.items() if found
        ]
        if not told:
            return []
        fewest = min(len(found) for found in logs.values() if found)
        kind = (
            f"observed, with {100 * (1 - self.alpha):g}% intervals, each on its own"
            if fewest >= FEWEST
            else "observed; fewer than three repetitions give a range, no interval"
        )
        return [f"Beside the host's {phase} starts of the same repetitions ({kind}): {listed(told)}."]

    def _ratio(self, env: str, logs: Sequence[float]) -> str:
        found = t_interval(logs, self.alpha)
        low, high = (min(logs), max(logs)) if len(logs) < FEWEST else (found.low, found.high)
        return (
            between("start", math.exp(low or 0.0), math.exp(high or 0.0))
            if low != high
            else _once(math.exp(low or 0))
        )

    def _cold_beside_warm(self) -> list[str]:
        """What the empty cache cost, and what the disk had to deliver."""
        told, together = [], self._together()
        for env in self._starters(COLD):
            cold, warm = self._values(env, COLD), self._values(env, WARM)
            if together:
                more = [cold[rep] - warm[rep] for rep in cold if rep in warm]
            else:
                more = [value - statistics.median(warm.values()) for value in cold.values() if warm]
            read = self.cost(env, f"{COLD}_machine_read_bytes")
            if more:
                text = f"{env_title(env)} {_interval_text(more, self.alpha)}"
                told.append(text + (f", with {size_bytes(read)} read by the machine" if read is not None else ""))
        less = "the warm one right after it" if together else "the median of the warm ones, which counts as known"
        return [f"Cold start less {less}: {'; '.join(told)}."] if told else []

    def paying_back(self) -> list[str]:
        """After how many starts a dearer conversion than Docker's has paid for itself, where the numbers say so."""
        took, reference = self.costs("convert_s"), self._values(REFERENCE, WARM)
        if REFERENCE not in took or not reference:
            return []
        lines = []
        for env in took:
            own = self._values(env, WARM)
            saved = [reference[rep] - own[rep] for rep in own if rep in reference]
            if env != REFERENCE and saved:
                lines.append(pays_back(env_title(env), took[env] - took[REFERENCE], saved, self.alpha))
        return lines


def pays_back(title: str, extra_s: float, saved_s: Sequence[float], alpha: float) -> str:
    """Whether starts win back what a conversion takes more than Docker's load; pure.

    Args:
        title: of the environment.
        extra_s: seconds that its conversion takes beyond Docker's; negative where it takes less.
        saved_s: seconds by which each of its warm starts is shorter than Docker's, by repetition.
        alpha: of the interval of the mean.
    """
    what = (
        f"{title}'s conversion takes {seconds(abs(extra_s))} {'more' if extra_s > 0 else 'less'} than Docker's load"
    )
    found = t_interval(saved_s, alpha)
    if len(saved_s) < FEWEST or found.low is None or found.high is None:
        return f"{what}; {len(saved_s)} warm starts are too few to say whether starts make up for it."
    if found.low <= 0 <= found.high:
        return f"{what}; {found.n} warm starts of each can't tell whether its own are shorter than Docker's."
    shorter = found.low > 0
    if (extra_s > 0) == shorter and extra_s:
        gains = sorted((abs(extra_s) / abs(found.low), abs(extra_s) / abs(found.high)))
        starts = f"between {math.ceil(gains[0]):,} and {math.ceil(gains[1]):,} warm starts"
        if shorter:
            return f"{what}; its warm starts are shorter, so that {starts} pay it back."
        return f"{what}; its warm starts are longer, so that {starts} use the advantage up."
    if shorter:
        return f"{what}, and its warm starts are shorter too: there is nothing to pay back."
    return f"{what}, and its warm starts are longer too: starts never pay it back."


def _by_env(values: Mapping[str, float], text: Callable[[float], str]) -> str:
    return listed([f"{env_title(env)} {text(value)}" for env, value in values.items()])


def _beside(value: float, reference: float) -> str:
    ratio = value / reference
    return "as large" if abs(ratio - 1) < 0.005 else f"{significant(ratio, 2)} times as large"


def _once(ratio: float) -> str:
    """One ratio in words, as `between` says two."""
    if not 1 / TIMES_FROM < ratio < TIMES_FROM:
        return f"{significant(ratio, 2)} times as long"
    return f"{percent(ratio - 1)} {'longer' if ratio >= 1 else 'shorter'}"


def _told(values: dict[int, float]) -> str:
    """Median and range of several starts."""
    numbers = sorted(values.values())
    middle = statistics.median(numbers)
    if len(numbers) == 1:
        return f"{seconds(middle)} (once)"
    return f"{seconds(middle)} (median of {len(numbers)}, {seconds(numbers[0])} to {seconds(numbers[-1])})"


def _interval_text(values: Sequence[float], alpha: float) -> str:
    """Mean of differences with its interval, or their range where there are too few."""
    found: Interval = t_interval(values, alpha)
    if len(values) < FEWEST or found.low is None or found.high is None:
        ends = sorted({round(min(values), 9), round(max(values), 9)})
        return f"{' to '.join(_signed(end) for end in ends)} ({'once' if len(values) == 1 else 'range'})"
    return f"{_signed(found.low)} to {_signed(found.high)} ({100 * (1 - alpha):g}% interval of the mean)"


def _signed(value: float) -> str:
    return f"−{seconds(-value)}" if value < 0 else seconds(value)
