"""What jobs tell while they run: read whole or not at all, of processes that are alive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from tare.core import status

TOLD = status.Status(
    outs=("a/sealed.json",), what="rounds", done=2, total=9, left_s=61.5, half_width=0.02, wanted=0.01, at_s=5.0
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that listens, which nobody has made yet."""
    monkeypatch.setenv(status.FOLDER, str(tmp_path / "told"))
    return tmp_path / "told"


def test_what_is_told_is_heard_and_replaced(folder):
    status.tell(TOLD)
    status.tell(replace(TOLD, done=3, left_s=None))
    assert list(status.heard(folder)) == [replace(TOLD, done=3, left_s=None)]
    assert [path.name for path in folder.iterdir()] == [f"{os.getpid()}.json"], "nothing else is left"


def test_two_jobs_at_once_are_both_heard(folder):
    status.tell(TOLD)
    other = "from tare.core import status; status.tell(status.Status(outs=('b',), what='b', done=0, total=1,"
    code = f"{other} left_s=None, half_width=None, wanted=None, at_s=1.0)); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as second:
        while len(list(folder.glob("*.json"))) < 2:
            assert second.poll() is None
        assert {one.outs for one in status.heard(folder)} == {("a/sealed.json",), ("b",)}
        second.kill()
    assert [one.outs for one in status.heard(folder)] == [("a/sealed.json",)], "what a killed job told is not heard"


def test_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.delenv(status.FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    status.tell(TOLD)
    assert not status.is_heard() and list(tmp_path.iterdir()) == []
    assert list(status.heard(tmp_path / "missing")) == []


def test_a_job_that_cannot_write_goes_on(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(status.FOLDER, str(tmp_path / "file" / "below"))
    status.tell(TOLD)
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"outs": ["a"], "wh',
        "[]",
        "\\xff",
        json.dumps({**asdict(TOLD), "done": -1}),
        json.dumps({**asdict(TOLD), "done": True}),
        json.dumps({**asdict(TOLD), "left_s": float("nan")}),
        json.dumps({**asdict(TOLD), "left_s": "soon"}),
        json.dumps({**asdict(TOLD), "outs": "a"}),
        json.dumps({**asdict(TOLD), "more": 1}),
        json.dumps({"outs": ["a"]}),
        "[" * 100_000,
    ],
)
def test_a_torn_or_foreign_file_is_passed_over(folder, text):
    folder.mkdir()
    (folder / f"{os.getpid()}.json").write_text(text)
    assert list(status.heard(folder)) == []


@pytest.mark.parametrize("name", ["0x1.json", "99999999999999999999999.json", "{pid}.part", "notes.json"])
def test_files_of_no_process_are_passed_over(folder, name):
    folder.mkdir()
    (folder / name.format(pid=os.getpid())).write_text(json.dumps(asdict(TOLD)))
    assert list(status.heard(folder)) == []
