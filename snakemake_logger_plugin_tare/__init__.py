"""What a person sees of the workflow: a line when a job starts, and of a failure why, and the end of its log.

Snakemake finds this package by its name; `--logger tare` and profiles/default choose it. The lines that a job
prints itself pass between these. It goes by the events of Snakemake's records; of those without one it prints
warnings and errors, and the rest is in the complete log, .snakemake/log. `--verbose` and `--debug-dag` give
Snakemake's own output back.
"""

from __future__ import annotations

import builtins
import logging
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_tare import slurm
from snakemake_logger_plugin_tare.waiting import Waiting
from tare.core import streams
from tare.core.progress import duration, time_left
from tare.core.remedies import own_program

TAIL_LINES = 12
TAIL_BYTES = 64 << 10
LINE_CHARACTERS = 300
INDENT = " " * 4
LEAST_BYTES = 1 << 20  # of a disk, for logs and records
# By Snakemake's exception; what it says itself is a page.
KILLED = {
    "LockException": (
        "nothing was done: a workflow runs in this folder, or a killed one left its lock; if none runs, remove the "
        "lock with `{} --unlock` and repeat the command"
    ),
    "IncompleteFilesException": (
        "nothing was done: a killed workflow left files that may be incomplete; `{} --rerun-incomplete` makes them "
        "again, and sealed results are kept"
    ),
}
_expected: dict[str, float] = {}
_refused: list[str] = []


def expect(seconds: Mapping[str, float]) -> None:
    """Say about how long a job takes, by its rule; other rules add no time left."""
    _expected.clear()
    _expected.update(seconds)


def refuse(reason: str) -> None:
    """Say why the rules end the workflow with their next error, which Snakemake reports with a traceback."""
    _refused.append(reason)


@dataclass
class _Job:
    number: int
    rule: str
    title: str
    started_s: float
    runs: bool = True
    logs: Mapping[Path, object] = field(default_factory=dict)  # as they were when it started


