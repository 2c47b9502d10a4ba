"""A run of the tests of limited time: the core comes first; what is not begun is skipped with its reason."""

import os
import subprocess
import sys
import time

import conftest
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
    with pytest.raises(pytest.skip.Exception, match="not begun in time: 30 minutes of these tests are over"):
        limit.skip_when_over()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_what_is_no_time_is_refused(monkeypatch, text):
    monkeypatch.setenv(limit.VARIABLE, text)
    monkeypatch.delenv(limit.UNTIL, raising=False)
    with pytest.raises(pytest.UsageError, match=f"{text!r} is no positive number of minutes"):
        limit.begin()
    assert limit.UNTIL not in os.environ


def run_of(minutes, *arguments):
    environment = {**os.environ, limit.VARIABLE: minutes, "TARE_TEST_ALL": "1"}
    environment.pop(limit.UNTIL, None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-v", *arguments],
        cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("processes", ["0", "1"])
def test_when_the_time_is_over_nothing_begins_and_the_end_counts_the_core(processes):
    done = run_of("0.00001", "-n", processes, BEYOND, CORE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 skipped" in done.stdout
    assert "not begun in time: 0.00001 minutes of these tests are over" in done.stdout
    assert "NOT RUN, as the time was over: 1 tests of the core" in done.stdout


def test_the_core_comes_first_also_of_one_file():
    done = run_of("5", "-n0", "--collect-only", "tests/conformance/test_framework_stacks.py", BEYOND, CORE)
    assert done.returncode == 0, done.stdout + done.stderr
    places = [
        done.stdout.index(name) for name in ("test_without_a_limit", "test_every_stack_gives", "test_a_profiled")
    ]
    assert places == sorted(places), done.stdout


def test_what_is_beyond_the_core_is_a_part_apart():
    one, other = "tests/conformance/test_vm.py::test_a", "tests/conformance/test_vm.py::test_b"
    assert conftest.part(one, {other}) == conftest.part(one) == "conformance/test_vm.py"
    assert conftest.part(other, {other}) != conftest.part(one, {other})


def test_a_process_whose_test_hangs_beyond_the_time_ends(tmp_path):
    program = "import limit, time; limit.LAST_S = 0.5; limit.end_with_last(); time.sleep(60)"
    environment = {**os.environ, limit.UNTIL: str(time.time()), "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 1 and "Timeout" in done.stderr
