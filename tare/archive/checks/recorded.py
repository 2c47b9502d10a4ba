"""Reference campaigns of other machines: their files, and what holds of any plan, journal and ledger."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tare.archive.checks import chain, clocks, orders, plans
from tare.archive.checks.found import Notes
from tare.archive.checks.tree import Tree
from tare.core.errors import TareError
from tare.model.journals.references import check, opened, shown
from tare.model.studies import layout

# Without those of what a study asks for, as it has the parts for which there was time, and has no tables or pages.
OF_EACH: tuple[Callable[[Tree, Notes], None], ...] = (
    chain.ledger_chain, chain.ledger_rows, chain.seals, chain.summaries, chain.seeds, plans.units, orders.orders,
    orders.quanta, clocks.instants, clocks.marks, clocks.slices, clocks.copies,
)  # fmt: skip


def references(tree: Tree, notes: Notes) -> None:
    """Every reference campaign has the files that its record lists, and its campaigns hold as a study's do."""
    for place in shown(tree.root / layout.RESULTS):
        notes.look("reference campaigns")
        with tempfile.TemporaryDirectory(prefix="tare-reference-") as scratch:
            try:
                folder = opened(place, Path(scratch))
                check(folder)
                seen = tree.of_reference(folder)
                for one in OF_EACH:
                    one(seen, notes)
            except TareError as error:
                said = tree.plain(error).replace(f"{scratch}/", "")
                notes.fail(layout.REFERENCES.joinpath(place.name).as_posix(), said)
