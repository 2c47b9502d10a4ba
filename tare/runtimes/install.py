"""Installs the container runtimes that are missing, as root on a Debian-family machine.

Standard library only: `python3.11 -m tare.runtimes.install` works before the virtual environment exists.
RUNTIMES=system forbids any installation.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tare.core.arguments import Parser, status_of
from tare.core.errors import UserError, apt_has_lists, as_we_can
from tare.core.files import locked, write_text
from tare.core.machine_lock import alone_on_this_machine
from tare.core.process import MARK, at_death, run
from tare.core.progress import say
from tare.runtimes.apptainer import install_apptainer
from tare.runtimes.programs import (
    ONLY_ROOT,
    SYSTEM_PATH,
    Want,
    added,
    added_path,
    choose_packages,
    failed_lately,
    find_apptainer,
    install_missing,
    lock_path,
    may_install,
    missing,
    note_added,
    record_path,
    removed_path,
    taken_away,
    which,
)

POLICY = Path("/usr/sbin/policy-rc.d")
ENABLED = Path("/etc/systemd/system")
UNIT = re.compile(r"/systemd/system/[^/@]+\.(?:path|service|socket|timer)$")
# An installation that outlives us for a while has the mark of what we start.
POLICY_TEXT = """#!/bin/sh
# Written by Tare: no service starts for a package that its process {pid} installs; afterwards this file goes.
[ -n "${mark}" ] && exit 101
set -- $(sed 's/.*) //' /proc/{pid}/stat 2>/dev/null)
[ "${{20}}" = {ticks} ] && [ "$1" != Z ] && exit 0
rm -f "$0"
exit 0
"""


def install() -> int:
    """Install what is missing, or say what is and why it is left; always 0, since Tare reports what it lacks."""
    if os.environ.get("RUNTIMES", "") not in ("", "auto", "system"):
        raise UserError(f"RUNTIMES={os.environ['RUNTIMES']!r}: it may be 'system' (install nothing) or unset")
    if added_path().exists() and added("unsettled"):
        keep_services_off()
    wants = wanted()
    if not wants and find_apptainer():
        return 0
    if reason := may_install():
        for want in wants:
            say(f"missing: {want.programs[0]} (for {want.purpose}); not installed ({reason})")
        if not find_apptainer():
            say(f"missing: apptainer; not installed ({reason})")
        if reason == ONLY_ROOT and (command := command_for(wants)):
            say(f"to have them: {as_we_can(command)}")
        return 0
    with installing():
        if wants := [want for want in wanted() if not any(failed_lately(name) for name in want.packages)]:
            install_missing(wants)
        if not taken_away():
            removed_path().unlink(missing_ok=True)
        if not find_apptainer() and not failed_lately("apptainer"):
            install_apptainer()
    given_up = [want.programs[0] for want in missing()] + ([] if find_apptainer() else ["apptainer"])
    keep_services_off()
    if given_up:
        say(f"still missing: {', '.join(given_up)}; tried again in 6 hours, or at once without {record_path()}")
    return 0


def wanted() -> list[Want]:
    """What is wanted and not here: for every study, and what was taken away that some study had wanted."""
    found = missing()
    known = {name for want in found for name in want.packages}
    again = [name for name in taken_away() if name not in known]
    return [*found, *(Want(programs=(name,), packages=(name,), purpose="what used it before") for name in again)]


@contextlib.contextmanager
def installing() -> Iterator[None]:
    """Be the only one that installs, on a machine on which nobody measures, and without services that start.

    Whoever measures is named and waited for.
    """
    with (
        alone_on_this_machine("it installs what measurements take"),
        locked(lock_path(), waiting_for="the installation of the runtimes"),
        without_services(),
    ):
        yield


def command_for(wants: list[Want]) -> str | None:
    """The command that installs what is missing; None where the distribution has nothing of it.

    Where apt has no lists yet it is not known what this release calls them: then those that every release has,
    with all that they recommend (Docker's client is in its daemon's package, or recommended by it).
    """
    if which("apt-get") and apt_has_lists():
        packages, _ = choose_packages(wants)
        options = ["--no-install-recommends"]
    else:
        packages, options = list(dict.fromkeys(want.packages[-1] for want in wants)), []
    return " ".join(["apt-get", "install", *options, *packages]) if packages else None


def install_for(
    purpose: str, packages: Mapping[str, str | Sequence[str]], find: Callable[[str], object] | None = None
) -> None:
    """Install what an environment or a stack needs besides, where we may; what can't be had is told later.

    Args:
        purpose: the environment or the stack, as people read it.
        packages: program or library -> the Debian package that brings it, or those of which one does.
        find: says whether one is on this machine; None for programs on its paths.
    """
    find = find or which
    named = {name: (one,) if isinstance(one, str) else tuple(one) for name, one in packages.items()}
    wants = [
        Want(programs=(name,), packages=brings, purpose=purpose)
        for name, brings in named.items()
        if not find(name) and not any(map(failed_lately, brings))
    ]
    if not wants or may_install():
        return
    with installing():
        install_missing([want for want in wants if not find(want.programs[0])])
    keep_services_off()


@contextlib.contextmanager
def without_services() -> Iterator[None]:
    """Keep packages from starting services while they are installed, where nothing else decides that.

    The daemon that a measurement uses is started when it is needed, and not beside it.
    """
    if POLICY.exists() and "Written by Tare" in POLICY.read_text(errors="replace"):
        # Of an installation that was killed with its guard: it removes itself.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["/bin/sh", str(POLICY)], timeout=20, check=False, env={"PATH": SYSTEM_PATH})
    if POLICY.exists():
        yield
        return
    me = os.getpid()
    ticks = Path(f"/proc/{me}/stat").read_text().rpartition(")")[2].split()[19]
    with at_death(str(POLICY), commands=[["rm", "-f", str(POLICY)]], env={"PATH": SYSTEM_PATH}):
        try:
            write_text(POLICY, POLICY_TEXT.format(mark=MARK, pid=me, ticks=ticks))
            POLICY.chmod(0o755)
            yield
        finally:
            POLICY.unlink(missing_ok=True)


def keep_services_off() -> None:
    """Services of packages that we added do not start with the machine either; says which.

    A unit's link goes as `systemctl disable` takes it, which is not there on every machine with packages of units.
    """
    names = added("unsettled")
    if not names:
        return
    files = run(["dpkg", "--listfiles", *names], timeout_s=60).stdout.splitlines()
    units = {Path(line).name for line in files if UNIT.search(line)}
    links = [link for link in ENABLED.glob("*.wants/*") if link.name in units]
    for link in links:
        link.unlink(missing_ok=True)
    for line in files:
        if line.startswith("/etc/init.d/"):
            run(["update-rc.d", Path(line).name, "disable"], timeout_s=60, env={"PATH": SYSTEM_PATH})
    if links:
        say(f"installed, and off until they are enabled: {', '.join(sorted({link.name for link in links}))}")
    note_added(added(), [])


def interrupt(number: int, frame: object) -> None:
    """A polite end is an interruption: what was started comes to its end, and nothing of it is left."""
    raise KeyboardInterrupt


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = Parser(
        prog="python3 -m tare.runtimes.install",
        description="Install the container runtimes that are missing, as root on Debian and its family.",
        epilog="RUNTIMES=system forbids it; `make clean-runtimes` takes away what it installed.",
    )

    def work() -> int:
        parser.parse_args(argv)
        signal.signal(signal.SIGTERM, interrupt)
        return install()

    return status_of(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
