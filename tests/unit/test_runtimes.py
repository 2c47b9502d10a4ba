"""What is installed, in which order, and why not; nothing is installed here."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from processes import finished

from envs import apptainer as adapter
from tare.core import errors, machine_lock
from tare.core.errors import UnavailableError, UserError
from tare.core.files import locked, project_root
from tare.core.process import MARK
from tare.model.environment import Probe
from tare.runtimes import apptainer, daemon, install, programs, remove
from tare.runtimes.apptainer import debian_archive, relocate

ROOT = project_root()
WEIGHED = ("Docker", "Charliecloud")


def daemon_places(folder):
    return daemon.State(folder=folder / "run/tare-0-1", data=folder / "data", log=folder / "dockerd.log")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(machine_lock.LOCKS, str(tmp_path))
    monkeypatch.setattr(remove.workflow_lock, "running", list)
    monkeypatch.setattr(remove.daemon, "state", lambda: daemon_places(tmp_path / "cache/docker"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("RUNTIMES", raising=False)


def test_runs_before_there_is_a_virtual_environment():
    code = (
        "import sys; import tare.runtimes.install, tare.runtimes.bootstrap, tare.runtimes.daemon\n"
        "foreign = [m for m, x in sys.modules.items() if 'site-packages' in (getattr(x, '__file__', '') or '')]\n"
        "print(foreign)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_system_runtimes_forbid_installation(monkeypatch, capsys):
    monkeypatch.setenv("RUNTIMES", "system")
    monkeypatch.setattr(programs, "which", lambda name: None)
    monkeypatch.setattr(programs, "apt", lambda *_, **__: pytest.fail("apt was called"))
    assert install.install() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(programs.WANTED) + 1
    assert all("missing: " in line and "RUNTIMES=system" in line for line in lines)


def test_an_unknown_word_in_runtimes_is_refused(monkeypatch):
    monkeypatch.setenv("RUNTIMES", "sytem")
    with pytest.raises(UserError, match="sytem"):
        install.install()


def test_other_users_and_other_families_install_nothing(monkeypatch):
    monkeypatch.setattr(programs.os, "getuid", lambda: 1000)
    assert programs.may_install() == "only root can"
    monkeypatch.setattr(programs.os, "getuid", lambda: 0)
    monkeypatch.setattr(programs, "which", lambda name: None)
    assert programs.may_install() == "not a Debian-family machine"


@pytest.mark.parametrize(
    ("uid", "sudo", "says"),
    [
        (0, False, "apt-get install fuse3"),
        (1000, True, "sudo apt-get install fuse3"),
        (1000, False, "ask an administrator for `apt-get install fuse3`"),
    ],
)
def test_a_remedy_is_told_as_this_user_can_give_it(monkeypatch, uid, sudo, says):
    monkeypatch.setattr(errors.os, "getuid", lambda: uid)
    monkeypatch.setattr(errors, "may_sudo", lambda: sudo)
    monkeypatch.setattr(errors.shutil, "which", lambda name, path=None: "/usr/bin/apt-get")
    assert UnavailableError("no fuse", "apt-get install fuse3").remedy == says
    assert Probe(available=False, reason="no fuse", remedy="apt-get install fuse3").remedy == says
    assert str(UnavailableError("no", "unset DOCKER_HOST")) == "no (mend it: unset DOCKER_HOST)"
    monkeypatch.setattr(errors.shutil, "which", lambda name, path=None: None)
    assert UnavailableError("no fuse", "apt-get install --yes fuse3").remedy == "install what Debian packs as fuse3"


@pytest.mark.parametrize(
    ("uid", "sudo", "says"),
    [
        (0, False, "apt-get update && apt-get install fuse3"),
        (1000, True, "sudo apt-get update && sudo apt-get install fuse3"),
        (1000, False, "ask an administrator for `apt-get update && apt-get install fuse3`"),
    ],
)
def test_where_apt_has_no_lists_a_remedy_begins_with_them(monkeypatch, tmp_path, uid, sudo, says):
    monkeypatch.setattr(errors.os, "getuid", lambda: uid)
    monkeypatch.setattr(errors, "may_sudo", lambda: sudo)
    monkeypatch.setattr(errors.shutil, "which", lambda name, path=None: "/usr/bin/apt-get")
    monkeypatch.setattr(errors, "APT_LISTS", tmp_path)
    (tmp_path / "archive_dists_trixie_InRelease").touch()
    assert errors.as_we_can("apt-get install fuse3") == says
    assert "update" not in errors.as_we_can("dpkg --configure --pending")
    (tmp_path / "archive_dists_trixie_main_binary-amd64_Packages.lz4").touch()
    assert "update" not in errors.as_we_can("apt-get install fuse3")


@pytest.mark.parametrize(
    ("known", "says"),
    [
        # Debian 12, Debian 13, a release that has none of them, no lists
        ({"docker.io", "charliecloud"}, "apt-get install --no-install-recommends docker.io charliecloud"),
        (
            {"docker.io", "docker-cli", "charliecloud-runtime"},
            "apt-get install --no-install-recommends docker.io docker-cli charliecloud-runtime",
        ),
        (set(), None),
        (None, "apt-get update && apt-get install docker.io charliecloud"),
    ],
)
def test_an_ordinary_user_is_told_packages_that_this_release_has(monkeypatch, tmp_path, capsys, known, says):
    monkeypatch.setattr(install, "missing", lambda: [w for w in programs.WANTED if w.purpose in WEIGHED])
    monkeypatch.setattr(install, "find_apptainer", lambda: Path("/x"))
    monkeypatch.setattr(install, "may_install", lambda: install.ONLY_ROOT)
    monkeypatch.setattr(install, "which", Path)
    monkeypatch.setattr(programs, "candidate", lambda name: "1" if name in known else None)
    monkeypatch.setattr(errors, "may_sudo", lambda: False)
    monkeypatch.setattr(errors.os, "getuid", lambda: 1000)
    monkeypatch.setattr(errors.shutil, "which", lambda name, path=None: "/usr/bin/apt-get")
    if known is None:
        monkeypatch.setattr(errors, "APT_LISTS", tmp_path)
    assert install.install() == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "to have them" in line]
    assert [line.partition("to have them: ")[2] for line in told] == (
        [f"ask an administrator for `{says}`"] if says else []
    )


def test_the_first_package_that_apt_knows_is_chosen(monkeypatch):
    monkeypatch.setattr(programs, "candidate", {"docker.io": "20", "charliecloud-runtime": "0.31"}.get)
    wants = [want for want in programs.WANTED if want.programs[0] in ("dockerd", "docker", "ch-run", "newuidmap")]
    packages, unknown = programs.choose_packages(wants)
    assert packages == ["docker.io", "charliecloud-runtime"]
    assert [want.packages for want in unknown] == [("uidmap",)]


@pytest.fixture
def machine(monkeypatch):
    """A dpkg and an apt-get of which packages are known: what is asked of them, and what there is."""

    class Machine:
        def __init__(self):
            self.there = {"libc6": "installed"}
            self.brings = {"docker.io": ["containerd", "docker.io"], "fuse3": ["fuse3"]}
            self.needed_by = {}
            self.calls = []
            self.bad = set()

        def apt(self, program, *arguments, **_):
            self.calls.append((program, *arguments))
            names = [word for word in arguments if not word.startswith("-")]
            action, packages = names[0] if names else "", [name for name in names[1:] if "::" not in name]
            if self.bad & set(packages):
                return finished(returncode=100, stderr=f"E: {packages[0]} cannot be had")
            if action == "install":
                new = [name for package in packages for name in self.brings[package] if name not in self.there]
                if "--simulate" in arguments:
                    return finished("".join(f"Inst {name} (1.0 Debian)\n" for name in new))
                if "--download-only" not in arguments:
                    self.there |= dict.fromkeys(new, "installed")
            if action == "purge":
                gone = set(packages).union(*(self.needed_by.get(name, set()) for name in packages))
                if "--simulate" in arguments:
                    return finished("".join(f"Purg {name} [1.0]\n" for name in gone))
                self.there = {name: state for name, state in self.there.items() if name not in gone}
            return finished()

    world = Machine()
    monkeypatch.setattr(programs, "apt", world.apt)
    monkeypatch.setattr(remove, "apt", world.apt)
    monkeypatch.setattr(programs, "packages_by_status", lambda: world.there)
    monkeypatch.setattr(programs.os, "getuid", lambda: 0)
    monkeypatch.setattr(programs, "DPKG_JOURNAL", Path("/nowhere"))
    return world


def test_one_package_that_fails_does_not_spoil_the_others(machine):
    machine.bad = {"uidmap"}
    failed = programs.install_packages(["uidmap", "fuse3"])
    assert list(failed) == ["uidmap"]
    assert "cannot be had" in failed["uidmap"] and "fuse3" in machine.there


def test_what_an_installation_adds_is_recorded_before_it_is_added(machine, monkeypatch):
    seen = []
    monkeypatch.setattr(programs, "write_json", lambda path, value: seen.append((value, dict(machine.there))))
    assert programs.install_packages(["docker.io"]) == {}
    assert seen == [
        ({"all": ["containerd", "docker.io"], "unsettled": ["containerd", "docker.io"]}, {"libc6": "installed"})
    ]
    assert not (programs.cache_dir("runtimes") / "archives").exists(), "what apt downloaded is gone"


def test_apt_gets_the_proxy_of_the_environment_and_nothing_else_of_it(monkeypatch):
    seen = {}
    monkeypatch.setattr(programs, "run", lambda argv, **options: seen.update(options["env"]) or finished())
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert programs.apt("apt-get", "update").ok
    assert seen.pop("HTTPS_PROXY") == "http://proxy:3128"
    assert set(seen) == {"PATH", "HOME", "LC_ALL", "DEBIAN_FRONTEND"}


def test_removing_takes_what_was_added_and_nothing_that_was_there(machine, capsys):
    machine.there["fuse3"] = "installed"
    assert programs.install_packages(["docker.io", "fuse3"]) == {}
    prefix = programs.relocated_prefix()
    prefix.mkdir(parents=True)
    assert remove.remove() == 0
    assert machine.there == {"libc6": "installed", "fuse3": "installed"}
    assert not prefix.exists() and not programs.added_path().exists()
    said = capsys.readouterr().out
    assert "removing containerd, docker.io" in said and "removed 2 of 2 packages" in said
    assert remove.remove() == 0
    assert "no package is here that Tare installed" in capsys.readouterr().out


@pytest.fixture
def policy_free(monkeypatch):
    """No policy of services, which lies outside of what a test may write."""
    monkeypatch.setattr(install, "without_services", contextlib.nullcontext)
    monkeypatch.setattr(install, "keep_services_off", lambda: None)


def test_asked_for_help_nothing_goes_and_a_dry_run_tells_what_would(machine, capsys):
    programs.install_packages(["docker.io"])
    there = dict(machine.there)
    for words, status in ((["--help"], 0), (["--hlep"], 2), (["all"], 2)):
        with pytest.raises(SystemExit) as ended:
            remove.main(words)
        assert ended.value.code == status
    capsys.readouterr()
    assert remove.main(["--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.strip() == "to go: 2 packages, as far as nothing else needs them: containerd, docker.io"
    assert machine.there == there and not [call for call in machine.calls if "purge" in call]


@pytest.mark.parametrize("answer", ["", "n", "no", "yes!"])
def test_on_a_terminal_a_person_is_asked_and_nothing_goes_without_a_yes(machine, monkeypatch, capsys, answer):
    programs.install_packages(["docker.io"])
    there = dict(machine.there)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert remove.remove(asks=True) == 0
    assert machine.there == there and capsys.readouterr().out.splitlines()[-1].strip() == "kept"

    def ended(_):
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert remove.remove(asks=True) == 0
    assert machine.there == there and capsys.readouterr().out.splitlines()[-1].strip() == "kept"
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert remove.remove(asks=True) == 0
    assert machine.there == {"libc6": "installed"}


def test_nothing_goes_while_anything_measures_or_a_study_runs(machine, monkeypatch, capsys):
    programs.install_packages(["docker.io"])
    there = dict(machine.there)
    with locked(machine_lock.lock_path(), waiting_for=machine_lock.MEASURES):
        assert remove.main(["--yes"]) == 3
    said = capsys.readouterr().err
    assert said.startswith(
        f"tare: another process has this machine: it measures on this machine (process {os.getpid()}"
    )
    monkeypatch.setattr(remove.workflow_lock, "running", lambda: [(17, Path("/some/where"))])
    assert remove.main(["--yes"]) == remove.main(["--check"]) == remove.main(["--check-folder", "/some/where"]) == 3
    assert "tare: a study runs: process 17 in /some/where; wait until it has ended" in capsys.readouterr().err
    assert remove.main(["--check-folder", "/some"]) == 0
    assert machine.there == there
    monkeypatch.setattr(remove.workflow_lock, "running", list)
    assert remove.main(["--yes"]) == 0 and machine.there == {"libc6": "installed"}


def test_nothing_goes_while_the_private_daemon_has_users_and_one_that_lingers_is_waited_for(
    machine, monkeypatch, capsys
):
    programs.install_packages(["docker.io"])
    places = daemon.state()
    places.data.mkdir(parents=True)
    code = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_SH); "
    code += "print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, str(places.users)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        user.stdout.readline()
        assert remove.main(["--yes"]) == 3
        user.stdin.close()
    said = capsys.readouterr().err
    assert (
        f"tare: the private Docker daemon has users: process {user.pid} ({sys.executable} -c import fcntl" in said
    )
    monkeypatch.setattr(daemon, "LOOK_S", 0.01)
    with locked(places.alive, waiting_for="it lives") as _:
        lingering = threading.Thread(target=remove.main, args=(["--yes"],))
        lingering.start()
        lingering.join(0.3)
        assert lingering.is_alive() and "docker.io" in machine.there
    lingering.join(20)
    assert machine.there == {"libc6": "installed"}
    assert "waiting for the private Docker daemon, which ends 20 s after its last user" in capsys.readouterr().out


def test_an_installation_waits_for_whoever_measures_and_names_it(machine, policy_free, monkeypatch, capsys):
    machine.brings["qemu-system-x86"] = ["qemu-system-x86"]
    monkeypatch.setattr(programs, "candidate", lambda name: "1.0")
    monkeypatch.setattr(install, "may_install", lambda: None)
    wanted = ("Virtual machine", {"qemu": "qemu-system-x86"}, lambda name: "qemu-system-x86" in machine.there)
    with locked(machine_lock.lock_path(), waiting_for=machine_lock.MEASURES):
        waiting = threading.Thread(target=install.install_for, args=wanted)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and "qemu-system-x86" not in machine.there
    waiting.join(20)
    assert "qemu-system-x86" in machine.there
    assert (
        f"waiting for another process: it measures on this machine (process {os.getpid()}"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("character", list(':,\\"\t\n'))
def test_a_cache_whose_path_runtimes_would_read_otherwise_is_refused(tmp_path, monkeypatch, character):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / f"a{character}b"))
    with pytest.raises(UserError, match="for more than a character of a path; point TARE_CACHE at a folder whose"):
        programs.cache_dir("runtimes")
    assert not (tmp_path / f"a{character}b").exists()


def test_the_relocated_apptainer_is_not_put_below_a_blank(tmp_path, monkeypatch):
    """It would start, and wait for a mount of its own until it gives up."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "my cache"))
    monkeypatch.setattr(apptainer, "debian_archive", lambda: pytest.fail("it was fetched"))
    with pytest.raises(UnavailableError) as told:
        apptainer.from_newest_suite()
    prefix = programs.relocated_prefix()
    assert str(told.value).startswith(
        f"{prefix} has a blank in its path, and the relocated Apptainer finds no mount"
    )
    for tried in (True, False):  # it was refused; or it lies there since before
        if tried:
            programs.note("apptainer", how=None, tried_before=[str(told.value)])
            monkeypatch.setattr(adapter, "find_apptainer", lambda: None)
        else:
            monkeypatch.setattr(adapter, "find_apptainer", lambda: prefix / "usr/bin/apptainer")
        probe = adapter.Apptainer().probe()
        assert (probe.reason, probe.remedy) == (str(told.value), adapter.ELSEWHERE)
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(adapter, "find_apptainer", lambda: None)
    assert adapter.Apptainer().probe().reason == "neither apptainer nor singularity is installed"


