"""A portable build of CPython, for a stack whose own is not on this machine: uv fetches it into our cache.

uv itself is fetched by hash, and knows the hash of every build. It is asked once; what it says where there is none
is kept for an hour, so that a machine without a network waits once, not for each stack.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, cache_path, locked, project_root, write_text
from tare.core.process import Finished, run, scratch_folder
from tare.core.progress import step
from tare.runtimes import uv

ASK_AGAIN_S = 3600.0
UV_S, INSTALL_S = 60.0, 300.0  # to fetch uv, to fetch and unpack some 30 MB
PATIENCE = ("--timeout", "5", "--retries", "0")
SETTINGS = "UV_PYTHON_"  # of uv: a mirror among them
DOWNLOADS = "UV_PYTHON_DOWNLOADS"


def installed(version: str) -> list[str]:
    """Programs of the portable builds of a version (major and minor) in our cache."""
    return sorted(map(str, _folder().glob(f"cpython-{version}.*/bin/python{version}")))


def bring(version: str) -> None:
    """See that there is a portable build of a version.

    Raises:
        UnavailableError: none can be had now, or could not within the last hour.
    """
    if os.environ.get(DOWNLOADS) == "never":
        raise UnavailableError(f"{DOWNLOADS}=never")
    said = _folder() / f"{version}.said"
    # uv has a lock of its own in the folder, for which it would wait for ever.
    with locked(cache_dir() / "pythons.lock", waiting_for=f"a portable CPython {version}"):
        if installed(version):
            return
        if said.exists() and time.time() - said.stat().st_mtime < ASK_AGAIN_S:
            raise UnavailableError(said.read_text(encoding="utf-8"))
        with step(f"fetching a portable CPython {version}"):
            reason = _install(version)
        if not installed(version):
            write_text(said, reason)
            raise UnavailableError(reason)


def _folder() -> Path:
    return cache_path("pythons")


def _install(version: str) -> str:
    """Have uv install a version; what it said."""
    with scratch_folder("uv") as scratch:
        answers: list[Finished] = []

        def pip(*arguments: str) -> Finished:
            argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-input"]
            variables = {**os.environ, "TMPDIR": str(scratch)}
            argv += ["--no-deps", "--no-compile", *PATIENCE, *arguments]
            answers.append(run(argv, timeout_s=UV_S, env=variables, cwd=project_root()))
            return answers[-1]

        program = uv.fetch(pip, scratch / "uv")
        if program is None:
            return f"uv, which fetches them, is not to be had: {answers[-1].explain()}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("UV_") or _is_kept(key)}
        own = {
            "UV_NO_CONFIG": "1",
            "UV_NATIVE_TLS": "1",
            "UV_HTTP_TIMEOUT": "5",
            "UV_HTTP_RETRIES": "0",
            "UV_PYTHON_INSTALL_DIR": str(cache_dir("pythons")),
            "UV_PYTHON_INSTALL_BIN": "0",  # no links in the user's home
            "UV_CACHE_DIR": str(scratch / "cache"),
            "TMPDIR": str(scratch),
        }
        argv = [str(program), "python", "install", "--no-progress", version]
        said = run(argv, timeout_s=INSTALL_S, env={**kept, **own}).explain()
        return said.replace(str(program), "uv")


def _is_kept(variable: str) -> bool:
    return variable.startswith(SETTINGS)
