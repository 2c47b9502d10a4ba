"""Members of an archive against its list, and its crate against its members."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tare import __version__
from tare.archive import crate as writer
from tare.archive.checks.found import Notes
from tare.archive.checks.tree import Tree
from tare.archive.members import CRATE, INDEX, Index, Member, belongs
from tare.core.errors import TareError
from tare.core.files import read_json, sha256_file
from tare.model.studies.machines import are_several


def members(tree: Tree, notes: Notes) -> None:
    """Every member has the hash and the size that the list gives, and is where an archive of the study has files;
    there is no other; study and machines are those that were measured."""
    if not tree.is_archive:
        return
    if tree.index is None:
        notes.fail(INDEX, tree.index_problem or "can't be read")
        return
    listed = tree.index.members
    there = {tree.name(path) for path in tree.root.rglob("*") if path.is_file() or path.is_symlink()}
    for name in sorted({*there, *tree.left_out} - set(listed) - {INDEX, CRATE}):
        notes.fail(name, f"is not among the members that {INDEX} lists")
    for name, member in sorted(listed.items()):
        notes.look("members")
        path = tree.root / name
        if name not in there or path.is_symlink():
            notes.fail(name, f"is listed in {INDEX} and is not there")
        elif path.stat().st_size != member.bytes:
            notes.fail(name, f"has {path.stat().st_size:,} bytes, and {INDEX} says {member.bytes:,}")
        elif sha256_file(path) != member.sha256:
            notes.fail(name, f"has another hash than {INDEX} says")
    asked = next((one.asked for one in tree.measured if one.study == tree.index.study), None)
    several = are_several(asked.machines) if asked is not None else None
    place = belongs(tree.index.study, tree.index.machines, several=several)
    for name in sorted(listed):
        if place.fullmatch(name) is None:
            notes.fail(name, "is at a place where an archive of this study has no file")
    measured = {f"{one.study} on {one.machine}" for one in tree.measured if one.campaigns}
    named = {f"{tree.index.study} on {machine}" for machine in tree.index.machines}
    if measured != named:
        of_index, of_campaigns = (", ".join(sorted(names)) or "nothing" for names in (named, measured))
        notes.fail(INDEX, f"is of {of_index}, and the campaigns are of {of_campaigns}")


def crate(tree: Tree, notes: Notes) -> None:
    """Every file that the crate describes is there, with the size and the hash that it says; all else that it says
    follows from the records."""
    if not (tree.root / CRATE).exists():
        if tree.is_archive and (tree.index is None or tree.index.machines):  # that of a reference has none
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
    if tree.index is not None:
        _written_again(tree, tree.index, found, notes)


def _written_again(tree: Tree, index: Index, found: Mapping[str, Any], notes: Notes) -> None:
    """Compare the crate with the one that the records give."""
    if index.tare != __version__:
        notes.leave(CRATE, f"was written by Tare {index.tare}, and {__version__} checks")
        return
    own = [one for one in tree.measured if one.study == index.study and one.campaigns]
    asked = own[0].asked if own else None
    if asked is None:
        notes.leave(CRATE, f"can't be written again: no study {index.study} is here")
        return
    path = tree.root / INDEX
    listed = {**index.members, INDEX: Member(sha256=sha256_file(path), bytes=path.stat().st_size)}
    try:
        with contextlib.chdir(tree.root):
            campaigns = writer.campaigns_of(index.study, [one.machine for one in own])
            if not any(one.sealed for one in campaigns):
                notes.leave(CRATE, "can't be written again: no campaign is sealed")
                return
            made = json.loads(writer.text(asked, campaigns, listed))
    except TareError as error:
        notes.leave(CRATE, f"can't be written again: {tree.plain(error)}")
        return
    one, other = (
        {str(entity.get("@id")): entity for entity in graph["@graph"] if isinstance(entity, Mapping)}
        for graph in (found, made)
    )
    wrong = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    if wrong:
        rest = f", and of {len(wrong) - 1} more" if wrong[1:] else ""
        notes.fail(CRATE, f"says of {wrong[0]!r} what the records do not give{rest}")
    elif found != made:
        notes.fail(CRATE, "has another context, or describes something twice")


def _file(tree: Tree, notes: Notes, entity: Mapping[str, Any]) -> None:
    name = unquote(str(entity.get("@id", "")))
    if "://" in name or name.startswith("#"):
        return  # it names what is elsewhere
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
