"""Where what studies share is kept: a path means the same for all of them, and each source or build has its own."""

import itertools
from pathlib import Path

import pytest
from image_builders import data_record

from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.experiments import co_runner
from tare.launch import sites
from tare.machine import fitting
from tare.model.schema import parse
from tare.model.studies import loading, study
from tare.model.studies.sections import DataChoices
from tare.report import evidence

CHOICES = [
    {},
    {"tiny_imagenet": "stamps"},
    {"tiny_imagenet": "zip"},
    {"tiny_imagenet": "zip", "broken_images": "skip"},
    {"broken_images": "skip"},
    {"tiny_imagenet": "/a/folder"},
    {"tiny_imagenet": "/another/folder"},
    {"tiny_imagenet": "/a/folder", "broken_images": "skip"},
]


@pytest.fixture(scope="module")
def stamps():
    return loading.load_checked(project_root() / "config/reference.yaml")


def test_each_source_of_a_data_set_has_its_own_record():
    chosen = [DataChoices(sentiment="auto", **one) for one in CHOICES]
    names = [one.record_of("tiny_imagenet") for one in chosen]
    assert len(set(names)) == len(names) and names[0] == "tiny_imagenet"
    for one, name in zip(chosen, names, strict=True):
        assert one.choice_named("tiny_imagenet", name) == (one.tiny_imagenet, one.broken_images)
        assert one.record_of("mnist") == "mnist" and one.of("mnist") == ("auto", "stop")
    for (one, _), (_, name) in itertools.permutations(zip(chosen[:5], names[:5], strict=True), 2):
        owner = chosen[names.index(name)]
        assert one.choice_named("tiny_imagenet", name) == owner.of("tiny_imagenet")  # whoever asks for it


def test_a_command_by_hand_reads_the_record_of_its_study(stamps):
    assert sites.data_record("resnet18", stamps).name == "tiny_imagenet@stamps.json"
    part = parse(study.RoundsPart, study.reduced(stamps.to_json(), "rounds"), "a part")
    assert sites.data_record("resnet18", part).name == "tiny_imagenet.json"


def test_the_report_reads_the_record_of_its_study(stamps, tmp_path):
    for name, rows in (("tiny_imagenet", 1), ("tiny_imagenet@stamps", 2)):
        data_record(name="tiny_imagenet", rows=rows).write(tmp_path / f"{name}.json")
    assert evidence._data_of(stamps, tmp_path)["tiny_imagenet"].rows == 2


def test_a_co_runner_has_the_data_that_it_is_given(monkeypatch):
    asked = []
    monkeypatch.setattr(co_runner, "data_of", lambda workload, record: asked.append(record) or (Path("there"), {}))
    chosen = loading.load_checked(project_root() / "config/nthu2018.yaml")
    assert chosen.shared is not None
    shared = chosen.replace(
        shared=chosen.shared.replace(workload="resnet18"), data=DataChoices(sentiment="auto", tiny_imagenet="zip")
    )
    co_runner.with_its_data({}, shared, Path("given.json"))
    co_runner.with_its_data({}, shared, None)
    assert asked == [Path("given.json"), Path("results/data/tiny_imagenet@zip.json")]


def images(device, **changes):
    chosen = loading.load_checked(project_root() / "config/config.yaml").replace(device=device, **changes)
    return fitting.images_folder(chosen, chosen.device)


def test_images_that_fit_the_machine_are_shared_and_others_have_a_folder(monkeypatch):
    def none():
        raise UnavailableError("no driver")

    monkeypatch.setattr(fitting, "gpus", none)
    assert (images("auto"), images("cpu"), images("cuda")) == (*["results/images"] * 2, "results/images/@cuda")
    monkeypatch.setattr(fitting, "gpus", lambda: ({"name": "a GPU", "compute_capability": "8.0"},))
    assert (images("auto"), images("cpu")) == ("results/images", "results/images/@cpu")
    assert images("cuda", stacks=()) == "results/images"


def test_a_study_that_leaves_the_device_open_asks_no_driver(monkeypatch):
    monkeypatch.setattr(fitting, "gpus", lambda: pytest.fail("it was asked"))
    assert images("auto") == "results/images"
