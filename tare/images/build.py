"""One stack -> one tree -> one OCI image -> each environment's own form, all cached by what they are made from.

Kept in the cache: wheels, trees, bases, images and their forms. Kept in results/images/<stack>/: the records, and
links to the archive and to the files of the forms.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import cache_dir, canonical_json, locked, project_root, read_json, sha256_text, write_json
from tare.core.manifest import allocated_bytes
from tare.core.progress import step
from tare.images import installed, native
from tare.images.base import Base, debian_base, get_base
from tare.images.interpreter import find_interpreter
from tare.images.oci import Layer, assemble, write_tree_layer
from tare.images.runtime_forms import (
    ARCHIVE,
    NO_OPTIONS,
    SCHEMA,
    Record,
    archive_problem,
    contained_form,
    form_record,
    image_fields,
    image_of,
)
from tare.images.storage import measure_storage
from tare.images.tree import Tree, build_tree, load_tree
from tare.images.wheels import fetch_wheels
from tare.model.environment import Prepared
from tare.model.registry import environment
from tare.model.stacks import Stack, load_stack

__all__ = ["image_of"]
FORMAT = 1  # counts up when the same inputs would give another image


@dataclass(frozen=True, kw_only=True)
class BuiltTree:
    """A stack's tree on this machine, and its record."""

    stack: Stack
    tree: Tree
    record: Record


def load_recipe(path: Path | None = None) -> Record:
    """Read containers/recipe.yaml.

    Raises:
        UserError: it can't be read, or lacks one of its parts.
    """
    path = path or project_root() / "containers" / "recipe.yaml"
    try:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    parts = {
        "base": {"registry", "debian"},
        "native": {"packages"},
        "config": {"env", "workdir", "labels"},
    }
    for part, keys in parts.items():
        if not isinstance(recipe, dict) or not keys <= set(recipe.get(part) or {}):
            raise UserError(f"{path}: {part!r} needs {', '.join(sorted(keys))}")
    return recipe


def build_stack_tree(name: str, variant: str = "auto") -> BuiltTree:
    """Fetch a stack's wheels and build its tree, or take both from the cache.

    Raises:
        UnavailableError: no interpreter or no wheels on this machine.
        IntegrityError: something fetched is not what its hash says.
    """
    stack = load_stack(name, variant)
    interpreter = find_interpreter(stack.python)  # before a long download that would be for nothing
    fetched = fetch_wheels(stack)
    tree = build_tree(stack, fetched.wheels, interpreter)
    stages = {f"tree_{stage}": value for stage, value in tree.seconds.items()}
    record = {
        "schema": SCHEMA,
        "stack": stack.name,
        "variant": stack.variant,
        "status": "ok",
        "reason": None,
        "key": tree.key,
        "path": str(tree.path),
        "inside": str(tree.inside),
        "digest": tree.digest,
        "bytes": tree.size_bytes,
        "files": len(tree.entries),
        "python": tree.python,
        "interpreter": str(interpreter.executable),
        "glibc": ".".join(map(str, tree.glibc)),
        "wheel_bytes": sum(wheel.path.stat().st_size for wheel in fetched.wheels),
        "packages": [{"name": w.name, "version": w.version, "sha256": w.sha256} for w in fetched.wheels],
        "seconds": {"fetch": fetched.seconds, "tree": round(sum(tree.seconds.values()), 3), **stages},
        "cached": tree.cached,
    }
    return BuiltTree(stack=stack, tree=tree, record=record)


def missing_stack(name: str, variant: str, reason: str) -> Record:
    """The record of tree and image of a stack that this machine can't have; `reason` says what would provide it."""
    stack = load_stack(name, variant)
    return {
        "schema": SCHEMA,
        "stack": stack.name,
        "variant": stack.variant,
        "status": "unavailable",
        "reason": f"the stack {name}: {reason}",
        "packages": [],
        "seconds": {},
        "tree": dict.fromkeys(TREE_KEYS),
        "cached": False,
    }


def build(name: str, variant: str = "auto") -> Record:
    """The image of a stack, from the cache or assembled, as a record; `image_of` makes the adapters' view of it.

    A machine where no base image can be had gets a record with status `unavailable`: its host is still measured.

    Raises:
        UnavailableError: the tree can't be built.
        IntegrityError: something fetched is not what its hash says.
    """
    built = build_stack_tree(name, variant)
    recipe = load_recipe()
    shared = {key: built.record[key] for key in ("schema", "stack", "variant", "packages", "seconds")}
    shared |= {"tree": {key: built.record[key] for key in TREE_KEYS}}
    try:
        base = _fitting_base(get_base(recipe["base"]), built.tree, recipe["base"])
    except UnavailableError as error:
        return shared | {"status": "unavailable", "reason": str(error), "cached": False}
    parts = [FORMAT, recipe["config"], base.digests, built.stack.variant, built.tree.digest, str(built.tree.inside)]
    folder = cache_dir("images", sha256_text(canonical_json(parts))[:32])
    record_path = folder / "image.json"
    with locked(folder / ".lock", waiting_for=f"the image of {name}"):
        cached = record_path.exists() and archive_problem(read_json(record_path)) is None
        if not cached:
            record = shared | _assemble(built, base, recipe, folder)
            write_json(record_path, record)
        record = read_json(record_path) | {"tree": shared["tree"], "cached": cached}
    places = [Path(record["path"]), *map(Path, record["layers"])]
    return record | {"storage": measure_storage(places, built.tree.path)}


