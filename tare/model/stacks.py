"""What a stack holds: a folder of containers/stacks/ with one hash lock per variant.

A lock is a requirements file in which each package has one version and the hashes of its files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tare.core.errors import IntegrityError, UserError
from tare.core.files import project_root, sha256_text
from tare.model.words import nearest

STACK_KEYS = {"name", "python", "packages", "variants", "prune", "keep", "imports"}
VARIANT_KEYS = {"lock", "index", "prune", "before_imports"}
BOUND = "bound"  # no folder: what is installed on this machine already (tare.images.installed)
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)(?P<rest>.*)$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)")


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
    """A stack in one variant, read from its folder.

    Attributes:
        name: of the stack, `torch-2.13`.
        variant: `cpu` or `cuda`.
        python: version of CPython, major and minor.
        requirements: what the lock holds, in its order.
        lock_sha256: of what the lock says (comments do not count).
        index: where builds with a local version are published, beside the installer's own indexes.
        prune: patterns below site-packages that are left out.
        keep: patterns that stay although `prune` names them.
        imports: modules that the finished tree must import.
        before_imports: Python to run before that, may be empty.
    """

    name: str
    variant: str
    python: str
    requirements: tuple[Requirement, ...]
    lock_sha256: str
    index: str | None
    prune: tuple[str, ...]
    keep: tuple[str, ...]
    imports: tuple[str, ...]
    before_imports: str

    @property
    def abi(self) -> str:
        """Tag of wheels with extension modules for this CPython; until 3.7 it says that pymalloc is in use."""
        major, minor = self.python.split(".")
        return f"cp{major}{minor}" + ("m" if int(minor) <= 7 else "")

    @property
    def inside(self) -> Path:
        """Where the tree lies in the image."""
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


def lock_files(name: str) -> list[Path]:
    """Paths of a stack's locks, relative to the checkout; variants may share one."""
    folder = stacks_dir() / name
    variants = yaml.safe_load((folder / "stack.yaml").read_text(encoding="utf-8"))["variants"]
    return sorted({(folder / variant["lock"]).relative_to(project_root()) for variant in variants.values()})


def stacks_dir() -> Path:
    """The folder in which each stack has its own."""
    return project_root() / "containers" / "stacks"


def fitting_variant() -> str:
    """The variant for this machine: `cuda` where the NVIDIA driver is loaded, else `cpu`."""
    return "cuda" if Path("/proc/driver/nvidia/version").exists() else "cpu"


def load_stack(name: str, variant: str = "auto", folder: Path | None = None) -> Stack:
    """Read a stack.

    Args:
        name: of the stack.
        variant: `cpu`, `cuda`, or `auto` for the one that fits this machine.
        folder: holds stack.yaml and the locks; None takes containers/stacks/<name>.

    Raises:
        UserError: no such stack or variant, or stack.yaml has an unknown or missing key.
        IntegrityError: the lock has an entry without a version or a hash.
    """
    if folder is None:
        if name not in stack_names():
            raise UserError(f"no stack {name!r} in containers/stacks/: {nearest(name, stack_names())}")
        folder = stacks_dir() / name
    path = folder / "stack.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    _check_keys(content, STACK_KEYS, STACK_KEYS, path)
    chosen = fitting_variant() if variant == "auto" else variant
    variants = content["variants"]
    if chosen not in variants:
        raise UserError(f"stack {name!r} has no variant {chosen!r}: {nearest(chosen, variants)}")
    _check_keys(variants[chosen], VARIANT_KEYS, {"lock"}, path)
    requirements = read_lock(folder / variants[chosen]["lock"])
    prunes = [*content["prune"], *(variants[chosen].get("prune") or [])]
    return Stack(
        name=content["name"],
        variant=chosen,
        python=str(content["python"]),
        requirements=requirements,
        lock_sha256=sha256_text("\n".join(requirement.line() for requirement in requirements)),
        index=variants[chosen].get("index"),
        prune=tuple(pattern for group in prunes for pattern in group["paths"]),
        keep=tuple(content["keep"]),
        imports=tuple(content["imports"]),
        before_imports=variants[chosen].get("before_imports") or "",
    )


def read_lock(path: Path) -> tuple[Requirement, ...]:
    """The packages of a hash lock.

    Raises:
        UserError: the file can't be read.
        IntegrityError: an entry has no exact version or no hash.
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


def _check_keys(content: Any, known: set[str], needed: set[str], path: Path) -> None:
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected keys {', '.join(sorted(needed))}")
    for key in content:
        if key not in known:
            raise UserError(f"{path}: unknown key {key!r}: {nearest(str(key), known)}")
    for key in sorted(needed - set(content)):
        raise UserError(f"{path}: key {key!r} is missing")
