"""Bars of several workloads, or ratios to the host, as a published study drew them: a group of bars a workload.

A ratio is one of the campaign's verdicts with its interval, or of measured repetitions paired by unit; the host is
the line at 1. What the text of a study states of such a figure stands beside it as a dashed line, at its own
number: a study whose figure prints no numbers has no bars of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tare.literature.contrasts import At, Measured, Ratio, to_alone, to_host
from tare.literature.finding import listed
from tare.literature.published import Fact, Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import FIGURE_METRICS, RATES, SLOWDOWN
from tare.model.studies.study import HOST
from tare.report.figures import style
from tare.report.figures.paper_rows import (
    HERE,
    PRINTED,
    Numbers,
    amount,
    as_table,
    here_rows,
    none_here,
    scale_of,
    why_nothing,
)
from tare.report.figures.paper_timeline import (
    RECORDED_IN,
    draw_recorded,
    recorded,
    recorded_caption,
    recorded_handles,
    recorded_note,
    recorded_sentences,
    unavailable,
)
from tare.report.figures.paper_words import theirs, title_of
from tare.report.words.labels import env_order, env_title, metric_title, significant, span, workload_title

GROUP, WIDEST, HEADROOM = 0.82, 0.26, 1.18
PANEL_IN, EMPTY_IN = 2.1, 0.9
BESIDE = 0.52  # of the bars' width, for what a text states beside them
LABEL_OF_PANEL = 0.075  # a label's height
LEADER = {"arrowstyle": "-", "linewidth": 0.6, "color": style.MUTED, "shrinkA": 0, "shrinkB": 0}
RATIO, TIMES_ALONE = "ratio", "slowdown"


def group_numbers(published: Published, measured: Measured, plot: Plot) -> Numbers:
    """What a figure of several workloads, or of ratios, shows: printed values, and this machine's.

    Args:
        published: the study.
        measured: tables of metrics and verdicts.
        plot: the figure.
    """
    rows = _printed(published, plot)
    for workload in plot.subjects:
        for metric in plot.metrics:
            if plot.relative or metric == SLOWDOWN:
                rows += _ratios(measured, plot, workload, metric)
            else:
                rows += here_rows(measured.metrics, plot, workload, metric)
    return Numbers(plot=plot, names=published.names, rows=as_table(rows))


def _printed(published: Published, plot: Plot) -> list[dict[str, Any]]:
    """Printed values, by those of the host where bars are ratios."""
    own = published.figures[published.figures["figure"] == plot.figure]
    found = []
    for row in own.to_dict("records"):
        unit, by = TIMES_ALONE if row["metric"] == SLOWDOWN else row["unit"], 1.0
        if plot.relative and FIGURE_METRICS[row["metric"]] != "1":
            host = own[
                (own["workload"] == row["workload"]) & (own["metric"] == row["metric"]) & (own["env"] == HOST)
            ]
            if host.empty or row["env"] == HOST:
                continue
            unit, by = RATIO, float(host["value"].iloc[0])
        labels = {name: row[name] for name in ("workload", "env", "metric", "kind", "printed")}
        spread = {"low": (row["value"] - row["error"]) / by, "high": (row["value"] + row["error"]) / by}
        found.append({"series": PRINTED, **labels, "value": row["value"] / by, **spread, "n": 1, "unit": unit})
    return found


def _ratios(measured: Measured, plot: Plot, workload: str, metric: str) -> list[dict[str, Any]]:
    """Every environment by the host in one metric, or by itself without a neighbour, or why there is none."""
    lacking = why_nothing(measured.metrics, plot, workload)
    if lacking:
        return [none_here(workload, metric, lacking)]
    found, at = [], At(level=plot.arm, scenario=plot.scenario)
    ratios: list[Ratio]
    if metric == SLOWDOWN:
        ratios, unit = to_alone(measured, workload, at), TIMES_ALONE
    else:
        ratios, unit = to_host(measured, workload, metric, at), RATIO
    for ratio in ratios:
        if plot.environments and ratio.env not in plot.environments:
            continue
        labels = {"series": HERE, "workload": workload, "env": ratio.env, "metric": metric, "unit": unit}
        if ratio.ratio is None:
            found.append({**labels, "kind": "unavailable", "reason": f"no interval from {ratio.units} units"})
        else:
            interval = {"low": ratio.low, "high": ratio.high}
            found.append({**labels, "value": ratio.ratio, **interval, "n": ratio.units, "kind": "measured"})
    where = f" at {plot.arm}" if plot.arm else ""
    what = "itself without a neighbour" if metric == SLOWDOWN else "the host"
    return found or [none_here(workload, metric, f"this study compares no environment with {what}{where}")]


def limits(published: Published, plot: Plot) -> list[tuple[float, str]]:
    """What the text states of a figure of ratios, as a place on its axis and a label.

    A share is a degradation: of a time upwards, of a rate downwards. Statements of a scenario that is not the
    figure's are left out.
    """
    found = []
    for fact in _stated(published, plot):
        quantity = fact.quantity
        if not (plot.relative or plot.by_itself) or quantity is None or quantity.unit not in ("%", "1"):
            continue
        share = quantity.value / 100 if quantity.unit == "%" else quantity.value - 1
        place = 1 - share if plot.metrics[0] in RATES else 1 + share
        found.append((place, f"text: {_said(fact, published.names)}"))
    return found


def _stated(published: Published, plot: Plot) -> list[Fact]:
    return [
        fact
        for name in plot.facts
        for fact in published.facts_of(name)
        if fact.labels.get("scenario") in (None, plot.scenario)
    ]


def _said(fact: Fact, names: Mapping[str, str]) -> str:
    """`<= 15 %, Container on VM`: a statement with what it is about."""
    number = str(fact.quantity) if fact.quantity is not None else listed(list(fact.names))
    if fact.quantity is not None and fact.quantity.printed_unit == "1":
        number = f"{fact.quantity.printed} times"
    relation = f"{fact.labels['relation']} " if fact.labels.get("relation") else ""
    text = f"{relation}{number}" + (f" to {fact.upper}" if fact.upper else "")
    about = fact.labels.get("envs") or ([fact.labels["env"]] if fact.labels.get("env") else [])
    return f"{text}, {listed([theirs(names, env) for env in about])}" if about else text


def paper_groups(published: Published, measured: Measured, plot: Plot) -> style.Drawing:
    """One figure of several workloads, or of ratios: what was published above, if anything was; this machine below.

    Args:
        published: the study.
        measured: tables of metrics and verdicts.
        plot: the figure.
    """
    found = group_numbers(published, measured, plot)
    title = title_of(plot)
    panels = [(PRINTED, "Published")] if not found.of(PRINTED).empty else []
    modelled = (found.of(HERE)["kind"] == "modelled").any()
    panels.append((HERE, "Modelled here" if modelled else "Measured here"))
    above = recorded(published, plot)
    heights = [RECORDED_IN] * len(above)
    heights += [EMPTY_IN if found.of(series).empty else PANEL_IN for series, _ in panels]
    stated = limits(published, plot)
    with style.house_style():
        drawn = Figure(figsize=(style.WIDTH_IN, sum(heights) + 1.5 + 0.25 * bool(above)))
        axes = drawn.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        for place, one in zip(axes, above, strict=False):
            draw_recorded(place, one)
        envs = sorted(set(found.rows.loc[found.rows["value"].notna(), "env"]), key=env_order)
        for panel, (series, name) in zip(axes[len(above) :], panels, strict=True):
            _panel(panel, found, series, name, envs, stated if series == HERE else [])
        handles: list[Artist] = [
            Patch(facecolor=style.colour(env), label=env_title(env, short=True)) for env in envs
        ]
        handles += recorded_handles(above)
        style.legend(drawn, title, (handles, [handle.get_label() for handle in handles]))
        style.footnote(drawn, " ".join([*recorded_note(published, above), _note(published, found)]))
    told = [*recorded_sentences(published, above), *group_sentences(published, found)]
    return style.Drawing(figure=drawn, title=title, alt=f"{title}. {' '.join(told)}")


def _panel(
    axes: Axes, found: Numbers, series: str, name: str, envs: list[str], stated: list[tuple[float, str]]
) -> None:
    rows = found.of(series)
    if rows.empty:
        unavailable(axes, found.missing())
        return
    workloads, metrics = found.plot.subjects, found.metrics
    slots = [(metric, env) for metric in metrics for env in envs]
    width = min(WIDEST, GROUP / max(1, len(slots)))
    size, unit = scale_of(str(rows["unit"].iloc[0]), float(rows["value"].max()))
    for row in rows.to_dict("records"):
        slot = slots.index((row["metric"], row["env"])) - (len(slots) - 1) / 2
        _bar(axes, row, workloads.index(row["workload"]) + slot * width, width, size)
    ends = [*rows["value"], *rows["high"].dropna(), *(place for place, _ in stated)]
    axes.set_ylim(0, HEADROOM * max(ends))
    beyond = BESIDE * len(workloads) if stated else 0.0
    _state(axes, stated, len(workloads) - 0.5, LABEL_OF_PANEL * HEADROOM * max(ends))
    if found.plot.relative or found.plot.by_itself:
        axes.plot([-0.5, len(workloads) - 0.5], [1, 1], color=style.colour(HOST), linewidth=1)
    here = set(rows["workload"])
    titles = [
        workload_title(w).replace(" on ", "\non ") + ("" if w in here else "\nunavailable") for w in workloads
    ]
    axes.set_xticks(range(len(workloads)), titles)
    axes.set_xlim(-0.5, len(workloads) - 0.5 + beyond)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size:,.4g}"))
    axes.tick_params(axis="x", length=0, labelcolor=style.INK, labelsize=8.5)
    axes.set_title(f"{name} ({unit})", fontsize=9.5)
    style.bare(axes, grid="y")


def _state(axes: Axes, stated: list[tuple[float, str]], end: float, apart: float) -> None:
    """Dashed lines as far as the bars go, and beside them what each is, one above the other."""
    last = -apart
    for place, label in sorted(stated):
        axes.plot([-0.5, end], [place, place], color=style.MUTED, linestyle=(0, (4, 3)), linewidth=1)
        last = max(place, last + apart)
        axes.annotate(
            label, (end, place), xytext=(end + 0.08, last), textcoords="data", ha="left", va="center",
            fontsize=7.2, color=style.MUTED, arrowprops=LEADER if last != place else None,
        )  # fmt: skip


def _bar(axes: Axes, row: dict[str, Any], where: float, width: float, size: float) -> None:
    colour, modelled = style.colour(row["env"]), row["kind"] == "modelled"
    (bar,) = axes.bar(
        where, row["value"], width * 0.92, facecolor=style.PAPER if modelled else colour, edgecolor=colour,
        hatch="-----" if modelled else "", linewidth=0.8,
    )  # fmt: skip
    bar.set_gid(f"{row['series']}-{row['workload']}-{row['env']}-{row['metric']}")
    end = row["value"] if pd.isna(row["high"]) else row["high"]
    if not pd.isna(row["high"]):
        axes.plot([where, where], [row["low"], row["high"]], color=style.INK, linewidth=1.2)
    axes.annotate(
        significant(row["value"] / size), (where, end), xytext=(0, 2), textcoords="offset points", ha="center",
        va="bottom", fontsize=7.2, color=style.INK, bbox={"facecolor": style.PAPER, "linewidth": 0, "pad": 0.6},
    )  # fmt: skip


def _note(published: Published, found: Numbers) -> str:
    here, parts = found.of(HERE), []
    if found.of(PRINTED).empty:
        parts.append("The paper prints no numbers in this figure.")
    if found.plot.relative:
        better = "less" if found.metrics[0] in RATES else "more"
        parts.append(f"Bars: ratios to the host, which is the line at 1; {better} is worse.")
    if found.plot.by_itself:
        parts.append("Bars: the time beside a neighbour by the time without one, which is the line at 1.")
    if limits(published, found.plot):
        parts.append("Dashed: what its text states.")
    if not here.empty:
        intervals = "with the interval of the verdict" if here["high"].notna().any() else "one launch, no interval"
        parts.append(f"Here: n = {span(here['n'])}, {intervals}.")
    if (here["kind"] == "modelled").any():
        parts.append("Hatched: modelled from counted operators.")
    return " ".join(parts)


def group_caption(published: Published, found: Numbers) -> list[str]:
    """What the paper states of the figure, and of which kind the numbers of this machine are."""
    stated = [f"{_said(fact, published.names)} ({fact.where})" for fact in _stated(published, found.plot)]
    if not found.of(PRINTED).empty:
        said = ["Published: values printed in the figure."]
    elif stated:
        said = [f"Published without numbers in the figure; its text says {'; '.join(stated)}."]
    else:
        said = ["Published without numbers in the figure.", *recorded_caption(recorded(published, found.plot))]
    kinds = sorted({*found.of(HERE)["kind"].dropna()} - {"unavailable"})
    return [*said, f"Here: {listed(kinds)}." if kinds else "Here: unavailable."]


def group_sentences(published: Published, found: Numbers) -> list[str]:
    """Every number by workload and environment, and every reason why there is none."""
    said = []
    for series, what in ((PRINTED, "Published"), (HERE, "Here")):
        for workload in found.plot.subjects:
            rows = found.of(series)
            rows = rows[rows["workload"] == workload]
            for metric in found.metrics:
                own = rows[rows["metric"] == metric].to_dict("records")
                if own:
                    told = "; ".join(_told(row, series, found.names) for row in own)
                    said.append(f"{what}, {workload_title(workload)}, {metric_title(metric).lower()}: {told}.")
    here = found.rows[(found.rows["series"] == HERE) & found.rows["value"].isna()]
    for reason in dict.fromkeys(here["reason"]):
        own = here[here["reason"] == reason]
        who = listed(list(dict.fromkeys(workload_title(name) for name in own["workload"])))
        said.append(f"Here, {who}: unavailable, {reason}.")
    return said


def _told(row: dict[str, Any], series: str, names: Mapping[str, str]) -> str:
    env = env_title(row["env"], short=True) if series == HERE else theirs(names, row["env"])
    number = significant(row["value"]) if row["unit"] in (RATIO, TIMES_ALONE) else amount(row["value"], row["unit"])
    if pd.isna(row["high"]) or series == PRINTED:
        return f"{env} {number}"
    size = 1.0 if row["unit"] in (RATIO, TIMES_ALONE) else scale_of(row["unit"], row["value"])[0]
    low, high = (significant(row[end] / size) for end in ("low", "high"))
    return f"{env} {number} ({low} to {high}, n = {row['n']})"
