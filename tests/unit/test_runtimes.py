"""What is installed, from where, and why not; what goes again.

No package of the machine's own is touched: dpkg works in a folder, on packages that are made here.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import finished

from envs import apptainer as adapter
from tare.core import errors, machine_lock
from tare.core.errors import UnavailableError, UserError
from tare.core.files import locked, project_root
from tare.model.environment import Probe
from tare.runtimes import apptainer, daemon, install, programs, remove, table
from tare.runtimes.apptainer import debian_archive, relocate

ROOT = project_root()
WEIGHED = ("Docker", "Charliecloud")
with_dpkg = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("dpkg-deb") is None, reason="unpacking packages takes root and dpkg"
)


def daemon_places(folder):
    return daemon.State(folder=folder / "run/tare-0-1", data=folder / "data", log=folder / "dockerd.log")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(machine_lock.LOCKS, str(tmp_path))
    monkeypatch.setattr(remove.workflows, "running", list)
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


def test_the_table_names_each_program_once_and_a_package_for_it():
    wants = table.FOR["test"]
    names = [name for want in wants for name in want.programs]
    assert len(names) == len(set(names)) and all(want.packages for want in wants)
    assert table.FOR["run"] == wants[: len(table.WANTED)]


def test_system_runtimes_forbid_installation(monkeypatch, capsys):
    monkeypatch.setenv("RUNTIMES", "system")
    monkeypatch.setattr(programs, "which", lambda name: None)
    monkeypatch.setattr(programs, "apt", lambda *_, **__: pytest.fail("apt was called"))
    assert install.install() == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.strip().startswith("missing, and not installed (RUNTIMES=system): dockerd (for Docker), ")
    assert all(f"{want.programs[0]} (for" in line for want in programs.WANTED)


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
    assert str(UnavailableError("no", "unset DOCKER_HOST")) == "no (to fix it: unset DOCKER_HOST)"
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
    monkeypatch.setattr(install, "missing", lambda rows: [w for w in rows if w.purpose in WEIGHED])
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
    told = [line for line in capsys.readouterr().out.splitlines() if "to install them" in line]
    assert [line.partition("to install them: ")[2] for line in told] == (
        [f"ask an administrator for `{says}`"] if says else []
    )


def test_a_dry_run_says_what_would_be_installed_from_where_and_installs_nothing(monkeypatch, capsys):
    monkeypatch.setattr(install, "missing", lambda rows: [w for w in rows if w.purpose in WEIGHED])
    monkeypatch.setattr(install, "find_apptainer", lambda: None)
    monkeypatch.setattr(install, "may_install", lambda: None)
    monkeypatch.setattr(install, "apt_has_lists", lambda: True)
    monkeypatch.setattr(install, "as_we_can", str)
    monkeypatch.setattr(install, "which", Path)
    monkeypatch.setattr(install, "installing", lambda: pytest.fail("it installs"))
    monkeypatch.setattr(programs, "candidate", lambda name: "1")
    assert install.install(dry_run=True) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == (
        "to install them: apt-get install --no-install-recommends docker.io docker-cli charliecloud-runtime"
    )
    assert lines[2] == "apptainer, if this release has none: from the suite unstable, into the cache"


def test_the_first_package_that_apt_knows_is_chosen(monkeypatch):
    monkeypatch.setattr(programs, "candidate", {"docker.io": "20", "charliecloud-runtime": "0.31"}.get)
    wants = [want for want in programs.WANTED if want.programs[0] in ("dockerd", "docker", "ch-run", "newuidmap")]
    packages, unknown = programs.choose_packages(wants)
    assert packages == ["docker.io", "charliecloud-runtime"]
    assert [want.packages for want in unknown] == [("uidmap",)]


NEEDS = {
    "libc6": (), "containerd": (), "docker.io": ("containerd",), "fuse3": (), "uidmap": (), "qemu-system-x86": (),
    "libopenmpi3t64": (), "kubernetes": ("containerd",),
}  # fmt: skip
CONTROL = "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n"


class Machine:
    """A dpkg in a folder and an apt-get that knows NEEDS: what is asked of them, and what there is."""

    def __init__(self, folder):
        self.folder, self.programs = folder, folder / "bin"
        self.calls, self.bad = [], set()
        for name in ("bin", "root/var/lib/dpkg/info", "root/var/lib/dpkg/updates"):
            (folder / name).mkdir(parents=True)
        (folder / "root/var/lib/dpkg/status").touch()
        for name, option in (
            ("dpkg", f"--root={folder}/root --log=/dev/null"),
            ("dpkg-query", f"--admindir={folder}/root/var/lib/dpkg"),
        ):
            program = self.programs / name
            program.write_text(f'#!/bin/sh\nexec {shutil.which(name)} {option} "$@"\n')
            program.chmod(0o755)
        self.add("libc6")

    def ask(self, program, *words):
        return subprocess.run([self.programs / program, *words], capture_output=True, text=True)

    def there(self):
        return set(self.ask("dpkg-query", "--show", "--showformat=${Package} ").stdout.split())

    def new(self, *names):
        """Packages and what they need, as far as they are not there."""
        there = self.there()
        every = dict.fromkeys(one for name in names for one in (*NEEDS[name], name))
        return [name for name in every if name not in there]

    def add(self, *names):
        """Make packages, and have dpkg install them."""
        for name in self.new(*names):
            tree, archive = self.folder / name, self.folder / f"{name}.deb"
            for place in ("DEBIAN", f"usr/share/{name}", "usr/lib/systemd/system"):
                (tree / place).mkdir(parents=True)
            if name == "docker.io":
                (tree / "usr/lib/systemd/system/docker.service").touch()
            needs = f"Depends: {', '.join(NEEDS[name])}\n" if NEEDS[name] else ""
            (tree / "DEBIAN/control").write_text(CONTROL.format(name=name) + needs)
            subprocess.run(["dpkg-deb", "--build", tree, archive], check=True, stdout=subprocess.DEVNULL)
            self.ask("dpkg", "--install", str(archive)).check_returncode()

    def apt(self, program, *words, **_):
        """In place of programs.apt."""
        self.calls.append((program, *words))
        if program == "dpkg":
            done = self.ask(program, *words)
            return finished(done.stdout, done.returncode, done.stderr, argv=("dpkg",))
        names = [name for name in words if name in NEEDS]
        if self.bad & set(names):
            return finished(returncode=100, stderr=f"E: {names[0]} cannot be had")
        if "--simulate" in words:
            return finished("".join(f"Inst {name} (1 Debian)\n" for name in self.new(*names)))
        if "install" in words and "--download-only" not in words:
            self.add(*names)
        return finished()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine that we may install on, without a policy of services."""
    world = Machine(tmp_path / "machine")
    monkeypatch.setenv("PATH", f"{world.programs}:{os.environ['PATH']}")
    monkeypatch.setattr(programs, "apt", world.apt)
    monkeypatch.setattr(remove, "apt", world.apt)
    monkeypatch.setattr(programs.os, "getuid", lambda: 0)
    monkeypatch.setattr(programs, "candidate", lambda name: "1" if name in NEEDS else None)
    monkeypatch.setattr(install, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(install, "ENABLED", tmp_path / "units")
    return world


@with_dpkg
def test_one_package_that_fails_does_not_spoil_the_others(machine):
    machine.bad = {"uidmap"}
    failed = programs.install_packages(["uidmap", "fuse3"])
    assert list(failed) == ["uidmap"] and "cannot be had" in failed["uidmap"]
    assert machine.there() == {"libc6", "fuse3"}


@with_dpkg
def test_what_an_installation_adds_is_recorded_before_it_is_added(machine, monkeypatch):
    seen = []
    monkeypatch.setattr(programs, "write_json", lambda path, value: seen.append((value, machine.there())))
    assert programs.install_packages(["docker.io"]) == {}
    assert seen == [({"all": ["containerd", "docker.io"]}, {"libc6"})]
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


@with_dpkg
def test_removing_takes_what_was_added_and_nothing_that_was_there(machine, capsys):
    machine.add("fuse3")
    assert programs.install_packages(["docker.io", "fuse3"]) == {}
    prefix = programs.relocated_prefix()
    prefix.mkdir(parents=True)
    assert remove.main(["--yes"]) == 0
    assert machine.there() == {"libc6", "fuse3"}
    assert not prefix.exists() and not programs.added_path().exists()
    said = capsys.readouterr().out
    assert "to remove: the relocated Apptainer of" in said
    assert "removing containerd, docker.io" in said and "removed 2 of 2 packages" in said
    assert remove.main(["--yes"]) == 0
    assert "Tare has installed nothing on this machine" in capsys.readouterr().out


@with_dpkg
def test_asked_for_help_nothing_goes_and_a_dry_run_tells_what_would(machine, capsys):
    programs.install_packages(["docker.io"])
    for words, status in ((["--help"], 0), (["--hlep"], 2), (["all"], 2)):
        with pytest.raises(SystemExit) as ended:
            remove.main(words)
        assert ended.value.code == status
    capsys.readouterr()
    assert remove.main(["--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.strip() == "to remove: 2 packages, if nothing else needs them: containerd, docker.io"
    assert machine.there() == {"libc6", "containerd", "docker.io"}


@with_dpkg
@pytest.mark.parametrize("answer", ["", "n", "no", "yes!"])
def test_on_a_terminal_a_person_is_asked_and_nothing_goes_without_a_yes(machine, monkeypatch, capsys, answer):
    programs.install_packages(["fuse3"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert remove.main([]) == 0
    assert "fuse3" in machine.there() and capsys.readouterr().out.splitlines()[-1].strip() == "nothing was removed"

    def ended(_):
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert remove.main([]) == 0
    assert "fuse3" in machine.there() and capsys.readouterr().out.splitlines()[-1].strip() in (
        "",
        "nothing was removed",
    )
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert remove.main([]) == 0
    assert machine.there() == {"libc6"}


@with_dpkg
def test_nothing_goes_while_anything_measures_or_a_study_runs(machine, monkeypatch, capsys):
    programs.install_packages(["fuse3"])
    with locked(machine_lock.lock_path(), waiting_for=machine_lock.MEASURES):
        assert remove.main(["--yes"]) == 3
    said = capsys.readouterr().err
    assert said.startswith(
        f"tare: another process uses this machine: it measures on this machine (process {os.getpid()}"
    )
    monkeypatch.setattr(remove.workflows, "running", lambda: [(17, Path("/some/where"))])
    assert remove.main(["--yes"]) == remove.main(["--check"]) == remove.main(["--check-folder", "/some/where"]) == 3
    assert "tare: a study runs: process 17 in /some/where; wait until it has ended" in capsys.readouterr().err
    assert remove.main(["--check-folder", "/some"]) == 0
    assert "fuse3" in machine.there()
    monkeypatch.setattr(remove.workflows, "running", list)
    assert remove.main(["--yes"]) == 0 and machine.there() == {"libc6"}


@with_dpkg
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
        assert lingering.is_alive() and "docker.io" in machine.there()
    lingering.join(20)
    assert machine.there() == {"libc6"}
    assert "waiting for the private Docker daemon to stop, 20 s after its last user" in capsys.readouterr().out


@with_dpkg
def test_an_installation_waits_for_whoever_measures_and_names_it(machine, monkeypatch, capsys):
    monkeypatch.setattr(install, "may_install", lambda: None)
    wanted = ("Virtual machine", {"qemu": "qemu-system-x86"}, lambda name: "qemu-system-x86" in machine.there())
    with locked(machine_lock.lock_path(), waiting_for=machine_lock.MEASURES):
        waiting = threading.Thread(target=install.install_for, args=wanted)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and "qemu-system-x86" not in machine.there()
    waiting.join(20)
    assert "qemu-system-x86" in machine.there()
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
        apptainer.install_relocated()
    prefix = programs.relocated_prefix()
    assert str(told.value).startswith(
        f"{prefix} has a space in its path, and the relocated Apptainer does not find"
    )
    monkeypatch.setattr(adapter, "may_install", lambda: None)
    for found in (None, prefix / "usr/bin/apptainer"):  # it was refused; or it lies there since before
        monkeypatch.setattr(adapter, "find_apptainer", lambda found=found: found)
        probe = adapter.Apptainer().probe()
        assert (probe.reason, probe.remedy) == (str(told.value), adapter.ELSEWHERE)
    monkeypatch.setattr(adapter, "find_apptainer", lambda: None)
    monkeypatch.setattr(adapter, "may_install", lambda: "not a Debian-family machine")
    assert adapter.Apptainer().probe().reason == "neither apptainer nor singularity is installed"


def test_who_measures_installs_in_its_own_time_and_others_are_told_what_is_done(capsys):
    doing = "it installs programs for measurements"
    with machine_lock.alone_on_this_machine(doing), install.alone_on_this_machine():
        holder = machine_lock.lock_path().read_text().splitlines()
    assert holder[0].startswith(f"process {os.getpid()}, since ") and holder[1:] == [doing]


@with_dpkg
def test_a_package_that_something_else_has_come_to_need_stays(machine, capsys):
    programs.install_packages(["docker.io"])
    machine.add("kubernetes")
    assert remove.main(["--yes"]) == 3
    assert machine.there() == {"libc6", "kubernetes", "containerd"}
    said = capsys.readouterr().out
    assert "removed 1 of 2 packages" in said and "containerd stay: kubernetes depends on containerd\n" in said
    assert programs.added() == ["containerd"]


@with_dpkg
def test_who_may_not_remove_is_told_and_nothing_is_asked_of_dpkg(machine, monkeypatch, capsys):
    programs.install_packages(["fuse3"])
    machine.calls.clear()
    monkeypatch.setattr(programs.os, "getuid", lambda: 1000)
    assert remove.remove() == 3
    assert machine.calls == [] and "fuse3 stay: only root can" in capsys.readouterr().out
    assert programs.added() == ["fuse3"]


@with_dpkg
def test_services_of_what_was_added_do_not_start_with_the_machine(machine, tmp_path, capsys):
    wants = tmp_path / "units/multi-user.target.wants"
    wants.mkdir(parents=True)
    for name in ("docker.service", "ssh.service"):
        (wants / name).touch()
    with install.installing():
        programs.install_packages(["docker.io"])
    assert [path.name for path in wants.iterdir()] == ["ssh.service"]
    assert "off until you enable them: docker.service" in capsys.readouterr().out
    (wants / "docker.service").touch()
    with install.installing():
        programs.install_packages(["fuse3"])
    assert (wants / "docker.service").exists(), "who enables one afterwards keeps it"


def test_candidate_versions_as_apt_prints_them(monkeypatch):
    text = "apptainer:\n  Installed: (none)\n  Candidate: {}\n  Version table:\n"
    monkeypatch.setattr(programs, "apt", lambda *_, **__: finished(text.format("1.4.5-2")))
    assert programs.candidate("apptainer") == "1.4.5-2"
    monkeypatch.setattr(programs, "apt", lambda *_, **__: finished(text.format("(none)")))
    assert programs.candidate("apptainer") is None


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


@pytest.mark.parametrize(
    ("known", "installed", "says"),
    [
        (["singularity-container"], ["singularity-container"], "installing singularity-container"),
        ([], [], "apptainer: relocated from the archive's suite unstable (apptainer=1.4.5-2)"),
    ],
)
def test_apptainer_is_the_distributions_where_it_has_one_else_relocated(
    monkeypatch, tmp_path, capsys, known, installed, says
):
    asked, row = [], [want for want in table.WANTED if "apptainer" in want.programs]
    monkeypatch.setattr(install, "FOR", {"run": row})
    monkeypatch.setattr(install, "missing", lambda rows: [] if asked else row)
    monkeypatch.setattr(install, "find_apptainer", lambda: asked)
    monkeypatch.setattr(install, "may_install", lambda: None)
    monkeypatch.setattr(install, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(install, "install_relocated", lambda: "apptainer=1.4.5-2")
    monkeypatch.setattr(programs, "apt", lambda *_, **__: finished())
    monkeypatch.setattr(programs, "candidate", lambda name: "1" if name in known else None)
    monkeypatch.setattr(programs, "install_packages", lambda names: asked.extend(names) or {})
    assert install.install() == 0
    assert asked == installed and says in capsys.readouterr().out

    def refuse():
        raise UnavailableError("apt has no Debian archive as a source", "nothing")

    monkeypatch.setattr(install, "install_relocated", refuse)
    if not installed:
        assert install.install() == 0
        assert "apptainer is unavailable: apt has no Debian archive as a source\n" in capsys.readouterr().out


@with_dpkg
def test_packages_of_a_newer_suite_are_unpacked_beside_the_system(machine, tmp_path):
    machine.add("fuse3", "uidmap")

    def ask(program, *words, cwd):
        for name in words[1:]:
            shutil.copy(machine.folder / f"{name}.deb", cwd / f"{name}_3.1-1_all.deb")

    assert apptainer.unpack(ask, ["uidmap", "fuse3"], tmp_path) == ["fuse3=3.1-1", "uidmap=3.1-1"]
    assert sorted(path.name for path in (tmp_path / "root/usr/share").iterdir()) == ["fuse3", "uidmap"]


def test_apt_asks_one_suite_of_one_archive_and_keeps_its_lists_to_itself(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(apptainer, "apt", lambda *words, cwd: seen.append(words) or finished("told"))
    ask = apptainer.private_apt(tmp_path, "http://mirror/debian/", "/keyring.gpg")
    assert ask("apt-get", "update") == "told"
    source = (tmp_path / "sources.list").read_text()
    assert source == "deb [signed-by=/keyring.gpg] http://mirror/debian/ unstable main\n"
    ((program, *options, action),) = seen
    assert (program, action) == ("apt-get", "update")
    assert all(option == "-o" or str(tmp_path) in option or "Dir::" not in option for option in options)
    monkeypatch.setattr(apptainer, "apt", lambda *words, cwd: finished(returncode=100, stderr="E: no such suite"))
    with pytest.raises(UnavailableError, match="no such suite"):
        ask("apt-get", "update")


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


@pytest.mark.parametrize("end", ["killed", "in order"])
def test_services_start_again_however_an_installation_ends(tmp_path, end):
    policy = tmp_path / "policy-rc.d"
    argv = [sys.executable, "-c", INSTALLER, str(policy)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as installer:
        assert installer.stdout.readline() == "in\n"
        assert subprocess.run([policy, "docker", "start"]).returncode == 101, "as invoke-rc.d asks"
        if end == "in order":
            installer.communicate("go\n", timeout=60)
        else:
            installer.kill()
            deadline = time.monotonic() + 20
            while policy.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        assert not policy.exists()


def test_a_policy_of_others_stays_and_what_we_left_goes(tmp_path, monkeypatch):
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(install, "POLICY", policy)
    theirs = "#!/bin/sh\n# no services in this image\nexit 101\n"
    policy.write_text(theirs)
    with install.without_services():
        pass
    assert policy.read_text() == theirs
    policy.write_text(install.POLICY_TEXT)
    with install.without_services():
        pass
    assert not policy.exists()


@with_dpkg
def test_what_one_environment_needs_is_installed_once_and_where_it_is_missing(machine, monkeypatch, capsys):
    monkeypatch.setattr(install, "which", lambda name: "qemu-system-x86" in machine.there())
    wanted = ("Virtual machine", {"qemu": "qemu-system-x86"})
    monkeypatch.setattr(install, "may_install", lambda: "RUNTIMES=system")
    install.install_for(*wanted)
    assert machine.calls == [], "who forbids installations gets none"
    monkeypatch.setattr(install, "may_install", lambda: None)
    install.install_for("Virtual machine", {})
    assert machine.calls == []
    install.install_for(*wanted)
    assert "qemu-system-x86" in machine.there() and "installing qemu-system-x86" in capsys.readouterr().out
    asked = len(machine.calls)
    install.install_for(*wanted)
    assert len(machine.calls) == asked


@with_dpkg
def test_a_library_comes_by_the_package_that_this_release_has(machine, monkeypatch, capsys):
    monkeypatch.setattr(install, "may_install", lambda: None)
    wanted = {"libmpi_cxx.so.40": ("libopenmpi3", "libopenmpi3t64")}
    install.install_for("cntk-2.7", wanted, lambda soname: "libopenmpi3t64" in machine.there())
    assert "libopenmpi3t64" in machine.there()
    assert "installing libopenmpi3t64" in capsys.readouterr().out


def test_what_can_not_be_had_is_one_line_and_stops_nothing(monkeypatch, tmp_path, capsys):
    nonsense = table.Want(programs=("nonsense",), packages=("no-such",), purpose="x")
    monkeypatch.setattr(install, "FOR", {"run": (nonsense,)})
    monkeypatch.setattr(install, "may_install", lambda: None)
    monkeypatch.setattr(install, "find_apptainer", lambda: Path("/x"))
    monkeypatch.setattr(install, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(programs, "candidate", lambda name: None)
    calls = []
    monkeypatch.setattr(programs, "apt", lambda *argv, **_: calls.append(argv) or finished())
    assert install.install() == 0
    assert calls == [("apt-get", "update")]
    said = capsys.readouterr().out
    assert "nonsense (for x): no package no-such here" in said and "still missing: nonsense (for x)" in said
