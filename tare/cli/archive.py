"""`tare archive`: one file from a study, which others can check."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser(
        "archive", help="pack the results of a study and the programs that made them into one file"
    )
    parser.add_argument(
        "study",
        nargs="?",
        default="config/config.yaml",
        help="study file, inline JSON, or folder of a reference campaign (default config/config.yaml)",
    )
    parser.add_argument("--out", type=Path, help="the file to write (default <study>.zip in this folder)")
    parser.set_defaults(run=run_archive)


def run_archive(arguments: argparse.Namespace) -> None:
    """`tare archive`."""
    from tare.archive.writing import SUFFIX, write, write_reference
    from tare.core.progress import say
    from tare.model.studies.layout import REFERENCE
    from tare.model.studies.loading import load_checked

    folder = Path(arguments.study)
    if not arguments.study.lstrip().startswith("{") and (folder / REFERENCE).is_file():
        written = write_reference(folder, arguments.out or folder.parent / f"{folder.resolve().name}{SUFFIX}")
        whose = f"the reference campaign {folder.resolve().name}"
    else:
        study = load_checked(arguments.study)
        written = write(study, arguments.out or Path(f"{study.study}{SUFFIX}"))
        whose = f"{study.study} on {', '.join(written.machines)}"
    say(f"{written.path}: {written.members} files of {whose}, {written.bytes / 1e6:.1f} MB")
    say(f"sha256 {written.sha256}")
    for note in written.notes:
        say(note)
