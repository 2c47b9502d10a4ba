"""A study's tables, and its recordings against them: rows copied from another environment's, maxima without them.

The file of the study names, by model and environment, the rows of a recording (`recorded_rows`), those that are its
own (`own_rows`), and the largest and mean value of a quantity over its own rows (`own_<quantity>_max`,
`own_<quantity>_mean`). Each row of a table is a finding too: Tare adds what this machine has.
"""

from __future__ import annotations

from typing import Any

from checks.finding import Finding, yes_no
from checks.sources import Sources
from tare.literature.published import Fact
from tare.model.quantities import Quantity
from tare.model.registry import HOST

RECORDED, OWN = "recorded_rows", "own_rows"


def findings(published: Sources) -> list[Finding]:
    """Copied rows, then each maximum of a table against the recording's own rows, then their mean."""
    found = []
    for fact in published.facts:
        model, env = fact.labels.get("model"), fact.labels.get("env")
        if fact.id == RECORDED and model and env and fact.quantity:
            own = published.of_model(OWN, model).get(env)
            if own is not None and own.quantity is not None:
                found.append(_copied(published, model, env, fact.quantity, own.quantity))
    for table, rows in published.tables.items():
        for row in rows:
            found += _own(published, table, row)
    return found


def _copied(published: Sources, model: str, env: str, recorded: Quantity, own: Quantity) -> Finding:
    """Rows of a recording, and those that no other environment has, byte for byte."""
    copied = recorded.exact - own.exact
    host = published.of_model(RECORDED, model).get(HOST)
    note = f"The recording has {recorded}, {own} of them its own."
    if copied:
        same = host is not None and host.quantity is not None and host.quantity.exact == copied and env != HOST
        of = f": it begins with the whole recording of {HOST}" if same else ""
        note += f" The other {copied} are a byte-identical copy of another recording{of}."
    return Finding(
        figure="recordings", check="copied_rows", workload=model, env=env, metric="rows", unit="1",
        published=recorded.value, recomputed=own.value, agrees=yes_no(not copied), note=note,
    )  # fmt: skip


def _own(published: Sources, table: str, row: Fact) -> list[Finding]:
    """The maximum that a table has against the largest of the recording's own rows, and their mean."""
    model, env, said = row.labels.get("model"), row.labels.get("env"), row.quantity
    if model is None or env is None or said is None:
        return []
    largest, mean = (published.of_model(f"own_{row.id}_{what}", model).get(env) for what in ("max", "mean"))
    about: dict[str, Any] = {"figure": f"table {table}", "workload": model, "env": env, "metric": row.id,
                             "unit": said.unit, "published": said.value}  # fmt: skip
    found = []
    if largest is not None and largest.quantity is not None:
        quantity = largest.quantity
        agree = abs(said.exact - quantity.exact) <= said.exact_rounding + quantity.exact_rounding
        note = f"The table's maximum is {said}; the largest of the recording's own rows is {quantity}."
        if not agree and (other := _elsewhere(published, table, row)):
            note += f" {said} is the maximum of {other}, whose rows this recording repeats."
        found.append(
            Finding(**about, check="own_maximum", recomputed=quantity.value, agrees=yes_no(agree), note=note)
        )
    if mean is not None and mean.quantity is not None:
        note = f"The table has the maximum, {said}; the mean of the recording's own rows is {mean.quantity}."
        found.append(
            Finding(**about, check="own_mean", recomputed=mean.quantity.value, agrees=yes_no(None), note=note)
        )
    return found


def _elsewhere(published: Sources, table: str, row: Fact) -> str | None:
    """Another environment of which the table has the same number for the model."""
    for other in published.tables[table]:
        same = other.id == row.id and other.labels.get("model") == row.labels.get("model")
        if same and other.labels.get("env") != row.labels.get("env") and other.quantity == row.quantity:
            return str(other.labels.get("env"))
    return None


def specifications(published: Sources) -> list[Finding]:
    """A row for each row of each table; names are in the note."""
    return [
        Finding(
            figure=f"table {table}", check="specification", workload=row.labels.get("model"),
            env=row.labels.get("env"), metric=row.id, unit=row.quantity.unit if row.quantity else "text",
            published=row.quantity.value if row.quantity else None, agrees=yes_no(None),
            note=f"Published: {_said(row)}.",
        )
        for table, rows in published.tables.items()
        for row in rows
    ]  # fmt: skip


def _said(row: Fact) -> str:
    if row.quantity is None:
        return ", ".join(row.names)
    return str(row.quantity).removesuffix("s") if row.quantity.printed == "1" else str(row.quantity)
