"""Conditions of the machine, as a table: each command works as without, or ends with one line and a status.

A condition is put in place in a fork of this process, where everything is imported already; what concerns the start
of Python itself has a process of its own. Of the doctor's checks those are made that start and ask nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tare.analysis.plans.expected
import tare.analysis.plans.forecast
import tare.literature.claims  # noqa: F401 (what commands import is imported before the forks)
from tare.cli import doctor
from tare.cli.main import main
from tare.core.errors import explain_defect
from tare.core.files import project_root
from tare.machine import profiler_checks

ROOT = project_root()
LIMIT_S = 60
NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
STUDY = """
study: odd
environments: [host]
stacks: []
papers: []
workloads: {mnist_cnn: {batch: 64}, sentiment_rnn: }
scenarios: [single]
"""
LIGHT = (
    ("profilers", "perf counters", profiler_checks.cpu_counters),
    ("profilers", "DRAM counters", profiler_checks.dram_counters),
)
COMMANDS = ("plan", "doctor", "read-log", "help")


class Place:
    """A folder with a study and a profiler's file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.study, self.log = folder, folder / "odd.yaml", folder / "nvprof_summary.csv"
        folder.mkdir()
        self.study.write_text(STUDY)
        shutil.copy(ROOT / "tests/data/nvprof_summary.csv", self.log)

    def argv(self, command: str) -> list[str]:
        return {
            "plan": ["plan", "--study", str(self.study)],
            "doctor": ["doctor"],
            "read-log": ["read-log", str(self.log), "--out", str(self.folder / "made/table.csv")],
            "help": ["--help"],
        }[command]

    def without_paths(self, text: bytes) -> bytes:
        return text.replace(os.fsencode(self.folder), b"").replace(b"  (examined in 1 s)", b"  (examined in 0 s)")


@dataclass(frozen=True)
class Said:
    status: int
    out: bytes
    err: bytes


@dataclass(frozen=True)
class Condition:
    """What is put in place, and what follows for which commands; the others work as without.

    Attributes:
        prepare: puts it in place.
        says: by command, a pattern of the one line on standard error.
        silent: what is printed is lost, and nothing else.
        status: of a command that says something, or could.
    """

    prepare: Callable[[Place], object]
    says: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False
    status: int = 2


def in_fork(place: Place, command: str, prepare: Callable[[Place], object] = lambda place: None) -> Said:
    """Run a command in a fork of this process, in which a condition has been put in place before."""
    pipes = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            for number, (_, writer) in enumerate(pipes, start=1):
                os.dup2(writer, number)
            os.closerange(3, 1024)
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            for number, name in enumerate(("stdin", "stdout", "stderr")):
                stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)
            os.environ["TARE_CACHE"] = str(place.folder / "cache")
            os.chdir(ROOT)
            doctor._tasks = lambda: [(section, name, doctor._one(check)) for section, name, check in LIGHT]
            prepare(place)
            for number, name in enumerate(("stdin", "stdout", "stderr")):
                try:
                    os.fstat(number)
                except OSError:
                    setattr(sys, name, None)  # as Python starts then
            status = main(place.argv(command))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            with contextlib.suppress(BaseException):
                os.write(2, traceback.format_exc().encode(errors="replace"))
            status = 98
        os._exit(status)
    for _, writer in pipes:
        os.close(writer)
    deadline = time.monotonic() + LIMIT_S
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    texts = []
    for reader, _ in pipes:
        with os.fdopen(reader, "rb") as file:  # less than a pipe holds
            texts.append(file.read())
    return Said(os.waitstatus_to_exitcode(ended[1]), *texts)


# --- what is put in place


def closed(*numbers):
    return lambda place: [os.close(number) for number in numbers]


def leads(path, *numbers, flags=os.O_WRONLY):
    def prepare(place):
        opened = os.open(path, flags)
        for number in numbers:
            os.dup2(opened, number)
        os.close(opened)

    return prepare


def reader_gone(*numbers):
    def prepare(place):
        reader, writer = os.pipe()
        os.close(reader)
        for number in numbers:
            os.dup2(writer, number)
        os.close(writer)

    return prepare


def variables(**values):
    def prepare(place):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value.format(folder=place.folder)

    return prepare


def all_of(*steps):
    return lambda place: [step(place) for step in steps]


