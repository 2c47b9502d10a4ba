"""One way in for everything that crosses a file or a pipe: studies, records, published numbers.

A type says what a record holds. What is read is checked whole against its type; an error is reported in one line
that names the file, the place in it, and the nearest valid word. What is written is whole or not there at all.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from tare.core.errors import IntegrityError, TareError, UserError
from tare.core.files import read_json, write_json
from tare.core.streams import plain
from tare.model.words import nearest

if TYPE_CHECKING:
    from yaml import SafeLoader as _Loader
else:
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast

MOST_BYTES = 16 << 20  # of a file that a person wrote
MOST_VALUES = 1_000_000  # in it, each as often as aliases repeat it
DEEPEST = 100  # of values in values
MOST_FAULTS = 10_000  # of which the first is looked for
SHOWN = 1000  # characters of a message, at each of its ends
VERSION = "schema"  # the key of a file's record that holds the version of its type
NAMING = ("id", "specification", "figure", "name")  # keys by which people know an entry of a list

Positive = Annotated[float, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError(f"{list(values)!r} holds something twice")
    return values


Distinct = AfterValidator(_distinct)


def matching(pattern: str, says: str) -> AfterValidator:
    """A text that a pattern holds as a whole; `says` ends the message: `'X Y' must be lower-case letters`."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"{text!r} {says}")
        return text

    return AfterValidator(check)


class Record(BaseModel):
    """A frozen, checked value. Unknown keys, wrong types, NaN and infinity are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        populate_by_name=True,
        defer_build=True,  # of the hundred types a command uses a few
    )

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it; keys that were never given and have a default are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def given(self) -> dict[str, Any]:
        """The fields that were given, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def replace(self, **values: Any) -> Self:
        """A copy with other values, checked like any other."""
        return type(self)(**(self.given() | values))


class OpenRecord(Record):
    """A record that people exchange between versions. Its unknown keys, which a later one may add, are dropped.

    A FileRecord that is one names it as its last base: of two bases, the last one decides.
    """

    model_config = ConfigDict(extra="ignore")


class FileRecord(Record):
    """A record that is a separate file, with the version of its type under `schema`."""

    VERSION: ClassVar[int]
    REMAKE: ClassVar[str] = "delete it and run again"
    UNMARKED: ClassVar[bool] = False  # files of its first version carry no version

    def write(self, path: Path) -> None:
        """Write it whole or not at all."""
        write_json(path, {VERSION: self.VERSION, **self.to_json()})


AnyRecord = TypeVar("AnyRecord", bound=Record)
AnyFile = TypeVar("AnyFile", bound=FileRecord)


def parse(kind: type[AnyRecord], value: Any, where: str, error: type[TareError] = IntegrityError) -> AnyRecord:
    """A value as JSON holds it, checked. `kind`: what it has to be. `value`: of JSON's types alone. `where`: the
    file or the pipe, for the message. `error`: what to raise: `UserError` for what a person wrote. Raises
    TareError: `error`, in one line.
    """
    try:
        return kind.model_validate_json(json.dumps(value, default=str))  # of YAML's dates, texts
    except ValidationError as problem:
        raise error(f"{where}: {explain(problem, kind, value)}") from None
    except (TypeError, ValueError, RecursionError) as problem:  # no JSON at all
        raise error(f"{where}: {problem}") from None


def read(kind: type[AnyFile], path: Path) -> AnyFile:
    """The record in a file. Raises UserError: there is no such file. IntegrityError: cut short, of another version,
    or not what the type says.
    """
    return parse_file(kind, read_json(path), str(path))


def parse_file(kind: type[AnyFile], value: Any, where: str, error: type[TareError] = IntegrityError) -> AnyFile:
    """What a file holds, with the version of its type under `schema`; as `parse`. Raises TareError: `error`: no
    record, of another version, or not what the type says; with what to do about it.
    """
    if not isinstance(value, dict):
        raise error(f"{where} is no record: {kind.REMAKE}")
    version = value.get(VERSION, 1 if kind.UNMARKED else None)
    if version != kind.VERSION:
        found = version if isinstance(version, int | None) and (version or 0) < 1000 else "of no version"
        raise error(f"{where} has schema {found}, this version reads {kind.VERSION}: {kind.REMAKE}")
    try:
        return parse(kind, {key: entry for key, entry in value.items() if key != VERSION}, where, error)
    except error as problem:
        raise error(f"{problem}; {kind.REMAKE}") from None


class _UniqueKeys(_Loader):
    """Refuses a key that appears twice in one mapping: of the two, YAML would silently drop the first.

    Nor does it take aliases that hold one another over and over, a value that is none of the type that it says, or
    values so deep in others that libyaml's stack would end, and the process with it.
    """

    _depth = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"values are nested more than {DEEPEST} deep")
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        self._depth -= 1
        super().ascend_resolver()

    def construct_document(self, node: yaml.Node) -> Any:
        if _values(node, {}) > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"its aliases expand to more than {MOST_VALUES} values")
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            why = f" ({error})" if isinstance(error, ValueError) else ""
            problem = f"{str(node.value)[:80]!r} is no {node.tag.rpartition(':')[2]}{why}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key {key.value!r} appears twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node expands to, each as often as aliases repeat it."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # while it is counted: one that holds itself has no end
        inside = node.value if isinstance(node, yaml.CollectionNode) else ()
        below = (part for entry in inside for part in (entry if isinstance(entry, tuple) else (entry,)))
        known[id(node)] = 1 + sum(_values(part, known) for part in below)
    return known[id(node)]


