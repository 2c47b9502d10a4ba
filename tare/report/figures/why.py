"""Extra time of a whole run by phase, and what of it reading the files of the imports accounts for."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from tare.analysis.causes import PHASE_METRICS, PhaseCost, environments_of, extra, phase_costs
from tare.analysis.choice import of_causes, of_rounds, share
from tare.model.records.campaigns import VERDICT_UNITS
from tare.model.roles import CONTROL
from tare.report.figures import style
from tare.report.figures.forest import ROW_IN, group_title
from tare.report.words.labels import env_order, env_title, metric_title, units_text, workload_title
from tare.report.words.layout import signed_s
from tare.stats.intervals import Interval

GAP = 1.2  # rows of a group beyond its environments
BELOW = 0.36  # rows below the bar of the imports: what their files cost
REACH = 2.5  # the axis ends at this many times the largest mean: wide intervals go on beyond it
IMPORTS = "imports_s"


def why(metrics: pd.DataFrame, verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Extra milliseconds of each phase against the hosts, with intervals; below imports, what their files cost."""
    title = f"{workload_title(workload)}: where extra time sits"
    judged = of_rounds(verdicts, workload)
    costs = phase_costs(of_rounds(metrics, workload), _alpha(judged), VERDICT_UNITS) if len(judged) else []
    if not costs:
        return style.empty(title, "no environment but the host ran whole runs: there is no extra time to split")
    files = _files(of_causes(metrics, workload), _alpha(judged))
    environments = sorted({cost.env for cost in costs}, key=env_order)
    shown = [phase for phase in ("real_s", *PHASE_METRICS) if any(cost.phase == phase for cost in costs)]
    with style.sheet(len(shown) * (len(environments) + GAP) * ROW_IN + 1.35) as (figure, axes):
        style.title_above(figure, title)
        cut = _draw(axes, costs, files, shown, environments)
        units = max(cost.extra.n for cost in costs)
        note = f"n = {units_text(units, 'rounds')}. Bars: 95% intervals, all environments of a phase together."
        note = note.replace("95%", f"{100 * (1 - _alpha(judged)):.0f}%")
        if files:
            note += " Thin, below imports: first reading of their files, in launches of its own."
        style.footnote(figure, note + (" Bars that reach the edge go on beyond it." if cut else ""))
    return style.Drawing(figure=figure, title=title, alt=_alt(title, costs, files))


def _alpha(verdicts: pd.DataFrame) -> float:
    """Of all environments together."""
    return share(verdicts) * float(verdicts.iloc[0]["family_alpha"])


def _files(causes: pd.DataFrame, alpha: float) -> dict[str, Interval]:
    """Extra seconds of the first reading of files, by environment; the control among them."""
    if causes.empty:
        return {}
    others = environments_of(causes)
    found = {env: extra(causes, "files_first_s", env, alpha / max(1, len(others))) for env in (*others, CONTROL)}
    return {env: interval for env, interval in found.items() if interval.n}


def _draw(
    axes: Axes, costs: list[PhaseCost], files: dict[str, Interval], shown: list[str], environments: list[str]
) -> bool:
    """All groups; whether an interval is cut at the edge."""
    by_key = {(cost.phase, cost.env): cost.extra for cost in costs}
    limit = REACH * 1e3 * max(abs(cost.extra.mean) for cost in costs)
    place, ticks, ends = 0.0, [], []
    for phase in shown:
        group_title(axes, metric_title(phase), place)
        for env in environments:
            place += 1
            ticks.append((place, env_title(env, short=True)))
            if (phase, env) in by_key:
                ends += _bar(axes, place, env, by_key[phase, env], limit)
            if phase == IMPORTS and env in files:
                ends += _bar(axes, place + BELOW, env, files[env], limit, faint=True)
        place += GAP
    axes.axvline(0, color=style.INK, linewidth=0.8)
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.set_ylim(place - GAP + 0.8, -0.9)
    inside = [end for end in ends if abs(end) < limit]
    low, high = min([0.0, *inside]), max([0.0, *inside])
    cut = len(inside) < len(ends)
    if cut:
        low, high = (max(min(ends), -limit), min(max(ends), limit))
    pad = 0.03 * (high - low or 1)
    axes.set_xlim(low - (0 if cut and min(ends) < low else pad), high + (0 if cut and max(ends) > high else pad))
    axes.set_xlabel("extra milliseconds against the host")
    style.bare(axes)
    return cut


def _bar(
    axes: Axes, place: float, env: str, interval: Interval, limit: float, *, faint: bool = False
) -> list[float]:
    """Point and bar of one interval, in milliseconds; its ends."""
    look = {"alpha": 0.55, "linewidth": 1.2} if faint else {"linewidth": 2.2}
    ends = [interval.mean * 1e3]
    if interval.low is not None:
        ends = [interval.low * 1e3, interval.high * 1e3]
        axes.plot([max(ends[0], -limit), min(ends[1], limit)], [place, place], color=style.colour(env), **look)
    point = style.point_style(env) | ({"alpha": 0.55} if faint else {})
    axes.plot(interval.mean * 1e3, place, markersize=4.0 if faint else 5.5, linestyle="none", **point)
    return ends


def _alt(title: str, costs: list[PhaseCost], files: dict[str, Interval]) -> str:
    parts = []
    for env in sorted({cost.env for cost in costs}, key=env_order):
        own = {cost.phase: cost.extra.mean for cost in costs if cost.env == env}
        largest = max((phase for phase in own if phase != "real_s"), key=lambda phase: abs(own[phase]))
        text = f"{env_title(env)}: whole run {signed_s(own['real_s'])} against the host on average"
        text += f", {metric_title(largest).lower()} {signed_s(own[largest])}"
        parts.append(text + (f", files {signed_s(files[env].mean)}" if env in files else ""))
    return f"{title}. {'. '.join(parts)}. The table beside the figure holds every number."
