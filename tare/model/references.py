"""A reference campaign's record: what was measured on a named machine, kept with the project."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tare.model.schema import FileRecord, Natural, Positive, Record, matching, read

RECORD = "reference.json"
BROKEN = "broken.json"  # beside tables that could not be made

Instant = Annotated[str, matching(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", "is no instant in UTC")]
Seconds = Annotated[float, Field(ge=0)]


class Version(Record):
    """Which Tare measured; `commit` and `modified` are null where git did not tell, for the reason."""

    version: str
    commit: str | None
    modified: bool | None
    reason: str | None


class Device(Record):
    """What trained; `name` as its driver or its processor gives it."""

    kind: Literal["cpu", "cuda"]
    name: str | None
    facts: Mapping[str, Any] | None


class Torch(Record):
    """What the framework says of itself."""

    version: str
    cuda: str | None
    cuda_available: bool
    cudnn: int | None
    device: str | None
    capability: str | None


class WorkloadState(Record):
    """Whether its data were there."""

    available: bool
    reason: str | None


class EnvironmentState(WorkloadState):
    """Whether it could be launched there."""

    version: str | None


class PartRow(Record):
    """One part; status `ended`: fewer units than were planned, since time was up."""

    name: str
    kind: Literal["ceilings", "profile", "turns", "setting", "rounds", "causes", "sweep"]
    workload: str | None
    env: str | None
    arm: str | None
    status: Literal["ok", "ended", "unavailable", "failed"]
    reason: str | None
    seconds: Seconds
    record: str | None


class ListedFile(Record):
    """A file of the folder."""

    path: Annotated[str, matching(r"(?!/)(?!.*\.\.)[\w./+=-]+", "is no path below the folder")]
    bytes: Natural
    sha256: Annotated[str, matching(r"[0-9a-f]{64}", "is no SHA-256")]


class Run(Record):
    """The first run, or one that carried it on."""

    at: Instant
    tare: Version
    budget_s: Positive
    wall_s: Seconds


class ReferenceRecord(FileRecord):
    """reference.json of a folder of results/reference/."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "it was recorded by another version of Tare; record it again"

    name: Annotated[str, matching(r"[a-z0-9][a-z0-9._-]{0,79}", "is no name of a reference")]
    at: Instant
    tare: Version
    study: str
    stack: str
    device: Device
    torch: Torch
    python: str
    environments: Annotated[Mapping[str, EnvironmentState], Field(min_length=1)]
    workloads: Annotated[Mapping[str, WorkloadState], Field(min_length=1)]
    parts: Annotated[tuple[PartRow, ...], Field(min_length=1)]
    notes: tuple[str, ...]
    files: Annotated[tuple[ListedFile, ...], Field(min_length=1)]
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]


def load(folder: Path) -> ReferenceRecord:
    """The record of a reference campaign, checked.

    Raises:
        UserError: there is none.
        IntegrityError: it is of another form.
    """
    return read(ReferenceRecord, folder / RECORD)


def references(root: Path) -> list[Path]:
    """Folders below `root` that hold a reference campaign."""
    return sorted(path.parent for path in root.glob(f"*/{RECORD}"))
