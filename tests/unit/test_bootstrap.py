"""Setting up from an empty clone: the parts that can be tested without doing it all again."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest
from processes import finished

from tare.core import places
from tare.core.errors import UnavailableError, UserError
from tare.core.files import locked
from tare.model.studies.stacks import load_stack
from tare.runtimes import bootstrap

ROOT = Path(__file__).resolve().parents[2]
LOCK, TEST_LOCK = ROOT / "requirements/run.txt", ROOT / "requirements/test.txt"
FIND_PYTHON = ROOT / "tare/runtimes/find_python.sh"
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


@pytest.mark.parametrize("name", ["run", "test", "uv", "sbom", "docs", "crate"])
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


def test_the_workflow_needs_no_framework_of_its_own():
    """What is measured runs from its stack: where a build of torch is missing, a study on another stack runs."""
    frameworks = {"torch", "torchvision", "tokenizers", "tensorflow", "jax"}
    assert not frameworks & set(bootstrap.read_lock(LOCK))
    harness = [path for path in (ROOT / "tare").rglob("*.py") if ROOT / "tare/worker" not in path.parents]
    files = [*harness, *(ROOT / "envs").glob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    imports = re.compile(rf"^[ \"]*(?:import|from) +({'|'.join(frameworks)})\b", re.MULTILINE)
    named = {path.name for path in files if imports.search(path.read_text())}
    assert named == {"profiler_checks.py"}, "what a stack's interpreter is told"


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
    third = bootstrap.stamp("run")
    (checkout / "requirements/uv.txt").write_text("uv==0\n")
    assert len({first, second, third, bootstrap.stamp("run")}) == 4
    assert bootstrap.read_stamps() == [], "there is no .venv, so nothing is installed"


def test_another_python_is_one_clear_line(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "PYTHONS", ((3, 99),))
    assert bootstrap.main(["run"]) == UnavailableError.exit_code
    line = capsys.readouterr().err
    assert "Tare needs CPython 3.11, 3.12 or 3.13, and this is" in line and line.count("\n") == 1


def test_another_system_is_one_clear_line(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: "arm64")
    assert bootstrap.main(["run"]) == UnavailableError.exit_code
    assert capsys.readouterr().err == "tare: Tare needs Linux on x86-64, and this is Darwin on arm64\n"


def test_the_pythons_are_those_of_the_project_the_stack_and_the_page():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert project == f">={'.'.join(map(str, bootstrap.PYTHONS[0]))},<3.{bootstrap.PYTHONS[-1][1] + 1}"
    versions = [".".join(map(str, version)) for version in bootstrap.PYTHONS]
    stack = load_stack("torch-2.13", "cpu")
    assert [stack.python, *stack.or_python] == versions
    torch = next(one for one in stack.requirements if one.name == "torch")
    assert len(torch.hashes) == len(versions), "a build of torch for each of them"
    assert set(torch.hashes) == set(re.findall(r"sha256:(\w+)", bootstrap.read_lock(TEST_LOCK)["torch"]))
    assert f"for version in {' '.join(versions)};" in FIND_PYTHON.read_text()


def find_python(path: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run find_python.sh where these programs alone are seen; each is told Python's code by `-c`."""
    for name, text in programs.items():
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    script = path / "find_python.sh"
    script.write_text(re.sub(r"/usr/(local/)?bin/python", "/nowhere/python", FIND_PYTHON.read_text()))
    return subprocess.run(["/bin/sh", script], env={"PATH": str(path)}, capture_output=True, text=True, timeout=60)


def answering(version: str, ensurepip: bool = True) -> str:
    """A program that fits where the code asks for a version, and imports ensurepip or does not."""
    lacks = "" if ensurepip else "case $2 in *ensurepip*) exit 1 ;; esac; "
    return f"{lacks}case $2 in *\\'{version}\\'*) exit 0 ;; esac; exit 1"


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_first_python_that_fits_is_found(tmp_path, version):
    names = {f"python{one}": answering(one) for one in ("3.10", version, "3.14")}
    assert find_python(tmp_path, **names).stdout == f"python{version}\n"


