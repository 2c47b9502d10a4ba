"""Records of images and data, whole, with what a test says of them; and a small image that is a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tare.model.records.images import DataRecord, DataSource, ImageRecord, Package


def image_record(**fields: Any) -> ImageRecord:
    """An environment's form of the current stack on a CUDA device."""
    nothing = (
        "reason",
        "reference",
        "path",
        "digest",
        "image_id",
        "python",
        "bytes",
        "base",
        "tree",
        "tree_digest",
        "key",
    )
    given: dict[str, Any] = {
        **dict.fromkeys((*nothing, "tree_digest")),
        "stack": "torch-2.13",
        "variant": "cuda",
        "packages": (Package(name="nvidia-cuda-runtime", version="13.0.96", sha256=None),),
        "env": "docker",
        "status": "ok",
        "seconds": {},
        "cached": True,
        "details": {},
    }
    return ImageRecord(**given | fields)


def data_record(**fields: Any) -> DataRecord:
    """A small set from a place of ours."""
    given: dict[str, Any] = {
        "name": "tiny",
        "dataset": "tiny",
        "choice": "auto",
        "title": "Tiny",
        "licence": "none",
        "note": None,
        "source": DataSource(name="us", kind="https", address="here", canonical=True),
        "canonical": True,
        "content_sha256": {},
        "fetched_s": 0.0,
        "rows": 0,
        "files": (),
        "bytes": 0,
        "folder": "/nowhere",
    }
    return DataRecord(**given | fields)


def rootfs(folder: Path) -> Path:
    """An image that is a folder: the host's shell with its libraries."""
    shell = os.path.realpath(shutil.which("sh") or "/bin/sh")
    said = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout
    for name in ("bin", "dev", "etc", "home", "mnt", "proc", "root", "sys", "tmp", "usr/bin"):
        (folder / name).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):  # over which Charliecloud lays its own
        (folder / "etc" / name).touch()
    for path in re.findall(r"/\S+", said):
        there = folder / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    shutil.copy(shell, folder / "bin/sh")
    shutil.copy(shutil.which("env") or "/usr/bin/env", folder / "usr/bin/env")  # its library is the shell's
    return folder
