"""Whether a sealed campaign serves the command that finds it with an equal plan, or a new attempt is wanted.

Snakemake removes the output of a job before it runs it, both where a person wants it anew and where it was killed
before it had counted the job as done. What it notes of that is its own and has several forms, so Tare keeps a note
itself. A command leaves it beside its campaign before it seals it. It goes when that start has come to its end: a
command that was given by hand removes it; else the process of the workflow does when it ends, for each job that
Snakemake counts as done. A note that is still there is of a start that was cut short, or of a job that failed after
its seal: the next command goes on with what is sealed. All else is a new attempt: there is no note; or a person
forces the job now and did not then; or the job now has another parameter `code`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tare.experiments.alone import WORKFLOW
from tare.model.records.campaigns import Start
from tare.model.schema import read
from tare.model.studies.layout import SEALED

NOTE = "start.json"
CODE = "TARE_CODE"  # the parameter `code` of the job that gave this command
FORCED = "TARE_FORCED"  # outputs of jobs that a person forces, as a list of JSON
EVERYTHING = "*"


def leave_note(folder: Path) -> None:
    """Note which start is about to seal a campaign."""
    _this_start(folder).write(folder / NOTE)


def remove_note(folder: Path) -> None:
    """The start that sealed a campaign has come to its end, or the campaign is set aside."""
    (folder / NOTE).unlink(missing_ok=True)


def command_ends(folder: Path) -> None:
    """A campaign has its seal and summary: a command given by hand has no workflow that removes its note."""
    if WORKFLOW not in os.environ:
        remove_note(folder)


def goes_on(folder: Path) -> bool:
    """Whether this command goes on with the start that sealed a campaign of an equal plan; else it is a new one.

    Raises:
        IntegrityError: the note is damaged.
    """
    if not (folder / NOTE).exists():
        return False
    then, now = read(Start, folder / NOTE), _this_start(folder)
    if now.workflow is None:  # given by hand: it wants a new attempt, unless the last one was killed
        return then.workflow is None or not (folder / SEALED).exists()
    if now.forced and not then.forced:
        return False
    return then.workflow is None or then.code == now.code


def _this_start(folder: Path) -> Start:
    forced = json.loads(os.environ.get(FORCED) or "[]")
    return Start(
        workflow=os.environ.get(WORKFLOW),
        code=os.environ.get(CODE),
        forced=EVERYTHING in forced or os.path.normpath(folder / SEALED) in forced,
    )


def attend(workflow: Any) -> None:
    """For the rules, as they are read: have the notes of accepted jobs removed when this workflow ends.

    At the end of its process, and not in `onsuccess` and `onerror`: Snakemake calls neither where nothing was to be
    done, with --no-hooks, or of a module.

    Args:
        workflow: Snakemake's, which is not typed.
    """
    if workflow.is_main_process:
        atexit.register(_remove_notes, workflow, Path.cwd())


def pass_on_forced(workflow: Any) -> None:
    """For the rules, in `onstart`: let commands know what a person forces, which is not known before.

    Without it, as of a module, a forced start goes on with one that was cut short; after any other it is a new one.
    """
    os.environ[FORCED] = json.dumps(_forced(workflow.dag_settings, workflow.dag.jobs))


def _forced(settings: Any, jobs: Iterable[Any]) -> list[str]:
    """Campaigns whose job a person forces with -F, -R or -f; --rerun-incomplete forces none."""
    if settings.forceall:
        return [EVERYTHING]
    words = {str(word) for word in (*settings.forcerun, *(settings.targets if settings.forcetargets else ()))}
    words |= {os.path.normpath(word) for word in words}
    outs = {job: [os.path.normpath(str(out)) for out in job.output] for job in jobs}
    chosen = [outs[job] for job in outs if words.intersection([job.rule.name, *outs[job]])]
    return sorted(out for each in chosen for out in each if Path(out).name == SEALED)


def _remove_notes(workflow: Any, folder: Path) -> None:
    if workflow.scheduler is None or workflow.dryrun:  # without a scheduler the graph may not be whole
        return
    for sealed in _accepted(workflow.dag, folder):
        with contextlib.suppress(OSError):
            remove_note(sealed.parent)


def _accepted(dag: Any, folder: Path) -> Iterator[Path]:
    """Sealed campaigns whose job Snakemake counts as done: it ran, or its output is there and needs no job."""
    for job in dag.jobs:
        for sealed in (folder / str(out) for out in job.output if Path(str(out)).name == SEALED):
            if dag.finished(job) or (not dag.needrun(job) and sealed.exists()):
                yield sealed