def test_who_measures_installs_in_its_own_time_and_others_are_told_what_is_done(capsys):
    with machine_lock.alone_on_this_machine("it installs what measurements take"), install.alone_on_this_machine():
        holder = machine_lock.lock_path().read_text().splitlines()
    assert holder[0].startswith(f"process {os.getpid()}, since ") and holder[1:] == [
        "it installs what measurements take"
    ]


def test_the_next_set_up_brings_back_what_was_taken_away_also_of_other_studies(
    machine, policy_free, monkeypatch, capsys
):
    """As the Open MPI of CNTK's stack, which no other study needs."""
    machine.brings["libopenmpi3"] = ["libopenmpi3", "libhwloc15"]
    monkeypatch.setattr(programs, "candidate", lambda name: "1.0")
    monkeypatch.setattr(install, "may_install", lambda: None)
    monkeypatch.setattr(install, "missing", list)
    monkeypatch.setattr(install, "find_apptainer", lambda: Path("/x"))
    install.install_for("cntk-2.7", {"libmpi.so.40": "libopenmpi3"}, lambda name: "libopenmpi3" in machine.there)
    before = dict(machine.there)
    assert remove.remove() == 0
    assert machine.there == {"libc6": "installed"} and programs.taken_away() == ["libopenmpi3"]
    assert install.install() == 0
    assert machine.there == before and programs.added() == ["libhwloc15", "libopenmpi3"]
    assert not programs.removed_path().exists()
    calls = len(machine.calls)
    assert install.install() == 0 and len(machine.calls) == calls


