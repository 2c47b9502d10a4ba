"""Conversations with programs that die, hang and talk nonsense: a reason within the deadline, and nobody left."""

import os
import signal
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tare.core.errors import UnavailableError
from tare.launch import channel
from tare.launch.channel import Conversation, ConversationError

PROTOCOL = "test/1"
# What every script starts with: its own child, which must not outlive it, and the two verbs of the protocol.
PRELUDE = f"""
import json, os, signal, subprocess, sys, time
def say(word, **values):
    print("{PROTOCOL}", word, json.dumps(values), flush=True)
def hear():
    line = sys.stdin.readline()
    return line.split(" ", 2)[1] if line else None
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open("pids", "w").write(f"{{os.getpid()}} {{child.pid}}")
"""


@pytest.fixture
def talk(tmp_path):
    """Starts a conversation with a script; whatever it left running is ended after the test."""
    started = []

    def start(script, prelude=PRELUDE):
        started.append(
            Conversation(
                [sys.executable, "-c", prelude + script],
                protocol=PROTOCOL,
                env={"PATH": os.environ["PATH"]},
                cwd=tmp_path,
                errors_path=tmp_path / "stderr",
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()


def running(pid):
    """Whether a process lives; a zombie that only waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def nobody_is_left(folder):
    """Whether script and child are gone; waits a moment for the dying."""
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(running(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


ANSWERS = "hear(); say('answer', value=1); hear(); "
# script after one good answer -> what the reason must say, whether it was a timeout
MISBEHAVIOURS = {
    "exits": ("sys.exit('out of luck')", r"ended with status 1: out of luck", False),
    "exits with success": ("sys.exit(0)", r"ended with status 0", False),
    "killed by a signal": ("os.kill(os.getpid(), signal.SIGKILL)", r"was ended by SIGKILL", False),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", r"was ended by SIGSEGV", False),
    "hangs": ("time.sleep(600)", r"no 'answer' within 1 s", True),
    "says half a line and hangs": ("sys.stdout.write('test/1 ans'); sys.stdout.flush(); time.sleep(600)",
                                   r"no 'answer' within 1 s", True),
    "trickles": ("\nwhile True: sys.stdout.write('x'); sys.stdout.flush(); time.sleep(.05)",
                 r"no 'answer' within 1 s", True),
    "prints nonsense": ("print('Segmentation mode enabled', flush=True); time.sleep(600)",
                        r"it said 'Segmentation mode enabled', which is no line of test/1", False),
    "prints an empty line": ("print(flush=True); time.sleep(600)", r"it said '', which is no line", False),
    "prints bytes": ("sys.stdout.buffer.write(b'\\xff\\xfe a b\\n'); sys.stdout.flush(); time.sleep(600)",
                     r"which is no line of test/1", False),
    "speaks another version": ("print('test/2 answer {}', flush=True); time.sleep(600)",
                               r"it said 'test/2 answer \{\}', which is no line of test/1", False),
    "values are not JSON": ("print('test/1 answer {value}', flush=True); time.sleep(600)",
                            r"whose values are not JSON", False),
    "values are no object": ("print('test/1 answer [1]', flush=True); time.sleep(600)",
                             r"whose values are no object", False),
    "another word": ("say('question'); time.sleep(600)", r"it said 'question' where 'answer' was due", False),
    "says that it failed": ("say('failed', reason='no memory'); time.sleep(600)", r"^no memory$", False),
    "says that it failed, not why": ("say('failed'); time.sleep(600)", r"it gave no reason", False),
    "closes its output and lives on": ("os.close(1); time.sleep(600)", r"was still running after \d+ s", False),
}  # fmt: skip


@pytest.mark.parametrize("what", MISBEHAVIOURS)
def test_whatever_a_program_does_there_is_a_reason_in_time_and_nobody_is_left(what, talk, tmp_path, monkeypatch):
    script, reason, timed_out = MISBEHAVIOURS[what]
    one = talk(ANSWERS + script)
    assert one.ask("go", "answer", timeout_s=20) == {"value": 1}
    started = time.monotonic()
    with pytest.raises(ConversationError, match=reason) as caught:
        one.ask("go", "answer", timeout_s=1)
    # Seconds on a quiet machine: the deadline, and five in which it may say how it ended. It would sleep for 600.
    assert time.monotonic() - started < 120
    assert caught.value.timed_out == timed_out
    assert nobody_is_left(tmp_path)


def test_a_program_that_dies_before_it_reads_is_a_reason_too(talk, tmp_path):
    one = talk("sys.exit('no GPU')")
    deadline = time.monotonic() + 20
    while running(one._process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)  # so that the first line meets a closed pipe
    with pytest.raises(ConversationError, match="ended with status 1: no GPU"):
        one.ask("go", "answer", timeout_s=5)
    assert nobody_is_left(tmp_path)


def test_a_program_that_dies_while_a_helper_holds_its_output_is_over_by_the_deadline(talk, tmp_path):
    one = talk("subprocess.Popen(['sleep', '600']); os.kill(os.getpid(), signal.SIGKILL)")
    started = time.monotonic()
    with pytest.raises(ConversationError):
        one.hear("answer", timeout_s=2)
    assert time.monotonic() - started < 120, "it waited for the helper, which sleeps for 600 s"
    assert nobody_is_left(tmp_path)


def test_a_line_without_end_is_cut_off(talk, tmp_path, monkeypatch):
    monkeypatch.setattr(channel, "LONGEST_LINE_BYTES", 1 << 20)
    one = talk("\nwhile True: sys.stdout.write('x' * 65536)")
    with pytest.raises(ConversationError, match="more than 1048576 bytes without an end of line"):
        one.hear("answer", timeout_s=20)
    assert nobody_is_left(tmp_path)


def test_a_long_line_that_ends_is_heard_whole(talk):
    one = talk("say('answer', text='x' * 3_000_000); hear()")
    assert len(one.hear("answer", timeout_s=20)["text"]) == 3_000_000


OVER_FIFOS = PRELUDE.replace(
    "child =",
    "import os; os.dup2(os.open('orders', os.O_RDONLY), 0); os.dup2(os.open('answers', os.O_WRONLY), 1)\nchild =",
)


def test_over_fifos_the_programs_own_streams_carry_nothing(tmp_path):
    one = Conversation(
        [sys.executable, "-c", "print('said on standard output', flush=True)\n" + OVER_FIFOS + ANSWERS],
        protocol=PROTOCOL,
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        errors_path=tmp_path / "stderr",
        fifos=tmp_path,
    )
    assert one.ask("go", "answer", timeout_s=20) == {"value": 1}
    assert Path(f"/proc/{one.pid}/fd/0").readlink() == tmp_path / "orders"
    finished = one.end(timeout_s=10)  # its end of the FIFO closes with ours
    assert finished.ok and finished.stderr == "said on standard output\n"


@pytest.mark.parametrize(
    "what", ["exits", "killed by a signal", "hangs", "prints nonsense", "closes its output and lives on"]
)
def test_over_fifos_too_there_is_a_reason_in_time(what, tmp_path):
    script, reason, timed_out = MISBEHAVIOURS[what]
    if what == "closes its output and lives on":  # nothing tells of that but the deadline
        reason, timed_out = r"no 'answer' within 1 s", True
    one = Conversation(
        [sys.executable, "-c", OVER_FIFOS + ANSWERS + script],
        protocol=PROTOCOL,
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        errors_path=tmp_path / "stderr",
        fifos=tmp_path,
    )
    assert one.ask("go", "answer", timeout_s=20) == {"value": 1}
    with pytest.raises(ConversationError, match=reason) as caught:
        one.ask("go", "answer", timeout_s=1)
    assert caught.value.timed_out == timed_out
    assert nobody_is_left(tmp_path)


def test_over_fifos_standard_output_can_be_kept_apart_and_only_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(channel, "KEPT", 5)
    one = Conversation(
        [sys.executable, "-c", "import sys; print('on its output'); print('on its errors', file=sys.stderr)"],
        protocol=PROTOCOL,
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        errors_path=tmp_path / "stderr",
        fifos=tmp_path,
        output_path=tmp_path / "stdout",
    )
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("orders", "answers")} == {0o600}
    finished = one.end(timeout_s=20)
    assert (finished.stdout, finished.stderr) == ("tput\n", "rors\n")
    assert (tmp_path / "stdout").read_text() == "on its output\n"


def test_of_much_that_a_program_says_a_mebibyte_is_kept(talk):
    one = talk("sys.stderr.write('x' * 2_000_000); child.kill()")
    assert len(one.end(timeout_s=20).stderr) == 1_048_576


def test_a_program_that_does_not_listen_is_over_at_its_deadline(talk, tmp_path):
    one = talk("say('here'); time.sleep(600)")
    one.hear("here", timeout_s=20)
    assert one._takes_more(0.5) is True and one._takes_more(0) is False
    with pytest.raises(ConversationError) as caught:
        one.send(bytes(1_000_000), timeout_s=0.3)
    assert caught.value.timed_out and nobody_is_left(tmp_path)
    with pytest.raises(ConversationError):
        one.say("go")  # it has been ended


def test_why_a_program_stopped_listening_is_its_own_word_though_it_lives_on(talk, tmp_path):
    deaf = "child.kill(); child.wait(); sys.stdin.close(); os.close(0); "  # nobody else has its input
    one = talk(f"{deaf} say('other'); say('failed', reason='no room'); time.sleep(600)")
    deadline = time.monotonic() + 20
    while not one.is_readable() and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(ConversationError) as caught:
        for _ in range(100):
            one.send(bytes(100_000), timeout_s=5)
    assert caught.value.reason == "no room" and nobody_is_left(tmp_path)


def test_what_is_said_to_nobody_is_dropped_until_its_program_has_ended(talk):
    one = talk("say('here'); sys.stdout.write('x' * 300_000); sys.stdout.flush(); child.kill()")
    assert not one.greeted and one.descriptors[0] != one.descriptors[1]
    one.hear("here", timeout_s=20)
    deadline = time.monotonic() + 20
    while not one.has_ended() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert one.has_ended() and one.end(timeout_s=0).ok


@pytest.fixture
def silent(monkeypatch):
    """A conversation without a program; `ends` has how long each end was waited for."""
    one = Conversation.__new__(Conversation)
    one.protocol, one._rest, one.ends, one._output, one._pidfd = PROTOCOL, bytearray(), [], "output", "end"
    finished = SimpleNamespace(explain=lambda: "how it ended")
    monkeypatch.setattr(one, "end", lambda *, timeout_s: one.ends.append(timeout_s) or finished, raising=False)
    return one


def test_only_how_it_ended_is_waited_for(silent):
    told = [silent._over("cut"), silent._over(None), silent._over(None, timed_out=True)]
    assert [error.reason for error in told] == ["cut", "how it ended", "how it ended"]
    assert [error.timed_out for error in told] == [False, False, True] and silent.ends == [0, 5, 5]
    silent.kill()
    assert silent.ends[-1] == 0 and not ConversationError("cut").timed_out


@pytest.mark.parametrize(
    ("rest", "ready", "readable"), [(b"", False, False), (b"x", False, True), (b"", True, True)]
)
def test_what_nobody_has_heard_is_looked_for_without_waiting(silent, monkeypatch, rest, ready, readable):
    def select(reads, writes, others, timeout_s):
        assert timeout_s == 0
        return (reads if ready else [], [], [])

    monkeypatch.setattr(channel.select, "select", select)
    silent._rest += rest
    assert silent.is_readable() is readable
    assert readable or not silent.has_ended()


@pytest.mark.parametrize(("length", "fits"), [(20, True), (21, False)])
def test_a_line_may_be_as_long_as_the_longest(silent, monkeypatch, length, fits):
    monkeypatch.setattr(channel, "LONGEST_LINE_BYTES", 20)
    chunks = iter((f"{PROTOCOL} here {{}}".ljust(length - 1).encode(), b"\n"))
    silent._read_more = lambda *_: silent._rest.extend(next(chunks))
    if fits:
        assert silent.hear("here", timeout_s=1) == {}
        return
    with pytest.raises(ConversationError):
        silent.hear("here", timeout_s=1)


def test_of_nonsense_120_bytes_are_shown(silent):
    with pytest.raises(ConversationError) as caught:
        silent._parse(b"#" * 200)
    assert caught.value.reason.count("#") == 120


def test_a_program_that_is_not_there_says_so(tmp_path):
    with pytest.raises(UnavailableError, match="no-such-program is not installed"):
        Conversation(["no-such-program"], protocol=PROTOCOL, env={}, cwd=tmp_path, errors_path=tmp_path / "e")


def test_a_good_conversation_ends_well_and_stays_ended(talk, tmp_path):
    one = talk("\nwhile hear(): say('answer', to='you')\nchild.kill()")
    assert [one.ask("go", "answer", timeout_s=20) for _ in range(3)] == [{"to": "you"}] * 3
    finished = one.end(timeout_s=20)
    assert finished.ok and finished.user_s > 0
    assert one.end(timeout_s=0) is finished and one.kill() is finished
    assert nobody_is_left(tmp_path)


def test_answers_that_come_together_are_heard_one_by_one(talk):
    one = talk("say('first'); say('second', n=2); hear()")
    assert one.hear("first", timeout_s=20) == {}
    assert one.hear("second", timeout_s=20) == {"n": 2}


def test_ending_one_that_does_not_go_kills_its_whole_group(talk, tmp_path):
    one = talk("signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready'); time.sleep(600)")
    one.hear("ready", timeout_s=20)
    finished = one.end(timeout_s=0.2)
    assert finished.timed_out and finished.returncode == -signal.SIGKILL
    assert nobody_is_left(tmp_path)
