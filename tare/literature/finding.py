"""How numbers and names of findings are written in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

# By base unit, from the largest: the unit that people read, and its size in base units.
READ_AS = {
    "s": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)),
    "B/s": (("GB/s", 1e9), ("MB/s", 1e6)),
    "B": (("GB", 1e9), ("MB", 1e6)),
    "FLOP/s": (("TFLOP/s", 1e12), ("GFLOP/s", 1e9)),
    "Hz": (("GHz", 1e9),),
}
# Metrics as a sentence has them.
WORDS = {
    "real_s": "real time",
    "images_per_s": "images per second",
    "system_s": "system time",
    "memset_s": "memset time",
    "htod_s": "time from host to device",
    "dram_read_bytes_per_s": "DRAM read throughput",
    "dram_write_bytes_per_s": "DRAM write throughput",
    "flops": "FLOPs",
    "hbm_transactions": "HBM transactions",
    "step_s": "time of a step",
    "epoch_rest_s": "time of an epoch after its first step",
    "flop_per_s": "FLOPs a second",
    "gpu_utilization": "utilisation of the GPU",
    "gpu_utilization_mean": "mean utilisation of the GPU",
    "gpu_utilization_sd": "spread of the utilisation of the GPU",
    "gpu_utilization_cv": "relative spread of the utilisation of the GPU",
    "gpu_memory_used_peak_bytes": "memory in use on the GPU",
    "peak_rss_bytes": "resident memory",
}


def amount(value: float, unit: str) -> str:
    """A number as a sentence has it: 1.5072e-05 s is `15.072 us`, a count has its digits in groups."""
    if unit in READ_AS:
        units = READ_AS[unit]
        name, size = next(((name, size) for name, size in units if abs(value) >= size), units[-1])
        return f"{significant(value / size)} {name}"
    number = f"{value:,.0f}" if float(value).is_integer() else significant(value)
    return number if unit == "1" else f"{number} {unit}"


def significant(value: float, digits: int = 5) -> str:
    """A number to `digits` significant digits, without an exponent, and all digits before the point."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def words(metric: str) -> str:
    """A metric as a sentence has it."""
    return WORDS.get(metric, metric)
