"""Extra time of a whole run by phase, and what of it reading the files of the imports accounts for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.causes import PHASE_METRICS, environments_of, extra, phase_costs
from tare.analysis.choice import of_causes, of_rounds, share
from tare.model.records.campaigns import VERDICT_UNITS
from tare.model.roles import CONTROL
from tare.report.figures import style
from tare.report.figures.forest import Line, Panel, forest
from tare.report.words.labels import env_order, env_title, metric_title, units_text, workload_title
from tare.report.words.layout import signed_s
from tare.stats.intervals import Interval

REACH = 2.5  # bars end at this many times the largest mean: wide intervals go on beyond it
IMPORTS = "imports_s"
MS = 1e3
Costs = Mapping[tuple[str, str], Interval]  # by phase and environment, seconds


def why(metrics: pd.DataFrame, verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Extra milliseconds of each phase against the hosts, with intervals; below imports, what their files cost."""
    title = f"{workload_title(workload)}: where extra time sits"
    judged = of_rounds(verdicts, workload)
    alpha = share(judged) * float(judged.iloc[0]["family_alpha"]) if len(judged) else 1.0
    found = phase_costs(of_rounds(metrics, workload), alpha, VERDICT_UNITS) if len(judged) else []
    if not found:
        return style.empty(title, "no environment but the host ran whole runs: there is no extra time to split")
    costs = {(cost.phase, cost.env): cost.extra for cost in found}
    files = _files(of_causes(metrics, workload), alpha)
    units = units_text(max(one.n for one in costs.values()), "rounds")
    note = f"n = {units}. Bars: {100 * (1 - alpha):.0f}% intervals, all environments of a phase together."
    if files:
        note += " Thin, below imports: first reading of their files, in launches of its own."
    limit = REACH * MS * max(abs(one.mean) for one in costs.values())
    groups, drawn = [], [*costs.values(), *files.values()]
    for phase in ("real_s", *PHASE_METRICS):
        beside = files if phase == IMPORTS else {}
        lines = [
            Line(name=env_title(env, short=True), row=_row(env, costs[phase, env], limit),
                 beside=_row(env, beside[env], limit) if env in beside else None)
            for env in sorted((env for one, env in costs if one == phase), key=env_order)
        ]  # fmt: skip
        groups += [(metric_title(phase), lines)] if lines else []
    if any(one.low is not None and (one.low * MS < -limit or one.high * MS > limit) for one in drawn):
        note += f" Bars are cut at {limit:,.3g} ms."
    panel = Panel(groups=groups, place=float, axis=_milliseconds)
    return forest(title, [panel], note, _alt(costs, files))


def _row(env: str, interval: Interval, limit: float) -> dict[str, Any]:
    """An interval in milliseconds, as far as the axis reaches."""
    low, high = None, None
    if interval.low is not None:
        low, high = max(interval.low * MS, -limit), min(interval.high * MS, limit)
    return {"launch": env, "ratio": interval.mean * MS, "ci_low": low, "ci_high": high}


def _milliseconds(axes: Axes, ends: Sequence[float]) -> bool:
    low, high = min(0.0, *ends), max(0.0, *ends)
    pad = 0.03 * (high - low or 1)
    axes.set_xlim(low - pad, high + pad)
    axes.set_xlabel("extra milliseconds against the host")
    return True


def _files(causes: pd.DataFrame, alpha: float) -> dict[str, Interval]:
    """Extra seconds of the first reading of files, by environment; the control among them."""
    if causes.empty:
        return {}
    others = environments_of(causes)
    found = {env: extra(causes, "files_first_s", env, alpha / max(1, len(others))) for env in (*others, CONTROL)}
    return {env: interval for env, interval in found.items() if interval.n}


def _alt(costs: Costs, files: Mapping[str, Interval]) -> str:
    parts = []
    for env in sorted({env for _, env in costs}, key=env_order):
        own = {phase: cost.mean for (phase, name), cost in costs.items() if name == env}
        largest = max((phase for phase in own if phase != "real_s"), key=lambda phase: abs(own[phase]))
        text = f"{env_title(env)}: whole run {signed_s(own['real_s'])} against the host on average"
        text += f", {metric_title(largest).lower()} {signed_s(own[largest])}"
        parts.append(text + (f", files {signed_s(files[env].mean)}" if env in files else ""))
    return f"{'. '.join(parts)}."
