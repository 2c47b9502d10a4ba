"""Records of images and data, whole, with what a test says of them."""

from __future__ import annotations

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
