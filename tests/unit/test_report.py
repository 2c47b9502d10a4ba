"""The report's numbers on synthetic tables, and pages of unusual studies."""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import replace

import builders
import pytest
from campaign_builders import json_units, with_units
from image_builders import data_record
from pages import draw, visible, whole

from tare.analysis import extract
from tare.analysis.decisions import Weight
from tare.core.errors import IntegrityError, UserError
from tare.core.files import read_json, write_json
from tare.model.records.images import Channels, DataRecord
from tare.model.roles import CONTROL
from tare.model.schema import read
from tare.report import answer, build, figures, inside, machine, method
from tare.report.evidence import gather
from tare.report.words.decisions import WEIGHTS
from tare.report.words.labels import env_title
from tare.report.words.wording import signed, verdict_text

STUDY = builders.STUDY


# From tables and records.


def test_answers_hold_the_numbers_of_the_verdict_table(evidence):
    found = {item.workload: item for item in answer.answers(evidence)}
    table = found["mnist_cnn"].table
    rows = {(row[0].text, row[0].below): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    asked = ("Whole run", "Training step", "Training step, default allocator")
    assert set(rows) == {(env, what) for env in ("Apptainer", "Charliecloud", "Docker") for what in asked}
    verdicts = evidence.verdicts
    own = (verdicts["workload"] == "mnist_cnn") & (verdicts["role"] == "primary")
    for row in verdicts[own & (verdicts["metric"] == "real_s")].to_dict("records"):
        cells = rows[env_title(row["launch"], short=True), "Whole run"]
        assert cells["longer or shorter"] == signed(row["ci_low"], row["ci_high"])
        assert cells["verdict"].startswith(row["verdict"])
    assert {cells["verdict"].split(":")[0] for key, cells in rows.items() if key[0] == "Docker"} == {"different"}


def test_the_first_screen_has_every_interval_of_the_answer(evidence, page):
    first = visible(page[: page.index("<nav")])
    rows = figures.joint(evidence.verdicts)
    rows = rows[rows["metric"].isin(["real_s", "step_s"])]
    assert len(rows) == 12
    for one in rows.to_dict("records"):
        assert f"{signed(one['ci_low'], one['ci_high'])} {verdict_text(one['verdict'])}" in first
        assert signed(one["control_ci_low"], one["control_ci_high"]) in first


def test_unavailable_environments_have_reason_and_remedy(evidence, page):
    (row,) = method.unavailable(evidence)
    assert row.title == "Podman"
    assert row.reason == builders.UNAVAILABLE["podman"]
    assert row.remedy in visible(page)
    assert builders.UNAVAILABLE["podman"] in visible(page)
    assert f"Podman is unavailable: {builders.UNAVAILABLE['podman']}" in visible(page[: page.index("<nav")])


def test_the_page_has_every_interval_beside_its_control(evidence, page):
    text = visible(page)
    for item in answer.answers(evidence):
        for row in item.table.rows:
            assert all(row[item.table.columns.index(name)] in text for name in ("control", "longer or shorter"))
    assert "no difference" not in text.lower()


def test_the_page_asks_for_nothing_from_elsewhere(page):
    found = re.sub(r"xlink:href", "x", page)
    assert not re.search(r'(?:src|href)\s*=\s*"(?!#|data:,|\.\.?/|[a-z0-9-]+\.html)[^"]+"', found)
    assert "@import" not in page and "url(http" not in page and page.count("<script") == 1


def test_snippets_are_said_to_stand_in_for_imdb(evidence, page):
    assert "These are not the IMDB reviews of the paper" in visible(page)


def test_canonical_reviews_are_not_apologised_for(tmp_path):
    builders.data_records(tmp_path, canonical=True)
    records = {name: read(DataRecord, tmp_path / f"data/{name}.json") for name in ("mnist", "sentiment")}

    class Only:
        data = records

    lines = machine.data_sentences(Only)
    assert any("Stanford AI Lab" in line for line in lines)
    assert not any("not the IMDB reviews" in line for line in lines)


def test_images_that_stand_in_and_broken_ones_are_told():
    broken = tuple(f"train/n01/images/{number}.JPEG" for number in range(5))
    about = {"choice": "stamps", "stands_for": "tiny-imagenet-200", "note": "Photographs.", "canonical": False}
    channels = {"images": 2000, "mean": (0.485, 0.568, 0.406), "spread": (0.229, 0.224, 0.45)}
    records = {"tiny_imagenet": data_record(skipped=broken, channels=Channels(**channels), **about)}

    class Only:
        data = records

    lines = machine.data_sentences(Only)
    assert lines[1].startswith("These are not tiny-imagenet-200: the study asks for stamps. Photographs. ")
    assert "have means 0.00, 0.50, 0.00 and spreads 1.00, 1.00, 2.00 by channel" in lines[2]
    assert lines[3] == f"Broken images, left out: 5 ({', '.join(broken[:3])}, …)."


def test_a_build_that_stands_in_for_the_devices_own_is_told(evidence):
    images = {name: record.replace(variant="plain") for name, record in evidence.images.items()}
    assert images
    told = {row[0]: row[1] for row in machine.software_table(replace(evidence, images=images)).rows}
    assert told["Stack"].endswith("in its variant plain, because its builds for cpu were not available")
    own = {name: record.replace(variant="cpu", digest="sha256:1f") for name, record in evidence.images.items()}
    told = {row[0]: row[1] for row in machine.software_table(replace(evidence, images=own)).rows}
    assert "variant" not in told["Stack"] and told["Digest of the image"] == "sha256:1f"


# Did they compute the same?


def loss_rows(evidence, metric):
    metrics = evidence.metrics
    own = (metrics["metric"] == metric) & (metrics["workload"] == "mnist_cnn")
    return metrics[own & metrics["campaign"].map(lambda name: name.count(".") == 1)].copy()


def loss_check(rows):
    return method.loss_check("mnist_cnn", rows, rows["campaign"].iloc[0])


def test_every_campaign_has_its_loss_check(evidence):
    checks = method.loss_checks(evidence)
    assert all(check.equal for check in checks)
    assert [check.title for check in checks if check.workload == "mnist_cnn"] == [
        "CNN on MNIST, whole runs",
        "CNN on MNIST, training steps",
        "CNN on MNIST, training steps, default allocator",
        "CNN on MNIST, whole runs, native installs",
        "CNN on MNIST, training steps, native installs",
        "CNN on MNIST, whole runs, mixed precision, bf16",
        "CNN on MNIST, training steps, mixed precision, bf16",
        "CNN on MNIST, whole runs, channels-last layout",
        "CNN on MNIST, training steps, channels-last layout",
        "CNN on MNIST, whole runs, stack paper-2022",
        "CNN on MNIST, training steps, stack paper-2022",
    ]
    first = method.loss_table(evidence).rows[0]
    assert first[1:] == ["30 in 4 environments", "1.250000", "0", "identical"]


def test_unequal_losses_of_whole_runs(evidence):
    rows = loss_rows(evidence, "loss_last")
    rows.loc[rows["launch"] == "docker", "value"] *= 1 + 1e-6
    near = loss_check(rows)
    assert near.equal and near.distance == pytest.approx(1e-6, rel=1e-3) and near.where == "Docker"
    rows.loc[rows["launch"] == "docker", "value"] *= 1.01
    far = loss_check(rows)
    assert far.equal is False and "may compute something else" in far.says and far.where == "Docker"


def test_steps_of_a_round_are_held_against_the_host_of_their_own_round(evidence):
    rows = loss_rows(evidence, "step_loss_last")
    rows.loc[rows["rep"] == 3, "value"] *= 0.9  # another number of steps in this round, the same for all of it
    assert loss_check(rows).equal
    rows.loc[(rows["rep"] == 3) & (rows["launch"] == "apptainer"), "value"] *= 1.001
    far = loss_check(rows)
    assert far.equal is False and far.where == "Apptainer" and far.loss is None


def test_a_block_without_its_host_says_nothing_of_losses(evidence):
    rows = loss_rows(evidence, "step_loss_last")
    found = loss_check(rows[rows["launch"] != "host"])
    assert found.equal is None and "no launch on the host recorded a loss" in found.says


def test_paper_metrics_show_kind_and_reason(evidence):
    table = inside.profile_table(evidence, "mnist_cnn")
    rows = {row[0].text: row[1:] for row in table.rows}
    headings = [row[0].text for row in table.rows if len(row) == 1]
    assert headings[:2] == ["The launch and its operators", "Memset and copies, on the device"]
    assert rows["FLOPs"][-2:] == ["modelled", "operator count"]
    flops = sum(entry[2] for entry in builders.OPERATORS.values())
    assert rows["FLOPs"][0] == f"{flops / 1e9:.2f} G"
    assert rows["Step, not profiled"][-2] == "measured"
    # One line for all of a group that nobody has, for one reason.
    ((memset,),) = [row for name, row in rows.items() if name.startswith("Memset time, Memset calls")]
    assert memset.text.startswith("unavailable: the device is a CPU") and memset.span == 6
    ((dram,),) = [row for name, row in rows.items() if name.startswith("DRAM read, DRAM written")]
    assert dram.text.startswith("unavailable: needs hardware counters")


def test_machine_facts_that_could_not_be_read_have_their_reason(evidence):
    rows = {row[0]: row[1] for row in machine.device_table(evidence).rows}
    assert rows["Frequency governor"] == "unavailable: no cpufreq in a virtual machine"
    assert rows["Caches"] == "L1d: 32.0 KiB; L3: 35.8 MiB"


def test_a_virtual_host_is_a_limit(evidence):
    assert any("itself virtual (vm kvm)" in line for line in method.limit_sentences(evidence))


def test_method_comes_from_the_plan(evidence):
    told = {row[0]: row[1] for row in method.plan_table(evidence).rows}
    assert told["A round"].startswith("5 whole runs") and told["Rounds discarded first"] == "1"
    steps = told["Training steps"]
    assert "each whole run made 2 replicates of its training job (steady allocator and default allocator)" in steps
    assert "2 warm-up steps" in steps
    assert told["How many rounds"].startswith("a pilot of 6, then as many as ±3% needs")
    assert told["Confidence"].startswith("95% that no primary comparison")
    assert "of the exploratory differences, at most 5%" in told["Confidence"]
    assert told["Margins"] == "5% for whole runs and their parts, 2% for training steps"
    assert told["Allocator"] == "default in whole runs and steady and default in training steps"
    assert "the default launch" in told["Arms"] and told["Network"] == "none"
    assert method.plan_table(replace(evidence, campaigns=())) is None


NONE = "“No interval” means too few rounds: fewer than 2, or so few that the interval would reach beyond a factor"
AGAIN = "CNN on MNIST: this is try {} of the same question, so its intervals are wider: it has {} of the error"


def test_the_first_screen_says_why_there_is_no_interval(evidence):
    assert answer.notes(evidence) == []
    verdicts = evidence.verdicts.copy()
    own = (verdicts["launch"] == "docker") & (verdicts["metric"] == "real_s")
    verdicts.loc[own, ["ci_low", "ci_high"]] = float("nan")
    changed = replace(evidence, verdicts=verdicts)
    (line,) = answer.notes(changed)
    assert line.startswith(f"{NONE} of 1,000.")
    cells = [cell for glance in answer.glances(changed) for row in glance.rows for cell, _ in row[2]]
    assert "no interval" in cells


def test_the_first_screen_has_the_control_of_sliced_rounds_and_names_another(evidence):
    verdicts = evidence.verdicts.copy()
    own = (verdicts["metric"] == "real_s") & (verdicts["workload"] == "mnist_cnn")
    verdicts.loc[own, ["control_ci_low", "control_ci_high", "sliced"]] = [0.99, 1.01, True]
    first = own & (verdicts["launch"] == "apptainer")
    verdicts.loc[first, ["control_ci_low", "control_ci_high", "sliced"]] = [0.9, 1.2, False]
    changed = replace(evidence, verdicts=verdicts)
    [shown] = [one.rows[-1] for one in answer.glances(changed) if one.title == "CNN on MNIST"]
    assert shown[0] == CONTROL and shown[2][0][0] == "−1.0% to +1.0%"
    assert answer.notes(changed) == [
        "Apptainer, CNN on MNIST: the whole run was measured in rounds without slices, whose A/A control is "
        "−10% to +20%."
    ]


def test_the_first_screen_says_which_try_it_is_where_there_are_intervals(evidence):
    first, second = answer.notes(replace(evidence, verdicts=evidence.verdicts.assign(attempt=2)))
    assert first.startswith(AGAIN.format(2, "15%")) and second.startswith("RNN on film reviews: this is try 2 ")
    verdicts = evidence.verdicts.copy()
    verdicts.loc[verdicts["workload"] == "mnist_cnn", "attempt"] = 3
    (line,) = answer.notes(replace(evidence, verdicts=verdicts))
    assert line.startswith(AGAIN.format(3, "6.8%"))


@pytest.mark.parametrize("again", [False, True])
def test_the_first_screen_of_two_units_and_of_a_second_try(tmp_path, again):
    """From campaigns on the disk to the page's text; the second try has the first beside it, set aside."""
    root = builders.build_results(tmp_path / "results", units=2)
    if again:
        for seal in list(root.glob("campaigns/*/*/*/rounds.*/sealed.json")):
            shutil.copytree(seal.parent, tmp_path / "first")
            (tmp_path / "first").rename(seal.parent / "superseded-1")
        seals, profiles = root.glob("campaigns/*/*/*/*/sealed.json"), root.glob("profiles/*/*/*/*/profile.json")
        extract.write(extract.build(list(seals), list(profiles)), root / "tables")
    draw(root)
    page = build(root, root, STUDY, root / "report/index.html").read_text()
    first = visible(page[: page.index("<nav")])
    # By Student's t with one degree of freedom: at the first try's share each of these intervals can be told.
    assert ("no interval" in first, NONE in first, AGAIN.format(2, "15%") in first) == (again, again, again)


def test_deviations_are_counted(evidence, tmp_path):
    assert "ran under the conditions" in machine.deviation_sentences(evidence)[0]
    units = json_units(evidence.campaigns[0])
    for unit in units:
        unit["launches"]["docker"]["deviations"] = ["/dev/shm bytes 67108864, asked for 1073741824"]
    changed = replace(evidence, campaigns=(with_units(evidence.campaigns[0], units),))
    total = sum(len(unit["launches"]) for unit in units)
    assert machine.deviation_sentences(changed) == [
        f"Docker: /dev/shm bytes 67108864, asked for 1073741824 (7 of {total} successful launches)"
    ]


def test_what_a_transport_can_not_see_is_said(evidence):
    units = json_units(evidence.campaigns[0])
    for unit in units:
        unit["launches"]["docker"] |= {"transport": "streams", "unseen": ["/dev/shm bytes"]}
    changed = replace(evidence, campaigns=(with_units(evidence.campaigns[0], units),))
    (line,) = machine.deviation_sentences(changed)
    assert line.startswith("Docker: /dev/shm bytes could not be set or seen (7 of ")


def test_failed_launches_are_shown(evidence):
    units = json_units(evidence.campaigns[0])
    units[-1]["launches"]["docker"] = {"status": "timeout", "reason": "180 s", "inside": None, "deviations": []}
    changed = replace(evidence, campaigns=(with_units(evidence.campaigns[0], units),))
    assert method.troubles(changed) == [
        "CNN on MNIST, whole runs, Docker: 1 of 7 launches did not succeed (timeout: 180 s)"
    ]


def test_conditions_are_the_headlines_own(evidence):
    facts_of = machine.first_facts(evidence)
    assert set(facts_of) == {"host", "host.control", "docker", "apptainer", "charliecloud"}
    note = machine.conditions_table(evidence).note
    assert "allocator of whole runs: default" in note and "allocator of training steps: steady, default" in note


def test_an_environments_own_condition_is_listed_by_itself(evidence):
    """A launch that is nicer than the host's tells so; what all have alike stands in no row."""
    units = json_units(evidence.campaigns[0])
    for unit in units:
        for env, launch in unit["launches"].items():
            launch["inside"]["facts"]["niceness"] = 10 if env == "docker" else 0
            launch["inside"]["facts"]["environment_bytes"] = random.randrange(4096)
    changed = replace(evidence, campaigns=(with_units(evidence.campaigns[0], units),))
    table = machine.conditions_table(changed)
    rows = {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}
    assert rows["niceness"] == {"Host": "0", "Docker": "10", "Apptainer": "0", "Charliecloud": "0"}
    assert rows["status: Seccomp"]["Docker"] == "2" and rows["root mount: type"]["Host"] == "ext4"
    assert not {"environment bytes", "kernel", "hostname", "torch: threads"} & set(rows)
    assert "kernel" in table.note and "torch: threads" in table.note and "niceness" not in table.note
    plain = {row[0] for row in machine.conditions_table(evidence).rows}
    assert plain == set(rows) - {"niceness"}


def test_a_fact_that_varies_on_the_host_itself_differs_only_where_nothing_is_shared(evidence):
    units = json_units(evidence.campaigns[0])
    for number, unit in enumerate(units):
        for env, launch in unit["launches"].items():
            launch["inside"]["facts"]["affinity"] = [number % 2 if env != "docker" else 2]
            launch["inside"]["facts"]["gid"] = number % 3
    changed = replace(evidence, campaigns=(with_units(evidence.campaigns[0], units),))
    rows = {row[0]: row[1:] for row in machine.conditions_table(changed).rows}
    assert rows["affinity"][:2] == ["0 or 1", "2"] and "gid" not in rows


def test_provenance_lists_every_campaign_with_its_machine_time(evidence):
    rows = machine.provenance_table(evidence).rows
    assert len(rows) == len(evidence.campaigns) == 12
    own = next(r for r in rows if r[1].endswith("stack-native"))
    assert own[3:5] == ["6 rounds", "2 min 20 s"]


# Whole pages of unusual studies.


def test_a_machine_without_any_runtime_gets_a_report_of_its_host(tmp_path):
    missing = {env: f"{env} is not installed" for env in ("docker", "apptainer", "charliecloud", "podman")}
    results = builders.build_results(tmp_path / "results", environments=["host"], unavailable=missing)
    draw(results)
    text = visible(whole(build(results, results, STUDY, results / "report/index.html")))
    assert "there is nothing to compare" in text
    assert all(reason in text for reason in missing.values())
    assert WEIGHTS[Weight.OPEN] in text and WEIGHTS[Weight.MORE] not in text and WEIGHTS[Weight.LESS] not in text


def test_one_round_is_too_few_to_tell(tmp_path):
    results = builders.build_results(tmp_path / "results", units=1)
    draw(results)
    text = visible(whole(build(results, results, STUDY, results / "report/index.html")))
    assert "Whole runs: all 6 comparisons with the host are inconclusive." in text
    assert "inconclusive: 1 complete units" in text and "no interval so far" in text


def test_a_study_without_steps_and_sweeps_says_nothing_of_them(tmp_path):
    root = builders.build_results(tmp_path / "results", steps=False)
    draw(root)
    for folder in root.glob("campaigns/*/*/*/*"):
        if folder.name.startswith(("sweep",)) or ".stack-" in folder.name:
            shutil.rmtree(folder)
    sealed = sorted(root.glob("campaigns/*/*/*/*/sealed.json"))
    extract.write(extract.build(sealed, sorted(root.glob("profiles/*/*/*/*/profile.json"))), root / "tables")
    study = json.loads(STUDY) | {"papers": [], "arms": {"workloads": [], "rounds": []}, "stacks": []}
    study |= {"rounds": {"steps": None}, "workloads": {name: {"sweep_batches": []} for name in builders.WORKLOADS}}
    index = build(root, root, json.dumps(study), root / "report/index.html")
    text, first = visible(whole(index)), visible(index.read_text())
    assert " of 6 comparisons with the host" in first and "Training steps" not in first
    assert "this study measured no training steps in its whole runs; rounds.steps" in first
    assert 'id="batch"' not in whole(index) and "nan" not in text.lower().split()


def test_a_missing_figure_is_named(tmp_path, results):
    shutil.copytree(results, tmp_path / "results")
    (tmp_path / "results/figures/roofline.svg").unlink()
    with pytest.raises(UserError, match=r"no figure .*roofline\.svg"):
        build(tmp_path / "results", tmp_path / "results", STUDY, tmp_path / "index.html")


def test_a_campaign_that_was_changed_after_its_seal_is_refused(tmp_path):
    results = builders.build_results(tmp_path / "results", units=2)
    plan = next(results.glob("campaigns/nyu2022/box/mnist_cnn/rounds.*/plan.json"))
    write_json(plan, {**read_json(plan), "seed": 1})
    with pytest.raises(IntegrityError, match="is not what was sealed"):
        gather(results, results, STUDY)
