"""What a study says twice: sentences against its conclusion or its logs; and losses that are none.

An entry of its file that `restates` another is held against it. A bound that is said again must follow from the one
that it repeats; a number must be the same. A factor is compared with a share as the change that it is.
"""

from __future__ import annotations

import math
from decimal import Decimal

from tare.literature.finding import Finding, yes_no
from tare.literature.published import Fact, Published
from tare.model.quantities import Quantity

UPPER, LOWER = ("<", "<="), (">", ">=")
LOSS = "loss_last"


def findings(published: Published) -> list[Finding]:
    """Each entry that restates another, then each last loss."""
    again = [_again(published, fact) for fact in (*published.text, *published.facts) if fact.restates]
    return [*again, *(_loss(fact) for fact in published.facts if fact.id == LOSS)]


def _again(published: Published, fact: Fact) -> Finding:
    first = published.fact(str(fact.restates))
    said, again = first.quantity, fact.quantity
    agree = None if said is None or again is None else _follows(said, again, fact.labels.get("relation"))
    unit = "text" if said is None else said.unit
    published_value, recomputed = (None, None) if said is None or again is None else _alike(said, again)
    return Finding(
        figure="log" if fact.where == "logs" else "text", check="restated", workload=fact.labels.get("model"),
        env=fact.labels.get("env"), metric=first.id, unit=unit,
        published=None if published_value is None else float(published_value),
        recomputed=None if recomputed is None else float(recomputed), agrees=yes_no(agree),
        note=f"The {_place(first)}: {_said(first)}. The {_place(fact)}: {_said(fact)}.",
    )  # fmt: skip


def _place(fact: Fact) -> str:
    return "text" if fact.where == "text" else fact.where


def _said(fact: Fact) -> str:
    if fact.quantity is None:
        return ", ".join(fact.names)
    relation = fact.labels.get("relation")
    return f"{relation} {fact.quantity}" if relation else str(fact.quantity)


def _alike(said: Quantity, again: Quantity) -> tuple[Decimal, Decimal]:
    """Both in the first one's unit: 1.5 times is 50% more."""
    if said.unit == again.unit:
        return said.exact, again.exact
    if said.unit == "%":
        return said.exact, (again.exact - 1) * 100
    return said.exact, 1 + again.exact / 100


def _follows(said: Quantity, again: Quantity, relation: str | None) -> bool:
    first, second = _alike(said, again)
    if relation in UPPER:
        return second >= first
    if relation in LOWER:
        return second <= first
    return first == second


def _loss(fact: Fact) -> Finding:
    """A loss that is no number: nothing was trained, and what was timed is another computation."""
    value = fact.quantity.value if fact.quantity else _number(fact.names[0])
    finite = value is not None and math.isfinite(value)
    told = str(fact.quantity) if fact.quantity else fact.names[0]
    note = f"The last loss in the {fact.where} is {told}."
    if not finite:
        note += " A job whose loss is no number trains nothing: its times are those of another computation."
    return Finding(
        figure="log" if fact.where == "logs" else fact.where, check="loss", workload=fact.labels.get("model"),
        env=fact.labels.get("env"), metric="loss", unit="1", published=value if finite else None,
        agrees=yes_no(finite), note=note,
    )  # fmt: skip


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
