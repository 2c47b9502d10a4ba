"""A published study that is repeated here: its claims one by one, its figures beside this machine's, its tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from tare.literature.answers import OPEN, OTHER
from tare.literature.finding import listed
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import BAR, LINE, ROOFLINE
from tare.model.tables import HERE, SAYS, SETTLED_HERE
from tare.report.answers import more_time
from tare.report.evidence import Evidence
from tare.report.figures import file_name
from tare.report.figures.paper_kinds import Given, in_groups, paper_words
from tare.report.figures.paper_words import theirs
from tare.report.words.labels import env_title, sentence_case, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Table
from tare.report.words.wording import missing

# Checks that a reader wants to see below the figure that they are about.
ABOUT_A_FIGURE = ("swapped", "repeated", "not_in_logs", "roof", "ridge")
SPECIFICATION = "specification"
MOST_REASONS = 3  # why claims are left, in lines of their own
SHORT_FOR = {"gpu": "GPU", "gpus": "GPUs", "cuda": "CUDA", "vcpu": "vCPUs"}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One claim for one workload: what the study's own data say, what this machine says, and how they match.

    `matches` is `match` in a few words.
    """

    workload: str
    published_says: str
    published_note: str
    here: str
    match: str
    matches: str
    evidence: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class ClaimCard:
    """One claim, as the page shows it."""

    statement: str
    figures: str
    judged: list[Judged]


@dataclass(frozen=True, kw_only=True)
class FigureView:
    """One figure of the study: its file, what it says in short and in numbers, what the audit found about it.

    `table` stands in the place of a file where the paper counts a table among its figures.
    """

    name: str | None
    title: str
    caption: list[str]
    sentences: list[str]
    found: list[str]
    table: Table | None = None


