"""From the clock's instants to a launch's own time."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.core.errors import IntegrityError
from tare.model.records.launches import Mark
from tare.model.records.slices import Slices, own_results
from tare.model.schema import parse

ARRIVED = 5_000_000_000


def slices(began, quiet, *, length=None, ended=None, **more):
    last = began[-1] + quiet[-1]
    count = len(began)
    return Slices(
        **{
            **{"means": "signals", "spawn_ns": ARRIVED - 10**8, "arrived_ns": ARRIVED},
            **{"ended_ns": ARRIVED + 1000 * (last if ended is None else ended)},
            **{"end_ns": ARRIVED + 1000 * last + 10**7, "began_us": tuple(began)},
            **{"length_us": tuple(length or quiet), "quiet_us": tuple(quiet), "quantum_ms": (40,) * count},
            **{"waited_us": (0,) * count, "cpu_us": tuple(quiet), **more},
        }
    )


@st.composite
def several(draw):
    parts = draw(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=20))
    ends = list(accumulate(gap + length for gap, length in parts))
    return slices([end - length for end, (_, length) in zip(ends, parts, strict=True)], [one for _, one in parts])


@given(several(), st.lists(st.integers(-(10**9), 5 * 10**10), min_size=2, max_size=30))
def test_own_time_never_runs_backwards_nor_faster_than_the_clock(found, since):
    at = np.sort(np.asarray(since, dtype=np.int64)) + ARRIVED
    own = found.own_ns(at)
    assert np.all(np.diff(own) >= 0)
    assert np.all(np.diff(own) <= np.diff(at) + 2)
    assert np.all(own <= at)


@given(several())
def test_own_time_of_the_end_is_the_sum_of_the_slices(found):
    assert found.own_ns(found.ended_ns) - ARRIVED == 1000 * sum(found.quiet_us)
    assert found.body_s == pytest.approx(sum(found.quiet_us) / 1e6)
    assert found.own_ns(found.end_ns) - found.own_ns(found.ended_ns) == found.end_ns - found.ended_ns
    for began, quiet, before in zip(found.began_us, found.quiet_us, accumulate((0, *found.quiet_us)), strict=False):
        assert found.own_ns(ARRIVED + 1000 * began) - ARRIVED == 1000 * before
        assert found.own_ns(ARRIVED + 1000 * (began + quiet // 2)) - ARRIVED == 1000 * (before + quiet // 2)


@given(st.integers(1, 10**7), st.lists(st.integers(-(10**9), 10**11), min_size=1))
def test_one_slice_from_the_beginning_changes_nothing(length, since):
    at = np.asarray(since, dtype=np.int64) + ARRIVED
    assert np.array_equal(slices([0], [length]).own_ns(at), at)


@given(several(), st.integers(0, 10**6))
def test_time_while_it_is_stopped_is_not_its_own(found, within):
    ends = [began + quiet for began, quiet in zip(found.began_us, found.quiet_us, strict=True)]
    for end, (_, later) in zip(ends, pairwise(found.began_us), strict=False):
        at = end + min(within, later - end)
        assert found.own_ns(ARRIVED + 1000 * at) == found.own_ns(ARRIVED + 1000 * end)


def test_slices_that_overlap_are_no_record():
    good = slices([0, 20], [10, 10]).to_json()
    with pytest.raises((IntegrityError, ValueError)):
        parse(Slices, {**good, "began_us": [0, 9]}, "it")
    with pytest.raises((IntegrityError, ValueError)):
        parse(Slices, {**good, "cpu_us": [1]}, "it")


@pytest.mark.parametrize(
    ("servers_us", "margin", "differ"),
    [(0, 0.05, False), (1200, 0.05, False), (1300, 0.05, True), (1300, 0.1, False)],
)
def test_two_bills_differ_by_more_than_a_quarter_of_the_margin(servers_us, margin, differ):
    found = slices([0, 300_000], [50_000, 50_000 + servers_us], length=[50_000, 50_000])
    assert found.body_s - found.body_without_servers_s == pytest.approx(servers_us / 1e6)
    assert found.bills_differ(margin) is differ


def test_imports_of_a_mark_are_counted_in_own_time():
    """An import from 5 ms of the first slice to 5 ms of the second, which begins 90 ms after the first ends."""
    found = slices([0, 100_000], [10_000, 10_000])
    record = {"name": "model", "at_ns": ARRIVED + 108_000_000, "user_s": 0.0, "system_s": 0.0}
    span = [ARRIVED + 5_000_000, ARRIVED + 105_000_000]
    mark = parse(Mark, {**record, "modules": 1, "imports_ns": [span]}, "a mark")
    moved = mark.moved(lambda at_ns: int(found.own_ns(at_ns)))
    assert (mark.imports_s, moved.imports_s) == (0.1, 0.01)
    assert moved.at_ns == ARRIVED + 18_000_000
    old = parse(Mark, record, "a mark")
    assert old.imports_s is None and old.moved(lambda at_ns: at_ns).to_json() == record


def test_results_are_moved_with_their_instants():
    found = slices([0, 100], [10, 10])
    at = [ARRIVED + 5_000, ARRIVED + 105_000]
    moved = own_results(
        {"step_ends_ns": at, "loss": 1.0, "replicates": [{"started_ns": at[0], "level": "x"}]}, found
    )
    assert moved == {
        "step_ends_ns": [ARRIVED + 5_000, ARRIVED + 15_000],
        "loss": 1.0,
        "replicates": [{"started_ns": ARRIVED + 5_000, "level": "x"}],
    }


def test_steps_that_were_timed_without_a_profiler_are_moved_with_their_instants():
    found = slices([0, 100], [10, 10])
    at = [ARRIVED + 2_000, ARRIVED + 5_000, ARRIVED + 105_000]
    moved = own_results({"plain_instants_ns": at, "plain_step_s": [3e-6, 1e-4]}, found)
    assert moved["plain_instants_ns"] == [ARRIVED + 2_000, ARRIVED + 5_000, ARRIVED + 15_000]
    assert moved["plain_step_s"] == pytest.approx([3e-6, 1e-5])
    assert own_results({"plain_instants_ns": [], "plain_step_s": []}, found)["plain_step_s"] == []
