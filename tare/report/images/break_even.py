"""After how many runs building an image pays, by this study's numbers; the page's script takes the reader's own.

What is paid once: building, and pulling over a link. What a run saves or loses: this machine's whole runs in the
environment beside the host's. The formula is that of tare.stats.costs; break_even.js repeats it, and a test in
a browser holds both to the same words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from tare.analysis.break_even import NAIVE, Built, built
from tare.report.evidence import Evidence
from tare.report.words.labels import env_order, env_title, workload_title
from tare.report.words.layout import Cell, Table, field
from tare.stats.costs import NEVER, Runs, pull_seconds, runs_until_paid

RUNS_A_DAY = 10.0  # assumed, and said to be: the reader types another
MEGABITS_PER_S = 100.0  # assumed likewise
MEGA = 1e6
DAYS_EXACTLY = 10.0  # below that with a decimal


class Choice(NamedTuple):
    """An image that may be built: seconds, once; 10^6 bytes that a pull moves; ends of what a run saves."""

    title: str
    build_s: float
    megabytes: float
    low_s: float
    high_s: float

    @property
    def pull_s(self) -> float:
        """At the assumed rate."""
        return pull_seconds(self.megabytes * MEGA, MEGABITS_PER_S * MEGA)

    @property
    def runs(self) -> Runs:
        """Until it has paid."""
        return runs_until_paid(self.build_s + self.pull_s, self.low_s, self.high_s)


def section(evidence: Evidence) -> dict[str, Any] | None:
    """The answer by this study's numbers, and what the page's script starts from; None without any."""
    found = list(choices(evidence))
    if not found:
        return None
    defaults = {"runs_a_day": RUNS_A_DAY, "megabits_per_s": MEGABITS_PER_S}
    return {
        "table": _table(evidence, found),
        "defaults": {**defaults, "choices": [one._asdict() for one in found]},
        "first": f"{found[0].title}: {told(found[0].runs, found[0].low_s, found[0].high_s, RUNS_A_DAY)}",
    }


def choices(evidence: Evidence) -> Iterator[Choice]:
    """Every contained environment with an image and an interval of its whole runs, by workload."""
    for workload in evidence.workloads:
        given = (evidence.image_costs, evidence.verdicts, evidence.metrics, workload, evidence.study.stack)
        for one in sorted(built(*given), key=lambda image: env_order(image.env)):
            if one.size_bytes is not None:
                yield _choice(one, workload)


def _choice(one: Built, workload: str) -> Choice:
    """As the page's script gets it: rounded, so that both compute with the same numbers; no negative zero."""
    title = f"{env_title(one.env)}, {workload_title(workload)}{', naive image' if one.whose == NAIVE else ''}"
    saved = (round(end, 3) + 0.0 for end in (one.low_s, one.high_s))
    return Choice(title, round(one.build_s, 1), round(one.size_bytes / MEGA, 1), *saved)


def told(runs: Runs, low_s: float, high_s: float, runs_a_day: float) -> str:
    """The answer in words; break_even.js says the same."""
    if runs.fewest == NEVER:
        return f"Never: a run takes {_span(0.0 - high_s, 0.0 - low_s)} more than it saves."
    if runs.most == NEVER:
        return (
            f"After {runs.fewest:,.0f} runs at best ({_days(runs.fewest, runs_a_day)}), perhaps never: "
            f"what a run saves lies between {_signed(low_s)} and {_signed(high_s)}."
        )
    if runs.fewest == runs.most:
        return f"After {runs.most:,.0f} runs ({_days(runs.most, runs_a_day)})."
    return (
        f"After {runs.fewest:,.0f} to {runs.most:,.0f} runs ({_days(runs.fewest, runs_a_day)} to "
        f"{_days(runs.most, runs_a_day)})."
    )


def _days(runs: float, runs_a_day: float) -> str:
    days = runs / runs_a_day
    return f"{days:.1f} days" if days < DAYS_EXACTLY else f"{math.ceil(days):,} days"


def _span(low_s: float, high_s: float) -> str:
    """Seconds from one end to the other, in the digits of both."""
    return f"{low_s:.3f} s" if low_s == high_s else f"{low_s:.3f} to {high_s:.3f} s"


def _signed(value_s: float) -> str:
    return f"−{-value_s:.3f} s" if value_s < 0 else f"{value_s:.3f} s"


def _table(evidence: Evidence, found: list[Choice]) -> Table:
    level = 100 * evidence.study.confidence
    return Table.of(
        found,
        {
            "image": field("title"),
            "a run saves": lambda one: Cell(
                text=f"{_signed(one.low_s)} to {_signed(one.high_s)}", below="modelled"
            ),
            "build": field("build_s", "{:,.1f} s".format, "measured, once"),
            "pull": lambda one: Cell(text=f"{one.pull_s:,.1f} s", below=f"{one.megabytes:,.1f} MB, modelled"),
            "building pays, modelled": lambda one: told(one.runs, one.low_s, one.high_s, RUNS_A_DAY),
        },
        caption=f"When building pays, at {RUNS_A_DAY:g} runs a day and {MEGABITS_PER_S:g} Mbit/s (both assumed)",
        note=(
            f"A run saves: the {level:g}% interval of the verdict on whole runs, times the median of the host's; "
            "below zero, a run takes longer than on the host. Build: all stages from locked packages to what can "
            "be started. Pull: what is carried to another machine, by the rate of the link alone; images of Docker "
            "are counted without compression. Of naive images no run was measured: those of ours stand for them."
        ),
        wide=True,
    )
