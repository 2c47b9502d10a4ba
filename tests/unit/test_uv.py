"""uv beside pip: it is told what pip is told, installs by hash; what it can not do pip is asked for."""

import re
import sys
from pathlib import Path

import pytest

from tare.core.errors import UnavailableError
from tare.runtimes import bootstrap, uv


def test_what_pip_is_told_uv_is_told_the_nearest_last(tmp_path):
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.mkdir()
    settings = [
        f"global.extra-index-url='https://a.example/simple file://{missing} file://{there}'",
        f"global.find-links='{missing} {there}'",
        "global.index-url='https://far.example/simple'",
        "global.timeout='20'",
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


@pytest.mark.parametrize("line", ["global.no-index='true'", ":env:.constraint='a.txt'", "install.index-url=broken"])
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
