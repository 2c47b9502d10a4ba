"""Numbers and verdicts in words, and what can be missing."""

from __future__ import annotations

import pytest
from pages import row

from tare.report.words.wording import at_least, between, percent, signed, tally


def test_ends_that_lie_close_get_the_digits_that_tell_them_apart():
    assert between("step_s", 1.1871, 1.1932) == "18.7% to 19.3% longer"
    assert between("step_s", 0.8068, 0.8129) == "18.7% to 19.3% shorter"


def test_large_ratios_are_multiples():
    assert between("runtime_start_s", 8.94, 9.41) == "8.9 to 9.4 times as long"
    assert between("step_s", 0.0005, 2310) == "less than 0.01 to more than 100 times as long"
    assert between("runtime_start_s", 0.9, 2.5) == "0.90 to 2.5 times as long"


def test_throughput_is_higher_or_lower():
    assert between("samples_per_s", 0.95, 1.02) == "5.0% lower to 2.0% higher"


@pytest.mark.parametrize(
    ("fraction", "up", "text"),
    [
        (0.0184, False, "1.8%"),
        (0.00043, False, "0.043%"),
        (0.123, False, "12%"),
        (0.0121, True, "1.3%"),
        (0.05, True, "5.0%"),
        (0.0, False, "0.01%"),
    ],
)
def test_percent(fraction, up, text):
    assert percent(fraction, up=up) == text


def test_what_is_at_least_rounds_down_and_what_is_at_most_rounds_up():
    assert percent(0.0357, down=True) == "3.5%" and percent(0.0357, up=True) == "3.6%"


@pytest.mark.parametrize(
    ("near", "text"),
    [
        (1.1234, "at least 12% longer"),
        (3.06, "at least 3.0 times as long"),
        (46.9, "at least 46 times as long"),
        (0.8766, "at least 12% shorter"),
    ],
)
def test_an_interval_with_one_end_is_a_bound(near, text):
    assert at_least("real_s", near) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.997, 1.012, "−0.30% to +1.2%"),
        (8.9, 9.4, "8.9× to 9.4×"),
        (float("nan"), None, "no interval"),
    ],
)
def test_an_interval_in_few_characters(low, high, text):
    assert signed(low, high) == text


def test_tally_counts_each_verdict():
    rows = [row(verdict=v) for v in ("equivalent", "different", "different", "inconclusive")]
    assert tally(rows, "Whole runs") == (
        "Whole runs: 1 of 4 comparisons with the host is equivalent, 2 are different and 1 is inconclusive."
    )
