"""A root filesystem that is given file by file: what each of ours holds at least, and the layer that it becomes."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError
from tare.core.files import sha256_file
from tare.images.oci import FolderLayer

FOLDERS = (
    "dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib", "usr/lib64", "var/tmp",
)  # fmt: skip
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/resolv.conf": "",
    "etc/nsswitch.conf": "passwd: files\n",
    "etc/localtime": "",
}


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """What a root filesystem will hold; paths inside have no leading slash.

    Attributes:
        files: path inside -> file of this machine.
        texts: path inside -> content.
        links: path inside -> target.
        folders: empty ones.
    """

    files: dict[str, Path]
    texts: dict[str, str]
    links: dict[str, str]
    folders: tuple[str, ...]

    def inputs(self) -> list[Any]:
        """All that is in it, by content, as JSON holds it."""
        hashes = {path: sha256_file(source) for path, source in self.files.items()}
        return [hashes, self.texts, self.links, self.folders]

    def layer(self, made_by: str) -> FolderLayer:
        """The layer that holds it."""
        entries: list[dict[str, Any]] = [{"path": path, "link": target} for path, target in self.links.items()]
        entries += [{"path": path, "mode": 0o644, "text": text} for path, text in self.texts.items()]
        for path, source in self.files.items():
            status = source.stat()
            mode = 0o755 if status.st_mode & stat.S_IXUSR or ".so" in source.name else 0o644
            entries.append({"path": path, "mode": mode, "size": status.st_size, "source": source})
        entries.sort(key=lambda entry: entry["path"])
        return FolderLayer(entries=entries, empty=self.folders, made_by=made_by)


def programs(names: Iterable[str]) -> dict[str, Path]:
    """Programs of this machine, by their path inside.

    Raises:
        UnavailableError: it lacks one.
    """
    found = {name: shutil.which(name, path="/usr/bin:/bin") for name in names}
    for name, path in found.items():
        if path is None:
            raise UnavailableError(f"this machine has no {name}, which a root filesystem needs")
    return {f"usr/bin/{name}": Path(path).resolve() for name, path in found.items() if path}
