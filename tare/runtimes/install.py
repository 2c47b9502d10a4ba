"""Installs what the table (tare.runtimes.table) names and this machine lacks, as root on a Debian-family machine.

Standard library only: it works before the virtual environment exists. RUNTIMES=system forbids any installation.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tare.core.errors import TareError, UserError, apt_has_lists, as_we_can, reason_of
from tare.core.files import locked, write_text
from tare.core.machine_lock import alone_on_this_machine
from tare.core.process import at_death, run
from tare.core.progress import say
from tare.runtimes.apptainer import install_relocated
from tare.runtimes.programs import (
    INSTALL,
    ONLY_ROOT,
    SYSTEM_PATH,
    added,
    choose_packages,
    find_apptainer,
    install_missing,
    lock_path,
    may_install,
    missing,
    which,
)
from tare.runtimes.table import FOR, RELOCATED, RELOCATED_SUITE, Want

POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = "#!/bin/sh\n# Written by Tare: no service starts while it installs; then this file goes.\nexit 101\n"
ENABLED = Path("/etc/systemd/system")
UNIT = re.compile(r"/systemd/system/[^/@]+\.(?:path|service|socket|timer)$")


def install(purpose: str = "run", *, dry_run: bool = False) -> int:
    """Install what `purpose`, `run` or `test`, lacks, or only say it (`dry_run`, or why it is left); always 0."""
    if os.environ.get("RUNTIMES", "") not in ("", "auto", "system"):
        raise UserError(f"RUNTIMES={os.environ['RUNTIMES']!r}: it must be 'system' (install nothing) or unset")
    wants, reason = missing(FOR[purpose]), may_install()
    if wants and (reason or dry_run):
        say(f"missing, and not installed ({reason or 'a dry run'}): {listed(wants)}")
        if (dry_run or reason == ONLY_ROOT) and (command := command_for(wants)):
            say(f"to install them: {as_we_can(command)}")
        if dry_run and not find_apptainer():
            say(f"{RELOCATED}, if this release has none: from the suite {RELOCATED_SUITE}, into the cache")
    elif wants:
        with installing():
            install_missing(missing(FOR[purpose]))
            if not find_apptainer():
                try:
                    say(
                        f"{RELOCATED}: relocated from the archive's suite {RELOCATED_SUITE} ({install_relocated()})"
                    )
                except (TareError, OSError) as error:
                    say(f"{RELOCATED} is unavailable: {getattr(error, 'reason', None) or reason_of(error)}")
        if left := missing(FOR[purpose]):
            names = listed(left)
            say(f"still missing: {names}; commands that need it will say so, and the next set-up tries again")
    return 0


def listed(wants: Sequence[Want]) -> str:
    """Programs and what they are for, as a person reads them."""
    return ", ".join(f"{want.programs[0]} (for {want.purpose})" for want in wants)


def command_for(wants: Sequence[Want]) -> str | None:
    """The command that installs what is missing; None where the distribution has nothing of it.

    Where apt has no lists yet it is not known what this release calls them: then those that every release has,
    with all that they recommend (Docker's client is in its daemon's package, or recommended by it).
    """
    if which("apt-get") and apt_has_lists():
        packages, _ = choose_packages(wants)
        options = ["--no-install-recommends"]
    else:
        every = [want.packages[-1] for want in wants if RELOCATED not in want.packages]
        packages, options = list(dict.fromkeys(every)), []
    return " ".join([*INSTALL[:2], *options, *packages]) if packages else None


def install_for(
    purpose: str, packages: Mapping[str, str | Sequence[str]], find: Callable[[str], object] | None = None
) -> None:
    """Install what else `purpose` (an environment or a stack, in words) needs, where we may. `packages`: program
    or library -> the Debian package or packages of which one brings it; `find`: whether one is here, None for
    paths.
    """
    find = find or which
    wants = [
        Want(programs=(name,), packages=(brings,) if isinstance(brings, str) else tuple(brings), purpose=purpose)
        for name, brings in packages.items()
        if not find(name)
    ]
    if not wants or may_install():
        return
    with installing():
        install_missing([want for want in wants if not find(want.programs[0])])


@contextlib.contextmanager
def installing() -> Iterator[None]:
    """Be the only installer, on a machine where nobody measures (who is waited for), and no services start."""
    with (
        alone_on_this_machine("it installs programs for measurements"),
        locked(lock_path(), waiting_for="the installation of the runtimes"),
        without_services(),
    ):
        before = added()
        try:
            yield
        finally:
            keep_services_off([name for name in added() if name not in before])


@contextlib.contextmanager
def without_services() -> Iterator[None]:
    """Keep packages' services from starting at their installation, where nothing else decides that."""
    if POLICY.exists() and "Written by Tare" not in POLICY.read_text(errors="replace"):
        yield
        return
    with at_death(str(POLICY), commands=[["rm", "-f", str(POLICY)]], env={"PATH": SYSTEM_PATH}):
        try:
            write_text(POLICY, POLICY_TEXT)
            POLICY.chmod(0o755)
            yield
        finally:
            POLICY.unlink(missing_ok=True)


def keep_services_off(packages: Sequence[str]) -> None:
    """Services of added packages do not start with the machine; says which. It needs no systemctl."""
    if not packages:
        return
    files = run(["dpkg", "--listfiles", *packages], timeout_s=60).stdout.splitlines()
    units = {Path(line).name for line in files if UNIT.search(line)}
    links = [link for link in ENABLED.glob("*.wants/*") if link.name in units]
    for link in links:
        link.unlink(missing_ok=True)
    for line in files:
        if line.startswith("/etc/init.d/"):
            run(["update-rc.d", Path(line).name, "disable"], timeout_s=60, env={"PATH": SYSTEM_PATH})
    if links:
        say(f"installed, but off until you enable them: {', '.join(sorted({link.name for link in links}))}")


def interrupt(number: int, frame: object) -> None:
    """A polite end is an interruption: what was started comes to its end, and nothing of it is left."""
    raise KeyboardInterrupt
