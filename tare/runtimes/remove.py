"""Takes away what Tare left on this machine: packages that it added, the relocated Apptainer, and images that it
loaded into a Docker daemon of the machine's own.

`python3 -m tare.runtimes.remove` (`make clean-runtimes`); standard library only. Packages that something of the
machine's own has come to need since stay, and are named. While anything measures or a private daemon has users
nothing goes.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.core.arguments import Parser, status_of
from tare.core.errors import UnavailableError
from tare.core.files import locked
from tare.core.machine_lock import alone_on_this_machine
from tare.core.progress import say, step
from tare.machine import workflows
from tare.runtimes import daemon, daemon_images
from tare.runtimes.programs import APT_S, added, apt, lock_path, may_install, note_added, relocated_prefix


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = Parser(
        prog="python3 -m tare.runtimes.remove",
        description="Remove the packages, the Apptainer and the images that Tare installed on this machine.",
        epilog="Everything else is kept. On a terminal it asks first; `make setup` installs everything again.",
    )
    parser.add_argument("--dry-run", "-n", action="store_true", help="print what would be removed")
    parser.add_argument("--yes", "-y", action="store_true", help="don't ask")
    parser.add_argument("--check", action="store_true", help="only check that nothing measures or uses a daemon")
    parser.add_argument("--check-folder", type=Path, help="only check that no workflow runs in this folder")

    def work() -> int:
        arguments = parser.parse_args(argv)
        if arguments.check_folder is not None:
            refuse_running(arguments.check_folder.resolve())
            return 0
        if arguments.dry_run:
            for line in listed() or ["Tare has installed nothing on this machine"]:
                say(line)
            return 0
        with unused():
            return 0 if arguments.check else remove(asks=not arguments.yes and sys.stdin.isatty())

    return status_of(work)


def agreed(question: str) -> bool:
    """Whether a person at the terminal says yes; the end of the input is none."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, UnicodeError):
        print()
        return False


@contextlib.contextmanager
def unused() -> Iterator[None]:
    """While the block runs no measurement, study or private daemon does; raises UnavailableError with who runs."""
    with alone_on_this_machine("it removes programs for measurements", waits=False), daemon.without_users():
        refuse_running()
        yield


def refuse_running(folder: Path | None = None) -> None:
    """Raise UnavailableError with its name where a workflow runs, on this machine or in a folder."""
    found = [f"process {pid} in {at}" for pid, at in workflows.running() if folder in (None, at)]
    if found:
        raise UnavailableError(f"a study runs: {'; '.join(found)}; wait until it has ended")


def listed() -> list[str]:
    """What is recorded and would go, a line for each kind."""
    lines = []
    for address, images in daemon_images.noted().items():
        lines.append(f"to remove: {len(images)} images in a Docker daemon{f' at {address}' if address else ''}")
    if relocated_prefix().exists():
        lines.append(f"to remove: the relocated Apptainer of {relocated_prefix()}")
    if packages := added():
        lines.append(f"to remove: {len(packages)} packages, if nothing else needs them: {', '.join(packages)}")
    return lines


def remove(*, asks: bool = False) -> int:
    """Take away what is recorded while `unused`, say what goes and stays; `asks` first; 0 where nothing stays."""
    going = listed()
    for line in going or ["Tare has installed nothing on this machine"]:
        say(line)
    if going and asks and not agreed("    Remove this? [y/N] "):
        say("nothing was removed")
        return 0
    with locked(lock_path(), waiting_for="the installation of the runtimes"):
        emptied = daemon_images.remove()  # before the client goes
        shutil.rmtree(relocated_prefix(), ignore_errors=True)
        staying = remove_packages(added())
        note_added(staying)
    return 0 if emptied and not staying else UnavailableError.exit_code


def remove_packages(packages: Sequence[str]) -> list[str]:
    """Have dpkg remove packages, each as far as no other needs it; those that stay, which it says."""
    if not packages:
        return []
    if reason := may_install(asked=True):
        say(f"{', '.join(packages)} stay: {reason}")
        return list(packages)
    with step(f"removing {', '.join(packages)}"):
        done = apt("dpkg", "--purge", *packages, patience_s=APT_S)
    staying = added()
    say(f"removed {len(packages) - len(staying)} of {len(packages)} packages that Tare had installed")
    if staying:
        needed = "; ".join(re.findall(r"^ (\S+ depends on [^.;]+)", done.stderr, re.MULTILINE))
        say(f"{', '.join(staying)} stay: {needed or done.explain()}")
    return staying


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
