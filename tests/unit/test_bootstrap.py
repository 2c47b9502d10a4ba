"""Setting up from an empty clone: the parts that can be tested without doing it all again."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
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
from pathlib import Path

import pytest
from processes import finished

from tare.core import places
from tare.core.errors import UnavailableError, UserError
from tare.core.files import locked
from tare.model.studies.stacks import load_stack
from tare.runtimes import bootstrap, install, programs

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


@pytest.mark.parametrize("name", ["run", "test", "uv"])
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
    assert len({first, second, bootstrap.stamp("run")}) == 3
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


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_first_python_that_fits_is_found(tmp_path, version):
    for name, answers in (("python3.10", "3.10"), (f"python{version}", version), ("python3.14", "3.14")):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$3" = {answers} ]\n')
        program.chmod(0o755)
    assert find_python(tmp_path).stdout == f"python{version}\n"


def find_python(path: Path, *, system: str = "Linux", groups: str = "users") -> subprocess.CompletedProcess[str]:
    """Run find_python.sh where no Python of this machine's is seen."""
    for name, text in {
        "uname": f"[ $1 = -s ] && echo {system} || echo x86_64",
        "id": f"[ $1 = -u ] && echo 7 || echo {groups}",
    }.items():
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    for name in ("apt-get", "sudo"):
        (path / name).symlink_to("/bin/true")
    (path / "sed").symlink_to(shutil.which("sed"))
    script = path / "find_python.sh"
    script.write_text(re.sub(r"/usr/(local/)?bin/python", "/nowhere/python", FIND_PYTHON.read_text()))
    return subprocess.run(
        ["/bin/sh", script], env={"PATH": str(path), "HOME": "/nowhere"}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("candidate", "groups", "says"),
    [
        ("3.13.5-1", "users", "ask an administrator for `apt-get install --yes python3`"),
        ("3.12.3-0ubuntu2", "users sudo", "mend it: sudo apt-get install --yes python3)"),
        ("(none)", "sudo", "sudo apt-get update && sudo apt-get install --yes python3)"),
        ("3.9.2-3", "sudo", "mend it: put a CPython 3.13 on PATH as python3.13, as this distribution"),
        ("3.13.5-1", "users", "or as yourself put a CPython 3.13 on PATH as python3.13)"),
    ],
)
def test_without_a_python_the_line_says_what_this_user_can_do(tmp_path, candidate, groups, says):
    policy = tmp_path / "apt-cache"
    policy.write_text(f"#!/bin/sh\n[ $1 = policy ] && echo '  Candidate: {candidate}'\n")
    policy.chmod(0o755)
    done = find_python(tmp_path, groups=groups)
    assert done.returncode == 3 and done.stdout == ""
    assert "Tare needs CPython 3.11, 3.12 or 3.13, and there is none here" in done.stderr
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_pyenv_is_named_where_it_is(tmp_path):
    for name, text in (("pyenv", ""), ("apt-cache", "[ $1 = policy ] && echo '  Candidate: 3.9.2-3'\n")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    assert "(mend it: pyenv install 3.13, as this distribution" in find_python(tmp_path, groups="users").stderr


def test_a_mac_is_told_what_is_needed_before_anything_else(tmp_path):
    done = find_python(tmp_path, system="Darwin")
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "Tare needs Linux on x86-64, and this is Darwin on x86_64" in done.stderr


@pytest.fixture
def index(monkeypatch):
    """A package index of this machine that has one file, named as the lock's pip; what it serves can be set."""
    name = re.search(r"pip==([\w.]+)", LOCK.read_text())[1]
    served = {"data": b"", "name": f"pip-{name}-py3-none-any.whl"}

    class Index(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            page = f'<a href="../files/{served["name"]}#sha256=0">x</a>'.encode()
            body = page if self.path == "/simple/pip/" else served["data"]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield served
        server.shutdown()


def test_without_ensurepip_the_pip_of_the_lock_is_fetched_and_checked(checkout, index, tmp_path):
    with pytest.raises(UnavailableError, match="has another pip-"):
        bootstrap.fetch_pip(tmp_path)
    index["data"] = b"a wheel"
    lock = checkout / "requirements/run.txt"
    text = lock.read_text()
    start = text.index("\npip==") + 1
    good = hashlib.sha256(b"a wheel").hexdigest()
    lock.write_text(text[:start] + HASH.sub(f"--hash=sha256:{good}", text[start:], count=1))
    assert bootstrap.fetch_pip(tmp_path).read_bytes() == b"a wheel"
    index["name"] = "pip-1.0-py3-none-any.whl"
    with pytest.raises(UnavailableError, match=r"lacks ensurepip, and http://\S+ has no pip-"):
        bootstrap.fetch_pip(tmp_path)


def test_without_ensurepip_and_index_the_package_to_install_is_named(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    version = ".".join(map(str, sys.version_info[:2]))
    with pytest.raises(UnavailableError, match=rf"does not answer .*apt-get install --yes python{version}-venv"):
        bootstrap.fetch_pip(tmp_path)


@pytest.mark.parametrize(
    ("ensurepip", "index", "reason", "installs"),
    [
        (None, None, None, True),
        (None, "https://mirror.example/simple", None, False),
        (object(), None, None, False),
        (None, None, "only root can", False),
    ],
)
def test_root_gets_ensurepip_of_the_distribution_where_no_index_is_named(
    monkeypatch, tmp_path, capsys, ensurepip, index, reason, installs
):
    asked = []
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: ensurepip)
    monkeypatch.setattr(bootstrap, "index_address", lambda: index)
    monkeypatch.setattr(programs, "may_install", lambda: reason)
    monkeypatch.setattr(programs, "candidate", lambda package: "1")
    monkeypatch.setattr(programs, "install_packages", lambda packages: asked.extend(packages) or {})
    monkeypatch.setattr(install, "without_services", contextlib.nullcontext)
    bootstrap.ensure_ensurepip()
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    assert asked == ([package] if installs else [])
    assert (f"installing {package}, for this Python's pip" in capsys.readouterr().out) == installs


def test_the_index_is_that_of_pips_own_settings(monkeypatch, tmp_path):
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\n")
    assert bootstrap.index_address() == "https://mirror.example/simple"


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
    monkeypatch.setattr(bootstrap, "_pip", lambda *_: finished(returncode=1, stderr=NO_NETWORK.format(broken)))
    with pytest.raises(UnavailableError, match="no package index answers") as caught:
        bootstrap.pip_install(Path("lock.txt"))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_set_up_behind_a_proxy_that_refuses_says_so_in_seconds(checkout, monkeypatch):
    """The real pip, asked for uv first."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    for name in ("run", "uv"):
        Path("requirements", f"{name}.txt").write_text(f"no-such-package==1.0 --hash=sha256:{'0' * 64}\n")
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="no package index answers") as caught:
        bootstrap.install_lock("run")
    assert time.monotonic() - began < 30  # 4 s on an idle machine
    assert "through the proxy http://127.0.0.1:9: unset https_proxy, or mend it" in str(caught.value)
    assert "\n" not in str(caught.value)


NO_TORCH = "ERROR: No matching distribution found for torch==2.13.0+cpu\n"


def test_torch_is_looked_for_in_its_own_index_and_nothing_else_is(checkout, monkeypatch):
    calls = []

    def pip(*arguments):
        calls.append(arguments)
        lacks = len(calls) == 1 or (not answers and bootstrap.TORCH_INDEX in arguments)
        return finished(returncode=int(lacks), stderr=NO_TORCH if lacks else "")

    monkeypatch.setattr(bootstrap, "_pip", pip)
    (checkout / ".venv").mkdir()
    answers = True
    bootstrap.pip_install(Path("requirements/test.txt"))
    alone = (checkout / ".venv/torch.txt").read_text()
    assert alone.startswith("torch==") and alone.count("==") == 1
    assert [bootstrap.TORCH_INDEX in call for call in calls] == [False, True, False] and calls[0] == calls[2]
    calls.clear()
    answers = False
    with pytest.raises(
        UnavailableError, match=r"torch==2\S+ for CPython 3\.\d+\.\d+ is neither where pip looks nor at"
    ) as one:
        bootstrap.pip_install(Path("requirements/test.txt"))
    assert "PIP_FIND_LINKS" in str(one.value) and "\n" not in str(one.value)


def test_a_full_disk_while_pip_installs_is_one_line(monkeypatch):
    full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    monkeypatch.setattr(bootstrap, "_pip", lambda *_: finished(returncode=1, stderr=full))
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


@pytest.mark.parametrize("place", ["checkout", "cache", "temporary"])
def test_a_disk_without_room_is_said_before_anything_is_done(checkout, monkeypatch, tmp_path, capsys, place):
    full = {"checkout": checkout, "cache": tmp_path / "cache", "temporary": Path(bootstrap.tempfile.gettempdir())}[
        place
    ]
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    space = shutil.disk_usage(checkout)
    usage = lambda path: space._replace(free=9**3 if path == full.resolve() else 1 << 40)  # noqa: E731
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", usage)
    monkeypatch.setattr(bootstrap, "start_runtimes", lambda: pytest.fail("it began"))
    assert bootstrap.main(["run"]) == 3
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and str(full) in line and "0.0 GB free" in line


@pytest.mark.parametrize("place", ["the checkout", "TARE_CACHE", "TMPDIR"])
def test_a_place_that_can_not_be_written_is_said_before_anything_is_done(
    checkout, monkeypatch, tmp_path, capsys, place
):
    """As a checkout on a file system that is mounted to be read."""
    places = {"the checkout": checkout, "TARE_CACHE": tmp_path / "cache", "TMPDIR": tmp_path / "temporary"}
    for folder in places.values():
        folder.mkdir(exist_ok=True)
    monkeypatch.setenv("TARE_CACHE", str(places["TARE_CACHE"]))
    monkeypatch.setattr(bootstrap.tempfile, "gettempdir", lambda: str(places["TMPDIR"]))
    allowed = os.access
    monkeypatch.setattr(bootstrap.os, "access", lambda path, how: path != places[place] and allowed(path, how))
    monkeypatch.setattr(bootstrap, "start_runtimes", lambda: pytest.fail("something was begun"))
    assert bootstrap.main(["run"]) == 3
    said = capsys.readouterr().err
    assert said == f"tare: {places[place]} can't be written (mend it: move {place} to a folder that can)\n"
    assert not (checkout / ".venv").exists()


def test_a_second_set_up_beside_the_first_waits_and_names_it(checkout, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))

    def its_turn(_):
        raise UserError("it has its turn")

    monkeypatch.setattr(bootstrap, "check_room", its_turn)
    first = contextlib.ExitStack()
    first.enter_context(locked(bootstrap.lock_path(), waiting_for="nobody"))
    release = threading.Timer(0.3, first.close)
    release.start()
    assert bootstrap.main(["run"]) == 2
    release.join()
    waits, ends = capsys.readouterr().err.splitlines()
    assert waits.startswith(
        f"waiting for another process: another set-up of this checkout (process {os.getpid()}, since "
    )
    assert ends == "tare: it has its turn"


def test_what_makes_a_tree_is_installed_before_the_rest_and_begins_then(checkout, monkeypatch):
    (checkout / ".venv").mkdir()
    done = []

    def install(path, *options):
        done.append(set(bootstrap.read_lock(path)))

    monkeypatch.setattr(bootstrap, "pip_install", install)
    monkeypatch.setattr(bootstrap.uv, "told", lambda _: None)
    monkeypatch.setattr(bootstrap, "_asked", lambda *_: finished(returncode=0, stderr=""))
    bootstrap.install_lock("run", lambda: done.append("ahead"))
    bootstrap.install_lock("test", lambda: done.append("ahead"))
    run, test = (set(bootstrap.read_lock(Path("requirements", f"{name}.txt"))) for name in ("run", "test"))
    first = {*bootstrap.FIRST, *bootstrap.EARLY}
    assert first <= run
    assert done[:3] == [first, "ahead", run] and done[-1] == test and done.count("ahead") == 1


@pytest.mark.parametrize("locale", ["C", "POSIX", "xx_XX.UTF-8", "C.UTF-8"])
def test_an_environment_in_a_folder_with_an_umlaut_starts_in_every_locale(tmp_path, monkeypatch, locale):
    """Its own packages come first, and the checkout is found, ahead of what PYTHONPATH names."""
    folder, foreign = tmp_path / "prüf stand", tmp_path / "foreign"
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
    environment = {"LC_ALL": locale, "PYTHONPATH": str(foreign), "PYTHONIOENCODING": "utf-8"}
    argv = [str(folder / ".venv/bin/python"), "-c", code]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, check=False)
    both, random, alone, *paths = done.stdout.decode().splitlines()
    assert (both, alone) == (str(packages / "both.py"), str(foreign / "alone.py")), done.stderr
    assert not random.startswith(str(tmp_path))
    assert str(folder) in paths
    written = {path: path.stat().st_mtime_ns for path in packages.glob("*.pth")}
    bootstrap.write_path_files()
    assert written == {path: path.stat().st_mtime_ns for path in packages.glob("*.pth")}


def test_packages_of_a_foreign_path_come_behind_our_own(monkeypatch, tmp_path):
    foreign = tmp_path / "foreign"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, foreign))))
    monkeypatch.setattr(sys, "path", ["", str(ROOT), str(foreign), "/usr/lib/python3"])
    places.own_first()
    assert sys.path == ["", str(ROOT), "/usr/lib/python3", str(foreign)]


def test_make_hands_no_foreign_packages_on(checkout):
    with (checkout / "Makefile").open("a") as file:
        file.write('told:\n\t@echo "$${PYTHONPATH-} $${PYTHONHOME-}"\n')
    variables = {**os.environ, "PYTHONPATH": "/foreign", "PYTHONHOME": "/another"}
    told = subprocess.run(["make", "told"], env=variables, capture_output=True, text=True, check=True).stdout
    assert told == " \n"


def test_only_a_study_that_is_named_is_begun_ahead(checkout, monkeypatch):
    asked = []
    monkeypatch.setattr(bootstrap, "start", lambda argv, **how: asked.append((argv, how)))
    monkeypatch.delenv(bootstrap.AHEAD, raising=False)
    assert bootstrap.start_ahead() == [] and asked == []
    monkeypatch.setenv(bootstrap.AHEAD, "config/a study.yaml")
    assert len(bootstrap.start_ahead()) == 1
    [(argv, how)] = asked
    assert argv == [".venv/bin/python", "-m", "tare.images.ahead", "config/a study.yaml"]
    assert how["stdout"] is how["stderr"] is subprocess.DEVNULL


def test_what_was_begun_ahead_is_waited_for_or_ended():
    quick = subprocess.Popen(["true"], start_new_session=True)
    bootstrap.finish_ahead([quick])
    slow = subprocess.Popen(["sleep", "987127"], start_new_session=True)
    bootstrap.end_ahead([quick, slow])
    assert (quick.returncode, slow.returncode) == (0, -signal.SIGTERM)


def test_make_report_alone_begins_ahead(checkout):
    (checkout / "config").mkdir()
    (checkout / "config/mine.yaml").write_text("study: mine\n")
    told = "setup:\n\t@echo ahead: $${TARE_AHEAD:-}; exit 1\n"
    text = (checkout / "Makefile").read_text()
    begin, end = text.index("setup: ##"), text.index("setup-test:")
    (checkout / "Makefile").write_text(text[:begin] + told + text[end:])
    python = f"PYTHON={sys.executable}"  # the copy has nothing that looks for one
    assert make("report", "STUDY=config/mine.yaml", python).stdout == "ahead: config/mine.yaml\n"
    assert make("doctor", python).stdout == "ahead:\n"


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
        assert setup.returncode == 130 and says == "tare: interrupted; the next run carries on\n"


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


def test_make_clean_keeps_the_cache(checkout, tmp_path):
    for path in ("results/.gitkeep", "results/report/gone.html", ".venv/gone"):
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text("x")
    cache = tmp_path / "cache"
    cache.mkdir()
    assert make("clean", TARE_CACHE=str(cache)).returncode == 0
    assert sorted(p.relative_to(checkout).as_posix() for p in (checkout / "results").rglob("*") if p.is_file()) == [
        "results/.gitkeep",
    ]
    assert not (checkout / ".venv").exists() and cache.exists()
    asked = subprocess.run(
        ["make", "clean-cache"], env={**os.environ, "TARE_CACHE": str(cache)}, input="n\n", text=True, timeout=60
    )
    assert asked.returncode == 0 and cache.exists(), "the cache was deleted although the answer was no"
