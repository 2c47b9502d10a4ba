"""One stack -> one tree -> one OCI image -> each environment's own form, all cached by what they are made from.

Kept in the cache: wheels, trees, bases, images and their forms. Kept in results/images/<stack>/: the records, and
links to the archive and to the files of the forms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import cache_dir
from tare.core.manifest import allocated_bytes, manifest_digest
from tare.images import installed, native, official, runtime_forms, staging
from tare.images.base import Base, debian_base, get_base, load_recipe
from tare.images.interpreter import bring_libraries, with_interpreter
from tare.images.oci import FolderLayer, assemble
from tare.images.runtime_forms import (
    NO_OPTIONS,
    base_fields,
    contained_form,
    form_record,
    is_there,
    keep_image,
    missing_record,
)
from tare.images.storage import measure_storage
from tare.images.tree import Tree, build_tree, load_tree
from tare.images.wheels import fetch_fitting, packages_of
from tare.model.records.images import ImageRecord, OciRecord, TreeFacts, TreeRecord
from tare.model.registry import environment
from tare.model.studies.stacks import BOUND, Stack, load_stack

# Folders of the cache that hold entries which images are made from, and images.
STORES = ("base", "guest", "headers", "images", "libraries", "native", "trees", "wheels")
FORMAT = 3  # counts up when the same inputs would give another image
SHARED = ("stack", "variant", "status", "reason", "packages", "seconds", "cached")  # of trees and images


@dataclass(frozen=True, kw_only=True)
class BuiltTree:
    """A stack's tree on this machine, and its record."""

    stack: Stack
    tree: Tree
    record: TreeRecord


def clear_unfinished() -> None:
    """Remove from the cache what builds of images left that were killed, several GB each."""
    cache = cache_dir()
    store.clear_unfinished(*(cache / name for name in STORES), *sorted((cache / "forms").glob("*/")))


def build_stack_tree(name: str, variant: str) -> BuiltTree:
    """A stack's tree of its wheels, from the cache or built; UnavailableError, or IntegrityError by hash."""
    stack = load_stack(name, variant)
    if stack.official is not None:
        raise UnavailableError(_no_tree(name))
    # The interpreter comes before a long download that would be for nothing.
    stack, interpreter = with_interpreter(stack)
    bring_libraries(stack)
    stack, fetched = fetch_fitting(stack)
    tree = build_tree(stack, fetched.wheels, interpreter)
    stages = {f"tree_{stage}": value for stage, value in tree.seconds.items()}
    record = TreeRecord(
        stack=stack.name,
        variant=stack.variant,
        status="ok",
        reason=None,
        packages=packages_of(fetched.wheels),
        seconds={"fetch": fetched.seconds, "tree": round(sum(tree.seconds.values()), 3), **stages},
        cached=tree.cached,
        interpreter=str(interpreter.executable),
        wheel_bytes=sum(wheel.path.stat().st_size for wheel in fetched.wheels),
        **_facts(tree).to_json(),
    )
    return BuiltTree(stack=stack, tree=tree, record=record)


def _facts(tree: Tree) -> TreeFacts:
    return TreeFacts(
        key=tree.key,
        path=str(tree.path),
        inside=str(tree.inside),
        digest=tree.digest,
        bytes=tree.size_bytes,
        files=len(tree.entries),
        python=tree.python,
        glibc=".".join(map(str, tree.glibc)),
        library=tree.library,
    )


def _no_tree(name: str) -> str:
    return f"{name} is an official image: interpreter and packages are in it, where containers alone run them"


def missing_tree(name: str, variant: str, reason: str) -> TreeRecord:
    """The record of a tree that this machine can't have; `reason` says what would provide it."""
    image = missing_image(name, variant, reason)
    return TreeRecord(**{field: getattr(image, field) for field in SHARED})


def missing_image(name: str, variant: str, reason: str) -> OciRecord:
    """The record of the image of a stack that this machine can't have."""
    stack = load_stack(name, variant)
    return missing_record(stack.name, stack.variant, f"the stack {name}: {reason}")


def build(name: str, variant: str, *, assembled: bool = True) -> OciRecord:
    """The image of a stack, from the cache or assembled, as a record; `image_of` makes the adapters' view of it.

    Its status is `unavailable` where no base can be had, or only the host is wanted and it is not `assembled`.
    Raises UnavailableError where the tree can't be built, IntegrityError by hash.
    """
    chosen = load_stack(name, variant)
    if chosen.official is not None:
        return official.build(chosen, load_recipe())
    built = build_stack_tree(name, variant)
    stack, tree, recipe = built.stack, built.tree, load_recipe()
    shared = {name: getattr(built.record, name) for name in ("stack", "variant", "packages")} | {
        "tree": _facts(tree)
    }
    try:
        if not assembled:
            raise UnavailableError(f"the stack {name} runs on the host alone here: no image was made of its tree")
        base = base_for(tree, recipe)
    except UnavailableError as error:
        return missing_record(**shared, reason=str(error), seconds=built.record.seconds)

    def make(folder: Path) -> dict[str, Any]:
        started = time.monotonic()
        image = assemble_tree(stack, tree.path, tree.entries, base, recipe, folder)
        own = {"base": base.seconds, "assemble": round(time.monotonic() - started, 3)}
        return {"image": image, "base": base_fields(base), "seconds": {**built.record.seconds, **own}}

    digests = [layer.digest for layer in base.layers]
    inputs = [FORMAT, recipe["config"], digests, stack.variant, tree.digest, str(tree.inside)]
    kept, fields = keep_image(inputs, f"assembling the image of {stack.name} ({stack.variant})", make)
    return OciRecord(
        **shared, **fields, seconds=kept.about["seconds"], storage=measure_storage([kept.path], tree.path)
    )


