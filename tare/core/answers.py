"""Answers that follow from their question alone and take time to find, remembered between processes.

One small file of the cache holds them, its first line the hash of the rest. It is written whole, and ignored where
it is damaged or can't be written: what it lacks is found again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tare.core.errors import TareError
from tare.core.files import cache_dir, canonical_json, sha256_text, write_text

KEPT = 2000  # answers in a file; the oldest are forgotten


class Answers:
    """Answers of one kind. `maker`: what finds the answers; another maker has its own file."""

    def __init__(self, kind: str, maker: str) -> None:
        self.kind, self.maker = kind, maker
        self._known: dict[str, Any] | None = None
        self._new: dict[str, Any] = {}

    def __call__(self, question: str, find: Callable[[], Any]) -> Any:
        """The answer to a question, as JSON holds it; `find` gives it where it is not known."""
        if self._known is None:
            self._known = self._read()
        key = sha256_text(question)
        if key not in self._known:
            self._known[key] = self._new[key] = find()
        return self._known[key]

    def save(self) -> None:
        """Write what has been found, in addition to what other processes have written meanwhile."""
        if not self._new:
            return
        merged = {**self._read(), **self._new}
        text = canonical_json(list(merged.items())[-KEPT:])
        self._new = {}
        try:
            write_text(self._path(), f"{sha256_text(text)}\n{text}")
        except (OSError, TareError):
            return  # no place to remember

    def _path(self) -> Path:
        return cache_dir(self.kind) / f"{sha256_text(self.maker)[:32]}.json"

    def _read(self) -> dict[str, Any]:
        try:
            digest, _, text = self._path().read_text(encoding="utf-8").partition("\n")
        except (OSError, UnicodeDecodeError, TareError):
            return {}
        return dict(json.loads(text)) if sha256_text(text) == digest else {}
