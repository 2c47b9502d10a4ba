"""Quantities as they are printed, "15.072 us": a number, its unit, and how far its last digit can be trusted."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, InstanceOf

from tare.core.errors import UserError

PRINTED = re.compile(r"^(-?[0-9]+(?:\.[0-9]+)?) (\S+)$")
COUNTED_WORDS = (
    "FLOP transactions calls kernels rows lines samples words parameters layers classes epochs steps batches "
    "iterations runs processes cores devices CPU vCPU nodes instances lanes pixels regions zones environments"
)
COUNTED = tuple(COUNTED_WORDS.split())
# By unit: the factor to the base unit, and the base unit.
UNITS: dict[str, tuple[str, str]] = {
    "min": ("60", "s"),
    "s": ("1", "s"),
    "ms": ("1e-3", "s"),
    "us": ("1e-6", "s"),
    "ns": ("1e-9", "s"),
    "B": ("1", "B"),
    "kB": ("1e3", "B"),
    "MB": ("1e6", "B"),
    "GB": ("1e9", "B"),
    "B/s": ("1", "B/s"),
    "KB/s": ("1e3", "B/s"),
    "MB/s": ("1e6", "B/s"),
    "GB/s": ("1e9", "B/s"),
    "TB/s": ("1e12", "B/s"),
    "Gbit/s": ("1.25e8", "B/s"),
    "GFLOP/s": ("1e9", "FLOP/s"),
    "TFLOP/s": ("1e12", "FLOP/s"),
    "PFLOP/s": ("1e15", "FLOP/s"),
    "FLOP/B": ("1", "FLOP/B"),
    "MHz": ("1e6", "Hz"),
    "GHz": ("1e9", "Hz"),
    "W": ("1", "W"),
    "USD": ("1", "USD"),
    "%": ("1", "%"),
    "1": ("1", "1"),
    "log2(FLOP/B)": ("1", "1"),
    "log2(GFLOP/s)": ("1", "1"),
    # A number that its source prints without a unit: never converted, so never mistaken for one that has a unit.
    "unlabelled": ("1", "unlabelled"),
    **{word: ("1", "1") for word in COUNTED},
}


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A printed number with its unit."""

    printed: str  # the digits as in the source
    printed_unit: str  # the unit as in the source

    @property
    def exact(self) -> Decimal:
        """In the base unit, without binary rounding."""
        return Decimal(self.printed) * Decimal(UNITS[self.printed_unit][0])

    @property
    def value(self) -> float:
        """In the base unit."""
        return float(self.exact)

    @property
    def unit(self) -> str:
        """The base unit: s, B, B/s, FLOP/s, 1, …"""
        return UNITS[self.printed_unit][1]

    @property
    def exact_rounding(self) -> Decimal:
        """Half a unit of the last printed digit, in the base unit: how far rounding may have moved the number."""
        last = Decimal(1).scaleb(int(Decimal(self.printed).as_tuple().exponent))
        return last / 2 * Decimal(UNITS[self.printed_unit][0])

    @property
    def rounding(self) -> float:
        """As `exact_rounding`."""
        return float(self.exact_rounding)

    def __str__(self) -> str:
        """As it was printed."""
        return f"{self.printed} {self.printed_unit}"


def _nearest_unit(word: str) -> str:
    """Tail of a message: the nearest unit, letter case aside; what is counted is left out of the list."""
    by_lower = {name.lower(): name for name in UNITS}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[near[0]]!r}? " if near else ""
    units = ", ".join(name for name in UNITS if name not in COUNTED)
    return f"{hint}(known: {units}, and what is counted, such as calls)"


def read(text: object, unit: str | None = None) -> Quantity:
    """A quantity from its text, such as "15.072 us"; its base unit must be `unit` where that is given. Raises
    ValueError: no number, no unit, one that is not known, or a quantity of another kind.
    """
    found = PRINTED.match(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no quantity; write a number and its unit, such as '15.1 us'")
    number, printed_unit = found.groups()
    if printed_unit not in UNITS:
        raise ValueError(f"{text!r} has no unit that is known: {_nearest_unit(printed_unit)}")
    quantity = Quantity(printed=number, printed_unit=printed_unit)
    if unit is not None and quantity.unit != unit:
        raise ValueError(f"{text!r} is in {quantity.unit}, and must be in {unit}")
    return quantity


def parse(text: object, where: str, unit: str | None = None) -> Quantity:
    """As `read`; `where` begins the message of its UserError: file and key."""
    try:
        return read(text, unit)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def printed_in(unit: str) -> BeforeValidator:
    """For a quantity in a record whose base unit must be `unit`."""
    return BeforeValidator(lambda text: read(text, unit))


Printed = Annotated[InstanceOf[Quantity], BeforeValidator(lambda text: read(text))]  # in a record, in any unit
