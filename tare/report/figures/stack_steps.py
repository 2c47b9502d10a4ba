"""What a training step is made of in each stack: own time of its operators by family, from profiled launches."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tare.model.levels import SAME
from tare.report.figures import style
from tare.report.words.labels import seconds, workload_title
from tare.worker.families import CONVOLUTION, ELEMENT_WISE, OPTIMIZER, POOLING, PRODUCT

# What every framework names alike; the rest is one part, as some make dropouts and losses of many operators.
NAMED = (CONVOLUTION, PRODUCT, ELEMENT_WISE, POOLING, OPTIMIZER)
REST = "all other"
MS = 1e3


def step_table(profiles: pd.DataFrame, workload: str) -> pd.DataFrame:
    """Seconds of a step by part: one row per stack, in the table's order.

    Columns: `label`, the stack's level; the parts; `plain_step_s`, without the profiler; `reason` of no parts. A
    launch that could not be has neither.
    """
    rows = []
    for level, found in profiles[profiles["workload"] == workload].groupby("level", sort=False):
        first = found.iloc[0]
        part = found["family"].where(found["family"].isin(NAMED), REST)
        sums = found["self_s_per_step"].groupby(part).sum() if pd.isna(first["reason"]) else {}
        label = first["stack"] if level == SAME else level
        rows.append({"label": label, **sums, "plain_step_s": first["plain_step_s"], "reason": first["reason"]})
    return pd.DataFrame(rows, columns=["label", *NAMED, REST, "plain_step_s", "reason"])


def stack_steps(profiles: pd.DataFrame, workload: str) -> style.Drawing:
    """Stacked bars of the families of operators, one per stack; a mark at the step without the profiler."""
    title = f"{workload_title(workload)}: what a step is made of"
    table = step_table(profiles, workload)
    table = table[table["plain_step_s"].notna()].reset_index(drop=True)
    if table.empty:
        return style.empty(title, "no profiled launch in another stack succeeded")
    plain, parts = table["plain_step_s"] * MS, table[[*NAMED, REST]].astype(float) * MS
    with style.sheet(0.3 * len(table) + 1.75) as (figure, axes):
        style.stacked(axes, parts, style.PHASE_COLOURS[1:], table["label"])
        places = np.arange(len(table))
        axes.vlines(plain, places - 0.42, places + 0.42, color=style.INK, linewidth=1.8, label="step, no profiler")
        ends = np.maximum(parts.sum(axis=1), plain)
        for place, (value, end, reason) in enumerate(zip(plain, ends, table["reason"], strict=True)):
            note = f"{value:.1f} ms" + ("" if pd.isna(reason) else ", operators not named")
            axes.annotate(note, (end, place), (6, 0), textcoords="offset points", va="center", fontsize=8.5)
        axes.set_xlim(0, ends.max() * 1.3)
        axes.set_xlabel("milliseconds")
        note = "One profiled launch each, on the host: own time of operators. A profiler takes time itself."
        told = "; ".join(f"{row.label} {seconds(row.plain_step_s)}" for row in table.itertuples())
        alt, handles = f"{title}. A step without the profiler: {told}.", axes.get_legend_handles_labels()
        return style.finish(figure, title, note, alt, handles, 3, columnspacing=1.2, handlelength=1.0)
