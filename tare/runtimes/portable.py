"""A portable build of CPython, for a stack whose own is not on this machine: uv fetches it into our cache.

uv knows the hash of every build. It is asked whenever a stack is wanted and has none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, cache_path, locked
from tare.core.process import run, scratch_folder
from tare.core.progress import step

UV = Path(sys.executable).with_name("uv")
INSTALL_S = 300.0  # to fetch and unpack some 30 MB
# No settings of a project, no links in the user's home; where none answers it is said within seconds.
OWN = {
    "UV_NO_CONFIG": "1", "UV_NATIVE_TLS": "1", "UV_PYTHON_INSTALL_BIN": "0", "UV_HTTP_TIMEOUT": "5",
    "UV_HTTP_RETRIES": "0",
}  # fmt: skip


def installed(version: str) -> list[str]:
    """Programs of the portable builds of a version (major and minor) in our cache."""
    return sorted(map(str, cache_path("pythons").glob(f"cpython-{version}.*/bin/python{version}")))


def bring(version: str) -> None:
    """See that there is a portable build of a version. Raises UnavailableError where none can be had now."""
    if os.environ.get("UV_PYTHON_DOWNLOADS") == "never":
        raise UnavailableError("UV_PYTHON_DOWNLOADS=never")
    # uv has its own lock in the folder, for which it would wait for ever.
    with (
        locked(cache_dir() / "pythons.lock", waiting_for=f"a portable CPython {version}"),
        scratch_folder("uv") as scratch,
    ):
        if installed(version):
            return
        own = {**OWN, "UV_PYTHON_INSTALL_DIR": str(cache_dir("pythons")), "UV_CACHE_DIR": str(scratch)}
        argv = [str(UV), "python", "install", "--no-progress", version]
        with step(f"fetching a portable CPython {version}"):
            done = run(argv, timeout_s=INSTALL_S, env={**os.environ, **own, "TMPDIR": str(scratch)})
        if not installed(version):
            raise UnavailableError(done.explain().replace(str(UV), "uv"))
