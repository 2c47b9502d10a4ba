"""Adding a paper takes a file and a study: a small made-up one through audit, figures, notebook and page."""

from __future__ import annotations

import json
import re

import builders
import pytest
from audit_builders import script
from cells import run_cells
from pages import draw, visible, whole

from tare.cli.main import main
from tare.core.errors import UserError
from tare.core.files import write_text
from tare.literature.published import load
from tare.model import tables
from tare.model.studies import papers
from tare.report import build, figures
from tare.report.figures.paper_rows import STATED

NAME = "made2026"
FILE = """
schema: 1
paper: made2026
workloads: [mnist_cnn, sentiment_rnn]
title: A study that nobody published
provenance: Made up for a test.
names: {host: Bare metal, docker: Containers}
measured_with:
  environments: [host, docker]
  device: {class: cpu, name: Some CPU}
  stack: {python: "3.11"}
text:
  - {id: overhead, where: section 2, kind: text, value: 15 %, relation: "<="}
tables:
  - name: "1"
    title: settings
    kind: table
    rows:
      - {specification: batch, name: "64"}
plots:
  - title: Whole runs
    about: Seconds of a run, <by environment>.
    figures:
      - {figure: "1", kind: bar, title: Real time, workloads: [mnist_cnn], metrics: [real_s]}
      - {figure: "2", kind: line, title: Real time by batch size, workloads: [mnist_cnn], metrics: [real_s]}
      - figure: "3"
        kind: bar
        title: Throughput by the host's
        workloads: [mnist_cnn, sentiment_rnn]
        metrics: [samples_per_s]
        relative: true
        facts: [overhead]
  - title: Over time
    about: Sampled in one launch.
    figures:
      - {figure: "4", kind: timeline, title: CPU use, workloads: [mnist_cnn], metrics: [cpu_percent]}
      - {figure: "5", kind: table, title: Settings, workloads: [mnist_cnn], table: "1"}
  - title: Elsewhere
    about: With a co-runner, and with other data.
    figures:
      - figure: "6"
        kind: bar
        title: Real time on a shared host
        workloads: [mnist_cnn]
        metrics: [real_s]
        relative: true
        scenario: shared
      - figure: "7"
        kind: bar
        title: Real time with made data
        workloads: [mnist_cnn]
        metrics: [real_s]
        relative: true
        arm: input=synthetic
figures:
  - figure: "1"
    workload: mnist_cnn
    metric: real_s
    kind: figure_label
    values: {host: 2.0 s, docker: 2.6 s}
  - figure: "2"
    workload: mnist_cnn
    metric: real_s
    kind: figure_label
    env: host
    batches: {16: 3.0 s, 64: 2.0 s}
claims:
  - id: little
    where: section 3
    figures: ["1"]
    workloads: [mnist_cnn]
    rule: at_most
    bound: 15 %
    metrics: [real_s]
    statement: A container takes at most 15% longer.
  - id: shared
    where: section 3
    figures: ["6"]
    workloads: [mnist_cnn]
    rule: equal
    metrics: [real_s]
    scenario: shared
    statement: A co-runner changes nothing.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Its file, and its findings, which the script computes; nothing else is added."""
    place = tmp_path_factory.mktemp("published")
    write_text(place / f"{NAME}.yaml", FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(papers, "folder", lambda: place)
        script().write(place / "findings.csv")
    return place


def use(folder, patch):
    patch.setattr(papers, "folder", lambda: folder)
    patch.setattr(papers, "findings_file", lambda: folder / "findings.csv")


@pytest.fixture(autouse=True)
def published(folder, monkeypatch):
    """They are where those of papers are."""
    use(folder, monkeypatch)


@pytest.fixture(scope="module")
def results(tmp_path_factory, folder):
    found = builders.build_results(tmp_path_factory.mktemp("further") / "results")
    with pytest.MonkeyPatch.context() as patch:
        use(folder, patch)
        words = ["audit", "--paper", NAME, "--results", str(found), "--shared", str(found)]
        assert main([*words, "--out", str(found / "tables")]) == 0
    return found


def test_the_audit_judges_its_values_and_claims(results):
    findings = tables.read("published", results / "tables/published.csv")
    claims = tables.read("claims", results / "tables/claims.csv").set_index("claim")
    assert set(findings["paper"]) == {NAME}
    values = findings[findings["check"] == "figure_value"]
    assert len(values) == 4 and values["measured"].notna().all()
    assert claims.loc["little", "published_says"] == "contradicted"
    assert "30.0% worse than host, where 15% is claimed" in claims.loc["little", "published_note"]
    assert claims.loc["little", "here"] in ("holds here", "does not hold here", "open here")
    assert "docker / host" in claims.loc["little", "evidence"]
    assert claims.loc["shared", "here"] == "open here"
    assert claims.loc["shared", "reason"] == "the study runs no such scenario: shared"


def test_the_notebook_draws_every_figure_of_its_file(results):
    page = run_cells("paper", results, builders.WORKLOADS, NAME)
    drawn = {path.stem for path in (results / "figures").glob(f"{NAME}_*.svg")}
    assert drawn == {f"{NAME}_fig{number:02d}" for number in (1, 2, 3, 4, 6, 7)}
    assert page.count("<svg") == 6 and "&lt;by environment&gt;" in page


def test_figures_of_each_kind_show_this_machine_or_say_why_not(results):
    study, given = load(NAME), figures.read_given(results)
    told = {number: figures.paper_drawing(study, given, number).alt for number in "123467"}
    assert "Host (Bare metal): published 2.0 s" in told["1"] and "Docker (Containers): published 2.6 s" in told["1"]
    assert "batch 64: published 2.0 s" in told["2"]
    verdicts = given.verdicts
    own = verdicts[(verdicts["metric"] == "samples_per_s") & (verdicts["launch"] == "docker")]
    ratio = own[own["workload"] == "mnist_cnn"].iloc[0]["ratio"]
    assert f"Docker (Containers): here {ratio:.3g}" in told["3"] and "CNN on MNIST" in told["3"]
    assert "CPU use, Host (Bare metal): largest here " in told["4"]
    assert "unavailable, the study runs no such scenario: shared" in told["6"]
    assert "unavailable, this study compares no environment with the host at input=synthetic" in told["7"]


def test_ratios_have_the_verdicts_interval_and_a_row_of_the_text(results):
    study, given = load(NAME), figures.read_given(results)
    (axes,) = figures.paper_drawing(study, given, "3").figure.axes
    marks = {line.get_gid(): line.get_xdata()[0] for line in axes.lines if line.get_gid()}
    here = [name for name in marks if name.startswith("here-")]
    assert not [name for name in here if "-host-" in name], "the host is the line at 1"
    assert {name.split("-")[2] for name in here} == set(builders.ENVIRONMENTS[1:])
    assert all(f"spread-{name}" in marks for name in here)
    assert marks[f"{STATED}-samples_per_s"] == 0.85, "15% less of a rate"
    assert "<= 15 %" in [tick.get_text() for tick in axes.get_yticklabels()]


def test_the_page_of_the_paper_has_all_of_it(results):
    run_cells("paper", results, builders.WORKLOADS, NAME)
    draw(results)
    study = json.dumps({**json.loads(builders.STUDY), "papers": [NAME]})
    index = build(results, results, study, results / "report/index.html")
    page = index.with_name(f"paper-{NAME}.html").read_text()
    text = visible(page)
    assert "A study that nobody published" in text and "A container takes at most 15% longer." in text
    assert "Table 1: settings, compared with this machine" in text
    assert page.count("<figure") == 7 and f"paper-{NAME}.html" in index.read_text()
    assert "Figures of made2026" in whole(index) or re.search(r"made2026", whole(index))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kind: timeline", "kind: timelines",
         "plots: 1: figures: 0 (4): kind: unknown kind 'timelines': did you mean 'timeline'?"),
        ("metrics: [cpu_percent]", "metrics: [cpu_percents]",
         "unknown metric 'cpu_percents': did you mean 'cpu_percent'?"),
        ("metrics: [cpu_percent]", "metrics: [real_s]", "'real_s' is nothing that a timeline shows"),
        ("title: CPU use, workloads: [mnist_cnn]", "title: CPU use, workloads: [mnist_cn]",
         "unknown workload 'mnist_cn': did you mean 'mnist_cnn'?"),
        ("facts: [overhead]", "facts: [overhed]", "plots: figure 3: no fact 'overhed': did you mean 'overhead'?"),
        ('table: "1"}', 'table: "2"}', "plots: figure 5: no table '2'"),
        ('{figure: "2", kind: line', '{figure: "1", kind: line', "plots: figure 1 is there twice"),
        ('figures: ["6"]', 'figures: ["16"]', "claims: shared: no figure '16': did you mean '6'?"),
        ("    bound: 15 %\n", "", "rule at_most needs bound"),
        ("env: host\n    batches", "env: hots\n    batches", "unknown environment 'hots': did you mean 'host'?"),
        ("title: CPU use, workloads: [mnist_cnn], metrics: [cpu_percent]", "title: CPU use, workloads: [mnist_cnn]",
         "kind timeline needs metrics"),
        ("metrics: [cpu_percent]}", "metrics: [cpu_percent], largest: {overhaed: use}}",
         "plots: figure 4: largest: no row or entry 'overhaed': did you mean 'overhead'?"),
        ("metrics: [cpu_percent]}", "metrics: [cpu_percent], largest: {batch: use}}",
         "plots: figure 4: largest: batch is no number in one of"),
        ("metrics: [real_s]}", "metrics: [real_s], largest: {overhead: use}}",
         "plots: figure 1: largest: it has its own values"),
        ('table: "1"}', 'table: "1", largest: {overhead: use}}', "kind table takes no largest"),
    ],
)  # fmt: skip
def test_a_word_that_nobody_knows_is_one_line_with_the_nearest(tmp_path, old, new, says):
    assert FILE.count(old) >= 1
    write_text(tmp_path / f"{NAME}.yaml", FILE.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load(NAME, tmp_path)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert f"{NAME}.yaml: " in str(caught.value)
