"""Measuring alone: one measuring command on a machine, one writer of a campaign, none that outlives its workflow.

Locks are the kernel's (flock): they end with their holder, however it ends. Whoever waits says for whom.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import locked
from tare.core.machine_lock import LOCKS, alone_on_this_machine
from tare.core.progress import say
from tare.machine.memory import limit_was_hit, oom_kills
from tare.model.journals.sealed import LOCK

__all__ = ["LOCKS", "alone_on_this_machine"]
WORKFLOW = "TARE_WORKFLOW"  # process and start of the workflow that gave this command, as `process_stamp` writes it
STARTERS = ("snakemake", "make", "-m tare ")  # programs that start measuring commands
GRACE_S = 10.0  # for an orderly end, after which nothing is asked any more

_written: dict[Path, bool] = {}  # campaigns whose lock this process holds, and whether it had to wait for it


@contextlib.contextmanager
def measuring(*outs: Path) -> Iterator[None]:
    """What surrounds a command that measures into these files: it has their folders and the machine for itself.
    Raises UnavailableError: the workflow that started this command has ended already.
    """
    end_with_workflow()
    with contextlib.ExitStack() as stack:
        for folder in sorted({out.parent for out in outs}):
            stack.enter_context(writing(folder))
        stack.enter_context(alone_on_this_machine())
        yield


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[bool]:
    """Be the only writer of a campaign's folder; one that writes it already is named and waited for. Yields whether
    another writer had to be waited for: it may have done all that there was to do.
    """
    key = folder.absolute()
    if key in _written:
        yield _written[key]
        return
    with locked(folder / LOCK, waiting_for=f"it measures into {folder}", notify=say) as waited:
        _written[key] = waited
        try:
            yield waited
        finally:
            del _written[key]


def process_stamp(pid: int) -> str | None:
    """A process and its start, which no later process has; None where there is no such process."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else f"{pid}:{stat[19]}"


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat behind the name: state, parent, …, start time at index 19."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def ancestors() -> list[int]:
    """Our parent, its parent, …, up to the first process that has none."""
    found, pid = [], os.getppid()
    while (stat := _stat(pid)) is not None:  # there is no process 0
        found.append(pid)
        pid = int(stat[1])
    return found


def starters() -> list[int]:
    """Our ancestors up to the outermost that starts measuring commands: Snakemake, make, Tare, shells between them.

    None for a command that was given by hand: it belongs to its terminal.
    """
    above = ancestors()
    outermost = max((index for index, pid in enumerate(above) if _starts_commands(pid)), default=-1)
    return above[: outermost + 1]


def _starts_commands(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return False
    program, _, rest = words.partition(" ")
    name = Path(program).name
    if name.startswith("python"):
        return rest.startswith(STARTERS[-1]) or "snakemake" in rest.split(" ")[0:3] or "/snakemake" in rest
    return name in STARTERS


def end_with_workflow() -> None:
    """From now on, end when one of those ends that started this command: nobody would wait for what it measures.
    Raises UnavailableError: it has ended before we came here.
    """
    above = starters()
    wanted = os.environ.get(WORKFLOW)
    if wanted is not None and wanted not in map(process_stamp, ancestors()):
        raise UnavailableError("the workflow that started this command has ended, and so does the command")
    opened = []
    for pid in above:
        with contextlib.suppress(ProcessLookupError):
            opened.append(os.pidfd_open(pid))
    if above != starters():
        raise UnavailableError("the command that started this one has ended, and so does this one")
    if opened:
        threading.Thread(target=_watch, args=(opened, oom_kills()), name="starters", daemon=True).start()


def _watch(pidfds: list[int], kills: int) -> None:
    """Wait, without ever waking, until one of them ends; then end this process, orderly if it can. `kills`: how
    often the kernel had ended a process for lack of memory before.
    """
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    poll.poll()
    with contextlib.suppress(OSError):
        why = limit_was_hit(kills) or "what started this command has ended: so does the command"
        print(f"tare: {why}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)  # what runs for us is ended by its guard
