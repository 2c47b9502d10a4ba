"""Where the programs of container runtimes are; apt, and the record of the packages that it added for us.

Standard library only, for it serves before the virtual environment exists. What the machine has is used as it is.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from tare.core.files import cache_dir, cache_path, home_dir, read_json, write_json
from tare.core.process import Finished, run
from tare.core.progress import say, step
from tare.runtimes.table import WANTED, Want

APT_S = 600.0
APT_OPTIONS = ("-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20")
INSTALL = ("apt-get", "install", "--yes", "--no-install-recommends")
ONLY_ROOT = "only root can"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# --- programs


def relocated_prefix() -> Path:
    """Where an Apptainer of a newer Debian suite is, with its own libc."""
    return cache_path("runtimes", "apptainer")


def which(name: str) -> Path | None:
    """A program on the PATH, in the system's folders (a user's PATH often lacks sbin), or relocated by us."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}:{relocated_prefix()}/usr/bin")
    return Path(found) if found else None


def find_apptainer() -> Path | None:
    """The machine's `apptainer` or `singularity`, or the relocated one."""
    return which("apptainer") or which("singularity")


def origin(program: Path) -> str:
    """Where a program came from: `path` (the machine's own) or `relocated` (ours, in the cache)."""
    return "relocated" if program.is_relative_to(relocated_prefix()) else "path"


def where(names: Iterable[str]) -> dict[str, str | None]:
    """Where programs are now: what an old finding of `unavailable` is compared with."""
    return {name: str(path) if (path := which(name)) else None for name in sorted(names)}


def missing(wants: Iterable[Want] = WANTED) -> list[Want]:
    """What is wanted and not here; Docker's parts only where no daemon answers."""
    lacking = [want for want in wants if not any(map(which, want.programs))]
    if any(want.purpose == "Docker" for want in lacking):
        from tare.runtimes.daemon import machine_answers

        if which("docker") and (os.environ.get("DOCKER_HOST") or machine_answers()):
            lacking = [want for want in lacking if want.purpose != "Docker"]
    return lacking


# --- what was done


def lock_path() -> Path:
    """Held by whoever installs or removes."""
    return cache_path("runtimes", "lock")


def added_path() -> Path:
    """The record of packages that were not here before Tare installed them."""
    return cache_path("runtimes", "packages.json")


def added() -> list[str]:
    """Packages that Tare added, those that came along included, as far as they are installed."""
    names = read_json(added_path())["all"] if added_path().exists() else []
    if not names:
        return []
    shown = run(["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n"], timeout_s=60)
    present = {name for name, status in map(str.split, shown.stdout.splitlines()) if status != "config-files"}
    return [name for name in names if name in present]


def note_added(packages: Iterable[str]) -> None:
    """Write the record of added packages; without any there is none."""
    if names := sorted(set(packages)):
        write_json(added_path(), {"all": names})
    else:
        added_path().unlink(missing_ok=True)


# --- apt


def may_install(asked: bool = False) -> str | None:
    """None where we may install, or, when `asked` to, take away what we installed; else why not."""
    if not asked and os.environ.get("RUNTIMES") == "system":
        return "RUNTIMES=system"
    if os.getuid() != 0:
        return ONLY_ROOT
    if not (which("apt-get") and which("dpkg")):
        return "not a Debian-family machine"
    return None


def apt(*arguments: str, timeout_s: float = APT_S, patience_s: float = 0.0, cwd: Path | None = None) -> Finished:
    """Run apt-get, apt-cache or dpkg without questions, in the folder `cwd`; its output is kept, not shown."""
    options = () if arguments[0] == "dpkg" else APT_OPTIONS
    variables = {
        **{key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")},
        "PATH": SYSTEM_PATH,
        "HOME": str(home_dir()),
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    argv = [arguments[0], *options, *arguments[1:]]
    return run(argv, timeout_s=timeout_s, env=variables, patience_s=patience_s, cwd=cwd)


def candidate(package: str) -> str | None:
    """The version of a package that apt would install; None where it knows none."""
    for line in apt("apt-cache", "policy", package, timeout_s=60).stdout.splitlines():
        name, _, version = line.strip().partition(": ")
        if name == "Candidate":
            return None if version == "(none)" else version
    return None


def choose_packages(wants: Iterable[Want]) -> tuple[list[str], list[Want]]:
    """(packages to install, wants for which apt knows no package)."""
    chosen: dict[str, None] = {}
    unknown = []
    for want in wants:
        if package := next(filter(candidate, want.packages), None):
            chosen[package] = None
        else:
            unknown.append(want)
    return list(chosen), unknown


def install_missing(wants: Sequence[Want]) -> None:
    """Install what is wanted from the distribution, and say what could not be had."""
    packages, unknown = choose_packages(wants)
    if unknown:
        with step("reading the distribution's package lists"):
            apt("apt-get", "update")
        packages, unknown = choose_packages(wants)
    for want in unknown:
        say(f"{want.programs[0]} (for {want.purpose}): no package {' or '.join(want.packages)} here")
    if packages:
        with step(f"installing {', '.join(packages)}"):
            failed = install_packages(packages)
        for reason in dict.fromkeys(failed.values()):
            alike = [package for package in packages if failed.get(package) == reason]
            say(f"{', '.join(alike)} could not be installed: {reason}")


def install_packages(packages: Sequence[str]) -> dict[str, str]:
    """Install Debian packages, together and, should that fail, one by one; returns package -> why it failed."""
    if _install(packages) is None:
        return {}
    outcomes = {package: _install([package]) for package in packages}
    return {package: reason for package, reason in outcomes.items() if reason}


def _install(packages: Sequence[str]) -> str | None:
    """Install packages, of which a record is kept first; why it failed. Only downloads may be cut short."""
    archives = cache_dir("runtimes", "archives")
    base = (*INSTALL, "-o", f"Dir::Cache::archives={archives}", "-o", "APT::Sandbox::User=root")
    try:
        plan = apt(*base, "--simulate", *packages)
        if not plan.ok:
            return plan.explain()
        note_added([*added(), *re.findall(r"^Inst (\S+) \(", plan.stdout, re.MULTILINE)])
        download = apt(*base, "--download-only", *packages)
        done = apt(*base, *packages, patience_s=APT_S) if download.ok else download
        return None if done.ok else done.explain()
    finally:
        shutil.rmtree(archives, ignore_errors=True)
