"""uv, by which a lock is installed in a third of pip's time, where uv can be told what pip is told.

It is fetched by pip, checked by the hash in requirements/uv.txt, and goes when the lock is installed. What it can't
install pip is asked for again, so that pip alone says what is wrong.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tare.core.process import Finished, run

LOCK = Path("requirements/uv.txt")
TIMEOUT_S = 1800.0
# Settings of pip that change nothing of what is installed, or that our own options overrule. Of packages that a
# lock pins a constraint changes nothing, and uv refuses one that pins none.
WITHOUT_EFFECT = {
    "break-system-packages", "cache-dir", "compile", "constraint", "default-timeout", "disable-pip-version-check",
    "log", "no-cache-dir", "no-color", "no-compile", "no-input", "no-warn-script-location", "prefer-binary",
    "progress-bar", "quiet", "require-virtualenv", "retries", "root-user-action", "timeout", "verbose",
}  # fmt: skip
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
LEVELS = ("global", "install", ":env:")  # of `pip config list`, the last wins


def told(settings: str) -> dict[str, str] | None:
    """Variables that tell uv what pip is told; None where it has a setting that uv is not told here.

    Args:
        settings: what `pip config list` prints.
    """
    found: dict[str, dict[str, str]] = {level: {} for level in LEVELS}
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        level, _, key = name.partition(".")
        if level in found:
            try:
                found[level][key] = str(ast.literal_eval(value))
            except (SyntaxError, ValueError):
                return None
    chosen = {key: value for level in LEVELS for key, value in found[level].items() if key not in WITHOUT_EFFECT}
    variables: dict[str, str] = {}
    for key, value in chosen.items():
        words = [word for word in value.split() if _is_there(word)]
        if key == "index-url":
            variables["UV_DEFAULT_INDEX"] = value
        elif key == "extra-index-url":
            variables["UV_INDEX"] = " ".join(words)
        elif key == "find-links":
            variables["UV_FIND_LINKS"] = ",".join(words)
        elif key == "trusted-host":
            variables["UV_INSECURE_HOST"] = value
        elif key == "cert":
            variables["SSL_CERT_FILE"] = value
        elif key == "proxy":
            variables |= dict.fromkeys(PROXIES, value)
        else:
            return None
    return variables


def _is_there(place: str) -> bool:
    """Whether pip would look there: a folder that is missing it passes over, where uv would end."""
    parts = urlsplit(place)
    return parts.scheme not in ("", "file") or Path(unquote(parts.path)).exists()


def fetch(pip: Callable[..., Finished], folder: Path) -> Path | None:
    """The program, installed by `pip` into an empty folder; None where it can't be had."""
    shutil.rmtree(folder, ignore_errors=True)
    program = folder / "bin" / "uv"
    finished = pip("--retries", "1", "--require-hashes", "--target", str(folder), "--requirement", str(LOCK))
    return program if finished.ok and program.is_file() else None


def install(
    program: Path, python: Path, lock: Path, variables: Mapping[str, str], environ: Mapping[str, str]
) -> bool:
    """Install a lock's packages by hash, without what they need; whether all of them are there.

    Args:
        program: uv itself.
        python: of the virtual environment.
        lock: hashed requirements.
        variables: of `told`.
        environ: the process's; its own settings of uv don't count, as pip has none of them.
    """
    own = {
        "UV_NO_CONFIG": "1",
        "UV_NATIVE_TLS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip, which takes a file from wherever it is
        "UV_CACHE_DIR": str(program.parents[1] / "cache"),
        "TMPDIR": str(program.parents[1].resolve()),  # its locks stay where they are made
    }
    kept = {key: value for key, value in environ.items() if not key.startswith("UV_")}
    argv = [str(program), "pip", "install", "--quiet", "--python", str(python), "--require-hashes", "--no-deps"]
    argv += ["--no-build-isolation", "--requirement", str(lock)]
    return run(argv, timeout_s=TIMEOUT_S, env={**kept, **own, **variables}).ok