def test_a_package_that_something_else_has_come_to_need_stays(machine, capsys):
    programs.install_packages(["docker.io"])
    machine.there["kubernetes"] = "installed"
    machine.needed_by["containerd"] = {"kubernetes"}
    assert remove.remove() == 3
    assert set(machine.there) == {"libc6", "kubernetes", "containerd"}
    assert "containerd stay: something that was installed since needs them" in capsys.readouterr().out
    assert programs.added() == ["containerd"]


def test_who_may_not_remove_is_told_and_nothing_is_asked_of_apt(machine, monkeypatch, capsys):
    programs.install_packages(["fuse3"])
    machine.calls.clear()
    monkeypatch.setattr(programs.os, "getuid", lambda: 1000)
    assert remove.remove() == 3
    assert machine.calls == [] and "fuse3 stay: only root can" in capsys.readouterr().out


def test_an_interrupted_installation_of_others_is_left_to_them(machine, monkeypatch, tmp_path):
    (tmp_path / "0001").touch()
    monkeypatch.setattr(programs, "DPKG_JOURNAL", tmp_path)
    machine.there["theirs"] = "half-configured"
    failed = programs.install_packages(["fuse3"])
    assert failed == {"fuse3": "an installation of theirs was interrupted; mend it: dpkg --configure --pending"}
    assert machine.calls == []


