"""A root filesystem that is given file by file: what each of ours holds at least, and the layer that it becomes."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, sha256_file
from tare.core.process import run
from tare.images.oci import FolderLayer, assemble, image_at
from tare.model.environment import OciImage

FOLDERS = (
    "dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib", "usr/lib64", "var/tmp",
)  # fmt: skip
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n", "etc/resolv.conf": "", "etc/nsswitch.conf": "passwd: files\n",
    "etc/localtime": "",
}  # fmt: skip
TRIAL_FORMAT = 2  # counts up when the same programs would give another image
TRIAL_PROGRAMS = ("sh", "env", "true", "cat", "stat", "sleep")
TRIAL_CONFIG: dict[str, Any] = {"env": {"PATH": "/usr/bin"}, "workdir": "/", "labels": {}}


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """What a root filesystem will hold; paths inside have no leading slash."""

    files: dict[str, Path]  # path inside -> file of this machine
    texts: dict[str, str]  # path inside -> content
    links: dict[str, str]  # path inside -> target
    folders: tuple[str, ...]  # empty ones

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

    def write(self, root: Path) -> None:
        """Write it into an empty folder; what is executable here is so there."""
        for name in self.folders:
            (root / name).mkdir(parents=True, exist_ok=True)
        for path, target in self.links.items():
            (root / path).symlink_to(target)
        for path, text in self.texts.items():
            (root / path).write_text(text, encoding="utf-8")
        for path, source in self.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / path)


def programs(names: Iterable[str], path: str = "/usr/bin:/bin") -> dict[str, Path]:
    """Programs of this machine, found by `path`, by their path inside. Raises UnavailableError without one."""
    found = {name: shutil.which(name, path=path) for name in names}
    for name, program in found.items():
        if program is None:
            raise UnavailableError(f"this machine has no {name}, which a root filesystem needs")
    return {f"usr/bin/{name}": Path(program).resolve() for name, program in found.items() if program}


def with_libraries(files: Mapping[str, Path]) -> dict[str, Path]:
    """Programs and the shared objects that they need, as ldd finds them, loader included; by their path inside."""
    found = dict(files)
    for program in files.values():
        listed = run(["ldd", str(program)], timeout_s=10).stdout  # it fails on a program that needs none
        for library in map(Path, re.findall(r"(?:=> |^\s*)(/\S+)", listed, re.MULTILINE)):
            inside = str(library).lstrip("/")
            found[inside if inside.startswith("usr/") else f"usr/{inside}"] = library.resolve()
    return found


def trial_image() -> OciImage:
    """A tiny image of this machine's programs, for real trial launches; UnavailableError if one is missing."""
    files = with_libraries(programs(TRIAL_PROGRAMS))
    skeleton = Skeleton(files=files, texts=FILES, links=LINKS, folders=FOLDERS)

    def make(folder: Path) -> dict[str, Any]:
        layers = [skeleton.layer(f"{len(files)} files of this machine")]
        return {"image": assemble(layers, config=TRIAL_CONFIG, labels={}, name="tare/trial", folder=folder)}

    key = store.key_of("trial", TRIAL_FORMAT, skeleton.inputs())
    return image_at(store.keep(cache_dir("images"), key, make, what="making the trial image"), Path("/usr"))
