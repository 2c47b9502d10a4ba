"""Images and trees on the node's own disk, where the cache is on a file system that nodes share.

A workflow that sends jobs to a cluster says for each machine whether its jobs copy what they launch (`scratch` in
the study). The copy is in $SLURM_TMPDIR or $TMPDIR, is compared with the original by hash, and goes with the
process, however that ends. What a daemon keeps, or was installed for good, stays where it is. The record of an
image says what it was read from: it is a condition of what is measured.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import locked_if_free
from tare.core.process import at_death, run
from tare.core.progress import say
from tare.core.store import Kept
from tare.images.runtime_forms import form_name, forms_folder
from tare.machine import shared_files
from tare.model.machines import MACHINE
from tare.model.records.images import ImageRecord
from tare.model.registry import environment

SCRATCH = "TARE_SCRATCH"  # by machine `auto`, `always` or `never`, as `thin=auto gpu=never`
NODE_TMPDIR = "TARE_NODE_TMPDIR"  # what $SLURM_TMPDIR was where the job began
PLACES = (NODE_TMPDIR, "SLURM_TMPDIR", "TMPDIR")
PREFIX, LOCK = "tare-images-", ".lock"


def wanted(variables: Mapping[str, str]) -> str | None:
    """What the workflow that started this command says of its machine; None: nothing, and nothing is recorded."""
    words = dict(word.split("=", 1) for word in variables.get(SCRATCH, "").split())
    return words.get(variables.get(MACHINE, ""), next(iter(words.values())) if len(words) == 1 else None)


def place(record: ImageRecord) -> ImageRecord:
    """The image that is launched: copied where that is wanted and can be, with what it is read from.

    Raises:
        UnavailableError: it has to be copied, and can't be.
    """
    word = wanted(os.environ)
    if word is None:
        return record
    kept = _entry(record)
    if kept is None:
        return record.replace(read_from=_kind(_location(record)))
    kind = _kind(kept.path)
    if word == "never" or (word == "auto" and shared_files.is_local(kind)):
        return record.replace(read_from=kind)
    try:
        folder = _folder(word)
        copied = _copy(kept, folder)
    except UnavailableError as error:
        reason = f"{kept.path} is not copied to this node: {error}"
        if word == "always":
            raise UnavailableError(reason) from error
        say(f"{reason}; it is read from {kind}")
        return record.replace(read_from=kind)
    moved = {
        name: str(copied / Path(value).relative_to(kept.path))
        for name in ("reference", "path", "python")
        if (value := getattr(record, name)) and Path(value).is_relative_to(kept.path)
    }
    return record.replace(**moved, read_from=f"{_kind(copied)}, copied from {kind}")


def _entry(record: ImageRecord) -> Kept | None:
    """The entry of the store that is launched; None where it is none, or can't be launched from elsewhere."""
    if record.install != "tree" or record.reference is None:
        return None
    path = Path(record.reference)
    if not environment(record.env).contained:
        return store.find(path.parent, path.name)
    if record.key is None or not path.is_relative_to(forms_folder(record.key)):
        return None
    return store.find(forms_folder(record.key), form_name(environment(record.env), record.options))


def _location(record: ImageRecord) -> Path | None:
    """Where the files of an image are that is no entry of the store; None where nobody says."""
    places = record.storage.places if record.storage else ()
    found = [record.path, *places, None if environment(record.env).contained else record.python]
    return next((Path(path) for path in found if path), None)


def _kind(path: Path | None) -> str:
    mount = shared_files.mount_of(path, shared_files.MOUNTS.read_text()) if path else None
    return mount.kind if mount else "unknown"


def _copy(kept: Kept, folder: Path) -> Path:
    parent = folder / kept.path.parent.name
    there = store.find(parent, kept.key) is not None
    if not there and shutil.disk_usage(folder).free < kept.size_bytes + store.SPARE_BYTES:
        raise UnavailableError(f"there is no room for its {kept.size_bytes / 1e9:.1f} GB in {folder.parent}")

    def make(target: Path) -> dict[str, Any]:
        run(["cp", "--archive", f"{kept.path}/.", str(target)], timeout_s=store.COPY_S, check=True)
        return dict(kept.about)

    try:
        copy = store.keep(parent, kept.key, make, what=f"copying {kept.path} to this node")
    except OSError as error:
        raise UnavailableError(f"{error.filename or folder} can't be written: {error.strerror}") from error
    if copy.digest != kept.digest:
        raise IntegrityError(f"the copy {copy.path} is not what was read from {kept.path}: a disk may be failing")
    return copy.path


@cache
def _folder(word: str) -> Path:
    """This process's folder for copies; what jobs left there that were killed with their guards goes first."""
    named = {name: os.environ[name] for name in PLACES if os.environ.get(name)}
    if not named:
        raise UnavailableError(f"none of {', '.join(PLACES[1:])} is set there")
    name, parent = next((name, Path(value)) for name, value in named.items())
    kind = _kind(parent)
    if word == "auto" and not (shared_files.is_local(kind) and kind not in shared_files.IN_MEMORY):
        raise UnavailableError(f"{name}={parent} is on {kind}, which is no disk of the node")
    try:
        _clear(parent)
        stack = contextlib.ExitStack()
        folder = stack.enter_context(_own_folder(parent))
    except OSError as error:
        raise UnavailableError(f"{name}={parent} can't be written: {error.strerror}") from error
    atexit.register(_close, stack, os.getpid())
    return folder


@contextlib.contextmanager
def _own_folder(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    with at_death(folder.name, folder=folder), (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _close(stack: contextlib.ExitStack, owner: int) -> None:
    if os.getpid() == owner:
        stack.close()


def _clear(parent: Path) -> None:
    for old in parent.glob(f"{PREFIX}*"):
        if not old.is_symlink() and old.stat().st_uid == os.getuid():
            with locked_if_free(old / LOCK) as free:
                if free:
                    shutil.rmtree(old, ignore_errors=True)
