"""Members of an archive against its list, and its crate against its members."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tare.archive.checks.found import Notes
from tare.archive.checks.tree import Tree
from tare.archive.members import CRATE, INDEX
from tare.core.errors import TareError
from tare.core.files import read_json, sha256_file


def members(tree: Tree, notes: Notes) -> None:
    """Every member has the hash and the size that the list gives, and there is no other."""
    if not tree.is_archive:
        return
    if tree.index is None:
        notes.fail(INDEX, tree.index_problem or "can't be read")
        return
    listed = tree.index.members
    there = {tree.name(path) for path in tree.root.rglob("*") if path.is_file() or path.is_symlink()}
    for name in sorted(there - set(listed) - {INDEX, CRATE}):
        notes.fail(name, f"is not among the members that {INDEX} lists")
    for name, told in sorted(listed.items()):
        notes.look("members")
        path = tree.root / name
        if name not in there or path.is_symlink():
            notes.fail(name, f"is listed in {INDEX} and is not there")
        elif path.stat().st_size != told.bytes:
            notes.fail(name, f"has {path.stat().st_size:,} bytes, and {INDEX} says {told.bytes:,}")
        elif sha256_file(path) != told.sha256:
            notes.fail(name, f"has another hash than {INDEX} says")


def crate(tree: Tree, notes: Notes) -> None:
    """Every file that the crate describes is there, with the size and the hash that it says."""
    if not (tree.root / CRATE).exists():
        if tree.is_archive:
            notes.fail(CRATE, "is missing")
        return
    try:
        found = read_json(tree.root / CRATE)
    except TareError as error:
        notes.fail(CRATE, tree.plain(error))
        return
    graph = found.get("@graph") if isinstance(found, Mapping) else None
    if not isinstance(graph, list):
        notes.fail(CRATE, "has no @graph")
        return
    entities = [one for one in graph if isinstance(one, Mapping)]
    known = {one.get("@id") for one in entities}
    for needed in (CRATE, "./"):
        if needed not in known:
            notes.fail(CRATE, f"describes no {needed!r}")
    for entity in entities:
        kinds = entity.get("@type")
        if "File" in (kinds if isinstance(kinds, list) else [kinds]):
            _file(tree, notes, entity)


def _file(tree: Tree, notes: Notes, entity: Mapping[str, Any]) -> None:
    name = unquote(str(entity.get("@id", "")))
    if "://" in name or name.startswith("#"):
        return  # it names what lies elsewhere
    notes.look("files of the crate")
    path = tree.root / name
    if not _is_below(path, tree.root) or not path.is_file():
        notes.fail(name, f"is described in {CRATE} and is not there")
        return
    size, digest = entity.get("contentSize"), entity.get("sha256")
    if size is not None and str(size).split()[0] != str(path.stat().st_size):
        notes.fail(name, f"has {path.stat().st_size:,} bytes, and {CRATE} says {size}")
    if digest is not None and digest != sha256_file(path):
        notes.fail(name, f"has another hash than {CRATE} says")


def _is_below(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)
