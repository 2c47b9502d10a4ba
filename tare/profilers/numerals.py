"""From text to numbers, one way for every reader: a point before decimals, commas between groups of three digits.

A profiler that runs in another locale writes `1.234,5`, or means 1.234 by `1,234`. A file that shows so, or that no
number decides, is refused: `482,333` alone is 482333 or 482.333. A format that promises whole counts decides more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tare.core.errors import IntegrityError, UserError

POINT, COMMA = ".", ","  # what precedes decimals
REMEDY = "profile, or export, again with LC_ALL=C"
LARGEST = 2**63 - 1  # of what tables hold as a whole number


def _pattern(decimal: str, group: str) -> re.Pattern[str]:
    return re.compile(
        rf"([+-]?)([1-9]\d{{0,2}}(?:{group}\d{{3}})+|0|[1-9]\d{{0,19}})(?:{decimal}(\d{{1,25}}))?"
        r"(?:e([+-]?\d{1,3}))?",
        re.ASCII | re.IGNORECASE,
    )


_PATTERNS = {POINT: _pattern(r"\.", ","), COMMA: _pattern(",", r"\.")}


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed number."""

    value: float  # the number
    digit: float  # size of a unit of its last digit, which rounding or cutting may have taken
    whole: bool  # without decimals and exponent, so that it is a count

    def times(self, factor: float) -> Printed:
        """The same in another unit."""
        return Printed(self.value * factor, self.digit * factor, self.whole)


def parse(text: str, *, decimal: str = POINT, exponent: bool = True) -> Printed | None:
    """A number, perhaps with an exponent; None where the text is none."""
    found = _PATTERNS[decimal].fullmatch(text)
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
    """What may be a number: its position, and whether its format promises a whole one."""

    text: str
    line: int
    whole: bool = False


def refuse_other_locales(tokens: Iterable[Token], where: str) -> None:
    """Raises UserError where numbers of a file have a decimal comma, or none says whether they have."""
    open_one: Token | None = None
    decided = False
    for token in tokens:
        ours, theirs = (_kept(token, decimal) for decimal in _PATTERNS)
        if ours is None and theirs is not None:
            raise UserError(f"{where} line {token.line}: {token.text!r} has a decimal comma: {REMEDY}")
        if ours is not None and theirs is None:
            decided = True
        elif ours is not None and theirs is not None and ours.value != theirs.value:
            open_one = open_one or token
    if open_one is not None and not decided:
        values = [f"{found.value:.12g}" for one in _PATTERNS if (found := parse(open_one.text, decimal=one))]
        raise UserError(
            f"{where} line {open_one.line}: {open_one.text!r} is {' or '.join(values)}, and no number says which: "
            f"{REMEDY}"
        )


def _kept(token: Token, decimal: str) -> Printed | None:
    """A token read so, if that keeps what its format promises."""
    found = parse(token.text, decimal=decimal)
    return None if found is None or (token.whole and not found.whole) else found


class Numerals:
    """Reads the numbers of one file."""

    def __init__(self, where: str) -> None:
        self.where = where

    def number(self, text: str, line: int, what: str) -> Printed:
        """A number without an exponent; raises IntegrityError with file, line and `what` where the text is none."""
        found = parse(text, exponent=False)
        if found is None:
            hint = f" ({REMEDY})" if parse(text, decimal=COMMA, exponent=False) else ""
            raise IntegrityError(f"{self.where} line {line}: {what}: {text[:80]!r} is no number{hint}")
        return found

    def count(self, text: str, line: int, what: str) -> int:
        """A whole number that is not negative. Raises IntegrityError where the text is none."""
        found = parse(text)
        if found is None or not found.whole or not 0 <= found.value <= LARGEST:
            raise IntegrityError(f"{self.where} line {line}: {what}: {text[:80]!r} is no whole number")
        return int(re.sub(r"[,+]", "", text))


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
    sums = f"the shares of its {what} add up to {shares:.2f} %"
    if rows and (shares < 100 - slack or whole + rounding < least):
        raise IntegrityError(
            f"{where} is cut short, or was changed: {sums}, and times by shares to more than is there"
        )
    if shares > 100 + slack or whole - rounding > most:
        raise IntegrityError(f"{where} was changed, or rows are there twice: {sums}")


def _part(total: Printed, share: Printed, side: int) -> float:
    """The whole by one part and its share: the least (side 1) or the most (-1) that it can be."""
    percent = share.value + side * share.digit
    if percent <= 0:
        return 0.0 if side == 1 else math.inf
    return max(0.0, total.value - side * total.digit) * 100 / percent
