"""A published study repeated here: claims, figures and tables next to this machine's, and recomputed numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd

from tare.literature.answers import NOTHING, OPEN, OTHER, divided, is_as_claimed, rest_of
from tare.literature.finding import amount, listed, words
from tare.literature.published import Published
from tare.literature.published_file import Asked, Plot
from tare.literature.vocabulary import BAR, LINE, ROOFLINE, TIMELINE
from tare.model.tables import HERE, SAYS, SETTLED_HERE
from tare.predict.choose import unpredictable
from tare.predict.requests import read_given
from tare.report import answer
from tare.report.evidence import Evidence
from tare.report.figures.paper import paper_words
from tare.report.figures.paper_rows import Given, file_name, theirs
from tare.report.rows import having
from tare.report.words.labels import env_title, titles_in, workload_title
from tare.report.words.layout import UNAVAILABLE, Cell, Table, field
from tare.report.words.quantities import seconds
from tare.report.words.wording import missing, sentence_case

# Checks that a reader wants to see below the figure that they are about.
ABOUT_A_FIGURE = ("swapped", "repeated", "not_in_logs", "roof", "ridge")
SPECIFICATION = "specification"
# What the audit did again of a table's rows, as a column of it.
DONE_AGAIN = {"own_maximum": "largest of its rows alone", "own_mean": "their mean", "formula": "by its formula"}
ABOUT_A_TABLE = ("formula_ceiling", "not_measured")
UNEQUAL = "≠: not what the table prints."
SHARE = re.compile(r"(what is left, .*)$")  # of the evidence, as literature.level_claims.Confound has it
MOST_REASONS = 3  # why claims are left, in separate lines
SHORT_FOR = {"gpu": "GPU", "gpus": "GPUs", "cuda": "CUDA", "vcpu": "vCPUs", "flops": "FLOPs"}
CHECKS = titles_in("checks.csv")  # title, and what `recomputed` is; in the order of the page, others last
PLACES = {check: place for place, check in enumerate(CHECKS)}


def own(table: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Rows of one published study."""
    return having(table, paper=paper)


def names(published: Published) -> str:
    """What the paper calls the environments that notes name by ours: `host is their Bare VM`; empty without any."""
    called = [f"{env} it is their {name}" for env, name in published.names.items() if name != env_title(env)]
    return ", where it says ".join(called)


def summary(evidence: Evidence, paper: str) -> list[str]:
    """How many claims hold, and how many published values are what the authors' own logs have."""
    claims, findings = own(evidence.claims, paper), own(evidence.published, paper)
    values = having(findings, check="figure_value")["agrees"].value_counts()
    yes, no, lost = (values.get(word, 0) for word in ("yes", "no", "not recomputable"))
    so_far = claims.loc[claims["here"] == OPEN, "reason"].map(is_as_claimed).sum()
    agree = "agrees" if so_far == 1 else "agree"
    claimed = f" Of the open ones, {so_far} {agree} with the paper in every measured comparison." if so_far else ""
    lines = [
        f"The paper makes {claims['claim'].nunique()} claims about its environments, {len(claims)} if each "
        f"workload is counted separately. Results of this machine for these {len(claims)}: "
        f"{_counts(claims['here'], HERE)}.{claimed}",
        f"Results of the paper's own figures and logs: {_counts(claims['published_says'], SAYS)}.",
        f"Of {values.sum()} values in its figures, {yes} {'agrees' if yes == 1 else 'agree'} with their own logs, "
        f"{no} {'does' if no == 1 else 'do'} not, and {lost} {'has' if lost == 1 else 'have'} no log."
        if values.sum()
        else "Its figures print no values that could be compared with logs.",
    ]
    lines += of_recordings(findings)
    settled = claims["here"].isin(SETTLED_HERE).any()
    return lines if settled else [*lines, "None of its claims is settled here."]


def of_recordings(findings: pd.DataFrame) -> list[str]:
    """How many maxima of its tables are the recordings' own, and what in them was never measured."""
    lines = []
    maxima = having(findings, check="own_maximum")["agrees"].value_counts()
    if maxima.sum():
        lines.append(
            f"Of {maxima.sum()} maxima in its tables, {maxima.get('yes', 0)} are the maximum of the rows of their "
            f"recording, and {maxima.get('no', 0)} are not."
        )
    computed = having(findings, check="not_measured", agrees="no")["metric"]
    if len(computed):
        lines.append(f"Computed by a formula in its tables, not measured: {listed([*map(_plain, computed)])}.")
    return lines


