"""`tare runtimes`: install the container runtimes that are missing, or list what is here and what was installed."""

from __future__ import annotations

import argparse
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser("runtimes", help="install the missing container runtimes, or list them")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="install what is missing (as root, on Debian and its family)")
    install.add_argument("--dry-run", "-n", action="store_true", help="say what would be done, and install nothing")
    install.set_defaults(run=run_install)
    listing = actions.add_parser("list", help="what is here, what is missing, what Tare installed")
    listing.set_defaults(run=run_list)


def run_install(arguments: argparse.Namespace) -> int:
    """Install what is missing; RUNTIMES=system forbids it."""
    from tare.runtimes.install import install

    return install(dry_run=arguments.dry_run)


def run_list(arguments: argparse.Namespace) -> None:
    """One line per wanted program, and the packages that are ours."""
    from tare.core.progress import say
    from tare.runtimes.programs import added, origin, which
    from tare.runtimes.table import WANTED

    for want in WANTED:
        found = next((path for name in want.programs if (path := which(name))), None)
        say(f"{want.programs[0]:14} {f'{found} ({origin(found)})' if found else 'missing'}  (for {want.purpose})")
    if packages := added():
        say(f"packages that Tare added: {', '.join(packages)}")
