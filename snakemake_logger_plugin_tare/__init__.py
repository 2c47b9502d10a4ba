"""What a person sees of the workflow: one line per job, and for a failure why, where, and its log's last lines.

Snakemake finds this package by its name; `--logger tare` and profiles/default choose it. The lines that a job
prints itself pass between these. At the end of a terminal stands one line of progress, above which jobs have their
line when they are done; elsewhere when they begin, and the progress is said once a minute. `--verbose` and
`--debug-dag` give Snakemake's own output back; the complete log is kept in .snakemake/log either way.
"""

from __future__ import annotations

import builtins
import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_tare.line import Line, is_live
from tare.core import progress, status, streams
from tare.core.errors import TareError, explain_os_error
from tare.core.remaining import Durations, Remaining, planned
from tare.core.timeline import Timeline

STUDY_OPTIONS = ("--configfile", "--configfiles")
TAIL_LINES = 12
TAIL_BYTES = 64 << 10
LINE_CHARACTERS = 300
INDENT = " " * 4
TOLD = Path(".snakemake/tare-status")  # a folder for each run, in which its jobs tell how far they are
# Lines of Snakemake that tell a person nothing; any other passes.
NOISE = (
    "Using shell:",
    "Building DAG of jobs",
    "Assuming unrestricted shared filesystem",
    "Conda environments: ignored",
    "Singularity containers: ignored",
    "Group jobs: inactive",
    "Select jobs to execute",
    "Execute ",
    "Complete log(s):",
    "Elapsed time:",
    "Trying to restart job",
    "Shutting down, this might take some time",
    "host: ",
    "Updating checkpoint dependencies",
    "Removing output files of failed job",
    "Removing temporary output",
    "Touching output file",
    "Processed ",
    "This was a dry-run",
    "Reasons:",
    "Error: Directory cannot be locked. Another",  # of a dry run, which goes on
)
# Said better by the line of the failed job, by the last line, or in profiles/default.
SAID_ELSEWHERE = (
    "--keep-incomplete mode is set",
    "At least one job did not complete successfully",
    "returned non-zero exit status",
    "Exiting because a job execution failed",
)


# An error of ours in a function of the rules, as Snakemake tells it with a traceback.
OF_OURS = re.compile(r"\s*(?:UserError|UnavailableError|IntegrityError|TareError): (.+)")
OF_OUR_RULES = re.compile(r"WorkflowError in file \"[^\"]*(?:/Snakefile|/rules/\w+\.smk)\", line \d+:$")
NO_RULE = re.compile(r"No rule to produce (\S+)")
OS_ERROR = re.compile(r"\[Errno (\d+)\] (.*): '(.*)'")