def _counts(words: pd.Series, known: Sequence[str]) -> str:
    """holds here: 2, does not hold here: 0, …: in this order, none left out."""
    return ", ".join(f"{word}: {(words == word).sum()}" for word in known)


def claim_cards(evidence: Evidence, paper: str) -> list[SimpleNamespace]:
    """The claims in the paper's order; workloads of which one says the same for the same reason are grouped.

    Their evidence differs; `own` is by workload what was measured of what more is needed for.
    """
    cards = []
    for _, rows in own(evidence.claims, paper).groupby("claim", sort=False):
        figures = {name for names in rows["figures"].dropna() for name in names.split(", ")}
        groups: dict[tuple[str | None, ...], list[SimpleNamespace]] = {}
        for one in map(_judged, rows.to_dict("records")):
            shared = None if one.reason is None else rest_of(one.reason)
            groups.setdefault((one.published_says, one.here, one.matches, shared), []).append(one)
        alike = [
            SimpleNamespace(
                judged=members, reason=reason, workloads=listed([one.workload for one in members]),
                own=[(one.workload, words) for one in members if one.reason and (words := divided(one.reason)[0])],
            )
            for (*_, reason), members in groups.items()
        ]  # fmt: skip
        text = _figures_text(sorted(figures, key=int))
        cards.append(SimpleNamespace(statement=str(rows["statement"].iloc[0]), figures=text, alike=alike))
    return cards


def _figures_text(names: list[str]) -> str:
    return f"figure{'s' if len(names) > 1 else ''} {listed(names)}" if names else "no figure"


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


def _judged(row: dict[str, Any]) -> SimpleNamespace:
    """One claim for one workload, as the table `claims` has it, for people.

    `matches` is `match` in a few words, empty where nothing was measured; `parts`: what of a change is not the
    level's own, with its interval; None where no other workload determines it.
    """
    parts = SHARE.search(row["evidence"])
    texts: dict[str, str | None] = {name: readable(row[name]) for name in ("published_note", "evidence")}
    texts |= {"workload": workload_title(row["workload"]), "parts": readable(parts.group(1)) if parts else None}
    texts |= {"reason": None if missing(row["reason"]) else row["reason"]}
    texts |= {"matches": "" if row["evidence"] == NOTHING else matches(row["match"])}
    return SimpleNamespace(**{**row, **texts})


def requests(evidence: Evidence, published: Published) -> list[list[str]]:
    """What its optimiser is asked, and what that gives here: as it is read, predicted and measured."""
    claims = own(evidence.claims, published.paper)
    return [
        [*_read_here(evidence, asked, workload), *(f"Measured: {readable(one)}" for one in judged["evidence"])]
        for asked in published.requests
        for workload, claim in asked.claims.items()
        if workload in evidence.networks and len(judged := having(claims, claim=claim, workload=workload))
    ]


def _read_here(evidence: Evidence, asked: Asked, workload: str) -> list[str]:
    request, notes = read_given(asked.request, asked.where, workload)
    settings = [f"{factor}={level}" for factor, levels in request.settings.items() for level in levels]
    never = filter(None, map(unpredictable, request.stacks or ()))
    answers = [
        one
        for one in evidence.answers
        if one.request.workload == workload and one.request.stacks == request.stacks and one.choice.ranked
    ]
    predicted = [
        f"{one.choice.ranked[0].candidate.name} is first, {seconds(one.choice.ranked[0].elapsed.seconds)}"
        for one in answers
    ]
    return [
        f"{sentence_case(asked.where)}: {asked.statement}",
        f"Read here for {workload_title(workload)}: {listed([*(request.stacks or ()), *settings])}.",
        *(f"Ignored: {note}." for note in notes),
        *(f"Predicted: {one}." for one in predicted or [f"nothing; {next(never, 'tare optimise was not asked')}"]),
    ]


def more_time_lines(evidence: Evidence, paper: str) -> list[str]:
    """What stays open of its claims and why, the rarer reasons together; what would settle it."""
    claims, lines = own(evidence.claims, paper), []
    for word, what in ((OPEN, "Open here"), (OTHER, "Can't be settled on this machine, whatever the time")):
        counts = list(having(claims, here=word)["reason"].map(rest_of).value_counts().items())
        lines += [f"{what}: {_claims(count)}: {readable(str(one))}." for one, count in counts[:MOST_REASONS]]
        if rest := sum(count for _, count in counts[MOST_REASONS:]):
            lines.append(f"{what}: {_claims(rest)} for reasons given above, at each claim.")
    if len(claims) and not lines:
        lines.append("Every claim is settled here.")
    sentence = answer.sentence(evidence)
    return [*lines, *([sentence] if sentence else [])]


