"""What a stack holds: a folder of containers/stacks/ with one hash lock per variant.

A lock is a requirements file in which each package has one version and the hashes of its files. A stack that is
like another one has what that has but for one library, or is the same release in an image that its authors publish.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from tare.core.errors import IntegrityError, UserError
from tare.core.files import data_root, sha256_text
from tare.model.schema import Record, parse, read_yaml
from tare.model.studies.libraries import libraries_dir, library_names
from tare.model.words import nearest
from tare.worker import frameworks
from tare.worker.frameworks import DEFAULT

# Of a stack, as stack.yaml has it.
AS_IN_FILE = (
    *("python", "or_python", "keep", "imports", "framework", "libraries", "library_packages", "older_names"),
    *("no_executable_stack", "built_for"),
)
BOUND = "bound"  # no folder: what is installed on this machine already (tare.images.installed)
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)(?P<rest>.*)$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)")


class Pruned(Record):
    """Patterns below site-packages that are left out of the tree, and why."""

    why: str
    paths: tuple[str, ...]


class Variant(Record):
    """One lock of a stack. `index`: where builds with a local version are published; `otherwise`: the variant that
    stands in where no index that answers has them.
    """

    lock: str
    index: str | None = None
    otherwise: str | None = None
    prune: tuple[Pruned, ...] = ()
    before_imports: str = ""


class LibraryUse(Record):
    """A library that is compiled here, and that the packages take instead of what they bring."""

    name: str  # of a file of containers/libraries/
    symbol: str  # a function of it that the packages call
    exercise: str  # Python in which they do


class Official(Record):
    """An image in a registry of images, as a framework's authors publish it."""

    # `host`, `repository`, `tag`: where it is; a tag may be moved, so that the digest which it named is recorded
    host: str
    repository: str
    tag: str
    # `sha256:…` of its index or manifest, where it is known: then the tag is for people
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 5.0  # of each connection and each read
    scheme: Literal["https", "http"] = "https"  # `http` for a registry of this machine

    @field_validator("tag")
    @classmethod
    def _names_a_release(cls, tag: str) -> str:
        if tag.partition("-")[0] == "latest":
            raise ValueError(f"{tag!r} names another image tomorrow: name the tag of a release")
        return tag


class AlikeFile(Record):
    """stack.yaml of a stack that is `like` another one, but for a library, or in its authors' own image."""

    name: str
    like: str
    library: LibraryUse | None = None
    official: Official | None = None

    @model_validator(mode="after")
    def _differs_in_one(self) -> AlikeFile:
        if (self.library is None) == (self.official is None):
            raise ValueError("name either library or official, in which it is not like the other one")
        return self


