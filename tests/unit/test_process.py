"""Processes: their output, their end, their group."""

import os
import time
from pathlib import Path

import pytest

from tare.core.errors import UnavailableError
from tare.core.process import run


def test_output_status_and_cpu_time():
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=10)
    assert (done.stdout, done.stderr, done.returncode, done.ok) == ("out\n", "err\n", 3, False)
    assert "status 3: err" in done.explain()
    busy = run(["python3", "-c", "import time\nwhile time.process_time() < 0.3: pass"], timeout_s=30)
    assert 0.25 < busy.user_s + busy.system_s < busy.wall_s + 0.5


def test_a_timeout_kills_the_whole_group(tmp_path):
    mark = tmp_path / "pid"
    done = run(["sh", "-c", f"sleep 60 & echo $! > {mark}; wait"], timeout_s=0.5)
    assert done.timed_out
    assert done.wall_s < 10
    pid = int(mark.read_text())
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split()[2]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"the grandchild {pid} is still alive")


def test_a_grandchild_that_holds_the_pipe_does_not_delay_the_end():
    done = run(["sh", "-c", "sleep 30 & echo done"], timeout_s=20)
    assert done.stdout == "done\n"
    assert done.wall_s < 10


def test_standard_input_reaches_the_program_and_nothing_leaks_into_its_environment():
    assert run(["cat"], timeout_s=10, stdin=b"hello").stdout == "hello"
    os.environ["TARE_TEST_LEAK"] = "1"
    try:
        assert run(["/usr/bin/env"], timeout_s=10, env={"ONLY": "this"}).stdout == "ONLY=this\n"
    finally:
        del os.environ["TARE_TEST_LEAK"]


def test_a_program_that_is_not_there():
    with pytest.raises(UnavailableError, match="not installed"):
        run(["tare-no-such-program"], timeout_s=5)


def test_colours_are_left_out_of_the_explanation():
    ended = run(["sh", "-c", r"printf '\033[91mERROR  : no such image\033[0m\n' >&2; exit 3"], timeout_s=10)
    assert ended.explain() == "sh ended with status 3: ERROR  : no such image"
