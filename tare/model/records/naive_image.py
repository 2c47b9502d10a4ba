"""What an image of a naive Dockerfile, or definition file, costs beside ours, all made in one run.

results/images/<stack>/naive/<environments>/record.json
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from tare.model.records.images import Package, Status
from tare.model.schema import FileRecord, Natural, Record

Way = Literal["root", "fakeroot", "namespace"]


class CountedLayer(Record):
    """A layer of an image.

    Attributes:
        made_by: the step that made it, as the image's history says.
        digest: `sha256:…` of its tar.
        bytes: of the tar.
        gzip_bytes: of the tar as a registry keeps it and as it travels.
    """

    made_by: str
    digest: str
    bytes: Natural
    gzip_bytes: Natural


class FormCost(Record):
    """One runtime's own form of an image; what is None could not be had, and `reason` says why.

    Attributes:
        seconds: of making it.
        disk_bytes: allocated blocks.
    """

    seconds: float | None
    disk_bytes: Natural | None
    reason: str | None


class MadeImage(Record):
    """An image that was made once.

    Attributes:
        seconds: by stage.
        layers: lowest first.
        new_with_stack, new_with_code: indices of the layers that another stack, or another line of code, replaces.
        forms: by environment.
    """

    seconds: Mapping[str, float]
    layers: tuple[CountedLayer, ...]
    new_with_stack: tuple[Natural, ...]
    new_with_code: tuple[Natural, ...]
    forms: Mapping[str, FormCost]


class DefinitionBuild(Record):
    """A .sif built by a definition file, one way; what is None could not be had, and `reason` says why.

    Attributes:
        way: who was root in %post: root outright, Apptainer's --fakeroot (with a user's further ids), or the user
            in a namespace of their own.
        seconds: of the build, with nothing cached.
        bytes: of the file.
        disk_bytes: allocated blocks.
    """

    way: Way
    status: Status
    reason: str | None
    seconds: float | None
    bytes: Natural | None
    disk_bytes: Natural | None


class DefinitionBuilds(Record):
    """The definition file, built by each way.

    Attributes:
        builder: program and version; None where there is none.
    """

    builder: str | None
    builds: tuple[DefinitionBuild, ...]


class NaiveImageRecord(FileRecord):
    """Both images of a stack; what is None could not be had, and `reason` says why.

    Attributes:
        builder: program and version that built the Dockerfile.
        installer: pip and its version.
        compression: how layers were compressed to be counted.
        steps: of the Dockerfile.
        same_digest: ours came out with the digest that the stack's own image record has.
        naive, ours: the two images.
        definition: the definition file of the same steps, whether or not the two images could be had; None in older
            records.
    """

    VERSION: ClassVar[int] = 1

    stack: str
    variant: str
    status: Status
    reason: str | None
    packages: tuple[Package, ...] = ()
    builder: str | None = None
    installer: str | None = None
    compression: str | None = None
    steps: Natural | None = None
    same_digest: bool | None = None
    naive: MadeImage | None = None
    ours: MadeImage | None = None
    definition: DefinitionBuilds | None = None
