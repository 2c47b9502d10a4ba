"""From what JSON and SQLite hold to fields of a type, one way for every reader.

`at` says where a value is, as the start of a message; it is called only where there is one to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tare.core.errors import IntegrityError
from tare.profilers.numerals import LARGEST, parse

At = Callable[[], str]


def _refuse(value: Any, what: str, wanted: str, at: At) -> IntegrityError:
    shown = "null" if value is None else repr(value)
    return IntegrityError(f"{at()}: {what} is {shown[:80]}, no {wanted}: the file is damaged or was changed")


def text(value: Any, what: str, at: At) -> str:
    """A text. Raises IntegrityError where the value is of another type."""
    if not isinstance(value, str):
        raise _refuse(value, what, "text", at)
    return value


def number(value: Any, what: str, at: At, *, printed: bool = False) -> float:
    """A finite number; with `printed`, also one given as text. Raises IntegrityError where it is none."""
    if printed and isinstance(value, str) and (found := parse(value)) is not None:
        return found.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not _fits(value):
        raise _refuse(value, what, "number", at)
    return float(value)


def _fits(value: float) -> bool:
    return -1e300 < value < 1e300


def count(value: Any, what: str, at: At, *, printed: bool = False) -> int | None:
    """A whole number from 0; None where there is none. Raises IntegrityError for anything else."""
    if value is None:
        return None
    found = number(value, what, at, printed=printed)
    if not found.is_integer() or not 0 <= found <= LARGEST:
        raise _refuse(value, what, "whole number", at)
    return value if isinstance(value, int) else int(found)