def cut_short(machine, monkeypatch, folder, package):
    """A package of ours that dpkg had unpacked when it was killed."""
    journal = folder / "0001"
    machine.there[package] = "unpacked"
    journal.touch()
    monkeypatch.setattr(programs, "DPKG_JOURNAL", folder)
    whole = machine.apt

    def apt(*arguments, **options):
        if arguments == ("dpkg", "--configure", "--pending"):
            machine.there[package] = "installed"
            journal.unlink()
        return whole(*arguments, **options)

    monkeypatch.setattr(programs, "apt", apt)


def test_an_interrupted_installation_of_ours_is_finished(machine, monkeypatch, tmp_path):
    programs.install_packages(["docker.io"])
    cut_short(machine, monkeypatch, tmp_path, "docker.io")
    assert programs.install_packages(["fuse3"]) == {}
    assert machine.there == dict.fromkeys(["libc6", "docker.io", "containerd", "fuse3"], "installed")


def test_what_an_interrupted_apt_left_is_brought_to_its_end_and_then_removed(machine, monkeypatch, tmp_path):
    programs.install_packages(["docker.io"])
    cut_short(machine, monkeypatch, tmp_path, "docker.io")
    assert remove.remove() == 0
    assert machine.there == {"libc6": "installed"} and not programs.added_path().exists()


