"""The line of progress: its words, its width, on a terminal and in a file, with real jobs of a toy workflow."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from snakemake_logger_plugin_tare import line
from snakemake_logger_plugin_tare.line import Line, fitted, is_live, pieces, time_left
from tare.core import progress, status
from tare.core.remaining import Expected, Outlook, Plan, Remaining
from tare.core.timeline import Timeline

ROOT = Path(__file__).resolve().parents[2]
TOLD = status.Status(
    outs=("x",), what="mnist_cnn rounds", done=4, total=9, left_s=90.0, half_width=0.0082, wanted=0.005, at_s=1.0
)
OUTLOOK = Outlook(stage="headline", title="whole runs", others=0, status=TOLD, left_s=540.0, share=0.413)


def test_the_line_says_stage_share_time_left_and_half_widths():
    assert "; ".join(pieces(OUTLOOK)) == (
        "headline, 41% done, about 9 min left; mnist_cnn rounds 4 of 9; ±0.82% now, ±0.50% wanted"
    )


def test_jobs_that_tell_nothing_have_their_title():
    seen = Outlook(stage="images", title="assemble", others=1, status=None, left_s=31.0, share=0.9)
    assert pieces(seen) == ["images, 90% done, about 30 s left", "assemble", "1 more beside it"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3, "a few seconds left"),
        (34, "about 30 s left"),
        (114, "about 110 s left"),
        (118, "about 2 min left"),
        (2100, "about 35 min left"),
        (9000, "about 2 h 30 min left"),
    ],
)
def test_time_left_is_no_more_exact_than_it_is_known(seconds, words):
    assert time_left(seconds) == words


@pytest.mark.parametrize("columns", [20, 40, 60, 79, 200])
def test_the_line_fits_its_terminal(columns):
    text = fitted("[27/66  07:31] ", pieces(OUTLOOK), columns)
    assert len(text) <= columns
    assert text.startswith("[27/66  07:31] head"[:columns])
    assert ("wanted" in text) == (columns == 200)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def __init__(self, encoding="utf-8"):
        super().__init__()
        self._encoding = encoding

    encoding = property(lambda self: self._encoding)

    def isatty(self):
        return True


def line_of(stream, live, folder):
    remaining = Remaining(
        Plan(rules={"a": Expected(stage="images", seconds=60)}), cores=2, started_s=time.monotonic()
    )
    remaining.due({"a": 2})
    remaining.start(1, "a", "make it", ["x"], time.monotonic())
    settings = {"turn": threading.RLock(), "live": live, "remaining": remaining, "folder": folder}
    return Line(stream, head=lambda: "[0/2]", timeline=Timeline(), **settings)


def test_a_line_of_its_own_is_printed_above(tmp_path):
    stream = Terminal()
    drawn = line_of(stream, True, tmp_path)
    drawn.show(drawn.look())
    drawn.write("a job is done")
    drawn.show(drawn.look())
    drawn.end()
    shown = "[0/2] images, 0% done, about 75 s left; make it"
    first, second = stream.getvalue().split("a job is done\n")
    assert re.fullmatch(re.escape(f"{progress.CLEAR}{shown}\r{progress.CLEAR}").replace("75", r"[78]\d"), first)
    assert second.startswith(f"{progress.CLEAR}[0/2] images") and second.endswith(progress.CLEAR)


def test_a_terminal_without_the_signs_gets_others(tmp_path):
    stream = Terminal("ascii")
    drawn = line_of(stream, False, tmp_path)
    drawn.show(OUTLOOK)
    assert "+-0.82% now" in stream.getvalue()


def test_elsewhere_it_is_a_plain_line(tmp_path):
    stream = io.StringIO()
    drawn = line_of(stream, False, tmp_path)
    drawn.show(OUTLOOK)
    drawn.end()
    assert stream.getvalue() == f"[0/2] {'; '.join(pieces(OUTLOOK))}\n"


def test_into_a_pipe_it_is_said_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(line, "SAY_S", 0.05)
    monkeypatch.setattr(line, "LOOK_S", 0.0)
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours) as reader:
        said = line_of(stream, False, tmp_path)
        said.begin()
        for _ in range(3):
            assert re.fullmatch(r"\[0/2\] images, 0% done, about [78]\d s left; make it\n", reader.readline())
        said.end()


def test_an_error_ends_the_line_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(line, "LOOK_S", 0.01)
    stream = Terminal()
    drawn = line_of(stream, True, tmp_path)
    monkeypatch.setattr(drawn, "look", lambda: 1 / 0)
    drawn.begin()
    drawn._thread.join(timeout=5)
    drawn.write("still heard")
    drawn.end()
    assert stream.getvalue() == "still heard\n"


def test_the_line_is_drawn_on_terminals_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    closed = io.StringIO()
    closed.close()
    assert is_live(Terminal(), Terminal())
    assert not is_live(Terminal(), io.StringIO()) and not is_live(closed)
    monkeypatch.setenv("TERM", "dumb")
    assert not is_live(Terminal())


# --- with Snakemake

SNAKEFILE = """
rule all:
    input: "slow.txt", "killed.txt"

