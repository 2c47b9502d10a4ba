"""docs/history.svg: how long the user's commands took, a point for each whole run of benchmarks/history.csv.

PYTHONPATH=. .venv/bin/python benchmarks/history.py
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from statistics import median

from tare.core.files import project_root
from tare.report.figures import style

LEAST_S = 60.0  # with less, there was nothing left to do
TICKS = (5, 10, 20, 30, 60, 120)


def observed() -> dict[str, list[float]]:
    """Minutes by command, of those that ran whole at least twice; the shortest first."""
    found: dict[str, list[float]] = {}
    with (project_root() / "benchmarks/history.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            named = row["command"].startswith("make ") and "…" not in row["command"]
            if named and not row["part"] and float(row["seconds"]) >= LEAST_S:
                found.setdefault(row["command"], []).append(float(row["seconds"]) / 60)
    return {name: found[name] for name in sorted(found, key=lambda one: median(found[one])) if len(found[name]) > 1}


def drawing(found: Mapping[str, Sequence[float]]) -> style.Drawing:
    """A row for each command."""
    with style.sheet(0.36 * len(found) + 1.2, width_in=7.2) as (figure, axes):
        for place, minutes in enumerate(found.values()):
            axes.plot(minutes, [place] * len(minutes), "o", color=style.INK, alpha=0.45, markersize=6)
        axes.set_xscale("log")
        axes.set_xticks(TICKS, map(str, TICKS))
        axes.minorticks_off()
        axes.set_yticks(range(len(found)), found)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlabel("minutes")
        style.bare(axes)
    title = "How long commands took"
    ranges = "; ".join(f"{name}: {len(own)}, {min(own):.0f} to {max(own):.0f} min" for name, own in found.items())
    note = "Shared virtual machines with two CPUs. Versions, caches and other load differ."
    return style.finish(figure, title, note, alt=f"{title}. {ranges}.")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    style.write(drawing(observed()), project_root() / "docs/history.svg")
