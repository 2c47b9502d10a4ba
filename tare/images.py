"""One stack -> one tree -> one OCI image -> each environment's own form, all cached by what they are made from.

Kept in the cache: wheels, trees, bases, images and their forms. Kept in results/images/<stack>/: the records, and
links to the archive and to the files of the forms.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tare.adapters import Environment, OciImage, Prepared
from tare.base import Base, debian_base, get_base
from tare.errors import IntegrityError, TareError, UnavailableError, UserError
from tare.files import (
    cache_dir,
    canonical_json,
    locked,
    project_root,
    read_json,
    sha256_file,
    sha256_text,
    write_json,
)
from tare.interpreter import find_interpreter
from tare.oci import Layer, assemble, check_archive, write_tree_layer
from tare.progress import step
from tare.registry import environment
from tare.stacks import Stack, load_stack
from tare.tree import Tree, build_tree, load_tree
from tare.wheels import fetch_wheels

SCHEMA = 1
FORMAT = 1  # counts up when the same inputs would give another image
ARCHIVE = "image.oci.tar"

Record = dict[str, Any]


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
    parts = {"base": {"registry", "debian"}, "config": {"env", "workdir", "labels"}}
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
        "packages": [{"name": w.name, "version": w.version, "sha256": w.sha256} for w in fetched.wheels],
        "seconds": {"fetch": fetched.seconds, "tree": round(sum(tree.seconds.values()), 3), **stages},
        "cached": tree.cached,
    }
    return BuiltTree(stack=stack, tree=tree, record=record)


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
        cached = record_path.exists() and _archive_problem(read_json(record_path)) is None
        if not cached:
            record = shared | _assemble(built, base, recipe, folder)
            write_json(record_path, record)
        return read_json(record_path) | {"tree": shared["tree"], "cached": cached}


TREE_KEYS = ("key", "path", "inside", "digest", "bytes", "files", "python", "glibc")


def image_of(record: Record) -> OciImage:
    """What adapters take, from an image's record; the archive is checked.

    Raises:
        UnavailableError: there is no image on this machine; its reason is given.
        IntegrityError: the archive is gone, or is not what was assembled.
    """
    if record["status"] != "ok":
        raise UnavailableError(record["reason"])
    problem = _archive_problem(record)
    if problem:
        raise IntegrityError(
            f"{problem}; make it again with `python -m tare build-image --stack {record['stack']}`"
        )
    return OciImage(
        archive=Path(record["path"]),
        digest=record["digest"],
        image_id=record["image_id"],
        tag=record["tag"],
        layers=tuple(Path(path) for path in record["layers"]),
        tree=Path(record["tree"]["inside"]),
    )


def derive(record: Record, name: str) -> Record:
    """One environment's form of an image, from the cache or made by its adapter, as a record.

    Args:
        record: of the image (`build`).
        name: of the environment; one that is not contained gets the tree itself.

    Returns:
        A record whose status is `unavailable`, with the reason, where the environment can't have the image.

    Raises:
        UserError: no such environment.
        IntegrityError: the tree of an environment that is not contained is gone or damaged.
    """
    adapter = environment(name)
    if not adapter.contained:
        return _tree_form(record, name)
    try:
        image = image_of(record)
        with step(f"preparing {record['stack']} for {name}"):
            prepared, cached = _prepare(adapter, image, record)
    except (TareError, OSError) as error:
        return _derived(record, name, status="unavailable", reason=str(error))
    return _derived(
        record,
        name,
        reference=prepared.reference,
        path=prepared.reference if Path(prepared.reference).is_absolute() else None,
        digest=image.digest,
        image_id=image.image_id,
        python=str(image.tree / "bin" / "python3"),
        bytes=prepared.bytes,
        seconds={**record["seconds"], **{key: round(value, 3) for key, value in prepared.seconds.items()}},
        cached=cached,
        details=prepared.details,
    )


def without(record: Record, name: str, reason: str) -> Record:
    """The record of an environment whose runtime does not work here: no form is made."""
    return _derived(record, name, status="unavailable", reason=reason)


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
    adapter = environment(record["env"])
    if not adapter.contained:
        if load_tree(load_stack(record["stack"], record["variant"]), Path(record["path"]).name) is not None:
            return record
    elif adapter.is_intact(Prepared(reference=record["reference"], bytes=record["bytes"])):
        return record
    image = build(record["stack"], record["variant"])
    again = derive(image, record["env"])
    if again["status"] != "ok":
        raise UnavailableError(again["reason"])
    if again["digest"] != record["digest"]:
        raise IntegrityError(
            f"the image of {record['stack']} for {record['env']} was {record['digest']}, is now {again['digest']}"
        )
    return again


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
            labels={"tare.stack": stack.name, "tare.variant": stack.variant, "tare.tree": tree.digest},
            name=f"tare/{stack.name}",
            tree=tree.inside,
            archive=folder / ARCHIVE,
        )
        assemble_s = time.monotonic() - started
    return {
        "status": "ok",
        "reason": None,
        "key": folder.name,
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
        "seconds": {**built.record["seconds"], "base": base.seconds, "assemble": round(assemble_s, 3)},
    }


def _archive_problem(record: Record) -> str | None:
    """None when the archive is what was written; it is hashed again only if its size, time or inode changed."""
    archive = Path(record["path"])
    if not archive.exists() or not all(Path(path).exists() for path in record["layers"]):
        return f"{archive} is gone"
    return None if _stamp(archive) == record["stamp"] else check_archive(archive, record["digest"])


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _prepare(adapter: Environment, image: OciImage, record: Record) -> tuple[Prepared, bool]:
    """The adapter's form: kept from last time if its file is unchanged and the adapter finds it intact."""
    folder = cache_dir("images", record["key"], adapter.name)
    kept_path = folder.with_name(f"{adapter.name}.json")
    source = sha256_file(project_root() / "envs" / f"{adapter.name}.py")
    with locked(folder.with_name(f".{adapter.name}.lock"), waiting_for=f"{adapter.name}'s form of the image"):
        if kept_path.exists():
            kept = read_json(kept_path)
            prepared = Prepared(**kept["prepared"])
            unchanged = kept["source"] == source and kept["stamp"] == _form_stamp(prepared)
            if unchanged and adapter.is_intact(prepared):
                return prepared, True
            kept_path.unlink()
        shutil.rmtree(folder)
        folder.mkdir()
        started = time.monotonic()
        prepared = adapter.prepare(image, folder)
        seconds = prepared.seconds or {"prepare": time.monotonic() - started}
        prepared = Prepared(**{**asdict(prepared), "seconds": seconds})
        write_json(kept_path, {"source": source, "prepared": asdict(prepared), "stamp": _form_stamp(prepared)})
        return prepared, False


