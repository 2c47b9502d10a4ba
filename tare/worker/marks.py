"""Marks: named instants of a launch on the kernel's monotonic clock, with the CPU time used and the modules loaded.

The clock is CLOCK_MONOTONIC, which processes of one kernel share across containers (unless a runtime makes a
time namespace, which the record of namespaces would show); in a virtual machine it is another clock.
"""

import _frozen_importlib as machinery
import os
import resource
import sys
import time
from _thread import get_ident
from typing import Any, Dict, List, Optional

LOAD = "_find_and_load"


def now_ns() -> int:
    """Nanoseconds on CLOCK_MONOTONIC."""
    return (
        time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if hasattr(time, "clock_gettime_ns")
        else int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)
    )


class Watch(object):
    """Notes when this thread loads modules after its imports, what those load in turn included: a framework loads
    some of its modules at first use.

    Python's import system calls one of its functions for each module that is not loaded yet, whether a statement
    asks for it or importlib. A watch stands in for that function until it ends. Modules that are loaded never come
    so far: code that loads none runs as it would without a watch.
    """

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


class Marks:
    """The marks of one launch, in order; `usage`: of the job alone where the launch does more after it, or None."""

    def __init__(self, first_ns: int, first_usage: Optional[resource.struct_rusage] = None) -> None:
        self.rows: List[Dict[str, Any]] = []
        self.usage: Optional[Dict[str, Any]] = None
        self.loaded = 0
        self.watch: Optional[Watch] = None
        self.add("entry", first_ns, first_usage)

    def watch_imports(self, watch: Watch) -> None:
        """Have marks say when modules were loaded, as a watch sees it."""
        self.watch = watch
        watch.begin()

    def end_watch(self) -> None:
        """Nothing is watched any more."""
        if self.watch is not None:
            self.watch.end()
            self.watch = None

    def add(self, name: str, at_ns: Optional[int] = None, own: Optional[resource.struct_rusage] = None) -> int:
        """Record an instant, the CPU seconds of this process and of its reaped children, and what was loaded.

        `modules` is how many modules there are more than at the mark before; `imports_ns`, where imports are
        watched, start and end of each import since then.
        """
        at_ns = now_ns() if at_ns is None else at_ns
        own = resource.getrusage(resource.RUSAGE_SELF) if own is None else own
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.rows.append(
            {
                "name": name,
                "at_ns": at_ns,
                "user_s": own.ru_utime + children.ru_utime,
                "system_s": own.ru_stime + children.ru_stime,
                "modules": len(sys.modules) - self.loaded,
            }
        )
        self.loaded = len(sys.modules)
        if self.watch is not None:
            self.rows[-1]["imports_ns"] = self.watch.spans
            self.watch.spans = []
        return at_ns


def peak_rss_bytes() -> int:
    """Largest resident set of this program, by the kernel: getrusage's begins with that of a launcher."""
    try:
        with open("/proc/self/status") as handle:
            for line in handle:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (IOError, OSError):
        pass  # a runtime that shows no /proc
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_memory() -> Dict[str, int]:
    """Largest resident set of this process and of its largest reaped child, in bytes (Linux counts KiB)."""
    return {
        "peak_rss_bytes": peak_rss_bytes(),
        "children_peak_rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def scheduling() -> Dict[str, Any]:
    """How often this process was preempted, and how long its living threads were ready and did not run.

    Of every thread the kernel counts nanoseconds in which it waited for a CPU (the second number of its schedstat).
    `waited_s` is None where the kernel does not say; children, such as a loader's processes, are not in it.
    """
    waited_ns = 0
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/{}/schedstat".format(task)) as handle:
                waited_ns += int(handle.read().split()[1])
        waited_s: Optional[float] = waited_ns / 1e9
    except (IOError, OSError, IndexError, ValueError):
        waited_s = None
    return {"preemptions": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, "waited_s": waited_s}


def usage() -> Dict[str, Any]:
    """Memory and scheduling of this process so far, as a launch's record holds them."""
    return {"memory": peak_memory(), "scheduling": scheduling()}