def assemble_tree(
    stack: Stack, root: Path, entries: Sequence[dict[str, Any]], base: Base, recipe: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Write the archive of base and tree into a folder, by containers/recipe.yaml; what `oci.assemble` says."""
    digest = manifest_digest(entries)
    return assemble(
        [*base.layers, FolderLayer(root=root, entries=entries, inside=stack.inside, made_by=f"tree {digest}")],
        config=recipe["config"],
        labels={"tare.stack": stack.name, "tare.variant": stack.variant, "tare.images.tree": digest},
        name=f"tare/{stack.name}",
        folder=folder,
    )


def of_tree(record: TreeRecord) -> OciRecord:
    """What environments without an image derive their form from: a stack's tree, whether it has an image or not."""
    tree = TreeFacts(**{name: getattr(record, name) for name in TreeFacts.model_fields})
    return OciRecord(**{name: getattr(record, name) for name in SHARED}, tree=tree)


def derive(record: OciRecord, name: str, options: Mapping[str, str] = NO_OPTIONS) -> ImageRecord:
    """One environment's form of an image, from the cache or made by its adapter, as a record.

    One that is not contained gets the tree itself. `options`: levels of the adapter's factors. The status is
    `unavailable`, with the reason, where it can't have the image. Raises UserError for an unknown environment,
    IntegrityError where the tree is gone or damaged.
    """
    if record.install == BOUND:
        return installed.derive(record, name)
    adapter = environment(name)
    return contained_form(record, adapter, options) if adapter.contained else _tree_form(record, name, options)


def without(record: OciRecord, name: str, reason: str, options: Mapping[str, str] = NO_OPTIONS) -> ImageRecord:
    """The record of an environment whose runtime does not work here: no form is made."""
    return form_record(record, name, options=options, status="unavailable", reason=reason)


def ensure(record: ImageRecord) -> ImageRecord:
    """The form of a record, derived again if gone, and copied to this node where a study says so. Raises
    UnavailableError, or IntegrityError for another image.
    """
    if record.status != "ok":
        raise UnavailableError(record.reason or f"{record.env} has no image")
    if _is_there(record):
        return staging.place(record)
    adapter = environment(record.env)
    if adapter.contained and (loaded := runtime_forms.again(record, adapter)):
        return staging.place(loaded)
    if record.install == BOUND:
        again = installed.again(record)
    elif record.install == "native":
        again = native.derive(record.stack, record.variant, adapter, load_recipe())
    else:
        again = derive(build(record.stack, record.variant), record.env, record.options)
    if again.status != "ok":
        raise UnavailableError(again.reason or f"{record.env} has no image")
    if again.digest != record.digest:
        raise IntegrityError(
            f"the image of {record.stack} for {record.env} was {record.digest}, is now {again.digest}"
        )
    return staging.place(again.replace(isolates_network=record.isolates_network))


def _is_there(record: ImageRecord) -> bool:
    adapter = environment(record.env)
    if record.install == BOUND:
        installed.check(record)
        if not adapter.contained:
            return True
    if adapter.contained:
        return is_there(record, adapter)
    key = Path(record.path or "").name
    if record.install == "native":
        return native.find(key) is not None
    return load_tree(load_stack(record.stack, record.variant), key) is not None


def link_into(folder: Path, record: OciRecord | ImageRecord) -> None:
    """Show a record's file next to the record: a link into the cache, which costs no space."""
    if record.status != "ok" or record.path is None or not Path(record.path).is_file():
        return
    source = Path(record.path)
    link = folder / source.name
    folder.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(source)


def base_for(tree: Tree, recipe: dict[str, Any]) -> Base:
    """The base below a tree, by the recipe. Raises UnavailableError where none can be had."""
    return _fitting_base(get_base(recipe["base"]), tree, recipe["base"])


def _fitting_base(base: Base, tree: Tree, recipe: dict[str, Any]) -> Base:
    """A base whose C library is too old for the host's interpreter gives way to the host's own release."""
    if base.glibc >= tree.glibc or base.kind == "debian":
        return base
    needs, has = (".".join(map(str, version)) for version in (tree.glibc, base.glibc))
    reason = f"{base.name} has glibc {has or 'none'}, and this machine's interpreter needs {needs}"
    return debian_base(recipe["debian"], reason)


def _tree_form(record: OciRecord, name: str, options: Mapping[str, str]) -> ImageRecord:
    """The record of an environment that is not contained: the tree itself, content checked."""
    tree = record.tree
    if tree.path is None or tree.key is None:
        reason = record.reason or _no_tree(record.stack)
        return form_record(record, name, options=options, status="unavailable", reason=reason)
    kept = load_tree(load_stack(record.stack, record.variant), tree.key)
    if kept is None or kept.digest != tree.digest:
        raise IntegrityError(
            f"the tree {tree.path} is gone or damaged; make it again with "
            f"`python -m tare build-image --stack {record.stack} --out FILE`"
        )
    path = kept.path  # in this user's cache, wherever the image's record came from
    seconds = {key: value for key, value in record.seconds.items() if key == "fetch" or key.startswith("tree")}
    return form_record(
        record,
        name,
        options=options,
        reference=str(path),
        path=str(path),
        digest=tree.digest,
        python=str(path / "bin" / "python3"),
        bytes=allocated_bytes(path),
        seconds=seconds,
        cached=record.cached,
        storage=measure_storage([path], path),
    )
