"""Who else used the machine's processors while something of ours ran: the kernel's counts, less what we know of.

/proc/stat counts the time in which processors ran something, and what a hypervisor took from them while they wanted
to run (steal). What we used is CPU time of this process, of those that it has started and reaped, and of launches
that a daemon started; the rest is others'. What a daemon itself works is others' too. Of launches one after the
other only the host's own are watched.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tare.machine.contention import processors_used
from tare.model.records.campaigns import Others

STAT = Path("/proc/stat")


@dataclass(frozen=True, kw_only=True)
class Instant:
    """Seconds that have been used so far, of all processors."""

    at_s: float
    busy_s: float
    stolen_s: float
    own_s: float
    processors: int


def instant(stat: Path = STAT) -> Instant | None:
    """What has been used up to now; None where the kernel's counts can't be read."""
    try:
        used = processors_used(stat.read_text()).values()
    except (OSError, ValueError, KeyError):
        return None
    if not used:
        return None
    ours = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Instant(
        at_s=time.monotonic(),
        busy_s=sum(busy for busy, _ in used),
        stolen_s=sum(stolen for _, stolen in used),
        own_s=sum(one.ru_utime + one.ru_stime for one in ours),
        processors=len(used),
    )


def between(before: Instant | None, after: Instant | None, launches_s: float = 0.0) -> Others | None:
    """What others used between two instants, None if unknown, less CPU time of launches not our children; pure."""
    if before is None or after is None or after.at_s <= before.at_s:
        return None
    own_s = after.own_s - before.own_s + launches_s
    return Others(
        cpu_s=max(0.0, after.busy_s - before.busy_s - own_s),
        stolen_s=max(0.0, after.stolen_s - before.stolen_s),
        seconds=after.at_s - before.at_s,
        processors=after.processors,
    )


@contextlib.contextmanager
def watched(found: list[Others | None], launches_s: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Watch while the block runs, and add what others used to a list; `launches_s` as of `between`, at its end."""
    before = instant()
    yield
    found.append(between(before, instant(), launches_s()))
