"""The one store: what is made from known inputs is kept under a key of them, whole, never used without its hash.

    <parent>/<key>/        what was made
    <parent>/<key>.json    what its maker said of it, every file's path, mode, size and hash, one digest for all
    <parent>/<key>.stamp   what the file system said of the files when they were last hashed
    <parent>/.<key>.making.*  a folder of its maker's, who holds <parent>/.<key>.lock

Contents are hashed again only if a file's size, times, mode or inode has changed since. A record is written last,
so that what was cut short is not there. The lock of an entry ends with its holder: what is unfinished while
nobody holds the lock is removed when something is next made in the same folder.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, UnavailableError, is_full
from tare.core.files import (
    canonical_json,
    locked,
    locked_if_free,
    raise_of,
    read_json,
    sha256_text,
    sync_directory,
    write_json,
    write_text,
)
from tare.core.manifest import first_difference, manifest_digest, read_manifest, stat_digest
from tare.core.process import run
from tare.core.progress import say, step

COPY_S = 1800.0
LOCK = ".lock"
SPARE_BYTES = 256 << 20  # that a copy leaves free

Make = Callable[[Path], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One entry of the store."""

    path: Path  # the folder
    about: Mapping[str, Any]  # what its maker said of it
    # The manifest, sorted by path: files have mode, size and sha256, links have link.
    entries: tuple[dict[str, Any], ...]
    digest: str  # `sha256:…` of the manifest
    cached: bool  # it was made earlier

    @property
    def key(self) -> str:
        """Of its inputs."""
        return self.path.name

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(entry.get("size", 0) for entry in self.entries)


def key_of(*inputs: Any) -> str:
    """The key of what is made from values of JSON."""
    return sha256_text(canonical_json(inputs))[:32]


def keep(
    parent: Path,
    key: str,
    make: Make,
    *,
    what: str,
    in_place: bool = False,
    announced: bool = True,
    fits: Callable[[Kept], bool] = lambda kept: True,
) -> Kept:
    """What `key` names, from the store while it is whole, else made.

    `parent`: folder of all entries of a kind. `make`: fills an empty folder, and returns what is worth knowing of
    it, as JSON holds it. `what`: is made, for the person who waits: `making the base`. `in_place`: it can't be
    moved when it is finished, as a virtual environment. `announced`: whether a line is printed when it begins;
    else only if it lasts. `fits`: whether one that is whole will do; else it is made again.
    """
    path = parent / key
    with locked(parent / f".{key}{LOCK}", waiting_for=what, notify=say):
        found, problem = _look(path)
        if found is not None and fits(found):
            return found
        if problem is not None:
            say(f"{path} is damaged ({problem}): made again")
        forget(parent, key)
        clear_unfinished(parent)
        if path.exists():
            raise UnavailableError(f"{path} is in the way of {what}, and can't be removed")
        with step(what, announced), tempfile.TemporaryDirectory(prefix=making(key), dir=parent) as temporary:
            folder = path if in_place else Path(temporary) / key
            folder.mkdir()
            try:
                about = dict(make(folder))
                folder.chmod(0o755)
                entries = read_manifest(folder)
            except BaseException as error:
                shutil.rmtree(folder, ignore_errors=True)
                if is_full(error):
                    raise_of(path, error)
                raise
            if not in_place:
                folder.rename(path)
        sync_directory(parent)
        record = {**about, "digest": manifest_digest(entries), "entries": entries}
        write_json(_sibling(path, "json"), record)
        _stamp(path, record["digest"])
        return _kept(path, record, cached=False)


def making(key: str) -> str:
    """How names of folders begin in which the holder of an entry's lock makes it."""
    return f".{key}.making."


def clear_unfinished(*parents: Path) -> None:
    """Remove what killed makers left: their folders, or those without a record, whose lock nobody holds."""
    for parent in parents:
        names = _names(parent) if parent.is_dir() else frozenset()
        for key in (name[1 : -len(LOCK)] for name in names if name.startswith(".") and name.endswith(LOCK)):
            if not _unfinished(names, key):
                continue
            with locked_if_free(parent / f".{key}{LOCK}") as free:
                for name in _unfinished(_names(parent), key) if free else ():
                    if (folder := parent / name).is_dir() and not folder.is_symlink():
                        say(f"{folder}: who made it was killed; it goes")
                        _remove_folder(folder)


def _names(parent: Path) -> frozenset[str]:
    return frozenset(path.name for path in parent.iterdir())


