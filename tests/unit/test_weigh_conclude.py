"""When a cost has a verdict."""

import pytest

from tare.stats.intervals import Interval
from tare.weigh.conclude import Cost


@pytest.mark.parametrize(("rounds", "verdict"), [(5, "inconclusive"), (6, "different")])
def test_fewer_than_six_rounds_give_no_verdict(rounds, verdict):
    run = Interval(n=rounds, mean=0.1, low=0.09, high=0.11)
    assert Cost(run=run, parts={}, step=None).verdict(0.02) == verdict
    assert Cost(run=None, parts={}, step=None).verdict(0.02) == "inconclusive"
