"""Each value of each figure: against its own environment's log, and where else in the logs it is.

Swaps and repetitions are searched for, not listed: every number of the same metric in any log is tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pandas as pd

from checks.finding import Finding, yes_no
from checks.kernel_sums import CUT, TRANSACTION_BYTES, summary
from checks.sources import Sources
from tare.literature.finding import amount, listed, words
from tare.model.quantities import parse

OPERATIONS = ("memset_s", "htod_s")
TIMES = ("real_s", "system_s")
LOGARITHMS = {"log2_intensity": "FLOP/B", "log2_gflops": "GFLOP/s"}


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A number that the logs give for one metric.

    Attributes:
        workload, env, batch: of the log; batch only for times.
        series: `profile`, or which of the two sets of times.
        value: in base units.
        slack: how far cutting or rounding may have moved it.
    """

    workload: str
    env: str
    batch: int | None
    series: str
    value: float
    slack: float


@lru_cache(maxsize=64)
def logged(published: Sources, metric: str) -> tuple[Logged, ...]:
    """Every number of the logs that a figure of this metric could show."""
    logs = published.logs
    if metric in OPERATIONS or metric in TIMES:
        rows = logs[(logs["metric"] == metric) & logs["statistic"].isin(("total", "run"))]
        return tuple(
            Logged(
                workload=row.workload, env=row.env, batch=_batch(row),
                series=row.series, value=row.value, slack=row.rounding,
            )
            for row in rows.itertuples()
        )  # fmt: skip
    found = []
    profiled = logs[logs["series"] == "profile"]
    for workload, env in profiled[["workload", "env"]].drop_duplicates().itertuples(index=False):
        value = _of_profile(published, workload, env, metric)
        if value is not None:
            slack = CUT if metric.startswith("dram_") else 0.0
            found.append(Logged(workload=workload, env=env, batch=None, series="profile", value=value, slack=slack))
    return tuple(found)


def _of_profile(published: Sources, workload: str, env: str, metric: str) -> float | None:
    if metric not in LOGARITHMS:
        return summary(published, workload, env, metric)
    flops = summary(published, workload, env, "flops")
    if metric == "log2_intensity":
        transactions = summary(published, workload, env, "hbm_transactions")
        return math.log2(flops / (transactions * TRANSACTION_BYTES)) if flops and transactions else None
    took = summary(published, workload, env, "kernel_s")
    return math.log2(flops / took / 1e9) if flops and took else None


def own_log(published: Sources, row: Any) -> Logged | None:
    """The log's number that a figure's value should show: same workload, environment and batch size.

    A figure by batch size prefers the series of batch sizes, one by environment the series of environments.
    """
    batch = _batch(row)
    own = [one for one in logged(published, row.metric) if (one.workload, one.env) == (row.workload, row.env)]
    if batch is not None:
        own = sorted((one for one in own if one.batch == batch), key=lambda one: one.series)
    else:
        own = [one for one in own if one.series in ("environments", "profile")]
    return own[0] if own else None


def allowance(row: Any, log: Logged) -> float:
    """How far a figure's value may be from a log's number: reading error or last digit, and the log's own."""
    if not pd.isna(row.error):
        return float(row.error) + log.slack
    if row.unit == "1":
        return log.slack
    return parse(row.printed, f"figure {row.figure}").rounding + log.slack


def fits(row: Any, log: Logged) -> bool:
    """Whether a figure's value can be this number of a log; a hair more than the allowance for binary fractions."""
    return bool(abs(row.value - log.value) <= allowance(row, log) + 1e-9 * abs(log.value))


def findings(published: Sources) -> list[Finding]:
    """One row per value: the label, and its own environment's log."""
    return [_value(published, row) for row in published.figures.itertuples()]


def _value(published: Sources, row: Any) -> Finding:
    log = own_log(published, row)
    label = "The label" if pd.isna(row.error) else f"The height, read to {_pm(row)},"
    if log is None:
        note = f"{label} is {row.printed}; no log has {words(row.metric)} of {_who(row)}."
    else:
        off = abs(row.value - log.value)
        note = f"{label} is {row.printed}; {_source(row.metric)} is {_number(log.value, row)}: "
        note += "equal" if off == 0 else f"{_number(off, row)} apart"
        note += f", {_number(allowance(row, log), row)} allowed." if allowance(row, log) else "."
    return replace(
        _about(row, "figure_value"),
        recomputed=None if log is None else log.value,
        agrees=yes_no(None if log is None else fits(row, log)),
        note=note,
    )


def _about(row: Any, check: str) -> Finding:
    """A finding about a value of a figure; what it found is still to come."""
    return Finding(
        figure=row.figure, check=check, workload=row.workload, env=row.env, batch=_batch(row), metric=row.metric,
        unit=row.unit, published=row.value, agrees="no", note="",
    )  # fmt: skip


