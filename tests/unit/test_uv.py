"""uv beside pip: it is told what pip is told, installs by hash; what it can not do pip is asked for."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from processes import finished

from tare.core.errors import UnavailableError
from tare.images import interpreter
from tare.model.studies.stacks import load_stack
from tare.runtimes import bootstrap, portable, uv


def test_what_pip_is_told_uv_is_told_the_nearest_last(tmp_path):
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.mkdir()
    settings = [
        f"global.extra-index-url='https://a.example/simple file://{missing} file://{there}'",
        f"global.find-links='{missing} {there}'",
        "global.index-url='https://far.example/simple'",
        "global.timeout='20'",
        "global.constraint='a.txt'",
        ":env:.index-url='https://near.example/simple'",
        "install.trusted-host='near.example'",
        ":env:.cert='/etc/a.crt'",
        "freeze.user='true'",
    ]
    assert uv.told("\n".join(settings)) == {
        "UV_DEFAULT_INDEX": "https://near.example/simple",
        "UV_INDEX": f"https://a.example/simple file://{there}",
        "UV_FIND_LINKS": str(there),
        "UV_INSECURE_HOST": "near.example",
        "SSL_CERT_FILE": "/etc/a.crt",
    }
    assert uv.told(":env:.proxy='http://p.example:3128'") == dict.fromkeys(uv.PROXIES, "http://p.example:3128")
    assert uv.told("") == {}


@pytest.mark.parametrize("line", ["global.no-index='true'", ":env:.no-binary='six'", "install.index-url=broken"])
def test_with_a_setting_that_uv_is_not_told_pip_installs(line):
    assert uv.told(line) is None


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty virtual environment in a folder with the checkout's locks."""
    (tmp_path / "requirements").symlink_to(Path("requirements").resolve())
    monkeypatch.chdir(tmp_path)
    bootstrap.make_venv()
    return tmp_path


def installed(name):
    return list(bootstrap.VENV.glob(f"lib/python*/site-packages/{name}-*.dist-info"))


def test_uv_installs_by_hash_refuses_another_hash_and_goes(place):
    lock = bootstrap.read_lock(Path("requirements/run.txt"))
    part = bootstrap.VENV / "part.txt"
    part.write_text(lock["six"])
    with bootstrap.faster("run") as install:
        program = bootstrap.VENV / "uv/bin/uv"
        assert program.is_file()
        install(part)
        assert installed("six") and "uv" in (installed("six")[0] / "INSTALLER").read_text()
        part.write_text(re.sub(r"--hash=sha256:[0-9a-f]+", "--hash=sha256:" + "0" * 64, lock["wheel"]))
        with pytest.raises(UnavailableError, match=r"pip could not install \.venv/part\.txt"):
            install(part)
    assert not installed("wheel") and not (bootstrap.VENV / "uv").exists()


def test_what_uv_leaves_among_temporary_files_lies_in_its_folder(tmp_path):
    program = tmp_path / "uv/bin/uv"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\ntouch "$TMPDIR/lock"\n')
    program.chmod(0o755)
    assert uv.install(program, Path("python"), Path("lock"), {}, {"PATH": "/usr/bin:/bin", "TMPDIR": "/nowhere"})
    assert (tmp_path / "uv/lock").exists()


@pytest.mark.parametrize("why", ["not to be had", "fails"])
def test_what_uv_can_not_install_pip_installs(monkeypatch, tmp_path, why):
    asked, program = [], tmp_path / "uv"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bootstrap, "_asked", lambda *_: bootstrap.run([sys.executable, "-c", ""], timeout_s=60))
    monkeypatch.setattr(uv, "fetch", lambda *_: None if why == "not to be had" else program)
    monkeypatch.setattr(bootstrap, "pip_install", asked.append)
    with bootstrap.faster("run") as install:
        install(Path("a.txt"))
    assert asked == [Path("a.txt")]


# --- a portable CPython


FAKE_UV = """\
#!/bin/sh
echo "$@ $UV_PYTHON_INSTALL_MIRROR" >> {asked}
flock --nonblock "$UV_PYTHON_INSTALL_DIR/.lock" true || {{ echo "error: it is locked" >&2; exit 3; }}
test "$UV_PYTHON_INSTALL_MIRROR" = {mirror} || {{ echo "error: connection refused" >&2; exit 2; }}
mkdir -p "$UV_PYTHON_INSTALL_DIR/cpython-{version}.1-linux-x86_64-gnu/bin"
ln -s {python} "$UV_PYTHON_INSTALL_DIR/cpython-{version}.1-linux-x86_64-gnu/bin/python{version}"
"""
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def fake_uv(tmp_path, monkeypatch):
    """A uv that has our own Python where its mirror answers, and is the only way to one; gives what was asked."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "automatic")
    asked, program = tmp_path / "asked", tmp_path / "uv"
    base = Path(sys.base_prefix) / "bin" / f"python{VERSION}"
    program.write_text(FAKE_UV.format(asked=asked, mirror="there", version=VERSION, python=base))
    program.chmod(0o755)
    monkeypatch.setattr(uv, "fetch", lambda pip, folder: program)
    monkeypatch.setattr(interpreter, "_on_path", lambda version: [])
    monkeypatch.setattr(interpreter, "_of_pyenv", lambda version: [])
    monkeypatch.setattr(interpreter.programs, "which", lambda name: None)  # apt takes its time
    every = interpreter._candidates
    monkeypatch.setattr(interpreter, "_candidates", lambda version: list(every(version))[1:])  # but our own
    return lambda: asked.read_text().splitlines() if asked.exists() else []


def test_a_missing_python_is_fetched_into_our_cache_when_a_stack_is_wanted(fake_uv, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "there")
    stack = replace(load_stack("torch-2.13"), python=VERSION, or_python=())
    with pytest.raises(UnavailableError, match=f"no CPython {VERSION} on this machine"):
        interpreter.on_this_machine(stack)
    assert fake_uv() == [], "a look asks for nothing"
    fitting, found = interpreter.with_interpreter(stack)
    assert fitting == stack and found.version.startswith(VERSION) and found.stdlib.is_dir()
    assert interpreter.on_this_machine(stack)[1] == found == interpreter.with_interpreter(stack)[1]
    assert fake_uv() == [f"python install --no-progress {VERSION} there"]
    assert interpreter.seen(VERSION) == [], "it came by the stack that wanted it, which it makes no other"


def test_where_none_answers_the_reason_is_kept_and_nobody_waits_again(fake_uv, monkeypatch):
    monkeypatch.delenv("UV_PYTHON_INSTALL_MIRROR", raising=False)
    stack = replace(load_stack("torch-2.13"), python=VERSION, or_python=())
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"no portable build can be had: .*connection refused"):
            interpreter.with_interpreter(stack)
    assert len(fake_uv()) == 1
    monkeypatch.setattr(portable, "ASK_AGAIN_S", 0.0)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "there")
    assert interpreter.with_interpreter(stack)[1].version.startswith(VERSION) and len(fake_uv()) == 2


def test_without_uv_or_where_it_must_not_load_nothing_is_asked(fake_uv, monkeypatch):
    monkeypatch.setattr(portable, "run", lambda argv, **_: finished("", returncode=1, stderr="no route to host"))
    monkeypatch.setattr(uv, "fetch", lambda pip, folder: pip("--target", str(folder)) and None)
    with pytest.raises(UnavailableError, match=r"uv, which fetches them, is not to be had: .*no route to host"):
        portable.bring(VERSION)
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(UnavailableError, match=r"^UV_PYTHON_DOWNLOADS=never"):
        portable.bring("3.6")
    assert fake_uv() == []
