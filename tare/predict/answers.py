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
from tare.predict.choose import Choice
from tare.predict.requests import Request
from tare.predict.search import Searched
from tare.predict.targets import TargetRecord


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

    @classmethod
    def of(
        cls, request: Request, notes: list[str], target: TargetRecord, choice: Choice, left_out: tuple[str, ...]
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
            at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        )

    @property
    def name(self) -> str:
        """Of its file: equal for equal requests to equal targets."""
        asked = canonical_json([self.request.to_json(), self.machine, self.processor, self.stack])
        return f"{self.request.workload}-{sha256_text(asked)[:8]}"

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