class StackFile(Record):
    """stack.yaml: what the packages are for, and what of them is left out of the tree.

    `or_python`: Pythons that the locks fit as well, taken in this order where `python` is not on the machine;
    `libraries`: sonames that its packages expect of any machine, in addition to those of every C++ program;
    `library_packages`: Debian's packages that bring such a library, one for each release that has it;
    `built_for`: the target of a build that is published in addition to the ordinary one;
    `older_names`: sonames by which they ask for such libraries, and under which the machine has them;
    `no_executable_stack`: files below site-packages that lose the mark by which they ask for one.
    """

    name: str
    python: str
    or_python: tuple[str, ...] = ()
    packages: Mapping[str, str]
    variants: Mapping[str, Variant]
    prune: tuple[Pruned, ...]
    keep: tuple[str, ...]
    imports: tuple[str, ...]
    framework: str = DEFAULT
    libraries: tuple[str, ...] = ()
    library_packages: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    older_names: Mapping[str, str] = Field(default_factory=dict)
    no_executable_stack: tuple[str, ...] = ()
    built_for: str | None = None

    @field_validator("framework")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in frameworks.names():
            raise ValueError(f"no {name!r} in tare/worker/frameworks: {nearest(name, frameworks.names())}")
        return name

    @field_validator("variants")
    @classmethod
    def _stand_in_is_there(cls, variants: Mapping[str, Variant]) -> Mapping[str, Variant]:
        for name, variant in variants.items():
            if variant.otherwise is not None and variant.otherwise not in {*variants} - {name}:
                others = sorted({*variants} - {name})
                raise ValueError(
                    f"{name}: otherwise: no {variant.otherwise!r}: {nearest(variant.otherwise, others)}"
                )
        return variants


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One locked package: its version, and the SHA-256 of each of its files on the package index."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        """A build with a local version such as 2.13.0+cpu, which package indexes do not carry."""
        return "+" in self.version

    def line(self) -> str:
        """The requirement as the installer reads it."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.hashes)])


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack in one variant, read from its folder."""

    name: str  # of the stack, `torch-2.13`
    variant: str  # `cpu` or `cuda`, or the one that stands in for it
    python: str  # version of CPython, major and minor
    or_python: tuple[str, ...]  # other versions that the lock fits, in the order in which they stand in for it
    requirements: tuple[Requirement, ...]  # what the lock holds, in its order
    lock_sha256: str  # of what the lock says (comments do not count)
    index: str | None  # where builds with a local version are published, in addition to the installer's own indexes
    otherwise: str | None  # the variant that stands in where no index that answers has builds with a local version
    prune: tuple[str, ...]  # patterns below site-packages that are left out
    keep: tuple[str, ...]  # patterns that stay although `prune` names them
    imports: tuple[str, ...]  # modules that the finished tree must import
    before_imports: str  # Python to run before that, may be empty
    framework: str  # what launches train with, a module of tare/worker/frameworks/
    libraries: tuple[str, ...]  # sonames that the tree takes from this machine for its packages
    library_packages: Mapping[str, tuple[str, ...]]  # the Debian packages, by soname, of which one brings it
    older_names: Mapping[str, str]  # other sonames by which its packages ask for them
    # files below site-packages that need no executable stack, although they ask for one
    no_executable_stack: tuple[str, ...]
    # that is compiled here and taken instead of what the packages bring; None where there is none
    library: LibraryUse | None = None
    # the image that holds interpreter and packages; the lock is then that of the stack that it is like
    official: Official | None = None
    built_for: str | None = None  # the target of a build that is published in addition to the ordinary one

    @property
    def image_kind(self) -> str:
        """Where interpreter and packages come from: an official image, pip, or a build for the target."""
        if self.official is not None:
            return f"official image ({self.official.repository}:{self.official.tag})"
        if self.library is not None:
            return f"built for the target: {self.library.name} compiled here, the rest by pip"
        return f"built for the target: {self.built_for}, by pip" if self.built_for else "pip"

    @property
    def abi(self) -> str:
        """Tag of wheels with extension modules for this CPython; until 3.7 it says that pymalloc is in use."""
        major, minor = self.python.split(".")
        return f"cp{major}{minor}" + ("m" if int(minor) <= 7 else "")

    @property
    def inside(self) -> Path:
        """Where the tree is in the image."""
        return Path("/opt/tare") / self.name

    def is_pruned(self, path: str) -> bool:
        """Whether a path below site-packages is left out of the tree."""
        if any(fnmatchcase(path, pattern) for pattern in self.keep):
            return False
        return any(fnmatchcase(path, pattern) for pattern in self.prune)


def stack_names() -> list[str]:
    """The stacks of containers/stacks/."""
    return sorted(path.parent.name for path in stacks_dir().glob("*/stack.yaml"))


def known_stacks() -> list[str]:
    """Every stack that a study may name."""
    return [*stack_names(), BOUND]


def framework_of(name: str | None) -> str:
    """What launches of a stack train with; what is installed here already is taken for PyTorch."""
    folder = stacks_dir() / (name or BOUND)
    return _read(folder).content.framework if (folder / "stack.yaml").exists() else DEFAULT


def variants_of(name: str) -> tuple[str, ...]:
    """What a stack is locked for: `cpu` and `cuda`, and what stands in for one of them."""
    return tuple(_read(stacks_dir() / name).content.variants)


def image_kind(name: str) -> str:
    """Where interpreter and packages of a stack come from, in words."""
    if name == BOUND:
        return "installed here already"
    return load_stack(name, variants_of(name)[0]).image_kind


def is_official(name: str | None) -> bool:
    """Whether a stack is an image that its authors publish, which containers alone can have."""
    return _official_like(stacks_dir() / (name or BOUND)) is not None


def on_the_host(name: str) -> str:
    """What the host runs where containers run a stack: that stack, or the one that an official image is like."""
    return _official_like(stacks_dir() / name) or name


@cache
def _official_like(folder: Path) -> str | None:
    found = _read(folder) if (folder / "stack.yaml").exists() else None
    return found.content.name if found is not None and found.official is not None else None


def with_setting(level: str) -> tuple[str, str | None]:
    """Name of a stack and the setting of its launches: of `tensorflow-2.1` or `tensorflow-2.1+xla`."""
    name, _, setting = level.partition("+")
    return name, setting or None


def stack_inputs(name: str) -> list[Path]:
    """Files that a stack is made from, other than its own stack.yaml; paths relative to the checkout.

    Its locks, which variants may share; of one that is like another, that one's stack.yaml and locks, and how its
    library is compiled. Of an official image what that holds is not made here.
    """
    found = _read(stacks_dir() / name)
    paths = {found.folder / variant.lock for variant in found.content.variants.values()}
    if found.official is not None:
        paths = {found.folder / "stack.yaml"}
    if found.library is not None:
        paths |= {found.folder / "stack.yaml", libraries_dir() / f"{found.library.name}.yaml"}
    return sorted(path.relative_to(data_root()) for path in paths)


def stacks_dir() -> Path:
    """The folder in which each stack has its own."""
    return data_root() / "containers" / "stacks"


def load_stack(name: str, variant: str = "cpu", folder: Path | None = None) -> Stack:
    """Read a stack.

    `name`: of the stack. `variant`: which of its locks, `cpu`, `cuda` or what stands in for one. `folder`: holds
    stack.yaml and the locks; None takes containers/stacks/<name>. Raises UserError: no such stack or variant, or
    stack.yaml has an unknown or missing key. IntegrityError: the lock has an entry without a version or a hash.
    """
    if folder is None:
        if name not in stack_names():
            raise UserError(f"no stack {name!r} in containers/stacks/: {nearest(name, stack_names())}")
        folder = stacks_dir() / name
    found = _read(folder)
    content = found.content
    if variant not in content.variants:
        raise UserError(f"stack {name!r} has no variant {variant!r}: {nearest(variant, content.variants)}")
    own = content.variants[variant]
    requirements = read_lock(found.folder / own.lock)
    return Stack(
        **{name: getattr(content, name) for name in AS_IN_FILE},
        name=found.name,
        variant=variant,
        requirements=requirements,
        lock_sha256=sha256_text("\n".join(requirement.line() for requirement in requirements)),
        index=own.index,
        otherwise=own.otherwise,
        prune=tuple(pattern for group in (*content.prune, *own.prune) for pattern in group.paths),
        before_imports=own.before_imports,
        library=found.library,
        official=found.official,
    )


@dataclass(frozen=True, kw_only=True)
class _Described:
    """A stack as its files have it: `folder` holds the locks of `content`, another stack's where it is like one."""

    name: str
    content: StackFile
    folder: Path
    library: LibraryUse | None = None
    official: Official | None = None


