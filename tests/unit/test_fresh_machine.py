"""The benchmark that makes machines: what it asks for, and how it sees what was left there; no machine is made."""

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def fresh():
    spec = importlib.util.spec_from_file_location("fresh_machine", ROOT / "benchmarks/fresh_machine.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("release", ["trixie", "noble"])
def test_a_base_is_small_and_has_the_users(fresh, release, tmp_path):
    argv = fresh.base_command(release, tmp_path, None)
    assert argv[0] == "mmdebstrap" and argv[-2:] == [release, str(tmp_path)]
    included = next(word for word in argv if word.startswith("--include="))
    assert "python3" in included and "venv" not in included and "pip" not in included
    hooks = [word for word in argv if "useradd" in word]
    assert [("--groups sudo" in hook, hook.split()[-1]) for hook in hooks] == [
        (True, "sudoer"),
        (False, "ordinary"),
    ]


def test_what_is_left_is_what_neither_a_package_nor_the_checkout_nor_the_cache_has(fresh, tmp_path):
    arguments = fresh.parse(["--user", "ordinary"])
    for name in ("base", "case/work_folder"):
        (tmp_path / name / "var/lib/dpkg").mkdir(parents=True)
    for name, text in {
        "base/var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\n",
        "case/upper/var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\n\n"
        "Package: fuse3\nStatus: install ok installed\n\nPackage: gone\nStatus: deinstall ok config-files\n",
        "case/upper/var/lib/dpkg/info/fuse3.list": "/usr\n/bin/fusermount3\n",
        "case/upper/usr/bin/fusermount3": "",
        "case/upper/usr/sbin/policy-rc.d": "",
        "case/home/a folder/tare/.venv/python": "",
        "case/home/.cache/tare/kept": "",
        "case/home/.ipython/profile": "",
        "case/upper/tmp/snakemake1/x/y": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    case = tmp_path / "case"
    assert fresh.added_packages(tmp_path / "base", case) == ["fuse3"]
    assert fresh.foreign_files(arguments, case) == [
        "/tmp/snakemake1",
        "/tmp/snakemake1/x/y",
        "/usr/sbin/policy-rc.d",
        "/home/ordinary/.ipython/profile",
    ]


def test_a_cache_of_its_own_and_what_is_shown_are_nothing_left(fresh, tmp_path):
    place = "/etc/pip.conf=/home/ordinary/.config/pip.conf"
    arguments = fresh.parse(["--place", "work", "--env", "TARE_CACHE=/srv/tare/a cache", "--bind", place])
    assert fresh.cache_of(arguments, tmp_path) == tmp_path / "work_folder/a cache"
    assert fresh.cache_inside(arguments, tmp_path) == "/srv/tare/a cache"
    for name in ("upper/etc", "home/.config", "work_folder/a cache/data", "work_folder/cache", "home/.cache/pip"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "pip.conf").touch()
    assert fresh.foreign_files(arguments, tmp_path) == ["/etc/pip.conf", "/srv/tare/cache/pip.conf"]
    arguments = fresh.parse(["--user", "root", "--env", f"TARE_CACHE={fresh.USERS['root'][1]}/a cache"])
    assert fresh.cache_of(arguments, tmp_path) == tmp_path / "home/a cache"
    assert fresh.cache_of(fresh.parse([]), tmp_path) == tmp_path / "home/.cache/tare"
    assert fresh.cache_inside(fresh.parse([]), tmp_path) == "/home/ordinary/.cache/tare"


def test_remedies_are_given_by_whom_they_ask_to(fresh):
    output = (
        "tare: to have them: ask an administrator for `apt-get update && apt-get install docker.io`\n"
        "tare: no fuse (mend it: sudo apt-get install fuse3)\n"
        "    mend it: sudo apt-get install fuse3\n"
        "tare: no room (mend it: free some)\n"
        "tare: no daemon (mend it: ask an administrator for `systemctl start docker`)\n"
    )
    assert fresh.remedies(output) == [
        ("root", "apt-get update && apt-get install docker.io"),
        (None, "sudo apt-get install fuse3"),
    ]


def test_the_moment_of_an_end_is_said_or_drawn(fresh):
    assert fresh.chosen_end("KILL:30") == ("KILL", 30.0)
    drawn = {fresh.chosen_end("INT:5-90")[1] for _ in range(20)}
    assert len(drawn) > 1 and all(5 <= seconds <= 90 for seconds in drawn)


def test_a_command_is_interrupted_as_at_a_terminal(fresh, tmp_path):
    """The shell that starts it ignores Ctrl-C for what it has in the background."""
    text = fresh.FIRST_PROCESS
    part = text[text.index("setsid env") : text.index('echo "status')].replace(
        '--reuid "$USER_ID" --regid "$USER_ID" --init-groups --reset-env', ""
    )
    said = tmp_path / "said"
    settings = {
        "PATH": fresh.PATH, "FOLDER": str(tmp_path), "HOME_INSIDE": "/a home", "VARIABLES": "A='b c'",
        "COMMAND": f"echo \"$A $HOME $PWD\" > '{said}' && exec sleep 60", "KILL_AFTER": "0.1", "KILL_SIGNAL": "INT",
    }  # fmt: skip
    waits = f"until [ -s '{said}' ]; do sleep 0.05; done; sleep"
    script = part.replace("then sleep", f"then {waits}") + "exit $?"
    done = subprocess.run(["sh", "-c", script], env=settings, timeout=60, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert said.read_text() == f"b c /a home {tmp_path}\n"


def test_variables_are_passed_on_by_name_or_as_said(fresh, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/a place")
    monkeypatch.delenv("PIP_CERT", raising=False)
    assert fresh.variables_of(["PIP_FIND_LINKS", "PIP_CERT", "A=b=c"]) == "PIP_FIND_LINKS='/a place' A='b=c'"
