"""Levels by factor. Their text, `stack=same,allocator=steady,page_cache=warm`, is written and read here alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

Levels = Mapping[str, str]
ALLOCATOR, STACK = "allocator", "stack"
SAME = "same"  # the level of `stack` that is the study's own


def levels_text(levels: Levels) -> str:
    """As plans and tables write them."""
    return ",".join(f"{factor}={level}" for factor, level in levels.items())


@cache
def read_levels(text: str) -> Levels:
    """Levels by factor, from their text."""
    return MappingProxyType(dict(one.partition("=")[::2] for one in text.split(",")))
