"""What a step is made of in each stack: which launches a study asks for, their rows, figure and table."""

import random

import builders
import pytest

from tare.analysis import extract, profile_rows
from tare.analysis.plans import expected
from tare.core.errors import IntegrityError, UserError
from tare.core.files import project_root, read_json, write_json
from tare.experiments import measure
from tare.model import tables
from tare.model.levels import levels_text
from tare.model.studies import arms, campaigns, checks, layout, loading
from tare.report import figures, settings
from tare.worker import families

WORKLOAD = "mnist_cnn"
LEVELS = ("tensorflow-1.14", "tensorflow-1.14+xla", "cntk-2.7")
REASON = "nothing here has one"


def made(folder, level=None, **changes):
    """A profiled launch of the headline's stack or of another, with the trace or without; returns its path."""
    arm = arms.parse(f"stack={level}") if level else None
    own = folder / "box" / WORKLOAD / layout.profile_name("host", arm)
    record = builders.profile_record("tiny", WORKLOAD, "host", own, random.Random(1))
    if arm:
        record["arm"] = levels_text({"stack": arm.level, "allocator": "default", "page_cache": "warm"})
    write_json(own / "profile.json", {**record, **changes})
    return own / "profile.json"


def without_trace(path):
    record = read_json(path)
    record["inside"]["results"] |= {"profiler_reason": REASON, "profiled_steps": 0, "profiled_step_s": []}
    return {**record, "trace": None}


@pytest.fixture
def profiles(tmp_path):
    """The table of a headline and three levels: with operators, failed, without a profiler."""
    paths = [made(tmp_path, level) for level in LEVELS]
    write_json(paths[2], without_trace(paths[2]))
    failed = read_json(paths[1])
    write_json(paths[1], {**failed, "status": "unavailable", "reason": "no CPython 3.7", "inside": None})
    return extract.build([], [made(tmp_path)], stack_profiles=paths)["stack_profiles"]


def test_a_study_that_names_profile_has_a_launch_for_each_stack_but_official_ones():
    own = loading.load_checked(project_root() / "config/modak2020.yaml").replace(stack_kinds=("rounds", "profile"))
    found = campaigns.profiled_stacks(own)
    wanted = {(name, f"stack={level}") for name in own.workloads for level in campaigns.stacks_of(own, name)}
    assert wanted - set(found) == {("mnist_cnn_scripts", "stack=tensorflow-2.1-official")}
    assert set(found) <= wanted and len(found) == len(set(found)) > 10
    assert {one.kind for one in campaigns.campaigns(own)} <= {"rounds", "causes", "sweep"}
    assert [rule for rule, _ in expected.jobs(own)].count("run_profile_of_stack") == len(found)
    headline = loading.load_checked(project_root() / "config/full.yaml")
    assert headline.stacks and campaigns.profiled_stacks(headline) == ()


def test_profiled_launches_alone_are_no_comparison():
    alone = loading.load(project_root() / "config/modak2020.yaml") | {"stack_kinds": ["profile"]}
    with pytest.raises(UserError, match="stack_kinds: name rounds: a profiled launch is no comparison"):
        checks.check(loading.load(project_root() / "config/config.yaml") | alone)


def test_a_launch_by_hand_of_what_is_no_stack_is_refused(tmp_path):
    source, out = str(project_root() / "config/modak2020.yaml"), tmp_path / "profile.json"
    with pytest.raises(UserError, match=r"another stack \(stack=NAME\), not of allocator=steady"):
        measure.profile(source, "mnist_cnn_equal", "host", None, None, out, "allocator=steady")
    assert not out.exists()


def test_rows_are_families_behind_the_headlines_or_the_reason(profiles):
    assert list(dict.fromkeys(profiles["level"])) == ["same", *LEVELS]
    by_level = {level: rows for level, rows in profiles.groupby("level")}
    assert set(by_level["same"]["stack"]) == {"torch-2.13"} and set(by_level[LEVELS[0]]["stack"]) == {LEVELS[0]}
    for level in ("same", LEVELS[0]):
        rows = by_level[level]
        assert families.CONVOLUTION in set(rows["family"]) and rows["reason"].isna().all()
        assert (rows["steps"] == 4).all() and rows["self_s_per_step"].gt(0).any()
        assert rows["plain_step_s"].nunique() == 1 and set(rows["source"]) == {"torch.profiler"}
    (failed,) = by_level[LEVELS[1]].to_dict("records")
    assert failed["reason"] == "unavailable: no CPython 3.7" and failed["steps"] == 0
    (unnamed,) = by_level[LEVELS[2]].to_dict("records")
    assert unnamed["reason"] == REASON and unnamed["plain_step_s"] > 0


def test_a_study_without_such_launches_has_an_empty_table(tmp_path):
    assert extract.build([], [made(tmp_path)])["stack_profiles"].empty


def test_a_record_under_another_stacks_name_is_refused(tmp_path):
    path = made(tmp_path, LEVELS[0])
    moved = path.parent.with_name("host.stack-mxnet-1.6")
    path.parent.rename(moved)
    with pytest.raises(IntegrityError, match=r"is of stack 'tensorflow-1\.14' but is under 'mxnet-1\.6': run it"):
        profile_rows.read_profile(moved / "profile.json")


def test_the_parts_of_a_step_add_up_to_the_operators_time(profiles):
    table = figures.step_table(profiles, WORKLOAD)
    assert list(table["label"]) == ["torch-2.13", *LEVELS]
    own = profiles[profiles["level"] == LEVELS[0]]["self_s_per_step"].sum()
    parts = table.drop(columns=["label", "plain_step_s", "reason"]).sum(axis=1)
    assert parts[1] == pytest.approx(own) and parts[2] == parts[3] == 0


def test_the_table_says_why_a_launch_has_no_operators(profiles):
    table = settings._step_table(profiles, WORKLOAD)
    rows = {row[0]: row for row in table.rows}
    assert rows[LEVELS[1]][-1] == "unavailable: no CPython 3.7" and rows[LEVELS[1]][1] is None
    assert rows[LEVELS[2]][-1] == REASON and rows[LEVELS[2]][1] is not None
    assert rows["torch-2.13"][-1] is None and len(table.columns) == len(rows["torch-2.13"])


def test_the_table_goes_through_its_file(profiles, tmp_path):
    tables.write("stack_profiles", profiles, tmp_path / "stack_profiles.csv")
    read = tables.read("stack_profiles", tmp_path / "stack_profiles.csv")
    assert list(read["level"]) == list(profiles["level"])
