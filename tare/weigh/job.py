"""A user's job as a program: its command in its own folder, with the variables of its environment, and a hook.

The hook is a folder that comes first in PYTHONPATH (hook/sitecustomize.py). What it writes of a launch is read when
the launch has ended: when each step ended, and of launches that are asked for them, facts of the process.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tare.core.errors import IntegrityError
from tare.core.files import read_json, write_json
from tare.core.process import Finished
from tare.launch.place import Site
from tare.launch.program.base import Needs, Place, Result
from tare.launch.program.command import CommandProgram
from tare.model.environment import Bind, Environment
from tare.model.records.launches import Steps
from tare.model.schema import parse
from tare.weigh.facts import PythonFacts

HOOK = Path(__file__).with_name("hook")
WRITES = "hook"  # the folder, in a launch's own, for what the hook writes
NUMBER = struct.Struct("=qq")
MOST_TELLERS = 8


@dataclass(frozen=True)
class JobProgram(CommandProgram):
    """A job.

    Attributes:
        hooked: the hook watches it; without it only whole runs are seen.
        pattern: a line of its output in which this is found ends a step; None: optimizers and their like do.
        python_path: PYTHONPATH that it would have without the hook.
        facts: where facts of its process go; None where none are asked for.
        without: variables of its environment that it is not to have.
    """

    _: KW_ONLY
    hooked: bool = False
    pattern: str | None = None
    python_path: str | None = None
    facts: Path | None = None
    without: tuple[str, ...] = ()

    as_given: ClassVar[bool] = True

    @property
    def shown(self) -> tuple[Bind, ...]:
        """As of any command; a bind over its folder stands in for that."""
        over = [bind for bind in self.binds if bind.target == self.workdir]
        if not over:
            return super().shown
        every = dict.fromkeys((*over[-1:], *(bind for bind in self.binds if bind.target != self.workdir)))
        return tuple(sorted(every, key=lambda bind: len(bind.target.parts)))

    def needs(self, site: Site, conditions: Any) -> Needs:
        """Its folder, and that of the hook.

        Raises:
            UserError: one of them is not there.
        """
        own = super().needs(site, conditions)
        hook = (Bind(source=HOOK, target=HOOK),) if self.hooked else ()
        return replace(own, binds=(*own.binds, *hook))

    def write(self, place: Place) -> None:
        """Make the folder for what the hook writes."""
        (place.folder / WRITES).mkdir()

    def argv_at(self, place: Place) -> tuple[str, ...]:
        """As it is, without the variables that it is not to have."""
        if not self.without:
            return tuple(self.argv)
        return ("/usr/bin/env", *(part for name in self.without for part in ("-u", name)), *self.argv)

    def variables_at(self, place: Place) -> Mapping[str, str]:
        """Its own variables, and the hook's."""
        if not self.hooked:
            return self.variables
        path = self.variables.get("PYTHONPATH", self.python_path)
        hook = {"TARE_HOOK": str(place.inside / WRITES), "PYTHONPATH": f"{HOOK}:{path}" if path else str(HOOK)}
        hook |= {"TARE_HOOK_PATTERN": self.pattern} if self.pattern else {}
        hook |= {"TARE_HOOK_FACTS": "1"} if self.facts else {}
        return {**self.variables, **hook}

    def result(self, finished: Finished, folder: Path, environment: Environment) -> Result:
        """As of any command, with its steps; its facts are kept."""
        found = super().result(finished, folder, environment)
        if not self.hooked:
            return found
        if self.facts is not None:
            keep_facts(folder / WRITES, self.facts)
        return replace(found, steps=steps_in(folder / WRITES))


def keep_facts(wrote: Path, target: Path) -> None:
    """Keep the facts of the first process of a job, checked; of a job without Python there are none."""
    first = min(wrote.glob("facts.*.json"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if first is not None:
        write_json(target, parse(PythonFacts, read_json(first), f"facts of {target.stem}").to_json())


def steps_in(wrote: Path) -> Steps:
    """The steps of the process that noted most, in the launch's clock; of several tellers, that of most steps.

    Raises:
        IntegrityError: the hook wrote something else.
    """
    told: dict[str, Any] = {"errors": [], "lacking": []}
    tellers: dict[str, list[str]] = {}
    for path in sorted(wrote.glob("hook.*.json")):
        one = read_json(path)
        tellers[path.name.split(".")[1]] = list(one.get("tellers", ()))
        for key in ("errors", "lacking"):
            told[key] += one.get(key, ())
        told["shadowed"] = told.get("shadowed") or one.get("shadowed")
    found: list[tuple[str, list[int]]] = []
    for path in sorted(wrote.glob("steps.*")):
        pairs = [(at, number) for at, number in NUMBER.iter_unpack(path.read_bytes()) if at]
        names = tellers.get(path.name.split(".")[1], [])
        if any(not 0 <= number < max(1, len(names)) for _, number in pairs):
            raise IntegrityError(f"{path}: a step was told by nobody")
        counts = Counter(number for _, number in pairs)
        if counts:
            (most, _), *_ = counts.most_common(1)
            name = names[most] if names else "the hook"
            found.append((name, [at for at, number in pairs if number == most]))
    name, ends = max(found, key=lambda one: len(one[1]), default=(None, []))
    return Steps(
        teller=name,
        ends_ns=tuple(ends),
        others=tuple(sorted({one for names in tellers.values() for one in names} - {name})[:MOST_TELLERS]),
        ran=bool(tellers),
        shadowed=told.get("shadowed"),
        lacking=tuple(dict.fromkeys(told["lacking"])),
        errors=tuple(dict.fromkeys(told["errors"])),
    )


def why_no_steps(steps: Steps | None, argv: tuple[str, ...]) -> str | None:
    """Why a launch tells no steps; None where it does."""
    if steps is not None and steps.ends_ns:
        return None
    if steps is None or not steps.ran:
        return "the hook did not run in it: it starts no Python, or one that ignores PYTHONPATH (python -I, -E)"
    if steps.lacking:
        return steps.lacking[0]
    if steps.errors:
        return f"the hook failed: {steps.errors[0]}"
    return (
        "no optimizer took a step: call tare.mark() at the end of a step, or give --steps a pattern of its output"
    )