def _read(folder: Path) -> _Described:
    path = folder / "stack.yaml"
    value = read_yaml(path, "the stack")
    if not _is_alike(value):
        content = parse(StackFile, value, str(path), UserError)
        return _Described(name=content.name, content=content, folder=folder)
    alike = parse(AlikeFile, value, str(path), UserError)
    if alike.like not in stack_names():
        raise UserError(f"{path}: like: no stack {alike.like!r}: {nearest(alike.like, stack_names())}")
    base = stacks_dir() / alike.like
    if _is_alike(read_yaml(base / "stack.yaml", "the stack")):
        raise UserError(f"{path}: like: {alike.like} has no packages itself: name the stack that it is like")
    if alike.library is not None and alike.library.name not in library_names():
        raise UserError(
            f"{path}: library: no {alike.library.name!r} in containers/libraries/: "
            f"{nearest(alike.library.name, library_names())}"
        )
    found = _read(base)
    own = found.content.variants["cpu"].replace(otherwise=None)  # it computes on a CPU, in that build
    content = found.content.replace(variants={"cpu": own})
    return replace(found, name=alike.name, content=content, library=alike.library, official=alike.official)


def _is_alike(value: Any) -> bool:
    return isinstance(value, dict) and "like" in value


def read_lock(path: Path) -> tuple[Requirement, ...]:
    """The packages of a hash lock. Raises UserError: the file can't be read. IntegrityError: an entry has no exact
    version or no hash.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    lines = [
        line
        for line in text.replace("\\\n", " ").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    found = []
    for line in lines:
        match = _REQUIREMENT.match(line.strip())
        hashes = tuple(_HASH.findall(line))
        if match is None or not hashes:
            raise IntegrityError(f"{path}: {line.split()[0]!r} needs an exact version and a sha256; lock it again")
        found.append(Requirement(name=match["name"].lower(), version=match["version"], hashes=hashes))
    if not found:
        raise IntegrityError(f"{path} locks no package")
    return tuple(found)
