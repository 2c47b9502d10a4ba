"""A program waits at its first instruction until it is let go on."""

import fcntl
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import stopping

from tare.core.errors import UnavailableError
from tare.core.process import MARK
from tare.launch import barrier
from tare.launch.barrier import Barrier, Gate, words


@pytest.fixture
def gate(tmp_path):
    found = Barrier(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("kind", [Barrier, Gate])
def test_both_pipes_are_ours_alone_and_block_nobody(tmp_path, kind):
    made = kind(tmp_path)
    handles = list(vars(made).values())
    names = (barrier.AT, barrier.GO) if kind is Barrier else (barrier.GATE_AT, barrier.GATE_GO)
    assert [stat.filemode((tmp_path / name).stat().st_mode) for name in names] == ["prw-------"] * 2
    assert len(handles) == 2
    for handle in handles:
        assert not os.get_blocking(handle) and fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    made.close()
    for handle in handles:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)
    made.close()  # and once more, as after an interruption


def test_each_gate_is_told_once_and_opened_as_often_as_asked(tmp_path):
    made = Gate(tmp_path)
    assert not made.has_come()
    (tmp_path / barrier.GATE_AT).write_bytes(b"..")
    assert [made.has_come() for _ in range(3)] == [True, True, False]
    with (tmp_path / barrier.GATE_GO).open("rb", buffering=0) as program:
        made.open()
        assert program.read(9) == b"."
        made.open(3)
        assert program.read(9) == b"..."
    made.close()


def test_a_program_may_come_late(gate, tmp_path, monkeypatch):
    looks = []

    def has_ended():
        looks.append(time.monotonic_ns())
        if len(looks) == 3:
            (tmp_path / barrier.AT).write_bytes(b"x")
        return False

    monkeypatch.setattr(barrier, "ENDED_S", 0.0)
    at = gate.wait(60.0, has_ended)
    assert len(looks) == 3 and looks[-1] <= at <= time.monotonic_ns()
    with pytest.raises(UnavailableError, match="did not come within"):
        gate.wait(0.0, lambda: False)


def test_a_process_that_waits_is_known_by_its_input(tmp_path):
    paths = [tmp_path / str(number) for number in range(3)]
    for path in paths:
        (path / "fd").mkdir(parents=True)
        (path / "fd/0").write_text("")
    wanted = [(path / "fd/0").stat() for path in paths]
    assert [[barrier._holds(path, one) for one in wanted] for path in paths] == [
        [path == other for other in paths] for path in paths
    ]
    moved = SimpleNamespace(st_dev=wanted[0].st_dev + 1, st_ino=wanted[0].st_ino)
    assert not barrier._holds(paths[0], moved) and not barrier._holds(tmp_path / "gone", wanted[0])


def test_a_program_comes_waits_and_goes_on(gate, tmp_path):
    before = time.monotonic_ns()
    argv = words(tmp_path, ("/bin/sh", "-c", 'echo "$@" > "$0"', str(tmp_path / "out"), "a b", "c"))
    with subprocess.Popen(argv) as child:
        at = gate.wait(10.0, lambda: child.poll() is not None)
        assert before < at < time.monotonic_ns()
        assert gate.root() == child.pid
        time.sleep(0.1)
        assert child.poll() is None and not (tmp_path / "out").exists()
        gate.open()
        assert child.wait(timeout=10) == 0
    assert (tmp_path / "out").read_text() == "a b c\n"


@pytest.mark.parametrize("gone", ["folder", "keeper"])
def test_a_program_whose_keeper_has_gone_never_runs(tmp_path, gone):
    folder, out = tmp_path / "launch", tmp_path / "out"
    folder.mkdir()
    found = Barrier(folder)
    if gone == "folder":  # before the program has come
        shutil.rmtree(folder)
    with subprocess.Popen(words(folder, ("/bin/sh", "-c", 'echo > "$0"', str(out)))) as child:
        if gone == "keeper":
            found.wait(10.0, lambda: child.poll() is not None)
            found.root()
        found.close()
        assert child.wait(timeout=10) == 125
    assert not out.exists()


def test_a_program_does_not_see_the_mark_of_its_guard(gate, tmp_path):
    argv = words(tmp_path, ("/usr/bin/env",))
    with subprocess.Popen(argv, env={"A": "1", MARK: "2-3"}, stdout=subprocess.PIPE, text=True) as child:
        gate.wait(10.0, lambda: child.poll() is not None)
        assert f"{MARK}=2-3" in Path(f"/proc/{child.pid}/environ").read_text().split("\0")
        gate.open()
        assert f"{MARK}=" not in (told := child.communicate(timeout=10)[0]) and "A=1" in told.splitlines()


def test_the_root_is_found_below_others(gate, tmp_path):
    inner = words(tmp_path, ("/bin/sleep", "60"))
    with stopping.running(f"import subprocess\nsubprocess.run({inner!r})") as outer:
        gate.wait(10.0, lambda: outer.poll() is not None)
        root = gate.root()
        assert root != outer.pid and root in stopping.freezing.descendants(outer.pid)
        gate.open()
        deadline, words_of = time.monotonic() + 10, Path(f"/proc/{root}/cmdline")
        while time.monotonic() < deadline and words_of.read_bytes() != b"/bin/sleep\x0060\x00":
            time.sleep(0.02)
        assert words_of.read_bytes() == b"/bin/sleep\x0060\x00"


def test_a_program_that_ends_before_is_no_timeout(gate):
    with pytest.raises(UnavailableError, match="ended before"):
        gate.wait(60.0, lambda: True)


def test_a_program_that_never_comes_is_given_up(gate):
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="did not come within"):
        gate.wait(0.2, lambda: False)
    assert time.monotonic() - started < 5


def test_a_program_that_is_not_to_be_seen_is_refused(gate, monkeypatch):
    monkeypatch.setattr(barrier, "FIND_S", 0.1)
    with pytest.raises(UnavailableError, match="can't be seen"):
        gate.root()
