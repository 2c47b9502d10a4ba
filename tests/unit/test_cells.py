"""Levels are read as they were written, and the cell of a launch has the columns that every table begins with."""

import campaign_builders
import pytest
from audit_builders import identity

from tare.core.errors import IntegrityError
from tare.model import tables
from tare.model.levels import level_column, levels_text, read_levels
from tare.model.records.campaigns import Plan
from tare.model.registry import HOST, SHARED, SINGLE
from tare.model.roles import CONTROL, alone_of, read_role, reference_of
from tare.model.rows import measured
from tare.model.schema import parse
from tare.model.studies import arms
from tare.model.studies.cells import cell_of, launch_columns

CAMPAIGN = "rounds.docker+host.stack-paper-2022+xla"


@pytest.fixture(scope="module")
def plan():
    arm = arms.parse("stack=paper-2022+xla")
    names = arms.launch_names(arm, [HOST, "docker"])
    return parse(Plan, campaign_builders.base_plan("s", "mnist_cnn", "rounds", names, 4, arm), "a plan")


@pytest.mark.parametrize("text", ["stack=same", "stack=torch-2.13+xla,allocator=steady,page_cache=warm"])
def test_levels_are_read_as_they_were_written(text):
    assert levels_text(read_levels(text)) == text


def test_levels_that_were_read_once_cannot_be_changed():
    with pytest.raises(TypeError):
        read_levels("stack=same")["stack"] = "native"


def test_a_cell_has_the_columns_that_every_table_begins_with(plan):
    row = cell_of(plan, CAMPAIGN, HOST, 64).row()
    assert list(tables.make("metrics", [row_of(row)]).columns[: len(row)]) == list(row)
    assert (row["campaign"], row["launch"], row["batch"], row["study"]) == (CAMPAIGN, HOST, 64, "s")
    assert (row["machine"], row["environment"], row["launch_role"], row["co_runner"]) == (
        "box", HOST, "reference", False,
    )  # fmt: skip
    assert {factor: row[level_column(factor)] for factor in plan.levels} == plan.levels


def row_of(identity):
    """A row of the table of metrics."""
    return {**identity, **measured("real_s", 1.0, "s", "launcher")}


def test_a_tables_levels_survive_its_file(plan, tmp_path):
    rows = [row_of(cell_of(plan, CAMPAIGN, HOST, 64).row()), row_of({"level_threads": "2"} | identity("docker"))]
    table = tables.make("metrics", rows)
    assert table["level_threads"].isna().tolist() == [True, False]
    for path in (tmp_path / "metrics.csv", tmp_path / "metrics.parquet"):
        tables.write("metrics", table, path)
        found = tables.read("metrics", path)
        assert found["level_threads"].tolist()[1] == "2"
        assert found["level_stack"].tolist() == ["paper-2022+xla", "same"]


def test_a_table_of_an_older_version_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "verdicts.csv"
    table = tables.make("verdicts", []).assign(arm="stack=same")
    table.to_csv(path, index=False)
    with pytest.raises(IntegrityError, match=r"older version.*make it again with `snakemake"):
        tables.read("verdicts", path)


def test_a_launch_at_the_reference_level_has_its_stack_and_levels(plan):
    level = {role.name: cell_of(plan, CAMPAIGN, role.name, 64) for role in plan.launches}
    assert {level[name].stack for name in (HOST, CONTROL, "docker")} == {"paper-2022"}
    assert level[reference_of(HOST)].stack == plan.stack != "paper-2022"
    assert level[HOST].levels["stack"] == "paper-2022+xla"
    assert level[reference_of(HOST)].levels == plan.headline_levels


def test_what_a_launchs_name_says_stands_in_columns_of_its_own():
    names = {
        HOST: (HOST, "reference", True),
        CONTROL: (HOST, "control", True),
        "docker.vm": ("docker.vm", "treatment", True),
        reference_of("docker"): ("docker", "headline", True),
        alone_of(CONTROL): (HOST, "control", False),
        alone_of("docker"): ("docker", "treatment", False),
    }
    for name, wanted in names.items():
        columns = launch_columns(read_role(name), SHARED)
        assert (columns["environment"], columns["launch_role"], columns["co_runner"]) == wanted
        assert columns["launch"] == name
        assert not launch_columns(read_role(name), SINGLE)["co_runner"], "one job alone on the machine"


def test_a_table_without_machines_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "verdicts.csv"
    tables.make("verdicts", []).drop(columns="machine").to_csv(path, index=False)
    with pytest.raises(IntegrityError, match=r"without the column machine: make it again with `snake"):
        tables.read("verdicts", path)
