"""When the private Docker daemon ends, and what is said where none can be had; no daemon is started here."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from project import ROOT
from waiting import wait_until

from tare.core.errors import UnavailableError
from tare.runtimes import daemon


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("RUNTIMES", raising=False)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A private daemon's places without a daemon; as root, whoever runs this."""
    (tmp_path / "cache/docker").mkdir(parents=True)
    found = daemon.State(
        folder=tmp_path / "run", data=tmp_path / "cache/docker/data", log=tmp_path / "cache/docker/dockerd.log"
    )
    monkeypatch.setattr(daemon, "state", lambda: found)
    monkeypatch.setattr(daemon.os, "getuid", lambda: found.data.parent.stat().st_uid)
    return found


USER = """
import fcntl, os, sys
with open(sys.argv[1], "a") as user:
    fcntl.flock(user, fcntl.LOCK_SH)
    os.utime(sys.argv[1])
    print("in", flush=True)
    input()
"""


def start_user(places):
    argv = [sys.executable, "-c", USER, str(places.users)]
    user = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert user.stdout.readline() == "in\n"
    return user


def test_it_is_idle_when_the_last_user_has_ended_or_was_killed_and_none_came_since(places):
    users = [start_user(places) for _ in range(3)]
    with places.users.open("a") as watched:
        idle = threading.Thread(target=daemon.wait_until_idle, args=(watched.fileno(), 0.5), daemon=True)
        idle.start()
        users[0].communicate("leave\n", timeout=20)
        users[1].kill()
        idle.join(1.0)
        assert idle.is_alive(), "it gave up before its last user"
        users[2].kill()
        users.append(start_user(places))
        users[3].communicate("leave\n", timeout=20)
        left = time.monotonic()
        idle.join(20)
        assert not idle.is_alive() and time.monotonic() - left >= 0.4, "a user within the pause starts it anew"
        with places.users.open("a") as late, pytest.raises(BlockingIOError):
            fcntl.flock(late, fcntl.LOCK_SH | fcntl.LOCK_NB)
    for user in users:
        user.wait()


def test_it_is_idle_too_where_somebody_removed_the_cache(places):
    user = start_user(places)
    with places.users.open("a") as watched:
        idle = threading.Thread(target=daemon.wait_until_idle, args=(watched.fileno(), 0.2), daemon=True)
        idle.start()
        places.users.unlink()
        user.communicate("leave\n", timeout=20)
        idle.join(20)
        assert not idle.is_alive()


def test_only_root_starts_a_daemon(places, monkeypatch):
    monkeypatch.setattr(daemon, "machine_answers", lambda: False)
    monkeypatch.setattr(daemon.os, "getuid", lambda: 1000)
    with pytest.raises(UnavailableError, match="only root can start one"), daemon.docker_endpoint():
        pass


@pytest.mark.parametrize(
    ("program", "remedy"), [(None, "apt-get install docker.io"), ("/usr/sbin/dockerd", "systemctl start docker")]
)
def test_an_ordinary_user_is_told_what_an_administrator_can_do(places, monkeypatch, program, remedy):
    there = {"apt-get": "/usr/bin/apt-get", "dockerd": program}
    monkeypatch.setattr(daemon, "machine_answers", lambda: False)
    monkeypatch.setattr(daemon, "DEFAULT_SOCKET", places.folder / "none")
    monkeypatch.setattr(daemon.os, "getuid", lambda: 1000)
    monkeypatch.setattr(daemon.shutil, "which", lambda name, **_: there.get(name))
    with pytest.raises(UnavailableError) as caught, daemon.docker_endpoint():
        pass
    assert caught.value.remedy == f"ask an administrator for `{remedy}`"


def test_without_dockerd_the_reason_names_it(places, monkeypatch):
    monkeypatch.setattr(daemon, "machine_answers", lambda: False)
    monkeypatch.setattr(daemon.os, "getuid", lambda: 0)
    there = {"apt-get": "/usr/bin/apt-get"}
    monkeypatch.setattr(daemon.shutil, "which", lambda name, **_: there.get(name))
    with pytest.raises(UnavailableError, match="dockerd is not installed") as caught, daemon.docker_endpoint():
        pass
    assert caught.value.remedy == daemon.INSTALL


