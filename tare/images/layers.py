"""Unpacks the layers of an image one over another, with what an upper one removes from those below (whiteouts).

A layer is an uncompressed tar, a separate file or a part of an archive. Source of the rules: the OCI image
specification, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.core.archives import opened
from tare.core.errors import UnavailableError
from tare.core.process import run

UNPACK_S = 300.0
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
SET_UID = ("-type", "f", "-perm", "/6000")  # a folder of root's would lend others its rights by such a program


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A tar that begins at a place of a file."""

    path: Path
    offset: int = 0


def layers_of(archive: Path) -> list[Blob]:
    """Where the layers of the one image of a Docker archive are in it, lowest first."""
    with tarfile.open(archive) as tar:
        (image,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        return [Blob(path=archive, offset=tar.getmember(name).offset_data) for name in image["Layers"]]


def unpack(layers: Sequence[Blob], root: Path) -> None:
    """Unpack layers, lowest first, as our own, without devices and set-uid programs, into an empty folder. Raises
    UnavailableError where a member leads out of the image, IntegrityError where a layer is no tar.
    """
    options = ["--no-same-owner", "--preserve-permissions", f"--exclude={WHITEOUT}*", "--exclude=dev/*"]
    for number, layer in enumerate(layers):
        with layer.path.open("rb", buffering=0) as handle:
            if number:
                with opened(layer.path, layer.offset) as archive:
                    make_room(root, archive)
            handle.seek(layer.offset)
            run(["tar", "-x", *options, "-f", "-", "-C", str(root)], timeout_s=UNPACK_S, stdin=handle, check=True)
    run(["find", str(root), "-xdev", *SET_UID, "-exec", "chmod", "ug-s", "{}", "+"], timeout_s=UNPACK_S, check=True)


def make_room(root: Path, layer: tarfile.TarFile) -> None:
    """Remove what a layer whites out or replaces. Raises UnavailableError for a name that leads out of the image,
    if only over a link of a layer below, which tar would follow; and for a hard link to such a name.
    """
    sound: dict[PurePosixPath, Path] = {}

    def place(name: str) -> Path:
        path = PurePosixPath(name.lstrip("/"))  # as tar takes it
        if path.parent not in sound:
            sound[path.parent] = _within(root, path.parent, name)
        if ".." in path.parts:
            raise UnavailableError(f"the layer's {name} leads out of the image")
        return sound[path.parent] / path.name

    for member in layer:
        path = place(member.name)
        if member.islnk():
            place(member.linkname)
        if path.name == OPAQUE:
            doomed = list(path.parent.iterdir()) if path.parent.is_dir() else []
        elif path.name.startswith(WHITEOUT):
            doomed = [path.with_name(path.name.removeprefix(WHITEOUT))]
        elif not member.isdir():
            doomed = [path] if path.is_dir() and not path.is_symlink() else []
        else:
            continue
        if doomed:
            sound.clear()
        for old in doomed:
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)


def _within(root: Path, folder: PurePosixPath, name: str) -> Path:
    if not (root / folder).resolve().is_relative_to(root.resolve()):
        raise UnavailableError(f"the layer's {name} leads out of the image")
    return root / folder


def whiteouts(gone: Sequence[str]) -> list[str]:
    """Names of the entries of a layer that remove paths of the layers below it."""
    return [str(PurePosixPath(path).parent / f"{WHITEOUT}{PurePosixPath(path).name}") for path in gone]
