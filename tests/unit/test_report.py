"""The report's words and numbers on synthetic tables: every kind of verdict, and what can be missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import builders
import pytest

from tare import figures
from tare.errors import IntegrityError, UserError
from tare.files import read_json, write_json
from tare.report import answer, build, conditions, facts, material, method, number_tables
from tare.report.evidence import gather
from tare.report.wording import between, control_sentence, percent, tally, verdict_sentence

STUDY = builders.STUDY


def row(**fields):
    base = {
        "env": "docker", "metric": "real_s", "n_units": 6, "ratio": 1.03, "ci_low": 1.0184, "ci_high": 1.0412,
        "margin": 0.05, "verdict": "different within margin", "reason": None,
        "control_ratio": 1.0, "control_ci_low": 0.988, "control_ci_high": 1.008,
    }  # fmt: skip
    return {**base, **fields}


def draw(results):
    """Small stand-ins for the figures, which have tests of their own."""
    for workload in builders.WORKLOADS:
        for name in ("batch_size", "split", "intervals", "units", "utilisation", "operators"):
            drawing = figures.style.empty(name, "a stand-in")
            figures.write(drawing, results / f"figures/{name}_{workload}.svg")
    figures.write(figures.style.empty("roofline", "a stand-in"), results / "figures/roofline.svg")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return builders.build_results(tmp_path_factory.mktemp("report") / "results")


@pytest.fixture(scope="module")
def evidence(results):
    return gather(results, results, STUDY)


@pytest.fixture(scope="module")
def page(results):
    draw(results)
    return build(results, results, STUDY, results / "report/index.html").read_text()


def visible(page):
    """Text of the page as a reader sees it, in one line."""
    text = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).replace("&#39;", "'").split())


# The words of one verdict.


def test_different_within_margin():
    assert verdict_sentence(row()) == (
        "whole run between 1.8% and 4.1% longer than on the host (different within the 5% margin)"
    )


def test_equivalent_bounds_and_never_denies():
    text = verdict_sentence(row(ci_low=0.9932, ci_high=1.0121, verdict="equivalent"))
    assert (
        text
        == "whole run differs from the host's by no more than 1.3% either way (equivalent within the 5% margin)"
    )


def test_different_beyond_the_margin():
    text = verdict_sentence(row(ci_low=1.081, ci_high=1.12, verdict="different"))
    assert text == "whole run between 8.1% and 12% longer than on the host (different, beyond the 5% margin)"


def test_different_with_an_interval_that_reaches_into_the_margin():
    text = verdict_sentence(row(ci_low=1.03, ci_high=1.09, verdict="different"))
    assert text.endswith("(different, perhaps beyond the 5% margin)")


def test_faster_is_said_as_shorter():
    text = verdict_sentence(row(ci_low=0.90, ci_high=0.93, verdict="different"))
    assert "between 7.0% and 10% shorter than on the host" in text


def test_inconclusive_leaves_the_question_open():
    text = verdict_sentence(row(ci_low=0.97, ci_high=1.06, verdict="inconclusive"))
    assert text == "whole run: we can't tell yet: between 3.0% shorter and 6.0% longer than on the host (margin 5%)"


def test_too_few_units_give_the_reason_instead_of_numbers():
    text = verdict_sentence(
        row(
            ci_low=float("nan"), ci_high=None, n_units=1, verdict="inconclusive", reason="1 complete units; needs 2"
        )
    )
    assert text == "whole run: we can't tell yet: 1 complete units; needs 2"


def test_large_ratios_are_multiples():
    assert between("runtime_start_s", 8.94, 9.41) == "between 8.9 and 9.4 times as long"
    assert between("steady_step_s", 0.0005, 2310) == "between less than 0.01 and more than 100 times as long"
    assert between("runtime_start_s", 0.9, 2.5) == "between 0.90 and 2.5 times as long"


def test_throughput_is_higher_or_lower():
    assert between("samples_per_s", 0.95, 1.02) == "between 5.0% lower and 2.0% higher"


def test_the_control_is_said_in_the_same_words():
    assert control_sentence(row()) == (
        "whole run: the instrument itself saw between 1.2% shorter and 0.80% longer between host and host"
    )


def test_a_control_that_excludes_zero_is_a_warning():
    assert "where nothing is to be seen" in control_sentence(row(control_ci_low=1.01, control_ci_high=1.03))
    assert "where nothing is to be seen" not in control_sentence(row())


@pytest.mark.parametrize(
    ("fraction", "up", "text"),
    [
        (0.0184, False, "1.8%"),
        (0.00043, False, "0.043%"),
        (0.123, False, "12%"),
        (0.0121, True, "1.3%"),
        (0.05, True, "5.0%"),
        (0.0, False, "0.01%"),
    ],
)
def test_percent(fraction, up, text):
    assert percent(fraction, up=up) == text


def test_tally_counts_each_verdict():
    rows = [row(verdict=v) for v in ("equivalent", "different", "different", "inconclusive")]
    assert tally(rows, "Whole runs") == (
        "Whole runs: of 4 comparisons with the host, 1 equivalent, 2 different and 1 can't be told yet."
    )


# From tables and records.


def test_answers_hold_the_numbers_of_the_verdict_table(evidence):
    found = {item.workload: item for item in answer.answers(evidence)}
    assert found["mnist_cnn"].n_units == 6
    cards = {card.env: card for card in found["mnist_cnn"].environments}
    assert set(cards) == {"docker", "apptainer", "charliecloud"}
    verdicts = evidence.verdicts
    docker = verdicts[
        (verdicts["workload"] == "mnist_cnn") & (verdicts["env"] == "docker") & (verdicts["metric"] == "real_s")
    ].iloc[0]
    assert (
        f"{percent(docker['ci_low'] - 1)} and {percent(docker['ci_high'] - 1)}"
        in cards["docker"].findings[0].sentence
    )
    assert cards["docker"].findings[0].verdict == "different"
    assert [line.split(":")[0] for line in found["mnist_cnn"].controls] == ["Whole run", "Steady step"]


def test_unavailable_environments_have_reason_and_remedy(evidence, page):
    (row,) = answer.unavailable(evidence)
    assert row["title"] == "Podman"
    assert row["reason"] == builders.UNAVAILABLE["podman"]
    assert row["remedy"] in visible(page)
    assert builders.UNAVAILABLE["podman"] in visible(page)


def test_the_page_has_every_sentence_beside_its_control(evidence, page):
    text = visible(page)
    for item in answer.answers(evidence):
        for card in item.environments:
            for finding in card.findings:
                assert finding.sentence in text
        for line in item.controls:
            assert line in text
    assert "no difference" not in text.lower()


def test_the_page_asks_for_nothing_from_elsewhere(page):
    assert not re.search(r'(?:src|href)\s*=\s*"(?!#|data:,|\.\.?/)[^"]+"', re.sub(r"xlink:href", "x", page))
    assert "@import" not in page and "url(http" not in page and "<script" not in page


def test_snippets_are_said_to_stand_in_for_imdb(evidence, page):
    assert "These are not the IMDB reviews of the paper" in visible(page)


def test_canonical_reviews_are_not_apologised_for(tmp_path):
    builders.data_records(tmp_path, canonical=True)
    records = {name: read_json(tmp_path / f"data/{name}.json") for name in ("mnist", "sentiment")}

    class Only:
        data = records

    lines = material.data_sentences(Only)
    assert any("Stanford AI Lab" in line for line in lines)
    assert not any("not the IMDB reviews" in line for line in lines)


def test_equal_losses_and_unequal_ones(evidence):
    checks = answer.loss_checks(evidence)
    assert all(check.equal for check in checks) and "very same loss, 1.250000" in checks[0].sentence
    metrics = evidence.metrics
    rows = metrics[(metrics["metric"] == "loss_last") & (metrics["workload"] == "mnist_cnn")].copy()
    rows.loc[rows["env"] == "docker", "value"] *= 1 + 1e-6
    near = answer.loss_check("mnist_cnn", rows)
    assert near.equal and "1.0e-06 (Docker)" in near.sentence
    rows.loc[rows["env"] == "docker", "value"] *= 1.01
    far = answer.loss_check("mnist_cnn", rows)
    assert far.equal is False and "may compute something else" in far.sentence and "(Docker)" in far.sentence


def test_paper_metrics_show_kind_and_reason(evidence):
    table = number_tables.profile_table(evidence, "mnist_cnn")
    rows = {row[0].text: row[1:] for row in table.rows}
    assert rows["FLOPs"][-2:] == ["modelled", "operator count"]
    flops = sum(entry[2] for entry in builders.OPERATORS.values())
    assert rows["FLOPs"][0] == f"{flops / 1e9:.2f} G"
    assert rows["Step, not profiled"][-2] == "measured"
    (memset,) = rows["Memset time"]
    assert memset.text.startswith("unavailable: the device is a CPU") and memset.span == 6
    assert rows["DRAM read"][0].text.startswith("unavailable: needs hardware counters")


def test_machine_facts_that_could_not_be_read_have_their_reason(evidence):
    rows = {row[0]: row[1] for row in facts.device_table(evidence).rows}
    assert rows["Frequency governor"] == "unavailable: no cpufreq in a virtual machine"
    assert rows["Caches"] == "L1d: 32.0 KiB; L3: 35.8 MiB"
    assert rows["Matrix product, fp32 (n = 1024)"] == "72.0 GFLOP/s, measured"


def test_a_virtual_host_is_a_limit(evidence):
    assert any("itself virtual (vm kvm)" in line for line in method.limit_sentences(evidence))


def test_method_comes_from_the_plan(evidence):
    text = " ".join(method.method_sentences(evidence))
    assert "launched 5 whole runs" in text and "1 discarded round came first, then 6" in text
    assert (
        "at 95% for all 3 comparisons" in text and "5% for whole runs" in text and "2% for training steps" in text
    )


def test_what_was_mapped_names_the_files_that_differ(evidence):
    rows = {(row[0], row[1]): row[2:] for row in material.mapped_table(evidence).rows}
    assert rows[("CNN on MNIST", "Docker")] == ["2", "1 of 1", "libc.so.6", "none"]
    assert rows[("CNN on MNIST", "Host")] == ["2", "1 of 1", "none", "none"]


def test_deviations_are_counted(evidence, tmp_path):
    assert "ran under the conditions" in conditions.deviation_sentences(evidence)[0]
    units = json.loads(json.dumps(evidence.campaigns[0].units))
    for unit in units:
        unit["launches"]["docker"]["deviations"] = ["/dev/shm bytes 67108864, asked for 1073741824"]
    changed = replace(evidence, campaigns=(replace(evidence.campaigns[0], units=units),))
    total = sum(len(unit["launches"]) for unit in units)
    assert conditions.deviation_sentences(changed) == [
        f"Docker: /dev/shm bytes 67108864, asked for 1073741824 (7 of {total} successful launches)"
    ]


def test_failed_launches_are_shown(evidence):
    units = json.loads(json.dumps(evidence.campaigns[0].units))
    units[-1]["launches"]["docker"] = {"status": "timeout", "reason": "180 s", "inside": None, "deviations": []}
    changed = replace(evidence, campaigns=(replace(evidence.campaigns[0], units=units),))
    assert answer.failures(changed) == ["CNN on MNIST, Docker: 1 of 7 launches did not succeed (timeout: 180 s)"]
    assert answer.failures(evidence) == []


# Whole pages of unusual studies.


def test_a_machine_without_any_runtime_gets_a_report_of_its_host(tmp_path):
    missing = {env: f"{env} is not installed" for env in ("docker", "apptainer", "charliecloud", "podman")}
    results = builders.build_results(tmp_path / "results", environments=["host"], unavailable=missing)
    draw(results)
    text = visible(build(results, results, STUDY, results / "report/index.html").read_text())
    assert "there is nothing to compare" in text
    assert all(reason in text for reason in missing.values())


def test_one_round_is_too_few_to_tell(tmp_path):
    results = builders.build_results(tmp_path / "results", units=1)
    draw(results)
    text = visible(build(results, results, STUDY, results / "report/index.html").read_text())
    assert "Whole runs: of 6 comparisons with the host, 6 can't be told yet." in text
    assert "we can't tell yet: 1 complete units" in text
    assert "the control has no interval yet" in text


def test_a_missing_figure_is_named(tmp_path, results):
    draw(results)
    (results / "figures/roofline.svg").rename(tmp_path / "kept.svg")
    with pytest.raises(UserError, match=r"no figure .*roofline\.svg"):
        build(results, results, STUDY, tmp_path / "index.html")
    (tmp_path / "kept.svg").rename(results / "figures/roofline.svg")


def test_a_campaign_that_was_changed_after_its_seal_is_refused(tmp_path):
    results = builders.build_results(tmp_path / "results", units=2)
    plan = next(results.glob("campaigns/nyu2022/mnist_cnn/*/plan.json"))
    write_json(plan, {**read_json(plan), "seed": 1})
    with pytest.raises(IntegrityError, match="is not what was sealed"):
        gather(results, results, STUDY)
