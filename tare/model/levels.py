"""Levels by factor. Their text, `stack=same,allocator=steady,page_cache=warm`, is written and read here alone.

Plans and records of launches have the text, tables a column for each factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

Levels = Mapping[str, str]
ALLOCATOR, LAYOUT, STACK = "allocator", "layout", "stack"
COLUMN = "level_"  # begins the name of a factor's column
SAME = "same"  # the level of `stack` that is the study's own


def level_column(factor: str) -> str:
    """Name of a factor's column in tables."""
    return f"{COLUMN}{factor}"


def level_columns(levels: Levels) -> dict[str, str]:
    """Levels by the columns that they have in tables."""
    return {level_column(factor): level for factor, level in levels.items()}


def columns_of_levels(columns: Iterable[str]) -> list[str]:
    """Those of a table's columns that hold levels, each once, in their order."""
    return list(dict.fromkeys(name for name in columns if name.startswith(COLUMN)))


def levels_in(row: Mapping[str, object]) -> dict[str, str]:
    """Levels by factor of a row of a table, whose empty fields are none."""
    found = {name.removeprefix(COLUMN): row[name] for name in columns_of_levels(row)}
    return {factor: level for factor, level in found.items() if isinstance(level, str)}


def levels_text(levels: Levels) -> str:
    """As plans write them."""
    return ",".join(f"{factor}={level}" for factor, level in levels.items())


@cache
def read_levels(text: str) -> Levels:
    """Levels by factor, from their text."""
    return MappingProxyType(dict(one.strip().partition("=")[::2] for one in text.split(",")))
