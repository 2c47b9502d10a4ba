"""What `tare optimise` answered to a request, as a file: the ranking, and what was measured of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from tare.core.errors import TareError
from tare.core.files import canonical_json, sha256_text
from tare.core.progress import say
from tare.model.machines import MachineName
from tare.model.schema import FileRecord, Natural, Record, read
from tare.model.studies.layout import answers_folder
from tare.predict.checked import Checked
from tare.predict.choose import Choice, Ranked
from tare.predict.elapsed import Elapsed
from tare.predict.requests import Request
from tare.predict.search import Searched
from tare.predict.targets import TargetRecord

MEASURED = "whole job, measured"  # the one term of a time that was measured


class Measured(Record):
    """The first candidates in sliced rounds; `reasons`: why some failed, by name; `level`: of all intervals."""

    rows: tuple[Checked, ...]
    reasons: Mapping[str, str]
    rounds: Natural
    level: float
    at: str


class Answer(FileRecord):
    """A request, the target, what is predicted, and what was measured; None where nothing was."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "delete it and ask again (`tare optimise`)"

    request: Request
    notes: tuple[str, ...]
    machine: MachineName
    processor: str
    stack: str
    choice: Choice
    left_out: tuple[str, ...]
    at: str
    measured: Measured | None = None
    searched: Searched | None = None
    held_out: bool = False  # whether the job's own network was left out of the training

    @classmethod
    def of(
        cls,
        request: Request,
        notes: list[str],
        target: TargetRecord,
        choice: Choice,
        left_out: tuple[str, ...],
        *,
        held_out: bool = False,
    ) -> Self:
        """As it is before anything is measured."""
        return cls(
            request=request,
            notes=tuple(notes),
            machine=target.machine,
            processor=target.processor,
            stack=target.stack,
            choice=choice,
            left_out=left_out,
            held_out=held_out,
            at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )

    @property
    def name(self) -> str:
        """Of its file: equal for equal requests to equal targets."""
        apart = ["held out"] if self.held_out else []
        asked = canonical_json([self.request.to_json(), self.machine, self.processor, self.stack, *apart])
        return f"{self.request.workload}-{sha256_text(asked)[:8]}"

    @property
    def found(self) -> Ranked | None:
        """What a search found to be better than the framework's default, with the time that it measured."""
        found = self.searched
        if found is None or found.outcome != "better":
            return None
        best = found.fresh[-1]
        candidate = next((one for one in self.choice.candidates if one.name == best.name), None)
        if candidate is None:  # what could be had when it was found
            return None
        steps, seconds = self.request.steps_of(candidate.batch), best.measured_s
        elapsed = Elapsed(seconds=seconds, low=None, high=None, terms={MEASURED: seconds})
        step_s = seconds / steps
        return Ranked(
            candidate=candidate, rank=1, tied=False, steps=steps, step_s=step_s, elapsed=elapsed, why=MEASURED
        )

    def path(self, results: Path) -> Path:
        """Its file, in the folder of a study's results."""
        return answers_folder(results, self.machine) / f"{self.name}.json"

    def with_former(self, results: Path) -> Self:
        """With what an earlier answer to the same request has measured, which stays true."""
        path = self.path(results)
        if not path.exists():
            return self
        try:
            former = read(type(self), path)
        except TareError as error:
            say(f"written again: {error}")
            return self
        return self.replace(measured=former.measured, searched=former.searched)


def read_answers(results: Path, machine: str) -> tuple[Answer, ...]:
    """All answers on a machine in a study's results. Raises IntegrityError: one of them is damaged."""
    return tuple(read(Answer, path) for path in sorted(answers_folder(results, machine).glob("*.json")))
