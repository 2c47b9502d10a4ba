"""What the report says of its own numbers: how many units and why, arms, stalls, the ledger."""

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
from tare.report import build, method, number_tables, settings
from tare.report.evidence import gather
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
    return method.design_sentence(campaign, method.verdicts_of(evidence, campaign))


def test_a_chosen_number_is_told_from_one_that_the_budget_capped(evidence):
    rounds = of(evidence, "rounds")
    assert rounds.decision.design == "stein"
    assert design(evidence, rounds).startswith(
        "6 rounds, chosen from the spread of a pilot of 6 (Stein); ±3% wanted, ±"
    )
    decision = rounds.decision.replace(design="fixed", wanted=19)
    capped = replace(rounds, sealed=rounds.sealed.replace(decision=decision))
    assert design(evidence, capped).startswith(
        "6 rounds, as many as fit in the budget of 2 min 30 s; the wanted ±3% needed 19 rounds; ±"
    )
    fixed = design(evidence, with_plan(of(evidence, "steps"), sampling={"units": 6, "confidence": 0.95}))
    assert fixed.startswith("6 rounds, a number fixed by the study; ±")


def test_the_half_width_is_that_of_the_widest_interval(evidence):
    campaign = of(evidence, "steps")
    rows = method.verdicts_of(evidence, campaign)
    found = method.half_width(campaign, rows)
    widest = max(rows["ci_high"] / rows["ci_low"])
    control = (rows["control_ci_high"] / rows["control_ci_low"]).iloc[0]
    assert found == pytest.approx(max(widest, control) ** 0.5 - 1)
    assert f"±{percent(found, up=True)} reached" in design(evidence, campaign)


def test_a_campaign_that_ended_early_says_so(tmp_path):
    results = builders.build_results(tmp_path / "results", units=3, ended="the machine changed: kernel was 1, is 2")
    found = gather(results, results, STUDY)
    lines = method.troubles(found)
    ended = "ended early, after 3 rounds: the machine changed: kernel was 1, is 2"
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
    assert method.troubles(changed) == [
        "CNN on MNIST, whole runs: 2 rounds are void, so they were repeated and are in no result "
        "(docker: it died by signal 9)",
        "CNN on MNIST, whole runs, Docker: 2 of 3 launches did not succeed (failed: it died by signal 9); "
        "given up after 2 failures in a row, so 4 rounds went on without it",
    ]
    assert method.troubles(evidence) == []


def test_launches_that_no_memory_was_left_for_did_not_fail(evidence):
    campaign = of(evidence, "rounds")
    units = json_units(campaign)
    units[2]["launches"]["docker"] = {"status": "skipped", "reason": "launches do not fit", "deviations": []}
    assert method.troubles(replace(evidence, campaigns=(with_units(campaign, units),))) == []


def test_how_often_launches_failed_stands_on_the_page_with_an_interval(evidence, page):
    table = method.failures_table(evidence)
    assert table.caption in visible(page) and "Clopper and Pearson" in visible(page)
    own = {(row[0], row[1]): row[2:] for row in table.rows}
    assert own["CNN on MNIST, whole runs", "Docker"] == ["6", "0", "0", "at most 46%"]
    assert ("CNN on MNIST, whole runs", "Host") in own
    campaign = of(evidence, "rounds", "stack=native")
    units = json_units(campaign)
    units[2]["voided"] = "docker: it was killed after 180 s"
    units[2]["launches"]["docker"] |= {"status": "timeout", "reason": "it was killed after 180 s"}
    changed = method.failures_table(replace(evidence, campaigns=(with_units(campaign, units),)))
    (docker,) = [row[2:] for row in changed.rows if row[1] == "Docker"]
    assert docker[:3] == [str(len(units) - 1), "1", "1"]
    assert re.fullmatch(r"0\.\d+% to \d\d%", docker[3])
    assert method.failures_table(replace(evidence, campaigns=())) is None


# Arms.


def test_an_environment_that_only_an_arm_lacks_is_said_with_the_arm(evidence):
    campaign = of(evidence, "rounds", "stack=native")
    changed = with_plan(campaign, unavailable={"docker": "no package manager in the base"})
    rows = method.unavailable(replace(evidence, campaigns=(changed,)))
    assert [one.title for one in rows] == ["Podman", "Docker, native installs"]


def test_a_study_without_arms_has_no_tables_of_them(results, evidence):
    study = json.loads(STUDY) | {"arms": {"workloads": [], "rounds": []}}
    assert any(item.arms for item in settings.sections(evidence))
    found = gather(results, results, json.dumps(study))
    one_level = tuple(one for one in found.campaigns if one.workload == "sentiment_rnn")
    assert not any(item.arms for item in settings.sections(replace(found, campaigns=one_level)))


