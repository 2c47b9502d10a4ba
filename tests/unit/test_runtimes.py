"""Who uses the private daemon, what is installed and why not, and the trial image; nothing is started here."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_adapters import LAUNCH

from tare import apptainer_install, daemon, runtimes, trial
from tare.apptainer_install import debian_archive, relocate
from tare.errors import UnavailableError, UserError
from tare.process import Finished
from tare.supervisor import daemon_argv


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


def finished(stdout="", returncode=0, stderr=""):
    return Finished(
        argv=("apt-get",),
        returncode=returncode,
        stdout=stdout,
        stderr=stderr,
        started_ns=0,
        ended_ns=1,
        user_s=0.0,
        system_s=0.0,
        timed_out=False,
    )


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


# --- installation


def test_runs_before_there_is_a_virtual_environment():
    code = (
        "import sys; import tare.runtimes, tare.apptainer_install, tare.daemon\n"
        "foreign = [m for m, x in sys.modules.items() if 'site-packages' in (getattr(x, '__file__', '') or '')]\n"
        "print(foreign)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_system_runtimes_forbid_installation(monkeypatch, capsys):
    monkeypatch.setenv("RUNTIMES", "system")
    monkeypatch.setattr(runtimes, "which", lambda name: None)
    monkeypatch.setattr(runtimes, "apt", lambda *_, **__: pytest.fail("apt was called"))
    assert runtimes.install() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(runtimes.WANTED) + 1
    assert all("missing: " in line and "RUNTIMES=system" in line for line in lines)


def test_an_unknown_word_in_runtimes_is_refused(monkeypatch):
    monkeypatch.setenv("RUNTIMES", "sytem")
    with pytest.raises(UserError, match="sytem"):
        runtimes.install()


def test_other_users_and_other_families_install_nothing(monkeypatch):
    monkeypatch.setattr(runtimes.os, "getuid", lambda: 1000)
    assert runtimes.may_install() == "only root can install"
    monkeypatch.setattr(runtimes.os, "getuid", lambda: 0)
    monkeypatch.setattr(runtimes, "which", lambda name: None)
    assert runtimes.may_install() == "not a Debian-family machine"


def test_the_first_package_that_apt_knows_is_chosen(monkeypatch):
    monkeypatch.setattr(runtimes, "candidate", {"docker.io": "20", "charliecloud-runtime": "0.31"}.get)
    wants = [want for want in runtimes.WANTED if want.programs[0] in ("dockerd", "docker", "ch-run", "newuidmap")]
    packages, unknown = runtimes.choose_packages(wants)
    assert packages == ["docker.io", "charliecloud-runtime"]
    assert [want.packages for want in unknown] == [("uidmap",)]


def test_one_package_that_fails_does_not_spoil_the_others(monkeypatch):
    def apt(*arguments):
        bad = "uidmap" in arguments
        return finished(returncode=100 if bad else 0, stderr="E: uidmap cannot be had" if bad else "")

    monkeypatch.setattr(runtimes, "apt", apt)
    failed = runtimes.install_packages(["uidmap", "fuse3"])
    assert list(failed) == ["uidmap"]
    assert "cannot be had" in failed["uidmap"]


def test_candidate_versions_as_apt_prints_them(monkeypatch):
    text = "apptainer:\n  Installed: (none)\n  Candidate: {}\n  Version table:\n"
    monkeypatch.setattr(runtimes, "apt", lambda *_, **__: finished(text.format("1.4.5-2")))
    assert runtimes.candidate("apptainer") == "1.4.5-2"
    monkeypatch.setattr(runtimes, "apt", lambda *_, **__: finished(text.format("(none)")))
    assert runtimes.candidate("apptainer") is None


def test_upstreams_package_with_another_hash_is_refused(monkeypatch, tmp_path):
    fake = tmp_path / "apptainer_amd64.deb"
    fake.write_bytes(b"not it")
    monkeypatch.setattr(apptainer_install, "UPSTREAM", fake.as_uri())
    monkeypatch.setattr(apptainer_install.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(apptainer_install, "install_packages", lambda *_: pytest.fail("it was installed"))
    with pytest.raises(UnavailableError, match=r"has SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}: not installed"):
        apptainer_install.from_upstream()


def test_the_archive_comes_from_the_machines_own_configuration(monkeypatch, tmp_path):
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    listing = (
        f"Packages|Debian|http://mirror/debian-security/|{keyring}|bookworm-security\n"
        f"Packages|Someone|http://elsewhere/|{keyring}|stable\n"
        f"Packages|Debian|http://mirror/debian/|{keyring}|bookworm\n"
    )
    monkeypatch.setattr(apptainer_install, "apt", lambda *_, **__: finished(listing))
    assert debian_archive() == ("http://mirror/debian/", str(keyring))
    monkeypatch.setattr(
        apptainer_install, "apt", lambda *_, **__: finished(listing.replace("|Debian|", "|Ubuntu|"))
    )
    with pytest.raises(UnavailableError, match="no Debian archive"):
        debian_archive()


def test_relocation_patches_both_programs_and_puts_settings_where_each_looks(monkeypatch, tmp_path):
    root, prefix = tmp_path / "root", tmp_path / "prefix"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for path in (
        root / "usr/bin/apptainer",
        libraries / "apptainer/bin/starter",
        libraries / "ld-linux-x86-64.so.2",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "etc/apptainer").mkdir(parents=True)
    (root / "etc/apptainer/apptainer.conf").touch()
    calls = []
    monkeypatch.setattr(apptainer_install, "run", lambda argv, **_: calls.append(argv))
    relocate(root, prefix)
    loader = str(prefix / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    assert [call[1:4] for call in calls] == [["--set-interpreter", loader, "--force-rpath"]] * 2
    assert [call[5] for call in calls] == ["$ORIGIN/../lib/x86_64-linux-gnu", "$ORIGIN/../.."]
    for base in ("usr", "usr/lib"):
        assert (root / base / "etc/apptainer/apptainer.conf").exists()
        assert (root / base / "var/lib/apptainer/mnt/session").is_dir()


def test_singularity_serves_where_apptainer_is_absent(monkeypatch):
    monkeypatch.setattr(runtimes, "which", lambda name: Path("/opt/singularity") if name == "singularity" else None)
    assert runtimes.find_apptainer() == runtimes.Found(Path("/opt/singularity"), "path")
    monkeypatch.setattr(runtimes, "which", lambda name: None)
    assert runtimes.find_apptainer() is None
    program = runtimes.relocated_prefix() / "usr/bin/apptainer"
    program.parent.mkdir(parents=True)
    program.touch()
    assert runtimes.find_apptainer() == runtimes.Found(program, "relocated")


# --- the trial image and its judge


def test_the_trial_image_is_the_same_each_time_and_names_what_it_holds(tmp_path, monkeypatch):
    first = trial.trial_image()
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "another"))
    second = trial.trial_image()
    assert first.archive != second.archive
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert (first.digest, first.image_id) == (second.digest, second.image_id)
    assert first.archive.stat().st_size < 8_000_000


GOOD = """## environment
PATH=/usr/bin
PWD=/w
## nofile
1024
## workdir
/w
## interfaces
Inter-|   Receive
 face |bytes
    lo:       0       0
