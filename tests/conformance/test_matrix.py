"""What a run of the tests takes in turn: each row's cell by the seed, all cells over the days."""

import pytest
from asking import has_own_dev, shows_read_only
from matrix import ALL, REQUIRED, SEED, envs_in_turn, in_matrix, in_turn, workloads_of

from tare.model.registry import environment_names, module_names


def test_seeds_that_follow_each_other_take_every_cell():
    cells = ["a", "b", "c"]
    assert sorted(in_turn(0, cells, str(seed))[0] for seed in (7, 8, 9)) == cells
    assert in_turn(0, cells, "7") != in_turn(1, cells, "7")
    assert in_turn(5, cells, ALL) == cells


@pytest.mark.parametrize("seed", ["-1", "monday", ""])
def test_a_seed_that_is_none_is_said_in_one_line(seed):
    with pytest.raises(ValueError, match="give a number, or all for the whole matrix"):
        in_turn(0, ["a"], seed)


def test_the_host_has_every_workload_and_every_environment_has_one():
    assert workloads_of("host") == module_names("workloads")
    assert all(workloads_of(name) for name in environment_names())
    assert "host" in envs_in_turn("test_x.py")
    assert set(in_matrix()) - REQUIRED <= set(envs_in_turn("test_x.py"))
    assert SEED == ALL or len(REQUIRED.intersection(envs_in_turn("test_x.py"))) == 2


def test_an_environment_is_asked_what_its_launches_see():
    """As its page of the documentation promises, whatever its name."""
    found = {name: (shows_read_only(name), has_own_dev(name)) for name in REQUIRED}
    assert found == {
        "host": (False, False),
        "docker": (True, True),
        "apptainer": (True, False),
        "charliecloud": (False, False),
    }