def _unfinished(names: frozenset[str], key: str) -> list[str]:
    """What of an entry is not finished, among the names of a folder; pure."""
    halves = [name for name in names if name.startswith(making(key))]
    return [*halves, key] if key in names and f"{key}.json" not in names else halves


def find(parent: Path, key: str) -> Kept | None:
    """An entry that is there and whole, else None."""
    return _look(parent / key)[0]


def second_copy(kept: Kept, what: str) -> Kept:
    """Another copy of an entry next to it: equal content, its own inodes and blocks, a path of equal length.

    It is an entry like any other, and goes when the first one goes. Where files hold the entry's own path (bytecode
    and programs of a virtual environment), the copy's hold the copy's.
    `what`: is copied, for the person who waits. Raises UnavailableError where it can't be made here: no room, or
    nothing can be written. Raises IntegrityError where what was written is not what was read.
    """
    parent, key = kept.path.parent, copy_key(kept.key)

    def make(folder: Path) -> dict[str, Any]:
        if shutil.disk_usage(parent).free < kept.size_bytes + SPARE_BYTES:
            raise UnavailableError(f"there is no room for its {kept.size_bytes / 1e9:.1f} GB in {parent}")
        command = ["cp", "--archive", "--reflink=never", f"{kept.path}/.", str(folder)]
        run(command, timeout_s=COPY_S, check=True)
        plain = [entry["path"] for entry in kept.entries if entry.get("size")]
        moved = {path for path in plain if _rename(folder / path, kept.key, key)}
        entries = read_manifest(folder)
        for entry in entries:
            if entry["path"] in moved:
                content = (folder / entry["path"]).read_bytes().replace(key.encode(), kept.key.encode())
                entry["sha256"] = hashlib.sha256(content).hexdigest()  # as if it had not been renamed
        if manifest_digest(entries) != kept.digest:
            raise IntegrityError(f"the second copy of {kept.path} is not what was read; the disk may be failing")
        os.sync()  # pages that are not on the disk yet can't be dropped
        return {"copy_of": kept.digest, "holds_own_path": len(moved)}

    try:
        return keep(
            parent,
            key,
            make,
            what=f"making a second copy of {what}",
            fits=lambda copy: copy.about.get("copy_of") == kept.digest,
        )
    except OSError as error:
        raise UnavailableError(f"{error.filename or parent} can't be written: {error.strerror}") from error


def copy_key(key: str) -> str:
    """The key of an entry's second copy, as long as its own."""
    return sha256_text(f"second copy of {key}")[: len(key)]


def _rename(path: Path, old: str, new: str) -> bool:
    """Put `new` wherever a file holds `old`, which is as long; its times stay. Whether it held it."""
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as view:
        if view.find(old.encode()) < 0:
            return False
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return True


def forget(parent: Path, key: str) -> None:
    """Remove an entry and its copy, records first, and what a maker that was killed left; what can't be is said."""
    for name in (copy_key(key), key):
        path = parent / name
        for kind in ("json", "stamp"):
            _sibling(path, kind).unlink(missing_ok=True)
        for folder in (path, *parent.glob(f"{making(name)}*")):
            _remove_folder(folder)


def _remove_folder(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)  # as much of it as can be
        say(f"{folder} can't be removed ({error}); remove it by hand")


def _look(path: Path) -> tuple[Kept | None, str | None]:
    """The entry if it is whole, else what is wrong with it; neither for one that was never made."""
    record_path = _sibling(path, "json")
    if not record_path.exists():
        return None, None
    if not path.is_dir():
        return None, "it is gone"
    try:
        record = read_json(record_path)
        digest, entries = str(record["digest"]), list(record["entries"])
    except (IntegrityError, KeyError, TypeError):
        return None, f"{record_path.name} is no record"
    stamp = _sibling(path, "stamp")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != f"{digest} {stat_digest(path)}":
        problem = first_difference(entries, path)
        if problem is not None:
            return None, problem
        _stamp(path, digest)
    return _kept(path, record, cached=True), None


def _stamp(path: Path, digest: str) -> None:
    write_text(_sibling(path, "stamp"), f"{digest} {stat_digest(path)}")


def _kept(path: Path, record: Mapping[str, Any], *, cached: bool) -> Kept:
    about = {name: value for name, value in record.items() if name not in ("digest", "entries")}
    return Kept(path=path, about=about, entries=tuple(record["entries"]), digest=record["digest"], cached=cached)


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")
