"""What an image costs, compared with one written by hand, and after how many runs building it pays off."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from tare.analysis import image_costs
from tare.analysis.break_even import NAIVE, built
from tare.literature import published
from tare.literature.finding import listed
from tare.model.journals.units import COLD, COLD_MEANS, WARM
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.papers import paper_names
from tare.report.evidence import Evidence
from tare.report.rows import having
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Reader, Row, Table, by_environment, ends, field
from tare.report.words.quantities import prefixed, seconds, size_bytes, with_unit
from tare.report.words.wording import sentence_case, signed, without_time
from tare.stats.costs import NEVER, Runs, runs_until_paid
from tare.stats.intervals import log_ratios_of, t_interval

FEWEST = 3  # repetitions that give an interval
STARTS = "starts"  # the campaign of starts alone
FIRST = "ready_s"  # the sum of the stages, listed above them
PRICE_ITEMS = (FIRST, *(item for item in image_costs.ITEMS if item != FIRST and not item.endswith("_start_s")))
PARTS = {"runtime": "runtime_start_s", "imports": "imports_s", "machine read": "machine_read_bytes",
         "process read": "own_read_bytes", "major faults": "major_faults"}  # fmt: skip
RECIPES = {"docker": "Dockerfile", "apptainer": "definition file"}  # by the environment that runs what it gives
OUR_STAGES = ("tree_s", "assemble_s", "convert_s")  # what follows base and packages, which both have already
OUR_BYTES = {"docker": "said_bytes", "apptainer": "disk_bytes"}
# What a paper may print of its image, by our name of it; and names of what else its image or its build has.
PRINTED = ("image_build", "image_size")
DIFFERS = "image_differs"
NAIVE_NOTE = (
    "Naive images were built once with an empty cache: measured, without an interval. Tare's image: the sum of its "
    "stages (tree, image and form), each timed when it was made. Base and packages were on this machine before. "
    "Size: as Docker reports it; for a .sif its allocated blocks."
)
RUNS_A_DAY = 10.0  # assumed, and said to be: the reader types another
MEGABITS_PER_S = 100.0  # assumed likewise
MEGA = 1e6
DAYS_EXACTLY = 10.0  # below that with a decimal


def cost_tables(evidence: Evidence) -> list[Table]:
    """Prices and starts of each stack of the table of what images cost."""
    table, alpha = evidence.image_costs, 1 - evidence.study.confidence
    cases = [Case(table, stack, alpha) for stack in image_costs.stacks_of(table)]
    return [found for case in cases for found in (case.prices(), case.starts())]


class Case:
    """What the images of one stack cost, by the table `image_costs`; `alpha` is that of each interval."""

    def __init__(self, table: pd.DataFrame, stack: str, alpha: float) -> None:
        self.table, self.stack, self.alpha = table, stack, alpha
        self.cost = partial(image_costs.cost, table, stack)  # of an environment and an item: the median of several
        self.why_not = partial(image_costs.why_not, table, stack)
        self.environments = sorted(image_costs.environments_of(table, stack), key=env_order)
        started = (table["stack"] == stack) & table["item"].isin([f"{COLD}_start_s", f"{WARM}_start_s"])
        self.starters = sorted(table.loc[started, "launch"].unique(), key=env_order)

    def values(self, env: str, phase: str) -> Mapping[int, float]:
        """Seconds of every start, by repetition."""
        return image_costs.repeated(self.table, self.stack, env, f"{phase}_start_s")

    def prices(self) -> Table:
        """Seconds and bytes of every form: items as rows, environments as columns."""
        shown = [one for one in PRICE_ITEMS if any(self._price(one, env) is not None for env in self.environments)]
        kept = self.cost(image_costs.SHARED, "disk_bytes")
        note = (
            "Each stage was timed when it was made; what is in the cache is not made again. A dash: the form needs "
            "no such stage. Added: blocks that are not hard links to files of the host's own tree."
        )
        archive = f" The image that forms are made from adds {size_bytes(kept)} in the cache." if kept else ""
        columns: dict[str, Reader] = {"": lambda item: sentence_case(image_costs.ITEMS[item])}
        columns |= by_environment(self.environments, self._price)
        note = " ".join([note + archive, *self._notes()])
        return Table.of(shown, columns, caption=f"What the images of {self.stack} cost", note=note, numeric=True)

    def _price(self, item: str, env: str) -> str | None:
        value = self.cost(env, item)
        if value is not None:
            return with_unit(value, image_costs.unit_of(item))
        return UNAVAILABLE if self.why_not(env, item) else None

    def _notes(self) -> list[str]:
        """What the archive of each environment is, and why something is unavailable, each once."""
        own = self.table[(self.table["stack"] == self.stack) & self.table["launch"].isin(self.environments)]
        archives = own[(own["item"] == "archive_bytes") & own["value"].notna()].groupby("source", sort=False)
        lacking = own[own["item"].isin(PRICE_ITEMS) & own["value"].isna()].groupby("reason", sort=False)
        carried = (f"{_titles(rows)}: {source}" for source, rows in archives)
        return [
            f"Carried to another machine: {'; '.join(carried) or 'nothing was counted'}.",
            *(f"Unavailable for {_titles(rows)}: {reason}." for reason, rows in lacking),
        ]

    def starts(self) -> Table:
        """Every start: median and range of cold and warm ones, ratio to the host's, and what the disk delivered."""
        columns: dict[str, Reader] = {
            "environment": lambda one: env_title(one[0], short=True),
            "page cache": lambda one: one[1],
            "start, median": lambda one: self._start(*one),
            "relative to the host": lambda one: self._ratio_to_hosts(*one),
            "minus the warm start": lambda one: self._less_warm(*one),
            **{name: partial(self._part, part) for name, part in PARTS.items()},
        }
        rows: list[Row] = []
        for one in ((env, phase) for env in self.starters for phase in (COLD, WARM)):
            item = f"{one[1]}_start_s"
            if self.values(*one):
                rows.append([read(one) for read in columns.values()])
            else:
                reason = self.why_not(one[0], item) or "no such start"
                lacking = Cell(text=f"{UNAVAILABLE}: {reason}", span=len(columns) - 2)
                rows.append([env_title(one[0], short=True), one[1], lacking])
        return Table(
            caption=f"First starts, {self.stack}: until the framework is imported",
            columns=list(columns),
            rows=rows,
            note=" ".join([self._about_starts(), *self._failed()]),
        )

    def _about_starts(self) -> str:
        warm = "right after a cold one" if self._together() else "as whole runs begin"
        return (
            f"Cold: {COLD_MEANS}; warm: {warm}. Relative to the host: over the same repetitions, "
            f"{100 * (1 - self.alpha):g}% intervals, each by itself; a range if there are fewer than {FEWEST}. "
            "Bytes read from block devices: by the whole machine in that time, and by the process itself. If a "
            "server in user space reads for the process (an image by FUSE), the process itself reads little. "
            "Medians."
        )

    def _failed(self) -> list[str]:
        """Starts that failed, of environments that have others."""
        found = []
        for phase in (COLD, WARM):
            failures = []
            for env in self.starters:
                reasons = image_costs.failed(self.table, self.stack, env, f"{phase}_start_s")
                if reasons and self.values(env, phase):
                    count = len(reasons) + len(self.values(env, phase))
                    failures.append(f"{env_title(env)} {len(reasons)} of {count} ({reasons[-1]})")
            found += [without_time(f"{sentence_case(phase)} starts", failures)] if failures else []
        return found

    def _together(self) -> bool:
        """Whether every warm start came right after a cold one: else they are of whole runs."""
        return image_costs.campaigns_of(self.table, self.stack, f"{WARM}_start_s") <= {STARTS}

    def _start(self, env: str, phase: str) -> Cell:
        values = sorted(self.values(env, phase).values())
        spread = f"{with_unit(values[0], 's')} to {with_unit(values[-1], 's')}, n = {len(values)}"
        return Cell(text=with_unit(statistics.median(values), "s"), below=spread)

    def _part(self, part: str, one: tuple[str, str]) -> str | None:
        item = f"{one[1]}_{part}"
        value = self.cost(one[0], item)
        return None if value is None else with_unit(value, image_costs.unit_of(item))

    def _ratio_to_hosts(self, env: str, phase: str) -> str | None:
        """The ratio to both hosts of the same repetition."""
        names = (HOST, CONTROL, env)
        found = {name: self.values(name, phase) for name in names}
        reps = sorted({rep for values in found.values() for rep in values})
        units = [{name: values[rep] for name, values in found.items() if rep in values} for rep in reps]
        logs = log_ratios_of(units, names).get(env)
        if env == HOST or not logs:
            return None
        return signed(*(math.exp(end) for end in _range(logs, self.alpha)))

    def _less_warm(self, env: str, phase: str) -> str | None:
        """What the empty cache cost: by repetition, or by the median of the warm ones where these are of runs."""
        cold, warm = self.values(env, COLD), self.values(env, WARM)
        if phase != COLD or not warm:
            return None
        median = statistics.median(warm.values())
        more = [value - median for value in cold.values()]
        if self._together():
            more = [cold[rep] - warm[rep] for rep in cold if rep in warm]
        return ends(*_range(more, self.alpha)) if more else None


