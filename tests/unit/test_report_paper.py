"""The report's section on the study that is repeated: its claims, figures, findings and tables, from the tables."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import builders
import pandas as pd
import pytest
from job_plans import ranked
from pages import draw, visible, whole

from tare.core.errors import UserError
from tare.literature.answers import NOTHING, divided
from tare.literature.published import load
from tare.model import tables
from tare.model.studies.papers import repeated
from tare.predict.requests import read_given
from tare.report import build, paper, sections
from tare.report.evidence import gather
from tare.report.pages import pages_of
from tare.report.parts import resolve_all
from tare.report.words.layout import Table

PAPER = "nyu2022"


def shown(page):
    """Text of the section; names of kernels hold what HTML escapes."""
    return html.unescape(visible(section(page)))


def section(page):
    return page[page.index('<section id="paper"') : page.index('<section id="why"')]


def test_every_paper_has_a_page_of_its_own_after_the_environments():
    names = [page.name for page in pages_of(["nyu2022", "columbia2025"])]
    assert names[:5] == ["index", "environments", "paper-nyu2022", "paper-columbia2025", "why"]
    assert {section.page for section in sections.SECTIONS} <= set(names)


def test_the_summary_counts_the_tables(evidence):
    claims, findings = evidence.claims, evidence.published
    first, second, third = paper.summary(evidence, PAPER)[:3]
    assert f"makes {claims['claim'].nunique()} claims" in first
    assert sum((claims["here"] == word).sum() for word in tables.HERE) == len(claims)
    for word in tables.HERE:
        assert f"{word}: {(claims['here'] == word).sum()}" in first
    assert f"contradicted: {(claims['published_says'] == 'contradicted').sum()}" in second
    values = findings[findings["check"] == "figure_value"]
    assert f"Of {len(values)} values" in third and f"{(values['agrees'] == 'no').sum()} do not" in third


def test_the_summary_follows_the_tables(evidence):
    claims = evidence.claims.assign(here="open here", reason="no units", published_says="contradicted")
    values = evidence.published[evidence.published["check"] == "figure_value"].assign(agrees="yes")
    said = paper.summary(replace(evidence, claims=claims, published=values), PAPER)
    assert f"holds here: 0, does not hold here: 0, open here: {len(claims)}, not the same question: 0" in said[0]
    assert f"contradicted: {len(claims)}" in said[1]
    assert f"{len(values)} agree with their own logs, 0 do not, and 0 have no log" in said[2]
    assert "None of its claims is settled here" in said[3]


def test_every_claim_has_a_card_with_both_answers_and_their_evidence(evidence, page):
    cards = paper.claim_cards(evidence, PAPER)
    assert sum(len(group.judged) for card in cards for group in card.alike) == len(evidence.claims)
    assert len(cards) == evidence.claims["claim"].nunique()
    text = shown(page)
    for row in evidence.claims.to_dict("records"):
        card = next(card for card in cards if card.statement == row["statement"])
        own = (paper.workload_title(row["workload"]), row["published_says"], row["here"])
        judged = [one for group in card.alike for one in group.judged]
        assert any((one.workload, one.published_says, one.here) == own for one in judged)
        assert paper.readable(row["published_note"]) in text
        assert paper.readable(row["evidence"]) in text and row["match"] in text
        if pd.notna(row["reason"]):
            assert all(words in text for words in divided(row["reason"]) if words)
    chips = re.findall(r'class="chip ([a-z-]+)"', section(page))
    assert len(chips) == 2 * sum(len(card.alike) for card in cards)
    throughput = next(card for card in cards if "throughput" in card.statement)
    assert throughput.figures == "figures 9, 10, 11 and 12"


def test_figures_stand_in_order_the_cnn_beside_the_rnn(evidence, page):
    rows = [
        [view.name.removeprefix("nyu2022_fig") for view in row] for row in paper.figure_rows(evidence, load(PAPER))
    ]
    assert rows[:3] == [["02", "03"], ["04"], ["05", "06"]] and rows[-1] == ["17", "18"]
    assert sum(map(len, rows)) == 17
    assert section(page).count("<figure") == 17


def test_captions_say_what_was_published_and_measured(evidence, page):
    views = {view.name[-2:]: view for row in paper.figure_rows(evidence, load(PAPER)) for view in row}
    assert views["07"].caption == ["Published: numbers.", "Here: unavailable."]
    assert views["13"].caption[-1] == "Here: modelled." and views["17"].caption[-1] == "Here: measured."
    assert any("calls × average" in line for line in views["13"].sentences)
    assert any(line.startswith("real time, Host (Bare VM): published ") for line in views["17"].sentences)
    assert any("the two are exchanged" in line for line in views["03"].found)
    text = shown(page)
    for view in views.values():
        assert all(line in text for line in (*view.caption, *view.sentences, *view.found)), view.name


def test_every_finding_is_in_a_table_with_how_to_redo_it(evidence, page):
    groups = paper.groups(evidence, load(PAPER))
    findings = evidence.published[evidence.published["check"] != "specification"]
    assert sum(len(group.table.rows) for group in groups) == len(findings)
    assert {group.title for group in groups} == {paper.CHECKS[check][0] for check in findings["check"].unique()}
    text = shown(page)
    assert all(paper.readable(note) in text for note in findings["note"])
    sums = next(group for group in groups if group.title == "Sums of maxima")
    assert sums.outcome == "12 of 12 disagree"
    row = next(row for row in sums.table.rows if row[0].text == "Log, CNN on MNIST, Bare VM")
    assert row[1:3] == ["475,211,776", "3,484,655,615"]


def test_an_unknown_check_is_shown_by_its_own_name(evidence):
    changed = evidence.published.copy()
    changed.loc[changed["check"] == "units", "check"] = "brand_new"
    assert paper.groups(replace(evidence, published=changed), load(PAPER))[-1].title == "Brand new"


def test_modelled_numbers_say_so(evidence):
    values = paper.groups(evidence, load(PAPER))[0]
    flops = [row for row in values.table.rows if row[0].text.startswith("Figure 13")]
    assert len(flops) == 3 and all(row[3].below == "modelled" for row in flops)


@pytest.mark.parametrize(
    ("agrees", "said"),
    [
        (["yes", "no", "no"], "2 of 3 disagree"),
        (["yes", "no", "not recomputable"], "1 of 3 disagree, 1 not recomputable"),
        (["not recomputable"] * 2, "2 not recomputable"),
    ],
)
def test_outcomes(agrees, said):
    assert paper.outcome(pd.Series(agrees)) == said


def test_tables_stand_beside_this_machine_and_a_shared_reason_is_said_once(evidence):
    found = {table.caption.split(":")[0]: table for table in paper.specification_tables(evidence, load(PAPER))}
    assert list(found) == ["Table I", "Table IV", "Table V"]
    rows = {row[0]: row[1:] for row in found["Table I"].rows}
    assert rows["vCPUs"] == ["8 vCPU", "2 logical CPUs"]
    assert rows["Operating system"] == ["Debian 10", "Debian GNU/Linux 12 (bookworm)"]
    assert {row[2] for row in found["Table V"].rows} == {"unavailable"}
    assert found["Table V"].note.startswith("Unavailable, ")
    assert [row[0] for row in found["Table V"].rows][:3] == ["GPU", "Tensor cores", "CUDA cores"]


def test_a_study_without_the_rnn_has_the_section_too(results, evidence):
    own = evidence.metrics[evidence.metrics["workload"] == "mnist_cnn"]
    views = [view for row in paper.figure_rows(replace(evidence, metrics=own), load(PAPER)) for view in row]
    assert views[-1].caption[-1] == "Here: unavailable."
    assert "Measured here: unavailable, this workload is not part of this study." in views[-1].sentences


@pytest.mark.parametrize("name", ["published", "claims"])
def test_a_missing_table_is_a_users_mistake(name, results, tmp_path):
    kept = (results / f"tables/{name}.csv").rename(tmp_path / "kept.csv")
    try:
        with pytest.raises(UserError, match=rf"no table .*{name}\.csv"):
            gather(results, results, builders.STUDY)
    finally:
        kept.rename(results / f"tables/{name}.csv")


def test_the_tables_are_those_of_the_schemas(results):
    assert set(tables.read("published", results / "tables/published.csv")["paper"]) == {"nyu2022"}
    assert set(tables.read("claims", results / "tables/claims.csv")["paper"]) == {"nyu2022"}


def test_what_matches_is_said_in_a_few_words():
    told = (
        "device class: other (published GPU, V100; here CPU); stack: other (published a; here b; c); "
        "runtimes: same (published 1; here 1)"
    )
    assert paper.matches(told) == "other device class and stack; same runtimes"


def test_workloads_of_which_a_claim_says_the_same_stand_together(evidence):
    row = evidence.claims.iloc[0].to_dict()
    same = {**row, "here": "open here", "evidence": "a.", "published_says": "not recomputable"}
    reasons = {"a": "as far as measured it is open (x); vm is missing", "b": "vm is missing", "c": "too few units"}
    rows = [{**same, "workload": name, "reason": reason} for name, reason in reasons.items()]
    rows.append({**same, "workload": "d", "here": "holds here", "reason": None})
    (card,) = paper.claim_cards(replace(evidence, claims=pd.DataFrame(rows)), PAPER)
    assert [group.workloads for group in card.alike] == ["a and b", "c", "d"]
    assert [group.reason for group in card.alike] == ["vm is missing", "too few units", None]
    assert card.alike[0].own == [("a", "as far as measured it is open (x)")]


def test_a_card_says_where_nothing_was_measured_and_what_of_a_change_is_not_the_levels_own(evidence):
    found = evidence.claims[evidence.claims["match"].str.contains("other")].iloc[0].to_dict()
    row = {**found, "evidence": "real_s: the speed is +100%."}
    assert paper._judged(row).matches and paper._judged(row).parts is None
    assert paper._judged({**row, "evidence": NOTHING}).matches == ""
    left = "what is left, +60% [+50%, +70%], is not the level's own: 68% [60%, 76%] of it by logarithms."
    confounded = {**row, "evidence": f"real_s: the speed is +100%. Of this mnist_cnn_equal has +25%; {left}"}
    assert paper._judged(confounded).parts == left


def test_numbers_that_are_done_again_have_a_section_where_there_are_any():
    common = {"summary": [], "claims": [], "figures": [], "tables": [], "requests": [], "more": [], "names": ""}
    table = Table(caption="c", columns=[], rows=[])
    group = SimpleNamespace(title="Values", outcome="1 of 2 disagree", table=table)
    for audit in ([], [group]):
        found = resolve_all(sections.PAPER, {**common, "audit": audit})
        assert ("Its numbers, done again" in [part.shown for part in found]) == bool(audit)


def test_a_study_that_repeats_no_paper_has_nothing_of_one(results, tmp_path):
    """Neither by its own word nor because it trains nothing of it; the tables of an audit are not asked for."""
    moved = shutil.copytree(results, tmp_path / "results")
    for name in ("published", "claims"):
        (moved / f"tables/{name}.csv").unlink()
    draw(moved)
    study = json.dumps({**json.loads(builders.STUDY), "papers": []})
    page = whole(build(moved, moved, study, tmp_path / "index.html"))
    assert 'id="paper"' not in page and 'href="#paper"' not in page
    text = visible(page)
    assert "what papers published" not in text and "Table IV" not in text and "Its claims" not in text
    assert repeated(["nyu2022"], ["sentiment_rnn", "mine"]) == ("nyu2022",)
    assert repeated(["nyu2022", "columbia2025"], ["mine"]) == ()


def test_only_a_number_has_microseconds():
    assert paper.readable("15.072 us x 3, memory in use") == "15.072 µs × 3, memory in use"


def test_what_the_papers_optimiser_is_asked_is_read_predicted_and_measured_here():
    study, workload = load("modak2020"), "mnist_cnn_equal"
    row = {
        "paper": "modak2020",
        "claim": "xla_slower",
        "workload": workload,
        "evidence": "epoch_rest_s: it is -7%.",
    }
    claims = pd.DataFrame([row, {**row, "claim": "other", "evidence": "none"}])
    evidence = SimpleNamespace(claims=claims, networks=[workload], answers=())
    (lines,) = paper.requests(evidence, study)
    assert lines[0].startswith("Listing 1 and figure 2: A request for TensorFlow with XLA")
    assert lines[1].startswith("Read here for ") and "tensorflow-2.1" in lines[1] and "compile=xla" in lines[1]
    assert any(line.startswith("Ignored: optimisation.opt_build.acc_type is 'nvidia'") for line in lines)
    assert lines[-2].startswith("Predicted: nothing; steps of tensorflow are not predicted: compare the stack")
    assert lines[-1] == "Measured: epoch_rest_s: it is -7%."
    read, _ = read_given(study.requests[0].request, "listing 1", workload)
    answers = [SimpleNamespace(request=read, choice=SimpleNamespace(ranked=[ranked(12.0)]))]
    (lines,) = paper.requests(SimpleNamespace(**{**vars(evidence), "answers": answers}), study)
    assert lines[-2] == f"Predicted: {ranked(12.0).candidate.name} is first, 12.0 s."
    assert paper.requests(SimpleNamespace(**{**vars(evidence), "networks": []}), study) == []
    assert paper.requests(evidence, load(PAPER)) == []