def _claims(count: int) -> str:
    return f"{count} claim{'' if count == 1 else 's'}"


def figure_rows(evidence: Evidence, published: Published) -> list[list[SimpleNamespace]]:
    """The figures in the paper's order, two and two of a group; what needs the whole width is alone."""
    given = Given(
        findings=own(evidence.published, published.paper), metrics=evidence.metrics, verdicts=evidence.verdicts,
        samples=evidence.samples, ceilings=evidence.ceilings,
    )  # fmt: skip
    rows: list[list[SimpleNamespace]] = []
    for group in published.plots:
        waits = False
        for plot in group.figures:
            view = _figure(evidence, given, published, plot)
            narrow = plot.kind in (BAR, LINE) or (plot.kind == TIMELINE and len(plot.subjects) == 1)
            if waits and narrow:
                rows[-1].append(view)
            else:
                rows.append([view])
            waits = narrow and not waits
    return rows


def _figure(evidence: Evidence, given: Given, published: Published, plot: Plot) -> SimpleNamespace:
    """Its file, or the table in its place; what it says, in short and in numbers; what was found."""
    title, name, table = f"Figure {plot.figure}", file_name(published.paper, plot.figure), None
    about = having(given.findings, figure=plot.figure)
    sentences: list[str] = []
    if plot.table is not None:
        caption, start = [f"{title}: {plot.title}."], f"Table {plot.table}:"
        table = next(one for one in specification_tables(evidence, published) if one.caption.startswith(start))
    elif plot.kind == ROOFLINE:
        agrees = having(about, check="figure_value")["agrees"]
        caption = [
            f"Published: {len(agrees)} coordinates read off the figure; {(agrees == 'yes').sum()} of them agree "
            "with the paper's formula, applied to its own logs.",
            *map(readable, having(about, metric="roof_flop_per_s")["note"]),
        ]
    else:
        caption, sentences = paper_words(published, given, plot)
    return SimpleNamespace(
        title=title, name=None if table else name, table=table, caption=caption, said=" ".join(caption),
        sentences=sentences, found=[*map(readable, having(about, check=ABOUT_A_FIGURE)["note"])],
    )  # fmt: skip


def readable(note: str) -> str:
    """A note of the tables, which are plain letters, with the signs that people write."""
    return re.sub(r"(?<=[0-9]) us\b", " µs", note.replace("+-", "±").replace(" x ", " × "))


def specification_tables(evidence: Evidence, published: Published) -> list[Table]:
    """The paper's tables, compared with this machine."""
    findings = own(evidence.published, published.paper)
    return [
        _specification_table(published, str(name).removeprefix("table "), part, findings)
        for name, part in having(findings, check=SPECIFICATION).groupby("figure", sort=False)
    ]


def tables_apart(evidence: Evidence, published: Published) -> list[Table]:
    """Those of its tables that are not among its figures."""
    shown = tuple(f"Table {plot.table}:" for plot in published.plotted if plot.table is not None)
    return [table for table in specification_tables(evidence, published) if not table.caption.startswith(shown)]


