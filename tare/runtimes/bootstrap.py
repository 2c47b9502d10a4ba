"""From a bare Python to the environment that the workflow or its tests run in; standard library only.

`python3 -m tare.runtimes.bootstrap run` installs what the machine lacks (tare.runtimes.install), and fills .venv
from the hash-locked requirements/run.txt; `test` adds what the tests need. pip, uv and what builds packages come
first; then uv, which is faster, installs the lock. What it can't install pip does, which also says why not. torch,
which only the tests need, is pip's: its CPU build may be where pip's settings say. A stamp named by the locks'
hash makes a second run cost nothing; `--dry-run` prints the commands.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tare.core.arguments import Parser, status_of
from tare.core.errors import UnavailableError, UserError
from tare.core.files import cache_dir, locked, sha256_text, write_text
from tare.core.process import Finished, run, scratch_folder
from tare.core.progress import duration, say, step
from tare.core.remedies import no_index
from tare.runtimes.install import install, install_for, interrupt

PYTHONS = ((3, 11), (3, 12), (3, 13))
VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "tare.stamps"
LOCKS = {"run": ("run",), "test": ("run", "test")}
FIRST = ("pip", "setuptools", "wheel", "packaging")  # of the lock; all but pip build what has no wheel
FIRST_LOCK = VENV / "first.txt"
# The CPU build of torch, which the tests need, is on no general package index: this one is asked where pip's own
# places lack it.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
PATIENCE = ("--timeout", "15", "--retries", "1")
RETRIES = "3"  # pip's own five make who has no network wait 8 s each time; PIP_RETRIES overrules it
INSTALL_S = 1800.0
# The variables by which uv is given pip's settings, and those with which pip is not replaced.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST", "cert": "SSL_CERT_FILE",
}  # fmt: skip
ONLY_PIP = {"client-cert", "no-binary", "no-index", "only-binary", "proxy"}
UV_OWN = {
    "UV_NO_CONFIG": "1", "UV_NATIVE_TLS": "1", "UV_PYTHON_DOWNLOADS": "never",
    "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip, which takes a file from wherever it is
}  # fmt: skip
OWN_FIRST = "0-own-packages-first.pth"  # read before that of the project, whose place is as it is found
# What Python runs when it starts: PYTHONPATH comes behind the environment's own packages, but for
# another checkout of Tare.
OWN_FIRST_TEXT = (
    "import os, sys; "
    "named = [one for one in os.environ.get('PYTHONPATH', '').split(os.pathsep) if one]; "
    "named = [os.path.abspath(one) for one in named if not os.path.exists(one + '/tare/__main__.py')]; "
    "sys.path.sort(key=lambda path, named=named, of=os.path.abspath: of(path) in named); del named\n"
)


def main(argv: Sequence[str]) -> int:
    """`python3 -m tare.runtimes.bootstrap run|test`."""
    parser = Parser(
        prog="python3 -m tare.runtimes.bootstrap",
        description="Install the container runtimes that are missing, and fill .venv from the locks.",
        epilog="RUNTIMES=system installs no runtime; `make clean` and `make clean-runtimes` remove everything.",
    )
    parser.add_argument("purpose", choices=LOCKS, help="the workflow, or its tests as well")
    parser.add_argument("--dry-run", "-n", action="store_true", help="print the commands, but don't run them")

    def work() -> int:
        asked = parser.parse_args(argv)
        return show(asked.purpose) if asked.dry_run else set_up(asked.purpose)

    return status_of(work, "interrupted; the next run continues")


def set_up(purpose: str) -> int:
    """Make .venv and the runtimes fit for `purpose`; UserError for a .venv that is not ours; UnavailableError."""
    check_python()
    check_place(purpose)
    started = time.monotonic()
    with locked(lock_path(), waiting_for="another set-up of this checkout"):
        install(purpose)
        done = read_stamps()
        wanted = [name for name in LOCKS[purpose] if stamp(name) not in done]
        if wanted:
            make_venv()
            for name in wanted:
                install_lock(name)
            if "run" in wanted:
                install_project()
            finished = [name for name in LOCKS["test"] if name in wanted or stamp(name) in done]
            write_text(STAMPS, "".join(f"{stamp(name)}\n" for name in finished))
        write_path_files()
    if wanted:
        say(f"set up in {duration(time.monotonic() - started)}")
    return 0


def show(purpose: str) -> int:
    """Print what `set_up` would run in an empty clone."""
    check_python()
    install(purpose, dry_run=True)
    commands = [VENV_COMMAND, pip_command(*by_hash(FIRST_LOCK)), uv_command(lock_file("run")), PROJECT_COMMAND]
    if purpose == "test":
        commands.append(pip_command(*by_hash(lock_file("test"))))
    for command in commands:
        say(shlex.join(command))
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


def check_place(purpose: str) -> None:
    """Raise UserError, before anything is installed, for a checkout that is read-only or another user's."""
    done, place = read_stamps(), VENV if VENV.exists() else Path()
    if all(stamp(name) in done for name in LOCKS[purpose]) or os.access(place, os.W_OK | os.X_OK):
        return
    raise UserError(
        f"{place.absolute()} is not writable, but the Python environment must be made there: copy the checkout to "
        "a writable folder, and run make there"
    )