def limit(kind, value):
    return lambda place: resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def no_further_file(place):
    """Commands are imported anew, which takes a file."""
    for name in [name for name in sys.modules if name.startswith("tare.cli.")]:
        del sys.modules[name]
        delattr(sys.modules["tare.cli"], name.split(".")[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def go(name):
    def prepare(place):
        folder = place.folder / os.fsdecode(name)
        folder.mkdir(parents=True)
        os.chdir(folder)

    return prepare


def removed_folder(place):
    go(b"gone")(place)
    (place.folder / "gone").rmdir()


def no_such_user(place):
    os.environ.pop("HOME", None)

    def unknown(uid):
        raise KeyError(uid)

    pwd.getpwuid = unknown


def cache_at(text):
    def prepare(place):
        (place.folder / "file").write_text("")
        (place.folder / "loop").symlink_to(place.folder / "loop")
        os.environ["TARE_CACHE"] = text.format(folder=place.folder)

    return prepare


def mounts(*commands):
    """In mounts of its own; a test without the right to it is left out."""

    def prepare(place):
        for name in ("cache", "made"):
            (place.folder / name).mkdir()
        if ctypes.CDLL(None).unshare(NEW_MOUNTS):
            os._exit(NOT_ALLOWED)
        for command in ("mount --make-rprivate /", *commands):
            words = [word.format(folder=place.folder) for word in command.split()]
            if subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode:
                os._exit(NOT_ALLOWED)

    return prepare


def hidden(*paths):
    """Files and folders that are empty."""
    return mounts(*(f"mount {'-t tmpfs none' if Path(p).is_dir() else '--bind /dev/null'} {p}" for p in paths))


NOT_ALLOWED = 97
UNWRITTEN = r"tare: standard output can't be written: .*; lead it to a file or a terminal that can"
LOST = dict.fromkeys(COMMANDS, UNWRITTEN)
GONE = dict.fromkeys(COMMANDS, "")
ELSEWHERE = r"; point TARE_CACHE at a folder that may be written"
NO_CACHE = r"tare: cannot use .* as the cache: .*" + ELSEWHERE

CONDITIONS = {
    "standard output is closed": Condition(closed(1), silent=True),
    "standard error is closed": Condition(closed(2)),
    "both outputs are closed": Condition(closed(1, 2), silent=True),
    "standard input is closed": Condition(closed(0)),
    "all streams are closed": Condition(closed(0, 1, 2), silent=True),
    "standard output is full": Condition(leads("/dev/full", 1), LOST),
    "standard error is full": Condition(leads("/dev/full", 2)),
    "both outputs are full": Condition(leads("/dev/full", 1, 2), GONE),
    "standard output can only be read": Condition(leads("/dev/null", 1, flags=os.O_RDONLY), LOST),
    "standard error can only be read": Condition(leads("/dev/null", 2, flags=os.O_RDONLY)),
    "the reader of standard output has gone": Condition(reader_gone(1), GONE, status=141),
    "the reader of standard error has gone": Condition(reader_gone(2)),
    "the reader of both outputs has gone": Condition(reader_gone(1, 2), GONE, status=141),
    "the folder has a blank": Condition(go(b"my folder")),
    "the folder has an umlaut": Condition(go("prüfstand".encode())),
    "the folder's name is no UTF-8": Condition(go(b"pr\xfcf")),
    "the folder's name has a new line": Condition(go(b"a\nb")),
    "the folder's name is long": Condition(go(b"/".join([b"a" * 200] * 10))),
    "the folder was removed": Condition(
        removed_folder, {"plan": r"tare: the working directory has been removed: change into another one"}
    ),
    "no HOME": Condition(variables(HOME=None)),
    "no HOME, and no such user": Condition(no_such_user),
    "no HOME, and no cache is named": Condition(
        all_of(no_such_user, variables(TARE_CACHE=None, XDG_CACHE_HOME=None)),
        {"doctor": r"tare: user \d+ has no home: point TARE_CACHE at a folder that may be written"},
    ),
    "HOME is empty": Condition(variables(HOME="")),
    "HOME is missing": Condition(variables(HOME="/nonexistent")),
    "HOME is a file": Condition(variables(HOME="{folder}/odd.yaml")),
    "the cache is a file": Condition(cache_at("{folder}/file"), {"doctor": NO_CACHE}),
    "the cache lies below a file": Condition(cache_at("{folder}/file/cache"), {"doctor": NO_CACHE}),
    "the cache is a loop of links": Condition(cache_at("{folder}/loop"), {"doctor": NO_CACHE}),
    "the cache is no place for files": Condition(cache_at("/proc/self/cache"), {"doctor": NO_CACHE}),
    "the cache has a blank and an umlaut": Condition(cache_at("{folder}/mein Prüfstand")),
    "the cache has a colon": Condition(
        cache_at("{folder}/a:b"),
        {"doctor": r"tare: cannot use .* as the cache: container runtimes take ':' for more than a character .*"},
    ),
    "the cache can't be written": Condition(
        mounts("mount --bind {folder}/cache {folder}/cache", "mount -o remount,ro,bind {folder}/cache")
    ),
    "the cache is full": Condition(mounts("mount -t tmpfs -o nr_inodes=1 none {folder}/cache")),
    "the folder of the table can't be written": Condition(
        mounts("mount --bind {folder}/made {folder}/made", "mount -o remount,ro,bind {folder}/made"),
        {"read-log": r"tare: no permission for .*/made/\S+: Read-only file system; name another place, or have .*"},
    ),
    "the folder of the table is full": Condition(
        mounts("mount -t tmpfs -o nr_inodes=1 none {folder}/made"),
        {"read-log": r"tare: no space left while writing .*/made/\S+: free some, or point TARE_CACHE at .*"},
    ),
    "few files may be open": Condition(limit(resource.RLIMIT_NOFILE, 16)),
    "no further file may be open": Condition(
        no_further_file,
        dict.fromkeys(COMMANDS, r"tare: more files are open than this shell's limit: raise it \(ulimit -n\)"),
    ),
    "files must be empty": Condition(
        limit(resource.RLIMIT_FSIZE, 0),
        {"read-log": r"tare: a file would be larger than this shell's limit: raise it \(ulimit -f\)"},
    ),
    "the stack is small": Condition(limit(resource.RLIMIT_STACK, 256 << 10)),
    "no core is written": Condition(limit(resource.RLIMIT_CORE, 0)),
    "nothing may be locked in memory": Condition(limit(resource.RLIMIT_MEMLOCK, 0)),
    "TERM is unset": Condition(variables(TERM=None)),
    "TERM is unknown": Condition(variables(TERM="nosuchterminal")),
    "the terminal has 80 columns": Condition(variables(COLUMNS="80")),
    "COLUMNS is no number": Condition(variables(COLUMNS="wide")),
    "PATH is unset": Condition(variables(PATH=None)),
    "PATH is empty": Condition(variables(PATH="")),
    "TMPDIR is missing": Condition(variables(TMPDIR="{folder}/missing")),
    "TZ is unknown": Condition(variables(TZ="Nowhere/City")),
    "proxies are nonsense": Condition(variables(http_proxy="::", https_proxy="x y", ALL_PROXY="http://[")),
    "RUNTIMES is nonsense": Condition(variables(RUNTIMES="sytem")),
    "DOCKER_HOST is nonsense": Condition(variables(DOCKER_HOST="x://")),
    "everybody may write what is made": Condition(lambda place: os.umask(0)),
    "nobody may read what is made": Condition(
        lambda place: os.umask(0o777), {"read-log": r"tare: no permission for .*/made/.*"} if os.getuid() else {}
    ),
    "children are not waited for": Condition(lambda place: signal.signal(signal.SIGCHLD, signal.SIG_IGN)),
    "interrupts are ignored": Condition(lambda place: signal.signal(signal.SIGINT, signal.SIG_IGN)),
    "a signal is blocked": Condition(lambda place: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])),
    "the least priority": Condition(lambda place: os.nice(19)),
    "no memory and processor of the machine is told": Condition(hidden("/proc/meminfo", "/proc/cpuinfo")),
    "no groups of processes and no mounts are told": Condition(hidden("/sys", "/dev/shm")),
    "no state of the machine is told": Condition(
        hidden("/proc/stat", "/proc/vmstat", "/proc/loadavg", "/etc/passwd")
    ),
    "no /proc": Condition(mounts("mount -t tmpfs none /proc")),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What each command says where nothing is odd."""
    place = Place(tmp_path_factory.mktemp("plain") / "place")
    return {command: (place, in_fork(place, command)) for command in COMMANDS}


CASES = [
    (name, command)
    for name, condition in CONDITIONS.items()
    for command in COMMANDS
    if command != "help" or condition.says or condition.silent or "TERM" in name or "COLUMNS" in name
]


@pytest.mark.parametrize(("name", "command"), CASES)
def test_a_command_works_as_without_or_says_in_one_line_what_is_wrong(name, command, plain, tmp_path):
    where, usual = plain[command]
    condition, place = CONDITIONS[name], Place(tmp_path / "place")
    said = in_fork(place, command, condition.prepare)
    if said.status == NOT_ALLOWED:
        pytest.skip("no right to mounts of one's own")
    assert b"Traceback" not in said.err, said.err.decode(errors="replace")
    pattern = condition.says.get(command)
    if pattern is None:
        assert (said.status, said.err) == (0, b"")
        if condition.silent:
            assert said.out == b""
        elif command == "doctor":  # it tells what there is, which the condition may have changed
            assert said.out.startswith(b"This machine: ") and b"\nIt can measure: " in said.out
        else:
            assert place.without_paths(said.out) == where.without_paths(usual.out)
        return
    assert said.status == condition.status
    if pattern:
        assert re.fullmatch(pattern, said.err.decode().removesuffix("\n")), said.err
    else:
        assert said.err == b""


# --- what concerns the start of Python


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """A copy of what a command needs, in a folder with a blank and an umlaut, and modules that are not for it."""
    folder = tmp_path_factory.mktemp("far") / "mein Prüfstand"
    for name in ("tare", "envs", "workloads", "config", "containers", "data"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pydantic", "yaml", "random", "json"):
        (folder.parent / "foreign").mkdir(exist_ok=True)
        (folder.parent / f"foreign/{name}.py").write_text(f"raise SystemExit('the foreign {name}')\n")
    return Place(folder.parent / "place"), folder


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
VARIABLES = {
    "nothing odd": {},
    "no variable": None,
    "the locale C": {"LC_ALL": "C"},
    "the locale POSIX": {"LC_ALL": "POSIX"},
    "a locale that was not generated": {"LC_ALL": "xx_XX.UTF-8"},
    "a locale of one byte that was not generated": {"LANG": "xx_XX.ISO-8859-1", "LC_ALL": "xx_XX.ISO-8859-1"},
    "a terminal of ASCII alone": ASCII,
    "output in ASCII": {"PYTHONIOENCODING": "ascii"},
    "output in Latin 1": {"PYTHONIOENCODING": "latin-1"},
    "output of an old PC": {"PYTHONIOENCODING": "cp437"},
    "foreign modules": {"PYTHONPATH": "{foreign}"},
    "foreign modules, and a locale that was not generated": {"PYTHONPATH": "{foreign}", "LC_ALL": "xx_XX.UTF-8"},
    "no safe path": {"PYTHONSAFEPATH": "1", "PYTHONPATH": "{checkout}"},
    "optimised": {"PYTHONOPTIMIZE": "2"},
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "in development": {"PYTHONDEVMODE": "1"},
    "unbuffered": {"PYTHONUNBUFFERED": "1"},
    "no bytecode": {"PYTHONDONTWRITEBYTECODE": "1"},
    "no place for bytecode": {"PYTHONPYCACHEPREFIX": "/proc/nowhere"},
    "another order of hashes": {"PYTHONHASHSEED": "7"},
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_fresh_python_says_the_same_in_what_its_output_can_show(name, far):
    """In a checkout with an umlaut in its path; where characters are lacking they are told in ASCII."""
    place, folder = far
    odd = VARIABLES[name]
    usual = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    places = {"foreign": folder.parent / "foreign", "checkout": folder}
    texts = {key: value.format(**places) for key, value in (odd or {}).items()}
    env = {} if odd is None else {**usual, **texts}
    env["TARE_CACHE"] = str(place.folder / "cache")
    argv = [sys.executable, "-m", "tare", *place.argv("plan")]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, timeout=LIMIT_S, check=False)
    encoding = "ascii" if odd is ASCII else texts.get("PYTHONIOENCODING", "utf-8")
    assert (done.returncode, done.stderr) == (0, b"")
    first = done.stdout.decode(encoding).splitlines()[0]
    assert "mnist_cnn rounds.host, " + ("+-1%" if encoding == "ascii" else "±1%") in first


def test_a_python_without_our_packages_says_which_one_has_them():
    argv = [sys.executable, "-S", "-m", "tare", "plan"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 3 and done.stdout == ""
    assert re.fullmatch(r"tare: .+ has no pydantic: .*`make setup` in .+ (makes|installs it)\n", done.stderr)


def test_too_little_memory_for_what_a_command_loads_is_one_line():
    limited = ["sh", "-c", 'ulimit -v 400000; exec "$@"', "sh", sys.executable, "-m", "tare", "plan"]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode in (0, 3) and "Traceback" not in done.stderr
    assert done.returncode == 0 or re.search(
        r"^tare: there was no memory left.*ulimit -v\)$", done.stderr, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("library", "remedy"),
    [("libstdc++.so.6", "libstdc++6"), ("libodd-3.1.so.2", "install the package that has it")],
)
def test_a_system_library_that_is_missing_is_named_in_one_line(library, remedy):
    """NumPy explains it in twenty lines, of which one names the library."""
    text = f"PLEASE READ THIS\n\nOriginal error was: {library}: cannot open shared object file: No such file\n"
    line = explain_defect(ImportError(text))
    assert f"can't load the system library {library}: " in line and remedy in line and "\n" not in line
