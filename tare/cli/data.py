"""`tare fetch`: bring one data set into the cache and write its record."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser("fetch", help="fetch, verify and prepare a data set")
    parser.add_argument("--dataset", required=True, help="a group of data/registry.yaml: mnist, sentiment, …")
    parser.add_argument(
        "--choice", default="auto", help="a member of the group; a path, of images; or auto: the first that answers"
    )
    parser.add_argument(
        "--broken-images", choices=("stop", "skip"), help="what an image that can't be decoded does (default: stop)"
    )
    parser.add_argument("--out", type=Path, help="the record (default: results/data/DATASET.json)")
    parser.set_defaults(run=run_fetch)


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
