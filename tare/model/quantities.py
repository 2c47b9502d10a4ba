"""Quantities as they are printed, "15.072 us": a number, its unit, and how far its last digit can be trusted."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from decimal import Decimal

from tare.core.errors import UserError

PRINTED = re.compile(r"^(-?[0-9]+(?:\.[0-9]+)?) (\S+)$")
COUNTED_WORDS = (
    "FLOP transactions calls kernels rows lines samples words parameters layers classes epochs steps batches "
    "iterations processes cores devices CPU vCPU nodes instances lanes pixels regions zones environments"
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
    "Gbit/s": ("1.25e8", "B/s"),
    "TFLOP/s": ("1e12", "FLOP/s"),
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
    """A printed number with its unit.

    Attributes:
        printed: the digits as they stand in the source.
        printed_unit: the unit as it stands there.
    """

    printed: str
    printed_unit: str

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
        last = Decimal(1).scaleb(Decimal(self.printed).as_tuple().exponent)
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


def parse(text: object, where: str) -> Quantity:
    """A quantity from its text.

    Args:
        text: such as "15.072 us".
        where: begins the message: file and key.

    Raises:
        UserError: no number, no unit, or a unit that is not known.
    """
    found = PRINTED.match(text) if isinstance(text, str) else None
    if found is None:
        raise UserError(f"{where}: {text!r} is no quantity; write a number and its unit, such as '15.1 us'")
    number, unit = found.groups()
    if unit not in UNITS:
        raise UserError(f"{where}: {text!r} has no unit that is known: {_nearest_unit(unit)}")
    return Quantity(printed=number, printed_unit=unit)


def parse_as(text: object, unit: str, where: str) -> Quantity:
    """A quantity whose base unit must be `unit`.

    Raises:
        UserError: as `parse`, and where it is a quantity of another kind.
    """
    quantity = parse(text, where)
    if quantity.unit != unit:
        raise UserError(f"{where}: {text!r} is in {quantity.unit}, and must be in {unit}")
    return quantity
