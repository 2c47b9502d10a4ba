"""What a graph compiler costs and saves in whole runs: the first step, later steps, and from which step on it pays.

The first step holds tracing and compiling; what it takes longer than without the compiler is called compile time.
It pays from the step on at which the faster later steps have made good for that:

    pays_from = 1 + ceil((first_compiled - first_plain) / (later_plain - later_compiled))

Medians over launches; how sure a difference is stands in the verdicts. Memory is the process's peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from tare.analysis.choice import compared
from tare.model.registry import BASELINE, CONTROL, HOST
from tare.model.studies import arms

FIRST, LATER, PEAK = "first_step_s", "later_step_s", "peak_rss_bytes"
COUNTS = ("graphs", "breaks", "operators", "left")


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Medians over launches: seconds of the first step and of a later one, bytes at the peak; how many launches."""

    first_s: float
    later_s: float
    peak_bytes: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One compiler beside none, in one stack.

    Attributes:
        graphs, breaks: graphs that it made of a job, and breaks between them.
        operators, left: operators in its graphs, and those outside of them. All None where it does not say.
    """

    stack: str
    compiler: str
    compiled: Steps
    plain: Steps
    graphs: int | None = None
    breaks: int | None = None
    operators: int | None = None
    left: int | None = None

    @property
    def compile_s(self) -> float:
        """What the first step takes longer with the compiler."""
        return self.compiled.first_s - self.plain.first_s

    @property
    def pays_from(self) -> int | None:
        """The first step at whose end the run is ahead; None where it never is."""
        gained_s = self.plain.later_s - self.compiled.later_s
        if gained_s <= 0:
            return None
        return 1 + max(0, math.ceil(self.compile_s / gained_s))


def compiled(metrics: pd.DataFrame, workload: str) -> list[Compiled]:
    """Every graph compiler that whole runs of a workload were measured with on the host, by campaign."""
    rows = metrics[(metrics["workload"] == workload) & (metrics["kind"] == "measured")]
    found = []
    for name in rows["campaign"].unique():
        arm = arms.of_campaign(name)
        compiler = arm.settings.get("compile") if arm is not None and name.startswith("rounds.") else None
        if arm is None or compiler is None:
            continue
        own = rows[rows["campaign"] == name]
        launches = own[own["env"].isin((HOST, CONTROL))]
        with_it = _steps(launches)
        if with_it is None:
            continue
        stack = str(launches["stack"].iloc[0])
        without = next(filter(None, map(_steps, _plain(rows, own, arm, stack))), None)
        if without:
            counts = {word: _count(own, f"compiled_{word}") for word in COUNTS}
            found.append(Compiled(stack=stack, compiler=compiler, compiled=with_it, plain=without, **counts))
    return found


def _plain(rows: pd.DataFrame, own: pd.DataFrame, arm: arms.Arm, stack: str) -> Iterator[pd.DataFrame]:
    """Where launches of the same stack without the compiler may be: beside it, or in that stack's own campaign."""
    beside = own[own["env"] == f"{HOST}{BASELINE}"]
    yield beside[beside["stack"] == stack]
    if arm.other_stack:
        plain = compared(rows, "rounds", f"stack={stack}")
        yield plain[plain["env"].isin((HOST, CONTROL)) & (plain["stack"] == stack)]


def _count(rows: pd.DataFrame, metric: str) -> int | None:
    """The largest count of a campaign's launches; None where none was told."""
    values = rows[rows["metric"] == metric]["value"]
    return int(values.max()) if len(values) else None


def _steps(rows: pd.DataFrame) -> Steps | None:
    """Of some launches; None where they lack a number."""
    values = {metric: rows[rows["metric"] == metric]["value"] for metric in (FIRST, LATER, PEAK)}
    if any(found.empty for found in values.values()):
        return None
    return Steps(
        first_s=float(values[FIRST].median()),
        later_s=float(values[LATER].median()),
        peak_bytes=float(values[PEAK].median()),
        launches=len(values[FIRST]),
    )
