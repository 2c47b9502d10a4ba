"""Takes away what Tare left on this machine: packages that were not there before, the relocated Apptainer, and
images that it loaded into a Docker daemon of the machine's own.

`python3 -m tare.runtimes.remove` (`make clean-runtimes`); standard library only. Packages that something of the
machine's own has come to need since stay, and are named. While anything measures or a private daemon has users
nothing goes. The next set-up brings back what was wanted by name.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.core.arguments import Parser, status_of
from tare.core.errors import TareError, UnavailableError
from tare.core.files import locked
from tare.core.machine_lock import alone_on_this_machine
from tare.core.progress import say, step
from tare.machine import workflow_lock
from tare.runtimes import daemon, daemon_images
from tare.runtimes.programs import (
    APT_S,
    added,
    added_path,
    apt,
    in_pieces,
    lock_path,
    may_install,
    note_added,
    note_removed,
    record_path,
    relocated_prefix,
)

REMOVE = ("apt-get", "purge", "--yes")


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = Parser(
        prog="python3 -m tare.runtimes.remove",
        description="Take away the packages, the Apptainer and the images that Tare installed on this machine.",
        epilog="What was there before stays. On a terminal it asks; `make setup` brings back what it takes away.",
    )
    parser.add_argument("--dry-run", "-n", action="store_true", help="say what would go, and take nothing away")
    parser.add_argument("--yes", "-y", action="store_true", help="ask nothing")
    parser.add_argument("--check", action="store_true", help="only refuse where anything measures or uses a daemon")
    parser.add_argument("--check-folder", type=Path, help="only refuse where a workflow runs in this folder")

    def work() -> int:
        arguments = parser.parse_args(argv)
        if arguments.check_folder is not None:
            refuse_running(arguments.check_folder.resolve())
            return 0
        if arguments.check:
            with unused():
                return 0
        return show() if arguments.dry_run else remove(asks=not arguments.yes and sys.stdin.isatty())

    return status_of(work)


def show() -> int:
    """Say what `remove` would take away."""
    for line in listed() or ["nothing is here that Tare installed"]:
        say(line)
    return 0


def remove(*, asks: bool = False) -> int:
    """Take away what is recorded, and say what goes before, and what stays; 0 when nothing had to stay.

    Args:
        asks: whether a person at the terminal is asked first.

    Raises:
        UnavailableError: something measures, a study runs, or a private Docker daemon has users.
    """
    with unused():
        going = listed()
        for line in going:
            say(line)
        if going and asks and not agreed("    Take this away? [y/N] "):
            say("kept")
            return 0
        emptied = daemon_images.remove()  # before the client goes
        return remove_packages() if emptied else remove_packages() or 3


def agreed(question: str) -> bool:
    """Whether a person at the terminal says yes; the end of the input is none."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, UnicodeError):
        print()
        return False


@contextlib.contextmanager
def unused() -> Iterator[None]:
    """While the block runs nothing measures, no study runs, and no private Docker daemon does.

    Raises:
        UnavailableError: something does, which is named.
    """
    with alone_on_this_machine("it removes what measurements take", waits=False), daemon.without_users():
        refuse_running()
        yield


def refuse_running(folder: Path | None = None) -> None:
    """See that no workflow runs: anywhere on this machine, or in a folder.

    Raises:
        UnavailableError: one does, which is named.
    """
    found = [f"process {pid} in {at}" for pid, at in workflow_lock.running() if folder in (None, at)]
    if found:
        raise UnavailableError(f"a study runs: {'; '.join(found)}; wait until it has ended")


def listed() -> list[str]:
    """What is recorded and would go, a line for each kind."""
    lines = []
    for address, images in daemon_images.noted().items():
        lines.append(f"to go: {len(images)} images in a Docker daemon{f' at {address}' if address else ''}")
    if relocated_prefix().exists():
        lines.append(f"to go: the relocated Apptainer of {relocated_prefix()}")
    if (ours := added() if added_path().exists() else []) and not may_install(asked=True):
        lines.append(f"to go: {len(ours)} packages, as far as nothing else needs them: {', '.join(ours)}")
    return lines


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
        note_removed(gone)
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
    sys.exit(main(sys.argv[1:]))
