"""What a launch is asked to do, and under which conditions: nothing is lost or added on its way as JSON."""

import re
from typing import get_args

import pytest
from asked import CONDITIONS, OF_A_STUDY, conditions, spec
from pydantic import ValidationError

from tare.core.errors import IntegrityError
from tare.core.files import project_root
from tare.model.specification import Job, Mode, Specification
from tare.model.studies import arms
from tare.worker import main

# What the launcher fills in for each launch, and a file that it is asked to keep.
FILLED_IN = {"threads", "settings", "record", "data", "fifos", "rank", "world_size", "trace"}


def test_a_specification_has_what_was_asked_for_and_nothing_else():
    asked = {"mode": "train", "batch": 4, "options": {"samples": 8, "rate": 0.5}, "no_cold": None}
    found = spec(**asked)
    assert found.to_json() == asked and found.replace(steps=2).to_json() == {**asked, "steps": 2}
    assert found.without("no_cold", "batch").to_json() == {"mode": "train", "options": asked["options"]}
    assert found.job == Job(batch=4, options=asked["options"]) and found.served == (found,)
    both = found.without(*Job.model_fields).replace(jobs=(found.job, Job(workload="mnist_cnn")))
    assert both.to_json()["jobs"] == [{"batch": 4, "options": asked["options"]}, {"workload": "mnist_cnn"}]
    assert both.served == both.jobs


def test_what_no_worker_knows_can_not_be_asked_for():
    with pytest.raises(ValidationError, match="stepz"):
        spec().replace(stepz=2)
    with pytest.raises(ValidationError, match="allocater"):
        CONDITIONS.replace(allocater="huge")


def test_the_modes_are_the_workers():
    root = project_root()
    text = (root / "tare/worker/main.py").read_text()
    assert set(re.findall(r'mode == "(\w+)"', text)) == set(get_args(Mode)) >= set(main.ENDS_AT_ONCE)


def test_a_command_is_asked_for_in_place_of_the_workers_jobs():
    asked = {"mode": "command", "command": {"argv": ["python", "train.py"], "workdir": "/w"}}
    assert spec(**asked).to_json() == asked and spec().command is None
    with pytest.raises(IntegrityError, match="command"):
        spec(mode="command")
    with pytest.raises(IntegrityError, match="command"):
        spec(mode="train", command=asked["command"])


def test_whatever_the_worker_reads_can_be_asked_for():
    root = project_root()
    paths = [*root.glob("tare/worker/**/*.py"), *root.glob("workloads/*.py")]
    read = {name for path in paths for name in re.findall(r'\bspec(?:\[|\.get\()"(\w+)"', path.read_text())}
    assert len(read) > 30 and read <= {*Specification.model_fields, *FILLED_IN}


def test_conditions_of_a_launch_are_the_studys_at_the_levels_of_its_campaign():
    levels = {"stack": "same", "allocator": "steady", "page_cache": "warm"}
    plain = arms.conditions_at(OF_A_STUDY, levels)
    assert plain.to_json() == {**OF_A_STUDY.to_json(), "allocator": "steady"} and plain == CONDITIONS
    varied = arms.conditions_at(OF_A_STUDY, {**levels, "threads": "2", "layout": "channels-last"})
    assert varied == conditions(threads=2, settings={"layout": "channels-last"})
    assert OF_A_STUDY.of_launch(page_cache="cold").to_json() == {
        **OF_A_STUDY.to_json(),
        "allocator": "default",
        "page_cache": "cold",
    }
