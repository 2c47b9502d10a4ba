"""What the report says of its own numbers: how many units and why, arms, stalls, the instrument, protocols."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import builders
import pytest
from campaign_builders import copies_record, in_slices, json_units, with_plan, with_units
from pages import draw, visible, whole

from tare.model.records.campaigns import OWN, SHARED
from tare.report import build, number_tables
from tare.report.arms import settings
from tare.report.evidence import gather
from tare.report.methods import designs, failures, instrument, method, tries
from tare.report.words.wording import percent, width_text

STUDY = builders.STUDY


# Designs, and what went wrong.


def of(evidence, kind, arm=None):
    """The campaign of the CNN of a kind and an arm."""
    return next(
        c for c in evidence.views
        if c.workload == "mnist_cnn" and c.kind == kind and (c.arm.name if c.arm else None) == arm
    )  # fmt: skip


def design(evidence, campaign):
    return designs.design_sentence(campaign, designs.verdicts_of(evidence, campaign))


def test_a_chosen_number_is_told_from_one_that_the_budget_capped(evidence):
    rounds = of(evidence, "rounds")
    assert rounds.decision.design == "stein"
    assert design(evidence, rounds).startswith(
        "6 rounds, chosen from the spread of a pilot of 6 (Stein); ±3% wanted, ±"
    )
    decision = rounds.decision.replace(design="fixed", wanted=19)
    capped = replace(rounds, sealed=rounds.sealed.replace(decision=decision))
    assert design(evidence, capped).startswith(
        "6 rounds, all that the budget of 2 min 30 s pays for; 19 rounds were needed for the wanted ±3%; ±"
    )
    fixed = design(evidence, with_plan(of(evidence, "steps"), sampling={"units": 6, "confidence": 0.95}))
    assert fixed.startswith("6 rounds, a number fixed by the study; ±")


def test_the_half_width_is_that_of_the_widest_interval(evidence):
    campaign = of(evidence, "steps")
    rows = designs.verdicts_of(evidence, campaign)
    found = designs.half_width(campaign, rows)
    widest = max(rows["ci_high"] / rows["ci_low"])
    control = (rows["control_ci_high"] / rows["control_ci_low"]).iloc[0]
    assert found == pytest.approx(max(widest, control) ** 0.5 - 1)
    assert f"±{percent(found, up=True)} reached" in design(evidence, campaign)


def test_a_campaign_that_ended_early_says_so(tmp_path):
    results = builders.build_results(tmp_path / "results", units=3, ended="the machine changed: kernel was 1, is 2")
    found = gather(results, results, STUDY)
    lines = designs.troubles(found)
    ended = "ended before its time, with 3 rounds: the machine changed: kernel was 1, is 2"
    assert f"CNN on MNIST, whole runs: {ended}" in lines
    draw(results)
    text = visible(whole(build(results, results, STUDY, results / "report/index.html")))
    assert all(line in text for line in lines)
    assert "3 rounds; ±3% wanted" in text and "Stein);" not in text


def test_void_rounds_and_given_up_environments_are_shown(evidence):
    campaign = of(evidence, "rounds")
    units = json_units(campaign)
    for unit in units[1:3]:
        unit["voided"] = "docker: it died by signal 9"
        unit["launches"]["docker"] |= {"status": "failed", "reason": "it died by signal 9"}
        unit["launches"]["host"] |= {"status": "stopped", "reason": "ended with its round: docker failed"}
    for unit in units[3:]:
        unit["launches"]["docker"] = {"status": "skipped", "reason": "given up", "inside": None, "deviations": []}
    changed = replace(evidence, campaigns=(with_units(campaign, units),))
    assert designs.troubles(changed) == [
        "CNN on MNIST, whole runs: 2 rounds are void, were repeated and count nowhere "
        "(docker: it died by signal 9)",
        "CNN on MNIST, whole runs, Docker: 2 of 3 launches did not succeed (failed: it died by signal 9); "
        "given up after 2 failures in a row, so 4 rounds went on without it",
    ]
    assert designs.troubles(evidence) == []


def test_launches_that_no_memory_was_left_for_did_not_fail(evidence):
    campaign = of(evidence, "rounds")
    units = json_units(campaign)
    units[2]["launches"]["docker"] = {"status": "skipped", "reason": "launches do not fit", "deviations": []}
    assert designs.troubles(replace(evidence, campaigns=(with_units(campaign, units),))) == []


def test_how_often_launches_failed_stands_on_the_page_with_an_interval(evidence, page):
    table = failures.failures_table(evidence)
    assert table.caption in visible(page) and "Clopper and Pearson" in visible(page)
    own = {(row[0], row[1]): row[2:] for row in table.rows}
    assert own["CNN on MNIST, whole runs", "Docker"] == ["6", "0", "0", "at most 46%"]
    assert ("CNN on MNIST, whole runs", "Host") in own
    campaign = of(evidence, "rounds", "stack=native")
    units = json_units(campaign)
    units[2]["voided"] = "docker: it was killed after 180 s"
    units[2]["launches"]["docker"] |= {"status": "timeout", "reason": "it was killed after 180 s"}
    changed = failures.failures_table(replace(evidence, campaigns=(with_units(campaign, units),)))
    (docker,) = [row[2:] for row in changed.rows if row[1] == "Docker"]
    assert docker[:3] == [str(len(units) - 1), "1", "1"]
    assert re.fullmatch(r"0\.\d+% to \d\d%", docker[3])
    assert failures.failures_table(replace(evidence, campaigns=())) is None


# Arms.


def test_an_environment_that_only_an_arm_lacks_is_said_with_the_arm(evidence):
    campaign = of(evidence, "rounds", "stack=native")
    changed = with_plan(campaign, unavailable={"docker": "no package manager in the base"})
    rows = designs.unavailable(replace(evidence, campaigns=(changed,)))
    assert [r["title"] for r in rows] == ["Podman", "Docker, native installs"]


def test_a_study_without_arms_has_no_tables_of_them(results, evidence):
    study = json.loads(STUDY) | {"arms": {"workloads": [], "rounds": []}}
    assert any(item.arms for item in settings.sections(evidence))
    found = gather(results, results, json.dumps(study))
    one_level = tuple(one for one in found.campaigns if one.workload == "sentiment_rnn")
    assert not any(item.arms for item in settings.sections(replace(found, campaigns=one_level)))


# Totals, bootstrap, the instrument.


def test_tables_have_both_ratios_and_name_those_that_are_apart(evidence):
    changed = evidence.verdicts.assign(verdict="equivalent")
    one = (changed["metric"] == "step_s") & (changed["launch"] == "docker") & (changed["reference"] == "host")
    changed.loc[one, ["stalls_ci_low", "stalls_ci_high"]] = (1.01, 1.05)
    changed.loc[one, "verdict"] = "equivalent but for stalls"
    table = number_tables.verdicts_table(replace(evidence, verdicts=changed), "mnist_cnn")
    found = next(r for r in table.rows if r[0] == "Training step" and r[1] == "Docker")
    assert found[5].below == "stalls count"
    labels = {r[0] if isinstance(r[0], str) else r[0].below for r in table.rows}
    assert labels == {"Whole run", "Training step", "exploratory"}  # two primary metrics; phases and rates explore
    assert "Stalls change the ratio: training step in Docker." in table.note
    assert "but for stalls: training step in Docker." in table.note
    changed.loc[:, ["stalls_ci_low", "stalls_ci_high"]] = (0.99, 1.01)
    calm = replace(evidence, verdicts=changed.assign(verdict="equivalent"))
    assert number_tables.stalls_sentence(calm, "mnist_cnn") == "Nowhere is it sure that stalls change a ratio."


def test_the_bootstrap_is_named_where_it_would_have_decided_otherwise(evidence):
    changed = evidence.verdicts.assign(bootstrap_low=evidence.verdicts["ci_low"])
    changed["bootstrap_high"] = evidence.verdicts["ci_high"]
    assert "decided the same everywhere" in number_tables.bootstrap_sentence(
        replace(evidence, verdicts=changed), "mnist_cnn"
    )
    one = (changed["metric"] == "real_s") & (changed["launch"] == "charliecloud") & (changed["reference"] == "host")
    changed.loc[one, ["bootstrap_low", "bootstrap_high"]] = (1.001, 1.01)
    text = number_tables.bootstrap_sentence(replace(evidence, verdicts=changed), "mnist_cnn")
    assert "would have decided 1 of 36 otherwise: whole run in Charliecloud (different within margin)." in text


def test_protocols_are_shown_beside_the_control(evidence, page):
    first, _ = instrument.protocol_tables(evidence)
    rows = {r[0].text: r[1:] for r in first.rows}
    assert list(rows) == ["One after the other", "Like pyperf", "Like hyperfine", "Tare"]
    assert "of 30 pairs of units beyond the 2% margin" in rows["One after the other"][0].below
    assert rows["Like hyperfine"][0] == "times whole runs only"
    control = evidence.verdicts[evidence.verdicts["campaign"] == of(evidence, "steps").name].iloc[0]
    assert rows["Tare"][0].text.startswith(
        number_tables.interval_text(control["control_ci_low"], control["control_ci_high"])
    )
    assert "It is not the same machine time" in visible(page)


def test_two_units_that_happen_to_be_close_give_our_own_protocol_no_verdict_either(evidence):
    few = tuple(replace(one, units=one.units[:3]) for one in evidence.campaigns if one.kind == "rounds")
    table = instrument.protocol_tables(replace(evidence, campaigns=few))[0]
    said = {row[0].text: row[1:] for row in table.rows}["Tare"][0]
    assert said.text.endswith(": 6 units are needed for a verdict") and said.below.startswith("n = 2;")


def test_a_benchmark_of_protocols_is_shown_where_there_is_one(evidence, page):
    assert instrument.benchmark_table(evidence) is None
    assert "the same machine time for each protocol" not in visible(page)
    equal = {"measured": 6, "answers": 5, "claims": 3, "missed": 2, "misses": 4, "half_width": 0.012,
             "lowest": 0.97, "highest": 1.08, "n": 7, "median_machine_s": 61.0}  # fmt: skip
    none = dict.fromkeys(equal) | {"measured": 0, "answers": 0}
    quiet = {"equal": equal, "planted": equal | {"answers": 6, "missed": 1}}
    without = {"equal": none, "planted": none}
    line = {"title": "pyperf-like", "quiet": quiet, "busy": without, "bursts": without}
    record = {"schema": 3, "workload": "mnist_cnn", "planted": 0.03, "cpu": "Example", "kernel": "6.1", "at": "x",
              "summary": {"pyperf": line}}  # fmt: skip
    table = instrument.benchmark_table(replace(evidence, protocols=record))
    assert table.columns[5] == "misses of +3.0%"
    assert table.rows == [["pyperf-like", "quiet", "3 of 5", "±1.2%", "0.9700 to 1.0800", "1 of 6", "61.0 s"]]
    assert instrument.benchmark_table(replace(evidence, protocols=record | {"schema": 2})) is None


def test_a_half_width_beyond_a_factor_of_two_is_not_written_out():
    assert width_text(0.012) == "±1.2%"
    assert width_text(1.5e7) == "more than ±100%"


def test_the_ledger_stands_on_the_page_with_what_reruns_cost(evidence, page):
    text = visible(page)
    assert "Of the tries of one question the k-th may spend 0.61/k² of alpha" in text
    assert "ledger.jsonl is missing: tries are counted from the folders on the disk" in text
    table = tries.ledger_table(evidence)
    campaigns = {campaign.name for campaign in evidence.campaigns}
    assert campaigns == {one[0].rpartition(": ")[2] for one in table.rows if len(one) == 1}
    verdict = evidence.verdicts[evidence.verdicts["metric"] == "real_s"].iloc[0]
    assert verdict["alpha"] * verdict["family_size"] == pytest.approx(0.05 * 6 / math.pi**2)


# What the second host shares with the first.


def sentences(evidence, control):
    """The method of a report whose campaigns say this of copies."""
    found = tuple(with_plan(c, provenance={"control": control}) for c in evidence.campaigns)
    return " ".join(method.method_sentences(replace(evidence, campaigns=found)))


def test_a_control_from_a_copy_is_told(evidence):
    text = sentences(evidence, {"files": OWN})
    assert "the control's interval holds what differs between two copies" in text


def test_what_copies_differ_by_is_told_and_whether_it_counts(evidence):
    own = {"files": OWN}
    text = sentences(evidence, own)
    assert "How much a step differs between copies of the files was not measured on this machine" in text
    text = sentences(replace(evidence, copies=copies_record()), own)
    assert (
        "From copy to copy of the files of torch-2.13 a step differs by 0.040% (0% to 0.20%, standard deviation; "
        "6 copies, 9 rounds, 2026-01-02), by no more than chance: no interval but the control's holds it. What may "
        "be hidden there would make ±0.5% up to 1.6 times as wide." in text
    )
    text = sentences(replace(evidence, copies=copies_record(p=0.001)), own)
    assert "so that it counts: intervals of the steps of torch-2.13 hold it" in text
    assert "it makes ±0.5% 1.03 times as wide." in text


def test_a_control_that_shares_its_files_is_told_with_the_reason(evidence):
    text = sentences(evidence, {"files": SHARED, "reason": "there is no room"})
    assert "launched from the first one's own files" in text and "two copies of them: there is no room." in text
    assert "dropped" not in text


def test_nothing_is_said_of_copies_in_older_campaigns(evidence):
    text = " ".join(method.method_sentences(evidence))
    assert "second copy" not in text and "pages" not in text


# How launches of a round advanced.


def test_sliced_rounds_are_told_from_launches_one_after_the_other(evidence):
    campaign = of(evidence, "rounds")
    text = " ".join(method.method_sentences(evidence))
    assert "one after the other in random order." in text and "in slices" not in text
    assert "Yuen's spread from eight units on" in text
    units = [in_slices(unit) for unit in json_units(campaign)]
    sliced = " ".join(method.method_sentences(replace(evidence, campaigns=(with_units(campaign, units),))))
    assert "one ran at a time while all others were stopped" in sliced and "sum of its slices" in sliced
    assert "Intervals: Student's t with each comparison's own spread; where" in sliced
    refused = with_plan(campaign, slicing_refused="launches can't be stopped here")
    text = " ".join(method.method_sentences(replace(evidence, campaigns=(refused,))))
    assert "not in slices: launches can't be stopped here." in text