def test_nothing_is_removed_where_an_installation_of_others_was_interrupted(machine, monkeypatch, tmp_path, capsys):
    programs.install_packages(["fuse3"])
    machine.there["theirs"] = "half-configured"
    (tmp_path / "0001").touch()
    monkeypatch.setattr(programs, "DPKG_JOURNAL", tmp_path)
    machine.calls.clear()
    assert remove.remove() == 3
    said = capsys.readouterr().out.splitlines()[-1].strip()
    assert said == "fuse3 stay: an installation of theirs was interrupted; mend it: dpkg --configure --pending"
    assert machine.calls == [] and "fuse3" in machine.there


def test_services_of_what_was_added_do_not_start_with_the_machine(machine, monkeypatch, tmp_path, capsys):
    programs.install_packages(["docker.io"])
    wants = tmp_path / "multi-user.target.wants"
    wants.mkdir()
    for name in ("docker.service", "ssh.service"):
        (wants / name).touch()
    asked = []

    def answer(argv, **_):
        asked.append(argv)
        return finished("/usr/lib/systemd/system/docker.service\n/usr/bin/dockerd\n/etc/init.d/docker\n")

    monkeypatch.setattr(install, "ENABLED", tmp_path)
    monkeypatch.setattr(install, "run", answer)
    install.keep_services_off()
    assert asked == [["dpkg", "--listfiles", "containerd", "docker.io"], ["update-rc.d", "docker", "disable"]]
    assert [path.name for path in wants.iterdir()] == ["ssh.service"]
    assert "off until they are enabled: docker.service" in capsys.readouterr().out
    asked.clear()
    install.keep_services_off()
    assert asked == [], "who enables one afterwards keeps it"