class LogHandler(LogHandlerBase):
    """Prints one line per job on standard error (a dry run: on standard output).

    A record of Snakemake has the attributes of its event, which no type tells: those methods take anything.
    """

    def __post_init__(self) -> None:
        """Start the clock and the counts."""
        streams.prepare()
        self._started = time.monotonic()
        self._total = 0
        self._due: dict[str, int] = {}
        self._jobs: dict[int, dict[str, Any]] = {}
        self._failures: dict[int, int] = {}
        self._finished: set[int] = set()
        self._stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self._plain = self.common_settings.verbose or self.common_settings.debug_dag
        self._turn = threading.RLock()
        self._line: Line | None = None
        self._remaining: Remaining | None = None
        self._timeline = Timeline()
        self._live = not self._plain and not self.common_settings.dryrun and is_live(sys.stderr, sys.stdout)
        self._here = Path.cwd()  # as --configfile is meant; the workflow may run elsewhere
        self._told = TOLD / str(os.getpid())  # where the workflow runs, which is known when its rules are read
        if not self._plain and not self.common_settings.dryrun:
            os.environ[status.FOLDER] = str(self._told)
            os.environ[progress.LIVE] = "1" if self._live else ""
        self._shown = {
            LogEvent.RUN_INFO: self._run_info,
            LogEvent.JOB_INFO: self._job_info,
            LogEvent.JOB_ERROR: self._job_error,
            LogEvent.JOB_FINISHED: self._job_finished,
            LogEvent.PROGRESS: self._progress,
            LogEvent.SHELLCMD: self._shellcmd,
            LogEvent.GROUP_ERROR: self._message,
            LogEvent.ERROR: self._error,
            None: self._message,
        }

    @property
    def writes_to_stream(self) -> bool:
        """Yes: it replaces Snakemake's own stream handler."""
        return True

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
        """No: Snakemake's own formatter serves for --verbose."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """No."""
        return False

    def emit(self, record: logging.LogRecord) -> None:
        """Print what a record means to a person, if it means anything."""
        try:
            if self._plain:
                text = self.format(record)
                if text and text != "None":
                    self._print(text)
                return
            show = self._shown.get(getattr(record, "event", None))
            if show is not None:
                with self._turn:
                    show(record)
        except Exception:  # a logger must never end a workflow
            self.handleError(record)

    def close(self) -> None:
        """Print the last line: how many jobs, how long, what failed. Keep what the jobs took for the next run."""
        line, self._line = self._line, None
        if line is not None:
            line.end()
        if self._jobs and not self._plain:
            self._print(self._last_line())
        self._jobs = {}
        if self._remaining is not None and (study := planned().study) is not None:
            Durations(study).add(self._remaining.durations())
        self._remaining = None
        super().close()

    # --- one method per kind of record

    def _run_info(self, record: Any) -> None:
        self._due = dict(record.stats)
        self._total = self._due.pop("total", 0)

    def _progress(self, record: Any) -> None:
        self._total = record.total

    def _job_info(self, record: Any) -> None:
        again = record.jobid in self._jobs
        self._jobs.setdefault(record.jobid, {"number": len(self._jobs) + 1, "title": _title(record)})
        title = self._jobs[record.jobid]["title"]
        if self.common_settings.dryrun:
            self._print(f"would {title}  ({' '.join(str(record.reason).split())[:LINE_CHARACTERS]})")
            return
        shown = bool(record.shellcmd or record.rule_msg or not _is_target(record))
        self._jobs[record.jobid]["shown"] = shown
        if shown and not self._live:
            self._print(f"{self._head(record.jobid)} {title}{' (again)' if again else ''}")
        if self._line is None:
            self._begin()
        outs = [str(path).split(" (")[0] for path in record.output or ()]
        assert self._remaining is not None
        now_s = time.monotonic()
        self._remaining.start(record.jobid, record.rule_name, title, outs, now_s)
        self._timeline.add("start", now_s, job=record.jobid, rule=record.rule_name, title=title, outs=outs)

    def _begin(self) -> None:
        """Begin the line of progress, in a folder of its own: those of runs that were killed go."""
        for old in TOLD.glob("*"):
            if not status.is_alive(old.name) or old.name == str(os.getpid()):
                shutil.rmtree(old, ignore_errors=True)
        plan = planned()
        earlier = Durations(plan.study).read() if plan.study is not None else {}
        self._remaining = Remaining(plan, cores=os.cpu_count() or 1, earlier=earlier, started_s=self._started)
        self._remaining.due(self._due)
        self._timeline.add("study", self._started, study=plan.settings)
        self._timeline.add("due", self._started, counts=self._due)
        self._line = Line(
            self._stream,
            turn=self._turn,
            live=self._live,
            remaining=self._remaining,
            folder=self._told.absolute(),
            head=lambda: self._counted(len(self._finished)),
            timeline=self._timeline,
        )
        self._line.begin()

    def _shellcmd(self, record: Any) -> None:
        if command := getattr(record, "shellcmd", None) or getattr(record, "cmd", None):
            self._print(f"{INDENT}$ {command.strip()}")

    def _job_finished(self, record: Any) -> None:
        self._finished.add(record.job_id)
        self._ended(record.job_id, succeeded=True)
        job = self._jobs.get(record.job_id, {})
        if self._live and job.get("shown") and self._remaining is not None:
            took = progress.duration(self._remaining.seconds(record.job_id) or 0.0)
            self._print(f"{self._counted(len(self._finished))} {job['title']}: {took}")

    def _ended(self, jobid: int, *, succeeded: bool) -> None:
        now_s = time.monotonic()
        self._timeline.add("end", now_s, job=jobid, succeeded=succeeded)
        if self._remaining is not None:
            self._remaining.end(jobid, now_s, succeeded=succeeded)

    def _job_error(self, record: Any) -> None:
        self._failures[record.jobid] = self._failures.get(record.jobid, 0) + 1
        self._ended(record.jobid, succeeded=False)
        title = self._jobs.get(record.jobid, {}).get("title", record.rule_name)
        logs = [Path(path.split(" (")[0]) for path in record.log]
        tail = [line for path in logs for line in _tail(path)]
        reason = next((line for line in reversed(tail) if line.startswith("tare: ")), None)
        reason = (reason or record.rule_msg or (tail[-1] if tail else "it ended with an error")).strip()
        self._print(f"{self._head(record.jobid)} FAILED: rule {record.rule_name}, {title}")
        self._print(f"{INDENT}{' '.join(str(reason).split())[:LINE_CHARACTERS]}")
        for path in logs:
            self._print(f"{INDENT}its log: {path}")
        if len(tail) > 1:
            for line in tail:
                self._print(f"{INDENT}| {line[:LINE_CHARACTERS]}")

    def _message(self, record: Any) -> None:
        text = record.getMessage() if record.msg is not None else ""
        if not text.strip() or text == "None" or any(words in text for words in SAID_ELSEWHERE):
            return
        if record.levelno < logging.WARNING and text.lstrip().startswith(NOISE):
            return
        self._print(text.rstrip())

    def _error(self, record: Any) -> None:
        """What ended Snakemake itself; for what a user can mend it has a traceback or a page."""
        name, lines = str(getattr(record, "exception", None)), record.getMessage().strip().splitlines()
        kind = getattr(builtins, name, None)
        of_the_disk = isinstance(kind, type) and issubclass(kind, OSError) and "Traceback" in lines[0]
        if not self._jobs and (wrong := _wrong_study(sys.argv[1:], self._here)):
            self._print(f"tare: {wrong}")
        elif name == "LockException":
            self._print("tare: nothing was done: another workflow has locked this folder")
        elif ours := next((found[1] for line in lines if (found := OF_OURS.match(line))), None):
            self._print(f"tare: {ours}")
        elif name == "WorkflowError" and OF_OUR_RULES.match(lines[0]) and len(lines) > 1:
            self._print(f"tare: {lines[1].strip()}")
        elif name == "MissingRuleException" and (found := NO_RULE.search(record.getMessage())):
            self._print(f"tare: no rule makes {found[1]}: `snakemake --list` names all rules")
        elif of_the_disk:
            self._print(f"tare: {_of_the_disk(lines[-1])}")
        else:
            self._message(record)

    # --- pieces of lines

    def _head(self, jobid: int) -> str:
        return self._counted(self._jobs.get(jobid, {}).get("number", 0))

    def _counted(self, number: int) -> str:
        gone = int(time.monotonic() - self._started)
        clock = (
            f"{gone // 60:02d}:{gone % 60:02d}"
            if gone < 3600
            else f"{gone // 3600}:{gone // 60 % 60:02d}:{gone % 60:02d}"
        )
        total = max(self._total, len(self._jobs))
        return f"[{number:{len(str(total))}d}/{total} {clock:>6}]"

    def _last_line(self) -> str:
        if self.common_settings.dryrun:
            return f"{_jobs(len(self._jobs))} would run"
        seconds = round(time.monotonic() - self._started)
        took = f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02d} s"
        failed = [
            self._jobs[job]["title"] for job in self._failures if job in self._jobs and job not in self._finished
        ]
        total = max(self._total, len(self._jobs))
        done = f"{len(self._finished)} of {_jobs(total)} done in {took}"
        if failed:
            return (
                f"{done}, {len(failed)} failed: {'; '.join(failed)}. What is done is kept; the next run carries on."
            )
        if len(self._finished) < total:
            return f"{done}; the next run carries on."
        return f"{_jobs(len(self._finished))} done in {took}"

    def _print(self, text: str) -> None:
        try:
            if self._line is not None:
                self._line.write(text)
            else:
                self._stream.write(text + "\n")
                self._stream.flush()
        except OSError as error:
            if streams.give_up(error) is None and not isinstance(error, BrokenPipeError):
                raise


def _of_the_disk(line: str) -> str:
    """What a user can do about the error of a disk with which Snakemake ended: by its traceback's last line."""
    found = OS_ERROR.search(line)
    told = explain_os_error(OSError(int(found[1]), found[2], found[3])) if found else None
    return told or f"Snakemake ended with {line}"