# Totals, the method.


def test_tables_have_both_ratios_and_name_those_that_are_apart(evidence):
    changed = evidence.verdicts.assign(verdict="equivalent")
    one = (changed["metric"] == "step_s") & (changed["launch"] == "docker") & (changed["reference"] == "host")
    changed.loc[one, ["stalls_ci_low", "stalls_ci_high"]] = (1.01, 1.05)
    changed.loc[one, "verdict"] = "equivalent apart from stalls"
    table = number_tables.verdicts_table(replace(evidence, verdicts=changed), "mnist_cnn")
    found = next(r for r in table.rows if r[0] == "Training step" and r[1] == "Docker")
    assert found[5].below == "effect of stalls"
    labels = {r[0] if isinstance(r[0], str) else r[0].below for r in table.rows}
    assert labels == {"Whole run", "Training step", "exploratory"}  # two primary metrics; phases and rates explore
    assert found[-1].startswith("equivalent, apart from stalls")
    changed.loc[:, ["stalls_ci_low", "stalls_ci_high"]] = (0.99, 1.01)
    calm = number_tables.verdicts_table(replace(evidence, verdicts=changed), "mnist_cnn")
    assert not any(row[5].below for row in calm.rows)


def test_a_half_width_beyond_a_factor_of_two_is_not_written_out():
    assert width_text(0.012) == "±1.2%"
    assert width_text(1.5e7) == "more than ±100%"


def test_the_ledger_stands_on_the_page_with_what_reruns_cost(evidence, page):
    text = visible(page)
    assert "The k-th try of one question has 0.61/k² of the error rate alpha" in text
    assert "ledger.jsonl is missing: tries are counted from the folders on the disk" in text
    table = method.ledger_table(evidence)
    campaigns = {campaign.name for campaign in evidence.campaigns}
    assert campaigns == {one[0].rpartition(": ")[2] for one in table.rows if len(one) == 1}
    verdict = evidence.verdicts[evidence.verdicts["metric"] == "real_s"].iloc[0]
    assert verdict["alpha"] * verdict["family_size"] == pytest.approx(0.05 * 6 / math.pi**2)


# What the second host shares with the first.


def sentences(evidence, control):
    """What the plan of a report says whose campaigns say this of copies."""
    found = tuple(with_plan(c, provenance={"control": control}) for c in evidence.campaigns)
    return planned(replace(evidence, campaigns=found))["Files of the second host"]


def planned(evidence):
    """The table of the plan, by what a row is of."""
    return {row[0]: row[1] for row in method.plan_table(evidence).rows}


def test_a_control_from_a_copy_is_told(evidence):
    text = sentences(evidence, {"files": OWN})
    assert "the A/A control includes differences between copies" in text


def test_what_copies_differ_by_is_told_and_whether_it_counts(evidence):
    own = {"files": OWN}
    text = sentences(evidence, own)
    assert "the effect of a copy on a step was not measured on this machine" in text
    text = sentences(replace(evidence, copies=copies_record()), own)
    assert text.endswith(
        "copies of torch-2.13: standard deviation 0% to 0.20% (6 copies, 9 rounds, 2026-01-02); not more "
        "than chance, so other intervals don't include it"
    )
    text = sentences(replace(evidence, copies=copies_record(p=0.001)), own)
    assert text.endswith("; intervals of steps include it")


def test_a_control_that_shares_its_files_is_told_with_the_reason(evidence):
    text = sentences(evidence, {"files": SHARED, "reason": "there is no room"})
    assert text.startswith("those of the first host") and text.endswith("two copies: there is no room")


def test_nothing_is_said_of_copies_in_older_campaigns(evidence):
    assert "Files of the second host" not in planned(evidence)


# How launches of a round advanced.


def test_sliced_rounds_are_told_from_launches_one_after_the_other(evidence):
    campaign = of(evidence, "rounds")
    told = planned(evidence)
    assert told["Its launches advance"] == "one after the other in random order"
    assert "Yuen's spread from eight units on" in told["Intervals"]
    units = [in_slices(unit) for unit in json_units(campaign)]
    sliced = planned(replace(evidence, campaigns=(with_units(campaign, units),)))
    assert "one launch ran at a time while all others were stopped" in sliced["Its launches advance"]
    assert sliced["Intervals"].startswith("Student's t with each comparison's own spread; if")
    refused = with_plan(campaign, slicing_refused="launches can't be stopped here")
    told = planned(replace(evidence, campaigns=(refused,)))
    assert told["Its launches advance"].endswith(", not in slices: launches can't be stopped here")
