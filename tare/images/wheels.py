"""Fetches the wheels that a stack locks into the store, and never hands out one whose hash differs.

The installer (pip) finds and downloads; where it looks is its own configuration's business. Builds with a local
version (`+cpu`) are looked for there first, then in the index that the stack names; where neither has them the
variant that stands in for theirs is taken, if the stack has one.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename

from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import cache_dir, write_text
from tare.core.process import Finished, run, scratch_folder
from tare.core.progress import say
from tare.core.remedies import no_index
from tare.model.records.images import Package
from tare.model.studies.stacks import Requirement, Stack, load_stack

DOWNLOAD_TIMEOUT_S = 1800
INDEX_TIMEOUT_S = 15
# PEP 600: a wheel names any glibc that it needs; pip compares names, so that every one up to ours has to be listed.
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)),
    "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64",  # as old wheels name their platforms
)  # fmt: skip
_MISMATCH = re.compile(r"Expected sha256 (?:or )?([0-9a-f]{64})[\s\S]*?Got\s+([0-9a-f]{64})")


class NoLocalBuild(UnavailableError):
    """No index that answers has a build with a local version."""


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel in the cache; `sha256` was checked against the lock when it was downloaded."""

    name: str
    version: str
    sha256: str
    path: Path


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The wheels of a stack; `seconds` are those of the original download."""

    wheels: tuple[Wheel, ...]
    seconds: float


def fetch_wheels(stack: Stack) -> Fetched:
    """Every wheel of the lock, kept (hashed anew if touched) or fetched; UnavailableError, or IntegrityError."""

    def make(folder: Path) -> dict[str, Any]:
        started = time.monotonic()
        _download(stack, folder)
        return {"seconds": round(time.monotonic() - started, 3)}

    what = f"downloading {len(stack.requirements)} wheels of {stack.name} ({stack.variant})"
    kept = store.keep(cache_dir("wheels"), _key(stack), make, what=what)
    found = {parse_wheel_filename(entry["path"])[0]: entry for entry in kept.entries}
    wheels = []
    for requirement in stack.requirements:
        entry = found[canonicalize_name(requirement.name)]
        path = kept.path / entry["path"]
        wheel = Wheel(name=requirement.name, version=requirement.version, sha256=entry["sha256"], path=path)
        wheels.append(wheel)
    return Fetched(wheels=tuple(wheels), seconds=kept.about["seconds"])


def fetch_fitting(stack: Stack) -> tuple[Stack, Fetched]:
    """The wheels of a stack, or of the variant that stands in for its own; and the stack in that variant.

    A variant that was taken once is taken while its wheels are kept and the other's are not: a stack does not
    change because the network does. Raises UnavailableError where no index has either, IntegrityError by hash.
    """
    if stack.otherwise is None:
        return stack, fetch_wheels(stack)
    other = replace(load_stack(stack.name, stack.otherwise), python=stack.python)
    wheels = cache_dir("wheels")
    note = wheels / f"{_key(stack)}.otherwise"  # variants may share a lock, and so an entry of the store
    if note.exists() and store.find(wheels, _key(stack)) is None and store.find(wheels, _key(other)) is not None:
        say(f"{stack.name} in its variant {other.variant}, which stood in for {stack.variant} before")
        return other, fetch_wheels(other)
    try:
        return stack, fetch_wheels(stack)
    except NoLocalBuild as error:
        say(f"{error.reason}: the variant {other.variant} of {stack.name} stands in for {stack.variant}")
        try:
            fetched = fetch_wheels(other)
        except UnavailableError as second:
            raise UnavailableError(
                f"{error.reason}; its variant {other.variant}: {second.reason}", error.remedy
            ) from second
        write_text(note, other.variant)
        return other, fetched


def _key(stack: Stack) -> str:
    return store.key_of(stack.lock_sha256, stack.python)


def packages_of(wheels: Sequence[Wheel]) -> tuple[Package, ...]:
    """What records say of a stack's packages."""
    return tuple(Package(name=wheel.name, version=wheel.version, sha256=wheel.sha256) for wheel in wheels)


def _download(stack: Stack, folder: Path) -> None:
    """Builds with a local version first: where they can't be had nothing else is fetched for nothing."""
    ordinary = [requirement for requirement in stack.requirements if not requirement.is_local]
    local = [requirement for requirement in stack.requirements if requirement.is_local]
    if local:
        try:
            _pip_download(stack, folder, local, [])
        except UnavailableError as error:
            _from_own_index(stack, folder, local, error)
    _pip_download(stack, folder, ordinary, [])


def _from_own_index(stack: Stack, folder: Path, local: Sequence[Requirement], error: UnavailableError) -> None:
    names = ", ".join(f"{requirement.name}=={requirement.version}" for requirement in local)
    remedy = "PIP_FIND_LINKS=FOLDER_WITH_THE_WHEEL make report"
    if stack.index is None:
        raise NoLocalBuild(f"{names} was not found where the installer looks ({error.reason})", remedy) from error
    options = ["--index-url", stack.index, "--timeout", str(INDEX_TIMEOUT_S), "--retries", "1"]
    try:
        _pip_download(stack, folder, local, options)
    except UnavailableError as second:
        raise NoLocalBuild(
            f"{names} was found neither where the installer looks ({error.reason}) nor at {stack.index} "
            f"({second.reason})",
            remedy,
        ) from second


def _pip_download(stack: Stack, folder: Path, requirements: Sequence[Requirement], options: Sequence[str]) -> None:
    with scratch_folder("lock") as scratch:
        lock = scratch / "lock.txt"
        lock.write_text("".join(requirement.line() + "\n" for requirement in requirements), encoding="utf-8")
        variables = {**os.environ, "TMPDIR": str(scratch)}
        finished = run(download_command(stack, lock, folder, options), timeout_s=DOWNLOAD_TIMEOUT_S, env=variables)
    if not finished.ok:
        raise _explain(finished, folder)


def download_command(stack: Stack, lock: Path, folder: Path, options: Sequence[str]) -> list[str]:
    """The installer's argument list: the wheels for the stack's Python on glibc 2.28, whatever runs it; pure."""
    return [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
        "--require-hashes", "--no-deps", "--only-binary", ":all:", "--dest", str(folder),
        "--python-version", stack.python, "--implementation", "cp",
        *(part for abi in (stack.abi, "abi3", "none") for part in ("--abi", abi)),
        *(part for platform in PLATFORMS for part in ("--platform", platform)),
        *options, "--requirement", str(lock),
    ]  # fmt: skip


def _explain(finished: Finished, folder: Path) -> Exception:
    """The installer's failure: hashes that differ, a full disk, which no other index mends, or none that has it."""
    mismatch = _MISMATCH.search(finished.stderr)
    if mismatch:
        line = next(line for line in finished.stderr.splitlines() if mismatch[1] in line or "==" in line)
        what = re.search(r"([\w.-]+==[^\s]+|[\w.+-]+\.whl)", finished.stderr[: mismatch.start()])
        name = what[1] if what else line.strip()
        return IntegrityError(f"{name}: the lock says sha256 {mismatch[1]}, but what was served has {mismatch[2]}")
    if finished.found_full:
        return UserError(f"{folder} or {tempfile.gettempdir()} is full: {finished.explain()}")
    return UnavailableError(no_index(finished.stderr) or finished.explain())
