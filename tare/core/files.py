"""Files that are written whole or not at all, hashes, locks, journals, and where the cache lies."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, UserError

CHUNK_BYTES = 1 << 20


def project_root() -> Path:
    """The checkout that holds config/, envs/ and workloads/."""
    return Path(__file__).resolve().parents[2]


def cache_dir(*parts: str) -> Path:
    """A folder of the user's cache, made if missing: in $TARE_CACHE, $XDG_CACHE_HOME/tare or ~/.cache/tare."""
    if chosen := os.environ.get("TARE_CACHE"):
        root = Path(chosen)
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tare"
    folder = root.joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot use {folder} as the cache: {error.strerror}; point TARE_CACHE at a folder that may be written"
        ) from error
    return folder.resolve()


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """Hexadecimal SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """One spelling for equal values, so that equal values hash alike."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; on success it is flushed to disk and renamed, on failure removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_directory(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all; refuses NaN, which JSON has no word for."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def is_gzip(path: Path) -> bool:
    """Whether a file is packed with gzip, by its content."""
    with path.open("rb") as handle:
        return handle.read(2) == b"\x1f\x8b"


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        UserError: the file is missing or unreadable.
        IntegrityError: the file is cut short or not JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise IntegrityError(
            f"{path} is cut short or not JSON (line {error.lineno}: {error.msg}); delete it and run again"
        ) from error


@contextlib.contextmanager
def locked(path: Path, *, waiting_for: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; says on standard error what it waits for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process: {waiting_for}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Journal:
    """An append-only file of JSON lines; each line is on disk before `append` returns.

    A last line cut short by a crash is dropped when the journal is next read; a broken line elsewhere
    means that something else wrote into the file, and is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        """Add one record, whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._drop_torn_tail()
        line = canonical_json(record) + "\n"
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(line)
            handle.flush()
            os.fsync(handle.fileno())

    def read(self) -> list[dict[str, Any]]:
        """All whole records, oldest first; an absent journal is empty."""
        if not self.path.exists():
            return []
        records = []
        lines = self.path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines[:-1], start=1):
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise IntegrityError(
                    f"{self.path} line {number} is not a record ({error.msg}); "
                    "move the file away to start this campaign again"
                ) from error
        return records

    def _drop_torn_tail(self) -> None:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        if data and not data.endswith(b"\n"):
            whole = data[: data.rfind(b"\n") + 1]
            with atomic_path(self.path) as temporary:
                temporary.write_bytes(whole)