rule slow:
    output: "slow.txt"
    message: "measure something"
    shell: "python tell.py {output}; echo hi > {output}"

rule killed:
    output: "killed.txt"
    message: "try something"
    shell: "python tell.py {output} killed"
"""
TELL = """
import os, sys, time
from tare.core import progress, status
for done in range(4):
    status.tell(status.Status(outs=(sys.argv[1],), what=f"units of {sys.argv[1]}", done=done, total=4, left_s=70.0,
                              half_width=0.02, wanted=0.01, at_s=time.monotonic()))
    time.sleep(0.9)
    if sys.argv[2:]:
        os.kill(os.getpid(), 9)
progress.say("a verdict")
"""


@pytest.fixture
def toy(tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "tell.py").write_text(TELL)
    old = tmp_path / ".snakemake/tare-status/99999999"
    old.mkdir(parents=True)
    (old / "1.json").write_text("left by a run that was killed")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "TERM": "xterm"}
    environment["TARE_TIMELINE"] = str(tmp_path / "timeline.jsonl")
    words = [sys.executable, "-m", "snakemake", "--logger", "tare", "--cores", "2", "--keep-going"]
    return {"args": words, "cwd": tmp_path, "env": environment}


def on_a_terminal(columns, **call):
    """What a program writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    found = bytearray()
    with subprocess.Popen(stdin=theirs, stdout=theirs, stderr=theirs, **call) as process:
        os.close(theirs)
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # nobody has it open any more
                break
            if not data:
                break
            found += data
        process.wait(timeout=60)
    os.close(ours)
    return found.decode().replace("\r\n", "\n")


def test_on_a_terminal_one_line_is_drawn_below_what_scrolls(toy):
    text = on_a_terminal(100, **toy)
    drawn = re.findall(r"\x1b\[2K(\[[^\n\r\x1b]*)\r", text)
    assert len(drawn) >= 2 and all(len(one) < 100 for one in drawn)
    assert any("units of slow.txt" in one and "±2.0% now, ±1.0% wanted" in one for one in drawn)
    scrolled = [re.sub(r".*\x1b\[2K", "", part) for part in re.sub(r"[^\n]*\r(?=\x1b|\r)", "", text).split("\n")]
    assert "    a verdict" in scrolled
    assert any(re.fullmatch(r"\[1/3  00:\d\d\] measure something: \d s", part) for part in scrolled)
    assert any("FAILED: rule killed, try something" in part for part in scrolled)
    assert "1 of 3 jobs done" in scrolled[-2] and scrolled[-1] == ""
    assert not list((toy["cwd"] / ".snakemake/tare-status").iterdir()), "neither this run's folder nor an old one"
    kept = (toy["cwd"] / "timeline.jsonl").read_text()
    assert all(f'"event": "{event}"' in kept for event in ("study", "due", "start", "told", "left", "end"))
