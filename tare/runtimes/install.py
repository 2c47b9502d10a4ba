"""Installs the container runtimes that are missing, as root on a Debian-family machine.

Standard library only: `python3.11 -m tare.runtimes.install` works before the virtual environment exists.
RUNTIMES=system forbids any installation.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tare.core.errors import TareError, UserError
from tare.core.files import locked, write_text
from tare.core.process import run
from tare.core.progress import say
from tare.runtimes.apptainer import install_apptainer
from tare.runtimes.programs import (
    failed_lately,
    find_apptainer,
    install_missing,
    lock_path,
    may_install,
    missing,
    record_path,
)

POLICY = Path("/usr/sbin/policy-rc.d")
# Services start again by themselves once the process that installed is gone, also when it was killed.
POLICY_TEXT = """#!/bin/sh
# Written by Tare: no service starts while process {pid} installs packages; afterwards this file removes itself.
set -- $(sed 's/.*) //' /proc/{pid}/stat 2>/dev/null)
[ "${{20}}" = {ticks} ] && [ "$1" != Z ] && exit 101
rm -f "$0"
exit 0
"""


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
    with locked(lock_path(), waiting_for="the installation of the runtimes"), without_services():
        if wants := [want for want in missing() if not any(failed_lately(name) for name in want.packages)]:
            install_missing(wants)
        if not find_apptainer() and not failed_lately("apptainer"):
            install_apptainer()
    given_up = [want.programs[0] for want in missing()] + ([] if find_apptainer() else ["apptainer"])
    if given_up:
        say(f"still missing: {', '.join(given_up)}; tried again in 6 hours, or at once without {record_path()}")
    return 0


@contextlib.contextmanager
def without_services() -> Iterator[None]:
    """Keep packages from starting services while they are installed, where nothing else decides that.

    The daemon that a measurement uses is started when it is needed, and not beside it.
    """
    if POLICY.exists() and "Written by Tare" in POLICY.read_text(errors="replace"):
        run(["/bin/sh", str(POLICY)], timeout_s=20)  # of an installation that was killed: it removes itself
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


if __name__ == "__main__":
    try:
        sys.exit(install())
    except (TareError, OSError, subprocess.SubprocessError) as error:
        print(f"tare: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
