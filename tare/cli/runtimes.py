"""`tare runtimes`: install the container runtimes that are missing, or list what was installed and how."""

from __future__ import annotations

import argparse
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser("runtimes", help="install the missing container runtimes, or list them")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="install what is missing (as root, on Debian and its family)")
    install.set_defaults(run=run_install)
    listing = actions.add_parser("list", help="what is here, what is missing, what Tare installed and how")
    listing.set_defaults(run=run_list)


def run_install(arguments: argparse.Namespace) -> int:
    """Install what is missing; RUNTIMES=system forbids it."""
    from tare.runtimes.install import install

    return install()


def run_list(arguments: argparse.Namespace) -> int:
    """One line per wanted program."""
    from tare.core.progress import say
    from tare.runtimes.programs import WANTED, find_apptainer, installed, origin, which

    for want in WANTED:
        found = next((path for name in want.programs if (path := which(name))), None)
        say(f"{want.programs[0]:14} {found or 'missing'}  (for {want.purpose})")
    apptainer = find_apptainer()
    say(f"{'apptainer':14} {f'{apptainer} ({origin(apptainer)})' if apptainer else 'missing'}")
    for name, facts in installed().items():
        how = f"installed by Tare: {facts['how']}" if facts["how"] else "could not be had"
        say(f"{facts['at']}  {name}: {how}")
    return 0
