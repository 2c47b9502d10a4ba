"""The image as an unpacked folder, for runtimes that enter one: mounted read-only, and shared by all launches.

A read-only folder takes no mount points of a runtime's own, so that empty folders at the paths of a launch's binds
are made in it before the launch is started.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from envs._conditions import image_of
from tare.core.manifest import allocated_bytes
from tare.images.layers import layers_of, unpack
from tare.model.environment import Launch, OciImage, Prepared

# Mounted over in every image.
FOLDERS = ("dev", "etc", "proc", "sys", "tmp")


def make_folders(root: Path) -> None:
    """Make the folders over which every runtime mounts, where the image lacks them."""
    for name in FOLDERS:
        (root / name).mkdir(exist_ok=True)


def prepare_folder(image: OciImage, folder: Path, complete: Callable[[Path], None] = make_folders) -> Prepared:
    """Unpack the layers into one folder below the form's `folder`, and `complete` it; else UnavailableError."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / image.digest.removeprefix("sha256:")[:16]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
        root = Path(temporary) / "root"
        root.mkdir()
        unpack(layers_of(image.archive), root)
        complete(root)
        if target.exists():
            target.rename(Path(temporary) / "old")
        root.rename(target)
        size = allocated_bytes(target)
    return Prepared(
        reference=str(target),
        bytes=size,
        seconds={"unpack": time.monotonic() - started},
        details={"image_format": "folder"},
    )


def points_in_folder(launch: Launch) -> tuple[Path, ...]:
    """A mount point in the image for each bind of a launch; pure."""
    return tuple(Path(f"{image_of(launch)}{bind.target}") for bind in launch.binds)
