"""The input alone: images per second by loader processes, from an empty page cache and a full one."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.pipeline import CACHES, Rate
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.report.figures import style
from tare.report.words.labels import span

LOOKS = {"cold": (CONTROL, "from an empty page cache"), "warm": (HOST, "from a full page cache")}
APART = 0.08  # of two numbers of processes, so that bars do not hide one another


def pipeline(rates: Sequence[Rate], demand: float, title: str) -> style.Drawing:
    """Points: geometric means; bars: intervals; dashed: what training from memory asks for."""
    title = f"{title}: input alone"
    counts = sorted({rate.workers for rate in rates})
    with style.sheet(3.3) as (figure, axes):
        for cache in CACHES:
            own = [rate for rate in rates if rate.cache == cache]
            if not own:
                continue
            look, label = LOOKS[cache]
            x = [counts.index(rate.workers) + (APART if cache == "warm" else -APART) for rate in own]
            means = [rate.images_per_s for rate in own]
            axes.plot(x, means, linewidth=1.2, markersize=6, label=label, **style.point_style(look))
            for place, rate in zip(x, own, strict=True):
                if rate.low is not None and rate.high is not None:
                    axes.plot([place, place], [rate.low, rate.high], color=style.colour(look), linewidth=2)
        axes.axhline(demand, linestyle="--", color=style.MUTED, linewidth=1, label="what training asks for")
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
        axes.set_xlabel("loader processes")
        axes.set_ylabel("images/s")
        axes.set_ylim(bottom=0)
        style.bare(axes, grid="y")
        n = span(rate.n for rate in rates)
        note = f"Host. n = {n} passes each. Points: geometric means; bars: intervals of each by itself."
        told = "; ".join(f"{rate.workers} ({rate.cache}): {rate.images_per_s:,.0f}" for rate in rates)
        alt = f"{title}. Images per second by loader processes: {told}. Training asks for {demand:,.0f}."
        return style.finish(figure, title, note, alt, axes.get_legend_handles_labels(), 1)
