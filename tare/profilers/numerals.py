"""From text to numbers, one way for every reader.

How numbers are written is decided once for a file, from all its numbers: which sign stands before decimals, and
whether groups have three digits or, as some locales of East Asia have them, four. A number that can be read in
several ways decides nothing: `482,333` is 482333 or 482.333. Two things that a format promises decide more of
them: a count is whole, and some sizes always have decimals. A file whose numbers leave it open is refused, and so
is one that mixes several.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tare.core.errors import IntegrityError, UserError

POINT, COMMA, FOURS = ".", ",", "4"  # ways of writing; the last is a point, and commas between groups of four
ANY, WHOLE, DECIMALS = "any", "whole", "decimals"  # what a format promises of a number
REMEDY = "profile, or export, again with LC_ALL=C"
LARGEST = 2**63 - 1  # of what tables hold as a whole number
_TITLES = {POINT: "a decimal point", COMMA: "a decimal comma", FOURS: "groups of four digits"}


def _pattern(decimal: str, group: str, digits: int = 3) -> re.Pattern[str]:
    return re.compile(
        rf"([+-]?)([1-9]\d{{0,{digits - 1}}}(?:{group}\d{{{digits}}})+|0|[1-9]\d{{0,19}})(?:{decimal}(\d{{1,25}}))?"
        r"(?:e([+-]?\d{1,3}))?",
        re.ASCII | re.IGNORECASE,
    )


_PATTERNS = {POINT: _pattern(r"\.", ","), COMMA: _pattern(",", r"\."), FOURS: _pattern(r"\.", ",", 4)}


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed number."""

    value: float  # the number
    digit: float  # size of a unit of its last digit, which rounding or cutting may have taken
    whole: bool  # without decimals and exponent, so that it is a count

    def times(self, factor: float) -> Printed:
        """The same in another unit."""
        return Printed(self.value * factor, self.digit * factor, self.whole)


def parse(text: str, way: str = POINT, *, exponent: bool = True) -> Printed | None:
    """A number in a `way` (POINT, COMMA, FOURS), perhaps with an exponent; None where the text is none."""
    found = _PATTERNS[way].fullmatch(text)
    if found is None or (found[4] is not None and not exponent):
        return None
    sign, whole, decimals, power = found.groups()
    digits = re.sub("[.,]", "", whole)
    value = float(f"{sign}{digits}.{decimals or 0}e{power or 0}")
    if not math.isfinite(value):
        return None
    digit = float(f"1e{int(power or 0) - len(decimals or '')}")
    return Printed(value, digit, decimals is None and power is None)


@dataclass(frozen=True, slots=True)
class Token:
    """What may be a number: where it stands, and what its format promises."""

    text: str
    line: int
    promise: str = ANY


def decide(tokens: Iterable[Token], where: str) -> str:
    """POINT, COMMA or FOURS, whichever way the numbers of a file are written in; other tokens are passed over.
    Raises UserError where ways are mixed, or several would do.
    """
    left = dict.fromkeys(_PATTERNS)  # in order: the usual one first
    narrowed: list[tuple[Token, set[str]]] = []
    several: dict[str, dict[str, float]] = {}  # text: value by way
    first: dict[str, Token] = {}
    for token in tokens:
        if POINT not in token.text and COMMA not in token.text:
            continue
        read = {way: found.value for way in _PATTERNS if (found := _kept(token, way)) is not None}
        if not read:
            continue
        if len(left) > 1 and len(set(read.values())) > 1:
            several.setdefault(token.text, read)
            first.setdefault(token.text, token)
        if set(left) <= set(read):
            continue
        if not set(left) & set(read):
            other, ways = next((one for one in narrowed if not one[1] & set(read)), narrowed[-1])
            said = f"{_has(other, ways, set(read))} and {_has(token, set(read), ways)}"
            raise UserError(f"{where}: {said}: {REMEDY}")
        narrowed.append((token, set(read)))
        left = {way: None for way in left if way in read}
    for text, read in several.items():
        values = dict.fromkeys(f"{read[way]:.12g}" for way in left if way in read)
        if len(values) > 1:
            raise UserError(
                f"{where} line {first[text].line}: {text!r} is {' or '.join(values)}, and no number says which: "
                f"{REMEDY}"
            )
    return next(iter(left))


def _has(token: Token, ways: set[str], others: set[str]) -> str:
    """What a number has that another, which is written in none of the same ways, has not."""
    title = next(title for way, title in _TITLES.items() if way in ways)
    if POINT in ways and COMMA not in others:
        title = "groups of three digits"
    return f"{token.text!r} in line {token.line} has {title}"


def _kept(token: Token, way: str) -> Printed | None:
    """A token read in this way, if that keeps what its format promises."""
    found = parse(token.text, way)
    if found is None or token.promise == ANY:
        return found
    return found if found.whole == (token.promise == WHOLE) else None


class Numerals:
    """Reads the numbers of one file. `way`: in which they are written, as `decide` found it."""

    def __init__(self, where: str, way: str = POINT) -> None:
        self.where = where
        self.way = way

    def number(self, text: str, line: int, what: str) -> Printed:
        """A number without an exponent; raises IntegrityError with file, line and `what` where the text is none."""
        found = parse(text, self.way, exponent=False)
        if found is None:
            others = any(parse(text, way, exponent=False) for way in _PATTERNS)
            hint = f" ({REMEDY})" if others else ""
            raise IntegrityError(f"{self.where} line {line}: {what}: {text[:80]!r} is no number{hint}")
        return found

    def count(self, text: str, line: int, what: str) -> int:
        """A whole number that is not negative. Raises IntegrityError where the text is none."""
        found = parse(text, self.way)
        if found is None or not found.whole or not 0 <= found.value <= LARGEST:
            raise IntegrityError(f"{self.where} line {line}: {what}: {text[:80]!r} is no whole number")
        return int(re.sub(r"[.,+]", "", text))

    def size(self, value: float, line: int, what: str) -> int:
        """A number of bytes, rounded. Raises IntegrityError where it is negative, or larger than any memory."""
        if not 0 <= value <= LARGEST:
            raise IntegrityError(f"{self.where} line {line}: {what}: {value:g} B is no size")
        return round(value)


def check_mean(total: Printed, calls: int, mean: Printed, at: str) -> None:
    """Raise IntegrityError where a total is not calls x mean within printed digits: a digit or unit was changed."""
    slack = total.digit + calls * mean.digit + 1e-9 * abs(total.value)
    if abs(total.value - calls * mean.value) > slack:
        raise IntegrityError(
            f"{at}: a total of {total.value:g} is not {calls} x {mean.value:g}: the file is damaged or was changed"
        )


def check_shares(parts: Iterable[tuple[Printed, Printed]], where: str, what: str) -> None:
    """Shares in per cent have to be those of the parts (total, share), and add up to 100. Raises IntegrityError
    where rows are missing, or too many, within printed digits; `what` names the parts.
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
