"""What is made ahead of a study: tree and image of its stack, the wheels of the others, and no word of failures."""

import json

import pytest

from tare.core.errors import UnavailableError
from tare.images import ahead


@pytest.fixture
def made(monkeypatch):
    """What was asked for; names in `lacking` can't be had."""
    found, lacking = set(), set()

    def make(what, name, variant):
        found.add((what, name, variant))
        if name in lacking:
            raise UnavailableError(f"no network for {name}")

    monkeypatch.setattr(ahead, "fitting_device", lambda stack: ("cpu", "no NVIDIA GPU"))
    monkeypatch.setattr(
        ahead, "build", lambda name, variant, assembled: make("image" if assembled else "tree", name, variant)
    )
    monkeypatch.setattr(ahead, "with_interpreter", lambda stack: (stack, None))
    monkeypatch.setattr(ahead, "fetch_fitting", lambda stack: make("wheels", stack.name, stack.variant))
    return found, lacking


def test_the_image_of_the_stack_and_the_wheels_of_the_others(made):
    ahead.make_ahead("config/full.yaml")
    assert made[0] == {("image", "torch-2.13", "cpu"), ("wheels", "paper-2022", "cpu")}


def test_the_host_alone_needs_no_image(made):
    ahead.make_ahead(json.dumps({"environments": ["host"], "stacks": []}))
    assert made[0] == {("tree", "torch-2.13", "cpu")}


def test_what_can_not_be_had_is_left_to_the_workflow(made):
    made[1].update(("torch-2.13", "paper-2022"))
    ahead.make_ahead("config/full.yaml")
    assert len(made[0]) == 2


def test_what_is_installed_already_needs_nothing(made):
    ahead.make_ahead(json.dumps({"stack": "bound", "stacks": []}))
    assert made[0] == set()
