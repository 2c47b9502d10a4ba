"""What a training step is made of in each stack: own time of its operators by family, from profiled launches."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tare.model.levels import SAME
from tare.report.figures import style
from tare.report.words.labels import seconds, workload_title
from tare.worker.families import CONVOLUTION, ELEMENT_WISE, OPTIMIZER, POOLING, PRODUCT

# What every framework names alike; the rest is one part, as some make dropouts and losses of many operators.
NAMED = (CONVOLUTION, PRODUCT, ELEMENT_WISE, POOLING, OPTIMIZER)
REST = "all other"
FILLS = dict(zip((*NAMED, REST), style.PHASE_COLOURS[1:], strict=True))
MS = 1e3


def step_table(profiles: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Seconds of a step by part: one row per stack, in the table's order.

    Columns: `label`, the stack's level; the parts; `plain_step_s`, without the profiler; `reason` of no parts. A
    launch that could not be has neither.
    """
    own = profiles[profiles["workload"] == workload]
    rows = []
    for level, found in own.groupby("level", sort=False):
        first = found.iloc[0]
        part = found["family"].where(found["family"].isin(NAMED), REST)
        sums = found["self_s_per_step"].groupby(part).sum() if pd.isna(first["reason"]) else pd.Series(dtype=float)
        rows.append(
            {
                "label": first["stack"] if level == SAME else level,
                **{name: sums.get(name, np.nan) for name in (*NAMED, REST)},
                "plain_step_s": first["plain_step_s"],
                "reason": first["reason"],
            }
        )
    return pd.DataFrame(rows, columns=["label", *NAMED, REST, "plain_step_s", "reason"])


def stack_steps(profiles: pd.DataFrame, workload: str) -> style.Drawing:
    """Stacked bars of the families of operators, one per stack; a mark at the step without the profiler."""
    title = f"{workload_title(workload)}: what a step is made of"
    table = step_table(profiles, workload)
    table = table[table["plain_step_s"].notna()].reset_index(drop=True)
    if table.empty:
        return style.empty(title, "no profiled launch in another stack succeeded")
    with style.sheet(0.3 * len(table) + 1.75) as (figure, axes):
        _bars(axes, table)
        axes.set_xlabel("milliseconds")
        keys = [Patch(facecolor=FILLS[part], label=part) for part in (*NAMED, REST)]
        keys.append(Line2D([], [], color=style.INK, linewidth=1.8, label="step, no profiler"))
        style.legend(
            figure, title, (keys, [key.get_label() for key in keys]), 3, columnspacing=1.2, handlelength=1.0
        )
        style.footnote(
            figure, "One profiled launch each, on the host: own time of operators. A profiler takes time itself."
        )
    told = "; ".join(f"{row.label} {seconds(row.plain_step_s)}" for row in table.itertuples())
    return style.Drawing(figure=figure, title=title, alt=f"{title}. A step without the profiler: {told}.")


def _bars(axes: Axes, table: pd.DataFrame) -> None:
    left = pd.Series(0.0, index=table.index)
    for part, fill in FILLS.items():
        width = table[part].fillna(0.0) * MS
        axes.barh(
            range(len(table)), width, left=left, height=0.68, color=fill, edgecolor=style.PAPER, linewidth=0.5
        )
        left += width
    plain = table["plain_step_s"] * MS
    ends = np.maximum(left, plain)
    for place, (value, end, reason) in enumerate(zip(plain, ends, table["reason"], strict=True)):
        axes.plot([value, value], [place - 0.42, place + 0.42], color=style.INK, linewidth=1.8)
        note = f"{value:.1f} ms" + ("" if pd.isna(reason) else ", operators not named")
        axes.annotate(note, (end, place), (6, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_yticks(range(len(table)), table["label"])
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xlim(0, ends.max() * 1.3)
    style.bare(axes)
