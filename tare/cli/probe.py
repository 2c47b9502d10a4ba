"""`tare probe` and `tare machine`: the records of what this machine can launch and what it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    probe = subparsers.add_parser("probe", help="try a launch in one environment and record what came of it")
    probe.add_argument("--env", required=True)
    probe.add_argument("--out", type=Path, required=True)
    probe.set_defaults(run=run_probe)
    machine = subparsers.add_parser("machine", help="record the facts of this machine")
    machine.add_argument("--out", type=Path, required=True)
    machine.set_defaults(run=run_machine)


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
    from tare.machine.facts import record

    found = record()
    found.write(arguments.out)
    say(f"this machine is {found.name}")
