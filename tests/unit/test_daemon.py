"""Who uses the private Docker daemon, and what is said where none can be had; nothing is started here."""

import os
import subprocess
from pathlib import Path

import pytest

from tare.core.errors import UnavailableError
from tare.runtimes import daemon
from tare.runtimes.supervisor import daemon_argv


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


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


# --- users of the private daemon


def test_a_user_counts_until_it_ends(places, sleeper, monkeypatch):
    monkeypatch.setattr(daemon.os, "getuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", owned_by_root(Path.stat))
    daemon.hold(sleeper.pid)
    daemon.hold(sleeper.pid)
    assert [user[::2] for user in daemon.read_users(places)] == [(sleeper.pid, "hold")]
    sleeper.kill()
    sleeper.wait()
    assert daemon.read_users(places) == []


def owned_by_root(stat):
    """Ownership as root would see it, so that the bookkeeping is tested for any user."""

    def seen(self, **options):
        status = stat(self, **options)
        return os.stat_result((*status[:4], 0, *status[5:10]))

    return seen


def test_a_zombie_counts_no_longer(sleeper):
    assert daemon.start_time(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert daemon.start_time(sleeper.pid) is None


def test_another_process_with_the_same_number_is_another_user(sleeper):
    ticks = daemon.start_time(sleeper.pid)
    users = [(sleeper.pid, ticks, "hold"), (sleeper.pid, ticks + 1, "hold")]
    assert daemon.living(users) == [users[0]]


def test_release_undoes_hold_and_leaves_no_folder(places, sleeper, monkeypatch):
    monkeypatch.setattr(daemon.os, "getuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", owned_by_root(Path.stat))
    daemon.hold(sleeper.pid)
    assert places.folder.exists()
    daemon.release(sleeper.pid)
    assert not places.folder.exists()
    daemon.release(sleeper.pid)


def test_holding_an_ended_process_does_nothing(places, sleeper):
    sleeper.kill()
    sleeper.wait()
    daemon.hold(sleeper.pid)
    assert not places.folder.exists()


def test_torn_users_are_nobody(places):
    places.folder.mkdir()
    for text in ("[[1, 2", '{"a": 1}', "[[1]]", ""):
        places.users.write_text(text)
        assert daemon.read_users(places) == []


def test_users_write_wakes_the_supervisor(places):
    places.folder.mkdir()
    os.mkfifo(places.wake)
    reader = os.open(places.wake, os.O_RDONLY | os.O_NONBLOCK)
    daemon.write_users(places, [])
    assert os.read(reader, 10) == b"!"
    os.close(reader)


def test_only_root_starts_a_daemon(places, monkeypatch):
    monkeypatch.setattr(daemon, "machine_answers", lambda: False)
    monkeypatch.setattr(daemon.os, "getuid", lambda: 1000)
    with pytest.raises(UnavailableError, match="only root can start one"), daemon.docker_endpoint():
        pass


def test_without_dockerd_the_reason_names_it(places, monkeypatch):
    monkeypatch.setattr(daemon, "machine_answers", lambda: False)
    monkeypatch.setattr(daemon.os, "getuid", lambda: 0)
    monkeypatch.setattr(daemon.shutil, "which", lambda *_, **__: None)
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
    argv = daemon_argv(places, "/usr/sbin/dockerd")
    assert argv[:8] == ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "--propagation", "slave", "--"]
    assert {"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"} <= set(argv)
    assert argv[argv.index("--data-root") + 1] == str(places.data)
    assert argv[argv.index("--host") + 1] == f"unix://{places.socket}"
