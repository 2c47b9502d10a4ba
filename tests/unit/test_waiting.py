"""What a thread waits for, by what /proc says of it: here a folder with the same files."""

import platform
import struct
import time

import pytest

from tare.launch.slicing import waiting
from tare.launch.slicing.waiting import LONGEST_S, SHORTEST_S, Look, look, waits_for_clock_or_disk

ADDRESS = 4096
REALTIME = 0x100  # flags of a futex, whose commands 0 and 9 wait for a duration and for an instant


@pytest.fixture
def thread(tmp_path, monkeypatch):
    """A thread in a system call with these arguments, the time at ADDRESS of its memory."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    def make(number, *arguments, at=None, wchan=None):
        words = [
            *(hex(one & 0xFFFFFFFFFFFFFFFF) for one in arguments),
            *["0x0"] * (6 - len(arguments)),
            "0x1",
            "0x2",
        ]
        (tmp_path / "syscall").write_text(" ".join([str(number), *words]) if number is not None else "running")
        if at is not None:
            (tmp_path / "mem").write_bytes(bytes(ADDRESS) + struct.pack("qq", *at))
        if wchan is not None:
            (tmp_path / "wchan").write_text(wchan)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("timeout_ms", "waits"),
    [(-1, False), (0, False), (1, True), (1e3 * LONGEST_S, True), (1e3 * LONGEST_S + 1, False)],
)
@pytest.mark.parametrize(("number", "place"), [(7, 2), (232, 3), (281, 3)])  # poll, epoll_wait, epoll_pwait
def test_a_short_time_out_in_milliseconds_is_waited_for(thread, number, place, timeout_ms, waits):
    for above in (0, 1 << 32):  # an int in a register: what is above its 32 bits is no part of it
        arguments = [*[5] * place, above + (int(timeout_ms) & 0xFFFFFFFF)]
        assert waits_for_clock_or_disk(thread(number, *arguments), "S") == waits


@pytest.mark.parametrize("number", [35, 230])  # nanosleep, clock_nanosleep
def test_a_sleep_is_waited_for(thread, number):
    assert waits_for_clock_or_disk(thread(number), "S")


def test_a_read_of_a_pipe_and_a_thread_that_runs_are_not(thread):
    assert not waits_for_clock_or_disk(thread(0, 3), "S")
    assert not waits_for_clock_or_disk(thread(None), "S")


@pytest.mark.parametrize(
    ("at", "waits"),
    [((0, 1000), True), ((int(LONGEST_S), 0), True), ((int(LONGEST_S), 1), False), ((10**6, 0), False),
     ((0, int(1e9 * LONGEST_S)), True), ((0, int(1e9 * LONGEST_S) + 1), False)],
)  # fmt: skip
@pytest.mark.parametrize(("number", "place"), [(271, 2), (270, 4), (441, 3), (202, 3)])
def test_a_short_duration_is_waited_for(thread, number, place, at, waits):
    """In ppoll, pselect6, epoll_pwait2 and FUTEX_WAIT."""
    arguments = [*[0] * place, ADDRESS]
    assert waits_for_clock_or_disk(thread(number, *arguments, at=at), "S") == waits
    assert not waits_for_clock_or_disk(thread(number, *[0] * 6, at=at), "S"), "it has no time-out"


def test_select_counts_microseconds(thread):
    assert waits_for_clock_or_disk(thread(23, 0, 0, 0, 0, ADDRESS, at=(int(LONGEST_S) - 1, 1_000_000)), "S")
    assert not waits_for_clock_or_disk(thread(23, 0, 0, 0, 0, ADDRESS, at=(int(LONGEST_S) - 1, 1_000_001)), "S")


@pytest.mark.parametrize(("flags", "clock"), [(0, time.CLOCK_MONOTONIC), (REALTIME, time.CLOCK_REALTIME)])
@pytest.mark.parametrize(
    ("left_s", "waits"),
    [(LONGEST_S - 0.25, True), (LONGEST_S + 0.25, False), (SHORTEST_S + 0.002, True), (SHORTEST_S - 0.002, False)],
)
def test_an_instant_of_a_futex_is_by_its_clock(thread, monkeypatch, flags, clock, left_s, waits):
    """Only what is left of it counts, in seconds and nanoseconds."""
    now = {time.CLOCK_MONOTONIC: 1000.75, time.CLOCK_REALTIME: 500_000.75}
    monkeypatch.setattr(waiting.time, "clock_gettime", now.__getitem__)
    seconds, rest = divmod(now[clock] + left_s, 1)
    folder = thread(202, 0, 9 | flags, 0, ADDRESS, at=(int(seconds), round(rest * 1e9)))
    assert waits_for_clock_or_disk(folder, "S") == waits


@pytest.mark.parametrize(
    ("left_ns", "waits"),
    [
        (1e9 * LONGEST_S, True),
        (1e9 * LONGEST_S + 1, False),
        (1e9 * SHORTEST_S + 1, True),
        (1e9 * SHORTEST_S, False),
    ],
)
def test_the_bounds_of_an_instant_are_exact(thread, monkeypatch, left_ns, waits):
    monkeypatch.setattr(waiting.time, "clock_gettime", lambda clock: 0.0)
    assert waits_for_clock_or_disk(thread(202, 0, 9, 0, ADDRESS, at=(0, round(left_ns))), "S") == waits


def test_a_futex_that_wakes_others_does_not_wait(thread):
    assert not waits_for_clock_or_disk(thread(202, 0, 1, 0, ADDRESS, at=(0, 1000)), "S")


@pytest.mark.parametrize(
    ("number", "wchan", "waits"),
    [(0, "folio_wait_bit", True), (0, "rwsem_down_read_slowpath", False), (0, "__mutex_lock", False),
     (58, "folio_wait_bit", False), (0, None, True)],
)  # fmt: skip
def test_what_cant_be_interrupted_waits_for_a_disk_unless_for_another_thread(thread, number, wchan, waits):
    assert waits_for_clock_or_disk(thread(number, wchan=wchan), "D") == waits


def test_what_is_gone_waits_for_nothing_and_what_hides_may(thread, tmp_path, monkeypatch):
    assert not waits_for_clock_or_disk(tmp_path, "S")
    folder = thread(271, 0, 0, ADDRESS)
    assert not waits_for_clock_or_disk(folder, "S"), "its memory is gone"
    (folder / "mem").write_bytes(b"short")
    assert not waits_for_clock_or_disk(folder, "S")

    opened = waiting.Path.open
    for hidden in ("mem", "syscall"):

        def refuse(path, *given, hidden=hidden, **named):
            if path.name == hidden:
                raise PermissionError
            return opened(path, *given, **named)

        monkeypatch.setattr(waiting.Path, "open", refuse)
        assert waits_for_clock_or_disk(folder, "S"), hidden


def test_a_look_tells_who_can_run_and_who_waits(thread, tmp_path):
    asleep, other = thread(35), tmp_path / "none"
    assert look([]) == Look(runnable=False, waits=False)
    assert look([(other, "R"), (other, "S")]) == Look(runnable=True, waits=False)
    assert look([(asleep, "S"), (other, "R"), (other, "D")]) == Look(runnable=True, waits=True)
    assert look([(asleep, "Z"), (asleep, None), (asleep, "T")]) == Look(runnable=False, waits=False)
