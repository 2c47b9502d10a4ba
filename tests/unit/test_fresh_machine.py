"""The benchmark that makes machines: what it asks for, and how it sees what was left there; no machine is made."""

import importlib.util
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
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    case = tmp_path / "case"
    assert fresh.added_packages(tmp_path / "base", case) == ["fuse3"]
    assert fresh.foreign_files(arguments, case) == ["/usr/sbin/policy-rc.d", "/home/ordinary/.ipython/profile"]


def test_variables_are_passed_on_by_name_or_as_said(fresh, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/a place")
    monkeypatch.delenv("PIP_CERT", raising=False)
    assert fresh.variables_of(["PIP_FIND_LINKS", "PIP_CERT", "A=b=c"]) == "PIP_FIND_LINKS='/a place' A='b=c'"
