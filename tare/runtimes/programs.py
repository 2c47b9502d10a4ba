"""Knows the container runtimes: which programs they need, where those are, which package of Debian brings one.

Standard library only, for it serves before the virtual environment exists. What the machine has is used as it is.
What was installed, and how, is recorded in the cache.
"""

from __future__ import annotations

import calendar
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core.errors import as_we_can
from tare.core.files import cache_dir, cache_path, home_dir, read_json, write_json
from tare.core.process import Finished, run
from tare.core.progress import say, step

APT_S = 600.0
RETRY_S = 6 * 3600.0
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
APT_OPTIONS = ("-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20")
DPKG_JOURNAL = Path("/var/lib/dpkg/updates")
PIECES = {"half-installed", "unpacked", "half-configured"}
ONLY_ROOT = "only root can"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Want:
    """Programs that something needs, one of which is enough, and the Debian packages that bring them."""

    programs: tuple[str, ...]
    packages: tuple[str, ...]
    purpose: str


WANTED = (
    Want(programs=("dockerd",), packages=("docker.io",), purpose="Docker"),
    Want(programs=("docker",), packages=("docker-cli", "docker.io"), purpose="Docker"),
    Want(programs=("ch-run",), packages=("charliecloud-runtime", "charliecloud"), purpose="Charliecloud"),
    Want(programs=("mksquashfs",), packages=("squashfs-tools",), purpose="Apptainer"),
    Want(programs=("squashfuse_ll", "squashfuse"), packages=("squashfuse",), purpose="Apptainer"),
    Want(programs=("fusermount3", "fusermount"), packages=("fuse3",), purpose="Apptainer"),
    Want(programs=("newuidmap",), packages=("uidmap",), purpose="Apptainer"),
    Want(programs=("mmdebstrap",), packages=("mmdebstrap",), purpose="the base image"),
    Want(programs=("setpriv",), packages=("util-linux",), purpose="launches"),
)


def relocated_prefix() -> Path:
    """Where an Apptainer of a newer Debian suite lies, with its own libc."""
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


def missing() -> list[Want]:
    """What is wanted and not here, Apptainer itself apart; Docker's parts only where no daemon answers."""
    lacking = [want for want in WANTED if not any(which(name) for name in want.programs)]
    if any(want.purpose == "Docker" for want in lacking):
        from tare.runtimes.daemon import machine_answers

        if which("docker") and (os.environ.get("DOCKER_HOST") or machine_answers()):
            lacking = [want for want in lacking if want.purpose != "Docker"]
    return lacking


def lock_path() -> Path:
    """Held by whoever installs."""
    return cache_path("runtimes", "lock")


def record_path() -> Path:
    """The record of what was installed, and how."""
    return cache_path("runtimes", "installed.json")


def installed() -> dict[str, Any]:
    """What earlier runs installed: name -> how, when, from where."""
    return read_json(record_path()) if record_path().exists() else {}


def note(name: str, **facts: Any) -> None:
    """Add to the record."""
    write_json(record_path(), {**installed(), name: {**facts, "at": time.strftime(TIME_FORMAT, time.gmtime())}})


def failed_lately(name: str) -> bool:
    """Whether an installation failed less than RETRY_S ago, so that each run need not wait for it again."""
    facts = installed().get(name)
    if facts is None or facts["how"] is not None:
        return False
    when = calendar.timegm(time.strptime(facts["at"], TIME_FORMAT))
    return 0 <= time.time() - when < RETRY_S


def added_path() -> Path:
    """The record of packages that were not here before Tare installed them."""
    return cache_path("runtimes", "packages.json")


def added(kind: str = "all") -> list[str]:
    """Packages that Tare added, those that came along included, as far as they are installed.

    Args:
        kind: `all`, or `unsettled`: those whose services have not been looked at.
    """
    names = read_json(added_path())[kind] if added_path().exists() else []
    present = packages_by_status()
    return [name for name in names if present.get(name, "config-files") != "config-files"]


def removed_path() -> Path:
    """The record of packages that were wanted by name and that `make clean-runtimes` took away."""
    return cache_path("runtimes", "removed.json")


def note_removed(gone: Iterable[str]) -> None:
    """Write down which of these were wanted by name, for a runtime or a stack: the next set-up brings them back."""
    wanted = [name for name in gone if installed().get(name, {}).get("how") is not None]
    if wanted:
        write_json(removed_path(), sorted({*taken_away(), *wanted}))


