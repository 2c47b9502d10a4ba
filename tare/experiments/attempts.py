"""Whether a sealed campaign serves the command that finds it with an equal plan, or a new attempt is wanted.

Snakemake removes the output of a job before it runs it, both where a person wants it anew and where it was killed
before it had counted the job as done. What it notes of that is its own, so Tare keeps a note itself, and asks it
for nothing. A command leaves it next to its campaign before it seals it, and marks it when the whole command has
ended well. A marked note goes when its workflow has gone on: at the next campaign that it seals, or at the orderly
end of its process. A note that is still there is of a start that was cut short, or of a job that failed after its
seal: the next command goes on with what is sealed, unless the job now has another parameter `code`. A command that
is given by hand removes its own note.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tare.core.errors import TareError
from tare.core.progress import say
from tare.experiments.alone import WORKFLOW, measuring
from tare.model.records.campaigns import Start
from tare.model.schema import read
from tare.model.studies.layout import CAMPAIGNS, SEALED

NOTE = "start.json"
CODE = "TARE_CODE"  # the parameter `code` of the job that gave this command

_noted: list[Path] = []  # campaigns that this command has sealed


def leave_note(folder: Path) -> None:
    """Note which start is about to seal a campaign; those that its workflow sealed before have been counted."""
    _, *above = folder.absolute().parents
    if [one.name for one in above[2:3]] == [CAMPAIGNS.name]:  # <campaigns>/<study>/<machine>/<workload>/<name>
        _remove_marked(above[0].glob(f"*/*/{NOTE}"), os.environ.get(WORKFLOW))
    _this_start().write(folder / NOTE)
    _noted.append(folder)


def remove_note(folder: Path) -> None:
    """The start that sealed a campaign has come to its end, or the campaign is set aside."""
    (folder / NOTE).unlink(missing_ok=True)


def campaign_ends(folder: Path) -> None:
    """A campaign has its seal and summary: a command given by hand has no workflow that removes its note."""
    if WORKFLOW not in os.environ:
        remove_note(folder)


@contextlib.contextmanager
def measuring_campaigns(*outs: Path) -> Iterator[None]:
    """As `measuring`, of a command that seals campaigns: where it ends well, their notes are marked."""
    with measuring(*outs):
        yield
    for folder in _noted:
        if (folder / NOTE).exists():
            _this_start(ended=True).write(folder / NOTE)
    _noted.clear()


def attend() -> None:
    """For the rules, as they are read: have this workflow's marked notes removed at the end of its process.

    There, and not in `onsuccess` and `onerror`: Snakemake calls neither with --no-hooks, or of a module.
    """
    atexit.register(workflow_ends, Path.cwd(), os.environ[WORKFLOW])


def workflow_ends(folder: Path, workflow: str) -> None:
    """A workflow that ran in a folder has ended in order."""
    _remove_marked((folder / CAMPAIGNS).rglob(NOTE), workflow)


def goes_on(folder: Path) -> bool:
    """Whether this command goes on with the start that sealed a campaign of an equal plan; else it is a new one.

    Where it does, the note is from now on of this start. Raises IntegrityError: the note is damaged.
    """
    if not (folder / NOTE).exists():
        return False
    then, now = read(Start, folder / NOTE), _this_start()
    # one that is given by hand wants a new attempt, unless the last one was killed
    cut_short = not (folder / SEALED).exists() if now.workflow is None else then.code == now.code
    if not cut_short and then.workflow is not None:
        return False
    leave_note(folder)
    say(f"{folder} was sealed by an interrupted start, which continues now; the next start is a new try")
    return True


def _this_start(*, ended: bool = False) -> Start:
    return Start(workflow=os.environ.get(WORKFLOW), code=os.environ.get(CODE), ended=ended)


def _remove_marked(notes: Iterable[Path], workflow: str | None) -> None:
    for note in list(notes):
        with contextlib.suppress(OSError, TareError):  # it is gone, or whoever needs it refuses it
            found = read(Start, note)
            if found.ended and found.workflow is not None and found.workflow == workflow:
                note.unlink()