def _specification_table(published: Published, name: str, rows: pd.DataFrame, findings: pd.DataFrame) -> Table:
    """One of them, with what the audit did again of it; a reason that several rows share is said once, below."""
    about = having(findings, figure=f"table {name}")
    redone = {(row["check"], *_key(row)): row for row in about.to_dict("records") if row["check"] in DONE_AGAIN}
    checks = [check for check in DONE_AGAIN if any(key[0] == check for key in redone)]
    # The note is `Published: …. Here: ….`, as literature.audit joins both.
    halves = [row["note"].partition(" Here: ") for row in rows.to_dict("records")]
    reasons = Counter(here for *_, here in halves if here.startswith(UNAVAILABLE))
    below, made = [], []
    for row, (said, _, here) in zip(rows.to_dict("records"), halves, strict=True):
        is_number = not missing(row["workload"]) and not missing(row["measured"])
        text = here.removesuffix(".") or "–"
        shown: str | Cell = text
        if is_number:
            number, _, how = text.partition(", ")
            mean, kind = redone.get(("own_mean", *_key(row))), row["measured_kind"]
            if mean is not None and not missing(mean["measured"]):
                kind += f"; mean {readable(amount(mean['measured'], mean['unit']))}"
            shown, text = Cell(text=readable(number), below=kind), how
        elif reasons[here] > 1:
            shown = UNAVAILABLE
        below += [text] if is_number or reasons[here] > 1 else []
        again = [_again(redone.get((check, *_key(row)))) for check in checks]
        published_text = said.removeprefix("Published: ").removesuffix(".")
        made.append([_of_row(published, row), published_text, *again, shown])
    notes = [*map(readable, having(about, check=ABOUT_A_TABLE)["note"])]
    of_audit = [UNEQUAL, *_copied(published, findings), *notes] if checks else []
    return Table(
        caption=f"Table {name}: {published.table_files[name].title}, compared with this machine",
        columns=["", "published", *(DONE_AGAIN[check] for check in checks), "here"],
        rows=made,
        note=" ".join([*of_audit, *(f"{sentence_case(one)}." for one in dict.fromkeys(below))]),
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


def _copied(published: Published, findings: pd.DataFrame) -> list[str]:
    """Which rows of the recordings are another environment's, in one sentence; empty where none are."""
    rows = having(findings, check="copied_rows", agrees="no")
    copies = [
        f"{row.published - row.recomputed:.0f} of {row.published:.0f} "
        f"({workload_title(row.workload)}, {theirs(published.names, row.env)})"
        for row in rows.itertuples()
    ]
    said = f"Rows that are byte-identical copies of rows of another recording: {listed(copies)}."
    return [said] if copies else []


def _of_row(published: Published, row: dict[str, Any]) -> str | Cell:
    """What a row is about: its name, and below it workload and environment where it has them."""
    first = row["metric"].split("_")[0]
    text = _plain(row["metric"]) if first in SHORT_FOR else sentence_case(_plain(row["metric"]))
    scope = [] if missing(row["workload"]) else [workload_title(row["workload"])]
    scope += [] if missing(row["env"]) else [theirs(published.names, row["env"])]
    return Cell(text=text, below=", ".join(scope)) if scope else text


def _plain(name: str) -> str:
    """gpu_memory -> GPU memory."""
    return " ".join(SHORT_FOR.get(word, word) for word in name.split("_"))


def groups(evidence: Evidence, published: Published) -> list[SimpleNamespace]:
    """Every finding but the specifications: of each check its title, how it came out, the table."""
    findings = own(evidence.published, published.paper)
    checks = set(findings["check"]) - {SPECIFICATION}
    ordered = sorted(checks, key=lambda check: (PLACES.get(check, len(PLACES)), check))
    return [_group(check, having(findings, check=check), published.names) for check in ordered]


def _group(check: str, rows: pd.DataFrame, names: Mapping[str, str]) -> SimpleNamespace:
    title, meaning = CHECKS.get(check, (check.replace("_", " ").capitalize(), ""))
    with_here = rows["measured"].notna().any()
    notes = [f"Recomputed: {meaning}."] if meaning else []
    columns = {
        "what": lambda row: Cell(text=where(row, names), below=words(row["metric"])),
        "published": lambda row: _number(row, "published"),
        "recomputed": lambda row: _number(row, "recomputed"),
        **({"here": lambda row: _number(row, "measured")} if with_here else {}),
        "agrees": field("agrees"),
        "how to redo it": field("note", readable),
    }
    note = " ".join([*notes, "Here: medians."] if with_here else notes)
    table = Table.of(rows.to_dict("records"), columns, caption=title, note=note)
    return SimpleNamespace(title=title, outcome=outcome(rows["agrees"]), table=table)


def outcome(agrees: pd.Series) -> str:
    """How the findings of a check came out: "32 of 62 disagree, 1 not recomputable"."""
    counts, total = agrees.value_counts(), len(agrees)
    open_ones = counts.get("not recomputable", 0)
    if open_ones == total:
        return f"{total} not recomputable"
    text = f"{counts.get('no', 0)} of {total} disagree"
    return f"{text}, {open_ones} not recomputable" if open_ones else text


def _number(row: Mapping[str, Any], column: str) -> str | Cell | None:
    """A number of a finding; below one of this machine that it is modelled."""
    if missing(row[column]):
        return None
    text = readable(amount(row[column], row["unit"]))
    modelled = column == "measured" and row["measured_kind"] == "modelled"
    return Cell(text=text, below="modelled") if modelled else text


def where(row: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Figure 5, CNN on MNIST, Docker, batch 64: what a finding is about, in the paper's words."""
    figure = str(row["figure"])
    forms: dict[str, Callable[[str], str]] = {
        "workload": workload_title,
        "env": lambda env: theirs(names, env),
        "batch": lambda size: f"batch {size}",
    }
    parts = [form(row[column]) for column, form in forms.items() if not missing(row[column])]
    return ", ".join([f"Figure {figure}" if figure.isdigit() else figure.capitalize(), *parts])
