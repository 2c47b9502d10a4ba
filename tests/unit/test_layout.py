"""Names of campaigns and profiled launches are read back as they were written, of every study that we ship."""

from pathlib import Path

import pytest

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model.levels import SAME
from tare.model.registry import HOST, SHARED
from tare.model.studies import arms, layout
from tare.model.studies.campaigns import campaigns, profiled_stacks
from tare.model.studies.loading import load_checked

STUDIES = sorted((project_root() / "config").glob("*.yaml"))
STUDIES = [path for path in STUDIES if path.name != "devices.yaml"]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_names_of_a_study_are_read_as_they_were_written(path):
    study = load_checked(path)
    found = campaigns(study)
    assert found
    assert len({(one.workload, one.name) for one in found}) == len(found)
    for one in found:
        name = layout.read_name(one.name)
        assert name.text == one.name
        assert (name.kind, name.scenario) == (one.kind, one.scenario)
        assert name.arm == (arms.parse(one.arm) if one.arm else None)
        assert name.environments == (() if one.kind == "sweep" else tuple(sorted(one.environments)))
        folder = layout.sealed_record(study.study, "box", one.workload, one.name).parent
        assert layout.question_of(folder) == (one.workload, one.name)
        assert folder.parts[2:4] == (study.study, "box")
    for _, text in profiled_stacks(study):
        arm = arms.parse(text)
        assert layout.read_profile_name(layout.profile_name(HOST, arm)) == (HOST, arm.level)
    for env in study.environments:
        assert layout.read_profile_name(layout.profile_name(env)) == (env, SAME)


def test_names_part_stack_and_scenario_though_both_follow_dots():
    text = "rounds.docker@vm+host.stack-torch-2.13+torchscript.shared"
    name = layout.read_name(text)
    assert (name.environments, name.scenario) == (("docker.vm", "host"), SHARED)
    assert name.arm == arms.parse("stack=torch-2.13+torchscript")
    assert name.text == text
    assert name.design == "rounds.stack-torch-2.13+torchscript.shared"


def test_a_name_with_an_unknown_part_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"no scenario 'shard'.*shared"):
        layout.read_name("rounds.docker+host.shard")
    with pytest.raises(UserError, match=r"no level 'stedy'.*steady"):
        layout.read_name("rounds.docker+host.allocator-stedy")


def test_the_default_study_alone_lies_in_the_folder_of_results_itself():
    assert layout.results_folder(layout.DEFAULT_STUDY) == "results"
    assert Path(layout.results_folder("mine")) == Path("results/mine")


def test_every_path_of_what_was_measured_has_its_machine():
    paths = [
        layout.study_folder("s", "box"),
        layout.sealed_record("s", "box", "w", "sweep"),
        layout.profile_record("s", "box", "w", "host"),
        layout.traces_folder("s", "box", "w", "host"),
        layout.pipeline_record("s", "box", "w"),
        layout.of_machine(Path("results"), "box", layout.MACHINE_FILE),
        layout.own_ceilings_record("s", "box"),
        layout.ceilings_record("box", "0"),
        layout.probe_record("box", "host"),
    ]
    assert all("box" in path.parts for path in paths)
    assert len(set(paths)) == len(paths)
