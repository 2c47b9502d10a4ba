"""What an image costs: seconds until it can start, bytes, first starts, and when a conversion pays.

No verdicts: the numbers are observations of one machine, and the builds were made once. Ratios and differences of
starts get an interval of their own, each at the study's level, from three repetitions on; fewer give their range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from tare.analysis import image_costs
from tare.model.journals.units import COLD, COLD_MEANS, WARM
from tare.model.roles import CONTROL
from tare.model.studies.study import HOST
from tare.report.evidence import Evidence
from tare.report.words.labels import env_order, env_title, sentence_case, significant, size_bytes, with_unit
from tare.report.words.layout import UNAVAILABLE, Cell, Reader, Row, Table, by_environment, ends
from tare.report.words.wording import signed, without_time
from tare.stats.costs import NEVER, runs_until_paid
from tare.stats.intervals import log_ratios_of, t_interval

FEWEST = 3  # repetitions that give an interval
STARTS = "starts"  # the campaign of starts alone
REFERENCE = "docker"  # what other forms are compared with: the one that people start from
FIRST = "ready_s"  # the sum of the stages stands above them
PRICE_ITEMS = (FIRST, *(item for item in image_costs.ITEMS if item != FIRST and not item.endswith("_start_s")))
PARTS = {"runtime": "runtime_start_s", "imports": "imports_s", "machine read": "machine_read_bytes",
         "process read": "own_read_bytes", "major faults": "major_faults"}  # fmt: skip
Text = Callable[[str], str | Cell | None]


def tables(evidence: Evidence) -> list[Table]:
    """Prices and starts of each stack of the table of what images cost."""
    table, alpha = evidence.image_costs, 1 - evidence.study.confidence
    cases = [Case(table, stack, alpha) for stack in image_costs.stacks_of(table)]
    return [found for case in cases for found in (case.prices(), case.starts())]


class Case:
    """What the images of one stack cost, by the table `image_costs`; `alpha` is that of each interval."""

    def __init__(self, table: pd.DataFrame, stack: str, alpha: float) -> None:
        self.table, self.stack, self.alpha = table, stack, alpha
        self.environments = sorted(image_costs.environments_of(table, stack), key=env_order)
        started = (table["stack"] == stack) & table["item"].isin([f"{COLD}_start_s", f"{WARM}_start_s"])
        self.starters = sorted(table.loc[started, "launch"].unique(), key=env_order)

    def cost(self, env: str, item: str) -> float | None:
        """One cost, the median of several."""
        return image_costs.cost(self.table, self.stack, env, item)

    def values(self, env: str, phase: str) -> Mapping[int, float]:
        """Seconds of every start, by repetition."""
        return image_costs.repeated(self.table, self.stack, env, f"{phase}_start_s")

    def why_not(self, env: str, item: str) -> str | None:
        """Why there is no such cost."""
        return image_costs.why_not(self.table, self.stack, env, item)

    def prices(self) -> Table:
        """Seconds and bytes of every form: items as rows, environments as columns."""
        found: list[tuple[str, Text]] = [
            (sentence_case(image_costs.ITEMS[item]), partial(self._price, item)) for item in PRICE_ITEMS
        ]
        found += [
            ("On this disk, by Docker's form", self._size),
            ("Starts that pay its conversion back, beside Docker's", self._paid_back),
        ]
        shown = [one for one in found if any(one[1](env) is not None for env in self.environments)]
        kept = self.cost(image_costs.SHARED, "disk_bytes")
        note = (
            "Each stage as it took when it was made: what the cache holds is not made again. A dash: the form "
            "needs no such stage, or there is nothing to compare. Added: blocks that the host's own tree does not "
            "hold by the same inode. Paid back: by the interval of what a warm start saves."
        )
        archive = f" The image that forms are made from takes {size_bytes(kept)} more in the cache." if kept else ""
        return Table.of(
            shown,
            {"": lambda one: one[0], **by_environment(self.environments, lambda one, env: one[1](env))},
            caption=f"What the images of {self.stack} cost",
            note=" ".join([note + archive, *self._notes()]),
            numeric=True,
            wide=True,
        )

    def _price(self, item: str, env: str) -> str | None:
        value = self.cost(env, item)
        if value is not None:
            return with_unit(value, image_costs.unit_of(item))
        return UNAVAILABLE if self.why_not(env, item) else None

    def _size(self, env: str) -> str | None:
        own, reference = self.cost(env, "disk_bytes"), self.cost(REFERENCE, "disk_bytes")
        if own is None or not reference or env in (HOST, REFERENCE):
            return None
        return f"{significant(own / reference, 2)}×"

    def _paid_back(self, env: str) -> str | None:
        """After how many warm starts a dearer conversion than Docker's is paid back, by what one saves."""
        own, reference = self.values(env, WARM), self.values(REFERENCE, WARM)
        took, docker = self.cost(env, "convert_s"), self.cost(REFERENCE, "convert_s")
        if env == REFERENCE or took is None or docker is None:
            return None
        return paid_back(took - docker, [reference[rep] - own[rep] for rep in own if rep in reference], self.alpha)

    def _notes(self) -> list[str]:
        """What the archive of each environment is, and why something is unavailable, each once."""
        own = self.table[(self.table["stack"] == self.stack) & self.table["launch"].isin(self.environments)]
        archives = own[(own["item"] == "archive_bytes") & own["value"].notna()].groupby("source", sort=False)
        lacking = own[own["item"].isin(PRICE_ITEMS) & own["value"].isna()].groupby("reason", sort=False)
        carried = (f"{_titles(rows)}: {source}" for source, rows in archives)
        return [
            f"What is carried: {'; '.join(carried) or 'nothing was counted'}.",
            *(f"Unavailable of {_titles(rows)}: {reason}." for reason, rows in lacking),
        ]

    def starts(self) -> Table:
        """Every start: median and range of cold and warm ones, beside the host's, and what the disk delivered."""
        columns: dict[str, Reader] = {
            "environment": lambda one: env_title(one[0], short=True),
            "page cache": lambda one: one[1],
            "start, median": lambda one: self._start(*one),
            "by the host's": lambda one: self._beside_host(*one),
            "less the warm one": lambda one: self._less_warm(*one),
            **{name: lambda one, part=part: self._part(*one, part) for name, part in PARTS.items()},
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
            wide=True,
        )

    def _about_starts(self) -> str:
        warm = "right after a cold one" if self._together() else "as whole runs begin"
        return (
            f"Cold: {COLD_MEANS}; warm: {warm}. By the host's: of the same repetitions, "
            f"{100 * (1 - self.alpha):g}% intervals, each on its own; with fewer than {FEWEST} a range. Bytes read "
            "from block devices: by the whole machine meanwhile, and by the process itself. Where a server in user "
            "space reads for it (an image by FUSE), its own are few. Medians."
        )

    def _failed(self) -> list[str]:
        """Starts that failed, of environments that have others."""
        found = []
        for phase in (COLD, WARM):
            told = []
            for env in self.starters:
                reasons = image_costs.failed(self.table, self.stack, env, f"{phase}_start_s")
                if reasons and self.values(env, phase):
                    count = len(reasons) + len(self.values(env, phase))
                    told.append(f"{env_title(env)} {len(reasons)} of {count} ({reasons[-1]})")
            found += [without_time(f"{sentence_case(phase)} starts", told)] if told else []
        return found

    def _together(self) -> bool:
        """Whether every warm start came right after a cold one: else they are of whole runs."""
        return image_costs.campaigns_of(self.table, self.stack, f"{WARM}_start_s") <= {STARTS}

    def _start(self, env: str, phase: str) -> Cell:
        values = sorted(self.values(env, phase).values())
        spread = f"{with_unit(values[0], 's')} to {with_unit(values[-1], 's')}, n = {len(values)}"
        return Cell(text=with_unit(self.cost(env, f"{phase}_start_s"), "s"), below=spread)

    def _part(self, env: str, phase: str, part: str) -> str | None:
        item = f"{phase}_{part}"
        value = self.cost(env, item)
        return None if value is None else with_unit(value, image_costs.unit_of(item))

    def _beside_host(self, env: str, phase: str) -> str | None:
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
        median = self.cost(env, f"{WARM}_start_s")
        more = (
            [cold[rep] - warm[rep] for rep in cold if rep in warm]
            if self._together()
            else [value - median for value in cold.values()]
        )
        return ends(*_range(more, self.alpha)) if more else None


def _titles(rows: pd.DataFrame) -> str:
    return ", ".join(env_title(env) for env in dict.fromkeys(rows["launch"]))


def _range(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """The interval of their mean, or from the least to the greatest where they are too few for one."""
    found = t_interval(values, alpha)
    if len(values) < FEWEST or found.low is None or found.high is None:
        return min(values), max(values)
    return found.low, found.high


def paid_back(extra_s: float, saved_s: Sequence[float], alpha: float) -> str:
    """After how many starts seconds that a conversion takes more than Docker's load are paid back.

    Args:
        extra_s: seconds more; negative where it takes less.
        saved_s: seconds by which each warm start is shorter than Docker's, by repetition.
        alpha: of the interval of the mean.
    """
    if len(saved_s) < FEWEST:
        return "too few starts"
    found = runs_until_paid(max(0.0, extra_s), *_range(saved_s, alpha))
    if found.fewest == NEVER:
        return "never"
    least = f"{found.fewest:,.0f}"
    if found.most == NEVER:
        return f"{least} at best, perhaps never"
    return least if found.fewest == found.most else f"{least} to {found.most:,.0f}"
