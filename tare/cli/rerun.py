"""`tare diff`, `tare rerun`: two studies claim by claim, and a study of an archive measured again here."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FIRST, SECOND, ARCHIVE, HERE = "the first", "the second", "the archive", "this machine"


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--study", help="the study, if there are several")
    common.add_argument("--machine", help="the machine that was measured, if there are several")

    diff = subparsers.add_parser(
        "diff", parents=[common], help="compare two archives or folders of results, claim by claim"
    )
    diff.add_argument("first", type=Path, help="an archive, a checkout with results, or a folder of results")
    diff.add_argument("second", type=Path, help="the archive or results to compare with it")
    diff.add_argument(
        "--out", type=Path, default=Path("diff"), help="folder for the table and the page (default diff)"
    )
    diff.set_defaults(run=run_diff)

    rerun = subparsers.add_parser(
        "rerun",
        parents=[common],
        help="measure the study of an archive again on this machine, and compare claim by claim",
    )
    rerun.add_argument("archive", type=Path, help="an archive, or a checkout with results")
    rerun.add_argument(
        "--directory", type=Path, default=Path("rerun"), help="folder for everything that it makes (default rerun)"
    )
    rerun.add_argument("--cores", default="all", help="cores for Snakemake (default all)")
    rerun.add_argument(
        "--commands",
        action="store_true",
        help="also run jobs that are commands, which the maker of the archive chose",
    )
    rerun.set_defaults(run=run_rerun)


def run_diff(arguments: argparse.Namespace) -> None:
    """`tare diff`."""
    from tare.archive.agreement import compare, opened, results_in

    asked = {"study": arguments.study, "machine": arguments.machine}
    with opened(arguments.first) as first, opened(arguments.second) as second:
        one = results_in(first, FIRST, str(arguments.first), **asked)
        other = results_in(second, SECOND, str(arguments.second), **asked)
        _print_agreement(compare(one, other, arguments.out), arguments.out)


def run_rerun(arguments: argparse.Namespace) -> int:
    """`tare rerun`: exit status 3 where the workflow failed; what it made is compared all the same."""
    from tare.archive import rerunning
    from tare.archive.agreement import compare, opened, results_in
    from tare.core.errors import UnavailableError, UserError
    from tare.core.progress import say
    from tare.core.streams import plain

    with opened(arguments.archive) as root:
        before = results_in(root, ARCHIVE, str(arguments.archive), arguments.study, arguments.machine)
        found = rerunning.study_of(root, before.study)
        study, lines = rerunning.here(found, commands=arguments.commands)
        for line in lines:
            say(plain(line))
        status = rerunning.run(study, arguments.directory, arguments.cores)
        failed = f"the workflow ended with status {status}; give the same command again to go on"
        try:
            after = results_in(arguments.directory, HERE, str(arguments.directory), before.study)
        except UserError as error:
            raise (UnavailableError(failed) if status else error) from None
        out = arguments.directory / "agreement"
        _print_agreement(compare(before, after, out), out)
    if status:
        say(f"not all of it: {failed}")
    return UnavailableError.exit_code if status else 0


def _print_agreement(table: pd.DataFrame, out: Path) -> None:
    """How the claims agree, why some are not judged, and where the page is."""
    from tare.archive.agreement import PAGE
    from tare.core.progress import say
    from tare.core.streams import plain
    from tare.report.agreement import lacking, tally

    for line in (*tally(table), *(f"not judged: {line}" for line in lacking(table))):
        say(plain(line))
    say(f"both side by side: {(out / PAGE).resolve()}")
