"""Which tests a run takes: of each row one case or all, of all tests the core or everything."""

import functools
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import core
import matrix
import pytest
from asking import has_own_dev, shows_read_only
from beside import STUDIES
from matrix import (
    ALL,
    INSTALLED,
    REQUIRED,
    VARIABLE,
    envs_in_turn,
    in_matrix,
    in_pytorch,
    in_turn,
    workloads_in_turn,
    workloads_of,
)

from tare.core.files import project_root
from tare.model.registry import describe_workload, environment_names


def test_a_row_has_one_case_and_neighbours_have_others_or_it_has_all():
    cells = ["a", "b", "c"]
    assert [in_turn(row, cells, False) for row in range(4)] == [["a"], ["b"], ["c"], ["a"]]
    assert in_turn(5, cells, True) == cells


def test_what_is_beyond_the_core_names_tests_and_studies_that_there_are():
    assert len(set(core.BEYOND)) == len(core.BEYOND)
    for begin in core.BEYOND:
        path, _, name = begin.partition("::")
        if "/" in begin:
            assert f"def {name}" in (project_root() / "tests" / path).read_text(), begin
        else:
            assert begin in STUDIES, begin
    assert core.STUDIES.keys() <= STUDIES.keys() - set(core.BEYOND)


def test_a_test_is_beyond_the_core_by_its_study_or_its_file():
    assert core.is_beyond("tests/workflow/test_workflow.py::test_x", ["tmp_path", "extended"])
    assert not core.is_beyond("tests/workflow/test_workflow.py::test_x", ["tmp_path", "smoke"])
    assert core.is_beyond("conformance/test_shared.py::test_x[a]", [])
    assert not core.is_beyond("tests/conformance/test_vm.py::test_a_launch_boots_a_kernel", [])
    assert not core.is_beyond("tests/unit/test_written.py::test_extended", ["tmp_path"])


@pytest.fixture(scope="module")
def collected():
    """What the core meets, as it is collected in a process of its own; whatever this run takes."""
    environment = {name: text for name, text in os.environ.items() if name != VARIABLE and "PYTEST" not in name}
    argv = [sys.executable, str(project_root() / "tests/core.py")]
    done = subprocess.run(argv, cwd=project_root(), env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_core_meets_all_that_there_is(collected):
    """Every environment, framework, scenario, stack and design at least once."""
    assert collected["tests"] > 1000
    found = {kind: set(names) for kind, names in collected["met"].items()}
    assert core.lacking(core.there_are(), found) == []


def item(nodeid, parameters=None, fixtures=(), marks=()):
    """A test as pytest has collected it."""
    more = {"callspec": SimpleNamespace(params=parameters)} if parameters else {}
    return SimpleNamespace(
        nodeid=nodeid,
        fixturenames=fixtures,
        get_closest_marker=lambda name: next((mark for mark in marks if mark.name == name), None),
        iter_markers=lambda name: (mark for mark in marks if mark.name == name),
        **more,
    )


def test_what_is_met_is_what_conformance_tests_are_given_marks_say_and_studies_plan():
    skipped, meets = pytest.mark.skip.mark, pytest.mark.meets(scenario="shared").mark
    found = core.met(
        [
            item("tests/conformance/test_a.py::test_a", {"env_name": "docker", "stack": "jax-0.10", "on": "vm"}),
            item("tests/unit/test_a.py::test_a", {"env": "podman", "stack": "cntk-2.7"}),
            item("tests/conformance/test_a.py::test_b", {"env": "apptainer"}, marks=[skipped]),
            item("tests/unit/test_a.py::test_b", marks=[meets]),
        ]
    )
    assert found == {
        **{"environment": {"docker"}, "stack": {"jax-0.10"}, "framework": {"jax"}},
        **{"scenario": {"shared"}, "design": set()},
    }
    found = core.met([item("tests/workflow/test_a.py::test_a", fixtures=["smoke"])])
    assert {"host", "docker"} <= found["environment"] and {"rounds", "causes", "starts"} <= found["design"]


def test_what_is_never_met_is_named():
    there = {kind: {"one", "other"} for kind in core.KINDS}
    found = {**there, "stack": {"one", "a third"}}
    assert core.lacking(there, there) == []
    (line,) = core.lacking(there, found)
    assert line.startswith("the core meets no stack other: ")


def test_the_host_has_every_workload_and_every_environment_has_one():
    assert workloads_of("host") == in_pytorch()
    assert all(workloads_of(name) for name in environment_names())
    assert "host" in envs_in_turn("test_x.py")
    usual = REQUIRED | INSTALLED
    assert set(in_matrix()) - usual <= set(envs_in_turn("test_x.py"))
    assert ALL or len(usual.intersection(envs_in_turn("test_x.py"))) == 2


def test_all_cases_are_every_usual_environment_in_each_file_and_every_workload(monkeypatch):
    monkeypatch.setattr(matrix, "in_turn", functools.partial(in_turn, everything=True))
    assert set(envs_in_turn("test_x.py")) >= REQUIRED | INSTALLED
    assert all(workloads_of(name) == in_pytorch() for name in environment_names())


def test_over_the_files_each_usual_environment_has_its_turn_and_one_case_is_of_each_data_set(monkeypatch):
    monkeypatch.setattr(matrix, "in_turn", functools.partial(in_turn, everything=False))
    files = (path.name for path in (project_root() / "tests/conformance").glob("test_*.py"))
    assert {name for file in files for name in envs_in_turn(file)} >= REQUIRED | INSTALLED
    sets = {describe_workload(name)["dataset"] for name in in_pytorch()}
    taken = workloads_in_turn("host")
    assert sorted(describe_workload(name)["dataset"] for name in taken) == sorted(sets)


def test_an_environment_is_asked_what_its_launches_see():
    """As its page of the documentation promises, whatever its name."""
    found = {name: (shows_read_only(name), has_own_dev(name)) for name in REQUIRED}
    assert found == {
        "host": (False, False),
        "docker": (True, True),
        "apptainer": (True, False),
        "charliecloud": (False, False),
    }
