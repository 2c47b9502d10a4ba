"""One sliced round of any launches: which round runs them whole, what counts, and the order of their starts."""

import contextlib
import itertools
import random
from types import SimpleNamespace

import pytest

from tare.experiments import any_round
from tare.experiments.any_round import sliced_round
from tare.model.records.launches import LaunchRecord

ORDERS = {"b": "order of b", "a": "order of a", "c": "order of c"}
OK = LaunchRecord(status="ok", reason=None, inside=None, deviations=())
FAILED = LaunchRecord(status="failed", reason="no memory", inside=None, deviations=())


@pytest.fixture
def ran(monkeypatch):
    """Rounds that are made up: what was asked for, what each launch gives, and why the round is void."""
    seen = SimpleNamespace(asked=[], ways=[], answers={}, voided=None, paced=[], rehearsal=None)

    def run(orders, way):
        seen.asked.append(orders)
        seen.ways.append(way)
        return SimpleNamespace(records={name: seen.answers.get(name, OK) for name in orders}, voided=seen.voided)

    monkeypatch.setattr(any_round, "run_launches", run)
    monkeypatch.setattr(any_round.others, "watched", lambda used: contextlib.nullcontext())
    monkeypatch.setattr(
        any_round.sliced, "pace_of", lambda done, names: seen.paced.append((len(done), names)) or "paced"
    )
    monkeypatch.setattr(any_round.sliced, "rehearses", lambda done, calibration: seen.rehearsal)
    return seen


def test_launches_run_to_their_ends_until_such_a_round_is_whole_and_are_sliced_then(ran):
    generator, done = random.Random(1), []
    for voided in ("it hung", None, None, "it hung", None):
        ran.voided = voided
        done.append(sliced_round(ORDERS, done, generator))
    assert [unit.unit for unit in done] == [0, 1, 2, 3, 4]
    assert [unit.discarded for unit in done] == [True, True, False, False, False]
    assert [unit.voided for unit in done] == ["it hung", None, None, "it hung", None]
    assert [way.pace for way in ran.ways] == [None, None, "paced", "paced", "paced"]
    assert [before for before, _ in ran.paced] == [2, 3, 4]
    cycles = [list(itertools.islice(way.orders, 12)) for way in ran.ways]
    assert all(order == range(3) for order in itertools.chain(*cycles[:2])), "as they were started"
    for rows in cycles[2:]:
        assert all(sorted(row) == [0, 1, 2] for row in rows) and len(set(rows)) > 1
    assert len({way.seed for way in ran.ways}) == 5


def test_launches_are_started_in_another_order_in_each_round(ran):
    generator, done = random.Random(1), []
    for _ in range(8):
        done.append(sliced_round(ORDERS, done, generator))
    assert all(asked == ORDERS and tuple(asked) == unit.order for asked, unit in zip(ran.asked, done, strict=True))
    assert len({unit.order for unit in done}) > 2
    assert [names for _, names in ran.paced] == [list(unit.order) for unit in done[1:]]


def test_a_round_is_void_for_what_happened_in_it_then_for_a_launch_that_failed_then_as_a_rehearsal(ran):
    generator = random.Random(1)
    whole = sliced_round(ORDERS, [], generator)
    ran.rehearsal, found = "it only sets the pace", []
    for voided, answers in (("it slept", {"b": FAILED}), (None, {"b": FAILED}), (None, {})):
        ran.voided, ran.answers = voided, answers
        unit = sliced_round(ORDERS, [whole], generator)
        found.append((unit.voided, unit.is_rehearsal))
    assert found == [("it slept", False), ("b: no memory", False), ("it only sets the pace", True)]
    ran.rehearsal = None
    assert sliced_round(ORDERS, [whole], generator).counts and not whole.counts
