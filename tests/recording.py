"""An environment that records what each of its launches was started with, and runs it on the host.

The worker's jobs become the script of `fakes`, which needs no framework; any other program runs as it is. What a
design asks of a launch is compared with what arrives here, through the code that designs and launches really take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes import Fake

from tare.launch.barrier import SCRIPT
from tare.launch.conditions import ALLOCATORS
from tare.model.environment import Launch

PAD = "TARE_PAD"
OF_ENV = 2  # words of `env -i`
UNSET = re.compile(r"\bunset (\w+)")


@dataclass(frozen=True, kw_only=True)
class Started:
    """One launch as an adapter gets it.

    Attributes:
        launch: all that it is given.
        variables: the program's whole environment.
        command: the program and its arguments.
        spec: of the worker's job; None for another program.
    """

    launch: Launch
    variables: Mapping[str, str]
    command: tuple[str, ...]
    spec: Mapping[str, Any] | None

    @property
    def pad_bytes(self) -> int:
        """Length of the padding variable."""
        return len(self.variables[PAD])

    @property
    def conditions(self) -> dict[str, Any]:
        """Those of the study's conditions that reach a launch, read back from what it was given."""
        told = {name: text for name, text in self.variables.items() if name.startswith(("MALLOC_", "GLIBC_"))}
        (allocator,) = [name for name, variables in ALLOCATORS.items() if variables == told]
        return {
            "allocator": allocator,
            "threads": int(self.variables["OMP_NUM_THREADS"]),
            "cpus": len(self.launch.cpus),
            "open_files": self.launch.nofile,
            "settings": (self.spec or {}).get("settings", {}),
        }


def started(launch: Launch) -> Started:
    """What a launch is started with, as its argument list and its folder say it."""
    assert launch.argv[:OF_ENV] == ("/usr/bin/env", "-i")
    words = launch.argv[OF_ENV:]
    count = next(number for number, word in enumerate(words) if "=" not in word)
    variables = dict(word.split("=", 1) for word in words[:count])
    for name in UNSET.findall(SCRIPT) if SCRIPT in words else ():  # by the barrier, before the program
        variables.pop(name, None)
    spec = launch.workdir / "spec.json"
    return Started(
        launch=launch,
        variables=variables,
        command=words[count:],
        spec=json.loads(spec.read_text()) if spec.exists() else None,
    )


class Recording(Fake):
    """A fake environment that keeps what it was started with, in order."""

    def __init__(self, pids: Path, **changes: Any) -> None:
        super().__init__(pids, **changes)
        self.started: list[Started] = []

    def command(self, launch: Launch) -> list[str]:
        self.started.append(started(launch))
        return super().command(launch)

    @property
    def jobs(self) -> Sequence[Started]:
        """Launches of the worker, without those that run nothing."""
        return [one for one in self.started if one.spec is not None]