def test_candidate_versions_as_apt_prints_them(monkeypatch):
    text = "apptainer:\n  Installed: (none)\n  Candidate: {}\n  Version table:\n"
    monkeypatch.setattr(programs, "apt", lambda *_, **__: finished(text.format("1.4.5-2")))
    assert programs.candidate("apptainer") == "1.4.5-2"
    monkeypatch.setattr(programs, "apt", lambda *_, **__: finished(text.format("(none)")))
    assert programs.candidate("apptainer") is None


def test_upstreams_package_with_another_hash_is_refused(monkeypatch, tmp_path):
    fake = tmp_path / "apptainer_amd64.deb"
    fake.write_bytes(b"not it")
    monkeypatch.setattr(apptainer, "UPSTREAM", fake.as_uri())
    monkeypatch.setattr(apptainer.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(apptainer, "install_packages", lambda *_: pytest.fail("it was installed"))
    with pytest.raises(UnavailableError, match=r"has SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}: not installed"):
        apptainer.from_upstream()


def test_a_proxy_in_the_way_of_upstream_is_named(monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(urllib.request, "_opener", None)  # which has the proxies of its first address
    monkeypatch.setattr(apptainer.platform, "machine", lambda: "x86_64")
    with pytest.raises(
        UnavailableError, match=r"does not answer .* proxy http://127\.0\.0\.1:9: unset https_proxy"
    ):
        apptainer.from_upstream()


def test_the_archive_comes_from_the_machines_own_configuration(monkeypatch, tmp_path):
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    listing = (
        f"Packages|Debian|http://mirror/debian-security/|{keyring}|bookworm-security\n"
        f"Packages|Someone|http://elsewhere/|{keyring}|stable\n"
        f"Packages|Debian|http://mirror/debian/|{keyring}|bookworm\n"
    )
    monkeypatch.setattr(apptainer, "apt", lambda *_, **__: finished(listing))
    assert debian_archive() == ("http://mirror/debian/", str(keyring))
    monkeypatch.setattr(apptainer, "apt", lambda *_, **__: finished(listing.replace("|Debian|", "|Ubuntu|")))
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
    monkeypatch.setattr(apptainer, "run", lambda argv, **_: calls.append(argv))
    relocate(root, prefix)
    loader = str(prefix / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    assert [call[1:4] for call in calls] == [["--set-interpreter", loader, "--force-rpath"]] * 2
    assert [call[5] for call in calls] == ["$ORIGIN/../lib/x86_64-linux-gnu", "$ORIGIN/../.."]
    for base in ("usr", "usr/lib"):
        assert (root / base / "etc/apptainer/apptainer.conf").exists()
        assert (root / base / "var/lib/apptainer/mnt/session").is_dir()


def test_singularity_serves_where_apptainer_is_absent(monkeypatch):
    monkeypatch.setattr(programs, "which", lambda name: Path("/opt/singularity") if name == "singularity" else None)
    assert programs.find_apptainer() == Path("/opt/singularity")
    assert programs.origin(Path("/opt/singularity")) == "path"


def test_the_relocated_apptainer_is_found_where_the_machine_has_none(monkeypatch):
    monkeypatch.setattr(programs, "SYSTEM_PATH", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    assert programs.find_apptainer() is None
    program = programs.relocated_prefix() / "usr/bin/apptainer"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert programs.find_apptainer() == program and programs.origin(program) == "relocated"
    assert programs.where(["singularity", "apptainer"]) == {"apptainer": str(program), "singularity": None}


INSTALLER = """
import sys, time
from pathlib import Path
from tare.runtimes import install
install.POLICY = Path(sys.argv[1])
with install.without_services():
    print("in", flush=True)
    input()
"""


@pytest.fixture
def policy(monkeypatch, tmp_path):
    """A place for the policy that invoke-rc.d asks."""
    monkeypatch.setattr(install, "POLICY", tmp_path / "policy-rc.d")
    return install.POLICY


def asks(policy, **variables):
    """The answer that a package's script gets: 101 forbids that a service starts."""
    return subprocess.run([policy, "docker", "start"], env={"PATH": os.environ["PATH"], **variables}).returncode


@pytest.mark.parametrize("end", ["killed", "in order"])
def test_services_start_again_however_an_installation_ends(policy, end):
    argv = [sys.executable, "-c", INSTALLER, str(policy)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as installer:
        assert installer.stdout.readline() == "in\n"
        assert asks(policy, **{MARK: "1-2"}) == 101
        assert asks(policy) == 0 and policy.exists(), "what others install is their business"
        if end == "in order":
            installer.communicate("go\n", timeout=60)
        else:
            installer.kill()
            deadline = time.monotonic() + 20
            while policy.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        assert not policy.exists()


def test_a_policy_of_others_stays_and_what_we_left_goes(policy):
    theirs = "#!/bin/sh\n# no services in this image\nexit 101\n"
    policy.write_text(theirs)
    with install.without_services():
        pass
    assert policy.read_text() == theirs
    assert policy.exists()


def test_what_one_environment_needs_is_installed_once_and_where_it_is_missing(machine, policy, monkeypatch, capsys):
    machine.brings["qemu-system-x86"] = ["qemu-system-x86"]
    monkeypatch.setattr(programs, "candidate", lambda name: "1.0")
    monkeypatch.setattr(
        install, "which", lambda name: None if "qemu-system-x86" not in machine.there else Path("/q")
    )
    monkeypatch.setattr(install, "may_install", lambda: "RUNTIMES=system")
    install.install_for("Virtual machine", {"qemu": "qemu-system-x86"})
    assert machine.calls == [], "who forbids installations gets none"
    monkeypatch.setattr(install, "may_install", lambda: None)
    install.install_for("Virtual machine", {})
    assert machine.calls == []
    install.install_for("Virtual machine", {"qemu": "qemu-system-x86"})
    assert (
        machine.there["qemu-system-x86"] == "installed" and "installing qemu-system-x86" in capsys.readouterr().out
    )
    asked = len(machine.calls)
    install.install_for("Virtual machine", {"qemu": "qemu-system-x86"})
    assert len(machine.calls) == asked


def test_a_library_comes_by_the_package_that_this_release_has(machine, policy, monkeypatch, capsys):
    machine.brings["libopenmpi3t64"] = ["libopenmpi3t64"]
    monkeypatch.setattr(programs, "candidate", lambda name: "4.1" if name == "libopenmpi3t64" else None)
    monkeypatch.setattr(install, "may_install", lambda: None)
    wanted = {"libmpi_cxx.so.40": ("libopenmpi3", "libopenmpi3t64")}
    install.install_for("cntk-2.7", wanted, lambda soname: "libopenmpi3t64" in machine.there)
    assert machine.there["libopenmpi3t64"] == "installed"
    assert "installing libopenmpi3t64" in capsys.readouterr().out
    asked = len(machine.calls)
    install.install_for("cntk-2.7", wanted, lambda soname: "libopenmpi3t64" in machine.there)
    assert len(machine.calls) == asked


def test_the_record_of_installations_keeps_what_was_there():
    programs.note("fuse3", how="the distribution's package")
    programs.note("uidmap", how="the distribution's package")
    assert set(json.loads(programs.record_path().read_text())) == {"fuse3", "uidmap"}


def test_what_failed_is_not_tried_again_at_once(monkeypatch):
    programs.note("uidmap", how=None)
    assert programs.failed_lately("uidmap")
    monkeypatch.setattr(programs.time, "time", lambda: 1e10)
    assert not programs.failed_lately("uidmap")
    programs.note("fuse3", how="the distribution's package")
    assert not programs.failed_lately("fuse3")


def test_installing_gives_up_with_one_line_and_status_0(monkeypatch, capsys):
    monkeypatch.setattr(
        programs, "WANTED", (programs.Want(programs=("nonsense",), packages=("no-such",), purpose="x"),)
    )
    monkeypatch.setattr(install, "may_install", lambda: None)
    monkeypatch.setattr(programs, "candidate", lambda name: None)
    monkeypatch.setattr(install, "without_services", contextlib.nullcontext)
    monkeypatch.setattr(install, "find_apptainer", lambda: Path("/x"))
    calls = []
    monkeypatch.setattr(programs, "apt", lambda *argv, **_: calls.append(argv) or finished())
    assert install.install() == 0
    assert calls == [("apt-get", "update")]
    assert "still missing: nonsense" in capsys.readouterr().out
    assert install.install() == 0
    assert len(calls) == 1
