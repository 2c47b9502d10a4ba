"""Files that are written whole or not at all, hashes, locks, journals, and the folder of the cache."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, UserError, advising
from tare.core.places import cache_root
from tare.core.places import data_root as data_root
from tare.core.places import project_root as project_root

SEPARATORS = frozenset(':,\\"\t\n')  # of mounts, in options of runtimes and of file systems
# What unpacks to more than so many times its size, and to more than a small file, was made to fill a disk.
MOST_TIMES, SMALL_BYTES, CHUNK_BYTES = 200, 64 << 20, 1 << 20
MOST_JSON_BYTES = 64 << 20  # of a file that is read as one value, which needs many times its size
MOVE_AWAY = "move the folder away to start this campaign again"


def home_dir() -> Path:
    """The user's home. Raises UserError where nobody says where it is."""
    try:
        return Path.home()
    except RuntimeError:
        raise UserError(f"user {os.getuid()} has no home: set HOME to a folder that may be written") from None


def cache_path(*parts: str) -> Path:
    """A place in the user's cache, whether anything is there or not."""
    try:
        root = cache_root()
    except RuntimeError:
        raise UserError(
            f"user {os.getuid()} has no home: point TARE_CACHE at a folder that may be written"
        ) from None
    try:
        return root.joinpath(*parts).resolve()
    except (OSError, RuntimeError):  # which of the two hangs on the version of Python
        raise UserError(
            f"cannot use {root} as the cache: it leads nowhere; point TARE_CACHE at a folder that may be written"
        ) from None


def cache_dir(*parts: str) -> Path:
    """A folder of the user's cache, made if missing: in $TARE_CACHE, $XDG_CACHE_HOME/tare or ~/.cache/tare."""
    folder = cache_path(*parts)
    if wrong := sorted(SEPARATORS & set(str(folder))):
        raise UserError(
            f"cannot use {folder} as the cache: container runtimes take {wrong[0]!r} for more than a character of "
            "a path; point TARE_CACHE at a folder whose path has none"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot use {folder} as the cache: {error.strerror}; point TARE_CACHE at a folder that may be written"
        ) from error
    return folder


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """Hexadecimal SHA-256 of a text in UTF-8; bytes of a path that are none count as they are."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def canonical_json(value: Any) -> str:
    """One spelling for equal values, so that equal values hash alike."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`; on success it is flushed to disk and renamed, on failure removed."""
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
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise_of(path, error)
        raise


def raise_of(path: Path, error: OSError) -> None:
    """Where a failed write names no file, or first the one that was copied, raise it again with the one written."""
    if (error.filename is None or error.filename2 is not None) and error.errno is not None:
        raise OSError(error.errno, error.strerror, str(path)) from error


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


def most_unpacked(size: int) -> int:
    """Bytes to which so many may unpack."""
    return max(MOST_TIMES * size, SMALL_BYTES)


def unpacked(path: Path) -> Iterator[bytes]:
    """What a gzip file holds, in pieces. Raises IntegrityError: cut short, damaged, or out of all proportion."""
    most, done = most_unpacked(path.stat().st_size), 0
    try:
        with gzip.open(path) as packed:
            while piece := packed.read(CHUNK_BYTES):
                done += len(piece)
                if done > most:
                    raise IntegrityError(
                        f"{path} unpacks to more than {MOST_TIMES} times its size: it was made to fill a disk"
                    )
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise IntegrityError(f"{path} is cut short or damaged: {error}") from error


def refuse_odd(path: Path) -> None:
    """Raise UserError for what is neither file nor folder: to read a pipe or a device may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is no plain file: save it to one first")


def text_of(path: Path) -> str | None:
    """A small file's text, such as the kernel's; None where it can't be read."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()
    return None


