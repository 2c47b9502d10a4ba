"""Work shared out to forked processes."""

import os
import signal
import subprocess
import sys

import pytest
from project import ROOT

from tare.core.forked import forked

# Processes are forked again and again, so that some are forked while the pool is ended.
ENDED_IN_THE_MIDDLE = """
import signal
from tare.core.forked import forked, terminate

def interrupt(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, interrupt)
for turn in range(200):
    try:
        with forked(2, tasks_each=1) as pool:
            for one in [pool.apply_async(abs, (-1,)) for _ in range(4)]:
                one.get(20)
            if turn % 2:
                raise KeyError
            terminate(pool)
    except KeyError:
        pass
"""


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


@pytest.mark.timeout(180)
def test_a_pool_that_is_ended_waits_for_no_process_that_has_missed_it():
    """One that was just being forked lost its SIGTERM, and was waited for ever."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED_IN_THE_MIDDLE], cwd=ROOT, timeout=120, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_fails_in_a_process_is_told_here(interruptions):
    with pytest.raises(TypeError), forked(2) as pool:
        pool.map(abs, ["one"])


def _process(_):
    return os.getpid()
