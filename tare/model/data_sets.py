"""The registry of data sets: what data/registry.yaml, or a file of its form, holds.

Every entry is checked when the file is read, the ones included that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tare.model.schema import Count, FileRecord, Natural, Record, matching

# Of ImageNet's pixels, by channel, from 0 to 1: by these the image workloads normalise.
IMAGENET_MEAN, IMAGENET_SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Text = Annotated[str, Field(min_length=1)]
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "is no SHA-256")]
Broken = Literal["stop", "skip"]
Md5 = Annotated[str, matching(r"[0-9a-f]{32}", "is no MD5")]


class KnownFile(Record):
    """A file that every source must give; `sha256` is None where nobody vouches for one."""

    sha256: Sha256 | None


class Part(Record):
    """One download; `gives` is the file's name in the set, `md5` that of what travels, where one is published."""

    gives: Text
    url: Text
    unpack: Literal["gzip", "none"]
    md5: Md5 | None = None


class HttpsSource(Record):
    """Files of the web; `canonical` if the address is the authors' own place."""

    name: Text
    kind: Literal["https"]
    canonical: bool = False
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]

    @property
    def address(self) -> str:
        """What a person would look up."""
        return self.parts[0].url

    @property
    def gives(self) -> set[str]:
        """Names of the files that it gives."""
        return {part.gives for part in self.parts}


class PackageSource(Record):
    """A package of an index."""

    name: Text
    canonical: bool = False
    package: Text
    version: Text
    # name of a file -> paths; each after the first is looked up in the archive that the one before is
    members: Mapping[str, Annotated[tuple[str, ...], Field(min_length=1)]]

    @property
    def address(self) -> str:
        """What a person would look up."""
        return f"{self.package}=={self.version}"

    @property
    def gives(self) -> set[str]:
        """Names of the files that it gives."""
        return set(self.members)


class NpmSource(PackageSource):
    """A package that `npm pack` fetches."""

    kind: Literal["npm"]


class PipSource(PackageSource):
    """A source archive that pip finds; `sha256` is the archive's."""

    kind: Literal["pip"]
    sha256: Sha256


class AptSource(Record):
    """A package of the distribution, as `apt-get download` brings it; `file`: its name in the set."""

    name: Text
    kind: Literal["apt"]
    canonical: bool = False
    package: Text
    version: Text
    file: Text

    @property
    def address(self) -> str:
        """What a person would look up."""
        return f"{self.package}={self.version}"

    @property
    def gives(self) -> set[str]:
        """Names of the files that it gives."""
        return {self.file}


Source = Annotated[HttpsSource | NpmSource | PipSource | AptSource, Field(discriminator="kind")]


class Sample(Record):
    """A class-balanced sample of a set's rows, drawn by a seed."""

    rows: Count
    seed: int


class Images(Record):
    """What a set of images has: classes, images of each for training and for validation."""

    size: Count  # pixels of an edge
    classes: Count
    train: Count
    val: Count
    # of the JPEG files, where a recipe writes them; `seed`: of what it draws
    quality: Annotated[int, Field(ge=1, le=95)] | None = None
    seed: int | None = None


class DataSet(Record):
    """One entry of the registry."""

    name: str  # its key there
    title: Text
    licence: Text
    citation: Text
    recipe: str  # how tare.datasets.prepare turns the files into the form that a workload reads
    files: Annotated[Mapping[str, KnownFile], Field(min_length=1)]  # by name; every source must give all of them
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]  # in the order in which they are tried
    sample: Sample | None = None
    rows: Count | None = None  # of the prepared form, where it is no sample
    counts: Mapping[str, Natural] | None = None  # rows of each class before the sample is drawn
    images: Images | None = None  # of a set of images
    # whether one that can't be decoded ends the preparation, or is left out, counted and named
    broken_images: Broken = "stop"
    # of the prepared form, as `sha256sum` of the sorted `sha256sum` lines of its files; where it is given, another
    # one is refused
    prepared_sha256: Sha256 | None = None
    stands_for: str | None = None  # what the set replaces where that can't be had
    note: str | None = None

    @model_validator(mode="after")
    def _sources_give_its_files(self) -> Self:
        for source in self.sources:
            if odd := sorted(source.gives ^ set(self.files)):
                lacks = odd[0] in self.files
                raise ValueError(f"source {source.name!r} {'lacks' if lacks else 'gives another file,'} {odd[0]!r}")
        return self

    @property
    def prepared_rows(self) -> int | None:
        """Rows of the prepared form; None where any number will do."""
        return self.sample.rows if self.sample else self.rows


class DataRegistry(FileRecord):
    """All data sets by name, and the groups from which `data.<group>` of a study chooses."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "write it as data/README.md says"

    datasets: Annotated[Mapping[str, DataSet], Field(min_length=1)]
    groups: Mapping[str, Annotated[tuple[str, ...], Field(min_length=1)]]


class FirstUse(FileRecord):
    """`data/first-use/<file>.json` of the cache: the hash of a file's first download, where none is vouched for."""

    VERSION: ClassVar[int] = 1
    REMAKE: ClassVar[str] = "delete it to trust the next download"
    UNMARKED: ClassVar[bool] = True

    sha256: Sha256
    source: Annotated[str, Field(alias="from")]
