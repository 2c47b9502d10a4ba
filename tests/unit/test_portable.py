"""A portable CPython: uv fetches it where a stack wants one, and nothing is asked where that is forbidden."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tare.core.errors import UnavailableError
from tare.images import interpreter
from tare.model.studies.stacks import load_stack
from tare.runtimes import portable

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
FAKE_UV = """\
#!/bin/sh
echo "$@ $UV_PYTHON_INSTALL_MIRROR" >> {asked}
test "$UV_PYTHON_INSTALL_MIRROR" = there || {{ echo "error: connection refused" >&2; exit 2; }}
mkdir -p "$UV_PYTHON_INSTALL_DIR/cpython-{version}.1-linux-x86_64-gnu/bin"
ln -s {python} "$UV_PYTHON_INSTALL_DIR/cpython-{version}.1-linux-x86_64-gnu/bin/python{version}"
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A uv that has our own Python where its mirror answers, and is the only way to one; gives what was asked."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "automatic")
    said, program = tmp_path / "asked", tmp_path / "uv"
    base = Path(sys.base_prefix) / "bin" / f"python{VERSION}"
    program.write_text(FAKE_UV.format(asked=said, version=VERSION, python=base))
    program.chmod(0o755)
    monkeypatch.setattr(portable, "UV", program)
    monkeypatch.setattr(interpreter, "_on_path", lambda version: [])
    monkeypatch.setattr(interpreter, "_of_pyenv", lambda version: [])
    monkeypatch.setattr(interpreter.programs, "which", lambda name: None)  # apt takes its time
    every = interpreter._candidates
    monkeypatch.setattr(interpreter, "_candidates", lambda version: list(every(version))[1:])  # but our own
    return lambda: said.read_text().splitlines() if said.exists() else []


@pytest.fixture
def stack():
    return replace(load_stack("torch-2.13"), python=VERSION, or_python=())


def test_a_missing_python_is_fetched_into_our_cache_when_a_stack_is_wanted(asked, stack, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "there")
    with pytest.raises(UnavailableError, match=f"no CPython {VERSION} on this machine"):
        interpreter.on_this_machine(stack)
    assert asked() == [], "a look asks for nothing"
    fitting, found = interpreter.with_interpreter(stack)
    assert fitting == stack and found.version.startswith(VERSION) and found.stdlib.is_dir()
    assert interpreter.on_this_machine(stack)[1] == found == interpreter.with_interpreter(stack)[1]
    assert asked() == [f"python install --no-progress {VERSION} there"]
    assert interpreter.seen(VERSION) == [], "it came by the stack that wanted it, which it makes no other"


def test_where_none_answers_the_reason_is_uvs(asked, stack, monkeypatch):
    monkeypatch.delenv("UV_PYTHON_INSTALL_MIRROR", raising=False)
    with pytest.raises(UnavailableError, match=r"no portable build is available: .*connection refused"):
        interpreter.with_interpreter(stack)


def test_without_uv_or_where_it_must_not_load_nothing_is_fetched(asked, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(UnavailableError, match=r"^UV_PYTHON_DOWNLOADS=never"):
        portable.bring("3.6")
    assert asked() == []
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS")
    monkeypatch.setattr(portable, "UV", Path("/nowhere/uv"))
    with pytest.raises(UnavailableError, match=r"uv is not installed"):
        portable.bring("3.6")
