"""Figures of the notebooks and the report: tidy tables in, SVG out. Nothing is measured or judged here.

Each function gives a Drawing; `write` puts it into a file. A table without the rows that a figure needs gives a
figure that says so.
"""

from tare.figures.batch import batch_size, batch_table
from tare.figures.choice import arm_workloads, joint
from tare.figures.forest import intervals
from tare.figures.levels import arms
from tare.figures.roofs import roofline, roofline_table
from tare.figures.runs import split, split_table, units
from tare.figures.style import Drawing, inline, show, write
from tare.figures.usage import operator_times, utilisation

__all__ = [
    "Drawing",
    "arm_workloads",
    "arms",
    "batch_size",
    "batch_table",
    "inline",
    "intervals",
    "joint",
    "operator_times",
    "roofline",
    "roofline_table",
    "show",
    "split",
    "split_table",
    "units",
    "utilisation",
    "write",
]
