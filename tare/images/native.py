"""The stack as people install it: into the environment's own interpreter, with nothing left out.

On the host that is a virtual environment of the host's own CPython. In containers it is the Python of the base
(the distribution's packages, or what a registry's image brings), with the packages in one layer on top. Versions
and files are those of the tree: the same wheels by the same hashes. What differs is the interpreter, where its
libraries come from, and bytecode that is checked against its source's time at each import.
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.sources import WheelFile
from packaging.utils import canonicalize_name

from tare.core import store
from tare.core.archives import opened
from tare.core.elf import read_dynamic
from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, home_dir, sha256_file
from tare.core.manifest import allocated_bytes, manifest_digest
from tare.core.process import run
from tare.core.store import Kept
from tare.images.base import Base, debian_base, get_base
from tare.images.interpreter import Interpreter, find_interpreter, with_interpreter
from tare.images.layers import Blob, unpack, whiteouts
from tare.images.oci import FolderLayer, assemble
from tare.images.rootfs import PREFIXES, Guest, compile_sources, differences, find_guest, run_guest, snapshot
from tare.images.runtime_forms import base_fields, contained_form, form_record, keep_image, missing_record
from tare.images.tree import EPOCH_S, foreign_libraries, import_code, imported
from tare.images.wheels import Fetched, Wheel, fetch_wheels, packages_of
from tare.model.environment import Environment
from tare.model.records.images import ImageRecord, OciRecord, TreeFacts
from tare.model.studies.stacks import Stack, load_stack

FORMAT = 3  # counts up when the same inputs would give another installation
INSTALL_S = 1800.0
CHECK_S = 300.0


def derive(name: str, variant: str, adapter: Environment, recipe: Mapping[str, Any]) -> ImageRecord:
    """A stack's native installation in one environment, kept or made, as a record, `unavailable` with a reason
    where it can't be. Raises UnavailableError where no index has the wheels, IntegrityError by hash.
    """
    stack = load_stack(name, variant)
    with contextlib.suppress(UnavailableError):  # the base of an image brings its own
        stack, _ = with_interpreter(stack)
    fetched = fetch_wheels(stack)
    if stack.library is not None:
        reason = f"{stack.library.name} of the stack {name} is in its tree alone: an ordinary installation has none"
        return form_record(_missing(stack, fetched, reason), adapter.name, status="unavailable", reason=reason)
    if adapter.contained:
        return contained_form(build(stack, fetched, recipe), adapter)
    try:
        return _host_form(stack, fetched, adapter.name)
    except UnavailableError as error:
        return form_record(
            _missing(stack, fetched, str(error)), adapter.name, status="unavailable", reason=str(error)
        )


def _missing(stack: Stack, fetched: Fetched, reason: str) -> OciRecord:
    return missing_record(**_shared(stack, fetched), reason=reason)


def _shared(stack: Stack, fetched: Fetched) -> dict[str, Any]:
    return {
        "stack": stack.name,
        "variant": stack.variant,
        "install": "native",
        "packages": packages_of(fetched.wheels),
        "seconds": {"fetch": fetched.seconds},
    }


# --- the host's virtual environment


def _host_form(stack: Stack, fetched: Fetched, name: str) -> ImageRecord:
    interpreter = find_interpreter(stack.python)
    kept = _virtual_environment(stack, fetched.wheels, interpreter)
    packages = next(kept.path.glob("lib*/python*/site-packages"))
    digest = manifest_digest([entry for entry in kept.entries if not entry["path"].endswith(".pyc")])
    record = _missing(stack, fetched, "").replace(tree=TreeFacts(inside=str(packages), digest=digest))
    return form_record(
        record,
        name,
        reference=str(kept.path),
        path=str(kept.path),
        digest=digest,
        python=str(kept.path / "bin" / "python"),
        bytes=allocated_bytes(kept.path),
        key=kept.key,
        seconds={"fetch": fetched.seconds, **kept.about["seconds"]},
        cached=kept.cached,
        details=dict(kept.about["details"]),
    )


def _virtual_environment(stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter) -> Kept:
    """The virtual environment, made again if damaged; raises UnavailableError where it can't be made or import."""

    def make(folder: Path) -> dict[str, Any]:
        pip = run([sys.executable, "-m", "pip", "--version"], timeout_s=60, check=True).stdout
        details = {
            "python_version": interpreter.version,
            "interpreter": str(interpreter.executable),
            "installer": " ".join(pip.split()[:2]),  # `pip 26.3`
        }
        return {"seconds": _install(folder, stack, wheels, interpreter), "details": details}

    program = [interpreter.version, str(interpreter.executable), sha256_file(interpreter.executable)]
    key = store.key_of(FORMAT, program, sorted(wheel.sha256 for wheel in wheels))
    what = f"installing {stack.name} ({stack.variant}) for CPython {interpreter.version} of this machine"
    return store.keep(_environments(), key, make, what=what, in_place=True)


