"""Setting up from an empty clone: the parts that can be tested without doing it all again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tare.core.errors import UnavailableError, UserError
from tare.runtimes import bootstrap

ROOT = Path(__file__).resolve().parents[2]
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with a space in its name that looks like a checkout, and is the working directory."""
    folder = tmp_path / "a b"
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "Makefile", folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", ["run", "test"])
def test_every_package_of_a_lock_is_pinned_with_hashes(name):
    lock = bootstrap.read_lock(ROOT / "requirements" / f"{name}.txt")
    assert all(HASH.search(block) for block in lock.values())
    wanted = re.findall(r"^([a-z][\w.-]*)", (ROOT / "requirements" / f"{name}.in").read_text(), flags=re.MULTILINE)
    assert set(wanted) <= set(lock), "make lock was not run after a change"


def test_the_locks_agree_where_they_overlap():
    run, test = (bootstrap.read_lock(ROOT / "requirements" / f"{name}.txt") for name in ("run", "test"))
    assert [run[name].split()[0] for name in run if name in test] == [
        test[name].split()[0] for name in run if name in test
    ]


def test_an_empty_lock_is_refused(tmp_path):
    (tmp_path / "run.txt").write_text("# nothing\n")
    with pytest.raises(UserError, match="make lock"):
        bootstrap.read_lock(tmp_path / "run.txt")


def test_a_stamp_follows_the_lock_the_project_and_the_place(checkout, tmp_path, monkeypatch):
    first = bootstrap.stamp("run")
    assert bootstrap.stamp("run") == first
    lock = checkout / "requirements" / "run.txt"
    lock.write_text(lock.read_text() + "\n")
    second = bootstrap.stamp("run")
    (checkout / "pyproject.toml").write_text("")
    assert len({first, second, bootstrap.stamp("run")}) == 3
    assert bootstrap.read_stamps() == [], "there is no .venv, so nothing is installed"


def test_another_python_is_one_clear_line(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "PYTHON", (3, 99))
    assert bootstrap.main(["run"]) == UnavailableError.exit_code
    line = capsys.readouterr().err
    assert "Tare needs Python" in line and "apt-get install" in line and line.count("\n") == 1


def test_without_ensurepip_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    monkeypatch.setenv("RUNTIMES", "system")
    with pytest.raises(UnavailableError, match=r"python3\.11-venv was not installed \(RUNTIMES=system\)"):
        bootstrap.ensure_venv_module()


def test_pip_installs_by_hash_and_refuses_another_hash(checkout):
    bootstrap.make_venv()
    lock = bootstrap.read_lock(Path("requirements/run.txt"))
    part = bootstrap.VENV / "part.txt"
    part.write_text(lock["wheel"])
    bootstrap.pip_install(part)
    assert list(bootstrap.VENV.glob("lib/python*/site-packages/wheel-*.dist-info"))
    part.write_text(HASH.sub("--hash=sha256:" + "0" * 64, lock["six"]))
    with pytest.raises(UnavailableError, match=r"could not install \.venv/part\.txt") as caught:
        bootstrap.pip_install(part)
    assert "\n" not in str(caught.value)
    assert not list(bootstrap.VENV.glob("lib/python*/site-packages/six*"))


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )


def test_make_help_names_every_public_target(checkout):
    done = make("help")
    assert done.returncode == 0
    for target in ("report", "test", "test-quick", "smoke", "lock", "clean", "doctor"):
        assert re.search(rf"^  make {target} +\S", done.stdout, flags=re.MULTILINE), target


def test_make_without_a_fitting_python_says_what_to_install(checkout):
    done = make("report", "PYTHON=")
    assert done.returncode != 0
    assert "tare: Tare needs Python 3.11, and there is none here" in done.stderr


def test_make_clean_keeps_the_cache_and_the_reference(checkout, tmp_path):
    for path in ("results/reference/kept.json", "results/.gitkeep", "results/report/gone.html", ".venv/gone"):
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text("x")
    cache = tmp_path / "cache"
    cache.mkdir()
    assert make("clean", TARE_CACHE=str(cache)).returncode == 0
    assert sorted(p.relative_to(checkout).as_posix() for p in (checkout / "results").rglob("*") if p.is_file()) == [
        "results/.gitkeep",
        "results/reference/kept.json",
    ]
    assert not (checkout / ".venv").exists() and cache.exists()
    asked = subprocess.run(
        ["make", "clean-cache"], env={**os.environ, "TARE_CACHE": str(cache)}, input="n\n", text=True, timeout=60
    )
    assert asked.returncode == 0 and cache.exists(), "the cache was deleted although the answer was no"
