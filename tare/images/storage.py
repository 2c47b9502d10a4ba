"""What a form of an image takes on this machine's disk, what it shares with the host's tree, and a second copy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tare.core import store
from tare.core.errors import TareError, UnavailableError
from tare.core.manifest import allocated_blocks
from tare.model.environment import Environment, Prepared
from tare.model.records.images import Storage


def storage_of(adapter: Environment, prepared: Prepared, tree: str | None) -> Storage:
    """`storage` of an image record: that of the places where the adapter keeps a form; see `measure_storage`."""
    try:
        return measure_storage(adapter.places(prepared), Path(tree) if tree else None)
    except TareError as error:
        return without_storage(str(error))


def measure_storage(places: Iterable[Path], tree: Path | None) -> Storage:
    """Allocated blocks of folders and files, by inode, and of these the host's tree's; reflinks count as own."""
    places = list(places)
    try:
        blocks: dict[tuple[int, int], int] = {}
        for place in places:
            blocks |= allocated_blocks(place)
        shared = blocks.keys() & allocated_blocks(tree).keys() if tree and tree.exists() else set()
    except OSError as error:
        return without_storage(f"{error.filename or 'a place'} can't be counted: {error.strerror}")
    return Storage(
        disk_bytes=sum(blocks.values()),
        shared_bytes=sum(blocks[key] for key in shared),
        files=len(blocks),
        places=tuple(map(str, places)),
        reason=None,
    )


def without_storage(reason: str) -> Storage:
    """`storage` of a form that can't be counted."""
    return Storage(disk_bytes=None, shared_bytes=None, files=None, places=(), reason=reason)


def second_copy(first: Path) -> Path:
    """A second copy of the host's form, so that its control shares no file with it, and no cached page.

    Kept or made; its path is as long, so that memory has the same layout.
    """
    kept = store.find(first.parent, first.name)
    if kept is None:
        raise UnavailableError(f"{first} is this machine's own installation, which is not copied")
    return store.second_copy(kept, f"{first} for the second host").path