def _environments() -> Path:
    return cache_dir("native")


def find(key: str) -> Kept | None:
    """A virtual environment that is there, its content unchanged, else None."""
    return store.find(_environments(), key)


def _install(path: Path, stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter) -> dict[str, float]:
    """Make it in place, since a virtual environment can't be moved; seconds of each stage."""
    python = path / "bin" / "python"
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home_dir()), "LANG": "C.UTF-8"}
    started = time.monotonic()
    environment = [str(interpreter.executable), "-I", "-m", "venv", "--without-pip", str(path)]
    run(environment, timeout_s=INSTALL_S, env=variables, check=True)
    with tempfile.TemporaryDirectory(prefix=store.making(path.name), dir=path.parent) as folder:
        lock = Path(folder) / "lock.txt"
        lines = (f"{wheel.path.as_uri()} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)
        lock.write_text("".join(lines), encoding="utf-8")
        argv = install_command(python, lock)
        run(argv, timeout_s=INSTALL_S, env={**variables, "TMPDIR": folder}, check=True)
    installed = time.monotonic()
    finished = imported(python, stack)
    if not finished.ok:
        raise UnavailableError(f"the native installation of {stack.name} does not import: {finished.explain()}")
    checked = time.monotonic()
    return {"native_install": round(installed - started, 3), "native_check": round(checked - installed, 3)}


def install_command(python: Path, lock: Path) -> list[str]:
    """The installer's argument list: from files alone, each checked against its hash; pure."""
    return [
        *(sys.executable, "-m", "pip", "--python", str(python), "--isolated", "install"),
        *("--quiet", "--disable-pip-version-check", "--no-input", "--no-index", "--no-deps", "--no-cache-dir"),
        *("--require-hashes", "--requirement", str(lock)),
    ]


# --- the image


def build(stack: Stack, fetched: Fetched, recipe: Mapping[str, Any]) -> OciRecord:
    """The image of a native installation, from the cache or assembled, as a record like that of images.build."""
    try:
        base = native_base(recipe, stack.python)
        digests = [layer.digest for layer in base.layers]
        hashes = sorted(wheel.sha256 for wheel in fetched.wheels)
        inputs = ["native", FORMAT, recipe["config"], digests, stack.python, stack.variant, hashes]
        what = f"assembling the native image of {stack.name} ({stack.variant})"
        kept, fields = keep_image(
            inputs, what, lambda folder: _assemble(stack, fetched.wheels, base, recipe, folder)
        )
    except UnavailableError as error:
        return _missing(stack, fetched, str(error))
    return OciRecord(
        **{**_shared(stack, fetched), **fields},
        tree=TreeFacts(inside=kept.about["packages"], digest=kept.about["image"]["layers"][-1]),
        python=kept.about["python"],
        details=kept.about["details"],
    ).replace(seconds={"fetch": fetched.seconds, "base": base.seconds, **kept.about["seconds"]})


def native_base(recipe: Mapping[str, Any], python: str) -> Base:
    """The ordinary image's base if it has this Python, else the distribution's; UnavailableError without one."""
    base = get_base(recipe["base"])
    if has_python(base, python):
        return base
    packages = [name.format(python=python) for name in recipe["native"]["packages"]]
    debian = recipe["base"]["debian"]
    wider = {**debian, "packages": [*debian["packages"], *packages]}
    found = debian_base(wider, base.reason or f"{base.name} has no Python {python}")
    if not has_python(found, python):
        raise UnavailableError(f"{found.name} with {', '.join(packages)} has no Python {python}")
    return found


def has_python(base: Base, version: str) -> bool:
    """Whether a base holds the program of a CPython of `version` where one is looked for."""
    wanted = {f"{prefix}/bin/python{version}" for prefix in PREFIXES}
    for layer in base.layers:
        with opened(layer.path) as archive:
            if any(member.isfile() and member.name.removeprefix("./") in wanted for member in archive):
                return True
    return False


def _assemble(
    stack: Stack, wheels: Sequence[Wheel], base: Base, recipe: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Install into the unpacked base, and write what that changed as a layer of the archive."""
    seconds, started = {}, time.monotonic()

    def timed(name: str) -> None:
        nonlocal started
        seconds[name] = round(time.monotonic() - started, 3)
        started = time.monotonic()

    with tempfile.TemporaryDirectory(prefix=".root-", dir=folder.parent) as name:
        root = Path(name).resolve() / "root"
        root.mkdir()
        unpack([Blob(path=layer.path) for layer in base.layers], root)
        guest = find_guest(root, stack.python)
        if guest is None:
            raise UnavailableError(f"{base.name} has no Python {stack.python} that can be run")
        before = snapshot(root)
        timed("native_unpack")
        _install_wheels(wheels, guest, before)
        timed("native_install")
        _, uncompiled = compile_sources(guest)
        timed("native_compile")
        _try_imports(stack, guest, base)
        changed, gone = differences(before, snapshot(root))
        timed("native_check")
        layer = FolderLayer(
            root=root,
            entries=[_entry(root, path) for path in changed],
            removed=whiteouts(gone),
            made_by=f"{len(wheels)} packages for {guest.python}",
        )
        image = assemble(
            [*base.layers, layer],
            config=recipe["config"],
            labels={"tare.stack": stack.name, "tare.variant": stack.variant, "tare.install": "native"},
            name=f"tare/{stack.name}-native",
            folder=folder,
        )
    timed("assemble")
    return {
        "image": image,
        "base": base_fields(base),
        "python": str(guest.python),
        "packages": str(guest.packages),
        "seconds": seconds,
        "details": {"python_version": guest.version, "sources_without_bytecode": uncompiled},
    }


def _install_wheels(wheels: Sequence[Wheel], guest: Guest, before: Mapping[str, int]) -> None:
    packages = guest.outside(guest.packages)
    packages.mkdir(parents=True, exist_ok=True)
    names = {canonicalize_name(wheel.name) for wheel in wheels}
    for info in sorted(packages.glob("*.dist-info")):
        if canonicalize_name(info.name.partition("-")[0]) in names:
            remove_distribution(info, guest.root)
    for wheel in wheels:
        prefix = guest.python.parent.parent
        scheme = {
            "purelib": str(guest.packages),
            "platlib": str(guest.packages),
            "headers": str(prefix / "include" / f"python{guest.version.rpartition('.')[0]}" / wheel.name),
            "scripts": str(guest.python.parent),
            "data": str(prefix),
        }
        destination = SchemeDictionaryDestination(
            scheme, str(guest.python), "posix", destdir=str(guest.root), overwrite_existing=True
        )
        try:
            with WheelFile.open(wheel.path) as source:
                install(source, destination, {"INSTALLER": b"installer\n"})
        except (InstallerError, ValueError, KeyError) as error:
            raise UnavailableError(f"{wheel.path.name} can't be installed: {error}") from error
    changed, _ = differences(dict(before), snapshot(guest.root))
    for name in changed:  # before compiling: bytecode names its source's time
        os.utime(guest.root / name, (EPOCH_S, EPOCH_S), follow_symlinks=False)


def remove_distribution(info: Path, root: Path) -> None:
    """Remove an installed package by its list of files, as an installer does before it installs another version."""
    with (info / "RECORD").open(encoding="utf-8", newline="") as handle:
        names = [row[0] for row in csv.reader(handle) if row]
    for name in names:
        path = info.parent / name
        if path.parent.resolve().is_relative_to(root.resolve()):
            path.unlink(missing_ok=True)
    shutil.rmtree(info)


def _try_imports(stack: Stack, guest: Guest, base: Base) -> None:
    """Import the stack with the base's own interpreter, and see that the base has every library that this needs."""
    finished = run_guest(guest, ["-c", import_code(stack)], timeout_s=CHECK_S)
    if not finished.ok:
        raise UnavailableError(f"{stack.name} in {base.name} does not import: {finished.explain()}")
    outside = needed_from_outside(finished.stdout, guest.root)
    if outside:
        raise UnavailableError(f"{base.name} lacks libraries of {stack.name}: {', '.join(outside)}")


def needed_from_outside(maps: str, root: Path) -> list[str]:
    """Libraries of this machine that a process can't do without, unlike those that a package opens if there."""
    outside = foreign_libraries(maps, root)
    inside = {
        Path(line.split(maxsplit=5)[5]) for line in maps.splitlines() if f" {root}/" in line and ".so" in line
    }
    needed = {soname for path in inside if (dynamic := read_dynamic(path)) for soname in dynamic.needed}
    read = ((path, read_dynamic(Path(path))) for path in outside)
    return sorted(path for path, own in read if ((own and own.soname) or Path(path).name) in needed)


def _entry(root: Path, path: str) -> dict[str, Any]:
    status = (root / path).lstat()
    if stat.S_ISLNK(status.st_mode):
        return {"path": path, "link": str((root / path).readlink())}
    return {"path": path, "mode": 0o755 if status.st_mode & stat.S_IXUSR else 0o644, "size": status.st_size}
