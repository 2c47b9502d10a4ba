"""A tiny image of a few megabytes, from this machine's own programs, for real trial launches of a runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.files import cache_dir
from tare.images.oci import assemble, image_at
from tare.images.skeleton import FILES, FOLDERS, LINKS, Skeleton, programs, with_libraries
from tare.model.environment import OciImage

FORMAT = 2  # counts up when the same programs would give another image
PROGRAMS = ("sh", "env", "true", "cat", "stat", "sleep")
CONFIG: dict[str, Any] = {"env": {"PATH": "/usr/bin"}, "workdir": "/", "labels": {}}


def trial_image() -> OciImage:
    """The trial image, kept by its programs; raises UnavailableError where this machine lacks one of them."""
    files = with_libraries(programs(PROGRAMS))
    skeleton = Skeleton(files=files, texts=FILES, links=LINKS, folders=FOLDERS)

    def make(folder: Path) -> dict[str, Any]:
        layers = [skeleton.layer(f"{len(files)} files of this machine")]
        return {"image": assemble(layers, config=CONFIG, labels={}, name="tare/trial", folder=folder)}

    key = store.key_of("trial", FORMAT, skeleton.inputs())
    return image_at(store.keep(cache_dir("images"), key, make, what="making the trial image"), Path("/usr"))
