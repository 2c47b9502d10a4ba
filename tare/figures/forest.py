"""The deciding intervals: ratio of each environment to the host, beside the margin and the control."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tare.figures import style
from tare.labels import env_order, env_title, metric_title, workload_title
from tare.study import CONTROL

KEY_METRICS = (
    "real_s",
    "steady_step_s",
    "runtime_start_s",
    "imports_s",
    "data_s",
    "model_s",
    "first_step_s",
    "epoch_rest_s",
    "exit_s",
)
LINEAR_UP_TO = 0.1  # log-ratio: linear between about -10% and +10%, logarithmic beyond
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)
FIRST_TICKS = (1.0, 0.9, 1.1, 0.5, 2, 0.1, 10)
NEAREST_TICKS = 0.115  # of the axis: labels closer than this would touch
FARTHEST = math.log(150)  # the axis ends here, however little a few rounds say
ROW_IN = 0.185


def intervals(verdicts: pd.DataFrame, workload: str) -> style.Drawing:
    """Forest plot of one workload's campaign.

    Args:
        verdicts: rows of the campaign to show.
        workload: its name.
    """
    title = f"{workload_title(workload)}: ratio to the host"
    rows = verdicts[(verdicts["workload"] == workload) & verdicts["metric"].isin(KEY_METRICS)]
    if rows.empty:
        return style.empty(title, "no environment but the host ran: there is nothing to compare")
    groups = [
        (metric, rows[rows["metric"] == metric]) for metric in KEY_METRICS if (rows["metric"] == metric).any()
    ]
    count = sum(len(group) + 2.1 for _, group in groups)
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH_IN, count * ROW_IN + 1.15))
        axes = figure.add_subplot()
        place, ticks = 0.0, []
        for metric, group in groups:
            place = _draw_group(axes, metric, group, place, ticks)
        axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
        axes.set_ylim(place, -0.9)
        axes.axvline(0, color=style.INK, linewidth=0.8)
        _ratio_axis(axes, rows)
        axes.set_title(title)
        style.bare(axes)
        first = rows.iloc[0]
        style.footnote(
            figure,
            f"n = {_units(rows)} rounds. Bars: {confidence(first):.0f}% t intervals, all environments together "
            "(Bonferroni). Shaded: the margin. Linear between −10% and +10%, logarithmic beyond.",
        )
    return style.Drawing(figure=figure, title=title, alt=_alt(title, rows))


def confidence(row: pd.Series) -> float:
    """Confidence of the whole family, per cent."""
    return 100 * (1 - row["alpha"] * row["family_size"])


def _draw_group(axes: Axes, metric: str, group: pd.DataFrame, place: float, ticks: list) -> float:
    group = group.sort_values("env", key=lambda names: names.map(env_order))
    first = group.iloc[0]
    limit = math.log1p(first["margin"])
    axes.text(
        0.0, place, f"{metric_title(metric)}", fontweight="bold", fontsize=9.5, va="center",
        transform=axes.get_yaxis_transform(), bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 1},
        zorder=5,
    )  # fmt: skip
    axes.fill_betweenx(
        [place + 0.5, place + len(group) + 1.5], -limit, limit, color=style.BAND, linewidth=0, zorder=0
    )
    for index, row in enumerate(group.to_dict("records"), start=1):
        _draw_row(axes, place + index, row["env"], (row["ratio"], row["ci_low"], row["ci_high"]), row["n_units"])
        ticks.append((place + index, env_title(row["env"], short=True)))
    control = (first["control_ratio"], first["control_ci_low"], first["control_ci_high"])
    _draw_row(axes, place + len(group) + 1, CONTROL, control, first["n_units"])
    ticks.append((place + len(group) + 1, env_title(CONTROL, short=True)))
    return place + len(group) + 2.1


def _draw_row(axes: Axes, place: float, env: str, numbers: tuple[float, float, float], n_units: int) -> None:
    middle, low, high = numbers
    if pd.notna(low) and pd.notna(high):
        axes.plot([math.log(low), math.log(high)], [place, place], color=style.colour(env), linewidth=2.2)
    elif pd.isna(middle):
        axes.text(0, place, f" no interval: n = {n_units}", fontsize=8, color=style.MUTED, va="center")
    if pd.notna(middle):
        axes.plot(math.log(middle), place, markersize=5.5, linestyle="none", **style.point_style(env))


def _ratio_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """Symmetric-log axis of log-ratios with labels such as -5%, +20%, 3x, never so dense that they touch."""
    columns = ["ratio", "ci_low", "ci_high", "control_ratio", "control_ci_low", "control_ci_high"]
    values = [math.log(v) for column in columns for v in rows[column].dropna() if v > 0]
    low = max(min([*values, -1.3 * LINEAR_UP_TO]), -FARTHEST)
    high = min(max([*values, 1.3 * LINEAR_UP_TO]), FARTHEST)
    axes.set_xscale("symlog", linthresh=LINEAR_UP_TO, linscale=1.0)
    pad = 1.12
    axes.set_xlim(low * pad, high * pad)
    to_axis = axes.transData + axes.transAxes.inverted()
    chosen: dict[float, float] = {}
    for ratio in sorted(TICKS, key=lambda t: (t not in FIRST_TICKS, abs(math.log(t)))):
        at = math.log(ratio)
        if not low * pad <= at <= high * pad:
            continue
        where = to_axis.transform((at, 0))[0]
        if all(abs(where - other) >= NEAREST_TICKS for other in chosen.values()):
            chosen[at] = where
    axes.set_xticks(sorted(chosen), [ratio_label(math.exp(at)) for at in sorted(chosen)])
    axes.minorticks_off()
    axes.tick_params(axis="x", labeltop=True)


def ratio_label(ratio: float) -> str:
    """A ratio as a tick says it: -5%, 0, +20%, 3x."""
    if ratio > 1.95:
        return f"{ratio:.3g}×"
    percent = round(100 * (ratio - 1), 3)
    return "0" if percent == 0 else f"{percent:+.3g}%".replace("-", "−")


def _units(rows: pd.DataFrame) -> str:
    low, high = int(rows["n_units"].min()), int(rows["n_units"].max())
    return str(low) if low == high else f"{low} to {high}"


def _alt(title: str, rows: pd.DataFrame) -> str:
    parts = []
    for row in rows[rows["metric"] == "real_s"].to_dict("records"):
        if pd.isna(row["ci_low"]):
            parts.append(f"{env_title(row['env'])}: no interval")
        else:
            span = f"{ratio_label(row['ci_low'])} to {ratio_label(row['ci_high'])}"
            parts.append(f"{env_title(row['env'])} {span}, {row['verdict']}")
    return f"{title}. Whole run: {'; '.join(parts)}. The table beside the figure holds every number."
