"""The search over all pages of a report: what stands where, as one page that needs nothing but itself.

Every text that a reader sees on the other pages is an entry, with the page and the heading it stands under. Another
page asks by its form's query string, which works from disk as from a server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

BLOCKS = ("h1", "h2", "h3", "h4", "p", "li", "caption", "summary", "dd", "th", "td", "figcaption")
HEADINGS = ("h1", "h2", "h3", "h4")
SILENT = ("style", "script", "svg", "nav", "footer")
# Most of a page's bytes are drawings, which a parser in Python takes seconds for. None stands inside another.
DRAWN = re.compile(r"<(svg|style|script)\b.*?</\1>", re.DOTALL)
VOID = ("meta", "link", "input", "br", "hr", "img")
APART = ("br", "span", "div")  # what stands on a line of its own
LONGEST = 220  # characters of an entry
SHORTEST = 3

Entry = tuple[str, str, str, str]  # page, anchor, heading, text


class _Texts(HTMLParser):
    """The texts of a page, in order, each with the anchor and the heading above it."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, str, str]] = []
        self._anchor, self._heading = "", ""
        self._open: list[str] = []
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in APART:
            self._text.append(" ")
        if tag in VOID:
            return
        if tag in BLOCKS:
            self._flush()
        self._open.append(tag)
        if tag == "section":
            self._anchor = dict(attrs).get("id") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self._flush(tag)
        while self._open and self._open.pop() != tag:  # what was left open ends with what holds it
            pass

    def handle_data(self, data: str) -> None:
        if not any(tag in SILENT for tag in self._open) and any(tag in BLOCKS for tag in self._open):
            self._text.append(data)

    def _flush(self, tag: str | None = None) -> None:
        text, self._text = " ".join("".join(self._text).split()), []
        if len(text) < SHORTEST:
            return
        if tag in HEADINGS:
            self._heading = text
        if len(text) > LONGEST:
            text = f"{text[:LONGEST].rpartition(' ')[0]} …"
        self.found.append((self._anchor, self._heading, text))


def entries(pages: Mapping[str, str]) -> list[Entry]:
    """Every text of pages, HTML by file name, in order; one that a section repeats is once."""
    found: dict[Entry, None] = {}
    for file, html in pages.items():
        texts = _Texts()
        texts.feed(DRAWN.sub("", html))
        texts.close()
        found |= dict.fromkeys((file, anchor, heading, text) for anchor, heading, text in texts.found)
    return list(found)


def as_data(found: list[Entry]) -> str:
    """Entries as JSON that can stand in a script element, whatever their texts hold."""
    files = list(dict.fromkeys(file for file, *_ in found))
    places = list(dict.fromkeys(entry[:3] for entry in found))
    number = {place: at for at, place in enumerate(places)}
    data = {
        "places": [[files.index(file), anchor, heading] for file, anchor, heading in places],
        "files": files,
        "texts": [[number[entry[:3]], entry[3]] for entry in found],
    }
    return in_script(data)


def in_script(data: Any) -> str:
    """JSON that can stand in a script element, whatever its texts hold."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def source_hash(script: str) -> str:
    """A script as a content-security policy names it: 'sha256-…' of its UTF-8 bytes."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
