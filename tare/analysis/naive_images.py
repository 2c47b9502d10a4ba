"""What an image of a naive Dockerfile costs beside ours: the record of both to rows of the table of image costs.

Items begin with whose image it is: `naive_` or `ours_`. Rows of a runtime's own form have its environment, the
others that of the image. Rows of the definition file have Apptainer's, and begin with `naive_def_` and the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tare.model.records.naive_image import (
    DefinitionBuild,
    DefinitionBuilds,
    FormCost,
    MadeImage,
    NaiveImageRecord,
)
from tare.model.rows import measured, modelled, unavailable

CAMPAIGN = "naive"  # of these rows
IMAGE = "oci"  # the environment of rows of an image itself
WHOSE = ("naive", "ours")
MADE_ONCE = "made once, in the same run as the other"
# By item without whose it is: what it is, for people.
ITEMS = {
    "steps": "steps of the recipe",
    "build_s": "build, nothing cached",
    "load_s": "load into Docker",
    "build_cached_s": "build again, all cached",
    "build_code_s": "build again, code changed",
    "layers": "layers",
    "image_bytes": "size of its layers",
    "push_bytes": "push or pull, all of it",
    "push_stack_bytes": "push or pull, other stack",
    "push_code_bytes": "push or pull, code changed",
    "convert_s": "convert",
    "disk_bytes": "on this disk",
}
# Ways to be root in %post of a definition file, for people.
WAYS = {
    "root": "as root outright",
    "fakeroot": "with --fakeroot",
    "namespace": "in a user's own namespace",
}
DEFINED = "naive_def_"  # begins the items of the definition file
DEFINED_IN = "apptainer"  # the environment of rows of the definition file
OF_DEFINITIONS = ("build_s", "archive_bytes", "disk_bytes")
OF_FORMS = ("convert_s", "disk_bytes")
UNITS = {"_bytes": "B", "_s": "s", "steps": "1", "layers": "1"}
WITHOUT_CODE = "no layer: a launch binds the code, and no image holds it"


def rows(record: NaiveImageRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    """Environment and row of everything that the record says; of what is unavailable, its reason."""
    yield from _image_rows(record)
    if record.definition is not None:
        for one in record.definition.builds:
            yield from ((DEFINED_IN, row) for row in _definition_rows(one, record.definition))


def defined(way: str, item: str) -> str:
    """Name of an item of the definition file, built one way."""
    return f"{DEFINED}{way}_{item}"


def _definition_rows(one: DefinitionBuild, whole: DefinitionBuilds) -> Iterator[dict[str, Any]]:
    builder = f"made once, in the same run as the Dockerfile's: {whole.builder} build, {WAYS[one.way]}"
    values = (one.seconds, one.bytes, one.disk_bytes)
    sources = (builder, "the .sif itself, one file", "allocated blocks of the .sif")
    for name, value, source in zip(OF_DEFINITIONS, values, sources, strict=True):
        item = defined(one.way, name)
        if value is not None:
            yield _has(item, value, source)
        else:
            yield _lacks(item, "record of the naive image", one.reason)


def _image_rows(record: NaiveImageRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    if record.status != "ok" or record.naive is None or record.ours is None:
        for whose in WHOSE:
            for item in ("build_s", "push_bytes"):
                yield IMAGE, _lacks(f"{whose}_{item}", "record of the naive image", record.reason)
        return
    how = f"bytes of its layers by {record.compression}, as a registry keeps them"
    builder = f"{MADE_ONCE}: {record.builder}"
    yield IMAGE, _has("naive_steps", record.steps or 0, "the builder's own count")
    yield from _naive_seconds(record.naive, builder)
    took = record.ours.seconds
    yield IMAGE, _has("ours_build_s", took["tree"] + took["assemble"], f"{MADE_ONCE}: tree and image, no daemon")
    if "load" in took:
        yield IMAGE, _has("ours_load_s", took["load"], f"{MADE_ONCE}: docker load")
    for whose, image in ((WHOSE[0], record.naive), (WHOSE[1], record.ours)):
        yield IMAGE, _has(f"{whose}_layers", len(image.layers), "the image's history")
        size = sum(layer.bytes for layer in image.layers)
        yield IMAGE, _has(f"{whose}_image_bytes", size, "sum of its layers' tars, not compressed")
        yield IMAGE, _has(f"{whose}_push_bytes", _gzip_bytes(image, range(len(image.layers))), how)
        stack = _gzip_bytes(image, image.new_with_stack)
        yield IMAGE, _modelled(f"{whose}_push_stack_bytes", stack, f"{how}: those from the packages on")
        yield IMAGE, _code_row(whose, image, how)
        for env, form in image.forms.items():
            yield from ((env, row) for row in _form_rows(whose, form))


def _naive_seconds(image: MadeImage, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for stage in ("build", "build_cached", "build_code"):
        yield IMAGE, _has(f"naive_{stage}_s", image.seconds[stage], source)


def _code_row(whose: str, image: MadeImage, how: str) -> dict[str, Any]:
    item, size = f"{whose}_push_code_bytes", _gzip_bytes(image, image.new_with_code)
    if not image.new_with_code:
        return _modelled(item, size, WITHOUT_CODE)
    return _has(item, size, f"{how}: those that a build with another line of code made anew")


def _form_rows(whose: str, form: FormCost) -> Iterator[dict[str, Any]]:
    found = {"convert_s": (form.seconds, MADE_ONCE), "disk_bytes": (form.disk_bytes, "allocated blocks")}
    for item, (value, source) in found.items():
        if value is not None:
            yield _has(f"{whose}_{item}", value, source)
        elif form.reason is not None:
            yield _lacks(f"{whose}_{item}", source, form.reason)


def _gzip_bytes(image: MadeImage, indices: Sequence[int]) -> int:
    return sum(image.layers[index].gzip_bytes for index in indices)


def unit_of(item: str) -> str:
    """Unit of an item, by the end of its name."""
    return next(unit for end, unit in UNITS.items() if item.endswith(end))


def _has(item: str, value: float, source: str) -> dict[str, Any]:
    return _named(measured(item, value, unit_of(item), source))


def _modelled(item: str, value: float, source: str) -> dict[str, Any]:
    return _named(modelled(item, value, unit_of(item), source))


def _lacks(item: str, source: str, reason: str | None) -> dict[str, Any]:
    return _named(unavailable(item, unit_of(item), source, reason or ""))


def _named(row: dict[str, Any]) -> dict[str, Any]:
    return {"item": row.pop("metric"), **row}
