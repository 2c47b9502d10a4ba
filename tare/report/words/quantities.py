"""Numbers as readers see them, in units scaled to their size."""

from __future__ import annotations

import math
from collections.abc import Iterable

UNIT_NAMES = {"rounds": "round", "steps": "round", "causes": "unit"}
BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
DECIMAL = ("", "k", "M", "G", "T", "P")


def units_text(count: int, kind: str) -> str:
    """How many units of a kind of campaign: 1 round, 6 rounds."""
    return f"{count:,} {UNIT_NAMES.get(kind, 'unit')}{'' if count == 1 else 's'}"


def span(numbers: Iterable[float]) -> str:
    """Whole numbers by their least and greatest: 6, 6 to 7."""
    low, high = min(numbers := list(numbers)), max(numbers)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, without an exponent, thousands apart."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else decimals
    return f"{rounded:,.{decimals}f}"


def seconds(value: float) -> str:
    """Seconds with three significant digits: 812 ns, 3.20 µs, 14.0 ms, 2.51 s, 4 min 05 s."""
    size = abs(value)
    if size >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if size >= factor * 0.9995:
            return f"{significant(value / factor)} {unit}"
    return f"{significant(value * 1e9)} ns" if value else "0 s"


def duration(value: float) -> str:
    """Seconds of a job, from two hours on in hours and from two days on in days: 27.8 h."""
    for unit_s, unit in ((86400, "days"), (3600, "h")):
        if value >= 2 * unit_s:
            return f"{significant(value / unit_s)} {unit}"
    return seconds(value)


def size_bytes(value: float) -> str:
    """Bytes in binary units with three significant digits."""
    index = 0
    while abs(value) >= 1023.5 and index < len(BINARY) - 1:
        value, index = value / 1024, index + 1
    return f"{significant(value) if index else f'{value:.0f}'} {BINARY[index]}"


def decimal_prefix(value: float) -> str:
    """A count or a rate with a decimal prefix and three significant digits: 1.20 G."""
    index = 0
    while abs(value) >= 999.5 and index < len(DECIMAL) - 1:
        value, index = value / 1000, index + 1
    text = significant(value) if index or value != int(value) else f"{int(value)}"
    return f"{text} {DECIMAL[index]}".strip()


def prefixed(value: float, unit: str) -> str:
    """A count or a rate with its unit below a decimal prefix: 1.20 GB/s, 512 B."""
    text = decimal_prefix(value)
    return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}"


def with_unit(value: float, unit: str) -> str:
    """A metric's value as a reader sees it, in its unit scaled to size."""
    if unit == "s":
        return seconds(value)
    if unit == "B":
        return size_bytes(value)
    if unit in ("B/s", "Hz", "FLOP/s"):
        return prefixed(value, unit)
    if unit != "1":
        return f"{significant(value)} {unit}"
    if abs(value) >= 1000:
        return decimal_prefix(value)
    text = significant(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text else text