def taken_away() -> list[str]:
    """Those that were, and are not here again."""
    names = read_json(removed_path()) if removed_path().exists() else []
    present = packages_by_status() if names else {}
    return [name for name in names if present.get(name, "config-files") == "config-files"]


def packages_by_status() -> dict[str, str]:
    """Every package that dpkg has anything of, with its state."""
    shown = run(["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n"], timeout_s=60)
    return dict(line.split() for line in shown.stdout.splitlines())


def note_added(every: list[str], unsettled: list[str]) -> None:
    """Write the record of added packages."""
    write_json(added_path(), {"all": sorted(every), "unsettled": sorted(unsettled)})


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


def choose_packages(wants: list[Want]) -> tuple[list[str], list[Want]]:
    """(packages to install, wants for which apt knows no package)."""
    chosen, unknown = [], []
    for want in wants:
        package = next((name for name in want.packages if candidate(name)), None)
        if package is None:
            unknown.append(want)
        elif package not in chosen:
            chosen.append(package)
    return chosen, unknown


def install_packages(packages: list[str]) -> dict[str, str]:
    """Install Debian packages, together and, should that fail, one by one; returns package -> why it failed."""
    if reason := in_pieces():
        return dict.fromkeys(packages, reason)
    if _install(packages) is None:
        return {}
    outcomes = {package: _install([package]) for package in packages}
    return {package: reason for package, reason in outcomes.items() if reason}


def _install(packages: list[str]) -> str | None:
    """Install packages; why it failed.

    What apt is going to add is recorded first. Downloads go into our cache and may be cut short; unpacking may not.
    """
    archives = cache_dir("runtimes", "archives")
    base = (
        *("apt-get", "install", "--yes", "--no-install-recommends"),
        *("-o", f"Dir::Cache::archives={archives}", "-o", "APT::Sandbox::User=root"),
    )
    try:
        plan = apt(*base, "--simulate", *packages)
        if not plan.ok:
            return plan.explain()
        new = re.findall(r"^Inst (\S+) \(", plan.stdout, re.MULTILINE)
        note_added([*{*added(), *new}], [*{*added("unsettled"), *new}])
        download = apt(*base, "--download-only", *packages)
        if not download.ok:
            return download.explain()
        done = apt(*base, *packages, patience_s=APT_S)
        return None if done.ok else done.explain()
    finally:
        shutil.rmtree(archives, ignore_errors=True)


def in_pieces() -> str | None:
    """Why nothing can be installed where dpkg was cut short; what of it is ours is brought to its end first."""
    if not _journal():
        return None
    broken = {name for name, status in packages_by_status().items() if status in PIECES}
    if broken and broken <= set(added()):
        with step("finishing an installation that was interrupted"):
            apt("dpkg", "--configure", "--pending", patience_s=APT_S)
        if not _journal():
            return None
    names = f" of {', '.join(sorted(broken)[:4])}" if broken else ""
    return f"an installation{names} was interrupted; mend it: {as_we_can('dpkg --configure --pending')}"


def _journal() -> list[Path]:
    """What dpkg has not yet taken over into its status: apt refuses to go on while there is any."""
    return [path for path in DPKG_JOURNAL.glob("*") if path.name.isdigit()]


def install_missing(wants: list[Want]) -> None:
    """Install what is wanted from the distribution, and say what could not be had."""
    packages, unknown = choose_packages(wants)
    if unknown:
        with step("reading the distribution's package lists"):
            apt("apt-get", "update")
        packages, unknown = choose_packages(wants)
    for want in unknown:
        say(f"{want.programs[0]} (for {want.purpose}): no package {' or '.join(want.packages)} here")
        note(want.packages[0], how=None)
    if not packages:
        return
    with step(f"installing {', '.join(packages)}"):
        failed = install_packages(packages)
    for reason in dict.fromkeys(failed.values()):
        alike = [package for package in packages if failed.get(package) == reason]
        say(f"{', '.join(alike)} could not be installed: {reason}")
    for package in packages:
        if package in failed:
            note(package, how=None)
        else:
            note(package, how="the distribution's package", version=candidate(package))


def may_install(asked: bool = False) -> str | None:
    """None where we may install, or, when `asked` to, take away what we installed; else why not."""
    if not asked and os.environ.get("RUNTIMES") == "system":
        return "RUNTIMES=system"
    if os.getuid() != 0:
        return ONLY_ROOT
    if not (which("apt-get") and which("dpkg")):
        return "not a Debian-family machine"
    return None