class LogHandler(LogHandlerBase):
    """Prints a line for each job on standard error (a dry run: on standard output).

    A record of Snakemake has the attributes of its event, which no type has: those methods take anything.
    """

    def __post_init__(self) -> None:
        """Start the clock and the counts."""
        streams.prepare()
        self._started_s = time.monotonic()
        self._stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self._total = 0
        self._waiting: Counter[str] = Counter()
        self._jobs: dict[int, _Job] = {}
        self._finished: set[int] = set()
        self._failed: dict[int, str] = {}
        self._last_left = ""
        self._because = ""
        self._group_because: str | None = None
        self._begun = self._ended = False
        self._before: list[str] = []
        self._waiting_jobs = Waiting(self._from_a_thread)
        self._shown: dict[object, Callable[[Any], None]] = {
            LogEvent.WORKFLOW_STARTED: self._workflow_started,
            LogEvent.RUN_INFO: self._run_info,
            LogEvent.PROGRESS: self._progress,
            LogEvent.GROUP_INFO: self._group_info,
            LogEvent.GROUP_ERROR: self._group_error,
            LogEvent.JOB_INFO: self._job_info,
            LogEvent.SHELLCMD: self._shellcmd,
            LogEvent.JOB_FINISHED: self._job_finished,
            LogEvent.JOB_ERROR: self._job_error,
            LogEvent.ERROR: self._error,
        }

    @property
    def writes_to_stream(self) -> bool:
        """Whether it replaces Snakemake's own stream handler: not where a person asks for all that this says."""
        return not (self.common_settings.verbose or self.common_settings.debug_dag)

    @property
    def writes_to_file(self) -> bool:
        """No."""
        return False

    @property
    def has_filter(self) -> bool:
        """No: Snakemake's own filter honours --quiet and --printshellcmds."""
        return False

    @property
    def has_formatter(self) -> bool:
        """No: nothing is formatted."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """No."""
        return False

    def emit(self, record: logging.LogRecord) -> None:
        """Print what a record means to a person, if it means anything."""
        if not self.writes_to_stream:
            return
        try:
            self._shown.get(getattr(record, "event", None), self._message)(record)
        except Exception:  # a logger must never end a workflow
            self.handleError(record)

    def close(self) -> None:
        """Print the last line: how many jobs, how long, what failed."""
        self._waiting_jobs.end()
        if self._because:
            self._print(self._because)
        if self._jobs:
            self._print(self._last_line())
        elif self.writes_to_stream and not self._ended and not self.common_settings.quiet:
            if self._begun:
                self._print("Nothing to be done: everything requested exists and is up to date.")
            for line in [] if self._begun else self._before:  # of --unlock and the like
                streams.to_stderr(line)
        self._because, self._jobs, self._ended = "", {}, True
        super().close()

    # --- one method per kind of record

    def _workflow_started(self, record: Any) -> None:
        self._begun = True

    def _run_info(self, record: Any) -> None:
        if not self._jobs:
            self._waiting = Counter(record.stats)
            self._total = self._waiting.pop("total", 0)

    def _progress(self, record: Any) -> None:
        self._total = record.total

    def _group_info(self, record: Any) -> None:
        if self.common_settings.dryrun:
            self._print(f"would send {_jobs(len(list(record.jobs)))} as one ({record.group_id}):")

    def _group_error(self, record: Any) -> None:
        """Why jobs that were sent as one failed; each of them is reported after this."""
        tail = [line for path in _paths(record.aux_logs) for line in _tail(path)]
        self._group_because = slurm.why_a_group_failed(getattr(record, "external_jobid", None), tail)

    def _job_info(self, record: Any) -> None:
        number = len(self._jobs) + 1 if record.jobid not in self._jobs else self._jobs[record.jobid].number
        before = {path: _stamp(path) for path in map(Path, record.log or ())}
        job = _Job(number, record.rule_name, _title(record), time.monotonic(), logs=before)
        self._jobs[record.jobid] = job
        self._waiting[job.rule] -= 1
        if self.common_settings.dryrun:
            self._print(f"would {job.title}  ({_one_line(record.reason)})")
        elif record.output or record.shellcmd or record.rule_msg:  # else it does nothing but ask for files
            self._print(f"{self._head(number)} {job.title}{self._left()}")

    def _shellcmd(self, record: Any) -> None:
        if command := getattr(record, "shellcmd", None) or getattr(record, "cmd", None):
            self._print(f"{INDENT}$ {command.strip()}")

    def _job_finished(self, record: Any) -> None:
        self._finished.add(record.job_id)
        if job := self._jobs.get(record.job_id):
            job.runs = False

    def _job_error(self, record: Any) -> None:
        job = self._jobs.get(record.jobid) or _Job(0, record.rule_name, record.rule_name, 0.0)
        job.runs = False
        if record.indent and all(path.exists() for path in _paths(record.output)):
            return  # another job of its group failed, and this one is kept
        self._failed[record.jobid] = job.title
        logs = [path for path in _paths(record.log) if _stamp(path) not in (None, job.logs.get(path))]
        tail = [line for path in logs for line in _tail(path)]
        reported = next((line for line in reversed(tail) if line.startswith("tare: ")), None)
        reported = reported or _full()
        began = any(path in job.logs for path in logs)
        of_group = self._group_because if record.indent else None
        reason = slurm.why_it_failed(str(record.rule_msg), reported, tail, began) or reported or of_group
        reason = reason or record.rule_msg or (tail[-1] if tail else self._because or "it ended with an error")
        self._because = ""
        self._print(f"{self._head(job.number)} FAILED: rule {job.rule}, {job.title}")
        self._print(f"{INDENT}{_one_line(reason)}")
        for path in logs:
            self._print(f"{INDENT}its log: {path}")
        if len(tail) > 1:
            for line in tail:
                self._print(f"{INDENT}| {line[:LINE_CHARACTERS]}")

    def _message(self, record: Any) -> None:
        """A warning or worse; what Snakemake adds once something has failed is in the complete log."""
        has_event = getattr(record, "event", None) is not None
        text = record.getMessage().strip() if record.msg is not None else ""
        self._waiting_jobs.note(text)
        if record.levelno < logging.WARNING:
            self._before += [] if has_event or self._begun or not text else [text]
        elif text and (has_event or not (self._failed or self._ended or slurm.is_noise(text))):
            self._print(slurm.in_our_words(text))

    def _error(self, record: Any) -> None:
        """What ended a job, which is printed with it, or Snakemake; it has a traceback or a page for some."""
        name, lines = str(getattr(record, "exception", None)), record.getMessage().strip().splitlines()
        if name == "RuleException" and self._jobs:
            self._because = lines[-1]
            return
        if name == "WorkflowError" and (self._failed or self._ended):
            return  # that not all jobs were done
        self._ended = True
        kind = getattr(builtins, name, None)
        if _refused:
            self._print(f"tare: {_refused.pop()}")
        elif name in KILLED:
            self._print(f"tare: {KILLED[name].format(own_program('snakemake'))}")
        elif name == "MissingRuleException":
            self._print(f"tare: {lines[-1]} `{own_program('snakemake')} --list` names all rules")
        elif isinstance(kind, type) and issubclass(kind, OSError):
            self._print(f"tare: Snakemake ended with {lines[-1]}")
        else:
            self._message(record)

    # --- pieces of lines

    def _head(self, number: int) -> str:
        gone = int(time.monotonic() - self._started_s)
        clock = f"{gone // 60:02d}:{gone % 60:02d}"
        if gone >= 3600:
            clock = f"{gone // 3600}:{gone // 60 % 60:02d}:{gone % 60:02d}"
        total = max(self._total, len(self._jobs))
        return f"[{number:{len(str(total))}d}/{total} {clock:>6}]"

    def _left(self) -> str:
        """About how long all jobs will take yet, where that is not what was said last."""
        now_s, running = time.monotonic(), [job for job in self._jobs.values() if job.runs]
        left_s = sum(max(0.0, _expected.get(job.rule, 0.0) - (now_s - job.started_s)) for job in running)
        left_s += sum(_expected.get(rule, 0.0) * count for rule, count in self._waiting.items() if count > 0)
        left = time_left(left_s) if _expected else ""
        if left == self._last_left:
            return ""
        self._last_left = left
        # Jobs behind one that failed are counted, and will not be run.
        return f" ({'at most ' if self._failed else ''}{left} in all)"

    def _last_line(self) -> str:
        if self.common_settings.dryrun:
            return f"{_jobs(len(self._jobs))} would run"
        took, total = duration(time.monotonic() - self._started_s), max(self._total, len(self._jobs))
        done = f"{len(self._finished)} of {_jobs(total)} done in {took}"
        if failed := [title for job, title in self._failed.items() if job not in self._finished]:
            return (
                f"{done}, {len(failed)} failed: {'; '.join(failed)}. Finished jobs are kept; the next run "
                "continues."
            )
        if len(self._finished) < total:
            return f"{done}; the next run continues."
        return f"{_jobs(len(self._finished))} done in {took}"

    def _from_a_thread(self, text: str) -> None:
        self.acquire()
        try:
            self._print(text)
        finally:
            self.release()

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except OSError as error:
            if streams.give_up(error) is None and not isinstance(error, BrokenPipeError):
                raise


def _paths(named: Iterable[str]) -> list[Path]:
    """Files as an event names them, some with a word in brackets behind."""
    return [Path(text.split(" (")[0]) for text in named]


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:LINE_CHARACTERS]


def _title(record: Any) -> str:
    """The rule's message, else its name and wildcards."""
    if record.rule_msg:
        return " ".join(str(record.rule_msg).split())
    wildcards = ", ".join(f"{key}={value}" for key, value in dict(record.wildcards or {}).items())
    return f"run {record.rule_name}" + (f" ({wildcards})" if wildcards else "")


def _full() -> str | None:
    """That no job can write what is wrong, where no space is left for that."""
    folder = Path.cwd()
    if shutil.disk_usage(folder).free >= LEAST_BYTES:
        return None
    return f"tare: no space left in {folder}: free some"


def _stamp(path: Path) -> object:
    """What changes when a file is written; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _tail(path: Path) -> list[str]:
    """The last lines of a text file; none where it can't be read."""
    try:
        with path.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - TAIL_BYTES))
            text = handle.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-TAIL_LINES:]
