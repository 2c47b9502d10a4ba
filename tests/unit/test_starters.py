"""Which of our ancestors start measuring commands, by what /proc tells of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
