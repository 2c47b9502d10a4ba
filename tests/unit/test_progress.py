"""Lines of progress: n of m with a rough time left, and a long step that shows that it lives."""

import time

import pytest

from tare.core import progress


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3, "a few seconds left"),
        (34, "about 30 s left"),
        (114, "about 110 s left"),
        (118, "about 2 min left"),
        (2100, "about 35 min left"),
        (9000, "about 2 h 30 min left"),
    ],
)
def test_time_left_is_no_more_exact_than_it_is_known(seconds, words):
    assert progress.time_left(seconds) == words


def counted(monkeypatch, capsys, unit_s, **arguments):
    """Lines of a counter of four whose units take so long."""
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    counter = progress.Counter("rounds", 4, **arguments)
    while counter.done < counter.total:
        now_s[0] += unit_s
        counter.advance("failed: docker" if counter.done == 1 else "")
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_units_say_how_long_the_others_take_by_those_so_far(monkeypatch, capsys):
    assert counted(monkeypatch, capsys, 60.0) == [
        "rounds 1 of 4, about 3 min left",
        "rounds 2 of 4, about 2 min left; failed: docker",
        "rounds 3 of 4, about 60 s left",
        "rounds 4 of 4 after 4 min 00 s",
    ]


def test_units_of_an_earlier_command_say_nothing_of_those_to_come(monkeypatch, capsys):
    assert counted(monkeypatch, capsys, 60.0, done=2) == [
        "rounds 3 of 4, about 60 s left",
        "rounds 4 of 4 after 2 min 00 s",
    ]


def test_units_of_a_moment_say_no_time(monkeypatch, capsys):
    assert counted(monkeypatch, capsys, 0.1)[:2] == ["rounds 1 of 4", "rounds 2 of 4; failed: docker"]


def test_a_long_step_shows_that_it_lives(monkeypatch, capsys):
    monkeypatch.setattr(progress, "HEARTBEAT_S", 0.01)
    with progress.step("build it"):
        time.sleep(0.1)
    first, *beats = capsys.readouterr().out.splitlines()
    assert first == "    build it" and beats and set(beats) == {"    build it … 0 s"}
