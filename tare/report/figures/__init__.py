"""Figures of the notebooks and the report: tidy tables in, SVG out. Nothing is measured or judged here.

Each function gives a Drawing; `write` puts it into a file. A table without the rows that a figure needs gives a
figure that says so.
"""

from tare.analysis.capacity.roofs import roofline_table
from tare.analysis.choice import joint
from tare.report.figures.forest import choice_rows, choice_workloads, choices, intervals
from tare.report.figures.lines import batch_size, batch_table, failed_launches, job_length, job_rows
from tare.report.figures.listing import listed
from tare.report.figures.paper import paper_drawing
from tare.report.figures.paper_rows import Given, figure_names, file_name, read_given
from tare.report.figures.rooflines import families_roofline, roofline
from tare.report.figures.runs import late_table, split, split_table, step_table, units
from tare.report.figures.style import Drawing, inline, show, write
from tare.report.figures.usage import device_samples, device_time, device_time_table, operator_times, utilisation
