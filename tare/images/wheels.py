"""Fetches the wheels that a stack locks into the user's cache, and never hands out one whose hash differs.

The installer (pip) finds and downloads; where it looks is its own configuration's business. Builds with a local
version (`+cpu`) are looked for there first, then in the index that the stack names.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import cache_dir, locked, read_json, sha256_file, write_json
from tare.core.process import Finished, run
from tare.core.progress import step
from tare.model.images import Package
from tare.model.stacks import Requirement, Stack

DOWNLOAD_TIMEOUT_S = 1800
INDEX_TIMEOUT_S = 15
# PEP 600: a wheel names any glibc that it needs; pip compares names, so that every one up to ours has to be listed.
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)),
    "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64",  # as old wheels name their platforms
)  # fmt: skip
_MISMATCH = re.compile(r"Expected sha256 (?:or )?([0-9a-f]{64})[\s\S]*?Got\s+([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel in the cache; `sha256` was checked against the lock when this was made."""

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
    """Every wheel of the lock, from the cache or downloaded, each verified now.

    Raises:
        IntegrityError: a file, cached or served, is not the one that the lock names.
        UnavailableError: no index that answers has it.
    """
    store = cache_dir("wheels")
    record = store / f"lock-{stack.lock_sha256[:32]}.json"
    with locked(store / ".lock", waiting_for="the wheels' download"):
        if not _complete(record, store):
            started = time.monotonic()
            with step(f"downloading {len(stack.requirements)} wheels of {stack.name} ({stack.variant})"):
                _download(stack, store)
            entries = [asdict(wheel) | {"path": _inside(wheel, store)} for wheel in _match(stack, store)]
            write_json(record, {"seconds": round(time.monotonic() - started, 3), "wheels": entries})
        content = read_json(record)
    wheels = tuple(Wheel(**{**entry, "path": store / entry["path"]}) for entry in content["wheels"])
    verify_wheels(wheels)
    return Fetched(wheels=wheels, seconds=content["seconds"])


def verify_wheels(wheels: Sequence[Wheel]) -> None:
    """Hash each wheel.

    Raises:
        IntegrityError: one differs; both hashes and the file are named.
    """
    with ThreadPoolExecutor(2) as pool:  # hashing releases the interpreter's lock
        for wheel, digest in zip(wheels, pool.map(sha256_file, [wheel.path for wheel in wheels]), strict=True):
            if digest != wheel.sha256:
                raise IntegrityError(
                    f"{wheel.path} has sha256 {digest}, but the lock says {wheel.sha256}; delete it and run again"
                )


def packages_of(wheels: Sequence[Wheel]) -> tuple[Package, ...]:
    """What records say of a stack's packages."""
    return tuple(Package(name=wheel.name, version=wheel.version, sha256=wheel.sha256) for wheel in wheels)


def _complete(record: Path, store: Path) -> bool:
    return record.exists() and all((store / entry["path"]).exists() for entry in read_json(record)["wheels"])


def _inside(wheel: Wheel, store: Path) -> str:
    return str(wheel.path.relative_to(store))


def _download(stack: Stack, store: Path) -> None:
    ordinary = [requirement for requirement in stack.requirements if not requirement.is_local]
    local = [requirement for requirement in stack.requirements if requirement.is_local]
    _pip_download(stack, store, ordinary, [])
    if local:
        try:
            _pip_download(stack, store, local, [])
        except UnavailableError as error:
            if stack.index is None:
                raise
            options = ["--index-url", stack.index, "--timeout", str(INDEX_TIMEOUT_S), "--retries", "1"]
            try:
                _pip_download(stack, store, local, options)
            except UnavailableError as second:
                raise UnavailableError(
                    f"{', '.join(f'{r.name}=={r.version}' for r in local)} was found neither where the installer "
                    f"looks ({error.reason}) nor at {stack.index} ({second.reason})",
                    "PIP_FIND_LINKS=FOLDER_WITH_THE_WHEEL make report",
                ) from second


def _pip_download(stack: Stack, store: Path, requirements: Sequence[Requirement], options: Sequence[str]) -> None:
    """Download into a folder of its own, then file each wheel under its hash."""
    with tempfile.TemporaryDirectory(prefix=".download-", dir=store) as name:
        folder = Path(name)
        lock = folder / "lock.txt"
        lock.write_text("".join(requirement.line() + "\n" for requirement in requirements), encoding="utf-8")
        finished = run(download_command(stack, lock, folder, options), timeout_s=DOWNLOAD_TIMEOUT_S)
        if not finished.ok:
            raise _explain(finished)
        for path in sorted(folder.glob("*.whl")):
            target = store / sha256_file(path) / path.name
            target.parent.mkdir(exist_ok=True)
            path.replace(target)


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


def _explain(finished: Finished) -> Exception:
    """The installer's failure: two hashes that differ are a matter of integrity, all else of availability."""
    mismatch = _MISMATCH.search(finished.stderr)
    if mismatch:
        line = next(line for line in finished.stderr.splitlines() if mismatch[1] in line or "==" in line)
        what = re.search(r"([\w.-]+==[^\s]+|[\w.+-]+\.whl)", finished.stderr[: mismatch.start()])
        name = what[1] if what else line.strip()
        return IntegrityError(f"{name}: the lock says sha256 {mismatch[1]}, but what was served has {mismatch[2]}")
    return UnavailableError(finished.explain())


def _match(stack: Stack, store: Path) -> list[Wheel]:
    """The wheel of each requirement among the cached files that carry one of its hashes."""
    found = []
    for requirement in stack.requirements:
        paths = [path for digest in requirement.hashes for path in (store / digest).glob("*.whl")]
        fitting = [path for path in paths if _fits(path, stack, requirement)]
        if not fitting:
            raise UnavailableError(
                f"no wheel of {requirement.name}=={requirement.version} fits Python {stack.python}"
            )
        digest = fitting[0].parent.name
        found.append(Wheel(name=requirement.name, version=requirement.version, sha256=digest, path=fitting[0]))
    return found


def _fits(path: Path, stack: Stack, requirement: Requirement) -> bool:
    """Whether a cached wheel is this package for the stack's Python (another stack may have left others)."""
    name, _, _, tags = parse_wheel_filename(path.name)
    fits = any(tag.abi in (stack.abi, "abi3", "none") and tag.interpreter.startswith(("py3", "cp")) for tag in tags)
    return fits and name == canonicalize_name(requirement.name)
