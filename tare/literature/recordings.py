"""A study's recordings against its tables: rows copied from another environment's, maxima and means without them.

The file of the study names, by model and environment, the rows of a recording (`recorded_rows`), those that are its
own (`own_rows`), and the largest and mean value of a quantity over its own rows (`own_<quantity>_max`,
`own_<quantity>_mean`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tare.literature.finding import Finding, amount, yes_no
from tare.literature.measured_here import Here
from tare.literature.published import Fact, Published
from tare.model.quantities import Quantity
from tare.model.registry import HOST

RECORDED, OWN = "recorded_rows", "own_rows"


@dataclass(frozen=True, kw_only=True)
class Largest:
    """The largest value of a recorded quantity, as a table prints it and by the recording's own rows.

    Attributes:
        model: in the study's own words.
        env: None where the study has one number for all its environments.
        said: row of a table; None where none has it.
        own, mean: largest and mean of the recording's own rows; None where the study's file has none.
        rows: how many those are.
    """

    model: str
    env: str | None
    said: Fact | None = None
    own: Quantity | None = None
    mean: Quantity | None = None
    rows: Quantity | None = None

    @property
    def agrees(self) -> bool:
        """Whether the table's is the recording's, as far as the printed digits tell; so where one is missing."""
        if self.said is None or self.said.quantity is None or self.own is None:
            return True
        return _same(self.said.quantity, self.own)


def largest(
    published: Published, name: str, models: Sequence[str], environments: Collection[str] | None = None
) -> list[Largest]:
    """What a study has of the largest values of a quantity.

    Args:
        published: the study.
        name: row of a table, or entry of the files.
        models: of which.
        environments: of which, where it is not all.
    """
    found = []
    for model in models:
        said = published.of_model(name, model)
        own, mean, rows = (
            {env: fact.quantity for env, fact in published.of_model(key, model).items()}
            for key in (f"own_{name}_max", f"own_{name}_mean", OWN)
        )
        found += [
            Largest(
                model=model, env=env, said=said.get(env), own=own.get(env), mean=mean.get(env), rows=rows.get(env)
            )
            for env in dict.fromkeys((*said, *own))
            if environments is None or env in environments
        ]  # fmt: skip
        if not said and not own:
            of_all = [fact for fact in published.facts_of(name, model=model) if not fact.labels.get("env")]
            found += [Largest(model=model, env=None, own=fact.quantity) for fact in of_all if fact.quantity]
    return found


def _same(one: Quantity, other: Quantity) -> bool:
    return abs(one.exact - other.exact) <= one.exact_rounding + other.exact_rounding


def findings(published: Published, here: Here) -> list[Finding]:
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
            found += _own(published, here, table, row)
    return found


def _copied(published: Published, model: str, env: str, recorded: Quantity, own: Quantity) -> Finding:
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


def _own(published: Published, here: Here, table: str, row: Fact) -> list[Finding]:
    """The maximum that a table has against the largest of the recording's own rows, and their mean beside it."""
    model, env, said = row.labels.get("model"), row.labels.get("env"), row.quantity
    if model is None or env is None or said is None:
        return []
    largest, mean = (published.of_model(f"own_{row.id}_{what}", model).get(env) for what in ("max", "mean"))
    about: dict[str, Any] = {
        "figure": f"table {table}",
        "workload": model,
        "env": env,
        "metric": row.id,
        "unit": said.unit,
    }
    value = here.of_table(model, env, row.id)
    measured: dict[str, Any] = {"measured": value.value, "measured_kind": value.kind}
    found = []
    if largest is not None and largest.quantity is not None:
        quantity = largest.quantity
        agree = _same(said, quantity)
        note = f"The table's maximum is {said}; the largest of the recording's own rows is {quantity}."
        if not agree and (others := _elsewhere(published, table, row)):
            note += f" {said} is the maximum of {others}, whose rows stand copied in this recording."
        found.append(
            Finding(
                **about, **measured, check="own_maximum", published=said.value, recomputed=quantity.value,
                agrees=yes_no(agree), note=f"{note} Here: {_here(value.value, value.note, said.unit)}.",
            )
        )  # fmt: skip
    if mean is not None and mean.quantity is not None:
        here_mean = here.mean_of_table(model, env, row.id)
        note = f"The table has the maximum, {said}; the mean of the recording's own rows is {mean.quantity}."
        found.append(
            Finding(
                **about, check="own_mean", published=said.value, recomputed=mean.quantity.value,
                measured=here_mean.value, measured_kind=here_mean.kind, agrees=yes_no(None),
                note=f"{note} Here: {_here(here_mean.value, here_mean.note, said.unit)}.",
            )
        )  # fmt: skip
    return found


def _elsewhere(published: Published, table: str, row: Fact) -> str | None:
    """Another environment of which the table has the same number for the model."""
    for other in published.tables[table]:
        same = other.id == row.id and other.labels.get("model") == row.labels.get("model")
        if same and other.labels.get("env") != row.labels.get("env") and other.quantity == row.quantity:
            return str(other.labels.get("env"))
    return None


def _here(value: float | None, note: str, unit: str) -> str:
    return f"unavailable, {note}" if value is None else f"{amount(value, unit)}, {note}"
