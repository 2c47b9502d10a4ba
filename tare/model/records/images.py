"""Records of what is made before anything is launched: trees, images, their forms, probes of environments, data.

Each is a file below results/. Keys with a default were added later, or belong to one kind of installation; a record
that was written without them is still read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tare.model.environment import Probe
from tare.model.schema import FileRecord, Natural, Record, read

Status = Literal["ok", "unavailable"]
Install = Literal["tree", "native", "bound", "official"]
# Whether it was in the cache. Not written: what is made again has the same record, which makes nothing old.
WasThere = Annotated[bool, Field(exclude=True)]


class Package(Record):
    """A package of a stack; `sha256` is its wheel's, None where nothing was fetched."""

    name: str
    version: str
    sha256: str | None


class Storage(Record):
    """What a form takes on this machine's disk; counts are None where `reason` says why."""

    disk_bytes: Natural | None  # allocated blocks
    shared_bytes: Natural | None  # those of them that the host's own tree holds too
    files: Natural | None  # files and folders, each inode once
    places: tuple[str, ...]  # what was counted
    reason: str | None


class DebianPackage(Record):
    """A package of a base, as dpkg names it."""

    name: str
    version: str
    architecture: str


class BaseImage(Record):
    """The root filesystem below a stack; `reason` says why it is not the registry's."""

    kind: str
    name: str
    digest: str
    glibc: str
    bytes: Natural
    reason: str | None
    packages: tuple[DebianPackage, ...] = ()


class CompiledLibrary(Record):
    """A library of a tree that was compiled from source."""

    name: str
    version: str
    target: str  # what it was compiled for, in its own words
    compiler: str  # as it calls itself
    source_sha256: str  # of the archive of its sources; `sha256`: of the finished file
    sha256: str


class TreeFacts(Record):
    """The tree of an image; of one that is not there, and of other installations, most is None."""

    key: str | None = None
    path: str | None = None  # where it is on this machine
    inside: str | None  # where images have it; the folder of the packages for other installations
    digest: str | None
    bytes: Natural | None = None  # sum of its files' sizes
    files: Natural | None = None
    python: str | None = None
    glibc: str | None = None  # the oldest C library under which its interpreter runs
    library: CompiledLibrary | None = None  # that was compiled into it, where the stack has one


class OfStack(FileRecord):
    """What the records of a stack's tree, of its image and of its forms have alike."""

    stack: str
    variant: str
    status: Status
    reason: str | None
    packages: tuple[Package, ...]
    seconds: Mapping[str, float]  # of each stage, as it took when it was made
    cached: WasThere = False
    python_version: str | None = None


class TreeRecord(OfStack, TreeFacts):
    """`results/images/<stack>/tree.json`; what a stack that can't be had lacks is None."""

    VERSION: ClassVar[int] = 1

    inside: str | None = None
    digest: str | None = None
    interpreter: str | None = None
    wheel_bytes: Natural | None = None
    tree: TreeFacts | None = None


class OciRecord(OfStack):
    """`results/images/<stack>/oci.json`: the one image of a stack, from which every form derives."""

    VERSION: ClassVar[int] = 1

    install: Install = "tree"
    tree: TreeFacts
    key: str | None = None  # of the image in the store
    path: str | None = None  # the archive
    bytes: Natural | None = None
    digest: str | None = None
    image_id: str | None = None
    tag: str | None = None
    base: BaseImage | None = None
    storage: Storage | None = None
    python: str | None = None  # of an installation that is not the tree's
    details: Mapping[str, Any] = {}
    binds: tuple[str, ...] = ()  # folders that launches of a bound installation see at their own paths
    stamp_of_folders: str | None = None


