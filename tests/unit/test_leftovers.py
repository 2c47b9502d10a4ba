"""What a launch leaves of itself when its maker is killed, as the next one finds it in its folder."""

import fcntl
import json
import os
import subprocess
import sys

import pytest

from tare.launch import prepare


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


def test_a_process_carries_the_name_of_its_launch_in_arguments_or_environment():
    words = [sys.executable, "-I", "-S", "-c", "input()"]
    names = {
        "tare-in-arguments": ([*words, "tare-in-arguments"], {}),
        "tare-in-environment": (words, {"A": "tare-in-environment"}),
    }
    for name, (argv, env) in names.items():
        child = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE)
        try:
            assert prepare.carriers_of(name) == [child.pid]
        finally:
            child.kill()
            child.communicate()
    assert os.getpid() not in prepare.carriers_of(sys.executable)