def _titles(rows: pd.DataFrame) -> str:
    return ", ".join(env_title(env) for env in dict.fromkeys(rows["launch"]))


def _range(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """The interval of their mean, or from the least to the greatest where they are too few for one."""
    found = t_interval(values, alpha)
    if len(values) < FEWEST or found.low is None or found.high is None:
        return min(values), max(values)
    return found.low, found.high


def naive_table(evidence: Evidence) -> Table | None:
    """Seconds and bytes of each image; None where the study builds none by hand."""
    costs, stack = evidence.image_costs, evidence.study.stack
    if having(costs, campaign=image_costs.NAIVE, stack=stack).empty:
        return None
    rows: list[Row] = []
    notes = [NAIVE_NOTE]
    for env, recipe in RECIPES.items():
        cost = partial(image_costs.cost, costs, stack, env)
        naive = cost(image_costs.NAIVE_BUILD), cost(image_costs.NAIVE_BYTES)
        stages = [took for item in OUR_STAGES if (took := cost(item)) is not None]
        ours = sum(stages) if len(stages) == len(OUR_STAGES) else None, cost(OUR_BYTES[env])
        rows.append([f"{env_title(env)}: naive {recipe}", *_naive_cells(*naive)])
        if ours != (None, None):
            rows.append([f"{env_title(env)}: Tare's image", *_naive_cells(*ours)])
        if why := image_costs.why_not(costs, stack, env, image_costs.NAIVE_BUILD):
            notes.append(f"{env_title(env)}: {why}.")
    for row, note in _printed():
        rows.append(row)
        notes.append(note)
    caption, note = f"{stack}: an image that a user would write by hand, and Tare's own", " ".join(notes)
    return Table(caption=caption, columns=["", "build", "size"], rows=rows, note=note, numeric=True, wide=False)


def _naive_cells(took: float | None, size: float | None) -> list[str | Cell | None]:
    texts = (None if took is None else seconds(took), None if size is None else prefixed(size, "B"))
    return [UNAVAILABLE if text is None else Cell(text=text, below="measured") for text in texts]


def _printed() -> Iterator[tuple[Row, str]]:
    """What published studies print of their images, and what is in those that is not in ours."""
    for paper in map(published.load, paper_names()):
        facts = [fact for fact in paper.text if fact.id in PRINTED and fact.quantity is not None]
        found = {fact.id: Cell(text=str(fact.quantity), below="as printed") for fact in facts}
        differs = [name for fact in paper.settings if fact.id == DIFFERS for name in fact.names]
        more = f"; its image or its build may also contain: {listed(differs)}" if differs else ""
        if found:
            row: Row = [f"{paper.paper}: its image", *(found.get(item) for item in PRINTED)]
            yield row, f"{paper.paper}: one build without a spread{more}."


class Choice(NamedTuple):
    """An image that may be built: seconds, once; 10^6 bytes that a pull moves; ends of what a run saves."""

    title: str
    build_s: float
    megabytes: float
    low_s: float
    high_s: float

    @property
    def pull_s(self) -> float:
        """At the assumed rate, with nothing else on the link."""
        return 8 * self.megabytes / MEGABITS_PER_S

    @property
    def runs(self) -> Runs:
        """Until it has paid."""
        return runs_until_paid(self.build_s + self.pull_s, self.low_s, self.high_s)


def break_even(evidence: Evidence) -> dict[str, Any] | None:
    """The answer by this study's numbers, and what the page's script starts from; None without any."""
    found = list(choices(evidence))
    if not found:
        return None
    defaults = {"runs_a_day": RUNS_A_DAY, "megabits_per_s": MEGABITS_PER_S}
    return {
        "table": _break_even_table(evidence, found),
        "defaults": {**defaults, "choices": [one._asdict() for one in found]},
        "first": f"{found[0].title}: {break_even_text(found[0].runs, found[0].low_s, found[0].high_s, RUNS_A_DAY)}",
    }


def choices(evidence: Evidence) -> Iterator[Choice]:
    """Every contained environment with an image and an interval of its whole runs, by workload.

    As the page's script gets it: rounded, so that both compute with the same numbers; no negative zero.
    """
    for workload in evidence.networks:
        given = (evidence.image_costs, evidence.verdicts, evidence.metrics, workload, evidence.study.stack)
        for one in sorted(built(*given), key=lambda image: env_order(image.env)):
            if one.size_bytes is not None:
                whose = ", naive image" if one.whose == NAIVE else ""
                title = f"{env_title(one.env)}, {workload_title(workload)}{whose}"
                saved = (round(end, 3) + 0.0 for end in (one.low_s, one.high_s))
                yield Choice(title, round(one.build_s, 1), round(one.size_bytes / MEGA, 1), *saved)


def break_even_text(runs: Runs, low_s: float, high_s: float, runs_a_day: float) -> str:
    """The answer in words; break_even.js says the same."""
    if runs.fewest == NEVER:
        least, most = f"{0.0 - high_s:.3f}", f"{0.0 - low_s:.3f}"
        longer = least if low_s == high_s else f"{least} to {most}"
        return f"Never: a run takes {longer} s longer than without the image."
    if runs.most == NEVER:
        return (
            f"After {runs.fewest:,.0f} runs ({_days(runs.fewest, runs_a_day)}) at the earliest, perhaps never: "
            f"a run saves {_signed(low_s)} to {_signed(high_s)}."
        )
    most = _days(runs.most, runs_a_day)
    if runs.fewest == runs.most:
        return f"After {runs.most:,.0f} runs ({most})."
    return f"After {runs.fewest:,.0f} to {runs.most:,.0f} runs ({_days(runs.fewest, runs_a_day)} to {most})."


def _days(runs: float, runs_a_day: float) -> str:
    days = runs / runs_a_day
    return f"{days:.1f} days" if days < DAYS_EXACTLY else f"{math.ceil(days):,} days"


def _signed(value_s: float) -> str:
    return f"−{-value_s:.3f} s" if value_s < 0 else f"{value_s:.3f} s"


def _break_even_table(evidence: Evidence, found: list[Choice]) -> Table:
    level = 100 * evidence.study.confidence

    def saved(one: Choice) -> str:
        return f"{_signed(one.low_s)} to {_signed(one.high_s)}"

    return Table.of(
        found,
        {
            "image": field("title"),
            "a run saves": lambda one: Cell(text=saved(one), below="modelled"),
            "build": field("build_s", "{:,.1f} s".format, "measured, once"),
            "pull": lambda one: Cell(text=f"{one.pull_s:,.1f} s", below=f"{one.megabytes:,.1f} MB, modelled"),
            "building pays off, modelled": lambda one: break_even_text(one.runs, one.low_s, one.high_s, RUNS_A_DAY),
        },
        caption=f"When building pays off, at {RUNS_A_DAY:g} runs a day, {MEGABITS_PER_S:g} Mbit/s (both assumed)",
        note=f"A run saves: the {level:g}% interval of the verdict on whole runs, times the median of the host's; "
        "below zero, a run takes longer than on the host. Build: all stages from locked packages to an image that "
        "can be started. Pull: the bytes that go to another machine, at the rate of the link alone; Docker images "
        "are counted without compression. No run was measured in naive images: the runs in Tare's images are used.",
    )
