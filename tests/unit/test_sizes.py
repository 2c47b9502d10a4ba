"""Jobs that a CPU has scaled down: on a CUDA device as they were published, but for what fails so."""

from __future__ import annotations

import json

import pytest
from ledger_builders import plan_of

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.machine import fitting
from tare.model.studies import checks, loading, study
from tare.model.studies.stamps import departures, stamp_of
from tare.report import pages


@pytest.fixture(scope="module")
def studies():
    names = ("columbia2025", "nthu2018", "modak2020")
    return {name: loading.load_checked(project_root() / f"config/{name}.yaml") for name in names}


@pytest.fixture
def on(monkeypatch):
    """Says what this machine has for a device."""
    return lambda device: monkeypatch.setattr(fitting, "fitting_device", lambda stack: (device, "said by a test"))


def test_jobs_are_as_published_on_a_cuda_device_and_small_on_a_cpu(studies, on):
    whole = studies["columbia2025"]
    on("cpu")
    assert fitting.settled(whole) == whole.replace(device="cpu")
    on("cuda")
    found = fitting.settled(whole)
    sizes = {
        name: (job.batch, job.options["image_px"], job.options["samples"]) for name, job in found.workloads.items()
    }
    assert set(sizes.values()) == {(256, 224, 3840)}
    assert found.workloads["resnet50"].options["learning_rate"] == 0.1
    assert [job.sweep_batches for job in found.workloads.values()] == [(), (), ()], "none where the study has none"
    assert fitting.settled(found) == found and checks.check(found.to_json()) == found


def test_what_is_known_to_fail_stays_as_the_study_has_it_and_is_told(studies, on):
    on("cuda")
    found = fitting.settled(studies["columbia2025"])
    assert found.workloads["alexnet"].options["learning_rate"] == 0.01
    assert pages.scaled(found) == ["AlexNet: learning_rate 0.01 (published 0.1, which fails)"]


def test_groups_and_the_second_job_take_the_published_size_too(studies, on):
    on("cuda")
    found = fitting.settled(studies["nthu2018"])
    assert (found.shared.batch, found.shared.small_batch, found.distributed.steps) == (512, 1, None)
    assert found.shared.options["samples"] == 56320 and pages.scaled(found) == []
    assert found.distributed.to_json() == {**studies["nthu2018"].distributed.to_json(), "steps": None}
    part = loading.load_part(
        study.RoundsPart, study.part_of(studies["nthu2018"], "rounds", "resnet50", None, "distributed")
    )
    assert (
        fitting.settled(part).workloads["resnet50"].batch == 32 and fitting.settled(part).distributed.steps is None
    )


def test_a_study_that_says_cpu_stays_small_and_one_without_jobs_is_left_alone(studies, on):
    on("cuda")
    told = studies["modak2020"].replace(device="cpu")
    assert fitting.settled(told) == told
    roofs = loading.load_part(study.CeilingsPart, study.part_of(told, "ceilings"))
    assert fitting.settled(roofs.replace(device="auto")).device == "cuda"


def test_a_campaign_of_the_published_size_is_what_its_stamp_says(studies, on):
    whole = studies["columbia2025"]
    on("cuda")
    part = json.loads(study.part_of(fitting.settled(whole), "rounds", "resnet18"))
    part.pop(study.PART)
    said = {"kind": "rounds", "workload": "resnet18", "stack": whole.stack}
    assert not [
        line for line in departures(stamp_of(whole, "", None), plan_of(**said, part=part)) if "study" in line
    ]
    small = json.loads(study.part_of(whole.replace(device="cuda"), "rounds", "resnet18"))
    small.pop(study.PART)
    told = departures(stamp_of(whole, "", None), plan_of(**said, part=small))
    assert "the study differs in workloads.resnet18.batch" in told[0]


@pytest.mark.parametrize(
    ("published", "says"),
    [
        (
            {"batch": 256, "options": {"samples": 3840}, "fails": ["learning_rat"]},
            "fails: learning_rat is none of its",
        ),
        ({"batch": 256, "options": {"samples": 60}}, "published: no step is left to time: 60 samples"),
    ],
)
def test_a_published_size_that_is_none_is_refused_before_a_device_takes_it(studies, published, says):
    told = studies["columbia2025"].to_json()
    told["workloads"]["resnet18"]["published"] = published
    with pytest.raises(UserError, match=says):
        checks.check(told)
