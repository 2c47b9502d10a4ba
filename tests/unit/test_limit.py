"""A run of the tests that is limited in time: what is beyond the core is skipped with its reason, the core runs."""

import os
import subprocess
import sys
import time

import limit
import pytest
from project import ROOT

BEYOND = "tests/conformance/test_losses.py"
CORE = "tests/unit/test_limit.py::test_without_a_limit_nothing_is_skipped"


def test_without_a_limit_nothing_is_skipped(monkeypatch):
    monkeypatch.delenv(limit.UNTIL, raising=False)
    limit.skip_when_over()
    assert limit.left_s() == float("inf") and limit.told() == "" and not limit.given()


def test_the_first_process_begins_the_time_and_others_have_the_same(monkeypatch):
    monkeypatch.setenv(limit.VARIABLE, "30")
    monkeypatch.setenv(limit.UNTIL, "")
    monkeypatch.delenv(limit.UNTIL)
    limit.begin()
    until = os.environ[limit.UNTIL]
    assert 29 * 60 < limit.left_s() <= 30 * 60
    time.sleep(0.01)
    limit.begin()
    assert os.environ[limit.UNTIL] == until
    limit.skip_when_over()


def test_when_it_is_over_a_test_is_skipped_with_the_reason(monkeypatch):
    monkeypatch.setenv(limit.VARIABLE, "30")
    monkeypatch.setenv(limit.UNTIL, str(time.time() - 1))
    with pytest.raises(pytest.skip.Exception, match="not begun: 30 minutes of these tests are over"):
        limit.skip_when_over()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_what_is_no_time_is_refused(monkeypatch, text):
    monkeypatch.setenv(limit.VARIABLE, text)
    monkeypatch.delenv(limit.UNTIL, raising=False)
    with pytest.raises(pytest.UsageError, match=f"{text!r} is no positive number of minutes"):
        limit.begin()
    assert limit.UNTIL not in os.environ


def test_in_a_run_what_is_beyond_the_core_is_skipped_and_the_core_runs():
    environment = {**os.environ, limit.VARIABLE: "0.00001", "TARE_TEST_ALL": "1"}
    environment.pop(limit.UNTIL, None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-rs", "-v", BEYOND, CORE],
        cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "not begun: 0.00001 minutes of these tests are over" in done.stdout
    assert done.stdout.index("test_without_a_limit") < done.stdout.index("test_losses.py::"), "the core comes first"
