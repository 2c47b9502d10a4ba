"""How long a run of the tests may begin tests: `make test ALL=1 MINUTES=60`.

On a slow machine all of the tests take too long. What is not begun in time is skipped and says why; the end of the
run counts what was skipped of the core. No test lasts longer than LAST_S after the time is over.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time

import pytest

LAST_S = 600.0
NOT_BEGUN = "not begun in time"
VARIABLE = "TARE_TEST_MINUTES"
UNTIL = "TARE_TEST_UNTIL"  # seconds since the epoch, the same for all processes of a run


def begin() -> None:
    """The time runs from here, for this process and all that it starts."""
    text = os.environ.get(VARIABLE, "")
    if not text or UNTIL in os.environ:
        return
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise pytest.UsageError(f"tare: MINUTES ({VARIABLE}): {text!r} is no positive number of minutes")
    os.environ[UNTIL] = str(time.time() + 60 * minutes)


def given() -> bool:
    """Whether the time is limited."""
    return UNTIL in os.environ


def told() -> str:
    """For the first lines of a run."""
    return f", begun within {os.environ.get(VARIABLE)} min" if given() else ""


def left_s() -> float:
    """Seconds until the time is over; infinite where it is not limited."""
    return float(os.environ[UNTIL]) - time.time() if given() else float("inf")


def skip_when_over(*, of_core: bool = False) -> None:
    """Skip the test that asks for this when the time is over."""
    if left_s() <= 0:
        which = f"{NOT_BEGUN}, of the core" if of_core else NOT_BEGUN
        pytest.skip(f"{which}: {os.environ.get(VARIABLE)} minutes of these tests are over (make test MINUTES)")


def end_with_last() -> None:
    """End this process where a test hangs beyond the time: pytest-xdist then names it as failed."""
    if given():
        faulthandler.dump_traceback_later(max(1.0, left_s() + LAST_S), exit=True, file=sys.__stderr__)
