"""A published study that is repeated here: its claims one by one, its figures beside this machine's, its tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from tare.literature.answers import NOTHING, OPEN, OTHER, divided, is_as_claimed, rest_of
from tare.literature.finding import amount, listed
from tare.literature.published import Published
from tare.literature.published_file import Plot
from tare.literature.vocabulary import BAR, LINE, ROOFLINE, TIMELINE
from tare.model.tables import HERE, SAYS, SETTLED_HERE
from tare.report.answers import minutes
from tare.report.evidence import Evidence
from tare.report.figures import file_name
from tare.report.figures.paper import paper_words
from tare.report.figures.paper_rows import Given, theirs
from tare.report.words.labels import env_title, sentence_case, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Row, Table
from tare.report.words.wording import missing

# Checks that a reader wants to see below the figure that they are about.
ABOUT_A_FIGURE = ("swapped", "repeated", "not_in_logs", "roof", "ridge")
SPECIFICATION = "specification"
# What the audit did again of a table's rows, as a column of it.
DONE_AGAIN = {"own_maximum": "largest of its own rows", "own_mean": "their mean", "formula": "by its formula"}
COPIED = "copied_rows"
ABOUT_A_TABLE = ("formula_ceiling", "not_measured")
UNEQUAL = "≠: not what the table prints."
SHARE = re.compile(r"(what is left, .*)$")  # of the evidence, as literature.level_claims.Confound has it
MOST_REASONS = 3  # why claims are left, in lines of their own
SHORT_FOR = {"gpu": "GPU", "gpus": "GPUs", "cuda": "CUDA", "vcpu": "vCPUs", "flops": "FLOPs"}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One claim for one workload: what the study's own data say, what this machine says, and how they match.

    `matches` is `match` in a few words, empty where nothing was measured; `parts`: what of a change is not the
    level's own, with its interval; None where no other workload tells.
    """

    workload: str
    published_says: str
    published_note: str
    here: str
    match: str
    matches: str
    parts: str | None
    evidence: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Workloads of which a claim says the same for the same reason.

    Attributes:
        judged: each of them; their evidence differs.
        reason: why it says no more, but for what each has of its own; None where it is settled.
        own: by workload, what was measured of what more is needed for; empty where no reason begins with that.
    """

    judged: list[Judged]
    reason: str | None
    own: list[tuple[str, str]]

    @property
    def workloads(self) -> str:
        """Their titles."""
        return listed([one.workload for one in self.judged])


@dataclass(frozen=True, kw_only=True)
class ClaimCard:
    """One claim, as the page shows it: workloads of which it says the same stand together."""

    statement: str
    figures: str
    alike: list[Alike]


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

    @property
    def said(self) -> str:
        """Its caption."""
        return " ".join(self.caption)


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
    so_far = claims.loc[claims["here"] == OPEN, "reason"].map(is_as_claimed).sum()
    return [
        f"The paper makes {claims['claim'].nunique()} claims about its environments, {len(claims)} where each "
        f"workload counts by itself. Of these {len(claims)}, this machine says {_counts(claims['here'], HERE)}."
        + (f" Of the open ones {so_far} are as claimed wherever they were measured." if so_far else ""),
        f"The paper's own figures and logs say {_counts(claims['published_says'], SAYS)}.",
        f"Of {values.sum()} values in its figures, {values.get('yes', 0)} are what their own logs have, "
        f"{values.get('no', 0)} are not, and {values.get('not recomputable', 0)} "
        f"{'has' if values.get('not recomputable', 0) == 1 else 'have'} no log."
        if values.sum()
        else "Its figures print no values that could be held against logs.",
        *of_recordings(findings),
        *([] if settled else ["Nothing of what it claims is settled here."]),
    ]


def of_recordings(findings: pd.DataFrame) -> list[str]:
    """How many maxima of its tables are the recordings' own, and what in them was never measured."""
    maxima = findings.loc[findings["check"] == "own_maximum", "agrees"].value_counts()
    computed = findings.loc[(findings["check"] == "not_measured") & (findings["agrees"] == "no"), "metric"]
    lines = []
    if maxima.sum():
        lines.append(
            f"Of {maxima.sum()} maxima in its tables, {maxima.get('yes', 0)} are the largest of their recordings' "
            f"own rows, and {maxima.get('no', 0)} are not."
        )
    if len(computed):
        names = listed([" ".join(SHORT_FOR.get(word, word) for word in name.split("_")) for name in computed])
        lines.append(f"Computed by a formula and not measured, in its tables: {names}.")
    return lines


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
                alike=_alike([_judged(row) for row in rows.to_dict("records")]),
            )
        )
    return cards


def _alike(judged: Sequence[Judged]) -> list[Alike]:
    groups: dict[tuple[str | None, ...], list[Judged]] = {}
    for one in judged:
        shared = None if one.reason is None else rest_of(one.reason)
        groups.setdefault((one.published_says, one.here, one.matches, shared), []).append(one)
    found = []
    for (*_, reason), members in groups.items():
        said = {one.workload: divided(one.reason)[0] for one in members if one.reason}
        own_words = [(workload, words) for workload, words in said.items() if words]
        found.append(Alike(judged=members, reason=reason, own=own_words))
    return found


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
        matches="" if row["evidence"] == NOTHING else matches(row["match"]),
        parts=readable(found.group(1)) if (found := SHARE.search(row["evidence"])) else None,
        evidence=readable(row["evidence"]),
        reason=None if missing(row["reason"]) else row["reason"],
    )


