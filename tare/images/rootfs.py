"""Runs the Python of a root filesystem that is no running system: unpacked layers, started by their own loader.

The interpreter is asked what it is, compiles for itself and tries imports, with its own standard library and its
own shared libraries. It runs on this machine's kernel, under this machine's /proc, /etc and user.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.process import Finished, run
from tare.images.tree import in_shards

COMPILE_S = 900.0
LOADERS = ("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2")
LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/local/lib", "lib64", "usr/lib64", "usr/lib")
PREFIXES = ("usr/local", "usr")
_ASK = """
import json, sys, sysconfig
print(json.dumps(["%d.%d.%d" % sys.version_info[:3], sys.prefix, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]))
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True)
class Guest:
    """The interpreter of an unpacked root filesystem; paths but `root` and `loader` are those inside."""

    root: Path  # where the filesystem is here
    loader: Path  # its dynamic loader, here
    python: Path  # the interpreter's program
    version: str  # `3.11.2`
    stdlib: Path  # folder of the standard library
    packages: Path  # folder into which an installer puts packages

    def outside(self, path: Path) -> Path:
        """Where a path inside is here."""
        return self.root / str(path).lstrip("/")


def find_guest(root: Path, version: str) -> Guest | None:
    """The CPython of `version` of a root filesystem, by running it; None, or UnavailableError if it doesn't run."""
    loader = next((root / name for name in LOADERS if (root / name).is_file()), None)
    prefix = next((name for name in PREFIXES if (root / name / "bin" / f"python{version}").is_file()), None)
    if loader is None or prefix is None:
        return None
    python = Path("/", prefix, "bin", f"python{version}")
    draft = Guest(root=root, loader=loader, python=python, version="", stdlib=Path("/"), packages=Path("/"))
    finished = run_guest(draft, ["-S", "-c", _ASK], timeout_s=60)
    if not finished.ok:
        raise UnavailableError(f"the base's own {python} does not run: {finished.explain()}")
    found, home, stdlib, packages = json.loads(finished.stdout)
    if Path(home) != root / prefix:
        raise UnavailableError(f"the base's own {python} takes {home} for its home, which is not in the base")
    return Guest(
        root=root,
        loader=loader,
        python=python,
        version=found,
        stdlib=_inside(root, stdlib),
        packages=_inside(root, packages),
    )


def _inside(root: Path, path: str) -> Path:
    return Path("/") / Path(path).relative_to(root)


def run_guest(guest: Guest, arguments: Sequence[str], *, timeout_s: float, stdin: bytes | None = None) -> Finished:
    """Run the interpreter with its own loader and libraries, in an environment of nothing but its home."""
    folders = ":".join(str(guest.root / name) for name in LIBRARIES if (guest.root / name).is_dir())
    python = guest.outside(guest.python)
    loader = [str(guest.loader), "--inhibit-cache", "--library-path", folders]
    variables = {"PYTHONHOME": str(python.parent.parent), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    return run(
        [*loader, str(python), "-s", *arguments], timeout_s=timeout_s, env=variables, cwd=guest.root, stdin=stdin
    )


def compile_sources(guest: Guest) -> tuple[list[Path], int]:
    """Byte-compile, dated as an installer does; files written, and number of failed ones. UnavailableError."""
    tag = f"cpython-{''.join(guest.version.split('.')[:2])}"
    folders = [guest.outside(guest.stdlib), guest.outside(guest.packages)]
    sources = sorted({path for folder in folders for path in folder.rglob("*.py") if path.is_file()})
    wanted = {path: path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc" for path in sources}
    wanted = {path: compiled for path, compiled in wanted.items() if not compiled.exists()}
    names = list(wanted)
    where = ["-s", str(guest.root), "-p", "/", "--invalidation-mode", "timestamp"]

    def compile_shard(text: bytes) -> None:
        argv = ["-S", "-m", "compileall", "-q", "-q", "-f", *where, "-i", "-"]
        finished = run_guest(guest, argv, timeout_s=COMPILE_S, stdin=text)
        crashed = finished.returncode not in (0, 1) or "Traceback" in finished.stderr  # 1: some are no valid Python
        if finished.timed_out or crashed:
            raise UnavailableError(f"the base's own Python does not compile: {finished.explain()}")

    in_shards(names, compile_shard)
    written = [compiled for compiled in wanted.values() if compiled.exists()]
    if names and not written:
        raise UnavailableError("the base's own Python compiled none of its sources")
    return written, len(names) - len(written)


def snapshot(root: Path) -> dict[str, int]:
    """Time of the last change of every file below `root`, by path; `differences` compares with it."""
    found = {}
    for folder, names, files in os.walk(root):
        for name in files + [name for name in names if Path(folder, name).is_symlink()]:
            path = f"{folder}/{name}"
            found[os.path.relpath(path, root)] = os.lstat(path).st_ctime_ns
    return found


def differences(before: dict[str, int], after: dict[str, int]) -> tuple[list[str], list[str]]:
    """(paths new or changed, paths gone) between two snapshots, sorted."""
    changed = sorted(path for path, at_ns in after.items() if before.get(path) != at_ns)
    return changed, sorted(before.keys() - after.keys())
