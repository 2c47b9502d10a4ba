"""Which of our ancestors start measuring commands, by what /proc tells of them, and what their end does to us."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tare.core.errors import UnavailableError
from tare.experiments import alone


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        (["/usr/bin/python3", "-m", "tare", "rounds"], True),
        (["python3.12", "-m", "tares", "rounds"], False),
        (["python3", "/opt/bin/snakemake", "--cores", "1"], True),
        (["python3", "snakemake", "--cores", "1"], True),
        (["python3", "-I", "-m", "snakemake"], True),
        (["python3", "-I", "-S", "-m", "snakemake"], False),  # a file of that name may be an argument
        (["python3", "-c", "pass"], False),
        (["/usr/bin/make", "report"], True),
        (["snakemake", "--cores", "1"], True),
        (["bash", "-c", "make"], False),
    ],
)
def test_snakemake_make_and_tare_start_commands(monkeypatch, words, starts):
    text = b"".join(word.encode() + b"\0" for word in words)
    monkeypatch.setattr(alone.Path, "read_bytes", lambda path: {"/proc/7/cmdline": text}[str(path)])
    assert alone._starts_commands(7) == starts


def test_a_process_that_is_gone_starts_none():
    assert not alone._starts_commands(2**22 + 1)


@pytest.mark.parametrize(
    ("starting", "found"), [(set(), []), ({10}, [10]), ({11}, [10, 11]), ({10, 12}, [10, 11, 12])]
)
def test_starters_go_up_to_the_outermost_and_there_are_none_of_a_command_by_hand(monkeypatch, starting, found):
    monkeypatch.setattr(alone, "ancestors", lambda: [10, 11, 12, 13])
    monkeypatch.setattr(alone, "_starts_commands", starting.__contains__)
    assert alone.starters() == found


def test_ancestors_begin_with_our_parent_and_end_with_the_first_process():
    found = alone.ancestors()
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in (os.getpid(), *found)]
    assert [int(stat[1]) for stat in stats] == [*found, 0]


def test_a_stamp_is_of_a_process_and_its_start_and_of_none_that_has_ended():
    stat = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    assert alone.process_stamp(os.getpid()) == f"{os.getpid()}:{stat[19]}"
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert alone.process_stamp(child.pid) is None, "it is a zombie"
    child.wait()
    assert alone.process_stamp(child.pid) is None


@pytest.fixture
def watching(monkeypatch):
    """Our ancestors are 10 and 11, both of which may start commands; gives what is watched from now on."""
    monkeypatch.delenv(alone.WORKFLOW, raising=False)
    monkeypatch.setattr(alone, "ancestors", lambda: [10, 11])
    monkeypatch.setattr(alone, "process_stamp", {10: "10:1", 11: "11:1"}.get)
    monkeypatch.setattr(alone, "starters", lambda: [10, 11])
    monkeypatch.setattr(os, "pidfd_open", lambda pid: -pid, raising=False)
    watched = []

    class Thread:
        def __init__(self, *, target, args, name, daemon):
            assert target is alone._watch and daemon, "it would keep a command that is done from its end"
            self.args = args

        def start(self):
            watched.extend(self.args[0])

    monkeypatch.setattr(alone.threading, "Thread", Thread)
    return watched


def test_a_command_watches_those_that_started_it_but_for_one_that_has_just_ended(watching, monkeypatch):
    alone.end_with_workflow()
    assert watching == [-10, -11]

    def opened(pid):
        if pid == 10:
            raise ProcessLookupError
        return -pid

    monkeypatch.setattr(os, "pidfd_open", opened)
    watching.clear()
    alone.end_with_workflow()
    assert watching == [-11]


def test_a_command_by_hand_watches_nobody(watching, monkeypatch):
    monkeypatch.setattr(alone, "starters", lambda: [])
    monkeypatch.setattr(alone.threading, "Thread", lambda **_: pytest.fail("there is nobody to watch"))
    alone.end_with_workflow()


def test_a_command_of_a_workflow_that_has_ended_is_refused(watching, monkeypatch):
    for stamp in ("10:1", "11:1"):
        monkeypatch.setenv(alone.WORKFLOW, stamp)
        alone.end_with_workflow()
    monkeypatch.setenv(alone.WORKFLOW, "11:0")  # a former process of that number
    with pytest.raises(UnavailableError):
        alone.end_with_workflow()


@pytest.mark.parametrize("left", [[], [1], [10, 11, 12]])
def test_a_command_whose_starters_change_while_they_are_opened_is_refused(watching, monkeypatch, left):
    asked = iter([[10, 11], left])
    monkeypatch.setattr(alone, "starters", lambda: next(asked))
    with pytest.raises(UnavailableError):
        alone.end_with_workflow()
    assert not watching


def test_the_end_of_one_that_started_us_ends_us_orderly_and_then_in_any_case(monkeypatch):
    done = []
    monkeypatch.setattr(alone.os, "kill", lambda pid, number: done.append((pid, number)))
    monkeypatch.setattr(alone.time, "sleep", done.append)
    ends = [os.pipe() for _ in range(2)]  # of which one gets something to read, as a process that ends
    os.write(ends[1][1], b"x")
    alone._watch([reading for reading, _ in ends], alone.oom_kills())
    assert done == [(os.getpid(), signal.SIGTERM), alone.GRACE_S, (os.getpid(), signal.SIGKILL)]
    for end in ends:
        for descriptor in end:
            os.close(descriptor)


def test_a_command_has_the_folders_of_its_files_and_the_machine_for_itself(tmp_path, monkeypatch):
    began, folders = [], [tmp_path / name for name in "ab"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(alone, "end_with_workflow", lambda: began.append("watched"))

    @contextlib.contextmanager
    def machine():
        assert set(alone._written) == set(folders)
        began.append("alone")
        yield

    monkeypatch.setattr(alone, "alone_on_this_machine", machine)
    for folder in folders:
        folder.mkdir()
    with alone.measuring(folders[0] / "x.json", folders[1] / "y.json", folders[0] / "z.json"):
        assert began == ["watched", "alone"]
        with alone.writing(folders[0]) as waited, alone.writing(Path("b")):
            assert waited is False and set(alone._written) == set(folders), "it waits for itself"
    assert not alone._written