def test_a_docker_host_that_does_not_answer_is_said_and_none_is_started(places, monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with (
        pytest.raises(UnavailableError, match=r"no Docker daemon answers at DOCKER_HOST"),
        daemon.docker_endpoint(),
    ):
        pass
    assert not places.folder.exists()
    assert daemon.endpoint_variables() == {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}


ANSWERS = """#!/bin/sh
echo start >> {starts}
[ $(wc -l < {starts}) -gt {killed} ] || {kill}
exec {python} -c 'import os, socket, sys
os.makedirs(sys.argv[3])
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[3] + "/docker.sock")
server.listen()
client = server.accept()[0]
client.recv(256)
client.sendall(b"HTTP/1.0 200 OK")
client.close()' "$@"
"""


@pytest.mark.parametrize("kill", ["kill -9 $$", "exit 137"])
@pytest.mark.parametrize("killed", [0, 1, 2])
def test_a_daemon_that_is_killed_while_it_starts_is_started_once_more(places, tmp_path, monkeypatch, killed, kill):
    starts, watcher = tmp_path / "starts", tmp_path / "watcher"
    watcher.write_text(ANSWERS.format(starts=starts, killed=killed, kill=kill, python=sys.executable))
    watcher.chmod(0o755)
    monkeypatch.setattr(daemon.sys, "executable", str(watcher))
    if killed < 2:
        daemon._start(places, "dockerd")
    else:
        with pytest.raises(UnavailableError, match=r"^a private Docker daemon ended at once: it logged nothing"):
            daemon._start(places, "dockerd")
    assert len(starts.read_text().split()) == min(killed + 1, 2)


WATCH = """
import sys
from tare.runtimes import daemon
daemon.PATIENCE_S = 1
sys.exit(daemon.main(sys.argv[1:]))
"""


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts a daemon")
def test_it_ends_too_where_the_process_that_should_end_it_was_killed(tmp_path):
    program, data = tmp_path / "dockerd", tmp_path / "cache/docker/data"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    data.mkdir(parents=True)
    argv = [sys.executable, "-c", WATCH, tmp_path / "run", data, program, "600"]
    watcher = subprocess.Popen(argv, cwd=ROOT)
    try:
        wait_until(lambda: len(children(watcher.pid)) == 1, "the watcher starts its namespaces")
        (unshare,) = children(watcher.pid)
        wait_until(lambda: [1 for first in children(unshare) if len(children(first)) == 2], "the daemon is started")
        (first,) = children(unshare)
        reader = next(pid for pid in children(first) if Path(f"/proc/{pid}/comm").read_text() == "sh\n")
        os.kill(reader, signal.SIGKILL)
        watcher.terminate()
        assert watcher.wait(30) != 0
        wait_until(lambda: not Path(f"/proc/{first}").exists(), "all of its namespaces ends")
        assert not (tmp_path / "run").exists()
    finally:
        watcher.kill()


def test_groups_of_containers_of_a_daemon_that_was_killed_are_removed_and_no_others(tmp_path, monkeypatch):
    ours, busy, other = ("a" * 64, "b" * 64, "c" * 64)
    for version in ("v1", "v2"):
        for name in (ours, busy, other):
            (tmp_path / version / "docker" / name).mkdir(parents=True)
        (tmp_path / version / "docker" / busy / "child").mkdir()
    for name in (ours, busy):
        (tmp_path / "data/containers" / name).mkdir(parents=True)
    mounts = tmp_path / "mounts"
    lines = (
        f"cgroup {tmp_path}/v1 cgroup rw 0 0",
        f"cgroup2 {tmp_path}/v2 cgroup2 rw 0 0",
        "proc /proc proc rw 0 0",
    )
    mounts.write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(daemon, "MOUNTS", mounts)
    daemon.remove_groups(tmp_path / "data")
    daemon.remove_groups(tmp_path / "none")
    for version in ("v1", "v2"):
        assert {path.name for path in (tmp_path / version / "docker").iterdir()} == {busy, other}


def test_the_logs_last_serious_line(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        'time="x" level=info msg="Starting up"\n'
        'time="x" level=error msg="failed to mount overlay: operation not permitted"\n'
        'time="x" level=info msg="stopping"\n'
    )
    assert daemon.last_error(log) == "failed to mount overlay: operation not permitted"
    log.write_text("")
    assert daemon.last_error(log) == "it logged nothing"


def test_the_daemon_touches_no_bridge_no_rules_and_no_settings(places):
    argv = daemon.daemon_argv(places, "/usr/sbin/dockerd")
    assert {"unshare", "--pid", "--mount", "--kill-child"} <= set(argv)
    assert {"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"} <= set(argv)
    assert argv[argv.index("--data-root") + 1] == str(places.data)
    assert argv[argv.index("--host") + 1] == f"unix://{places.socket}"


LISTENER = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("in", flush=True)
input()
"""


def test_what_was_mounted_out_of_a_daemons_sight_is_hidden_from_it(tmp_path, monkeypatch):
    (tmp_path / "mounted").mkdir()
    (tmp_path / "plain").mkdir()
    script = 'mount -t tmpfs none "$1" && exec "$2" -c "$3" "$4"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    words += [str(tmp_path / "mounted"), sys.executable, LISTENER, str(tmp_path / "socket")]
    listener = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert listener.stdout.readline() == "in\n"
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'socket'}")
        assert daemon.hides(tmp_path / "mounted")
        assert not daemon.hides(tmp_path / "plain")
        assert not daemon.hides(tmp_path / "missing")
    finally:
        listener.communicate("leave\n", timeout=20)
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    assert not daemon.hides(tmp_path / "mounted"), "a daemon elsewhere is not asked"
