"""What a table of the page is made of, and facts of any shape as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from markupsafe import Markup

from tare.report.words.labels import env_title
from tare.report.words.quantities import prefixed, seconds, size_bytes
from tare.report.words.wording import missing

UNAVAILABLE = "unavailable"
PROGRAMS = ("apt-get", "chmod", "export", "make", "modprobe", "python", "sh", "sysctl", "systemctl")  # of remedies
QUANTITY = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|min|h|B|kB|MB|GB)\b)|(?<= min) (?=\d)")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell with a second line, or one that spans columns."""

    text: str
    below: str = ""
    span: int = 1


# By the end of a fact's name.
UNITS: dict[str, Callable[[float], str]] = {
    "_bytes": size_bytes, "_s": seconds, "_hz": partial(prefixed, unit="Hz"), "_w": "{:g} W".format,
}  # fmt: skip
One = TypeVar("One")
Row = list[str | Cell | None]
Reader = Callable[[Any], str | Cell | None]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for people: a row's first cell is its head, None is shown as a dash.

    `numeric`: whether all columns but the first are numbers, to be set right; `wide`: whether it has many columns.
    """

    caption: str
    columns: list[str]
    rows: list[Row]
    note: str = ""
    numeric: bool = False
    wide: bool = True

    @classmethod
    def of(
        cls, records: Iterable[One], columns: Mapping[str, Callable[[One], str | Cell | None]], **about: Any
    ) -> Self:
        """A row for each record; `columns` has a column's cell by its head, `about` is what else a table has."""
        rows = [[cell(record) for cell in columns.values()] for record in records]
        return cls(columns=list(columns), rows=rows, **about)


def field(name: str, form: Callable[[Any], str] = str, kind: str = "") -> Reader:
    """The column of a field of a record, in a form, with its kind below; nothing where the field is missing."""

    def read(record: Any) -> str | Cell | None:
        value = record[name] if hasattr(record, "keys") else getattr(record, name)
        if missing(value):
            return None
        return Cell(text=form(value), below=kind) if kind else form(value)

    return read


def by_environment(names: Iterable[str], cell: Callable[[Any, str], str | None]) -> dict[str, Reader]:
    """A column for each environment, for `Table.of`; `cell` gives a record's text in an environment."""

    def column(env: str) -> Reader:
        return lambda record: cell(record, env)

    return {env_title(env, short=True): column(env) for env in names}


def signed_s(value: float) -> str:
    """Seconds with their sign."""
    return f"{'−' if value < 0 else '+'}{seconds(abs(value))}"


def ends(low: float | None, high: float | None, text: Callable[[float], str] = seconds) -> str:
    """Both ends of an interval with their signs; "no interval" where one is missing."""
    if low is None or high is None or missing(low) or missing(high):
        return "no interval"
    return " to ".join(f"{'−' if end < 0 else '+'}{text(abs(end))}" for end in (low, high))


def as_command(text: str) -> Markup:
    """What a reader types, as code that a page gives a button to copy it."""
    words = Markup(" ").join(Markup("<span>{}</span>").format(word) for word in text.split(" "))
    return Markup('<code class="command">{}</code>').format(words)


def remedy(text: str) -> Markup:
    """What fixes something: a command as one, words as words."""
    return as_command(text) if text.partition(" ")[0] in PROGRAMS else Markup.escape(text)


def unbroken(text: str) -> str:
    """The same text, no line of which ends between a number and its unit; markup stays markup."""
    return type(text)(QUANTITY.sub("\N{NO-BREAK SPACE}", text))


def value_text(key: str, value: Any) -> str:
    """A fact of any shape as one text: lists by commas, mappings as key and value, numbers by their names' unit."""
    if isinstance(value, Mapping):
        # A mapping of sizes is named so itself; the names of its members need not be.
        tail = "_bytes" if key.endswith("_bytes") else ""
        return (
            "; ".join(
                f"{str(name).removesuffix('_bytes').replace('_', ' ')}: {value_text(f'{name}{tail}', inner)}"
                for name, inner in value.items()
            )
            or "none"
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(value_text(key, inner) for inner in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        for end, form in UNITS.items():
            if key.endswith(end):
                return form(value)
    if value is None:
        return UNAVAILABLE
    return f"{value:g}" if isinstance(value, float) else str(value)
