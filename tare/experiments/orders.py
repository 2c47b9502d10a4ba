"""Balanced orders: rows of Williams squares, drawn from a seed.

A Williams square (E. J. Williams, Aust. J. Sci. Res. A 2, 1949) of n things has n rows where n is even and 2n where
it is odd. Each thing is in each place equally often, and after each other thing equally often. A row and its
reverse are adjacent, so that after any even number of rows all things have the same mean place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


def williams_pairs(count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """A Williams square of the numbers from 0 to `count` - 1, its rows in pairs of a row and its reverse."""
    first = [0]
    for step in range(1, count):
        first.append(step // 2 + 1 if step % 2 else count - step // 2)
    rows = [tuple((value + shift) % count for value in first) for shift in range(count)]
    kept = rows[: count // 2] if count % 2 == 0 else rows  # where n is even, the other half are the reverses
    return [(row, row[::-1]) for row in kept]


def balanced_orders(count: int, generator: random.Random) -> Iterator[tuple[int, ...]]:
    """Orders of `count` things without end: square after square, each with its things, pairs and rows shuffled."""
    while True:
        things = generator.sample(range(count), count)
        pairs = williams_pairs(count)
        generator.shuffle(pairs)
        for pair in pairs:
            for row in generator.sample(pair, 2):
                yield tuple(things[value] for value in row)