def ensure_ensurepip() -> None:
    """See that this Python can make a virtual environment, by Debian's package if needed; else UnavailableError."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"

    def there(module: str) -> bool:
        importlib.invalidate_caches()
        return importlib.util.find_spec(module) is not None

    install_for("virtual environments", {"ensurepip": package}, there)
    if not there("ensurepip"):
        raise UnavailableError("this Python lacks ensurepip", f"apt-get install --yes {package}")


def stamp(name: str) -> str:
    """What a finished installation of one lock is known by: the lock, the project file, this Python, this place."""
    files = [lock_file(name), *([lock_file("uv")] if name == "run" else []), Path("pyproject.toml")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return f"{name} {sha256_text(chr(0).join([*texts, sys.version, str(Path.cwd())]))}"


def read_stamps() -> list[str]:
    """Finished installations of a .venv whose Python still starts; none otherwise."""
    there = STAMPS.exists() and PYTHON.exists()
    return STAMPS.read_text(encoding="utf-8").splitlines() if there else []


# --- Python packages


def lock_file(name: str) -> Path:
    """The lock of a name."""
    return Path("requirements", f"{name}.txt")


def read_lock(path: Path) -> dict[str, str]:
    """A lock's blocks by package name: the pinned line with its hashes."""
    blocks = re.split(r"^(?=[A-Za-z0-9][\w.-]*==)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    if not blocks:
        raise UserError(f"{path} pins no package; make it again: make lock")
    return {block.split("==")[0]: block for block in blocks}


VENV_COMMAND = [sys.executable, "-m", "venv", str(VENV)]


def pip_command(*arguments: str) -> list[str]:
    """pip's argument list; a lock is complete, so it resolves nothing."""
    options = ("--quiet", "--no-input", "--no-deps", "--no-compile", "--no-build-isolation")
    return [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", *options, *arguments]


def by_hash(lock: Path) -> list[str]:
    """Of pip and of uv: the packages of a lock."""
    return ["--require-hashes", "--requirement", str(lock)]


def uv_command(lock: Path) -> list[str]:
    """uv's argument list."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--python", str(PYTHON))
    return [str(VENV / "bin" / "uv"), "pip", "install", *options, *by_hash(lock)]


# By a path file (compat), since Snakemake finds plugins by listing folders.
PROJECT_COMMAND = pip_command("--config-settings", "editable_mode=compat", "--editable", ".")


def lean_environment() -> dict[str, str]:
    """Ours without what would change a pip in .venv: another Python's paths, a user install, no bytecode.

    What pip and setuptools write of paths is UTF-8, whatever the locale.
    """
    drop = {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"}
    drop |= {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_NO_DEPS"}
    return {**{key: value for key, value in os.environ.items() if key not in drop}, "LC_ALL": "C.UTF-8"}


def make_venv() -> None:
    """An empty .venv with this Python; one that can't start (a moved checkout, a removed Python) is replaced."""
    if PYTHON.exists():
        version = run([str(PYTHON), "-c", "import pip, sys; print(sys.version)"], timeout_s=60).stdout
        if version.strip() == sys.version:
            return
    ensure_ensurepip()
    shutil.rmtree(VENV, ignore_errors=True)
    with step("making .venv"):
        run(VENV_COMMAND, timeout_s=300, env=lean_environment(), check=True)


def install_lock(name: str) -> None:
    """Install a lock by hash into .venv, installers first; UnavailableError for a missing or other package."""
    path = lock_file(name)
    lock = read_lock(path)
    with step(f"installing {len(lock)} Python packages" + (" for the tests" if name == "test" else "")):
        if name == "run":
            first = lock_file("uv").read_text(encoding="utf-8") + "".join(lock[package] for package in FIRST)
            FIRST_LOCK.write_text(first, encoding="utf-8")
            pip_install(FIRST_LOCK)
            if uv_install(path):
                return
        pip_install(path)


def uv_install(lock: Path) -> bool:
    """Install a lock's packages with uv; whether all of them are there."""
    given = uv_variables(asked([str(PYTHON), "-m", "pip", "config", "list"]).stdout)
    if given is None:
        return False
    cache = (VENV / "uv-cache").resolve()  # next to what is linked to it; its locks are there too
    cache.mkdir(exist_ok=True)
    kept = {key: value for key, value in lean_environment().items() if not key.startswith("UV_")}
    try:
        own = {**UV_OWN, "UV_CACHE_DIR": str(cache), "TMPDIR": str(cache)}
        return run(uv_command(lock), timeout_s=INSTALL_S, env={**kept, **own, **given}).ok
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def uv_variables(settings: str) -> dict[str, str] | None:
    """Variables that give uv the settings of pip that `pip config list` prints; None where only pip can do that."""
    given = {}
    for line in sorted(settings.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2]
        if name in ONLY_PIP:
            return None
        if name in UV_NAMES:
            words = str(ast.literal_eval(value)).split()
            given[UV_NAMES[name]] = ("," if name == "find-links" else " ").join(words)
    return given


def pip_install(lock: Path) -> None:
    """Install a lock by pip; torch from its own index, where pip's lack it. Raises as `install_lock`."""
    finished, remedy = asked(pip_command(*by_hash(lock))), None
    if "No matching distribution found for torch" in finished.stderr:
        alone, remedy = VENV / "torch.txt", "PIP_FIND_LINKS=FOLDER_WITH_ITS_WHEEL make test"
        alone.write_text(read_lock(lock)["torch"], encoding="utf-8")
        finished = asked(pip_command(*by_hash(alone), "--index-url", TORCH_INDEX, *PATIENCE))
        if finished.ok:
            finished = asked(pip_command(*by_hash(lock)))
    if not finished.ok:
        raise UnavailableError(f"pip could not install {lock}: {why(finished)}", remedy)


def install_project() -> None:
    """Tare itself, editable."""
    finished = asked(PROJECT_COMMAND)
    if not finished.ok:
        raise UnavailableError(f"pip could not install the project itself: {why(finished)}")


def asked(command: Sequence[str]) -> Finished:
    """pip, run to its end; what it leaves among temporary files where it is killed goes too."""
    with scratch_folder("pip") as scratch:
        variables = {"PIP_RETRIES": RETRIES, **lean_environment(), "TMPDIR": str(scratch)}
        return run(command, timeout_s=INSTALL_S, env=variables)


def why(finished: Finished) -> str:
    """What pip said, in one line."""
    lines = [line.strip() for line in finished.stderr.splitlines() if line.startswith("ERROR")]
    if finished.found_full:
        return f"{VENV.resolve()} or {tempfile.gettempdir()} is full: {finished.explain()}"
    if unreached := no_index(finished.stderr):
        return unreached
    return lines[-1].removeprefix("ERROR: ")[:300] if lines else finished.explain()


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


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main(sys.argv[1:]))
