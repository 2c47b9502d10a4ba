"""Libraries that are compiled from source where a stack takes them: a file of containers/libraries/ each."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tare.core.errors import UnavailableError, UserError
from tare.core.files import data_root
from tare.model.data_sets import Sha256
from tare.model.schema import Record, parse, read_yaml
from tare.model.words import nearest

Some = Field(min_length=1)


class Source(Record):
    """An archive of sources; `path`: below the address of an archive of a distribution."""

    path: str
    sha256: Sha256


class Target(Record):
    """What a library is compiled for; `flags`: what a processor needs that runs it, as /proc/cpuinfo names it."""

    name: str
    flags: Annotated[tuple[str, ...], Some]


class LibraryFile(Record):
    """How one library is compiled."""

    # `name`, `version`: of the library
    name: str
    version: str
    soname: str  # by which the loader knows it, and the name of its file in a tree
    source: Source  # where its sources are, and their hash
    programs: Annotated[tuple[str, ...], Some]  # that compiling takes, a compiler the last of them
    packages: tuple[str, ...]  # of the distribution that bring those
    targets: Annotated[tuple[Target, ...], Some]  # what it can be compiled for, the best first
    # argument lists that are run in the folder of the sources, with `{target}` and `{jobs}`
    steps: Annotated[tuple[Annotated[tuple[str, ...], Some], ...], Some]
    built: str  # the finished file, below that folder
    product: str  # its product of matrices with the arguments of `cblas_sgemm`, by which it is tried

    def target_for(self, flags: Collection[str]) -> Target:
        """The first target whose flags a processor has. Raises UnavailableError: there is none."""
        for target in self.targets:
            if set(target.flags) <= set(flags):
                return target
        raise UnavailableError(
            f"{self.name} {self.version} has no build for this processor: its last target, "
            f"{self.targets[-1].name}, needs {', '.join(self.targets[-1].flags)}"
        )


def libraries_dir() -> Path:
    """The folder in which each library has a file."""
    return data_root() / "containers" / "libraries"


def library_names() -> list[str]:
    """The libraries that a stack may name."""
    return sorted(path.stem for path in libraries_dir().glob("*.yaml"))


def load_library(name: str) -> LibraryFile:
    """How a library is compiled. Raises UserError: no such library, or its file has an unknown or missing key."""
    if name not in library_names():
        raise UserError(f"no library {name!r} in containers/libraries/: {nearest(name, library_names())}")
    path = libraries_dir() / f"{name}.yaml"
    return parse(LibraryFile, read_yaml(path, "the library"), str(path), UserError)
