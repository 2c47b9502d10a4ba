"""When a process loads modules after its imports: a framework loads some of its own at first use.

Python's import system calls one function of its own for each module that is not loaded yet, whether a statement
asks for it or importlib. A watch stands in for that function until it ends. Modules that are loaded never come so
far: code that loads none runs as it would without a watch.
"""

import _frozen_importlib as machinery
import sys
from _thread import get_ident
from typing import Any, List

from tare.worker.marks import now_ns

LOAD = "_find_and_load"


class Watch(object):
    """Notes when this thread loads modules, what those load in turn included."""

    def __init__(self) -> None:
        self.spans: List[List[int]] = []  # start and end in ns of each outermost import that loaded something
        self.thread = get_ident()
        self.inside = False
        self.plain: Any = getattr(machinery, LOAD)

    def begin(self) -> None:
        """Stand in."""
        setattr(machinery, LOAD, self.load)

    def end(self) -> None:
        """Put Python's own function back."""
        setattr(machinery, LOAD, self.plain)

    def load(self, name: str, import_: Any) -> Any:
        """Load a module as Python's own function does."""
        if self.inside or get_ident() != self.thread:
            return self.plain(name, import_)
        loaded, started = len(sys.modules), now_ns()
        self.inside = True
        try:
            return self.plain(name, import_)
        finally:
            self.inside = False
            if len(sys.modules) > loaded:
                self.spans.append([started, now_ns()])