def _wrong_study(words: Sequence[str], here: Path) -> str | None:
    """What is wrong with a study file of a command line given in a folder; None where each can be read.

    Snakemake opens them before it reads any rule, and has a traceback for one that it can't open.
    """
    # Imported where something has gone wrong: no other line needs to know what a study is.
    from tare.model.studies.study import load

    for path in _study_files(words):
        path = path if here == Path.cwd() else str(here / path)
        try:
            load(path)
        except TareError as error:
            # Snakemake takes all words behind the option for files.
            hint = "" if Path(path).suffix else "; what is to be made stands before --configfile"
            return f"{error}{hint}"
    return None


def _study_files(words: Sequence[str]) -> list[str]:
    """What a command line names with --configfile."""
    found, named = [], False
    for word in words:
        option, _, value = word.partition("=")
        if word.startswith("-"):
            named = option in STUDY_OPTIONS
            found += [value] if named and value else []
        elif named:
            found.append(word)
    return found


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def _is_target(record: Any) -> bool:
    """A rule that does nothing but ask for files."""
    return not record.output


def _title(record: Any) -> str:
    """The rule's message, else its name and wildcards."""
    if record.rule_msg:
        return " ".join(str(record.rule_msg).split())
    wildcards = ", ".join(f"{key}={value}" for key, value in dict(record.wildcards or {}).items())
    return f"run {record.rule_name}" + (f" ({wildcards})" if wildcards else "")


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
