"""The nearest valid word, for messages about words that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Tail of an error message: the nearest valid name, if one is near, and all that are valid."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}(known: {', '.join(names)})"
