"""What a run of the tests takes in turn: each row's cell by the seed, all cells over the days of work."""

import datetime
import functools
import itertools
import subprocess

import matrix
import pytest
from asking import has_own_dev, shows_read_only
from beside import STUDIES
from matrix import (
    ALL,
    INSTALLED,
    REQUIRED,
    SEED,
    SHIFT_NAMES,
    days_of_work,
    envs_in_turn,
    in_matrix,
    in_pytorch,
    in_turn,
    workloads_in_turn,
    workloads_of,
)
from shifts import SHIFTS, shift_of

from tare.core.files import project_root
from tare.model.registry import describe_workload, environment_names


def test_seeds_that_follow_each_other_take_every_cell():
    cells = ["a", "b", "c"]
    assert sorted(in_turn(0, cells, str(seed))[0] for seed in (7, 8, 9)) == cells
    assert in_turn(0, cells, "7") != in_turn(1, cells, "7")
    assert in_turn(5, cells, ALL) == cells


def test_each_cell_meets_each_shift():
    """Whatever the number of cells; where one were left out, what it is for were never tried."""
    for count in range(1, 21):
        cells = [*range(count)]
        days = map(str, range(len(SHIFTS) * count))
        met = {(in_turn(0, SHIFT_NAMES, day)[0], in_turn(3, cells, day)[0]) for day in days}
        assert len(met) == len(SHIFTS) * count, count


def test_shifts_name_tests_and_studies_that_there_are():
    for begin in itertools.chain(*SHIFTS.values()):
        path, _, name = begin.partition("::")
        if "/" in begin:
            assert f"def {name}" in (project_root() / "tests" / path).read_text(), begin
        else:
            assert begin in STUDIES, begin


def test_a_test_belongs_to_the_shift_of_its_study_or_its_file():
    assert shift_of("tests/workflow/test_workflow.py::test_x", ["tmp_path", "smoke"]) == "preset"
    assert shift_of("conformance/test_shared.py::test_x[a]", []) == "together"
    assert shift_of("tests/conformance/test_vm.py::test_a_launch_boots_a_kernel", []) is None
    assert shift_of("tests/unit/test_written.py::test_extended", ["tmp_path"]) is None


def test_days_of_work_count_once_each_whichever_they_are(tmp_path):
    """A week of five days takes as many turns as one of seven; a clone that lacks commits has today's."""
    today = str(datetime.date.today().toordinal())
    assert days_of_work(tmp_path) == today
    settings = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main")
    project = tmp_path / "project"
    subprocess.run(["git", *settings, "init", "--quiet", str(project)], check=True)
    assert days_of_work(project) == today
    found = []
    for day in ("2026-01-02", "2026-01-02", "2026-01-05", "2026-01-06"):
        argv = ["git", *settings, "-C", str(project), "commit", "--quiet", "--allow-empty", "-m", "a"]
        subprocess.run([*argv, "--date", f"{day}T23:59:00+0000"], check=True)
        found.append(days_of_work(project))
    assert found == ["1", "1", "2", "3"]
    short = tmp_path / "short"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", project.as_uri(), str(short)], check=True)
    assert days_of_work(short) == today


@pytest.mark.parametrize("seed", ["-1", "monday", ""])
def test_a_seed_that_is_none_is_said_in_one_line(seed):
    with pytest.raises(ValueError, match="give a number, or all for the whole matrix"):
        in_turn(0, ["a"], seed)


def test_the_host_has_every_workload_and_every_environment_has_one():
    assert workloads_of("host") == in_pytorch()
    assert all(workloads_of(name) for name in environment_names())
    assert "host" in envs_in_turn("test_x.py")
    usual = REQUIRED | INSTALLED
    assert set(in_matrix()) - usual <= set(envs_in_turn("test_x.py"))
    assert SEED == ALL or len(usual.intersection(envs_in_turn("test_x.py"))) == 2


def test_over_the_days_each_file_has_every_usual_environment(monkeypatch):
    found = set()
    for day in range(len(REQUIRED | INSTALLED)):
        monkeypatch.setattr(matrix, "in_turn", functools.partial(in_turn, seed=str(day)))
        found |= set(envs_in_turn("test_x.py"))
    assert found >= REQUIRED | INSTALLED


def test_over_the_days_every_workload_takes_turns_and_each_day_one_of_each_data_set(monkeypatch):
    found, sets = set(), {describe_workload(name)["dataset"] for name in in_pytorch()}
    for day in range(len(in_pytorch())):
        monkeypatch.setattr(matrix, "in_turn", functools.partial(in_turn, seed=str(day)))
        taken = workloads_in_turn("host")
        assert sorted(describe_workload(name)["dataset"] for name in taken) == sorted(sets)
        found.update(taken)
    assert found == set(in_pytorch())


def test_an_environment_is_asked_what_its_launches_see():
    """As its page of the documentation promises, whatever its name."""
    found = {name: (shows_read_only(name), has_own_dev(name)) for name in REQUIRED}
    assert found == {
        "host": (False, False),
        "docker": (True, True),
        "apptainer": (True, False),
        "charliecloud": (False, False),
    }