def more_time_lines(evidence: Evidence, paper: str) -> list[str]:
    """What stays open of its claims and why, then what the study would take to tell what it left open."""
    claims = own(evidence.claims, paper)
    lines = [
        *_reasons(claims[claims["here"] == OPEN], "Open here"),
        *_reasons(claims[claims["here"] == OTHER], "What no time on this machine tells"),
    ]
    if len(claims) and not lines:
        lines.append("Every claim is settled here.")
    told = minutes.sentence(evidence)
    return [*lines, *([told] if told else [])]


def _reasons(rows: pd.DataFrame, what: str) -> list[str]:
    """How many claims, each workload by itself, are left for a reason; the rarer reasons together."""
    counts = list(rows["reason"].map(rest_of).value_counts().items())
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
            if _is_narrow(plot):
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


def _is_narrow(plot: Plot) -> bool:
    """Whether a figure has room beside another one."""
    if plot.kind == TIMELINE:
        return len(plot.subjects) == 1
    return plot.kind in (BAR, LINE)


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
    return re.sub(r"(?<=[0-9]) us\b", " µs", note.replace("+-", "±").replace(" x ", " × "))


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
        _specification_table(published, str(name).removeprefix("table "), part, findings)
        for name, part in rows.groupby("figure", sort=False)
    ]


def tables_apart(evidence: Evidence, published: Published) -> list[Table]:
    """Those of its tables that do not stand among its figures."""
    shown = tuple(f"Table {plot.table}:" for plot in published.plotted if plot.table is not None)
    return [table for table in specification_tables(evidence, published) if not table.caption.startswith(shown)]


def _specification_table(published: Published, name: str, rows: pd.DataFrame, findings: pd.DataFrame) -> Table:
    """One of them, with what the audit did again of it; a reason that several rows share is said once, below."""
    redone = {
        (row["check"], *_key(row)): row
        for row in findings[findings["figure"] == f"table {name}"].to_dict("records")
        if row["check"] in DONE_AGAIN
    }
    checks = [check for check in DONE_AGAIN if any(key[0] == check for key in redone)]
    records = [(row, *_sides(row["note"])) for row in rows.to_dict("records")]
    reasons = Counter(here for _, _, here in records if here.startswith(UNAVAILABLE))
    shared = [reason for reason, count in reasons.items() if count > 1]
    numbers = list(dict.fromkeys(here.partition(", ")[2] for row, _, here in records if _is_number(row)))
    made: list[Row] = []
    for row, said, here in records:
        again = [_again(redone.get((check, *_key(row)))) for check in checks]
        mean = redone.get(("own_mean", *_key(row)))
        shown = _number_here(row, here, mean) if _is_number(row) else UNAVAILABLE if here in shared else here
        made.append([_of_row(published, row), said, *again, shown])
    about = findings[(findings["figure"] == f"table {name}") & findings["check"].isin(ABOUT_A_TABLE)]
    below = [UNEQUAL, *_copied(published, findings), *_notes(about)] if checks else []
    return Table(
        caption=f"Table {name}: {published.table_files[name].title}, beside this machine",
        columns=["", "published", *(DONE_AGAIN[check] for check in checks), "here"],
        rows=made,
        note=" ".join([*below, *(f"{sentence_case(one)}." for one in (*shared, *numbers))]),
        wide=bool(checks),
    )


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    """What a finding about a row of a table is about."""
    return row["metric"], str(row["workload"]), str(row["env"])


def _again(finding: dict[str, Any] | None) -> str | None:
    """What the audit gives in the place of a printed value, marked where it differs; None for nothing."""
    if finding is None or missing(finding["recomputed"]):
        return None
    number = readable(amount(finding["recomputed"], finding["unit"]))
    return f"≠ {number}" if finding["agrees"] == "no" else number


def _is_number(row: dict[str, Any]) -> bool:
    """Whether something of a model was measured here, so that the note's second half begins with a number."""
    return not missing(row["workload"]) and not missing(row["measured"])


def _number_here(row: dict[str, Any], here: str, mean: dict[str, Any] | None) -> Cell:
    """This machine's number, below it its kind, and the mean where there is one."""
    below = row["measured_kind"]
    if mean is not None and not missing(mean["measured"]):
        below += f"; mean {readable(amount(mean['measured'], mean['unit']))}"
    return Cell(text=readable(here.partition(", ")[0]), below=below)


def _copied(published: Published, findings: pd.DataFrame) -> list[str]:
    """Which rows of the recordings are another environment's, in one sentence; empty where none are."""
    rows = findings[(findings["check"] == COPIED) & (findings["agrees"] == "no")].to_dict("records")
    if not rows:
        return []
    told = [
        f"{row['published'] - row['recomputed']:.0f} of {row['published']:.0f} "
        f"({workload_title(row['workload'])}, {theirs(published.names, row['env'])})"
        for row in rows
    ]
    return [f"Rows of the recordings that are byte-identical copies of another one's: {listed(told)}."]


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
    """The halves of a specification's note, `Published: …. Here: ….`, as literature.audit joins them."""
    published, _, here = note.partition(" Here: ")
    return published.removeprefix("Published: ").removesuffix("."), here.removesuffix(".") or "–"