def read_json(path: Path) -> Any:
    """Read JSON; raises UserError for a file that is missing or unreadable, IntegrityError for what is no JSON."""
    refuse_odd(path)
    try:
        if (size := path.stat().st_size) > MOST_JSON_BYTES:
            raise IntegrityError(f"{path} has {size >> 20} MiB, which is more than a record can have")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise IntegrityError(f"{path} is no text in UTF-8; delete it and run again") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise IntegrityError(
            f"{path} is cut short or not JSON (line {error.lineno}: {error.msg}); delete it and run again"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or lists in lists
        raise IntegrityError(f"{path} is no record ({error}); delete it and run again") from error


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def locked(
    path: Path,
    *,
    waiting_for: str,
    notify: Callable[[str], None] = _to_stderr,
    doing: str | None = None,
    busy: Callable[[str], None] | None = None,
) -> Iterator[bool]:
    """Hold an exclusive lock on `path`, which ends with this process, however that ends.

    The file says who holds it: one that waits names the holder's process and since when it holds it.
    `waiting_for`: what its holders do, for whoever waits. `notify`: called with a line that names the holder, where
    one is waited for. `doing`: what this holder does, where that is something else. `busy`: called first in that
    case, with the holder; it raises where nobody is to wait. Yields whether another process had to be waited for.
    Raises RuntimeError where this thread holds the lock already: it would wait for itself for ever. UserError where
    the file system keeps no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    held = (threading.get_ident(), str(path.absolute()))
    descriptor = _open_lock(path)
    try:
        waited = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            holder, _, other = os.pread(descriptor, 400, 0).decode(errors="replace").strip().partition("\n")
            said = f"{other or waiting_for} ({holder or 'it has just begun'})"
            if busy is not None:
                busy(said)
            notify(f"waiting for another process: {said}")
            if held in _held:
                raise RuntimeError(f"{path} is locked by this thread already") from None
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            raise UserError(
                f"{path}: its file system keeps no locks ({error.strerror}): put it on one that does"
            ) from error
        with contextlib.suppress(OSError):  # another user's file may be locked, though not written
            os.ftruncate(descriptor, 0)
            said = f"process {os.getpid()}, since {time.strftime('%H:%M:%S')}\n"
            said += f"{doing}\n" if doing not in (None, waiting_for) else ""
            os.pwrite(descriptor, said.encode(), 0)
        _held.add(held)
        yield waited
    finally:
        _held.discard(held)
        os.close(descriptor)


# Of flock(2), where a file system has no locks or its server keeps none.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_held: set[tuple[int, str]] = set()  # a thread and the lock's file


@contextlib.contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock of `locked` where there is such a file and nobody holds it; yields whether it is held."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """A descriptor that programs started here do not inherit; a lock file of another user is opened for reading."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


class Journal:
    """An append-only file of JSON lines; each line is on disk before `append` returns.

    A last line cut short by a crash is dropped when the journal is next written; a broken line elsewhere
    means that something else wrote into the file, and is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes: int | None = None  # after our own last row: what follows is another writer's

    def append(self, record: dict[str, Any]) -> None:
        """Add one record, whole; raises IntegrityError where another process wrote since our last row."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = (canonical_json(record) + "\n").encode()
        fresh = not self.path.exists()
        try:
            with self.path.open("ab") as handle:
                size = handle.seek(0, os.SEEK_END)
                if self._bytes is not None and size != self._bytes:
                    raise IntegrityError(
                        f"{self.path} was written by another process meanwhile; end it, and {MOVE_AWAY}"
                    )
                whole = self.path.read_bytes().rfind(b"\n") + 1  # behind it is a row that a crash cut short
                if whole != size:
                    handle.truncate(whole)
                handle.write(line)
                handle.flush()
                os.fsync(handle.fileno())
        except OSError as error:
            raise_of(self.path, error)
            raise
        if fresh:
            sync_directory(self.path.parent)
        self._bytes = whole + len(line)

    def read(self) -> list[dict[str, Any]]:
        """All whole records, oldest first; an absent journal is empty. Raises IntegrityError for any other line."""
        with advising(MOVE_AWAY):
            return [row for *_, row in json_rows(self.path.read_bytes(), self.path)] if self.path.exists() else []


def json_rows(data: bytes, path: Path) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Whole rows of a journal: the place of each, its line, what it holds. IntegrityError for any other line."""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        where = f"{path} line {number}"
        try:
            row = json.loads(line)
        except UnicodeDecodeError as error:
            raise IntegrityError(f"{where} is not a record (not UTF-8)") from error
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise IntegrityError(f"{where} is not a record ({reason})") from error
        if not isinstance(row, dict):
            raise IntegrityError(f"{where} is not a record (no object)")
        yield where, line, row
