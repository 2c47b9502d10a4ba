"""What this machine has, can do, and gets: `tare doctor`, `probe`, `machine`, `runtimes`, `fetch`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    doctor = subparsers.add_parser("doctor", help="show what this machine can measure, and how to fix the rest")
    doctor.add_argument("--json", action="store_true", help="print everything as one JSON object")
    doctor.set_defaults(run=run_doctor)
    probe = subparsers.add_parser("probe", help="launch a trial program in one environment and record the outcome")
    probe.add_argument("--env", required=True, help="environment, a module of envs/")
    probe.add_argument("--out", type=Path, required=True, help="record to write (JSON)")
    probe.set_defaults(run=run_probe)
    machine = subparsers.add_parser("machine", help="record the facts of this machine")
    machine.add_argument("--out", type=Path, required=True, help="record to write (JSON)")
    machine.add_argument(
        "--nodes",
        type=int,
        help="number of nodes of this Slurm job to describe, for groups with one instance per node",
    )
    machine.set_defaults(run=run_machine)
    runtimes = subparsers.add_parser("runtimes", help="install the missing container runtimes, or list them")
    actions = runtimes.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="install what is missing (as root, on Debian and its derivatives)")
    install.add_argument(
        "--dry-run", "-n", action="store_true", help="print what would be done, and install nothing"
    )
    install.set_defaults(run=run_install)
    listing = actions.add_parser("list", help="list installed and missing programs, and what Tare installed")
    listing.set_defaults(run=run_list)
    fetch = subparsers.add_parser("fetch", help="fetch, verify and prepare a data set")
    fetch.add_argument(
        "--dataset", required=True, help="name of a group in data/registry.yaml: mnist, sentiment, …"
    )
    fetch.add_argument(
        "--choice",
        default="auto",
        help="source: a member of the group, a path (images only), or auto: the first that answers",
    )
    fetch.add_argument(
        "--broken-images",
        choices=("stop", "skip"),
        help="what to do with an image that can't be decoded (default stop)",
    )
    fetch.add_argument("--out", type=Path, help="record to write (default results/data/DATASET.json)")
    fetch.set_defaults(run=run_fetch)


def run_doctor(arguments: argparse.Namespace) -> None:
    """Examine, then print; the exit status is 0 whatever is found, since lacking something is no failure."""
    from tare.cli import doctor

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K    {text}", end="", file=sys.stderr, flush=True)

    with contextlib.redirect_stdout(sys.stderr):  # what a probe says on its way is no part of what is found
        report = doctor.examine(progress)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(json.dumps(report, indent=1) if arguments.json else doctor.render(report))


def run_probe(arguments: argparse.Namespace) -> None:
    """An environment that does not work is a record with its reason, not a failure."""
    from tare.core.progress import say
    from tare.launch.trial import probe_record
    from tare.model.registry import environment
    from tare.runtimes.install import install_for

    adapter = environment(arguments.env)
    install_for(adapter.title, adapter.packages)
    found = probe_record(adapter)
    found.write(arguments.out)
    verdict = "available" if found.available else f"unavailable: {found.reason}"
    say(f"{found.env} {found.version or ''}: {verdict}")


def run_machine(arguments: argparse.Namespace) -> None:
    """Write the facts, and say by which name the machine is known."""
    from tare.core.progress import say
    from tare.launch.nodes import described
    from tare.machine.facts import record
    from tare.machine.shared_files import clock_ahead_s, clock_is_off
    from tare.model.records.machine import unlike

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    ahead_s = clock_ahead_s(arguments.out.parent)
    found = record().replace(clock_ahead_s=round(ahead_s, 3))
    if arguments.nodes:
        found = found.replace(nodes=described(found, arguments.nodes, arguments.out.parent))
        if differing := unlike([*found.nodes.values()]):
            wrong = "what a group takes on them is that of unlike machines"
            say(f"its nodes {', '.join(found.nodes)} differ in {', '.join(differing)}: {wrong}; name a constraint")
    if off := clock_is_off(ahead_s):
        wrong = "times of day in records are wrong, durations are not"
        say(f"the clock here is {off}: {wrong}; have it set (chronyc makestep)")
    found.write(arguments.out)
    say(f"this machine is {found.name}")


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


def run_fetch(arguments: argparse.Namespace) -> None:
    """Write the record of a prepared data set."""
    from tare.core.progress import say
    from tare.datasets.catalog import prepare
    from tare.model.studies.layout import data_record

    record = prepare(arguments.dataset, arguments.choice, broken_images=arguments.broken_images)
    record.write(arguments.out or data_record(arguments.dataset))
    if record.skipped:
        say(f"{record.name}: {len(record.skipped)} broken images left out, the first of them {record.skipped[0]}")
    say(f"{record.title}: {record.rows} rows, {record.bytes / 1e6:.1f} MB in {record.folder}")
