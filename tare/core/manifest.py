"""What a folder holds, file by file, and one digest for all of it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tare.core.files import canonical_json, sha256_file, sha256_text


def read_manifest(root: Path) -> list[dict[str, Any]]:
    """Path, mode, size and SHA-256 of every file below `root`, and the target of every link; sorted by path."""
    entries: list[dict[str, Any]] = []
    for folder, names, files in os.walk(root):
        for name in files + [name for name in names if (Path(folder) / name).is_symlink()]:
            path = Path(folder) / name
            relative = str(path.relative_to(root))
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                entries.append({"path": relative, "link": str(path.readlink())})
            elif stat.S_ISREG(status.st_mode):
                mode = stat.S_IMODE(status.st_mode)
                entries.append({"path": relative, "mode": mode, "size": status.st_size})
            else:  # a device, a pipe or a socket has no content to hash
                entries.append({"path": relative, "type": stat.S_IFMT(status.st_mode)})
    entries.sort(key=lambda entry: entry["path"])
    with ThreadPoolExecutor(2) as pool:  # hashing releases the interpreter's lock
        plain = [entry for entry in entries if "size" in entry]
        digests = pool.map(sha256_file, [root / entry["path"] for entry in plain])
        for entry, digest in zip(plain, digests, strict=True):
            entry["sha256"] = digest
    return entries


def manifest_digest(entries: Sequence[Mapping[str, Any]]) -> str:
    """One digest for a whole tree."""
    return "sha256:" + hashlib.sha256(canonical_json(list(entries)).encode()).hexdigest()


def first_difference(entries: Sequence[Mapping[str, Any]], root: Path) -> str | None:
    """Compare `root` with a manifest, content and all; None when they agree."""
    found = {entry["path"]: entry for entry in read_manifest(root)}
    for entry in entries:
        other = found.pop(entry["path"], None)
        if other != entry:
            return f"{entry['path']} is {'missing' if other is None else 'not what was built'}"
    return f"{next(iter(found))} was added" if found else None


def stat_digest(root: Path) -> str:
    """One hash over what the file system says of every file and link below `root`."""
    lines, folders = [], [(".", str(root))]
    while folders:
        relative, folder = folders.pop()
        below = []
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append((entry.name if relative == "." else f"{relative}/{entry.name}", entry.path))
                continue
            status = entry.stat(follow_symlinks=False)
            fields = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            lines.append(f"{relative}/{entry.name} {fields}")
        folders += reversed(below)
    return sha256_text("\n".join(lines))


def allocated_bytes(root: Path) -> int:
    """Disk space of a tree: allocated blocks, each file once however many names it has."""
    return sum(allocated_blocks(root).values())


def allocated_blocks(root: Path) -> dict[tuple[int, int], int]:
    """Allocated bytes of a file, or of a folder and all below it, by device and inode."""
    found = {}

    def count(path: str) -> None:
        status = os.lstat(path)
        found[status.st_dev, status.st_ino] = status.st_blocks * 512

    count(str(root))
    for folder, names, files in os.walk(root):
        for name in (*files, *names):
            count(f"{folder}/{name}")
    return found