def own(table: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Rows of one published study."""
    return table[table["paper"] == paper]


def names(published: Published) -> str:
    """What the paper calls the environments that notes name by ours: `host is their Bare VM`; empty without any."""
    called = {env: name for env, name in published.names.items() if name != env_title(env)}
    return ", ".join(f"{'where it says ' if index else ''}{env} it is their {name}"
                     for index, (env, name) in enumerate(called.items()))  # fmt: skip


def summary(evidence: Evidence, paper: str) -> list[str]:
    """How many claims hold, and how many published values are what the authors' own logs have."""
    claims, findings = own(evidence.claims, paper), own(evidence.published, paper)
    values = findings[findings["check"] == "figure_value"]["agrees"].value_counts()
    settled = claims["here"].isin(SETTLED_HERE).any()
    return [
        f"The paper makes {claims['claim'].nunique()} claims about its environments, {len(claims)} where each "
        f"workload counts by itself. Of these {len(claims)}, this machine says {_counts(claims['here'], HERE)}.",
        f"The paper's own figures and logs say {_counts(claims['published_says'], SAYS)}.",
        f"Of {values.sum()} values in its figures, {values.get('yes', 0)} are what their own logs have, "
        f"{values.get('no', 0)} are not, and {values.get('not recomputable', 0)} "
        f"{'has' if values.get('not recomputable', 0) == 1 else 'have'} no log."
        if values.sum()
        else "Its figures print no values that could be held against logs.",
        *([] if settled else ["Nothing of what it claims is settled here."]),
    ]


def _counts(words: pd.Series, known: Sequence[str]) -> str:
    """holds here: 2, does not hold here: 0, …: in this order, none left out."""
    return ", ".join(f"{word}: {(words == word).sum()}" for word in known)


def claim_cards(evidence: Evidence, paper: str) -> list[ClaimCard]:
    """The claims in the paper's order."""
    claims = own(evidence.claims, paper)
    cards = []
    for _, rows in claims.groupby("claim", sort=False):
        figures = {name for names in rows["figures"].dropna() for name in names.split(", ")}
        cards.append(
            ClaimCard(
                statement=str(rows["statement"].iloc[0]),
                figures=_figures_text(sorted(figures, key=int)),
                judged=[_judged(row) for row in rows.to_dict("records")],
            )
        )
    return cards


def _figures_text(names: list[str]) -> str:
    if not names:
        return "no figure"
    return f"figure{'s' if len(names) > 1 else ''} {listed(names)}"


def lines_of(published: Published) -> str:
    """Its figures of times by batch size: `figures 2 and 3 of nyu2022`; empty where it has none."""
    found = [plot.figure for plot in published.plotted if plot.kind == LINE]
    return f"{_figures_text(found)} of {published.paper}" if found else ""


def matches(match: str) -> str:
    """The column `match` in short: `other device class and stack; same runtimes`."""
    found: dict[str, list[str]] = {}
    for name, word in re.findall(r"(?:^|; )([a-z ]+): (same|other|unknown) \(", match):
        found.setdefault(word, []).append(name)
    return "; ".join(f"{word} {listed(names)}" for word, names in found.items())


def _judged(row: dict[str, Any]) -> Judged:
    return Judged(
        workload=workload_title(row["workload"]),
        published_says=row["published_says"],
        published_note=readable(row["published_note"]),
        here=row["here"],
        match=row["match"],
        matches=matches(row["match"]),
        evidence=readable(row["evidence"]),
        reason=None if missing(row["reason"]) else row["reason"],
    )


def more_time_lines(evidence: Evidence, paper: str) -> list[str]:
    """What stays open of its claims and why, then what more time would tell of their workloads."""
    claims = own(evidence.claims, paper)
    lines = [
        *_reasons(claims[claims["here"] == OPEN], "Open here"),
        *_reasons(claims[claims["here"] == OTHER], "What no time on this machine tells"),
    ]
    found = more_time.section(evidence, set(claims["workload"]))
    if len(claims) and not lines:
        lines.append("Every claim is settled here.")
    return [*lines, *(found.sentences if found else [])]


def _reasons(rows: pd.DataFrame, what: str) -> list[str]:
    """How many claims, each workload by itself, are left for a reason; the rarer reasons together."""
    counts = list(rows["reason"].value_counts().items())
    lines = [f"{what}: {_claims(count)}: {readable(str(reason))}." for reason, count in counts[:MOST_REASONS]]
    if rest := sum(count for _, count in counts[MOST_REASONS:]):
        lines.append(f"{what}: {_claims(rest)} for reasons that stand above, at each claim.")
    return lines


def _claims(count: int) -> str:
    return f"{count} claim{'' if count == 1 else 's'}"


def figure_rows(evidence: Evidence, published: Published) -> list[list[FigureView]]:
    """The figures in the paper's order, two and two of a group; what needs the width stands alone."""
    given = given_of(evidence, published.paper)
    rows: list[list[FigureView]] = []
    for group in published.plots:
        waiting: FigureView | None = None
        for plot in group.figures:
            view = _figure(evidence, given, published, plot)
            if plot.kind in (BAR, LINE) and not in_groups(plot):
                if waiting is None:
                    rows.append([view])
                    waiting = view
                else:
                    rows[-1].append(view)
                    waiting = None
            else:
                rows.append([view])
                waiting = None
    return rows


def given_of(evidence: Evidence, paper: str) -> Given:
    """What the figures of a study are drawn from."""
    return Given(
        findings=own(evidence.published, paper),
        metrics=evidence.metrics,
        verdicts=evidence.verdicts,
        samples=evidence.samples,
        ceilings=evidence.ceilings,
    )


def _figure(evidence: Evidence, given: Given, published: Published, plot: Plot) -> FigureView:
    about = given.findings
    about = about[(about["figure"] == plot.figure) & about["check"].isin(ABOUT_A_FIGURE)]
    view = partial(FigureView, title=f"Figure {plot.figure}", found=_notes(about))
    if plot.table is not None:
        tables = specification_tables(evidence, published)
        table = next(one for one in tables if one.caption.startswith(f"Table {plot.table}:"))
        return view(name=None, caption=[f"Figure {plot.figure}: {plot.title}."], sentences=[], table=table)
    name = file_name(published.paper, plot.figure)
    if plot.kind == ROOFLINE:
        return view(name=name, caption=_roofline_sentences(given.findings, plot.figure), sentences=[])
    caption, sentences = paper_words(published, given, plot)
    return view(name=name, caption=caption, sentences=sentences)


def _notes(rows: pd.DataFrame) -> list[str]:
    return [readable(note) for note in rows["note"]]


def readable(note: str) -> str:
    """A note of the tables, which are plain letters, with the signs that people write."""
    return note.replace("+-", "±").replace(" us", " µs").replace(" x ", " × ")


def _roofline_sentences(findings: pd.DataFrame, figure: str) -> list[str]:
    """What was drawn, and what the audit says of it, in counts and the roof's own notes."""
    about = findings[findings["figure"] == figure]
    values, roofs = about[about["check"] == "figure_value"], about[about["metric"] == "roof_flop_per_s"]
    agree = (values["agrees"] == "yes").sum()
    return [
        f"Published: {len(values)} coordinates read off the figure; {agree} of them are what the paper's formula "
        "gives for its own logs.",
        *_notes(roofs),
    ]


def specification_tables(evidence: Evidence, published: Published) -> list[Table]:
    """The paper's tables, beside what this machine has."""
    findings = own(evidence.published, published.paper)
    rows = findings[findings["check"] == SPECIFICATION]
    return [
        _specification_table(published, str(name).removeprefix("table "), part)
        for name, part in rows.groupby("figure", sort=False)
    ]


def _specification_table(published: Published, name: str, rows: pd.DataFrame) -> Table:
    """One of them; a reason that several rows share is said once, below."""
    sides = [(_of_row(published, row), *_sides(row["note"])) for row in rows.to_dict("records")]
    reasons = Counter(here for _, _, here in sides if here.startswith(UNAVAILABLE))
    shared = [reason for reason, count in reasons.items() if count > 1]
    return Table(
        caption=f"Table {name}: {published.table_files[name].title}, beside this machine",
        columns=["", "published", "here"],
        rows=[[what, said, UNAVAILABLE if here in shared else here] for what, said, here in sides],
        note=" ".join(f"{sentence_case(reason)}." for reason in shared),
    )


def _of_row(published: Published, row: dict[str, Any]) -> Cell:
    """What a row is about: its name, and below it workload and environment where it has them."""
    told = [] if missing(row["workload"]) else [workload_title(row["workload"])]
    told += [] if missing(row["env"]) else [theirs(published.names, row["env"])]
    return Cell(text=_words(row["metric"]), below=", ".join(told)) if told else _words(row["metric"])


def _words(name: str) -> str:
    """gpu_memory -> GPU memory."""
    words = [SHORT_FOR.get(word, word) for word in name.split("_")]
    return sentence_case(" ".join(words)) if words[0] == name.split("_")[0] else " ".join(words)


def _sides(note: str) -> tuple[str, str]:
    """The halves of a specification's note, `Published: …. Here: ….`, as literature.specifications writes it."""
    published, _, here = note.partition(" Here: ")
    return published.removeprefix("Published: ").removesuffix("."), here.removesuffix(".") or "–"
