"""What a graph compiler costs and saves in whole runs: the first step, later steps, and from which step on it pays.

The first step holds tracing and compiling; what it takes longer than without the compiler is called compile time.
It pays from the step on at which the faster later steps have made good for that:

    pays_from = 1 + ceil((first_compiled - first_plain) / (later_plain - later_compiled))

Medians over launches; how sure a difference is, the verdicts say. Memory is the process's peak, and that of
the largest program that it called, such as a compiler: the kernel counts one from the fork on, so that it may be
the process itself. A framework that always compiles has nothing to be held against: its
compile time is what it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from tare.analysis.choice import compared, of_hosts
from tare.model.registry import HOST
from tare.model.studies import arms
from tare.model.studies.layout import ROUNDS, arm_of, kind_of
from tare.model.studies.stacks import framework_of

FIRST, LATER, PEAK = "first_step_s", "later_step_s", "peak_rss_bytes"
CHILD, REPORTED = "children_peak_rss_bytes", "compile_s"
COUNTS = ("graphs", "breaks", "operators", "left", "unsupported")
ALWAYS = {"jax": "xla"}  # by framework: a compiler that it does nothing without


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Medians over launches: seconds of the first step and of a later one, bytes at the peak; how many launches.

    `child_bytes`: of the largest program that a launch called; None where none was.
    """

    first_s: float
    later_s: float
    peak_bytes: float
    launches: int
    child_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One compiler against none, in one stack."""

    stack: str
    compiler: str
    compiled: Steps
    plain: Steps | None  # without it; None of a framework that always compiles
    reported_s: float | None = None  # what the framework says that compiling took; None where it does not
    # `graphs`, `breaks`: graphs that it made of a job, and breaks between them
    graphs: int | None = None
    breaks: int | None = None
    # `operators`, `left`: operators in its graphs, and those outside of them
    operators: int | None = None
    left: int | None = None
    unsupported: int | None = None  # those of the latter that it can't compile. All None where it does not say
    campaign: str = ""  # in which it was measured

    @property
    def compile_s(self) -> float | None:
        """What the first step takes longer with the compiler, or what the framework says."""
        return self.reported_s if self.plain is None else self.compiled.first_s - self.plain.first_s

    @property
    def pays_from(self) -> int | None:
        """The first step at whose end the run is ahead; None where it never is, or where there is no other."""
        if self.plain is None or self.compile_s is None:
            return None
        gained_s = self.plain.later_s - self.compiled.later_s
        if gained_s <= 0:
            return None
        return 1 + max(0, math.ceil(self.compile_s / gained_s))


def compiled(metrics: pd.DataFrame, workload: str) -> list[Compiled]:
    """Every graph compiler that whole runs of a workload were measured with on the host, by campaign."""
    rows = metrics[(metrics["workload"] == workload) & (metrics["kind"] == "measured")]
    found = []
    for name in rows["campaign"].unique():
        arm = arm_of(name)
        if arm is None or kind_of(name) != ROUNDS:
            continue
        always = ALWAYS.get(framework_of(arm.other_stack)) if arm.other_stack else None
        compiler = arm.settings.get("compile", always)
        own = rows[rows["campaign"] == name]
        launches = of_hosts(own)
        with_it = _steps(launches)
        if compiler is None or with_it is None:
            continue
        stack = str(launches["stack"].iloc[0])
        without = None if always else next(filter(None, map(_steps, _plain(rows, own, arm, stack))), None)
        if without or always:
            counts = {word: _count(launches, f"compiled_{word}") for word in COUNTS}
            reported_s = _median(launches, REPORTED)
            found.append(
                Compiled(
                    stack=stack,
                    compiler=compiler,
                    compiled=with_it,
                    plain=without,
                    reported_s=reported_s,
                    campaign=str(name),
                    **counts,
                )
            )
    return found


def _plain(rows: pd.DataFrame, own: pd.DataFrame, arm: arms.Arm, stack: str) -> Iterator[pd.DataFrame]:
    """Launches of the same stack without the compiler, from the same units, or from that stack's own campaign."""
    plain = own[(own["environment"] == HOST) & (own["launch_role"] == "headline")]
    yield plain[plain["stack"] == stack]
    if arm.other_stack:
        plain = compared(rows, "rounds", f"stack={stack}")
        hosts = of_hosts(plain)
        yield hosts[hosts["stack"] == stack]


def _count(rows: pd.DataFrame, metric: str) -> int | None:
    """The largest count of a campaign's launches; None where none was reported."""
    values = rows[rows["metric"] == metric]["value"]
    return int(values.max()) if len(values) else None


def _median(rows: pd.DataFrame, metric: str) -> float | None:
    """Of some launches; None where they lack it."""
    values = rows[rows["metric"] == metric]["value"]
    return float(values.median()) if len(values) else None


def _steps(rows: pd.DataFrame) -> Steps | None:
    """Of some launches; None where they lack a number."""
    first_s, later_s, peak_bytes = (_median(rows, metric) for metric in (FIRST, LATER, PEAK))
    if first_s is None or later_s is None or peak_bytes is None:
        return None
    return Steps(
        first_s=first_s,
        later_s=later_s,
        peak_bytes=peak_bytes,
        launches=int((rows["metric"] == FIRST).sum()),
        child_bytes=_median(rows, CHILD),
    )
