"""What a launch leaves of itself when its maker is killed, as the next one finds it in its folder."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tare.core.errors import UserError
from tare.launch import prepare
from tests.waiting import wait_until


@pytest.fixture
def launches(tmp_path, monkeypatch):
    """A folder of launches; `calls` has what was asked for, in order."""
    calls = []
    monkeypatch.setattr(prepare, "kill_stopped", lambda stopped: calls.append(("kill", stopped)))
    monkeypatch.setattr(prepare, "let_go", lambda stopped: calls.append(("let go", stopped)))
    monkeypatch.setattr(prepare, "remove_groups", lambda stopped: calls.append(("remove", stopped)))
    monkeypatch.setattr(prepare, "run", lambda argv, *, timeout_s, env: calls.append((argv, env)))
    monkeypatch.setattr(prepare, "carriers_of", lambda name: [])
    tmp_path.joinpath("tare-one").mkdir()
    return tmp_path, calls


def owner(folder, text):
    (folder / "tare-one" / prepare.OWNER).write_text(text)
    return folder / "tare-one"


def test_what_can_be_stopped_is_noted_whole_and_read_again(launches):
    folder, calls = launches
    one = owner(folder, json.dumps({"commands": [["docker", "rm"]], "env": {"PATH": "/bin"}}))
    stopped = [{"group": "/sys/fs/cgroup/tare-one"}]
    prepare.note_stopped(one, stopped)
    assert {path.name for path in one.iterdir()} == {prepare.OWNER, prepare.STOPPED}
    prepare._end_leftovers_in(folder)
    assert calls == [
        ("kill", stopped),
        ("let go", stopped),
        (["docker", "rm"], {"PATH": "/bin"}),
        ("remove", stopped),
    ]
    assert not one.exists()


@pytest.mark.parametrize("text", ["", '{"commands": [["doc'])
def test_half_a_note_leaves_the_processes_and_the_folder_to_end(launches, text):
    folder, calls = launches
    one = owner(folder, text)
    prepare._end_leftovers_in(folder)
    assert calls == [("kill", []), ("let go", []), ("remove", [])] and not one.exists()


def test_a_launch_whose_maker_lives_is_left_alone(launches):
    folder, calls = launches
    one = owner(folder, "{}")
    with (one / prepare.OWNER).open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        prepare._end_leftovers_in(folder)
    assert not calls and one.exists()


def test_processes_that_carry_its_name_are_killed_and_a_process_looks_once(launches, monkeypatch):
    folder, _ = launches
    one, killed = owner(folder, "{}"), []
    monkeypatch.setattr(prepare, "carriers_of", lambda name: [11, 12] if name == "tare-one" else [])
    monkeypatch.setattr(prepare.os, "kill", lambda pid, number: killed.append((pid, number)))
    prepare._end_leftovers_in(folder)
    assert killed == [(11, signal.SIGKILL), (12, signal.SIGKILL)] and not one.exists()
    one.mkdir()
    owner(folder, "{}")
    prepare._end_leftovers_in(folder)
    assert one.exists() and len(killed) == 2


@pytest.fixture
def adapter(monkeypatch, tmp_path):
    """An environment with a mount point of the launch's own, or none; `ran` is what was run."""
    made = SimpleNamespace(points=[tmp_path / "one/deep"], ran=[])
    made.mount_points = lambda planned: made.points
    made.cleanup = lambda planned: [["stop", planned.name], ["remove", planned.name]]
    made.environment_variables = lambda: {"HOST": "here"}

    def run(argv, *, timeout_s, env):
        made.ran.append((argv, timeout_s, env["HOST"]))

    monkeypatch.setattr(prepare, "run", run)
    monkeypatch.setattr(prepare, "at_death", lambda *_, **__: contextlib.nullcontext())
    return made


@pytest.mark.parametrize("own", [True, False])
def test_what_ends_a_launch_lies_in_its_folder(adapter, tmp_path, own):
    planned, ends = SimpleNamespace(name="one"), [["stop", "one"], ["remove", "one"]]
    adapter.points = adapter.points if own else []
    with prepare.ended_with_us(adapter, planned, tmp_path):
        note = json.loads((tmp_path / prepare.OWNER).read_text())
    rmdir = ["rmdir", str(tmp_path / "one/deep"), str(tmp_path / "one")]
    assert note["commands"] == ([*ends, rmdir] if own else ends) and note["env"]["HOST"] == "here"
    prepare.clean_up(adapter, planned)
    assert adapter.ran == [(command, prepare.END_S, "here") for command in ends]


def test_a_folder_that_is_gone_already_is_no_error(launch_cache):
    with prepare.own_folder() as (name, folder):
        assert folder.parent == launch_cache / "launches" and folder.name == name
        assert [path.name for path in folder.iterdir()] == [prepare.OWNER]
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("path", "fits"),
    [("/" + "a" * 69, True), ("/" + "a" * 70, False), ("/a:b", False), ("/a,b", False), ("/a\nb", False)],
)
def test_a_launchs_folder_has_a_path_that_sockets_and_runtimes_take(path, fits):
    with contextlib.nullcontext() if fits else pytest.raises(UserError):
        prepare.check_path(Path(path))


def test_a_program_has_exactly_its_variables_or_these_on_top():
    assert prepare.inside_argv({"A": "1"}, ["it"]) == ("/usr/bin/env", "-i", "A=1", "it")
    assert prepare.inside_argv({"A": "1"}, ["it"], True) == ("/usr/bin/env", "A=1", "it")


@pytest.mark.parametrize("in_arguments", [True, False])
def test_a_process_carries_the_name_of_its_launch_in_arguments_or_environment(in_arguments):
    name, words = "tare-carried", [sys.executable, "-I", "-S", "-c", "input()"]
    argv, env = ([*words, name], {}) if in_arguments else (words, {"A": name})
    child = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE)
    try:
        # A program has its new arguments a moment after its parent learns that it started.
        wait_until(lambda: prepare.carriers_of(name) == [child.pid], f"only {child.pid} carries {name}")
    finally:
        child.kill()
        child.communicate()
    assert os.getpid() not in prepare.carriers_of(sys.executable)
