"""Words that a paper's file may use of what this project measures: metrics, sampled quantities, kinds of figures.

A word is known here or refused: the file of a paper can't name what nobody could draw or judge.
"""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis.launch_rows import SLOWDOWN as SLOWDOWN

# Base unit of each metric that a figure or a claim may be about.
FIGURE_METRICS: Mapping[str, str] = {
    "real_s": "s",
    "system_s": "s",
    "memset_s": "s",
    "htod_s": "s",
    "dram_read_bytes_per_s": "B/s",
    "dram_write_bytes_per_s": "B/s",
    "flops": "1",
    "hbm_transactions": "1",
    "log2_intensity": "1",
    "log2_gflops": "1",
    "samples_per_s": "1/s",
    "images_per_s": "1/s",
    "step_s": "s",
    "first_step_s": "s",
    "epoch_rest_s": "s",
    "peak_rss_bytes": "B",
    "gpu_memory_used_peak_bytes": "B",
    "flop_per_s": "FLOP/s",
    "gpu_utilization": "%",
    "gpu_utilization_mean": "%",
    "gpu_utilization_sd": "%",
    "gpu_utilization_cv": "1",
    SLOWDOWN: "1",  # by a co-runner: a ratio already, to the same environment without one
}
# More is better.
RATES = ("samples_per_s", "images_per_s", "flop_per_s", "dram_read_bytes_per_s", "dram_write_bytes_per_s")
# By metric that units have: the kind of campaign that measures it.
UNIT_METRICS: Mapping[str, str] = {
    "real_s": "rounds",
    "system_s": "rounds",
    "samples_per_s": "rounds",
    "images_per_s": "rounds",
    "first_step_s": "rounds",
    "epoch_rest_s": "rounds",
    "peak_rss_bytes": "rounds",
    "step_s": "steps",
    SLOWDOWN: "rounds",
}
# Quantities over time: the table that has the column, and its base unit.
SAMPLED: Mapping[str, tuple[str, str]] = {
    "cpu_percent": ("samples", "%"),
    "rss_bytes": ("samples", "B"),
    "cgroup_memory_bytes": ("samples", "B"),
    "gpu_utilization_percent": ("device_samples", "%"),
    "memory_utilization_percent": ("device_samples", "%"),
    "memory_used_bytes": ("device_samples", "B"),
    "power_w": ("device_samples", "W"),
    "sm_clock_hz": ("device_samples", "Hz"),
    "samples_per_s": ("steps", "1/s"),  # of each step that took its batch from the loader
}
# What a machine without a device shows in the place of a device's quantity, under its own name.
ON_A_CPU: Mapping[str, str] = {"gpu_utilization_percent": "cpu_percent", "memory_used_bytes": "rss_bytes"}

# Kinds of figures. `table` is a table of the paper that it counts among its figures; `change` shows what claims of
# the rule `faster` are about.
BAR, LINE, TIMELINE, ROOFLINE, TABLE, CHANGE = KINDS = ("bar", "line", "timeline", "roofline", "table", "change")


def kind_of(metric: str) -> str:
    """The kind of campaign that measures a metric of ours: `rounds`, or `steps` within them."""
    return UNIT_METRICS.get(metric, "rounds")