def parse_yaml(text: str, where: str) -> Any:
    """What a YAML text holds; `where` begins the message. Raises UserError: not YAML, or a key appears twice in one
    mapping.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise UserError(f"{where}{line} is not YAML: {problem}") from None


def read_yaml(path: Path, what: str) -> Any:
    """What a YAML file holds; `what` it is for the message: `the study`. Raises UserError: unreadable, not YAML, or
    a key appears twice in one mapping.
    """
    return parse_yaml(read_words(path, what), str(path))


def read_words(path: Path, what: str) -> str:
    """The text of a file that a user wrote; `what` it is for the message: `the study`. Raises UserError:
    unreadable, not UTF-8, or far larger than anybody writes.
    """
    try:
        with path.open("rb") as handle:
            content = handle.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UserError(f"{path} has more than {MOST_BYTES >> 20} MB, which is more than {what} can be")
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {what} {path}: {getattr(error, 'strerror', None) or error}") from None


def explain(problem: ValidationError, kind: type[BaseModel], value: Any = None) -> str:
    """The first thing that is wrong, as `place: what, nearest valid word`; an unknown key before a missing one.
    `problem`: what the check found. `kind`: the type that was asked for. `value`: what was checked: an entry of a
    list is reported by its number and its name.
    """
    if problem.error_count() > MOST_FAULTS:
        return f"{problem.error_count()} values are wrong: it is of another kind, or damaged"
    errors = problem.errors()
    # A list of which no entry is right counts as too short as well.
    ranks = {"missing": 1, "too_short": 2}
    first = min(errors, key=lambda error: (ranks.get(error["type"], 0), len(error["loc"])))
    if first["type"] == "missing":
        parent = first["loc"][:-1]
        names = [str(e["loc"][-1]) for e in errors if e["type"] == "missing" and e["loc"][:-1] == parent]
        return in_short(f"{_place(parent, value)}{', '.join(names)} missing")
    unknown = first["type"] == "extra_forbidden" or first["loc"][-1:] == ("[key]",)
    place = [part for part in first["loc"] if part != "[key]"][: -1 if unknown else None]
    return in_short(f"{_place(place, value)}{_reason(first, kind)}")


def in_short(message: str) -> str:
    """A message in one line; with its begin and its end alone, where what it quotes is long."""
    message = plain(message)
    return message if len(message) <= 2 * SHOWN else f"{message[:SHOWN]} … {message[-SHOWN:]}"


def _place(loc: Iterable[int | str], value: Any) -> str:
    """Where in the file, as a person says it, with a colon after each part."""
    parts = []
    for part in loc:
        if str(part).startswith(("function-", "tagged-", "[")):
            continue
        if isinstance(value, dict) and part not in value and part in value.values():  # which of a union it is
            continue
        try:
            value = value[part]
        except (LookupError, TypeError):
            value = None
        labels = [value.get(key) for key in NAMING] if isinstance(part, int) and isinstance(value, dict) else []
        parts.append(next((f"{part} ({label})" for label in labels if label), str(part)))
    return "".join(f"{part}: " for part in parts)


def _reason(error: ErrorDetails, kind: type[BaseModel]) -> str:
    value, context = error.get("input"), error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            word = str(error["loc"][-1])
            return f"unknown key {word!r}: {nearest(word, _keys(kind, error['loc'][:-1]))}"
        case "literal_error" | "enum":
            known = [word.strip(" '") for word in context["expected"].replace(" or ", ",").split(",")]
            if error["loc"][-1] == "[key]":
                return f"unknown key {value!r}: {nearest(str(value), known)}"
            return f"{value!r} is not allowed: {nearest(str(value), known)}"
        case "union_tag_invalid":
            known = [word.strip(" '") for word in context["expected_tags"].split(",")]
            key = str(context["discriminator"]).strip("'")
            return f"{key} {context['tag']!r} is not allowed: {nearest(context['tag'], known)}"
        case "union_tag_not_found":
            return f"{str(context['discriminator']).strip(chr(39))} missing"
        case "greater_than_equal":
            return f"{value!r} must be at least {context['ge']}"
        case "less_than_equal":
            return f"{value!r} must be at most {context['le']}"
        case "greater_than":
            return f"{value!r} must be larger than {context['gt']}"
        case "less_than":
            return f"{value!r} must be smaller than {context['lt']}"
        case "too_short":
            return f"{value!r} must not be empty" if context.get("min_length") == 1 else error["msg"]
        case "string_too_short":
            return "must not be empty"
        case "string_type" if isinstance(value, int | float):
            return f"{value!r} must be text: put it in quotes"
        case "value_error" | "assertion_error":
            return str(context["error"])
        case name if name.endswith("_type"):
            return f"{value!r} must be of type {_NAMES.get(name.removesuffix('_type'), name.removesuffix('_type'))}"
    return f"{value!r}: {error['msg']}"


_NAMES = {
    "int": "integer",
    "int_from": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "mapping": "object",
    "model": "object",
    "list": "list",
    "tuple": "list",
    "none_required": "null",
}


def _keys(kind: type[BaseModel], place: Iterable[Any]) -> list[str]:
    """Names that are valid in place of a key: of the type that is found by walking along `place`."""
    at: Any = kind
    for part in place:
        models = list(_models(at))
        at = next((m.model_fields[part].annotation for m in models if part in m.model_fields), at)
    return sorted({field.alias or name for model in _models(at) for name, field in model.model_fields.items()})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The record types that an annotation holds, however deep: `tuple[X, ...]`, `Mapping[str, X] | None`."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in get_args(annotation):
        yield from _models(argument)


def as_json(value: Mapping[str, Any] | Record) -> dict[str, Any]:
    """Either form as JSON holds it."""
    return value.to_json() if isinstance(value, Record) else dict(value)
