"""One finding about a published study: a row of papers/findings.csv."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was checked, and what came of it.

    Attributes:
        figure: where it is: number of a figure, `log`, `table I`, `text`, `section 4.1`.
        check: machine name of the check; docs/published.md has them.
        metric: what it is about.
        unit: base unit of the numbers.
        agrees: yes, no or not recomputable: whether what was published follows from the study's own data; of a
            claim what these say of it.
        note: how a reader can redo it.
        claim: the claim that it is about.
        workload, env, batch: what it is about; None where it is about all.
        published, recomputed: numbers in `unit`; None where there is none.
        basis: distinguishes findings that differ in nothing else.
    """

    figure: str
    check: str
    metric: str
    unit: str
    agrees: str
    note: str
    claim: str | None = None
    workload: str | None = None
    env: str | None = None
    batch: int | None = None
    published: float | None = None
    recomputed: float | None = None
    basis: str | None = None

    @property
    def name(self) -> str:
        """What it is about, in one word."""
        parts = (self.check, self.figure, self.claim, self.workload, self.env, self.batch, self.metric, self.basis)
        return "/".join(str(part).replace(" ", "_") for part in parts if part is not None)


def yes_no(agree: bool | None) -> str:
    """The word of the column `agrees`; None is `not recomputable`."""
    return "not recomputable" if agree is None else ("yes" if agree else "no")
