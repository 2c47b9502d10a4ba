"""What `tare verify` looks at: declared checks, of which one that can't be made keeps none from the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from tare.archive.checks import chain, clocks, members, orders, pages, plans, recorded, records, tables
from tare.archive.checks.found import Check, Finding, Notes, Result, Status
from tare.archive.checks.tree import Tree
from tare.core.errors import TareError, explain_os_error

__all__ = ["CHECKS", "Check", "Finding", "Notes", "Result", "Status", "Tree", "run", "status_of"]

MOST_SAID = 200  # letters of an exception


def _check(name: str, proves: str, of: Callable[[Tree, Notes], None]) -> Check:
    return Check(name=name, proves=proves, of=of)


# In the order in which they are made: from the bytes to what is concluded of them.
CHECKS: tuple[Check, ...] = (
    _check("members", "The files are exactly those that archive.json lists, where an archive has such files.",
           members.members),
    _check("crate", "Every file that the crate describes is there, and all its statements follow from the records.",
           members.crate),
    _check("ledger-chain", "No row of a ledger was edited, removed or inserted.", chain.ledger_chain),
    _check("ledger-folders", "Every campaign has its rows in the ledger, and every row its campaign.",
           chain.ledger_folders),
    _check("ledger-rows", "Rows of a ledger agree with their campaigns, and tries are numbered in sequence.",
           chain.ledger_rows),
    _check("stamps", "Every stamp is unchanged, at its place in the chain, and announced what was measured.",
           chain.stamps),
    _check("words", "Orders of every campaign that began after a word from outside follow from that word.",
           chain.words),
    _check("held", "Every hash that was kept elsewhere is in the chain.", chain.held),
    _check("seals", "Plan and journal of every campaign are the bytes that were sealed.", chain.seals),
    _check("summaries", "The summary in every seal follows from plan and journal.", chain.summaries),
    _check("seeds", "No two campaigns have the same seed.", chain.seeds),
    _check("study", "Every campaign that the study asks for is there, planned as the study asks.", plans.study),
    _check("units", "There are as many units as planned; each is complete, and none is left out without a reason.",
           plans.units),
    _check("orders", "Order and padding of every unit follow from the plan's seed.", orders.orders),
    _check("quanta", "Which launch ran in each slice, and for how long, follows from the plan's seed.",
           orders.quanta),
    _check("instants", "Launches started in the order of their unit, no two units overlap, and all durations fit.",
           clocks.instants),
    _check("marks", "Within every launch, the clock and the processor time only increase.", clocks.marks),
    _check("slices", "No two slices overlap; own time and processor time of a launch are the sums of its slices.",
           clocks.slices),
    _check("copies", "No launch occurs twice, neither by its name nor by its times.", clocks.copies),
    _check("machine", "Every launch ran on the machine that the records describe.", records.machine),
    _check("images", "Launches ran the images that plans name and records describe.", records.images),
    _check("data", "Plans name the data that records describe.", records.data),
    _check("profiles", "Profiled launches have their own names, and the traces that they name.", records.profiles),
    _check("references", "Reference campaigns of other machines have their files, and hold as a study's do.",
           recorded.references),
    _check("code", "The sources in the archive are the programs that measured, by the hashes in the plans.",
           records.code),
    _check("installed", "Lists programs in the archive that differ from those of the Tare that checks.",
           records.installed),
    _check("tables", "Every number, interval, verdict and decision follows from the raw records.", tables.tables),
    _check("costs", "The costs of images follow from their records and from the measured starts.", tables.costs),
    _check("claims", "Verdicts on published claims follow from tables and papers, word by word.", tables.claims),
    _check("machines", "The comparison of several machines follows from the decisions of each.",
           tables.side_by_side),
    _check("figures", "Every figure and notebook shows what the tables give, byte for byte.", pages.figures),
    _check("pages", "Every page states what tables, records and figures state, and nothing else.", pages.pages),
)  # fmt: skip


def run(tree: Tree, names: Collection[str] | None = None) -> Iterator[Result]:
    """Make checks, one after the other.

    Args:
        tree: the folder that is looked at.
        names: of the checks; None for all.
    """
    for check in CHECKS:
        if names is None or check.name in names:
            notes = Notes()
            try:
                check.of(tree, notes)
            except TareError as error:
                notes.leave(".", tree.plain(error))
            except OSError as error:
                notes.leave(".", explain_os_error(error) or str(error))
            except ImportError as error:
                notes.leave(".", f"this Python has no {error.name}: {error}")
            except Exception as error:  # what is checked may hold anything
                said = str(error).replace(f"{tree.root}/", "").partition("\n")[0]
                notes.leave(".", f"what it read broke the check ({type(error).__name__}: {said[:MOST_SAID]})")
            yield Result(check=check, notes=notes)


def status_of(results: Sequence[Result]) -> int:
    """Exit status: 0 all is as it should be, 1 something is not, 2 something could not be determined."""
    found = {result.status for result in results}
    return 1 if Status.FAILED in found else 2 if Status.OPEN in found else 0
