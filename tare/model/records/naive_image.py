"""Two timed builds of the image that a user would write by hand: results/images/<stack>/naive/<machine>/."""

from __future__ import annotations

from typing import ClassVar, Literal

from tare.model.records.images import Package, Status
from tare.model.schema import FileRecord, Natural, Record

Builder = Literal["docker", "apptainer"]  # the environment that runs what it builds


class NaiveBuild(Record):
    """One build with nothing cached; what is None could not be had, and `reason` says why."""

    builder: Builder
    status: Status
    reason: str | None
    version: str | None  # of the builder
    seconds: float | None  # of the build, what it copies included
    bytes: Natural | None  # as Docker states them; allocated blocks of the .sif


class NaiveImageRecord(FileRecord):
    """A stack's image by each builder; no packages where they could not be fetched."""

    VERSION: ClassVar[int] = 2

    stack: str
    variant: str
    packages: tuple[Package, ...]
    builds: tuple[NaiveBuild, ...]
