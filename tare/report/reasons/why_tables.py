"""Every number behind the argument why environments differ, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tare.analysis.causes import ALL_OPERATORS, FileAccount, OperatorTime, PhaseCost, calls_by_launch
from tare.report.number_tables import interval_text, ratio_text
from tare.report.words.labels import (
    env_order,
    env_title,
    metric_order,
    metric_title,
    seconds,
    significant,
    with_unit,
)
from tare.report.words.layout import Table, by_environment, ends, signed_s
from tare.stats.intervals import Interval


def span_s(interval: Interval) -> str:
    """Mean and interval of extra seconds."""
    if interval.mean is None:
        return "no number"
    if interval.low is None:
        return f"{signed_s(interval.mean)}, no interval from {interval.n} unit"
    return f"{signed_s(interval.mean)} ({ends(interval.low, interval.high, seconds)})"


def files_table(causes: pd.DataFrame, title: str) -> Table:
    """Medians over launches of what files cost, by environment."""
    own = causes[causes["kind"] != "unavailable"]
    units = own.groupby("metric")["unit"].first()
    table = own.pivot_table(index="metric", columns="launch", values="value", aggfunc="median")

    def cell(metric: str, env: str) -> str | None:
        value = table.loc[metric, env]
        return None if pd.isna(value) else with_unit(value, units[metric])

    return Table.of(
        sorted(table.index, key=metric_order),
        {"": metric_title, **by_environment(sorted(table.columns, key=env_order), cell)},
        caption=f"{title}: files of the imports, calls of a step (medians over launches)",
        note="First reading comes before the imports of the same launch; repeated reading after them.",
        numeric=True,
        wide=True,
    )


def phases_table(costs: Sequence[PhaseCost], title: str) -> Table:
    """Extra seconds of each phase with its interval and its share, by environment."""
    by_key = {(cost.phase, cost.env): cost for cost in costs}

    def cell(phase: str, env: str) -> str | None:
        cost = by_key.get((phase, env))
        return cost and f"{span_s(cost.extra)}{'' if cost.share is None else f', {100 * cost.share:.0f}%'}"

    return Table.of(
        dict.fromkeys(cost.phase for cost in costs),
        {"": metric_title, **by_environment(sorted({cost.env for cost in costs}, key=env_order), cell)},
        caption=f"{title}: extra time of a whole run and its phases against the host",
        note="Exploratory: means of differences within a round; of each phase the intervals of all environments "
        "hold together (Bonferroni). The share stands where the whole run's interval excludes zero.",
        wide=True,
    )


def accounts_table(accounts: Sequence[FileAccount], title: str) -> Table:
    """What reading files accounts for, by environment."""
    return Table.of(
        accounts,
        {
            "": lambda one: env_title(one.env),
            "imports in whole runs": lambda one: span_s(one.imports),
            "first reading of files": lambda one: span_s(one.files),
            "imports after reading": lambda one: span_s(one.after),
            "files by imports": lambda one: one.reason or f"{100 * one.low:.0f}% to {100 * one.high:.0f}%",
        },
        caption=f"{title}: extra time of imports, and of reading their files",
        note="Exploratory, from two campaigns: the quotients of the ends of both intervals bound the share.",
        wide=True,
    )


def operators_table(times: Sequence[OperatorTime], title: str) -> Table:
    """Own time of each operator, as a ratio to the hosts."""
    return Table.of(
        times,
        {
            "operator": lambda time: time.operator,
            "environment": lambda time: env_title(time.env),
            "host": lambda time: seconds(time.host_s),
            "share": lambda time: f"{100 * time.share:.0f}%",
            "ratio": lambda time: ratio_text(time.ratio),
            "interval": lambda time: interval_text(time.low, time.high),
            "host to host": lambda time: interval_text(time.control_low, time.control_high),
            "": lambda time: "differs" if time.differs else "not told apart",
        },
        caption=f"{title}: own time of operators, profiled, against the two hosts",
        note=f"Exploratory: {ALL_OPERATORS} and those of 1% or more. Each operator and environment has a spread "
        "of its own, moderated by those of the environment's other operators; levels by selection over all rows "
        "(Benjamini and Hochberg). An operator differs where there are the units that a verdict takes, its "
        "interval excludes 1, and its ratio lies beyond what the two hosts show in any unit.",
        wide=True,
    )


def kernels_table(kernels: pd.DataFrame, title: str) -> Table:
    """Calls of each kernel in one step: one number where all launches of an environment agree, else their range."""
    calls = calls_by_launch(kernels, operators=False)

    def cell(kernel: str, env: str) -> str:
        values = {own.get(kernel, 0.0) for (name, _), own in calls.items() if name == env}
        return " to ".join(significant(value) for value in dict.fromkeys((min(values), max(values))))

    return Table.of(
        sorted({name for launch in calls.values() for name in launch}),
        {"kernel [shape]": str, **by_environment(sorted({env for env, _ in calls}, key=env_order), cell)},
        caption=f"{title}: kernels of oneDNN and MKL in one step, calls",
        note="As the libraries name them: primitive, implementation and propagation, or routine and flags.",
        numeric=True,
        wide=True,
    )
