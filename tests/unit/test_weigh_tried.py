"""What a change says of a cause, by the interval of what it gains."""

import math

import pytest

from tare.stats.intervals import Interval
from tare.weigh.tried import judged


def gained(low, mean, high):
    return Interval(n=6, mean=math.log(mean), low=math.log(low), high=math.log(high))


@pytest.mark.parametrize(
    ("whole", "interval", "finding"),
    [
        (1.10, (0.90, 0.91, 0.92), "confirmed"),
        (1.10, (0.97, 0.98, 0.99), "confirmed"),
        (1.10, (0.985, 0.99, 0.995), "open"),  # a tenth of the difference, or a twentieth
        (1.10, (0.90, 0.95, 1.01), "open"),
        (1.10, (0.80, 1.00, 1.25), "open"),  # nothing is known, whatever the mean is
        (1.10, (0.995, 1.00, 1.005), "excluded"),
        (1.10, (1.02, 1.05, 1.08), "excluded"),  # slower with the change
        (0.90, (1.05, 1.06, 1.07), "confirmed"),  # faster than the reference, and that is why
        (0.90, (0.95, 0.96, 0.97), "excluded"),
    ],
)
def test_findings(whole, interval, finding):
    found, share = judged(gained(*interval), math.log(whole))
    assert found == finding and (share is not None) == (finding == "confirmed")


def test_the_share_of_a_difference():
    assert judged(gained(0.94, 0.95, 0.96), -math.log(0.95 * 0.95))[1] == pytest.approx(0.5)
    assert judged(Interval(n=1, mean=0.1, low=None, high=None), 0.1) == ("open", None)
