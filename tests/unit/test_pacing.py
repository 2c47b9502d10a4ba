"""How far each job of a round is to come in a cycle."""

import random

import pytest

from tare.launch.slicing.pacing import QUANTA_S, QUANTUM_WEIGHTS, Pace, draw_quantum


def test_quanta_are_drawn_by_their_weights():
    generator = random.Random(3)
    drawn = [draw_quantum(generator) for _ in range(4000)]
    for quantum, weight in zip(QUANTA_S, QUANTUM_WEIGHTS, strict=True):
        assert drawn.count(quantum) / 4000 == pytest.approx(weight / 4, abs=0.03)


def test_where_nothing_is_known_all_are_equal():
    assert Pace.equal("ab").phases == {"a": (1.0,), "b": (1.0,)}
    assert Pace.equal("ab").target("b", 0.25) == 0.25


def test_targets_follow_the_phases():
    pace = Pace(phases={"a": (1.0, 3.0), "b": (3.0, 1.0)})
    assert [pace.target("a", p) for p in (0.0, 1.0, 2.0, 3.0, 4.0)] == pytest.approx([0.0, 0.5, 1.0, 2.5, 4.0])
    assert [pace.target("b", p) for p in (0.0, 1.0, 2.0, 3.0, 4.0)] == pytest.approx([0.0, 1.5, 3.0, 3.5, 4.0])
    assert pace.target("a", 6.0) == pytest.approx(6.0)  # behind its end as fast as the whole


def test_a_phase_that_takes_nothing_is_passed():
    pace = Pace(phases={"a": (0.0, 1.0), "b": (0.0, 1.0)})
    assert [pace.target("a", at) for at in (0.0, 0.5, 1.0)] == pytest.approx([0.0, 0.5, 1.0])
    assert Pace(phases={"a": (0.0,)}).target("a", 0.5) == 0.5


def test_each_launch_has_all_phases():
    with pytest.raises(ValueError, match="zip"):
        Pace(phases={"a": (1.0, 2.0), "b": (1.0,)}).target("a", 0.5)
