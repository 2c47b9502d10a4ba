"""A user's job as a program: its command in its own folder, with the variables of its environment, and a hook.

The hook is a folder that comes first in PYTHONPATH (hook/sitecustomize.py). It and what it writes are in a launch's
own folder, so that nothing else of this machine has to be shown. What it wrote is read when the launch has ended:
when each step ended, and of launches that are asked for them, facts of the process.
"""

from __future__ import annotations

import re
import shutil
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import ClassVar

from tare.core.errors import IntegrityError
from tare.core.files import read_json, write_json
from tare.core.process import Finished
from tare.launch.program.base import Place, Result
from tare.launch.program.command import CommandProgram
from tare.model.environment import Bind, Environment
from tare.model.records.launches import Steps
from tare.model.schema import Record, parse
from tare.weigh.facts import PROBE, PythonFacts

HOOK = Path(__file__).with_name("hook")
COPY, WRITES = "hook", "noted"  # in a launch's own folder: the hook, and what it writes
LOOKED = "probe.txt"
NCCL_LOG = "nccl."  # begins the names of files, one of each process
TRANSPORT = re.compile(r"\bvia ((?:P2P|SHM|NET|COLLNET)/\w+)")
MOST_LOG_BYTES = 4 << 20
NUMBER = struct.Struct("=qq")
MOST_SOURCES = 8


