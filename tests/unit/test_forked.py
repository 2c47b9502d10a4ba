"""Work shared out to forked processes."""

import os
import signal

import pytest

from tare.core.forked import forked


@pytest.fixture
def interruptions():
    """SIGTERM as a command takes it."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_a_process_of_a_pool_whatever_it_does_to_the_command(interruptions):
    with forked(2) as pool:
        assert set(pool.map(signal.getsignal, [signal.SIGTERM] * 4)) == {signal.SIG_DFL}
    assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None)


def test_answers_come_in_order_and_the_processes_end(interruptions):
    with forked(2, tasks_each=1) as pool:
        assert pool.map(abs, [-3, 2, -1]) == [3, 2, 1]
        found = pool.map(_process, range(3), chunksize=1)
    for process in {*found} - {os.getpid()}:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_what_fails_in_a_process_is_told_here(interruptions):
    with pytest.raises(TypeError), forked(2) as pool:
        pool.map(abs, ["one"])


def _process(_):
    return os.getpid()
