"""A tiny image of a few megabytes, from this machine's own programs, for real trial launches of a runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.files import cache_dir
from tare.core.process import run
from tare.images.oci import assemble, image_at
from tare.images.skeleton import FILES, FOLDERS, LINKS, Skeleton, programs
from tare.model.environment import OciImage

FORMAT = 2  # counts up when the same programs would give another image
PROGRAMS = ("sh", "env", "true", "cat", "stat", "sleep")
CONFIG: dict[str, Any] = {"env": {"PATH": "/usr/bin"}, "workdir": "/", "labels": {}}


def trial_image() -> OciImage:
    """The trial image, made where it is missing; equal programs give an equal digest.

    Raises:
        UnavailableError: this machine lacks one of the programs.
    """
    files = programs(PROGRAMS)
    for program in list(files.values()):
        for library in _libraries(program):
            inside = str(library).lstrip("/")
            files[inside if inside.startswith("usr/") else f"usr/{inside}"] = library.resolve()
    skeleton = Skeleton(files=files, texts=FILES, links=LINKS, folders=FOLDERS)

    def make(folder: Path) -> dict[str, Any]:
        layers = [skeleton.layer(f"{len(files)} files of this machine")]
        return {"image": assemble(layers, config=CONFIG, labels={}, name="tare/trial", folder=folder)}

    key = store.key_of("trial", FORMAT, skeleton.inputs())
    return image_at(store.keep(cache_dir("images"), key, make, what="making the trial image"), Path("/usr"))


def _libraries(program: Path) -> list[Path]:
    """Shared objects that a program needs, as ldd finds them, the loader included."""
    listed = run(["ldd", str(program)], timeout_s=10, check=True).stdout
    return [Path(found) for found in re.findall(r"(?:=> |^\s*)(/\S+)", listed, re.MULTILINE)]
