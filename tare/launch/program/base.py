"""What a launch runs, as the launch layer sees it: the files that it needs, its arguments, and how it went."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from tare.core.process import Finished
from tare.launch.place import Site
from tare.model.conditions import Conditions
from tare.model.environment import Bind, Environment
from tare.model.records.launches import Inside, Steps

TAIL_CHARACTERS = 2000  # of a stream that a record keeps


@dataclass(frozen=True, kw_only=True)
class Cargo:
    """A folder or file of the launcher's that a launch reads at `target`."""

    source: Path
    target: Path


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Files of this machine that a program needs."""

    # folders or files that are only read, by name; a transport decides where the program finds them. The first one
    # is the program's code
    inputs: Mapping[str, Path] = field(default_factory=dict)
    # what it sees at a path that it chooses itself, which takes an environment that shares files
    binds: tuple[Bind, ...] = ()
    code_sha256: str | None = None  # of the code; None where nobody knows what runs


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a launch runs, as its program needs to know."""

    site: Site
    conditions: Conditions
    folder: Path  # the launch's own folder on this side
    inside: Path  # the same folder on the other side
    inputs: Mapping[str, Path]  # where the program finds what it needs (`Needs.inputs`), by name
    # files that it is to write into its folder, by the key under which it is asked for them
    keep: Mapping[str, Path] = field(default_factory=dict)
    shares_files: bool = True  # both sides see the same folder
    rank: int | None = None  # which member of a group; None for a launch that is alone
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a program's run went, as far as the program itself reports; the launcher may still refuse it."""

    status: Literal["ok", "failed", "timeout"]
    reason: str | None = None  # why a run did not succeed, in one line
    inside: Inside | None = None  # what it wrote of itself; None where it writes nothing
    stdout: str | None = None  # the end of the stream; None where the record keeps none
    stderr: str | None = None
    exit_status: int | None = None  # negative for a signal, as of a child process; None where the record keeps none
    # what it measured itself, by name, in the unit that the name ends with
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: Steps | None = None  # when its steps ended, of a job that a hook watched

    def values(self) -> dict[str, Any]:
        """Fields of the launch's record other than status, reason and inside; what is as ever is left out."""
        found = {
            "stdout": self.stdout,
            "stderr": self.stderr,
            "exit_status": self.exit_status,
            "steps": self.steps,
        }
        more = {"metrics": dict(self.metrics)} if self.metrics else {}
        return more | {name: value for name, value in found.items() if value is not None}


class Program(ABC):
    """What a launch runs."""

    kind: ClassVar[str]  # as records name it
    # it makes a file (STARTED) at its first line, or is a conversation that greets
    announces: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True  # its standard output is a part of its result
    as_given: ClassVar[bool] = False  # it runs as its user would start it: the environment's own variables stay

    @property
    def talks(self) -> bool:
        """Whether it is talked to while it runs; then nobody waits for its end."""
        return False

    @property
    def uses_gpu(self) -> bool:
        """Whether the launch brings in the NVIDIA devices of its site."""
        return False

    @property
    def reads_counters(self) -> bool:
        """Whether it may read the device's counters, which drivers reserve for CAP_SYS_ADMIN."""
        return False

    @abstractmethod
    def needs(self, site: Site, conditions: Conditions) -> Needs:
        """The files that it needs. Raises UserError: it can't run at this site, or a file is not there."""

    def write(self, place: Place) -> None:
        """Write what it reads into the launch's own folder, before the launch."""
        return

    @abstractmethod
    def argv_at(self, place: Place) -> tuple[str, ...]:
        """Program and arguments inside. Raises UnavailableError: the site lacks what it is started with."""

    def variables_at(self, place: Place) -> Mapping[str, str]:
        """Environment variables that come on top of those of the conditions and of the site."""
        return {}

    def workdir_at(self, place: Place) -> Path | None:
        """Working directory inside; None for the one that the transport has."""
        return None

    @abstractmethod
    def result(self, finished: Finished, folder: Path, environment: Environment) -> Result:
        """How it went. `finished`: how the runtime's client ended. `folder`: the launch's own folder on this side,
        with what the program has written. `environment`: in which it ran.
        """
