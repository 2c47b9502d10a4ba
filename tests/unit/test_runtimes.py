"""What is installed, in which order, and why not; nothing is installed here."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import finished

from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root
from tare.runtimes import apptainer, install, programs
from tare.runtimes.apptainer import debian_archive, relocate

ROOT = project_root()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
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
    assert programs.may_install() == "only root can install"
    monkeypatch.setattr(programs.os, "getuid", lambda: 0)
    monkeypatch.setattr(programs, "which", lambda name: None)
    assert programs.may_install() == "not a Debian-family machine"


def test_the_first_package_that_apt_knows_is_chosen(monkeypatch):
    monkeypatch.setattr(programs, "candidate", {"docker.io": "20", "charliecloud-runtime": "0.31"}.get)
    wants = [want for want in programs.WANTED if want.programs[0] in ("dockerd", "docker", "ch-run", "newuidmap")]
    packages, unknown = programs.choose_packages(wants)
    assert packages == ["docker.io", "charliecloud-runtime"]
    assert [want.packages for want in unknown] == [("uidmap",)]


def test_one_package_that_fails_does_not_spoil_the_others(monkeypatch):
    def apt(*arguments):
        bad = "uidmap" in arguments
        return finished(returncode=100 if bad else 0, stderr="E: uidmap cannot be had" if bad else "")

    monkeypatch.setattr(programs, "apt", apt)
    failed = programs.install_packages(["uidmap", "fuse3"])
    assert list(failed) == ["uidmap"]
    assert "cannot be had" in failed["uidmap"]


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


def asks(policy):
    """The answer that a package's script gets: 101 forbids that a service starts."""
    return subprocess.run([policy, "docker", "start"], check=False).returncode


@pytest.mark.parametrize("end", ["killed", "in order"])
def test_services_start_again_however_an_installation_ends(policy, end):
    argv = [sys.executable, "-c", INSTALLER, str(policy)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as installer:
        assert installer.stdout.readline() == "in\n"
        assert asks(policy) == 101
        if end == "in order":
            installer.communicate("go\n", timeout=60)
            assert not policy.exists()
            return
        installer.kill()
        os.waitid(os.P_PID, installer.pid, os.WEXITED | os.WNOWAIT)
        assert asks(policy) == 0, "a zombie installs nothing"
        assert not policy.exists()


def test_a_policy_of_others_stays_and_what_we_left_goes(policy):
    theirs = "#!/bin/sh\n# no services in this image\nexit 101\n"
    policy.write_text(theirs)
    with install.without_services():
        pass
    assert policy.read_text() == theirs
    assert policy.exists()


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
