"""The words of one verdict: every kind of it, and what can be missing."""

from __future__ import annotations

import pytest
from pages import row

from tare.report.words.wording import between, control_sentence, percent, signed, tally, verdict_sentence


def test_different_within_margin():
    assert verdict_sentence(row()) == (
        "whole run between 1.8% and 4.1% longer than on the host (different within the 5% margin)"
    )


def test_equivalent_bounds_and_never_denies():
    text = verdict_sentence(row(ci_low=0.9932, ci_high=1.0121, verdict="equivalent"))
    assert (
        text
        == "whole run differs from the host's by no more than 1.3% either way (equivalent within the 5% margin)"
    )


def test_different_beyond_the_margin():
    text = verdict_sentence(row(ci_low=1.081, ci_high=1.12, verdict="different"))
    assert text == "whole run between 8.1% and 12% longer than on the host (different, beyond the 5% margin)"


def test_different_with_an_interval_that_reaches_into_the_margin():
    text = verdict_sentence(row(ci_low=1.03, ci_high=1.09, verdict="different"))
    assert text.endswith("(different, perhaps beyond the 5% margin)")


def test_faster_is_said_as_shorter():
    text = verdict_sentence(row(ci_low=0.90, ci_high=0.93, verdict="different"))
    assert "between 7.0% and 10% shorter than on the host" in text


def test_inconclusive_leaves_the_question_open():
    text = verdict_sentence(row(ci_low=0.97, ci_high=1.06, verdict="inconclusive"))
    assert text == "whole run: we can't tell yet: between 3.0% shorter and 6.0% longer than on the host (margin 5%)"


@pytest.mark.parametrize(
    ("campaign", "more", "words"),
    [
        ("rounds.docker+host", 1, "about 1 more round would tell"),
        ("steps.docker+host", 14, "about 14 more rounds would tell"),
        ("steps.docker+host", 1437, "about 1,400 more rounds would tell"),
    ],
)
def test_inconclusive_says_how_much_more_would_tell(campaign, more, words):
    open_row = row(ci_low=0.97, ci_high=1.06, verdict="inconclusive", more_units=more, campaign=campaign)
    assert verdict_sentence(open_row).endswith(f"(margin 5%); {words}, if spread and mean stay as they are")


@pytest.mark.parametrize("more", [None, float("nan"), 0])
def test_nothing_is_promised_where_nobody_can_tell(more):
    text = verdict_sentence(row(ci_low=0.97, ci_high=1.06, verdict="inconclusive", more_units=more))
    assert text.endswith("(margin 5%)")


def test_too_few_units_give_the_reason_instead_of_numbers():
    text = verdict_sentence(
        row(
            ci_low=float("nan"), ci_high=None, n_units=1, verdict="inconclusive", reason="1 complete units; needs 2"
        )
    )
    assert text == "whole run: we can't tell yet: 1 complete units; needs 2"


def test_ends_that_lie_close_get_the_digits_that_tell_them_apart():
    assert between("step_s", 1.1871, 1.1932) == "between 18.7% and 19.3% longer"
    assert between("step_s", 0.8068, 0.8129) == "between 18.7% and 19.3% shorter"


def test_large_ratios_are_multiples():
    assert between("runtime_start_s", 8.94, 9.41) == "between 8.9 and 9.4 times as long"
    assert between("step_s", 0.0005, 2310) == "between less than 0.01 and more than 100 times as long"
    assert between("runtime_start_s", 0.9, 2.5) == "between 0.90 and 2.5 times as long"


def test_throughput_is_higher_or_lower():
    assert between("samples_per_s", 0.95, 1.02) == "between 5.0% lower and 2.0% higher"


def test_the_control_is_said_in_the_same_words():
    assert control_sentence(row()) == (
        "whole run: the instrument itself saw between 1.2% shorter and 0.80% longer between host and host"
    )


def test_a_control_that_excludes_zero_is_a_warning():
    assert "where nothing is to be seen" in control_sentence(row(control_ci_low=1.01, control_ci_high=1.03))
    assert "where nothing is to be seen" not in control_sentence(row())


