"""`tare verify`: recompute all that is in an archive or a folder of results, offline; name what does not hold."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.archive.checks import Result

FORMAT = 1  # of what --json prints
MOST_SHOWN = 5  # findings of one check, for people; --json has all


def add(subparsers: Any) -> None:
    """Add this command."""
    parser = subparsers.add_parser(
        "verify", help="check an archive or a folder with results: recompute everything in it, offline"
    )
    parser.add_argument(
        "path", type=Path, metavar="FILE|FOLDER", help="an archive, or a folder that holds results/"
    )
    parser.add_argument(
        "--held",
        action="append",
        default=[],
        metavar="SHA256",
        help="hash of a stamp or of a row of the ledger that was published elsewhere; may be repeated",
    )
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="names of the checks to run (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--list", action="store_true", help="also explain what each check proves")
    parser.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> int:
    """Exit status 0 where all holds, 1 where something does not, 2 where something could not be determined."""
    import json

    from tare import __version__
    from tare.archive import checks
    from tare.core.progress import say
    from tare.core.streams import plain

    names = _chosen(arguments.only)
    held = [_sha256(text) for text in arguments.held]
    with _opened(arguments.path) as (root, left_out):
        found = []
        for result in checks.run(checks.Tree(root, held, left_out), names):
            found.append(result)
            if not arguments.json:
                for line in _lines(result, explained=arguments.list):
                    say(plain(line))  # what others wrote controls no terminal, and begins no line
    status = checks.status_of(found)
    if arguments.json:
        report = {
            "format": FORMAT,
            "verified": str(arguments.path),
            "tare": __version__,
            "status": status,
            "checks": [result.to_json() for result in found],
        }
        print(json.dumps(report, indent=1))
    else:
        counts = [
            f"{count} {word}" for word in checks.Status if (count := sum(one.status == word for one in found))
        ]
        say(plain(f"{arguments.path}: {len(found)} checks: {', '.join(counts)}"))
    return status


def _chosen(names: list[str] | None) -> list[str] | None:
    from tare.archive.checks import CHECKS
    from tare.core.errors import UserError
    from tare.model.words import nearest

    known = [check.name for check in CHECKS]
    for name in names or ():
        if name not in known:
            raise UserError(f"--only: there is no check {name!r}: {nearest(name, known)}")
    return names


def _sha256(text: str) -> str:
    import re

    from tare.core.errors import UserError

    if re.fullmatch(r"[0-9a-fA-F]{64}", text) is None:
        raise UserError(f"--held: {text} is no SHA-256: give its 64 digits")
    return text.lower()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folder that is checked, of an archive one into which it is unpacked; members that its list does not name.

    Raises UserError: there is nothing of the kind, or no results.
    """
    from tare.core.errors import TareError, UserError
    from tare.model.journals.references import references
    from tare.model.studies.layout import CAMPAIGNS, REFERENCES

    left_out: list[str] = []
    with contextlib.ExitStack() as stack:
        if path.is_dir():
            root = path
        elif path.is_file():
            from tare.archive.reading import opened

            try:
                root = stack.enter_context(opened(path, left_out=left_out))
            except TareError as error:
                raise UserError(str(error)) from error
        else:
            raise UserError(f"{path}: there is no such file or folder: name an archive, or a folder with results/")
        if not any((root / CAMPAIGNS).glob("*/*")) and not references(root / REFERENCES):
            raise UserError(f"{path} has no {CAMPAIGNS}/<study>/<machine>: there is nothing to verify")
        yield root, left_out


def _lines(result: Result, *, explained: bool) -> Iterator[str]:
    """A check in words: its status, and what was found, with the places."""
    notes = result.notes
    counted = ", ".join(f"{what}: {count:,}" for what, count in notes.looked.items())
    if not counted and result.status == "passed":
        counted = "nothing of the kind is here"
    yield " ".join([f"{result.status:<11} {result.check.name}", *([f"({counted})"] if counted else [])])
    if explained:
        yield f"            {result.check.proves}"
    for word, found in (("", notes.wrong), ("not checked: ", notes.open), ("", notes.remarks)):
        for where, what in found[:MOST_SHOWN]:
            yield f"            {where}: {word}{what}"
        if len(found) > MOST_SHOWN:
            yield f"            and {len(found) - MOST_SHOWN} more (--json has all)"
