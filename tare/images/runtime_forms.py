"""An environment's own form of an image: made by its adapter, kept while it is whole, described by a record.

What is launched is always the adapter's form. A form belongs to one image, by its key, and to one way of making it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import IntegrityError, TareError, UnavailableError, reason_of
from tare.core.files import cache_dir
from tare.core.store import Kept, Make
from tare.images.base import Base
from tare.images.oci import ARCHIVE, image_at
from tare.images.storage import storage_of
from tare.model import closure
from tare.model.environment import Environment, OciImage, Prepared
from tare.model.records.images import BaseImage, ImageRecord, OciRecord, TreeFacts
from tare.model.schema import parse

NO_OPTIONS: Mapping[str, str] = {}


def keep_image(inputs: list[Any], what: str, make: Make) -> tuple[Kept, dict[str, Any]]:
    """An image from the store, assembled where it is missing, and what its record says of it. `inputs`: all that it
    is made from, as JSON. `make` writes the archive into a folder; gives `image`, `base` and `seconds`.
    """
    kept = store.keep(cache_dir("images"), store.key_of(*inputs), make, what=what)
    image = kept.about["image"]
    return kept, {
        "status": "ok",
        "reason": None,
        "key": kept.key,
        "path": str(kept.path / ARCHIVE),
        "bytes": kept.size_bytes,
        "digest": image["digest"],
        "image_id": image["image_id"],
        "tag": image["tag"],
        "base": parse(BaseImage, kept.about["base"], f"the base of {kept.path}"),
        "cached": kept.cached,
    }


def base_fields(base: Base) -> dict[str, Any]:
    """What records say of the base of an image."""
    return {
        "kind": base.kind,
        "name": base.name,
        "digest": base.digest,
        "glibc": ".".join(map(str, base.glibc)),
        "bytes": sum(layer.path.stat().st_size for layer in base.layers),
        "reason": base.reason,
        "packages": [package.to_json() for package in base.packages],
    }


def image_of(record: OciRecord) -> OciImage:
    """What adapters take, its archive checked; UnavailableError with the record's reason, or IntegrityError."""
    if record.status != "ok" or record.key is None:
        raise UnavailableError(record.reason or f"{record.stack} has no image")
    kept = store.find(cache_dir("images"), record.key)
    if kept is None or kept.about["image"]["digest"] != record.digest:
        command = "derive-arm" if record.install == "native" else "build-image"
        raise IntegrityError(
            f"{record.path} is gone or damaged; make it again with "
            f"`python -m tare {command} --stack {record.stack}`"
        )
    return image_at(kept, Path(record.tree.inside or "/"))


def contained_form(record: OciRecord, adapter: Environment, options: Mapping[str, str] = NO_OPTIONS) -> ImageRecord:
    """The record of a contained environment, its form made or kept, at these levels of the adapter's factors; the
    status is `unavailable`, with the reason, where it can't have the image.
    """
    try:
        image = image_of(record)
        prepared, cached = _prepare(adapter, image, record, options)
    except (TareError, OSError) as error:
        return form_record(record, adapter.name, options=options, status="unavailable", reason=reason_of(error))
    return form_record(
        record,
        adapter.name,
        options=options,
        reference=prepared.reference,
        path=prepared.reference if Path(prepared.reference).is_absolute() else None,
        digest=image.digest,
        image_id=image.image_id,
        python=record.python or str(image.tree / "bin" / "python3"),
        bytes=prepared.bytes,
        seconds={**record.seconds, **{key: round(value, 3) for key, value in prepared.seconds.items()}},
        cached=cached,
        storage=storage_of(adapter, prepared, record.tree.path),
        details={**prepared.details, **record.details},
    )