def _batch(row: Any) -> int | None:
    return None if pd.isna(row.batch) else int(row.batch)


def _pm(row: Any) -> str:
    return f"+-{_number(row.error, row)}"


def _number(value: float, row: Any) -> str:
    return f"{value:.3f}" if row.metric in LOGARITHMS else amount(value, row.unit)


def _who(row: Any) -> str:
    return f"{row.workload} on {row.env}" + ("" if pd.isna(row.batch) else f" at batch {row.batch}")


def _source(metric: str) -> str:
    if metric == "hbm_transactions":
        return "in its own log reads + writes"
    if metric == "log2_intensity":
        return f"in its own log, log2 of FLOPs / (transactions x {TRANSACTION_BYTES} B)"
    if metric == "log2_gflops":
        return "in its own log, log2 of FLOPs / kernel time, in GFLOP/s,"
    return "its own log's"


def whereabouts(published: Sources) -> list[Finding]:
    """Where a value is that its own log does not have: another log, another figure, or nowhere.

    A height read off a figure counts as another log's only where it fits one log and no second.
    """
    found = []
    for row in published.figures.itertuples():
        log = own_log(published, row)
        if row.metric not in LOGARITHMS and (log is None or not fits(row, log)):
            found += list(_whereabouts(published, row))
    return found


def _whereabouts(published: Sources, row: Any) -> Iterator[Finding]:
    by_batch = not pd.isna(row.batch)
    others = [
        one for one in logged(published, row.metric) if fits(row, one) and (by_batch or one.series != "batches")
    ]
    near = [one for one in others if one.workload == row.workload]
    far = [one for one in others if one.workload != row.workload]
    twins = _twins(published, row)
    if near:
        where = listed([_where(row, one) for one in near])
        if len(near) > 1 and not pd.isna(row.error):
            note = f"{row.printed} is not what its own log has, and fits the logs of {where}; reading cannot decide"
            yield _elsewhere(row, "not_in_logs", None, note, "not recomputable")
        else:
            note = f"{row.printed} is what the log of {where} has{_exchanged(published, row, near[0])}"
            yield _elsewhere(row, "swapped", near[0].value, note)
    elif far or twins:
        places = [f"the log of {one.workload} on {one.env}" for one in far] + twins
        value = far[0].value if far else row.value
        yield _elsewhere(row, "repeated", value, f"{row.printed} is also in {listed(places)}")
    else:
        slip = _one_digit(published, row)
        note = f"{row.printed} is in no log of {words(row.metric)}"
        yield _elsewhere(row, "not_in_logs", None, f"{note}; {slip}" if slip else note)


def _exchanged(published: Sources, row: Any, other: Logged) -> str:
    """Whether the figure shows, at the other's place, what this one's own log has."""
    own, figures = own_log(published, row), published.figures
    place = figures["batch"] == other.batch if not pd.isna(row.batch) else figures["env"] == other.env
    same = (figures["figure"] == row.figure) & (figures["metric"] == row.metric)
    there = list(figures[same & place].itertuples())
    return "; the two are exchanged" if own is not None and there and fits(there[0], own) else ""


def _where(row: Any, one: Logged) -> str:
    return one.env if pd.isna(row.batch) else f"batch {one.batch}"


def _twins(published: Sources, row: Any) -> list[str]:
    """Other figures of another workload with the same label for the same metric and environment."""
    figures = published.figures
    same = figures[
        (figures["metric"] == row.metric)
        & (figures["workload"] != row.workload)
        & (figures["env"] == row.env)
        & (figures["kind"] == "figure_label")
        & (figures["printed"] == row.printed)
    ]
    return [f"figure {one.figure} for {one.workload} on {one.env}" for one in same.itertuples()]


def _one_digit(published: Sources, row: Any) -> str | None:
    """A log's number of the same metric that differs from a label in one digit: perhaps a slip in copying."""
    logs = published.logs
    if row.kind != "figure_label":
        return None
    rows = logs[(logs["metric"] == row.metric) & logs["statistic"].isin(("total", "run", "summary"))]
    for one in rows.itertuples():
        if len(one.printed) == len(row.printed):
            differ = sum(a != b for a, b in zip(one.printed, row.printed, strict=True))
            if differ == 1:
                return f"it differs in one digit from {one.printed}, {one.workload} on {one.env}"
    return None


def _elsewhere(row: Any, check: str, recomputed: float | None, note: str, agrees: str = "no") -> Finding:
    return replace(_about(row, check), recomputed=recomputed, agrees=agrees, note=f"{note}.")
