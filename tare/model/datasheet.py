"""What vendors say of their devices: peaks by precision and of memory, from config/devices.yaml.

Modelled numbers: a datasheet's peak is arithmetic over units and clocks, and no program reaches it. What this
machine really reaches is measured by the ceilings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tare.core.errors import UserError
from tare.core.files import data_root
from tare.model.quantities import read
from tare.model.schema import Record, parse, read_yaml
from tare.model.words import nearest


def _amount(unit: str, example: str) -> BeforeValidator:
    def check(text: object) -> float:
        try:
            return read(text, unit).value
        except ValueError:
            says = f"{text!r} is no quantity; write a number and its unit, such as '{example}'"
            raise ValueError(says) from None

    return BeforeValidator(check)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no pattern: {error}") from None
    return text


Precision = Literal[
    "fp64", "fp64_tensor", "fp32", "tf32_tensor", "bf16_tensor", "fp16", "fp16_tensor", "fp8_tensor"
]  # fmt: skip
Peak = Annotated[float, _amount("FLOP/s", "900 TFLOP/s")]


class Datasheet(Record):
    """One device as its vendor describes it."""

    name: str  # our name of the device
    # what the driver's name of such a device holds
    pattern: Annotated[str, Field(min_length=3), AfterValidator(_pattern)]
    document: Annotated[str, Field(min_length=8)]  # title of the vendor's document
    # dense peak by precision; `_tensor` in the name where only tensor cores reach it
    peak_flop_per_s: Annotated[Mapping[Precision, Peak], Field(min_length=1)]
    memory_bytes_per_s: Annotated[float, _amount("B/s", "900 GB/s")]  # peak of the device's memory
    memory_bytes: Annotated[float, _amount("B", "900 GB")]  # its size, as printed
    source: Literal["datasheet"]  # always `datasheet`


def load(path: Path | None = None) -> dict[str, Datasheet]:
    """Every device by name, in the order in which their patterns are tried. Raises UserError: not readable, not
    YAML, a key too many or too few, or a number without its unit.
    """
    path = path or data_root() / "config/devices.yaml"
    found = read_yaml(path, "the devices")
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise UserError(f"{path.name} must hold keys and values for each device")
    return {name: _device(name, entry, f"{path.name}: {name}") for name, entry in found.items()}


def _device(name: str, entry: Mapping[str, Any], where: str) -> Datasheet:
    return parse(Datasheet, {**entry, "name": name}, where, UserError)


def named(name: str) -> Datasheet:
    """The device of this name. Raises UserError: there is none; the message has the nearest name."""
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
