"""File systems that machines share: whether their locks count on every machine, and whose clock they go by."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UserError

MOUNTS = Path("/proc/self/mountinfo")
# By type of file system the options with which each machine keeps its locks to itself: mount(8), nfs(5),
# mount.lustre(8), mount.cifs(8).
ALONE = {
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("nolock", "local_lock=all", "local_lock=flock"),
    "lustre": ("localflock",),
    "cifs": ("nobrl", "nobrl2"),
}
IN_MEMORY = ("tmpfs", "ramfs")
# Types of a machine's own file systems; others count as shared.
LOCAL = (
    *IN_MEMORY, "bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "squashfs", "xfs",
    "zfs",
)  # fmt: skip
CLOCK_S = 2.0  # by which clocks may differ, and a time of day still be right
ALWAYS_ALONE = ("fuse.sshfs",)


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A file system as it is mounted."""

    point: Path
    kind: str
    source: str
    options: tuple[str, ...]

    @property
    def locks_alone(self) -> str | None:
        """Why its locks count on this machine alone; None where nothing says so."""
        if self.kind in ALWAYS_ALONE:
            return self.kind
        found = [option for option in ALONE.get(self.kind, ()) if option in self.options]
        return f"{self.kind}, mounted with {found[0]}" if found else None


def mount_of(path: Path, mountinfo: str) -> Mount | None:
    """The mount that a path is on. `path`: there or not. `mountinfo`: text of /proc/<process>/mountinfo."""
    real = path.resolve()
    over = [mount for mount in read_mounts(mountinfo) if real.is_relative_to(mount.point)]
    # a later one at the same place covers the earlier
    return max(reversed(over), key=lambda mount: len(mount.point.parts), default=None)


def read_mounts(mountinfo: str) -> list[Mount]:
    """What is mounted, in its order, by the text of /proc/<process>/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) > 5 and len(tail) >= 3:
            point, options = fields[4].replace("\\040", " "), f"{fields[5]},{tail[2]}"
            found.append(Mount(point=Path(point), kind=tail[0], source=tail[1], options=tuple(options.split(","))))
    return found


def is_local(kind: str) -> bool:
    """Whether a type of file system is of one machine alone."""
    return kind in LOCAL


def refuse_without_locks(folders: Iterable[Path], mountinfo: str | None = None) -> None:
    """Refuse folders that several machines share, and on which two of them could write one file. `folders`: each is
    there. `mountinfo`: as of `mount_of`; None for this process's own. Raises UserError: a lock is refused there, or
    counts on one machine alone.
    """
    text = MOUNTS.read_text() if mountinfo is None else mountinfo
    for folder in folders:
        mount = mount_of(folder, text)
        why = mount.locks_alone if mount else None
        why = why or refused(folder)
        if why:
            raise UserError(
                f"{folder} is on a file system whose locks don't work across machines ({why}), so two jobs could "
                "write the same campaign: move it to a file system whose locks do, or mount it with locks"
            )


def clock_ahead_s(folder: Path) -> float:
    """Seconds by which this machine's clock is ahead of that of a file system; negative where it is behind.

    By the time of a file that is written now: the server of a shared file system may give it by its own clock.
    """
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        before = time.time()
        file.write(b".")
        file.flush()
        os.fsync(file.fileno())
        written, after = os.fstat(file.fileno()).st_mtime, time.time()
    return min(0.0, after - written) + max(0.0, before - written)


def clock_is_off(ahead_s: float | None) -> str | None:
    """By how much a clock is ahead or behind, in words; None for less than CLOCK_S, and where it is not known."""
    if ahead_s is None or abs(ahead_s) < CLOCK_S:
        return None
    return (
        f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of the file system with the results"
    )


def refused(folder: Path) -> str | None:
    """Why a file in a folder can't be locked; None where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.strerror or str(error)
    return None
