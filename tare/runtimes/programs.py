"""Finds the container runtimes, and installs the missing ones as root on a Debian-family machine.

Standard library only: `python3.11 -m tare.runtimes.programs install` works before the virtual environment exists.
What the machine has is used as it is. RUNTIMES=system forbids any installation. What was installed, and how, is
recorded in the cache.
"""

from __future__ import annotations

import calendar
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.core.errors import TareError, UserError
from tare.core.files import cache_dir, locked, read_json, write_json, write_text
from tare.core.process import Finished, run
from tare.core.progress import say, step

APT_S = 600.0
RETRY_S = 6 * 3600.0
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
APT_OPTIONS = ("-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20")
POLICY = Path("/usr/sbin/policy-rc.d")
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
    return cache_dir("runtimes") / "apptainer"


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
    return cache_dir("runtimes") / "lock"


def record_path() -> Path:
    """The record of what was installed, and how."""
    return cache_dir("runtimes") / "installed.json"


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


def apt(*arguments: str, timeout_s: float = APT_S) -> Finished:
    """Run apt-get or apt-cache without questions; its output is kept, not shown."""
    variables = {
        **{key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")},
        "PATH": SYSTEM_PATH,
        "HOME": str(Path.home()),
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    return run([arguments[0], *APT_OPTIONS, *arguments[1:]], timeout_s=timeout_s, env=variables)


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
    base = ("apt-get", "install", "--yes", "--no-install-recommends")
    if apt(*base, *packages).ok:
        return {}
    outcomes = {package: apt(*base, package) for package in packages}
    return {package: outcome.explain() for package, outcome in outcomes.items() if not outcome.ok}


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
    for package in packages:
        if package in failed:
            say(f"{package} could not be installed: {failed[package]}")
            note(package, how=None)
        else:
            note(package, how="the distribution's package", version=candidate(package))


def may_install() -> str | None:
    """None where we may install; else why not."""
    if os.environ.get("RUNTIMES") == "system":
        return "RUNTIMES=system"
    if os.getuid() != 0:
        return "only root can install"
    if not (which("apt-get") and which("dpkg")):
        return "not a Debian-family machine"
    return None


def install() -> int:
    """Install what is missing, or say what is and why it is left; always 0, since Tare reports what it lacks."""
    if os.environ.get("RUNTIMES", "") not in ("", "auto", "system"):
        raise UserError(f"RUNTIMES={os.environ['RUNTIMES']!r}: it may be 'system' (install nothing) or unset")
    wants = missing()
    if not wants and find_apptainer():
        return 0
    if reason := may_install():
        for want in wants:
            say(f"missing: {want.programs[0]} (for {want.purpose}); not installed ({reason})")
        if not find_apptainer():
            say(f"missing: apptainer; not installed ({reason})")
        return 0
    from tare.runtimes.apptainer import install_apptainer

    with locked(lock_path(), waiting_for="the installation of the runtimes"), without_services():
        if wants := [want for want in missing() if not any(failed_lately(name) for name in want.packages)]:
            install_missing(wants)
        if not find_apptainer() and not failed_lately("apptainer"):
            install_apptainer()
    given_up = [want.programs[0] for want in missing()] + ([] if find_apptainer() else ["apptainer"])
    if given_up:
        say(f"still missing: {', '.join(given_up)}; tried again in 6 hours, or at once without {record_path()}")
    return 0


# Services start again by themselves once the process that installed is gone, also when it was killed.
POLICY_TEXT = """#!/bin/sh
# Written by Tare: no service starts while process {pid} installs packages; afterwards this file removes itself.
set -- $(sed 's/.*) //' /proc/{pid}/stat 2>/dev/null)
[ "${{20}}" = {ticks} ] && [ "$1" != Z ] && exit 101
rm -f "$0"
exit 0
"""
OLD_POLICY_TEXT = "#!/bin/sh\nexit 101\n"  # earlier versions left this behind when they were killed


@contextlib.contextmanager
def without_services() -> Iterator[None]:
    """Keep packages from starting services while they are installed, where nothing else decides that.

    The daemon that a measurement uses is started when it is needed, and not beside it.
    """
    heal_policy()
    if POLICY.exists():
        yield
        return
    me = os.getpid()
    ticks = Path(f"/proc/{me}/stat").read_text().rpartition(")")[2].split()[19]
    write_text(POLICY, POLICY_TEXT.format(pid=me, ticks=ticks))
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def heal_policy() -> None:
    """Remove a policy that a killed installation left: today's by itself, an earlier version's by its exact text.

    That text is a common one, so it counts as ours only if it is no older than our first installation here.
    """
    if not POLICY.exists():
        return
    text = POLICY.read_text(errors="replace")
    if "Written by Tare" in text:
        run(["/bin/sh", str(POLICY)], timeout_s=20)
    elif text == OLD_POLICY_TEXT and POLICY.stat().st_mtime >= lock_path().stat().st_mtime:
        POLICY.unlink()
        say(f"removed {POLICY}, which an installation that was killed had left: services start again")


def main(argv: list[str]) -> int:
    """`python3.11 -m tare.runtimes.programs install`."""
    if argv != ["install"]:
        print("usage: python3.11 -m tare.runtimes.programs install", file=sys.stderr)
        return 2
    try:
        return install()
    except (TareError, OSError, subprocess.SubprocessError) as error:
        print(f"tare: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
