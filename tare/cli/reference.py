"""`tare reference` and its kin: record a campaign on a machine without a network, archive it, make its tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tare.core.errors import UnavailableError

INPUT = Path(".reference")
NEEDED = {"yaml": "PyYAML", "numpy": "numpy", "pandas": "pandas", "scipy": "scipy", "packaging": "packaging"}


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    record = subparsers.add_parser("reference", help="measure a reference campaign here, in a few minutes")
    record.add_argument(
        "--out",
        type=Path,
        help="folder to write; its archive comes next to it (default results/reference/<device>-<date>)",
    )
    record.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="interpreter that can import the framework"
    )
    record.add_argument(
        "--study", default="config/reference.yaml", help="study file (default config/reference.yaml)"
    )
    record.add_argument("--budget-s", type=_seconds, default=540.0, help="seconds for everything (default 540)")
    record.add_argument("--device", choices=("auto", "cpu", "cuda"), help="use this device instead of the study's")
    record.add_argument(
        "--only", nargs="+", default=(), help="only these kinds of parts: ceilings, profile, rounds, setting, …"
    )
    record.add_argument(
        "--more", action="store_true", help="continue the campaign in --out with the parts that had no time"
    )
    record.add_argument(
        "--input",
        type=Path,
        default=INPUT,
        help="folder that `tare pack-reference-input` made (default .reference)",
    )
    record.set_defaults(run=run_reference)

    pack = subparsers.add_parser(
        "pack-reference-input", help="collect what a machine without a network needs for `tare reference`"
    )
    pack.add_argument("--out", type=Path, default=INPUT, help="folder to fill (default .reference)")
    pack.set_defaults(run=run_pack)

    tables = subparsers.add_parser("reference-tables", help="make the tables of a reference campaign")
    tables.add_argument("reference", type=Path, help="archive or folder of the campaign")
    tables.add_argument(
        "--out", type=Path, required=True, help="folder for the tables, outside the campaign's folder"
    )
    tables.add_argument(
        "--keep-going",
        action="store_true",
        help="if a file differs from what was recorded, write empty tables and broken.json",
    )
    tables.set_defaults(run=run_tables)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 30 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds from 30 to 86400")
    return value


def _refuse_without(needed: Mapping[str, str]) -> None:
    """Raise UnavailableError with its remedy where this Python lacks a package, before an import does."""
    lacking = [package for module, package in needed.items() if find_spec(module) is None]
    if lacking:
        raise UnavailableError(
            f"this Python ({sys.executable}) has no {', '.join(lacking)}",
            f"pip install {' '.join(lacking)}, or call the Python that has the framework (REFERENCE_PYTHON=PATH)",
        )


def run_reference(arguments: argparse.Namespace) -> None:
    """Bring in the packages that this Python lacks before anything needs them, then measure."""
    _refuse_without(NEEDED)
    from tare.experiments.carried import add_packages

    add_packages(arguments.input)
    from tare.experiments import reference

    shared = {name: getattr(arguments, name) for name in ("python", "budget_s", "out", "device", "only", "more")}
    folder = reference.run(reference.Wanted(**shared, source=arguments.study, carried=arguments.input))
    from tare.archive.writing import SUFFIX, write_reference
    from tare.core.progress import say

    written = write_reference(folder, folder.parent / f"{folder.name}{SUFFIX}")
    say(f"{written.path}: {written.bytes / 1e6:.1f} MB, sha256 {written.sha256}")


def run_pack(arguments: argparse.Namespace) -> None:
    """Fill the folder that travels."""
    from tare.core.progress import say
    from tare.experiments.reference_input import pack

    content = pack(arguments.out)
    total = sum(file["bytes"] for file in content["files"])
    say(f"{len(content['files'])} files, {total / 1e6:.1f} MB in {arguments.out}")


def run_tables(arguments: argparse.Namespace) -> None:
    """Make the tables, and judge what papers claim of a device by them."""
    from tare.analysis.reference import write_tables
    from tare.core.progress import say
    from tare.literature import claims

    count = write_tables(arguments.reference, arguments.out, keep_going=arguments.keep_going)
    judged = claims.write_of_device(arguments.reference, arguments.out)
    say(f"{count} metrics and {judged} claims in {arguments.out}")