TREE_KEYS = ("key", "path", "inside", "digest", "bytes", "files", "python", "glibc")


def derive(record: Record, name: str, options: Mapping[str, str] = NO_OPTIONS) -> Record:
    """One environment's form of an image, from the cache or made by its adapter, as a record.

    Args:
        record: of the image (`build`).
        name: of the environment; one that is not contained gets the tree itself.
        options: levels of the adapter's factors, under which the form will be launched.

    Returns:
        A record whose status is `unavailable`, with the reason, where the environment can't have the image.

    Raises:
        UserError: no such environment.
        IntegrityError: the tree of an environment that is not contained is gone or damaged.
    """
    if record.get("install") == installed.STACK:
        return installed.derive(record, name)
    adapter = environment(name)
    return contained_form(record, adapter, options) if adapter.contained else _tree_form(record, name, options)


def without(record: Record, name: str, reason: str, options: Mapping[str, str] = NO_OPTIONS) -> Record:
    """The record of an environment whose runtime does not work here: no form is made."""
    return form_record(record, name, options=options, status="unavailable", reason=reason)


def ensure(record: Record) -> Record:
    """Before a launch: the form of a record is there, or is derived again from the archive.

    Args:
        record: of one environment (`derive`).

    Raises:
        UnavailableError: it can't be had again; the reason is given.
        IntegrityError: what can be had again is another image.
    """
    if record["status"] != "ok":
        raise UnavailableError(record["reason"])
    if _is_there(record):
        return record
    if record.get("install") == installed.STACK:
        again = installed.again(record)
    elif record.get("install") == "native":
        again = native.derive(record["stack"], record["variant"], environment(record["env"]), load_recipe())
    else:
        image = build(record["stack"], record["variant"])
        again = derive(image, record["env"], record.get("options", NO_OPTIONS))
    if again["status"] != "ok":
        raise UnavailableError(again["reason"])
    if again["digest"] != record["digest"]:
        raise IntegrityError(
            f"the image of {record['stack']} for {record['env']} was {record['digest']}, is now {again['digest']}"
        )
    return again | {key: record[key] for key in ("isolates_network",) if key in record}


def _is_there(record: Record) -> bool:
    adapter = environment(record["env"])
    if record.get("install") == installed.STACK:
        installed.check(record)
        if not adapter.contained:
            return True
    if adapter.contained:
        return adapter.is_intact(Prepared(reference=record["reference"], bytes=record["bytes"]))
    if record.get("install") == "native":
        return native.is_intact(record)
    return load_tree(load_stack(record["stack"], record["variant"]), Path(record["path"]).name) is not None


def link_into(folder: Path, record: Record) -> None:
    """Show a record's file beside the record: a link into the cache, which costs no space."""
    if record["status"] != "ok" or not record.get("path") or not Path(record["path"]).is_file():
        return
    source = Path(record["path"])
    link = folder / source.name
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(source)


def _fitting_base(base: Base, tree: Tree, recipe: Record) -> Base:
    """A base whose C library is too old for the host's interpreter gives way to the host's own release."""
    if base.glibc >= tree.glibc or base.kind == "debian":
        return base
    needs, has = (".".join(map(str, version)) for version in (tree.glibc, base.glibc))
    reason = f"{base.name} has glibc {has or 'none'}, and this machine's interpreter needs {needs}"
    return debian_base(recipe["debian"], reason)


def _assemble(built: BuiltTree, base: Base, recipe: Record, folder: Path) -> Record:
    """Write the layer and the archive; what they add to the record."""
    stack, tree = built.stack, built.tree
    with step(f"assembling the image of {stack.name} ({stack.variant})"):
        started = time.monotonic()
        layers = [
            Layer(path=path, digest=digest, made_by=f"base {base.name}")
            for path, digest in zip(base.layers, base.digests, strict=True)
        ]
        layers.append(write_tree_layer(tree, folder / "tree.tar"))
        image = assemble(
            layers,
            config=recipe["config"],
            labels={"tare.stack": stack.name, "tare.variant": stack.variant, "tare.images.tree": tree.digest},
            name=f"tare/{stack.name}",
            tree=tree.inside,
            archive=folder / ARCHIVE,
        )
        assemble_s = time.monotonic() - started
    seconds = {**built.record["seconds"], "base": base.seconds, "assemble": round(assemble_s, 3)}
    return {**image_fields(image, base, folder.name), "seconds": seconds}


def _tree_form(record: Record, name: str, options: Mapping[str, str]) -> Record:
    """The record of an environment that is not contained: the tree itself, content checked."""
    tree = record["tree"]
    if tree["path"] is None:
        return form_record(record, name, options=options, status="unavailable", reason=record["reason"])
    path = Path(tree["path"])
    if load_tree(load_stack(record["stack"], record["variant"]), tree["key"]) is None:
        raise IntegrityError(
            f"the tree {path} is gone or damaged; make it again with "
            f"`python -m tare build-image --stack {record['stack']} --out FILE`"
        )
    seconds = {key: value for key, value in record["seconds"].items() if key == "fetch" or key.startswith("tree")}
    return form_record(
        record,
        name,
        options=options,
        reference=str(path),
        path=str(path),
        digest=tree["digest"],
        python=str(path / "bin" / "python3"),
        bytes=allocated_bytes(path),
        seconds=seconds,
        cached=record["cached"],
        storage=measure_storage([path], path),
    )