@pytest.mark.parametrize(("low", "high", "wide"), [(0.96, 1.06, True), (0.94, 1.01, True), (0.96, 1.04, False)])
def test_a_control_wider_than_the_margin_says_so(low, high, wide):
    text = control_sentence(row(control_ci_low=low, control_ci_high=high))
    assert text.endswith("beyond the 5% margin: by the same rule even the host against itself is open") == wide


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
    ("low", "high", "text"),
    [
        (1.1234, None, "whole run at least 12% longer than on the host (different: "),
        (3.06, None, "whole run at least 3.0 times as long as on the host (different: "),
        (46.9, None, "whole run at least 46 times as long as on the host (different: "),
        (None, 0.8766, "whole run at least 12% shorter than on the host (different: "),
    ],
)
def test_an_interval_with_one_end_is_a_bound(low, high, text):
    reason = "1 of 6 launches were stopped at the time limit of 10 s"
    said = verdict_sentence(row(ci_low=low, ci_high=high, verdict="different", reason=reason))
    assert said == f"{text}{reason})"
    unsure = row(ci_low=low, ci_high=high, verdict="inconclusive", reason=reason)
    assert verdict_sentence(unsure) == f"whole run: we can't tell yet: {reason}"


def test_stalls_without_an_end_are_told_with_their_reason():
    reason = "2.4% of its own time came after both hosts had ended"
    stalls = {"total_ci_high": None, "total_verdict": "inconclusive", "reason": reason}
    said = verdict_sentence(row(verdict="equivalent but for stalls", ci_low=0.99, ci_high=1.01, **stalls))
    assert said.endswith(f"but for stalls: of all time there is no interval with two ends ({reason}))")


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
        "Whole runs: of 4 comparisons with the host, 1 equivalent, 2 different and 1 can't be told yet."
    )


def test_what_holds_but_for_stalls_says_what_all_time_is():
    text = verdict_sentence(
        row(
            **{"metric": "step_s", "margin": 0.02, "verdict": "equivalent but for stalls"},
            **{"ci_low": 0.9951, "ci_high": 1.004, "total_ci_low": 1.01, "total_ci_high": 1.03},
            total_verdict="different",
        )
    )
    assert text == (
        "training step differs from the host's by no more than 0.49% either way (equivalent within the 2% margin "
        "but for stalls: all time, stalls included, between 1.0% and 3.0% longer: different)"
    )
    open_one = row(verdict="different within margin but for stalls", total_ci_low=0.9, total_verdict="inconclusive")
    assert "but for stalls: all time, stalls included, between 10% shorter and 4.1% longer: can't be told yet" in (
        verdict_sentence(open_one)
    )


def test_where_all_time_is_equivalent_too_the_sentence_says_what_is_lacking():
    few = row(
        verdict="equivalent but for stalls", ci_low=0.995, ci_high=1.004, total_ci_low=0.99, total_ci_high=1.01,
        total_verdict="equivalent", steps=72,
    )  # fmt: skip
    all_time = "but for stalls: all time, stalls included, between 1.0% shorter and 1.0% longer: equivalent"
    assert verdict_sentence(few).endswith(f"{all_time} as far as 72 steps can tell)")
    sure = verdict_sentence({**few, "stalls_ci_low": 1.001, "stalls_ci_high": 1.004})
    assert sure.endswith(f"{all_time}, but stalls add +0.10% to +0.40%)")


def test_a_verdict_says_where_the_host_against_itself_reaches_as_far():
    text = verdict_sentence(row(control_ci_low=0.9, control_ci_high=1.08, control_reaches=True))
    assert text.endswith("; but the host against itself reaches as far (−10% to +8.0%)")
    assert "itself" not in verdict_sentence(row(control_reaches=False))


def test_a_bound_from_below_is_told_as_one():
    text = verdict_sentence(
        row(ci_low=1.12, ci_high=None, verdict="different", reason="1 of 6 launches were stopped at the time limit")
    )
    assert text.startswith(
        "whole run at least 12% longer than on the host (different: 1 of 6 launches were stopped"
    )


def test_few_units_are_named_where_there_is_no_verdict():
    reason = "2 complete units; the study asks for 6 before a verdict"
    text = verdict_sentence(row(verdict="inconclusive", reason=reason, more_units=4))
    assert "we can't tell yet" in text and reason in text
