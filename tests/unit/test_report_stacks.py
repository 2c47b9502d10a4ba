"""The section on other stacks: what the packages changed, beside what environments change within each."""

from __future__ import annotations

from dataclasses import replace

import builders
from pages import draw, visible, whole

from tare.analysis.choice import is_level
from tare.model.records.images import BaseImage, CompiledLibrary, OciRecord, Package, TreeFacts, TreeRecord
from tare.model.studies.layout import arm_of
from tare.report import build, figures
from tare.report.arms import settings, stacks
from tare.report.evidence import gather
from tare.report.methods import losses

STUDY = builders.STUDY


def test_each_workload_has_the_stack_in_whole_runs_and_in_steps(evidence):
    found = stacks.sections(evidence)
    assert [item.name for item in found] == list(builders.WORKLOADS)
    for item in found:
        assert not item.missing
        assert [answer.title for answer in item.answers] == [
            "Stack paper-2022: whole run",
            "Stack paper-2022: training step",
        ]
        steps = item.answers[1]
        assert steps.levels[0].title == "paper-2022 instead of torch-2.13, on the host"
        assert steps.levels[0].verdict == "different" and "longer than with torch-2.13" in steps.levels[0].sentence
        assert "the stack matters more than the environment" in steps.weighing
        assert "imports between" in item.phases[0] and "shorter" in item.phases[0]


def test_the_stack_of_every_row_is_the_one_that_ran(evidence):
    own = evidence.metrics[
        evidence.metrics["campaign"].map(lambda name: bool(arm_of(name) and arm_of(name).other_stack))
    ]
    assert set(own[own["env"] == "host.headline"]["stack"]) == {"torch-2.13"}
    assert set(own[own["env"] != "host.headline"]["stack"]) == {"paper-2022"}


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
    told = "Of torch-1.4-openblas, openblas 0.3.21 was compiled from source for HASWELL by gcc 12 in 61 s."
    assert stacks.compiled_sentences(changed) == [told]
    assert told in stacks.package_table(changed).note and "compiled" not in stacks.package_table(evidence).note


def test_settings_do_not_show_another_stack(evidence):
    for item in settings.sections(evidence):
        assert not any("paper-2022" in answer.title for answer in item.answers)
    assert figures.arm_workloads(evidence.metrics) == ["mnist_cnn"]
    assert figures.arm_workloads(evidence.metrics, stacks=True) == list(builders.WORKLOADS)


def test_losses_are_held_within_a_stack(evidence):
    table = evidence.metrics
    other = table["campaign"].str.contains("stack-paper-2022") & table["metric"].eq("loss_last")
    moved = table.copy()
    moved.loc[other & moved["stack"].eq("paper-2022"), "value"] *= 1.5
    changed = replace(evidence, **{"metrics": moved})
    assert all(check.equal for check in losses.loss_checks(changed))
    assert "5.0e-01 of it apart" in stacks.loss_sentences(changed, "mnist_cnn")[0]
    moved.loc[other & moved["env"].eq("docker"), "value"] *= 1.5
    assert not all(check.equal for check in losses.loss_checks(changed))


def test_versions_of_both_stacks_stand_side_by_side(evidence):
    table = stacks.package_table(evidence)
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
        (record, "1.18.1", f"{name} is hub.example/tf:2.1, sha256:12, pulled and left as it is."),
        (record.replace(packages=(), base=None, reason="no registry"), None, f"{name}: no registry."),
    ):
        changed = replace(evidence, **{"study": study, "official": {name: given}})
        table = stacks.package_table(changed)
        rows = {row[0]: row[1:] for row in table.rows}
        assert rows["Image"] == ["pip", "pip", "official image (tensorflow/tensorflow:2.1.0-py3)"]
        assert rows["numpy"][2] == cell and rows["Python"][2] == "its own, none ran" and told in table.note


def test_an_official_image_is_told_beside_what_it_is_like_on_the_host(evidence):
    campaign = evidence.other_stacks("mnist_cnn")[0]
    name = campaign.name.replace("paper-2022", "tensorflow-2.1-official")
    verdicts = evidence.verdicts.assign(campaign=evidence.verdicts["campaign"].replace(campaign.name, name))
    changed = replace(evidence, **{"verdicts": verdicts})
    answer = settings.arm_answer(
        changed, replace(campaign, path=campaign.path.parent.with_name(name) / campaign.path.name)
    )
    assert answer.levels[0].title == "tensorflow-2.1 instead of torch-2.13, on the host"
    kinds = "tensorflow-2.1-official, official image (tensorflow/tensorflow:2.1.0-py3); torch-2.13, pip"
    assert answer.design.endswith(f"Kind of image: {kinds}")
    assert answer.environments[0].title.startswith("tensorflow-2.1-official in ")
    assert answer.environments[0].title.endswith(" beside tensorflow-2.1 on the host")


def test_figure_has_the_level_and_the_environments(evidence):
    drawing = figures.stacks(evidence.verdicts, "mnist_cnn")
    assert len(drawing.figure.axes) == 2
    level = [row for row in evidence.verdicts.to_dict("records") if is_level(row)]
    assert level and "The stack itself, against the study's: Host " in drawing.alt


def test_a_stack_that_cannot_be_had_says_what_would_provide_it(tmp_path):
    results = builders.build_results(tmp_path / "results", no_stack=builders.NO_PYTHON)
    draw(results)
    evidence = gather(results, results, STUDY)
    found = stacks.sections(evidence)
    assert all(not item.answers and len(item.missing) == 2 for item in found)
    assert ["Python", builders.PYTHON, "3.7 wanted, none ran"] in stacks.package_table(evidence).rows
    text = visible(whole(build(results, results, STUDY, results / "report/index.html")))
    assert "Whole runs with paper-2022: unavailable: the stack paper-2022: no CPython 3.7" in text
    assert "apt-get install python3.7" in text
    drawing = figures.stacks(evidence.verdicts, "mnist_cnn")
    assert "no other stack ran" in drawing.alt


def test_of_many_stacks_those_that_differ_stand_open_and_what_all_say_is_said_once(evidence):
    (item, *_) = stacks.sections(evidence)
    differs = item.answers[0]
    assert not item.many and item.shown == item.answers and item.rest == [] and item.weighing is None
    open_level = replace(differs.levels[0], verdict="inconclusive")
    leaves_open = replace(differs, levels=[open_level], environments=[])
    many = replace(item, answers=[*[leaves_open] * 6, differs])
    assert many.many and many.shown == [differs] and many.rest == [leaves_open] * 6
    assert many.weighing == differs.weighing
    assert replace(many, answers=[*many.answers, replace(differs, weighing="another")]).weighing is None
