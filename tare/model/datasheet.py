"""What vendors say of their devices: peaks by precision and of memory, from config/devices.yaml.

Modelled numbers: a datasheet's peak is arithmetic over units and clocks, and no program reaches it. What this
machine really reaches is measured by the ceilings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

from tare.core.errors import UserError
from tare.core.files import project_root, read_json
from tare.model.words import nearest

FACTORS = {"G": 1e9, "T": 1e12, "P": 1e15}
QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?) ([GTP])(FLOP/s|B/s|B)$")
UNITS = {"peak_flop_per_s": "TFLOP/s", "memory_bytes_per_s": "GB/s", "memory_bytes": "GB"}


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """One device as its vendor describes it.

    Attributes:
        name: our name of the device.
        pattern: what the driver's name of such a device holds.
        document: title of the vendor's document.
        peak_flop_per_s: dense peak by precision; `_tensor` in the name where only tensor cores reach it.
        memory_bytes_per_s: peak of the device's memory.
        memory_bytes: its size, as printed.
        source: always `datasheet`.
    """

    name: str
    pattern: str
    document: str
    peak_flop_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    memory_bytes: float
    source: str = "datasheet"


def load(path: Path | None = None) -> dict[str, Datasheet]:
    """Every device by name, in the order in which their patterns are tried.

    Raises:
        UserError: not readable, not YAML, a key too many or too few, or a number without its unit.
    """
    path = path or project_root() / "config/devices.yaml"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the devices {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {getattr(error, 'problem', error)}") from error
    try:
        _validator()(found)
    except fastjsonschema.JsonSchemaValueException as problem:
        raise UserError(f"{path.name}: {_explain(problem)}") from problem
    return {name: _device(name, entry, path) for name, entry in found.items()}


def named(name: str) -> Datasheet:
    """The device of this name.

    Raises:
        UserError: there is none; the message has the nearest name.
    """
    known = load()
    if name not in known:
        raise UserError(f"config/devices.yaml has no device {name!r}: {nearest(name, known)}")
    return known[name]


def find(driver_name: str) -> Datasheet | None:
    """The device whose pattern is in the name that the driver gives (`Tesla V100-SXM2-16GB`); None if none is."""
    for device in load().values():
        if re.search(device.pattern, driver_name, re.IGNORECASE):
            return device
    return None


def amount(text: str) -> float:
    """A quantity in FLOP/s, bytes/s or bytes: `15.7 TFLOP/s` is 1.57e13.

    Raises:
        UserError: it is not a number, a space and a unit.
    """
    found = QUANTITY.match(text)
    if found is None:
        raise UserError(f"{text!r} is no quantity; write a number and its unit, such as '15.7 TFLOP/s'")
    return float(found.group(1)) * FACTORS[found.group(2)]


def _device(name: str, entry: Mapping[str, Any], path: Path) -> Datasheet:
    try:
        re.compile(entry["pattern"])
    except re.error as error:
        raise UserError(f"{path.name}: {name}: pattern: {entry['pattern']!r} is no pattern: {error}") from error
    return Datasheet(
        name=name,
        pattern=entry["pattern"],
        document=entry["document"],
        peak_flop_per_s={precision: amount(text) for precision, text in entry["peak_flop_per_s"].items()},
        memory_bytes_per_s=amount(entry["memory_bytes_per_s"]),
        memory_bytes=amount(entry["memory_bytes"]),
        source=entry["source"],
    )


@cache
def _validator() -> Any:
    schema = read_json(project_root() / "config/schemas/devices.schema.json")
    return fastjsonschema.compile(schema, use_default=False)


def _explain(problem: fastjsonschema.JsonSchemaValueException) -> str:
    where = [str(part) for part in problem.path[1:]]
    place = ": ".join(where) or "top level"
    if problem.rule == "additionalProperties":
        known = problem.definition["properties"]
        unknown = next(key for key in problem.value if key not in known)
        return f"{place}: unknown key {unknown!r}: {nearest(str(unknown), known)}"
    if problem.rule == "required":
        absent = [key for key in problem.definition["required"] if key not in problem.value]
        return f"{place}: {', '.join(absent)} missing"
    unit = next((UNITS[part] for part in where if part in UNITS), None)
    if unit is not None and problem.rule in ("type", "pattern") and not isinstance(problem.value, Mapping):
        return f"{place}: {problem.value!r} is no quantity; write a number and its unit, such as '900 {unit}'"
    return f"{place}: {problem.value!r}: {problem.message.removeprefix('data').strip()}"