class HookNotes(Record):
    """What the hook wrote of itself in one process (hook/sitecustomize.py).

    Attributes:
        first_pid: of the process that Python was started as; pid: of this one, which may be forked from it.
        tellers: what reported steps, by number.
        passes: backward passes of PyTorch.
        errors: of the hook. lacking: why something can't report steps. shadowed: the `sitecustomize` that it hides.
        ended: whether the process came to its end in order.
    """

    first_pid: int
    pid: int
    tellers: tuple[str, ...]
    passes: int
    errors: tuple[str, ...]
    lacking: tuple[str, ...]
    shadowed: str | None
    ended: bool


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
        """As of any command; of binds with one target, its folder among them, the last one counts."""
        own = () if self.workdir is None else (Bind(source=self.workdir, target=self.workdir, writable=True),)
        by_target = {bind.target: bind for bind in (*own, *self.binds)}
        return tuple(sorted(by_target.values(), key=lambda bind: len(bind.target.parts)))

    def write(self, place: Place) -> None:
        """Put the hook into the launch's folder."""
        if self.hooked:
            (place.folder / WRITES).mkdir()
            shutil.copytree(HOOK, place.folder / COPY, ignore=shutil.ignore_patterns("__pycache__"))

    def argv_at(self, place: Place) -> tuple[str, ...]:
        """As it is, without the variables that it is not to have; PYTHONPATH leads to the hook."""
        names = tuple(name for name in self.without if not (self.hooked and name == "PYTHONPATH"))
        return (*without(names), *self.argv)

    def variables_at(self, place: Place) -> Mapping[str, str]:
        """Its own variables, and the hook's."""
        if not self.hooked:
            return self.variables
        path = None if "PYTHONPATH" in self.without else self.variables.get("PYTHONPATH", self.python_path)
        own = str(place.inside / COPY)
        hook = {"TARE_HOOK": str(place.inside / WRITES), "PYTHONPATH": f"{own}:{path}" if path else own}
        hook |= {"TARE_HOOK_PATTERN": self.pattern} if self.pattern else {}
        if self.facts:
            log = str(place.inside / WRITES / f"{NCCL_LOG}%h.%p")
            hook |= {"TARE_HOOK_FACTS": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": log}
        return {**self.variables, **hook}

    def result(self, finished: Finished, folder: Path, environment: Environment) -> Result:
        """As of any command, with its steps; its facts are kept."""
        found = super().result(finished, folder, environment)
        if not self.hooked:
            return found
        if self.facts is not None:
            keep_facts(folder / WRITES, self.facts)
        return replace(found, steps=steps_in(folder / WRITES))


@dataclass(frozen=True)
class ProbeProgram(JobProgram):
    """probe.sh where a job would run; what it said is kept.

    Attributes:
        said: the file for it.
        job: the job's words, whose programs it reads.
    """

    _: KW_ONLY
    said: Path = Path(LOOKED)
    job: tuple[str, ...] = ()

    def write(self, place: Place) -> None:
        """Put the script into the launch's folder."""
        shutil.copy(PROBE, place.folder / PROBE.name)

    def argv_at(self, place: Place) -> tuple[str, ...]:
        """A shell that reads it."""
        script, said = place.inside / PROBE.name, place.inside / LOOKED
        shell = ("/bin/sh", "-c", 'script=$1 said=$2; shift 2; . "$script" > "$said"', "sh", str(script), str(said))
        return (*without(self.without), *shell, *self.job)

    def result(self, finished: Finished, folder: Path, environment: Environment) -> Result:
        """As of any command; what it said is kept."""
        found = super().result(finished, folder, environment)
        if _plain([folder / LOOKED]):
            shutil.copy(folder / LOOKED, self.said)
        return found


def without(names: tuple[str, ...]) -> tuple[str, ...]:
    """What takes variables away from the program that follows; nothing for none."""
    return ("/usr/bin/env", *(part for name in names for part in ("-u", name))) if names else ()


def keep_facts(wrote: Path, target: Path) -> None:
    """Keep the facts of the process of a job that noted most steps, or ended first, checked; there may be none."""

    def rank(path: Path) -> tuple[int, int]:
        return -len(_noted(path.with_name(f"steps.{path.name.split('.')[1]}"))), path.stat().st_mtime_ns

    main = min(_plain(wrote.glob("facts.*.json")), key=rank, default=None)
    if main is not None:
        found = parse(PythonFacts, read_json(main), f"facts of {target.stem}")
        write_json(target, found.replace(nccl=_transports(wrote)).to_json())


def _transports(wrote: Path) -> tuple[str, ...]:
    """By which NCCL has connected the job's GPUs, as the logs of all its processes say."""
    found: set[str] = set()
    for path in _plain(wrote.glob(f"{NCCL_LOG}*")):
        with path.open("rb") as handle:
            found.update(TRANSPORT.findall(handle.read(MOST_LOG_BYTES).decode(errors="replace")))
    return tuple(sorted(found))


def _plain(paths: Iterable[Path]) -> list[Path]:
    """Those that are files: a link, which a job may leave too, leads to any file of this machine."""
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def _noted(path: Path) -> list[tuple[int, int]]:
    """Instants of steps and the numbers of their sources; none where the process noted none."""
    return [(at, number) for at, number in NUMBER.iter_unpack(path.read_bytes()) if at] if _plain([path]) else []


def steps_in(wrote: Path) -> Steps:
    """The steps of the process that noted most, in the launch's clock; of several sources, that of most steps.

    Raises:
        IntegrityError: the hook wrote something else.
    """
    notes = [parse(HookNotes, read_json(path), str(path)) for path in _plain(wrote.glob("hook.*.json"))]
    sources = {str(one.pid): one.tellers for one in notes}
    found: list[tuple[str, list[int], str]] = []
    for path in _plain(wrote.glob("steps.*")):
        pairs = _noted(path)
        pid = path.name.split(".")[1]
        names = sources.get(pid, ())
        if any(not 0 <= number < max(1, len(names)) for _, number in pairs):
            raise IntegrityError(f"{path}: a step has no known source")
        counts = Counter(number for _, number in pairs)
        if counts:
            (most, _), *_ = counts.most_common(1)
            source = names[most] if names else "the hook"
            found.append((source, [at for at, number in pairs if number == most], pid))
    name, ends, pid = max(found, key=lambda one: len(one[1]), default=(None, [], ""))
    return Steps(
        teller=name,
        ends_ns=tuple(ends),
        others=tuple(sorted({one for names in sources.values() for one in names} - {name})[:MOST_SOURCES]),
        passes=next((one.passes for one in notes if str(one.pid) == pid and one.ended and one.passes), None),
        processes=max(1, len(found)),
        ran=bool(sources),
        shadowed=next((one.shadowed for one in notes if one.shadowed), None),
        lacking=tuple(dict.fromkeys(text for one in notes for text in one.lacking)),
        errors=tuple(dict.fromkeys(text for one in notes for text in one.errors)),
    )
