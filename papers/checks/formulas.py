"""Quantities that a study's table calls measured, recomputed by the formula that its own script has for them.

A product of an utilisation and of constants counts no operation and no byte: its largest value is the formula's at
100%, whatever ran. A product of constants alone is the same in every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from checks.finding import Finding, yes_no
from checks.sources import Sources
from tare.literature.finding import amount, listed
from tare.literature.published import Fact
from tare.literature.published_file import Formula
from tare.model.quantities import Quantity

PERCENT = "%"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table, and what the formula gives for it.

    Attributes:
        table: its name.
        said: as published.
        factors: of this row, by name.
    """

    table: str
    fact: Fact
    said: Quantity
    factors: dict[str, Quantity]

    @property
    def product(self) -> Decimal:
        """In base units; a percentage counts as a share."""
        return _product(self.factors)

    @property
    def fits(self) -> bool:
        """Whether the formula gives what was published, as far as the printed digits show."""
        return abs(self.product - self.said.exact) <= self.said.exact_rounding


def findings(published: Sources) -> list[Finding]:
    """For each formula: its value for each row, and at most; a factor solved from it; what it measured."""
    found = []
    for formula in published.formulas:
        rows = _rows(published, formula)
        if rows:
            found += [_row(formula, row) for row in rows]
            found += [*_ceiling(formula, rows), *_solved(formula, rows), _measured(formula, rows)]
    return found


def _rows(published: Sources, formula: Formula) -> list[Row]:
    """Rows of tables with the formula's result of which every factor is a number."""
    found = []
    for table, facts in published.tables.items():
        for fact in facts:
            factors = {name: _factor(published, table, name, fact) for name in formula.factors}
            known = {name: quantity for name, quantity in factors.items() if quantity is not None}
            if fact.id == formula.result and fact.quantity is not None and len(known) == len(factors):
                found.append(Row(table=table, fact=fact, said=fact.quantity, factors=known))
    return found


def _factor(published: Sources, table: str, name: str, of: Fact) -> Quantity | None:
    """A factor of one row: the table's row of the same model and environment, else what the file states for all."""
    for fact in published.tables[table]:
        if fact.id == name and all(fact.labels.get(key) == of.labels.get(key) for key in ("model", "env")):
            return fact.quantity
    return next((fact.quantity for fact in published.stated if fact.id == name and not fact.labels), None)


def _product(factors: dict[str, Quantity]) -> Decimal:
    total = Decimal(1)
    for quantity in factors.values():
        total *= quantity.exact / 100 if quantity.unit == PERCENT else quantity.exact
    return total


def _written(factors: dict[str, Quantity]) -> str:
    return " x ".join(f"{name} {quantity}" for name, quantity in factors.items())


def _row(formula: Formula, row: Row) -> Finding:
    return Finding(
        figure=f"table {row.table}", check="formula", workload=row.fact.labels.get("model"),
        env=row.fact.labels.get("env"), metric=formula.result, unit=row.said.unit, published=row.said.value,
        recomputed=float(row.product), agrees=yes_no(row.fits),
        note=f"By the formula of the {formula.where}: {_written(row.factors)} = "
        f"{amount(float(row.product), row.said.unit)}. The table says {row.said}.",
    )  # fmt: skip


def _ceiling(formula: Formula, rows: list[Row]) -> list[Finding]:
    """The largest published value, and the formula's at 100%; none of a formula without a share."""
    largest = max(rows, key=lambda row: row.said.exact)
    if all(quantity.unit != PERCENT for quantity in largest.factors.values()):
        return []
    hundred = Quantity(printed="100", printed_unit=PERCENT)
    full = {name: hundred if one.unit == PERCENT else one for name, one in largest.factors.items()}
    most = _product(full)
    agree = abs(most - largest.said.exact) <= largest.said.exact_rounding
    note = (
        f"The largest published value is {largest.said}. The most that the formula can give, whatever runs: "
        f"{_written(full)} = {amount(float(most), largest.said.unit)}."
    )
    return [
        Finding(
            figure=f"table {largest.table}", check="formula_ceiling", metric=formula.result, unit=largest.said.unit,
            published=largest.said.value, recomputed=float(most), agrees=yes_no(agree), note=note,
        )
    ]  # fmt: skip


def _solved(formula: Formula, rows: list[Row]) -> list[Finding]:
    """A factor with its own unit, solved from the largest published value by the other factors."""
    largest = max(rows, key=lambda row: row.said.exact)
    found = []
    for name, stated in largest.factors.items():
        rest = {other: quantity for other, quantity in largest.factors.items() if other != name}
        if stated.unit in ("1", PERCENT) or not _product(rest):
            continue
        solved = largest.said.exact / _product(rest)
        slack = (largest.said.exact_rounding / _product(rest)) + stated.exact_rounding
        found.append(
            Finding(
                figure=f"table {largest.table}", check="formula_factor", metric=name, unit=stated.unit,
                published=stated.value, recomputed=float(solved),
                agrees=yes_no(abs(solved - stated.exact) <= slack),
                note=f"{largest.said} / ({_written(rest)}) = {amount(float(solved), stated.unit)}; the study's "
                f"files have {stated}.",
            )
        )  # fmt: skip
    return found


def _measured(formula: Formula, rows: list[Row]) -> Finding:
    """Whether a published value holds anything but the formula: one that does not was never measured."""
    other = [row for row in rows if not row.fits]
    varies = [name for name in formula.factors if len({row.factors[name].exact for row in rows}) > 1]
    if other:
        note = (
            f"{len(other)} of {len(rows)} published values are not what the formula of the {formula.where} gives."
        )
    else:
        moves = f"only {listed(varies)} varies" if varies else "nothing varies: it is one constant"
        note = (
            f"All {len(rows)} published values are the product of {listed(list(formula.factors))}, in which "
            f"{moves}. Nothing was counted: it is no measurement of the job that ran."
        )
    return Finding(
        figure=f"table {rows[0].table}", check="not_measured", metric=formula.result, unit="1",
        published=float(len(rows)), recomputed=float(len(other)), agrees=yes_no(bool(other)), note=note,
    )  # fmt: skip
