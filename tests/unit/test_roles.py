"""Roles of launches are read as they were written; names are those that older journals have."""

import json
from itertools import product

import pytest

from tare.core.files import project_root
from tare.model.journals.units import AS_FOUND, COLD, WARM
from tare.model.registry import HOST, SHARED, SINGLE, environment_names
from tare.model.roles import CONTROL, LaunchRole, alone_of, read_role, reference_of, started
from tare.model.studies import arms
from tare.model.studies.campaigns import campaigns
from tare.model.studies.loading import load_checked

STUDIES = sorted((project_root() / "config").glob("*.yaml"))
STUDIES = [path for path in STUDIES if path.name != "devices.yaml"]
FLAGS = ("is_control", "is_reference", "is_alone")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_launches_of_a_study_are_read_as_they_were_written(path):
    for one in campaigns(load_checked(path)):
        roles = arms.launch_roles(arms.parse(one.arm) if one.arm else None, one.environments, one.scenario)
        names = [role.name for role in roles]
        assert [read_role(name) for name in names] == roles
        assert len(set(names)) == len(names)
        assert {role.environment for role in roles} == set(one.environments)


@pytest.mark.parametrize("env", environment_names())
def test_every_part_of_a_role_survives_its_name(env):
    assert read_role(env) == LaunchRole(environment=env)
    for flags, cache in product(product((False, True), repeat=len(FLAGS)), (None, COLD, WARM, AS_FOUND)):
        role = LaunchRole(environment=env, page_cache=cache, **dict(zip(FLAGS, flags, strict=True)))
        assert read_role(role.name) == role
        assert role.place == LaunchRole(environment=env, is_control=role.is_control)


def test_names_are_those_of_older_journals():
    control = LaunchRole(environment=HOST, is_control=True)
    assert control.name == CONTROL == "host.control"
    assert read_role("docker.vm.headline") == LaunchRole(environment="docker.vm", is_reference=True)
    assert read_role("host.control.alone") == control.replace(is_alone=True)
    assert read_role("docker/as_found") == LaunchRole(environment="docker", page_cache=AS_FOUND)
    assert read_role("128") == LaunchRole(environment=HOST, batch=128)
    assert (reference_of("vm"), alone_of(CONTROL), started(CONTROL, COLD)) == (
        "vm.headline",
        "host.control.alone",
        "host.control/cold",
    )


def test_only_an_environments_own_launch_is_compared_with_the_host():
    roles = [
        *arms.launch_roles(arms.parse("allocator=steady"), [HOST, "docker"], SINGLE),
        *arms.launch_roles(None, [HOST, "docker"], SHARED),
    ]
    assert {role.name for role in roles if role.is_compared} == {"docker"}


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_plan_holds_roles_as_they_were_written(path):
    for one in campaigns(load_checked(path)):
        roles = arms.launch_roles(arms.parse(one.arm) if one.arm else None, one.environments, one.scenario)
        rows = [role.to_json() for role in roles]
        assert [LaunchRole.model_validate_json(json.dumps(row)) for row in rows] == roles
        assert rows[:2] == [{"environment": HOST}, {"environment": HOST, "is_control": True}]
        assert [read_role(role.name).to_json() for role in roles] == rows


def test_a_launch_is_compared_as_its_role():
    names = {"host": "reference", CONTROL: "control", "docker": "treatment", "host.headline": "headline"}
    assert {name: read_role(name).role for name in names} == names
    assert read_role("host.control.alone").role == "control"