def _form_stamp(prepared: Prepared) -> list[int] | None:
    """Inode, size and time of a form that is a file; None for those that a daemon keeps and for folders."""
    path = Path(prepared.reference)
    return _stamp(path) if path.is_absolute() and path.is_file() else None


def _tree_form(record: Record, name: str) -> Record:
    """The record of an environment that is not contained: the tree itself, content checked."""
    tree = record["tree"]
    path = Path(tree["path"])
    if load_tree(load_stack(record["stack"], record["variant"]), tree["key"]) is None:
        raise IntegrityError(
            f"the tree {path} is gone or damaged; make it again with "
            f"`python -m tare build-image --stack {record['stack']} --out FILE`"
        )
    size = sum(
        (Path(folder) / file).lstat().st_blocks * 512 for folder, _, files in os.walk(path) for file in files
    )
    seconds = {key: value for key, value in record["seconds"].items() if key == "fetch" or key.startswith("tree")}
    return _derived(
        record,
        name,
        reference=str(path),
        path=str(path),
        digest=tree["digest"],
        python=str(path / "bin" / "python3"),
        bytes=size,
        seconds=seconds,
        cached=record["cached"],
    )


def _derived(record: Record, name: str, **fields: Any) -> Record:
    """A record of one environment; what `fields` leave out is None, as for one that is unavailable."""
    empty: Mapping[str, Any] = dict.fromkeys(
        ("reason", "reference", "path", "digest", "image_id", "python", "bytes", "base"), None
    )
    return {
        **empty,
        "schema": SCHEMA,
        "stack": record["stack"],
        "variant": record["variant"],
        "env": name,
        "status": "ok",
        "tree": record["tree"]["inside"],
        "tree_digest": record["tree"]["digest"],
        "base": record.get("base"),
        "packages": record["packages"],
        "key": record.get("key"),
        "seconds": {},
        "cached": False,
        "details": {},
        **fields,
    }