## status
Uid:\t0\t0\t0\t0
Gid:\t0\t0\t0\t0
Cpus_allowed_list:\t1
Seccomp:\t2
## mounts
30 20 0:5 / / ro - overlay overlay rw
31 30 0:6 / /dev/shm rw - tmpfs shm rw,size=4096k
## shm
4096 1024
## parent_mounts
## stdin
token
## writes
bind
## end
"""


def judged(output):
    launch = replace(LAUNCH, cpus=(1,), nofile=1024, workdir=Path("/w"), shm_bytes=4096 * 1024)
    return trial.judge(launch, output, contained=True)


def test_a_launch_as_asked_has_no_violation():
    result = judged(GOOD)
    assert result.violations == ()
    assert result.facts["seccomp"] == "2"
    assert result.facts["readonly_binds"] is True
    assert result.facts["shm_mount"] == {"type": "tmpfs", "source": "shm", "options": "rw,rw,size=4096k"}


@pytest.mark.parametrize(
    ("old", "new", "violation"),
    [
        ("1024\n## workdir", "65536\n## workdir", "open files are limited to 65536"),
        ("/w\n## inter", "/\n## inter", "the working directory is /"),
        ("    lo:", "  eth0:", "it has a network: eth0"),
        ("list:\t1", "list:\t0-7", "the CPUs are 0-7"),
        ("Uid:\t0", "Uid:\t65534", "the user is 65534"),
        ("4096 1024", "4096 16", "/dev/shm has 65536 bytes"),
        ("token", "", "standard input was not forwarded"),
        ("bind\n", "bind\nroot\n", "the image can be written"),
        ("bind\n", "", "a writable folder cannot be written"),
        ("PWD=/w", "LD_LIBRARY_PATH=/x", "foreign variables are set: LD_LIBRARY_PATH"),
        ("## end\n", "", "cut short"),
    ],
)
def test_each_condition_that_does_not_hold_is_named(old, new, violation):
    found = judged(GOOD.replace(old, new)).violations
    assert any(violation in text for text in found), found


def test_the_record_of_installations_keeps_what_was_there():
    runtimes.note("fuse3", how="the distribution's package")
    runtimes.note("uidmap", how="the distribution's package")
    assert set(json.loads(runtimes.record_path().read_text())) == {"fuse3", "uidmap"}


def test_what_failed_is_not_tried_again_at_once(monkeypatch):
    runtimes.note("uidmap", how=None)
    assert runtimes.failed_lately("uidmap")
    monkeypatch.setattr(runtimes.time, "time", lambda: 1e10)
    assert not runtimes.failed_lately("uidmap")
    runtimes.note("fuse3", how="the distribution's package")
    assert not runtimes.failed_lately("fuse3")


def test_installing_gives_up_with_one_line_and_status_0(monkeypatch, capsys):
    monkeypatch.setattr(
        runtimes, "WANTED", (runtimes.Want(programs=("nonsense",), packages=("no-such",), purpose="x"),)
    )
    monkeypatch.setattr(runtimes, "may_install", lambda: None)
    monkeypatch.setattr(runtimes, "candidate", lambda name: None)
    monkeypatch.setattr(runtimes, "without_services", contextlib.nullcontext)
    monkeypatch.setattr(runtimes, "find_apptainer", lambda: runtimes.Found(Path("/x"), "path"))
    calls = []
    monkeypatch.setattr(runtimes, "apt", lambda *argv, **_: calls.append(argv) or finished())
    assert runtimes.install() == 0
    assert calls == [("apt-get", "update")]
    assert "still missing: nonsense" in capsys.readouterr().out
    assert runtimes.install() == 0
    assert len(calls) == 1
