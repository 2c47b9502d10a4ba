"""Numbers and verdicts in plain words: what an interval says and no more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tare.analysis.launch_rows import SLOWDOWN
from tare.literature.finding import listed
from tare.model.tables import VERDICTS
from tare.report.words.labels import HIGHER_IS_BETTER
from tare.report.words.quantities import significant
from tare.stats.intervals import APART_FROM_STALLS

TIMES_FROM = 2.0  # from twice or half on, a ratio reads better as "3 times" than as "200% longer"
SMALLEST = 0.0001
FARTHEST = 100


def percent(fraction: float, *, up: bool = False, down: bool = False) -> str:
    """A positive fraction as per cent with two significant digits: 0.0184 -> 1.8%.

    `up` rounds away from zero, for what is bounded from above; `down` towards it, for what is bounded from below.
    """
    value = 100 * abs(fraction)
    if value < 100 * SMALLEST:
        return "0.01%"
    scale = 10 ** max(0, 1 - math.floor(math.log10(value)))
    # The tiny subtraction keeps 5.000000001 from becoming 5.1.
    whole = round(value * scale)
    if up or down:
        whole = math.ceil(value * scale - 1e-6) if up else math.floor(value * scale + 1e-6)
    rounded = whole / scale
    # 9.96 has become 10: one decimal less.
    return f"{rounded:.{max(0, 1 - math.floor(math.log10(rounded)))}f}%"


def margin_text(margin: float) -> str:
    """A margin as the study writes it: 0.05 -> 5%."""
    return f"{100 * margin:g}%"


def width_text(half_width: float) -> str:
    """A relative half-width for people: beyond a factor of two the digits say nothing."""
    return f"±{percent(half_width, up=True)}" if half_width < 1 else "more than ±100%"


def verdict_text(verdict: str) -> str:
    """A verdict as people read it; tables keep the word that they have."""
    return verdict.replace(APART_FROM_STALLS, ", apart from stalls")


def words(metric: str) -> tuple[str, str, str]:
    """How less, more and multiples of a metric are said."""
    if metric in HIGHER_IS_BETTER:
        return "lower", "higher", "as high"
    if metric == SLOWDOWN:
        return "smaller", "larger", "as large"
    return "shorter", "longer", "as long"


def between(metric: str, low: float, high: float) -> str:
    """An interval of ratios: "1.8% to 4.1% longer", "3.0% shorter to 6.0% longer"."""
    less, more, as_much = words(metric)
    if high < 1 / FARTHEST or low > FARTHEST:
        return f"{_times(low)} times {as_much}"
    if high >= TIMES_FROM or low <= 1 / TIMES_FROM:
        return f"{_times(low)} to {_times(high)} times {as_much}"
    if low >= 1:
        return f"{_apart(low - 1, high - 1)} {more}"
    if high <= 1:
        return f"{_apart(1 - high, 1 - low)} {less}"
    return f"{percent(1 - low)} {less} to {percent(high - 1)} {more}"


def _apart(less: float, more: float) -> str:
    """Two ends of an interval on one side of zero, with as many digits as distinguish them."""
    ends = [percent(less), percent(more)]
    if ends[0] == ends[1] and more < 1:
        decimals = next((d for d in range(1, 4) if f"{100 * less:.{d}f}" != f"{100 * more:.{d}f}"), 4)
        ends = [f"{100 * end:.{decimals}f}%" for end in (less, more)]
    return " to ".join(ends)


def signed(low: float | None, high: float | None) -> str:
    """An interval of ratios in few characters: "+0.43% to +1.6%"; multiples where it reaches that far."""
    if low is None or high is None or missing(low) or missing(high):
        return "no interval"
    if low < 1 / FARTHEST and high > FARTHEST:
        return f"no usable interval: beyond {1 / FARTHEST:g}× to {FARTHEST}×"
    if high >= TIMES_FROM or low <= 1 / TIMES_FROM:
        return f"{_times(low)}× to {_times(high)}×"
    return " to ".join(f"{'−' if end < 1 else '+'}{percent(abs(end - 1))}" for end in (low, high))


def _times(ratio: float) -> str:
    """A multiple; beyond a hundredfold either way its digits say nothing."""
    if ratio < 1 / FARTHEST:
        return f"less than {1 / FARTHEST:g}"
    return f"more than {FARTHEST:g}" if ratio > FARTHEST else significant(ratio, 2)


def at_least(metric: str, near: float) -> str:
    """The end of an interval that is nearer to 1: "at least 12% longer", "at least 3 times as long"."""
    less, more, as_much = words(metric)
    if near >= TIMES_FROM:
        scale = 10 if near < 10 else 1
        return f"at least {significant(math.floor(scale * near) / scale, 2)} times {as_much}"
    return f"at least {percent(near - 1, down=True)} {more if near > 1 else less}"


def stalled(row: Mapping[str, Any]) -> bool:
    """Whether the interval of what stalls add to the ratio excludes nothing added."""
    low, high = row["stalls_ci_low"], row["stalls_ci_high"]
    return not (missing(low) or missing(high)) and not low <= 1 <= high


def tally(rows: Iterable[Mapping[str, Any]], what: str) -> str:
    """How many comparisons got which verdict: "Whole runs: 2 of 6 … are equivalent and 4 are different."."""
    counts = dict.fromkeys(VERDICTS, 0)
    for row in rows:
        counts[row["verdict"]] += 1
    found = [(verdict_text(verdict).replace(",", ""), count) for verdict, count in counts.items() if count]
    total = sum(counts.values())
    if not total:
        return f"{what}: nothing to compare."
    (first, most), *others = found
    if total == 1:
        return f"{what}: the only comparison with the host is {first}."
    start = f"all {total}" if most == total else f"{most} of {total}"
    parts = [f"{start} comparisons with the host {_is(most)} {first}"]
    parts += [f"{count} {_is(count)} {verdict}" for verdict, count in others]
    return f"{what}: {listed(parts)}."


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def without_time(what: str, failures: Sequence[str]) -> str:
    """A note on launches that failed while others succeeded, whose numbers could be taken for those of all."""
    return (
        f"{what} that failed are not in these numbers: {listed(failures)}. One that was stopped took at least its "
        "time limit."
    )


def sentence_case(text: str) -> str:
    """First letter large, the rest as it is."""
    return text[:1].upper() + text[1:]


def missing(value: Any) -> bool:
    """None, NaN and pandas' NA."""
    return value is None or value != value or str(value) == "<NA>"
