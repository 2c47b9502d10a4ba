"""What a user asks of `tare weigh`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tare.core.errors import UserError
from tare.core.process import run
from tare.model.choices import Choice
from tare.model.conditions import Conditions
from tare.model.environment import Bind

SETUP_S = 3600.0
FEWEST_ROUNDS = 4  # before a verdict, where time is short, as for an arm of a study
MAIN_SHARE = 0.6  # of the budget for the comparison, where causes are looked for


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks.

    Attributes:
        name: of the folder in results/weigh.
        choices: environments, the reference first.
        command, workdir: of the job.
        minutes, margin, confidence: the budget; what counts as equal, relative; of the intervals together.
        steps: `auto`, `none`, or a regular expression that a line of the job's output holds at the end of a step.
        network: whether the job has one.
        binds: what else of this machine it sees.
        variables: of every environment.
        setup, between: commands of a shell, before everything and before each run.
        confirm: causes are tried.
        timeout_s: of one run.
        shell: variables of the shell, passed on where an environment does so. left_out: names of the others.
        seed: of the random orders.
    """

    name: str
    choices: tuple[Choice, ...]
    command: tuple[str, ...]
    workdir: Path
    minutes: float = 5.0
    margin: float = 0.02
    confidence: float = 0.95
    steps: str = "auto"
    network: bool = False
    binds: tuple[Bind, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    setup: str | None = None
    between: str | None = None
    confirm: bool = True
    timeout_s: float = 600.0
    shell: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    seed: int = 2022

    @property
    def reference(self) -> Choice:
        """The first environment."""
        return self.choices[0]

    @property
    def conditions(self) -> Conditions:
        """Of launches, as plans have them: nothing is asked for but a limit of time."""
        cpus = len(os.sched_getaffinity(0))
        return Conditions(
            threads=cpus,
            cpus=cpus,
            open_files=1024,
            page_cache="warm",
            launch_timeout_s=self.timeout_s,
            allocator="default",
        )

    def in_shell(self, command: str, option: str) -> None:
        """Run a command of the user's own in the job's folder, with this whole shell's variables and the job's.

        `option` named it.

        Raises:
            UserError: it fails.
        """
        variables = {**os.environ, **self.variables}
        ended = run(["/bin/sh", "-c", command], timeout_s=SETUP_S, env=variables, cwd=self.workdir)
        if not ended.ok:
            raise UserError(f"{option} {command!r} failed: {ended.explain()}")
