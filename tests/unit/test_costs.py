"""Seconds of work: what is paid once, each repetition, and its exchange."""

from __future__ import annotations

import pytest

from tare.stats.costs import ALL_REDUCE, SERVER, Cost, Work, exchange_s


def test_seconds_of_work_by_hand():
    assert Work(once_s=3.0, each_s=0.5).seconds(10) == pytest.approx(8.0)
    assert Work(once_s=3.0, each_s=0.5, exchange_s=0.25).seconds(4) == pytest.approx(6.0)


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_seconds_pay_the_repetitions_that_they_are_of_and_half_a_one_more_no_further(count):
    work = Work(once_s=2.5, each_s=0.3, exchange_s=0.1)
    assert work.count_in(work.seconds(count + 0.5)) == count
    assert work.count_in(work.once_s / 2) == 0


def test_an_all_reduce_and_a_server_by_hand():
    # Two members: each sends half of the bytes, then half of the sum, in two messages of half a round trip.
    assert exchange_s(ALL_REDUCE, 1e6, 2, 1e8, 2e-4) == pytest.approx(2 * 1e-4 + 1e6 / 1e8)
    # Four members: 6 messages, 1.5 times the bytes.
    assert exchange_s(ALL_REDUCE, 1e6, 4, 1e8, 2e-4) == pytest.approx(6 * 1e-4 + 1.5e6 / 1e8)
    assert exchange_s(ALL_REDUCE, 1e6, 4, 1e8) == pytest.approx(1.5e6 / 1e8), "messages take no time of their own"
    # Two workers' gradients up one cable, one after the other, and the parameters down to both.
    assert exchange_s(SERVER, 1e6, 2, 1e8, 2e-4) == pytest.approx(4e6 / 1e8)


def test_a_jobs_cost_is_the_work_that_is_more_by_that_of_the_host():
    cost = Cost(host_s=4.0, fixed_s=0.6, step=0.005)
    for length_s in (0.0, 1.0, 1e5):
        host = Work(once_s=cost.host_s, each_s=1.0).seconds(length_s)
        whole = Work(once_s=cost.host_s + cost.fixed_s, each_s=1 + cost.step).seconds(length_s)
        assert cost.at(length_s) == pytest.approx(whole / host - 1)