class ImageRecord(OfStack):
    """`results/images/<stack>/<env>.json`: what is launched in one environment."""

    VERSION: ClassVar[int] = 1

    install: Install = "tree"
    options: Mapping[str, str] = {}  # levels of the adapter's factors that its launches need
    binds: tuple[str, ...] = ()  # further folders that launches see, at their own paths
    env: str
    reference: str | None  # what the adapter's command names; None where there is no form
    path: str | None
    digest: str | None
    image_id: str | None
    python: str | None
    bytes: Natural | None
    base: BaseImage | None
    # `tree`, `tree_digest`: where the packages are inside, and the digest of their content
    tree: str | None
    tree_digest: str | None
    key: str | None
    storage: Storage | None = None
    details: Mapping[str, Any]
    isolates_network: bool = True  # the trial launch had no network, as measured launches want it
    stamp_of_folders: str | None = None
    # of a launch on a cluster: the type of file system that holds it, and that from which it was copied
    read_from: Annotated[str | None, Field(exclude=True)] = None


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
    """`results/images/<stack>/naive/<machine>/record.json`: the image that a user would write by hand, built twice.

    No packages where they could not be fetched.
    """

    VERSION: ClassVar[int] = 2

    stack: str
    variant: str
    packages: tuple[Package, ...]
    builds: tuple[NaiveBuild, ...]


AnyImage = TreeRecord | OciRecord | ImageRecord
OF_STACK: dict[str, type[AnyImage]] = {"tree": TreeRecord, "oci": OciRecord}


def read_images(folder: Path) -> dict[str, AnyImage]:
    """Records of a stack by the names of their files: `tree`, `oci`, and the environments. Raises IntegrityError:
    one of them is not what its type says.
    """
    paths = sorted(folder.glob("*.json"))
    found: dict[str, AnyImage] = {}
    for path in paths:
        found[path.stem] = read(OF_STACK.get(path.stem, ImageRecord), path)
    return found


class ProbeRecord(FileRecord):
    """`results/probe/<machine>/<env>.json`: whether a trial launch worked, and what it saw."""

    VERSION: ClassVar[int] = 1

    env: str
    title: str
    description: str
    available: bool
    version: str | None
    reason: str | None
    remedy: str | None
    details: Mapping[str, Any]
    programs: Mapping[str, str | None] = {}

    @property
    def outcome(self) -> Probe:
        """What the trial launch gave."""
        return Probe(
            available=self.available,
            version=self.version,
            reason=self.reason,
            remedy=self.remedy,
            details=dict(self.details),
        )


class DataFile(Record):
    """A prepared file: path below the set's folder, size, hash."""

    path: str
    bytes: Natural
    sha256: str


class DataSource(Record):
    """Where a set came from; `canonical` if that is its authors' own place."""

    name: str
    kind: str
    address: str
    canonical: bool


class Channels(Record):
    """Red, green and blue of images as their files hold them, from 0 to 1."""

    images: Natural  # how many were looked at
    # `mean`, `spread`: of all their pixels; `spread` is the standard deviation
    mean: tuple[float, float, float]
    spread: tuple[float, float, float]


class DataRecord(FileRecord):
    """`results/data/<name>.json`: the set behind a workload's data, and what its prepared files hash to."""

    VERSION: ClassVar[int] = 1

    name: str
    dataset: str
    choice: str
    title: str
    licence: str
    note: str | None
    source: DataSource
    canonical: bool
    content_sha256: Mapping[str, str]
    fetched_s: float
    rows: Natural
    # those of the prepared form; of a set of many files its top level, a folder as one `path/` with the SHA-256 of
    # its files' sorted `sha256sum` lines
    files: tuple[DataFile, ...]
    bytes: Natural
    folder: str
    # what the study said of images that can't be decoded; `skipped` names those that were left out
    broken_images: Literal["stop", "skip"] = "stop"
    skipped: tuple[str, ...] = ()
    prepared_sha256: str | None = None  # SHA-256 of the sorted `sha256sum` lines of all files
    stands_for: str | None = None  # the set in whose place it was taken, or None where it is the one that was meant
    # of a set of images its pixels' mean and spread; None of others, and in records of before
    channels: Channels | None = None


def read_probes(folder: Path, environments: Collection[str]) -> dict[str, ProbeRecord]:
    """Records of trial launches, of these environments: other studies have theirs in the same folder. Raises
    IntegrityError: one of them is not what its type says.
    """
    paths = [path for path in sorted(folder.glob("*.json")) if path.stem in environments]
    return {path.stem: read(ProbeRecord, path) for path in paths}
