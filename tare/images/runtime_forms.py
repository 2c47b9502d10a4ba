"""An environment's own form of an image: made by its adapter, kept while it is intact, told in a record.

What is launched is always the adapter's form. A form belongs to one image, by its key, and to one way of making it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError, TareError, UnavailableError
from tare.core.files import cache_dir, locked, project_root, read_json, sha256_file, write_json
from tare.core.progress import step
from tare.images.base import Base
from tare.images.oci import check_archive
from tare.images.storage import storage_of
from tare.model.environment import Environment, OciImage, Prepared

SCHEMA = 1
ARCHIVE = "image.oci.tar"
NO_OPTIONS: Mapping[str, str] = {}

Record = dict[str, Any]


def image_fields(image: OciImage, base: Base, key: str) -> Record:
    """What the record of an assembled image says of it; `image_of` reads it again."""
    return {
        "status": "ok",
        "reason": None,
        "key": key,
        "path": str(image.archive),
        "stamp": _stamp(image.archive),
        "bytes": image.archive.stat().st_size,
        "digest": image.digest,
        "image_id": image.image_id,
        "tag": image.tag,
        "layers": [str(path) for path in image.layers],
        "base": {
            "kind": base.kind,
            "name": base.name,
            "digest": base.digest,
            "glibc": ".".join(map(str, base.glibc)),
            "bytes": sum(path.stat().st_size for path in base.layers),
            "reason": base.reason,
        },
    }


def image_of(record: Record) -> OciImage:
    """What adapters take, from an image's record; the archive is checked.

    Raises:
        UnavailableError: there is no image on this machine; its reason is given.
        IntegrityError: the archive is gone, or is not what was assembled.
    """
    if record["status"] != "ok":
        raise UnavailableError(record["reason"])
    problem = archive_problem(record)
    if problem:
        command = "derive-arm" if record.get("install") == "native" else "build-image"
        raise IntegrityError(f"{problem}; make it again with `python -m tare {command} --stack {record['stack']}`")
    return OciImage(
        archive=Path(record["path"]),
        digest=record["digest"],
        image_id=record["image_id"],
        tag=record["tag"],
        layers=tuple(Path(path) for path in record["layers"]),
        tree=Path(record["tree"]["inside"]),
    )


def archive_problem(record: Record) -> str | None:
    """None when the archive is what was written; it is hashed again only if its size, time or inode changed."""
    archive = Path(record["path"])
    if not archive.exists() or not all(Path(path).exists() for path in record["layers"]):
        return f"{archive} is gone"
    return None if _stamp(archive) == record["stamp"] else check_archive(archive, record["digest"])


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def contained_form(record: Record, adapter: Environment, options: Mapping[str, str] = NO_OPTIONS) -> Record:
    """The record of an environment that is contained, its form made or kept from last time.

    Args:
        record: of the image.
        adapter: of the environment.
        options: levels of the adapter's factors, under which the form will be launched.

    Returns:
        A record whose status is `unavailable`, with the reason, where the environment can't have the image.
    """
    try:
        image = image_of(record)
        with step(f"preparing {record['stack']} for {adapter.name}"):
            prepared, cached = _prepare(adapter, image, record, options)
    except (TareError, OSError) as error:
        return form_record(record, adapter.name, options=options, status="unavailable", reason=str(error))
    return form_record(
        record,
        adapter.name,
        options=options,
        reference=prepared.reference,
        path=prepared.reference if Path(prepared.reference).is_absolute() else None,
        digest=image.digest,
        image_id=image.image_id,
        python=record.get("python") or str(image.tree / "bin" / "python3"),
        bytes=prepared.bytes,
        seconds={**record["seconds"], **{key: round(value, 3) for key, value in prepared.seconds.items()}},
        cached=cached,
        storage=storage_of(adapter, prepared, record["tree"].get("path")),
        details={**prepared.details, **record.get("details", {})},
    )


def _prepare(
    adapter: Environment, image: OciImage, record: Record, options: Mapping[str, str]
) -> tuple[Prepared, bool]:
    """The adapter's form: kept from last time if its file is unchanged and the adapter finds it intact."""
    form = adapter.form(options)
    name = adapter.name if form is None else f"{adapter.name}.{form}"
    folder = cache_dir("images", record["key"], name)
    kept_path = folder.with_name(f"{name}.json")
    source = sha256_file(project_root() / "envs" / f"{adapter.name}.py")
    earlier: Mapping[str, float] = {}
    with locked(folder.with_name(f".{name}.lock"), waiting_for=f"{adapter.name}'s form of the image"):
        if kept_path.exists():
            kept = read_json(kept_path)
            prepared = Prepared(**kept["prepared"])
            unchanged = kept["source"] == source and kept["stamp"] == _form_stamp(prepared)
            if unchanged and adapter.is_intact(prepared):
                return prepared, True
            earlier = prepared.seconds
            kept_path.unlink()
        shutil.rmtree(folder)
        folder.mkdir()
        started = time.monotonic()
        prepared = adapter.prepare_at(options, image, folder)
        # A daemon that has the image already makes nothing: what it took then is still what it takes.
        seconds = prepared.seconds or earlier or {"prepare": time.monotonic() - started}
        prepared = Prepared(**{**asdict(prepared), "seconds": seconds})
        write_json(kept_path, {"source": source, "prepared": asdict(prepared), "stamp": _form_stamp(prepared)})
        return prepared, seconds is earlier


def _form_stamp(prepared: Prepared) -> list[int] | None:
    """Inode, size and time of a form that is a file; None for those that a daemon keeps and for folders."""
    path = Path(prepared.reference)
    return _stamp(path) if path.is_absolute() and path.is_file() else None


def form_record(record: Record, name: str, **fields: Any) -> Record:
    """A record of one environment; what `fields` leave out is None, as for one that is unavailable.

    `options` are the levels that its launches need; `install` says whether the stack is the `tree`, `native` or
    `bound`; `binds` are folders that launches see besides, at their own paths.
    """
    empty: Mapping[str, Any] = dict.fromkeys(
        ("reason", "reference", "path", "digest", "image_id", "python", "bytes", "base"), None
    )
    return {
        **empty,
        "schema": SCHEMA,
        "stack": record["stack"],
        "variant": record["variant"],
        "install": record.get("install", "tree"),
        "options": {},
        "binds": record.get("binds", []),
        "env": name,
        "status": "ok",
        "tree": record["tree"]["inside"],
        "tree_digest": record["tree"]["digest"],
        "base": record.get("base"),
        "packages": record["packages"],
        "key": record.get("key"),
        "seconds": {},
        "cached": False,
        "storage": None,
        "details": {},
        **fields,
    }