def again(record: ImageRecord, adapter: Environment) -> ImageRecord | None:
    """A record whose form is made again from its image: another daemon loads it; None where the image is gone.
    Raises UnavailableError: the form can't be made here.
    """
    kept = store.find(cache_dir("images"), record.key) if record.key else None
    if kept is None or kept.about["image"]["digest"] != record.digest:
        return None
    try:
        prepared, cached = _prepare(adapter, image_at(kept, Path(record.tree or "/")), record, record.options)
    except (TareError, OSError) as error:
        raise UnavailableError(
            f"the image of {record.stack} is missing, and was not available from {kept.path}: {reason_of(error)}"
        ) from error
    path = prepared.reference if Path(prepared.reference).is_absolute() else None
    return record.replace(reference=prepared.reference, path=path, bytes=prepared.bytes, cached=cached)


def _prepare(
    adapter: Environment, image: OciImage, record: OciRecord | ImageRecord, options: Mapping[str, str]
) -> tuple[Prepared, bool]:
    """The adapter's form: kept from last time while it is whole, and its adapter unchanged and content with it."""
    source = closure.programs_sha256(closure.adapters([adapter.name]))
    earlier: dict[str, float] = {}

    def fits(kept: Kept) -> bool:
        prepared = Prepared(**kept.about["prepared"])
        earlier.update(prepared.seconds)
        return bool(kept.about["source"] == source and adapter.is_intact(prepared))

    def make(folder: Path) -> dict[str, Any]:
        started = time.monotonic()
        prepared = adapter.prepare_at(options, image, folder)
        # A daemon that has the image already makes nothing: what it took then is still what it takes.
        seconds = prepared.seconds or earlier or {"prepare": time.monotonic() - started}
        made = {**asdict(prepared), "seconds": dict(seconds)}
        return {"source": source, "prepared": made, "had_it": seconds is earlier}

    # A form names its own place, and can't be moved; it is made here, and counts once its record is written.
    kept = store.keep(
        forms_folder(str(record.key)),
        form_name(adapter, options),
        make,
        what=f"preparing {record.stack} for {adapter.name}",
        in_place=True,
        fits=fits,
    )
    return Prepared(**kept.about["prepared"]), kept.cached or kept.about["had_it"]


def forms_folder(key: str) -> Path:
    """Where the forms of one image are."""
    return cache_dir("forms", key)


def form_name(adapter: Environment, options: Mapping[str, str]) -> str:
    """Name of a form among those of other environments, and of other levels."""
    form = adapter.form(options)
    return adapter.name if form is None else f"{adapter.name}.{form}"


def is_there(record: ImageRecord, adapter: Environment) -> bool:
    """Whether the form of a record of a contained environment is there and whole."""
    if record.reference is None or not adapter.is_intact(Prepared(reference=record.reference, bytes=record.bytes)):
        return False
    if record.key is None or not Path(record.reference).is_relative_to(forms_folder(record.key)):
        return True  # a daemon's, or one that was made before forms had a manifest
    return store.find(forms_folder(record.key), form_name(adapter, record.options)) is not None


def missing_record(stack: str, variant: str, reason: str, **fields: Any) -> OciRecord:
    """The record of an image that this machine can't have; `fields`: what is known of it all the same."""
    given = {"packages": (), "seconds": {}, "tree": TreeFacts(inside=None, digest=None), **fields}
    return OciRecord(stack=stack, variant=variant, status="unavailable", reason=reason, cached=False, **given)


def form_record(record: OciRecord, name: str, **fields: Any) -> ImageRecord:
    """A record of one environment; what `fields` leave out is None, as for one that is unavailable."""
    empty = ("reason", "reference", "path", "digest", "image_id", "python", "bytes", "storage")
    shared = ("stack", "variant", "install", "binds", "base", "packages", "key")
    given: dict[str, Any] = {
        **dict.fromkeys(empty),
        **{field: getattr(record, field) for field in shared},
        "options": {},
        "env": name,
        "status": "ok",
        "tree": record.tree.inside,
        "tree_digest": record.tree.digest,
        "seconds": {},
        "cached": False,
        "details": {},
        **fields,
    }
    return ImageRecord(**given)