def test_a_python_that_makes_environments_comes_before_an_older_one_that_does_not(tmp_path):
    found = find_python(tmp_path, **{"python3.11": answering("3.11", False), "python3.12": answering("3.12")})
    assert found.stdout == "python3.12\n"
    (tmp_path / "python3.12").unlink()
    assert find_python(tmp_path, **{"python3.11": answering("3.11", False)}).stdout == "python3.11\n"


def test_our_own_python_is_one_that_fits():
    done = subprocess.run(["/bin/sh", FIND_PYTHON], capture_output=True, text=True, check=True)
    version = subprocess.run([done.stdout.strip(), "--version"], capture_output=True, text=True, check=True).stdout
    assert re.match(r"Python 3\.1[123]\.", version)


def test_without_a_python_one_line_says_what_to_install(tmp_path):
    done = find_python(tmp_path)
    assert done.returncode == 3 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "Tare needs a CPython 3.11, 3.12 or 3.13 on Linux, and found none" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr


@pytest.mark.parametrize("comes", [True, False])
def test_a_python_without_ensurepip_gets_its_package_or_the_line_names_it(monkeypatch, comes):
    there, asked = [], []

    def install_for(purpose, packages, find):
        asked.append(packages)
        there.extend(["ensurepip"] * comes)

    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: name if name in there else None)
    monkeypatch.setattr(bootstrap, "install_for", install_for)
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    says = rf"^this Python lacks ensurepip \(to fix it: .*{re.escape(package)}"
    with contextlib.nullcontext() if comes else pytest.raises(UnavailableError, match=says):
        bootstrap.ensure_ensurepip()
    assert asked == [{"ensurepip": package}]


NO_NETWORK = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) "
    "after connection broken by '{}': /simple/six/\n"
    "ERROR: Could not find a version that satisfies the requirement six==1.17.0 (from versions: none)\n"
    "ERROR: No matching distribution found for six==1.17.0\n"
)


