"""Processes: their output, their end, their group."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.core import process
from tare.core.errors import UnavailableError
from tare.core.process import KEEP_OUTPUT_BYTES, run


def test_output_status_and_cpu_time():
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=10)
    assert (done.stdout, done.stderr, done.returncode, done.ok) == ("out\n", "err\n", 3, False)
    assert "status 3: err" in done.explain()
    busy = run(["python3", "-c", "import time\nwhile time.process_time() < 0.3: pass"], timeout_s=30)
    assert 0.25 < busy.user_s + busy.system_s < busy.wall_s + 0.5  # one process is never busier than the clock


def test_where_children_are_ignored_ours_are_waited_for_all_the_same():
    """As a program does that was started by one that ignores SIGCHLD: the kernel would reap them itself."""
    code = (
        "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from tare.core.arguments import status_of\n"
        "from tare.core.process import run\n"
        "sys.exit(status_of(lambda: run(['sh', '-c', 'exit 7'], timeout_s=10).returncode))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=process.GUARD.parents[2], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (7, b"")


def test_a_program_that_found_the_disk_full_says_so_and_what_to_do():
    done = run(["sh", "-c", "echo 'wrote'; echo '/x/y: No space left on device' >&2; exit 1"], timeout_s=10)
    assert done.explain() == "sh found no space left: free some, or point TARE_CACHE and TMPDIR at a larger disk"


@pytest.mark.parametrize(
    "line",
    [
        "unshare: unshare failed: No space left on device",
        "unshare: a namespace: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
    ],
)
def test_a_limit_of_namespaces_is_no_full_disk(line):
    done = run(["sh", "-c", 'echo "$0" >&2; exit 1', line], timeout_s=10)
    assert done.explain() == f"sh ended with status 1: {line}"


def test_a_timeout_kills_the_whole_group(tmp_path):
    mark = tmp_path / "pid"
    done = run(["sh", "-c", f"sleep 600 & echo $! > {mark}; wait"], timeout_s=0.5)
    assert done.timed_out
    assert done.wall_s < 300
    pid = int(mark.read_text())
    deadline = time.monotonic() + 60
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
    done = run(["sh", "-c", "sleep 600 & echo done"], timeout_s=500)
    assert done.stdout == "done\n"
    assert done.wall_s < 300


def test_standard_input_reaches_the_program_and_nothing_leaks_into_its_environment():
    assert run(["cat"], timeout_s=10, stdin=b"hello").stdout == "hello"
    os.environ["TARE_TEST_LEAK"] = "1"
    try:
        shown = run(["/usr/bin/env"], timeout_s=10, env={"ONLY": "this"}).stdout.splitlines()
        assert [line for line in shown if not line.startswith(process.MARK)] == ["ONLY=this"]
    finally:
        del os.environ["TARE_TEST_LEAK"]


def test_a_program_that_is_not_there():
    with pytest.raises(UnavailableError, match="not installed"):
        run(["tare-no-such-program"], timeout_s=5)


def test_colours_are_left_out_of_the_explanation():
    ended = run(["sh", "-c", r"printf '\033[91mERROR  : no such image\033[0m\n' >&2; exit 3"], timeout_s=10)
    assert ended.explain() == "sh ended with status 3: ERROR  : no such image"


def test_a_program_that_never_reads_its_input_times_out():
    done = run(["sleep", "600"], timeout_s=0.5, stdin=b"x" * (1 << 20))
    assert done.timed_out
    assert done.wall_s < 300


def test_a_long_input_arrives_whole_while_output_is_read():
    sent = bytes(range(33, 127)) * 40_000
    assert run(["cat"], timeout_s=30, stdin=sent).stdout.encode() == sent[-KEEP_OUTPUT_BYTES:]


HARNESS = """
import sys, pathlib
from tare.core import process
folder = pathlib.Path(sys.argv[1])
(folder / "leftover").mkdir()
note = ["sh", "-c", f"echo told > {folder}/told"]
with process.at_death("it", commands=[note], env={"PATH": "/usr/bin:/bin"}, folder=folder / "leftover"):
    process.run(["sh", "-c", f"sleep 987123 & echo $! > {folder}/grandchild; echo $$ > {folder}/child; wait"],
                timeout_s=600)
