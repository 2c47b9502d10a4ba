"""Any command: all that is known of it is its exit status, its start and end as seen from outside, its output."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from tare.core.errors import UserError
from tare.core.process import COLOUR, Finished
from tare.launch.place import Site
from tare.launch.program.base import TAIL_CHARACTERS, Needs, Place, Program, Result
from tare.model.conditions import Conditions
from tare.model.environment import Bind, Environment
from tare.model.records.launches import COMMAND

HOME, TEMPORARY = "home", "tmp"  # in the launch's own folder
PAD = "TARE_PAD"  # of the conditions: its length is randomised
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LAST_LINES = 3  # of its output, in a reason
LONGEST_REASON = 300  # characters of them
SIGNALLED = 128  # a shell or a runtime adds the signal's number to it


@dataclass(frozen=True)
class CommandProgram(Program):
    """A command. Raises UserError: nothing can be run so."""

    # program and arguments inside; no shell is involved. A relative path of the program counts from the working
    # directory, a name without a slash is looked for in PATH
    argv: Sequence[str]
    _: KW_ONLY
    # a folder of this machine that the command sees at the same path, may write to, and starts in; None for the
    # launch's own folder, which goes with the launch
    workdir: Path | None = None
    binds: tuple[Bind, ...] = ()  # what else of this machine it sees
    # on top of the environment that the conditions make. HOME and TMPDIR are empty folders of each launch unless
    # they are among these
    variables: Mapping[str, str] = field(default_factory=dict)
    gpu: bool = False  # it is shown the NVIDIA devices of its site

    kind: ClassVar[str] = COMMAND

    def __post_init__(self) -> None:
        """Refuse what no launch could run; this machine's folders are looked at when it is launched."""
        if isinstance(self.argv, str) or not self.argv or not self.argv[0]:
            raise UserError(f"a command is a list of a program and its arguments, not {self.argv!r}")
        if "=" in self.argv[0]:
            raise UserError(f"command {self.argv[0]!r}: the path of a program can't hold '=': rename it")
        for name in self.variables:
            if NAME.fullmatch(name) is None or name == PAD:
                raise UserError(f"variable {name!r} of a command: choose letters, digits and '_', and not {PAD}")
        if any("\0" in text for text in (*self.argv, *self.variables.values())):
            raise UserError(f"command {self.argv[0]!r}: arguments and variables can't hold a NUL character")
        object.__setattr__(self, "argv", tuple(self.argv))
        targets = [bind.target for bind in self.shown]
        for target in targets:
            _check_path(target)
            if targets.count(target) > 1:
                raise UserError(f"a command can't see two folders at {target}: leave one out")

    @property
    def uses_gpu(self) -> bool:
        """Whether it is shown the NVIDIA devices."""
        return self.gpu

    @property
    def shown(self) -> tuple[Bind, ...]:
        """All that it sees at a path that it chooses itself, what holds others first."""
        own = () if self.workdir is None else (Bind(source=self.workdir, target=self.workdir, writable=True),)
        every = dict.fromkeys((*own, *self.binds))
        return tuple(sorted(every, key=lambda bind: len(bind.target.parts)))

    def needs(self, site: Site, conditions: Conditions) -> Needs:
        """Its binds. Raises UserError: one of them is not there."""
        if self.workdir is not None and not self.workdir.is_dir():
            raise UserError(f"working directory {self.workdir} of a command: there is no such folder")
        for bind in self.shown:
            if not bind.source.exists():
                raise UserError(f"a command should see {bind.source}, which does not exist")
        return Needs(binds=self.shown)

    def write(self, place: Place) -> None:
        """Make its HOME and its folder for temporary files. Raises UserError: files are to be kept, and a command
        can't be asked for any.
        """
        if place.keep:
            names = ", ".join(place.keep)
            raise UserError(f"a command can't be asked for files to keep ({names}): give it a workdir")
        for name in (HOME, TEMPORARY):
            (place.folder / name).mkdir()

    def argv_at(self, place: Place) -> tuple[str, ...]:
        """As it is, wherever it runs."""
        return tuple(self.argv)

    def variables_at(self, place: Place) -> Mapping[str, str]:
        """Its HOME and folder for temporary files, and its own variables."""
        return {"HOME": str(place.inside / HOME), "TMPDIR": str(place.inside / TEMPORARY), **self.variables}

    def workdir_at(self, place: Place) -> Path | None:
        """Its own folder, where it has one."""
        return self.workdir

    def result(self, finished: Finished, folder: Path, environment: Environment) -> Result:
        """Its exit status, the ends of its streams, and where it failed its last lines."""
        ended = Result(
            status="ok", stdout=finished.stdout[-TAIL_CHARACTERS:], stderr=finished.stderr[-TAIL_CHARACTERS:]
        )
        if finished.timed_out:
            said = f"was still running after {finished.wall_s:.0f} s and was killed: {last_lines(finished)}"
            return replace(ended, status="timeout", reason=f"{self.argv[0]} {said}")
        status = finished.returncode
        if status == 0:
            return replace(ended, exit_status=0)
        reason = f"{self.argv[0]} {ended_as(status)}: {last_lines(finished)}"
        return replace(ended, status="failed", reason=reason, exit_status=status)


def ended_as(status: int) -> str:
    """How a command ended with an exit status, in words; one over 128 may be a signal's."""
    names = {int(one): one.name for one in signal.Signals}
    if status < 0:
        return f"was ended by {names.get(-status, f'signal {-status}')}"
    likely = names.get(status - SIGNALLED)
    return f"ended with status {status}" + (f" ({likely})" if likely else "")


def last_lines(finished: Finished) -> str:
    """The last lines that a command printed, in one; those of its errors where it printed any."""
    for stream in (finished.stderr, finished.stdout):
        plain = COLOUR.sub("", stream[-TAIL_CHARACTERS:])
        readable = "".join(one if one.isprintable() or one == "\n" else " " for one in plain.replace("\r", "\n"))
        lines = [" ".join(line.split()) for line in readable.split("\n") if line.strip()]
        if lines:
            text = " | ".join(lines[-LAST_LINES:])
            return text if len(text) <= LONGEST_REASON else "…" + text[-LONGEST_REASON:]
    return "it printed nothing"


def _check_path(target: Path) -> None:
    """See that a runtime can show something at a path inside. Raises UserError: it can't."""
    if not target.is_absolute() or target == Path("/") or ".." in target.parts:
        raise UserError(f"a command can't see a folder at {str(target)!r}: give an absolute path below /")
    if any(character in str(target) for character in ":,\n"):
        raise UserError(f"a command can't see {str(target)!r}: runtimes take ':' and ',' as separators; rename it")
