"""What a section is made of, declared: each block names where its content comes from, and how it is shown.

A block reads a scope: the evidence, or the item of the `each` around it, which its words name as `{it.title}`. A
block without content is left out, and so is a box with only titles and words that say nothing by themselves. One
template, parts.html.j2, shows every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from tare.report.evidence import Evidence
from tare.report.words.labels import workload_title

Of = Callable[[Any], Any]
EMPTY = (str, int, list, tuple, Mapping)  # kinds of content that may be empty


class Block(NamedTuple):
    """One place of a section, of a `kind` of parts.html.j2."""

    kind: str
    # its content by the scope, or a text in which `{it}` is the scope; None where inner blocks are all of it
    of: Of | str | None = None
    look: str = ""  # a class of the page's style; the element of a title; the file of a template
    words: str = ""  # a caption or a summary; `{it}` is the scope, `{shown}` the content
    inner: tuple[Block, ...] = ()
    otherwise: str = ""  # what it says where there is no content; empty for nothing at all


class Part(NamedTuple):
    """A block with its content; `is_said`: whether that is of this study, and not words of every study alike."""

    kind: str
    shown: Any
    look: str
    words: str
    inner: tuple[Part, ...]
    is_said: bool


class OfWorkload(NamedTuple):
    """A workload as the item of an `each`."""

    evidence: Evidence
    name: str
    title: str


def resolve(block: Block, scope: Any) -> list[Part]:
    """What a page shows of a block: nothing, one part, or of an `each` those of every item."""
    shown = block.of.format(it=scope) if isinstance(block.of, str) else block.of and block.of(scope)
    if block.kind == "each":
        return [part for item in _listed(shown) for part in resolve_all(block.inner, item)]
    if block.kind == "tables":
        shown = _listed(shown)
    if block.of is not None and (shown is None or (isinstance(shown, EMPTY) and not shown)):
        if not block.otherwise:
            return []
        shown = [block.otherwise]
    inner = resolve_all(block.inner, scope)
    if block.inner and block.of is None and not any(part.is_said for part in inner):
        return []
    is_alike = block.kind in ("words", "links", "data") and isinstance(block.of, str) and "{" not in block.of
    words = block.words.format(it=scope, shown=shown)
    return [Part(block.kind, shown, block.look, words, tuple(inner), block.kind != "title" and not is_alike)]


def resolve_all(blocks: Iterable[Block], scope: Any) -> list[Part]:
    """What a page shows of blocks, in their order."""
    return [part for block in blocks for part in resolve(block, scope)]


def _listed(found: Any) -> list[Any]:
    """A list of what is there; a mapping and a named tuple are one thing."""
    if isinstance(found, (list, tuple)) and not hasattr(found, "_fields"):
        return [one for one in found if one is not None]
    return [] if found is None else [found]


words = partial(Block, "words")  # a paragraph
title = partial(Block, "title")  # a heading within a section
lines = partial(Block, "lines")  # sentences


def tables(*of: Of) -> Block:
    """Tables one below the other."""
    return Block("tables", lambda scope: [table for one in of for table in _listed(one(scope))])


def figure(of: str | Of, caption: str, look: str = "", *below: Block) -> Block:
    """A figure by its file's name, or a table in its place."""
    return Block("figure", of, look, caption, below)


def figures(name: str, caption: str, of: Of | None = None, table: str = "") -> Block:
    """A figure for each of these workloads, side by side; without a word of all.

    `table`: of the values, where no table of the page has them.
    """
    below = (Block("data", table),) if table else ()
    return box("pair", each(of or at("workloads"), figure(f"{name}_{{it}}", caption, "", *below)))


def folded(summary: str, *inner: Block, of: Of | None = None) -> Block:
    """What opens when a reader asks for it."""
    return Block("folded", of, words=summary, inner=inner)


def box(look: str, *inner: Block) -> Block:
    """Blocks that are shown together."""
    return Block("box", look=look, inner=inner)


def card(heading: str, *inner: Block) -> Block:
    """Blocks that are shown together under a title."""
    return Block("card", words=heading, inner=inner)


def each(of: Of, *inner: Block) -> Block:
    """Blocks once for every item; of one that is None, none."""
    return Block("each", of, inner=inner)


def template(name: str, of: Of) -> Block:
    """What has its own template, in which it is `it`."""
    return Block("template", of, name)


def workloads(evidence: Evidence) -> list[OfWorkload]:
    """Every workload of the study."""
    return [OfWorkload(evidence, name, workload_title(name)) for name in evidence.workloads]


def networks(evidence: Evidence) -> list[OfWorkload]:
    """Those of them that are Tare's own networks."""
    return [one for one in workloads(evidence) if one.name in evidence.networks]


def own(found: Callable[[Evidence, str], Any]) -> Of:
    """What is found of a workload."""
    return lambda it: found(it.evidence, it.name)


def at(name: str) -> Of:
    """An attribute of the item, or what a mapping has under this key."""
    return lambda it: it[name] if isinstance(it, Mapping) else getattr(it, name)


def only(test: Of) -> Of:
    """The item itself, as the one item of an `each`, if it passes a test; else none."""
    return lambda it: [it] if test(it) else []


def where(name: str) -> Of:
    """The item itself, if it has something there."""
    return only(at(name))


def unless(name: str) -> Of:
    """The item itself, if it has nothing there."""
    return only(lambda it: not at(name)(it))
