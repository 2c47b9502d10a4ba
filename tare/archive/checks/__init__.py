"""What `tare verify` looks at: declared checks, of which one that can't be made keeps none from the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from tare.archive.checks import chain, clocks, members, orders, pages, plans, records, tables
from tare.archive.checks.found import Check, Finding, Notes, Result, Status
from tare.archive.checks.tree import Tree
from tare.core.errors import TareError, explain_os_error

__all__ = ["CHECKS", "Check", "Finding", "Notes", "Result", "Status", "Tree", "run", "status_of"]

MOST_SAID = 200  # letters of an exception


def _check(name: str, proves: str, of: Callable[[Tree, Notes], None]) -> Check:
    return Check(name=name, proves=proves, of=of)


# In the order in which they are made: from the bytes to what is concluded of them.
CHECKS: tuple[Check, ...] = (
    _check("members", "Every file is the one that archive.json lists, and there is no other.", members.members),
    _check("crate", "Every file that the crate describes is there, and all that it says follows from the records.",
           members.crate),
    _check("ledger-chain", "No row of a ledger was edited, taken out or put in.", chain.ledger_chain),
    _check("ledger-folders", "Every campaign has its rows in the ledger, and every row its campaign.",
           chain.ledger_folders),
    _check("ledger-rows", "What a ledger's rows say of campaigns follows from these, and tries are counted on.",
           chain.ledger_rows),
    _check("stamps",
           "Every stamp is as it was written, at its place in the chain, and announced what was measured.",
           chain.stamps),
    _check("words", "Orders of every campaign that began after a word from outside follow from that word.",
           chain.words),
    _check("held", "Every hash that was left elsewhere is in the chain.", chain.held),
    _check("seals", "Plan and journal of every campaign are the bytes that were sealed.", chain.seals),
    _check("summaries", "What a seal says apart from hashes follows from plan and journal.", chain.summaries),
    _check("seeds", "No two campaigns have one seed.", chain.seeds),
    _check("study", "Every campaign that the study asks for is there, planned as the study asks.", plans.study),
    _check("units", "There are as many units as were planned, each whole, none left out without its reason.",
           plans.units),
    _check("orders", "Order and paddings of every unit are those that the plan's seed gives.", orders.orders),
    _check("quanta", "Who had the machine in a sliced round, and how long, follows from the plan's seed.",
           orders.quanta),
    _check("instants", "Launches started in their unit's order, no two units were at once, each took its seconds.",
           clocks.instants),
    _check("marks", "Within every launch the clock and the processor time go on.", clocks.marks),
    _check("slices", "No two slices were at once; own time and processor time of a launch are those of its slices.",
           clocks.slices),
    _check("copies", "No launch occurs twice, neither by its name nor by its times.", clocks.copies),
    _check("machine", "Every launch ran on the machine that the records describe.", records.machine),
    _check("images", "Launches ran the images that plans name and records describe.", records.images),
    _check("data", "Plans name the data that records describe.", records.data),
    _check("profiles", "Profiled launches have their own names, and the traces that they name.",
           records.profiles),
    _check("code", "The sources here are the programs that measured, by the hashes in the plans.", records.code),
    _check("installed", "Which programs here are others than those of the Tare that checks.", records.installed),
    _check("tables", "Every number, interval, verdict and decision follows from the raw records.", tables.tables),
    _check("costs", "What images cost follows from their records and from starts.", tables.costs),
    _check("claims", "What others published is judged as tables and papers have it, word by word.", tables.claims),
    _check("machines", "Several machines are compared as the decisions of each have it.", tables.side_by_side),
    _check("figures", "Every figure and notebook shows what the tables give, byte for byte.", pages.figures),
    _check("pages", "Every page says what tables, records and figures say, and nothing else.", pages.pages),
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
    """Exit status: 0 all is as it should be, 1 something is not, 2 something could not be told."""
    found = {result.status for result in results}
    return 1 if Status.FAILED in found else 2 if Status.OPEN in found else 0
