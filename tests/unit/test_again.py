"""What failed beside others runs once more, alone."""

import json
import subprocess
import sys

import again
import pytest
from again import FAILED, FILES

from tare.core.files import project_root

TESTS = """
from pathlib import Path

def test_fails():
    assert {defect!r} == ""

def test_fails_once():
    once = Path("once")
    once.write_text(once.read_text() + "x") if once.exists() else once.write_text("")
    assert once.read_text()
"""


@pytest.mark.parametrize(("defect", "status"), [("", 0), ("a defect", FAILED)])
def test_a_defect_fails_alone_as_well(tmp_path, defect, status):
    (tmp_path / "test_one.py").write_text(TESTS.format(defect=defect))
    (tmp_path / "pytest.ini").write_text("")
    first = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, timeout=120)
    assert first.returncode == FAILED
    command = [sys.executable, str(project_root() / "tests/again.py"), str(first.returncode)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("failed beside others, passed alone: ")]
    assert said == ["failed beside others, passed alone: test_one.py::test_fails_once"]


@pytest.mark.parametrize(
    ("status", "names", "runs"),
    [
        (0, [], False),
        (2, ["a.py::test"], False),  # interrupted
        (FAILED, [], False),  # of what is no test
        (FAILED, [f"{number}.py::test" for number in range(FILES + 1)], False),
        (FAILED, [f"a.py::test_{number}" for number in range(FILES + 1)], True),
    ],
)
def test_a_few_failures_run_again(tmp_path, status, names, runs):
    cache = tmp_path / "lastfailed"
    cache.write_text(json.dumps(dict.fromkeys(names, True)))
    ran = []
    found, _ = again.again(status, cache, lambda: ran.append(True) or 0)
    assert (found, bool(ran)) == (0 if runs else status, runs)
