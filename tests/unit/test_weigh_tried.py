"""What a change says of a cause, by the interval of what it gains."""

import math

import pytest

from tare.stats.intervals import Interval
from tare.weigh.causes import Change, Suspicion
from tare.weigh.conclude import Cost
from tare.weigh.tried import Tried, _cause, _first_of_each, judged


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


CHANGES = tuple(Change(name=name, advice=f"do {name}") for name in ("threads", "no quota"))
QUOTA = Suspicion(cause="CPU quota", confidence="high", evidence=(), changes=CHANGES)


def tried(number, *interval):
    cost = Cost(run=gained(*interval), parts={}, step=None)
    return Tried(change=CHANGES[number], cost=cost)


NOTHING, ALL, HALF = (0.995, 1.0, 1.005), (0.90, 0.91, 0.92), (0.94, 0.95, 0.96)


@pytest.mark.parametrize(
    ("found", "finding", "change"),
    [
        ([tried(0, *NOTHING), tried(1, *ALL)], "confirmed", "no quota"),
        ([tried(0, *HALF), tried(1, *ALL)], "confirmed", "no quota"),
        ([tried(0, *ALL), tried(1, *HALF)], "confirmed", "threads"),
        ([tried(0, *NOTHING), tried(1, *NOTHING)], "excluded", "threads"),
        ([tried(0, *NOTHING)], "not tried", None),  # the other might have gained something
        (["threads can't be tried: no such option", tried(1, *ALL)], "confirmed", "no quota"),
        ([], "not tried", None),
    ],
)
def test_a_cause_is_what_the_best_of_its_changes_says(found, finding, change):
    whole = Cost(run=gained(1.09, 1.10, 1.11), parts={}, step=None)
    one = _cause(QUOTA, whole, found)
    assert (one.finding, one.change) == (finding, change)
    assert (one.reason is None) == (finding != "not tried")


def test_the_first_change_of_each_cause_comes_before_second_ones():
    other = QUOTA.replace(cause="affinity", changes=CHANGES[:1])
    wanted = [(name, one, change) for name in ("a", "b") for one in (QUOTA, other) for change in one.changes]
    assert [(name, one.cause, change.name) for name, one, change in _first_of_each(wanted)] == [
        ("a", "CPU quota", "threads"),
        ("b", "CPU quota", "threads"),
        ("a", "affinity", "threads"),
        ("b", "affinity", "threads"),
        ("a", "CPU quota", "no quota"),
        ("b", "CPU quota", "no quota"),
    ]
