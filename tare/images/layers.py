"""Unpacks the layers of an image one over another, with what an upper one removes from those below (whiteouts).

A layer is an uncompressed tar, a file of its own or a part of an archive. Source of the rules: the OCI image
specification, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.core.errors import UnavailableError
from tare.core.process import run

UNPACK_S = 300.0
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A tar that begins at a place of a file."""

    path: Path
    offset: int = 0


def layers_of(archive: Path) -> list[Blob]:
    """Where the layers of the one image of a Docker archive lie in it, lowest first."""
    with tarfile.open(archive) as tar:
        (image,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        return [Blob(path=archive, offset=tar.getmember(name).offset_data) for name in image["Layers"]]


def unpack(layers: Sequence[Blob], root: Path) -> None:
    """Unpack layers, lowest first, as our own and without devices, into an empty folder; or UnavailableError."""
    options = ["--no-same-owner", "--preserve-permissions", f"--exclude={WHITEOUT}*", "--exclude=dev/*"]
    for number, layer in enumerate(layers):
        with layer.path.open("rb", buffering=0) as handle:
            if number:
                handle.seek(layer.offset)
                with tarfile.open(fileobj=handle, mode="r:") as archive:
                    make_room(root, archive)
            handle.seek(layer.offset)
            run(["tar", "-x", *options, "-f", "-", "-C", str(root)], timeout_s=UNPACK_S, stdin=handle, check=True)


def make_room(root: Path, layer: tarfile.TarFile) -> None:
    """Remove what a layer whites out or replaces; UnavailableError for a name that leads out of the image."""
    for member in layer:
        path = PurePosixPath(member.name)
        if path.name == OPAQUE:
            parent = _within(root, path.parent, member.name)
            doomed = list(parent.iterdir()) if parent.is_dir() else []
        elif path.name.startswith(WHITEOUT):
            doomed = [_within(root, path.parent, member.name) / path.name.removeprefix(WHITEOUT)]
        elif not member.isdir():
            doomed = [folder for folder in [root / path] if folder.is_dir() and not folder.is_symlink()]
        else:
            continue
        for old in doomed:
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)


def _within(root: Path, folder: PurePosixPath, name: str) -> Path:
    if not (root / folder).resolve().is_relative_to(root.resolve()):
        raise UnavailableError(f"the layer's whiteout {name} leads out of the image")
    return root / folder


def whiteouts(gone: Sequence[str]) -> list[str]:
    """Names of the entries of a layer that remove paths of the layers below it."""
    return [str(PurePosixPath(path).parent / f"{WHITEOUT}{PurePosixPath(path).name}") for path in gone]
