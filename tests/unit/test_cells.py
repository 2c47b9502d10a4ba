"""Levels are read as they were written, and the cell of a launch has the columns that every table begins with."""

import campaign_builders
import pytest

from tare.model import tables
from tare.model.levels import levels_text, read_levels
from tare.model.records.campaigns import Plan
from tare.model.registry import HOST
from tare.model.roles import CONTROL, reference_of
from tare.model.schema import parse
from tare.model.studies import arms
from tare.model.studies.cells import cell_of

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
    assert list(row) == [name for name in tables.IDENTITY if name != "scaled"]
    assert (row["campaign"], row["env"], row["batch"], row["study"]) == (CAMPAIGN, HOST, 64, "s")
    assert row["arm"] == plan.arm


def test_a_launch_at_the_reference_level_has_its_stack_and_levels(plan):
    level = {name: cell_of(plan, CAMPAIGN, name, 64) for name in plan.environments}
    assert {level[name].stack for name in (HOST, CONTROL, "docker")} == {"paper-2022"}
    assert level[reference_of(HOST)].stack == plan.stack != "paper-2022"
    assert level[HOST].levels["stack"] == "paper-2022+xla"
    assert level[reference_of(HOST)].levels == plan.headline_levels
