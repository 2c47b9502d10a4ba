"""Balanced orders: every square is one of Williams', what is left over is balanced as far as it goes."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.experiments.orders import balanced_orders, williams_pairs

SIZES = st.integers(1, 12)


def taken(count, rows, seed=1):
    return list(itertools.islice(balanced_orders(count, random.Random(seed)), rows))


def square(count):
    """Rows of a whole square."""
    return count if count % 2 == 0 else 2 * count


def followers(rows):
    return Counter(pair for row in rows for pair in itertools.pairwise(row))


@given(SIZES)
def test_a_square_has_each_thing_in_each_place_and_after_each_other_equally_often(count):
    rows = [row for pair in williams_pairs(count) for row in pair]
    assert len(rows) == square(count)
    assert all(sorted(row) == list(range(count)) for row in rows)
    places = Counter((place, thing) for row in rows for place, thing in enumerate(row))
    assert set(places.values()) == {len(rows) // count}
    found = followers(rows)
    assert len(found) == count * (count - 1)
    assert set(found.values()) <= {len(rows) // count}


@given(SIZES, st.integers(0, 3), st.integers())
def test_whole_squares_are_balanced_whatever_the_seed(count, squares, seed):
    rows = taken(count, squares * square(count), seed)
    places = Counter((place, thing) for row in rows for place, thing in enumerate(row))
    assert len(set(places.values())) <= 1
    assert len(set(followers(rows).values())) <= 1


@given(SIZES, st.integers(1, 60), st.integers())
def test_what_is_left_over_of_a_square_is_balanced_as_far_as_it_goes(count, number, seed):
    """After an even number every thing has the same mean place; predecessors differ by one at most in a square."""
    rows = taken(count, number, seed)
    sums = [sum(row.index(thing) for row in rows) for thing in range(count)]
    spread = max(sums) - min(sums)
    assert spread == 0 if number % 2 == 0 else spread <= count - 1
    found = followers(rows[number // square(count) * square(count) :])
    if len(rows) % square(count) and count > 1:
        # A whole square has each predecessor once, or twice where the number is odd: no part of it has more.
        assert max(found.values(), default=0) <= (1 if count % 2 == 0 else 2)


def test_orders_follow_the_seed_and_are_not_the_same_for_another():
    assert taken(5, 12, seed=3) == taken(5, 12, seed=3)
    assert taken(5, 12, seed=3) != taken(5, 12, seed=4)


def test_the_square_of_four_by_hand():
    assert williams_pairs(4) == [((0, 1, 3, 2), (2, 3, 1, 0)), ((1, 2, 0, 3), (3, 0, 2, 1))]


@pytest.mark.parametrize("count", [1, 2])
def test_one_and_two_have_orders_too(count):
    assert {tuple(sorted(row)) for row in taken(count, 4)} == {tuple(range(count))}