@pytest.mark.parametrize(
    ("broken", "proxy", "says"),
    [
        (
            "NewConnectionError('<x>: Failed: [Errno -2] Name or service not known')",
            "",
            "Name or service not known)",
        ),
        (
            "ProxyError('Cannot connect to proxy.', x)",
            "http://proxy:3128",
            "through the proxy http://proxy:3128: unset",
        ),
    ],
)
def test_pip_without_a_network_is_one_line_that_names_the_proxy(monkeypatch, broken, proxy, says):
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setattr(bootstrap, "asked", lambda *_: finished(returncode=1, stderr=NO_NETWORK.format(broken)))
    with pytest.raises(UnavailableError, match="no package index answers") as caught:
        bootstrap.pip_install(Path("lock.txt"))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_set_up_behind_a_proxy_that_refuses_says_so_in_seconds(checkout, monkeypatch):
    """The real pip."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    venv.create(checkout / ".venv", with_pip=True, symlinks=True)  # ours has what is to be installed
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="no package index answers") as caught:
        bootstrap.install_lock("run")
    assert time.monotonic() - began < 30  # 4 s on an idle machine
    assert "through the proxy http://127.0.0.1:9: unset https_proxy, or fix it" in str(caught.value)
    assert "\n" not in str(caught.value)


NO_TORCH = "ERROR: No matching distribution found for torch==2.13.0+cpu\n"


def test_torch_is_looked_for_in_its_own_index_and_nothing_else_is(checkout, monkeypatch):
    calls = []

    def pip(command):
        calls.append(command)
        lacks = len(calls) == 1 or (not answers and bootstrap.TORCH_INDEX in command)
        return finished(returncode=int(lacks), stderr=NO_TORCH if lacks else "")

    monkeypatch.setattr(bootstrap, "asked", pip)
    (checkout / ".venv").mkdir()
    answers = True
    bootstrap.pip_install(Path("requirements/test.txt"))
    alone = (checkout / ".venv/torch.txt").read_text()
    assert alone.startswith("torch==") and alone.count("==") == 1
    assert [bootstrap.TORCH_INDEX in call for call in calls] == [False, True, False] and calls[0] == calls[2]
    calls.clear()
    answers = False
    with pytest.raises(
        UnavailableError, match=r"could not install requirements/test.txt: No matching .* torch==2"
    ) as one:
        bootstrap.pip_install(Path("requirements/test.txt"))
    assert "PIP_FIND_LINKS" in str(one.value) and "\n" not in str(one.value)


def test_a_full_disk_while_pip_installs_is_one_line(monkeypatch):
    full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    monkeypatch.setattr(bootstrap, "asked", lambda *_: finished(returncode=1, stderr=full))
    says = rf"{re.escape(str(Path('.venv').resolve()))} or \S+ is full: program found no space left: free some"
    with pytest.raises(UnavailableError, match=says) as caught:
        bootstrap.pip_install(Path("lock.txt"))
    assert "\n" not in str(caught.value)


def test_a_virtual_environment_of_another_python_is_replaced(checkout, monkeypatch):
    program = checkout / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 3.10.0\n")
    program.chmod(0o755)
    bootstrap.make_venv()
    assert (checkout / ".venv/pyvenv.cfg").exists()


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


def test_uv_comes_by_its_hash_installs_by_hash_and_leaves_what_it_can_not_do_to_pip(checkout):
    lock = bootstrap.read_lock(Path("requirements/run.txt"))
    first = "".join(lock[name] for name in bootstrap.FIRST)
    run = Path("requirements/run.txt")
    bootstrap.make_venv()
    run.write_text(first + lock["six"] + lock["connection-pool"])
    bootstrap.install_lock("run")
    for name in ("six", "connection_pool"):  # of which the latter has no wheel
        (found,) = bootstrap.VENV.glob(f"lib/python*/site-packages/{name}-*.dist-info")
        assert "uv" in (found / "INSTALLER").read_text()
    assert not (bootstrap.VENV / "uv-cache").exists()
    run.write_text(first + HASH.sub("--hash=sha256:" + "0" * 64, lock["idna"]))
    with pytest.raises(UnavailableError, match=r"pip could not install requirements/run\.txt"):
        bootstrap.install_lock("run")
    assert not list(bootstrap.VENV.glob("lib/python*/site-packages/idna*"))


def test_what_pip_is_told_uv_is_told_and_the_environment_counts_last():
    settings = [
        ":env:.index-url='https://near.example/simple'",
        "global.extra-index-url='https://a.example/simple\\nfile:///b'",
        "global.find-links='/c /d'",
        "global.index-url='https://far.example/simple'",
        "global.timeout='20'",
        "install.trusted-host='near.example'",
        ":env:.cert='/etc/a.crt'",
    ]
    assert bootstrap.uv_variables("\n".join(settings)) == {
        "UV_DEFAULT_INDEX": "https://near.example/simple",
        "UV_INDEX": "https://a.example/simple file:///b",
        "UV_FIND_LINKS": "/c,/d",
        "UV_INSECURE_HOST": "near.example",
        "SSL_CERT_FILE": "/etc/a.crt",
    }
    assert bootstrap.uv_variables("") == {}


@pytest.mark.parametrize(
    "line", ["global.no-index='true'", ":env:.no-binary='six'", "global.proxy='http://p:3128'"]
)
def test_with_a_setting_that_uv_can_not_be_told_pip_installs(monkeypatch, tmp_path, line):
    monkeypatch.chdir(tmp_path)
    assert bootstrap.uv_variables(line) is None
    monkeypatch.setattr(bootstrap, "asked", lambda command: finished(line))
    assert bootstrap.uv_install(Path("a.txt")) is False


def test_a_dry_run_prints_the_commands_and_runs_none(checkout, monkeypatch, capsys):
    monkeypatch.setenv("RUNTIMES", "system")
    for name in ("run", "asked", "locked"):
        monkeypatch.setattr(bootstrap, name, lambda *_, name=name, **__: pytest.fail(f"{name} was called"))
    assert bootstrap.main(["test", "--dry-run"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    begins = [" ".join(bootstrap.VENV_COMMAND), ".venv/bin/python -m pip", ".venv/bin/uv pip install"]
    begins += [".venv/bin/python -m pip"] * 2
    assert [line.startswith(begin) for line, begin in zip(lines[-5:], begins, strict=True)] == [True] * 5
    assert lines[-3].endswith("--require-hashes --requirement requirements/run.txt")
    assert lines[-2].endswith("--editable .") and lines[-1].endswith("--requirement requirements/test.txt")
    assert not (checkout / ".venv").exists()


def test_a_second_set_up_beside_the_first_waits_and_names_it(checkout, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))

    def its_turn(_):
        raise UserError("it has its turn")

    monkeypatch.setattr(bootstrap, "install", its_turn)
    holds = threading.Event()

    def hold():
        with locked(bootstrap.lock_path(), waiting_for="nobody"):
            holds.set()
            time.sleep(0.3)

    first = threading.Thread(target=hold)
    first.start()
    assert holds.wait(30)
    assert bootstrap.main(["run"]) == 2
    first.join()
    waits, ends = capsys.readouterr().err.splitlines()
    assert waits.startswith(
        f"waiting for another process: another set-up of this checkout (process {os.getpid()}, since "
    )
    assert ends == "tare: it has its turn"


@pytest.mark.parametrize("locale", ["C", "POSIX", "xx_XX.UTF-8", "C.UTF-8"])
def test_an_environment_in_a_folder_with_an_umlaut_starts_in_every_locale(tmp_path, monkeypatch, locale):
    """Its own packages come first, ahead of PYTHONPATH but for another checkout; its own is found."""
    folder, foreign, other = tmp_path / "prüf stand", tmp_path / "foreign", tmp_path / "other"
    (other / "tare").mkdir(parents=True)
    (other / "tare/__main__.py").write_text("")
    (folder / "tare").mkdir(parents=True)
    foreign.mkdir()
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    (packages,) = folder.glob(".venv/lib/python3*/site-packages")
    (packages / "__editable__.tare-0.1.0.pth").write_text(f"{folder}\n", encoding="utf-8")
    (packages / "both.py").write_text("")
    for name in ("both", "random", "alone"):
        (foreign / f"{name}.py").write_text("")
    monkeypatch.chdir(folder)
    bootstrap.write_path_files()
    code = "import both, random, alone, sys\n"
    code += "print(both.__file__, random.__file__, alone.__file__, *sys.path, sep=chr(10))"
    named = f"{foreign}{os.pathsep}{other}"
    environment = {"LC_ALL": locale, "PYTHONPATH": named, "PYTHONIOENCODING": "utf-8"}
    argv = [str(folder / ".venv/bin/python"), "-c", code]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, check=False)
    both, random, alone, *paths = done.stdout.decode().splitlines()
    assert (both, alone) == (str(packages / "both.py"), str(foreign / "alone.py")), done.stderr
    assert not random.startswith(str(tmp_path))
    assert paths.index(str(other)) < paths.index(str(packages)) < paths.index(str(foreign))
    assert str(folder) in paths
    written = {path: path.stat().st_mtime_ns for path in packages.glob("*.pth")}
    bootstrap.write_path_files()
    assert written == {path: path.stat().st_mtime_ns for path in packages.glob("*.pth")}


def test_packages_of_a_foreign_path_come_behind_our_own(monkeypatch, tmp_path):
    foreign, carried = tmp_path / "foreign", tmp_path / "cache/reference/packages"
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, carried, foreign))))
    monkeypatch.setattr(sys, "path", ["", str(ROOT), str(carried), str(foreign), "/usr/lib/python3"])
    places.own_first()
    assert sys.path == ["", str(ROOT), str(carried), "/usr/lib/python3", str(foreign)]


def test_make_hands_no_foreign_packages_on_but_to_what_needs_no_environment(checkout):
    with (checkout / "Makefile").open("a") as file:
        file.write('told:\n\t@echo "$${PYTHONPATH-} $${PYTHONHOME-}"\n')
    variables = {**os.environ, "PYTHONPATH": "/foreign", "PYTHONHOME": "/another"}
    told = subprocess.run(["make", "told"], env=variables, capture_output=True, text=True, check=True).stdout
    assert told == " \n"
    words = ["make", "reference", "REFERENCE_PYTHON=echo $$PYTHONPATH"]
    told = subprocess.run(words, env=variables, capture_output=True, text=True, check=True).stdout
    assert told.startswith("/foreign -m tare reference")


def test_make_report_of_a_study_file_that_there_is_not_sets_nothing_up(checkout):
    (checkout / "config").mkdir()
    (checkout / "config/mine.yaml").write_text("study: mine\n")
    for word in ("STUDY", "CONFIG"):
        done = make("report", f"{word}=config/mine.yml", f"PYTHON={sys.executable}")
        assert done.returncode == 2 and done.stdout == "" and not (checkout / ".venv").exists()
        line = done.stderr.splitlines()[0]
        assert line == "tare: there is no study file config/mine.yml: there are config/mine.yaml"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_set_up_that_is_ended_leaves_no_process(checkout, monkeypatch, tmp_path, end):
    program = checkout / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\n[ $1 = -c ] && echo '{sys.version}' && exit\necho $$ > '{tmp_path}/pip'\nsleep 987126\n"
    )
    program.chmod(0o755)
    begin = (
        f"import signal, sys\nsignal.signal({end.value}, signal.default_int_handler)\n"
        if end != signal.SIGKILL
        else ""
    )
    code = f"{begin}import sys; from tare.runtimes import bootstrap; sys.exit(bootstrap.main(['run']))"
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TARE_CACHE": str(tmp_path / "cache"), "RUNTIMES": "system"}
    setup = subprocess.Popen([sys.executable, "-c", code], env=variables, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not ((tmp_path / "pip").exists() and (tmp_path / "pip").read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    child = int((tmp_path / "pip").read_text())
    setup.send_signal(end)
    says = setup.communicate(timeout=60)[1]
    while Path(f"/proc/{child}/cmdline").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists()
    if end != signal.SIGKILL:
        assert setup.returncode == 130 and says == "tare: interrupted; the next run continues\n"


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )


def test_make_help_names_every_public_target(checkout):
    done = make("help")
    assert done.returncode == 0
    for target in ("report", "test", "test-quick", "smoke", "lock", "clean", "clean-runtimes", "doctor"):
        assert re.search(rf"^  make {target} +\S", done.stdout, flags=re.MULTILINE), target


def test_make_without_a_fitting_python_says_what_to_install(checkout):
    script = checkout / "tare/runtimes/find_python.sh"
    script.parent.mkdir(parents=True)
    script.write_text("echo 'tare: none here' >&2\nexit 3\n")
    done = make("report")
    assert done.returncode != 0
    assert done.stderr.startswith("tare: none here\n")


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


def test_a_place_that_can_not_be_written_is_one_line(checkout, monkeypatch, tmp_path, capsys):
    """As a checkout on a file system that is mounted to be read."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNTIMES", "system")
    said = "Error: [Errno 30] Read-only file system: '/checkout/.venv'"
    monkeypatch.setattr(bootstrap, "VENV_COMMAND", ["/bin/sh", "-c", f'echo "{said}" >&2; exit 1'])
    assert bootstrap.main(["run"]) == 3
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and line.startswith("tare: ") and said in line