"""


def gone(pid, within_s=5.0):
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def appears(path, within_s=20.0):
    deadline = time.monotonic() + within_s
    while not (path.exists() and path.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.read_text().strip()


def test_nothing_outlives_a_command_that_is_killed(tmp_path):
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path)])
    child, grandchild = int(appears(tmp_path / "child")), int(appears(tmp_path / "grandchild"))
    harness.kill()
    harness.wait()
    assert gone(child) and gone(grandchild)
    assert appears(tmp_path / "told") == "told"
    deadline = time.monotonic() + 5
    while (tmp_path / "leftover").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not (tmp_path / "leftover").exists()


def test_what_was_started_in_the_last_moment_is_found_too(tmp_path):
    """The harness dies before it can tell its guard of the program."""
    mute = "    process._guard.note = lambda *key, **values: None\n    process.run"
    untold = HARNESS.replace("    process.run", mute)
    harness = subprocess.Popen([sys.executable, "-c", untold, str(tmp_path)])
    child, grandchild = int(appears(tmp_path / "child")), int(appears(tmp_path / "grandchild"))
    harness.kill()
    harness.wait()
    assert gone(child) and gone(grandchild)


def test_what_waits_at_a_barrier_in_an_environment_of_its_own_is_found_too(tmp_path):
    """The mark of its client's environment has gone; its keeper dies before it can tell its guard of the launch."""
    mute = """    process._guard.note = lambda *key, **values: None
    from tare.launch import barrier, prepare
    words = barrier.words(folder, ("sleep", "987125"))
    held = barrier.Barrier(folder)
    argv = prepare.inside_argv({"A": "1", process.MARK: process.mark()}, words)
    running = process.start(argv, env=None, cwd=None, stdin=None, stdout=None, stderr=None)
    held.wait(20.0, lambda: False)
    (folder / "child").write_text(str(held.root()))
    process.run"""
    untold = HARNESS.replace("    process.run", mute)
    harness = subprocess.Popen([sys.executable, "-c", untold, str(tmp_path)])
    child = int(appears(tmp_path / "child"))
    os.kill(child, signal.SIGSTOP)  # it can't see that its keeper has gone
    harness.kill()
    harness.wait()
    assert gone(child)


def test_a_guard_that_was_killed_is_started_again_and_knows_all(tmp_path):
    again = HARNESS.replace(
        "    process.run",
        """
    import os, signal, time
    running = process.start(["sleep", "987124"], env=None, cwd=None, stdin=None, stdout=None, stderr=None)
    os.kill(process._guard._process.pid, signal.SIGKILL)
    time.sleep(0.2)
    (folder / "first").write_text(str(running.pid))
    process.run""",
    )
    harness = subprocess.Popen([sys.executable, "-c", again, str(tmp_path)])
    first, child = int(appears(tmp_path / "first")), int(appears(tmp_path / "child"))
    harness.kill()
    harness.wait()
    assert gone(first) and gone(child)
    assert appears(tmp_path / "told") == "told"


def test_what_has_ended_is_not_ended_again(tmp_path):
    script = (
        "import sys; from tare.core import process\n"
        f"command = ['touch', '{tmp_path}/told']\n"
        "with process.at_death('it', commands=[command], env={'PATH': '/usr/bin:/bin'}): pass\n"
        "process.run(['true'], timeout_s=5)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    time.sleep(0.3)
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize("end", ["killed", "interrupted"])
def test_what_must_not_be_cut_short_goes_on_for_a_while_and_no_longer(tmp_path, end):
    slow = "; setsid sh -c 'sleep 1; echo done > {folder}/done'; sleep 987125\"]"  # as apt starts dpkg
    patient = HARNESS.replace('; wait"]', slow)
    patient = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + patient
    patient = patient.replace("timeout_s=600", "timeout_s=600, patience_s=6")
    assert patient.count("patience_s=6") == patient.count("{folder}/done") == 1
    harness = subprocess.Popen([sys.executable, "-c", patient, str(tmp_path)], stderr=subprocess.DEVNULL)
    child = int(appears(tmp_path / "child"))
    time.sleep(0.5)  # until the harness waits for it
    harness.send_signal(signal.SIGKILL if end == "killed" else signal.SIGINT)
    assert appears(tmp_path / "done") == "done"
    assert gone(child, within_s=20) and harness.wait(30) != 0


def test_what_a_program_of_go_says_before_it_dumps_its_registers_is_its_reason():
    told = "runtime/cgo: pthread_create failed: Resource temporarily unavailable\\nSIGABRT: abort\\nPC=0x1\\ngs 0x0"
    ended = run(["sh", "-c", f"printf '{told}' >&2; exit 2"], timeout_s=10)
    assert ended.explain() == (
        "sh ended with status 2: runtime/cgo: pthread_create failed: Resource temporarily unavailable"
    )
