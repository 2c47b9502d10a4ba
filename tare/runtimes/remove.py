"""Takes away what Tare left on this machine: packages that were not there before, the relocated Apptainer, and
images that it loaded into a Docker daemon of the machine's own.

`python3 -m tare.runtimes.remove` (`make clean-runtimes`); standard library only. Packages that something of the
machine's own has come to need since stay, and are named.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

from tare.core.errors import TareError
from tare.core.files import locked
from tare.core.progress import say, step
from tare.runtimes import daemon_images
from tare.runtimes.programs import (
    APT_S,
    added,
    added_path,
    apt,
    in_pieces,
    lock_path,
    may_install,
    note_added,
    record_path,
    relocated_prefix,
)

REMOVE = ("apt-get", "purge", "--yes")


def remove() -> int:
    """Take away what is recorded, and say what went and what stays; 0 when nothing had to stay."""
    emptied = daemon_images.remove()  # before the client goes
    return remove_packages() if emptied else remove_packages() or 3


def remove_packages() -> int:
    """Take away packages and the relocated Apptainer; 0 when nothing had to stay."""
    with locked(lock_path(), waiting_for="the installation of the runtimes"):
        if relocated_prefix().exists():
            shutil.rmtree(relocated_prefix())
            say(f"removed the relocated Apptainer of {relocated_prefix()}")
        ours = added() if added_path().exists() else []
        if not ours:
            record_path().unlink(missing_ok=True)
            added_path().unlink(missing_ok=True)
            say("no package is here that Tare installed")
            return 0
        if reason := may_install(asked=True):
            say(f"{', '.join(ours)} stay: {reason}")
            return 3
        if reason := in_pieces():
            say(f"{', '.join(ours)} stay: {reason}")
            return 3
        going = removable(ours)
        if going:
            with step(f"removing {', '.join(going)}"):
                done = apt(*REMOVE, *going, patience_s=APT_S)
            if not done.ok:
                say(f"not removed: {done.explain()}")
        staying = added()
        gone = [name for name in ours if name not in staying]
        say(f"removed {len(gone)} of {len(ours)} packages that Tare had installed")
        note_added(staying, [])
        if staying:
            say(f"{', '.join(staying)} stay: something that was installed since needs them")
            return 3
        record_path().unlink(missing_ok=True)
        added_path().unlink(missing_ok=True)
        return 0


def removable(ours: list[str]) -> list[str]:
    """Those of our packages whose removal takes nothing of the machine's own along."""
    if takes(ours) <= set(ours):
        return ours
    chosen: list[str] = []
    for name in ours:
        if takes([*chosen, name]) <= set(ours):
            chosen.append(name)
    return chosen


def takes(packages: list[str]) -> set[str]:
    """What apt would remove with these packages.

    Raises:
        TareError: apt refuses.
    """
    plan = apt(*REMOVE, "--simulate", *packages)
    if not plan.ok:
        raise TareError(f"apt would not remove them: {plan.explain()}")
    return set(re.findall(r"^(?:Purg|Remv) (\S+) \[", plan.stdout, re.MULTILINE))


if __name__ == "__main__":
    try:
        sys.exit(remove())
    except KeyboardInterrupt:
        sys.exit(130)
    except (TareError, OSError, subprocess.SubprocessError) as error:
        print(f"tare: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