# --- a checkout that can only be read


def without_make(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables without those by which a make tells another that it runs below it, as in `make test`."""
    return {name: value for name, value in variables.items() if not name.startswith("MAKE") and name != "MFLAGS"}


def make_where(read_only: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """make in the working directory, with a folder on a file system that is mounted to be read."""
    script = 'mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 97'
    unshare = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    done = subprocess.run(
        [*unshare, "sh", "-c", script + '; cd "$PWD"; exec make "$@"', str(read_only), *arguments],
        env={**without_make(os.environ), **variables},
        input="y\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 97 or done.stderr.startswith("unshare"):
        pytest.skip(f"no right to mounts of one's own: {done.stderr.strip()}")
    return done


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    return line


@pytest.mark.parametrize(
    ("read_only", "named"),
    [(".", ".venv"), ("results", "results/report"), ("results/report/my pages", "results/report")],
)
def test_make_clean_removes_nothing_where_a_part_can_not_be_removed(checkout, read_only, named):
    for path in ("results/reference/kept.json", "results/report/my pages/here.html", ".venv/here"):
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text("x")
    there = files_below(checkout)
    done = make_where(checkout / read_only, "clean")
    assert done.returncode == 2 and done.stdout == "" and files_below(checkout) == there
    assert only_line(done) == (
        f"tare: nothing was removed: {checkout}/{named} can't be removed by this user: its folder, or one in it, "
        "is read-only or another's; mount it to be written, or ask its owner"
    )
    assert make("clean").returncode == 0 and not (checkout / ".venv").exists()
    assert make_where(checkout / read_only.partition("/")[0], "clean").returncode == 0, "there is nothing to remove"


def test_make_clean_cache_removes_nothing_of_a_cache_that_can_only_be_read(checkout, tmp_path):
    cache = tmp_path / "my cache"
    (cache / "code").mkdir(parents=True)
    done = make_where(cache, "clean-cache", TARE_CACHE=str(cache))
    assert done.returncode == 2 and (cache / "code").exists()
    assert only_line(done).startswith(f"tare: nothing was removed: {cache} can't be removed by this user: ")
    done = make_where(checkout, "clean-cache", TARE_CACHE=str(cache))
    assert done.returncode == 0 and not cache.exists(), "the cache of such a checkout can be"


@pytest.mark.parametrize("target", ["report", "test", "test-quick", "doctor"])
def test_in_a_checkout_that_can_only_be_read_nothing_is_set_up(checkout, tmp_path, target):
    (checkout / "config").mkdir()
    (checkout / "config/config.yaml").write_text("study: mine\n")
    (checkout / "tare").symlink_to(ROOT / "tare")
    words = (target, f"PYTHON={sys.executable}")
    done = make_where(checkout, *words, TARE_CACHE=str(tmp_path / "cache"), RUNTIMES="system")
    assert done.returncode == 2 and done.stdout == ""
    assert only_line(done) == (
        f"tare: {checkout} is not writable, but the Python environment must be made there: copy the checkout to "
        "a writable folder, and run make there"
    )


def test_a_checkout_that_can_only_be_read_is_told_before_anything_is_installed(checkout, monkeypatch, capsys):
    """But where all is set up nothing has to be written."""
    installed = []
    monkeypatch.setattr(bootstrap, "install", installed.append)
    monkeypatch.setattr(bootstrap.os, "access", lambda place, mode: False)
    assert bootstrap.main(["run"]) == 2 and installed == []
    assert capsys.readouterr().err.startswith(f"tare: {checkout} is not writable, but ")
    bootstrap.PYTHON.parent.mkdir(parents=True)
    bootstrap.PYTHON.touch()
    bootstrap.STAMPS.write_text(f"{bootstrap.stamp('run')}\n")
    assert bootstrap.main(["run"]) == 0 and installed == ["run"]
    assert bootstrap.main(["test"]) == 2
    assert capsys.readouterr().err.startswith(f"tare: {checkout}/.venv is not writable, but ")
