"""Names and numbers as readers see them: titles of metrics and environments, units scaled to size."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tare.core.errors import TareError
from tare.model.registry import describe_workload, environment
from tare.model.roles import CONTROL, read_role
from tare.model.studies.study import HOST


def _titles(name: str) -> dict[str, tuple[str, ...]]:
    """What a file beside this one says, by the first column of its rows, in their order."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return {first: tuple(rest) for first, *rest in list(csv.reader(file))[1:]}


METRICS = _titles("metrics.csv")  # title, and what it is; in the order of tables and figures
LEVELS = _titles("levels.csv")  # what a level of a factor is, as a noun; others are shown by their own names
PLACES = {metric: place for place, metric in enumerate(METRICS)}
HIGHER_IS_BETTER = {"samples_per_s", "images_per_s"}
TITLES = {HOST: "Host", CONTROL: "Host again (control)"}
SHORT = {CONTROL: "Host again"}
UNIT_NAMES = {"rounds": "round", "steps": "round", "causes": "unit"}
BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
DECIMAL = ("", "k", "M", "G", "T", "P")


def metric_title(metric: str) -> str:
    """Title of a metric; an unknown one is shown by its own name."""
    return METRICS[metric][0] if metric in METRICS else metric


def metric_meaning(metric: str) -> str:
    """What a metric is, in a few words; empty where unknown."""
    return METRICS[metric][1] if metric in METRICS else ""


def metric_order(metric: str) -> tuple[int, str]:
    """Sort key: known metrics in this file's order, the others after them by name."""
    return PLACES.get(metric, len(PLACES)), metric


def env_title(env: str, *, short: bool = False) -> str:
    """Title of an environment, as its adapter calls itself."""
    role = read_role(env)
    if role.is_alone:
        return f"{env_title(role.place.name, short=short)}, alone"
    if role.is_reference:
        return f"{env_title(role.place.name, short=short)}, as in the headline"
    if short and env in SHORT:
        return SHORT[env]
    return TITLES.get(env) or _adapter_title(env)


def arm_title(arm: str) -> str:
    """Title of an arm, written `factor=level`: `allocator=default` is the default allocator."""
    factor, _, level = arm.partition("=")
    return LEVELS.get(arm, (f"{factor} {level}",))[0]


def sentence_case(text: str) -> str:
    """First letter large, the rest as it is."""
    return text[:1].upper() + text[1:]


def units_text(count: int, kind: str) -> str:
    """How many units of a kind of campaign: 1 round, 6 rounds."""
    return f"{count:,} {UNIT_NAMES.get(kind, 'unit')}{'' if count == 1 else 's'}"


@cache
def _adapter_title(env: str) -> str:
    try:
        return environment(env).title
    except (TareError, ImportError):
        return env.replace("_", " ").capitalize()


@cache
def workload_title(workload: str) -> str:
    """Title of a workload from its description; its own name where the module is gone."""
    try:
        return str(describe_workload(workload)["title"])
    except (TareError, ImportError):
        return workload


def env_order(env: str) -> tuple[int, str]:
    """Sort key: host, then the environments by name, the control, what is as in the headline or alone."""
    role = read_role(env)
    return (3 if role.is_reference or role.is_alone else {HOST: 0, CONTROL: 2}.get(env, 1), env)


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


def with_unit(value: float, unit: str) -> str:
    """A metric's value as a reader sees it, in its unit scaled to size."""
    if unit == "s":
        return seconds(value)
    if unit == "B":
        return size_bytes(value)
    if unit == "B/s":
        text = decimal_prefix(value)
        return f"{text}B/s" if text[-1].isalpha() else f"{text} B/s"
    if unit == "Hz":
        return f"{decimal_prefix(value)}Hz"
    if unit == "1":
        return decimal_prefix(value) if abs(value) >= 1000 else significant(value, 4).rstrip("0").rstrip(".") \
            if "." in significant(value, 4) else significant(value, 4)  # fmt: skip
    return f"{significant(value)} {unit}"
