"""Waits for what comes by itself, and fails with a word where it does not."""

import time

DEADLINE_S = 20.0


def wait_until(condition, what, deadline_s=DEADLINE_S):
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.05)
