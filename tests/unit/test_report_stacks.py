"""The section on other stacks: what the packages changed, beside what environments change within each."""

from __future__ import annotations

from dataclasses import replace

import builders
from pages import draw, visible, whole

from tare.analysis.decisions import Weight
from tare.model.records.images import BaseImage, CompiledLibrary, OciRecord, Package, TreeFacts, TreeRecord
from tare.model.studies.layout import arm_of
from tare.report import build, method, settings
from tare.report.evidence import gather
from tare.report.number_tables import interval_text
from tare.report.words.labels import workload_title

STUDY = builders.STUDY


def test_each_workload_has_the_stack_in_whole_runs_and_in_steps(evidence):
    found = settings.stack_sections(evidence)
    assert [item.name for item in found] == list(builders.WORKLOADS)
    for item in found:
        title = workload_title(item.name)
        assert not item.missing
        assert [table.caption for table in item.tables] == [
            f"{title}, stack paper-2022: whole run",
            f"{title}, stack paper-2022: training step",
            f"{title}: paper-2022 compared with torch-2.13 on the host, by metric",
        ]
        _, steps, parts = item.tables
        level, *others = steps.rows
        assert level[0] == "paper-2022 instead of torch-2.13, on the host" and level[-1].startswith("different")
        assert [row[0] for row in others] == ["Apptainer", "Charliecloud", "Docker"]
        own = evidence.verdicts.query(f"workload == {item.name!r} and reference == 'host.headline'")
        own = own[(own["metric"] == "imports_s") & own["campaign"].str.contains("stack-paper-2022")].iloc[0]
        [shown] = [row for row in parts.rows if row[0] == "Imports"]
        assert shown[3] == interval_text(own["ci_low"], own["ci_high"]) and own["ci_high"] < 1
    weight = {(one.workload, one.metric): one.weight for one in evidence.decided if one.level == "paper-2022"}
    assert weight["mnist_cnn", "step_s"] is Weight.MORE


def test_the_stack_of_every_row_is_the_one_that_ran(evidence):
    own = evidence.metrics[
        evidence.metrics["campaign"].map(lambda name: bool(arm_of(name) and arm_of(name).other_stack))
    ]
    assert set(own[own["launch"] == "host.headline"]["stack"]) == {"torch-2.13"}
    assert set(own[own["launch"] != "host.headline"]["stack"]) == {"paper-2022"}


def test_a_library_that_was_compiled_is_told_with_target_and_seconds(evidence):
    library = CompiledLibrary(
        name="openblas", version="0.3.21", target="HASWELL", compiler="gcc 12", source_sha256="a", sha256="b"
    )
    tree = TreeRecord(
        stack="torch-1.4-openblas", variant="cpu", status="ok", reason=None, packages=(), library=library,
        seconds={"tree": 80.0, "tree_library": 61.4},
    )  # fmt: skip
    own = {"torch-1.4": tree.replace(library=None), "torch-1.4-openblas": tree}
    changed = replace(evidence, **{"trees": own})
    told = "In torch-1.4-openblas, openblas 0.3.21 was compiled from source for HASWELL by gcc 12 in 61 s."
    assert settings.image_sentences(changed) == [told]
    assert told in settings.package_table(changed).note and "compiled" not in settings.package_table(evidence).note


def test_tables_of_arms_do_not_show_another_stack(evidence):
    for item in settings.sections(evidence):
        assert not any("paper-2022" in table.caption for table in item.arms)


def test_losses_are_held_within_a_stack(evidence):
    table = evidence.metrics
    other = table["campaign"].str.contains("stack-paper-2022") & table["metric"].eq("loss_last")
    moved = table.copy()
    moved.loc[other & moved["stack"].eq("paper-2022"), "value"] *= 1.5
    changed = replace(evidence, **{"metrics": moved})
    assert all(check.equal for check in method.loss_checks(changed))
    [rounds] = [one for one in evidence.other_stacks("mnist_cnn") if one.kind == "rounds"]
    assert "up to 50% apart" in settings.loss_text(moved, "mnist_cnn", rounds.name)
    moved.loc[other & moved["launch"].eq("docker"), "value"] *= 1.5
    assert not all(check.equal for check in method.loss_checks(changed))


def test_versions_of_both_stacks_stand_side_by_side(evidence):
    table = settings.package_table(evidence)
    assert table.columns == ["package", "torch-2.13", "paper-2022"]
    assert ["Python", builders.PYTHON, builders.OTHER_PYTHON] in table.rows, (
        "as launches said, not as stack.yaml has it"
    )
    assert ["torch", "2.13.0+cpu", "1.11.0"] in table.rows
    assert ["Image", "pip", "pip"] in table.rows


def test_an_official_image_shows_what_it_holds_and_its_digest_or_why_there_is_none(evidence):
    name = "tensorflow-2.1-official"
    about = {"kind": "registry", "name": "hub.example/tf:2.1", "digest": "sha256:12", "glibc": "2.27", "bytes": 1}
    record = OciRecord(
        stack=name, variant="cpu", install="official", status="ok", reason=None, seconds={}, cached=False,
        packages=(Package(name="numpy", version="1.18.1", sha256=None),),
        tree=TreeFacts(inside=None, digest=None), base=BaseImage(**about, reason=None),
    )  # fmt: skip
    study = evidence.study.replace(stacks=(*evidence.study.stacks, name))
    for given, cell, told in (
        (record, "1.18.1", f"{name} is hub.example/tf:2.1, sha256:12, used unchanged."),
        (record.replace(packages=(), base=None, reason="no registry"), None, f"{name}: no registry."),
    ):
        changed = replace(evidence, **{"study": study, "official": {name: given}})
        table = settings.package_table(changed)
        rows = {row[0]: row[1:] for row in table.rows}
        assert rows["Image"] == ["pip", "pip", "official image (tensorflow/tensorflow:2.1.0-py3)"]
        assert rows["numpy"][2] == cell and rows["Python"][2] == "its own, none ran" and told in table.note


def test_an_official_image_is_told_beside_what_it_is_like_on_the_host(evidence):
    campaign = evidence.other_stacks("mnist_cnn")[0]
    name = campaign.name.replace("paper-2022", "tensorflow-2.1-official")
    rows = evidence.decisions.assign(campaign=evidence.decisions["campaign"].replace(campaign.name, name))
    changed = replace(evidence, **{"decisions": rows})
    table = settings.arm_table(
        changed, replace(campaign, path=campaign.path.parent.with_name(name) / campaign.path.name)
    )
    level, *others = table.rows
    assert level[0] == "tensorflow-2.1 instead of torch-2.13, on the host"
    kinds = "tensorflow-2.1-official, official image (tensorflow/tensorflow:2.1.0-py3); torch-2.13, pip"
    assert table.note.endswith(f"Kind of image: {kinds}.")
    assert others[0][0].startswith("tensorflow-2.1-official in ")
    assert others[0][0].endswith(", tensorflow-2.1 on the host")


def test_a_stack_that_cannot_be_had_says_what_would_provide_it(tmp_path):
    results = builders.build_results(tmp_path / "results", no_stack=builders.NO_PYTHON)
    draw(results)
    evidence = gather(results, results, STUDY)
    found = settings.stack_sections(evidence)
    assert all(not item.tables and len(item.missing) == 2 for item in found)
    assert ["Python", builders.PYTHON, "3.7 wanted, none ran"] in settings.package_table(evidence).rows
    text = visible(whole(build(results, results, STUDY, results / "report/index.html")))
    assert "Whole runs with paper-2022: unavailable: the stack paper-2022: no CPython 3.7" in text
    assert "apt-get install python3.7" in text
