"""From text to numbers, one way for every reader.

Which sign stands before decimals is decided once for a file, from all its numbers. A number that can be read in
both ways decides nothing: `482,333` is 482333 or 482.333. Two things that a format promises decide more of them: a
count is whole, and some sizes always have decimals. A file whose numbers leave it open is refused, and so is one
that mixes both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tare.core.errors import IntegrityError, UserError

POINT, COMMA = ".", ","
ANY, WHOLE, DECIMALS = "any", "whole", "decimals"  # what a format promises of a number
REMEDY = "profile, or export, again with LC_ALL=C"
LARGEST = 2**63 - 1  # of what tables hold as a whole number
_TITLES = {POINT: "decimal point", COMMA: "decimal comma"}


def _pattern(decimal: str) -> re.Pattern[str]:
    group = re.escape(COMMA if decimal == POINT else POINT)
    return re.compile(
        rf"([+-]?)([1-9]\d{{0,2}}(?:{group}\d{{3}})+|0|[1-9]\d{{0,24}})(?:{re.escape(decimal)}(\d{{1,25}}))?"
        r"(?:e([+-]?\d{1,3}))?",
        re.ASCII | re.IGNORECASE,
    )


_PATTERNS = {decimal: _pattern(decimal) for decimal in (POINT, COMMA)}


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed number.

    Attributes:
        value: the number.
        digit: size of a unit of its last digit, which rounding or cutting may have taken.
        whole: without decimals and exponent, so that it is a count.
    """

    value: float
    digit: float
    whole: bool

    def times(self, factor: float) -> Printed:
        """The same in another unit."""
        return Printed(self.value * factor, self.digit * factor, self.whole)


def parse(text: str, decimal: str = POINT) -> Printed | None:
    """A number with or without groups of thousands; None where the text is none."""
    found = _PATTERNS[decimal].fullmatch(text)
    if found is None:
        return None
    sign, whole, decimals, exponent = found.groups()
    digits = whole.replace(COMMA if decimal == POINT else POINT, "")
    value = float(f"{sign}{digits}.{decimals or 0}e{exponent or 0}")
    if not math.isfinite(value):
        return None
    digit = float(f"1e{int(exponent or 0) - len(decimals or '')}")
    return Printed(value, digit, decimals is None and exponent is None)


@dataclass(frozen=True, slots=True)
class Token:
    """What may be a number: where it stands, and what its format promises."""

    text: str
    line: int
    promise: str = ANY


def decide(tokens: Iterable[Token], where: str) -> str:
    """POINT or COMMA, whichever the numbers of a file have before their decimals.

    Args:
        tokens: of the whole file; what is no number in either way is passed over.
        where: begins the messages: the file.

    Raises:
        UserError: some numbers have a point and others a comma, or each of them can be read both ways.
    """
    required: dict[str, Token] = {}
    open_one: Token | None = None
    for token in tokens:
        if POINT not in token.text and COMMA not in token.text:
            continue
        read = {decimal: found for decimal in _PATTERNS if (found := _kept(token, decimal)) is not None}
        if len(read) == 1:
            required.setdefault(next(iter(read)), token)
        elif len(read) == 2 and read[POINT].value != read[COMMA].value:
            open_one = open_one or token
    if len(required) == 2:
        said = " and ".join(
            f"{required[decimal].text!r} in line {required[decimal].line} has a {_TITLES[decimal]}"
            for decimal in (COMMA, POINT)
        )
        raise UserError(f"{where}: {said}: {REMEDY}")
    if required:
        return next(iter(required))
    if open_one is not None:
        ways = " or ".join(
            f"{found.value:.12g}" for decimal in (POINT, COMMA) if (found := parse(open_one.text, decimal))
        )
        raise UserError(
            f"{where} line {open_one.line}: {open_one.text!r} is {ways}, and no number says which: {REMEDY}"
        )
    return POINT


def _kept(token: Token, decimal: str) -> Printed | None:
    """A token read with this sign, if that keeps what its format promises."""
    found = parse(token.text, decimal)
    if found is None or token.promise == ANY:
        return found
    return found if found.whole == (token.promise == WHOLE) else None


class Numerals:
    """Reads the numbers of one file.

    Args:
        where: begins the messages: the file.
        decimal: sign before decimals, as `decide` found it.
    """

    def __init__(self, where: str, decimal: str = POINT) -> None:
        self.where = where
        self.decimal = decimal

    def number(self, text: str, line: int, what: str) -> Printed:
        """A number.

        Raises:
            IntegrityError: the text is none; the message has file, line and `what`.
        """
        found = parse(text, self.decimal)
        if found is None:
            hint = f" ({REMEDY})" if parse(text, COMMA if self.decimal == POINT else POINT) else ""
            raise IntegrityError(f"{self.where} line {line}: {what}: {text[:80]!r} is no number{hint}")
        return found

    def count(self, text: str, line: int, what: str) -> int:
        """A whole number that is not negative.

        Raises:
            IntegrityError: the text is none.
        """
        found = parse(text, self.decimal)
        if found is None or not found.whole or not 0 <= found.value <= LARGEST:
            raise IntegrityError(f"{self.where} line {line}: {what}: {text[:80]!r} is no whole number")
        return int(re.sub(r"[.,+]", "", text))

    def size(self, value: float, line: int, what: str) -> int:
        """A number of bytes, rounded.

        Raises:
            IntegrityError: it is negative, or larger than any memory.
        """
        if not 0 <= value <= LARGEST:
            raise IntegrityError(f"{self.where} line {line}: {what}: {value:g} B is no size")
        return round(value)


def check_mean(total: Printed, calls: int, mean: Printed, at: str) -> None:
    """A total has to be calls x mean, within the digits that were printed.

    Raises:
        IntegrityError: it is not: a digit or a unit was changed.
    """
    slack = total.digit + calls * mean.digit + 1e-9 * abs(total.value)
    if abs(total.value - calls * mean.value) > slack:
        raise IntegrityError(
            f"{at}: a total of {total.value:g} is not {calls} x {mean.value:g}: the file is damaged or was changed"
        )


def check_shares(parts: Iterable[tuple[Printed, Printed]], where: str, what: str) -> None:
    """Shares in per cent have to be those of the parts that are there, and add up to 100.

    Args:
        parts: total and share of each row.
        where: begins the message: the file.
        what: the parts are of, such as `GPU activities`.

    Raises:
        IntegrityError: rows are missing, or too many, within the digits that were printed.
    """
    rows = list(parts)
    shares = sum(share.value for _, share in rows)
    slack = sum(share.digit for _, share in rows) + 1e-6
    whole = sum(total.value for total, _ in rows)
    rounding = sum(total.digit for total, _ in rows) + 1e-9 * whole
    least = max((_part(total, share, 1) for total, share in rows), default=0.0)
    most = min((_part(total, share, -1) for total, share in rows), default=math.inf)
    told = f"the shares of its {what} add up to {shares:.2f} %"
    if rows and (shares < 100 - slack or whole + rounding < least):
        raise IntegrityError(
            f"{where} is cut short, or was changed: {told}, and times by shares to more than is there"
        )
    if shares > 100 + slack or whole - rounding > most:
        raise IntegrityError(f"{where} was changed, or rows stand twice: {told}")


def _part(total: Printed, share: Printed, side: int) -> float:
    """The whole by one part and its share: the least (side 1) or the most (-1) that it can be."""
    percent = share.value + side * share.digit
    if percent <= 0:
        return 0.0 if side == 1 else math.inf
    return max(0.0, total.value - side * total.digit) * 100 / percent
