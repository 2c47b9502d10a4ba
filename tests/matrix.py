"""Which cells of a matrix of tests a run takes: one of each row, in turn by a seed.

The seed is the day, so that days that follow each other try all of them. TARE_TEST_SEED sets it, to repeat a run;
`all` takes every cell.
"""

import datetime
import os
from collections.abc import Sequence
from typing import TypeVar

from tare.model.registry import HOST, describe_workload, environment_names, module_names, options_of

Cell = TypeVar("Cell")
VARIABLE = "TARE_TEST_SEED"
ALL = "all"
SEED = os.environ.get(VARIABLE) or str(datetime.date.today().toordinal())


# What a test machine is meant to have: a missing one fails, and is not skipped. Others are tested where they work.
REQUIRED = {"host", "docker", "apptainer", "charliecloud"}
# Tried in every run (test_probe.py), and of which one in turn has the matrix; `make setup-test` installs them.
WALLS = ("bubblewrap", "nspawn", "podman")
# What takes too long to start for the matrix has a test file of its own: tests/conformance/test_vm.py.
# What is inside of something else is reached over its streams, and only tried.
APART = ("vm", "microvm")
# Reached over its streams, as what is inside of another: only tried.
STREAMS = "gvisor"


def tried():
    """Every environment that there is, but for virtual machines and what is inside of them."""
    return [name for name in environment_names() if name.rpartition(".")[2] not in APART]


def in_matrix():
    """Of those that are tried, all that are inside of nothing else, but for the walls whose turn it is not."""
    others = set(WALLS) - set(in_turn(0, WALLS))
    return [name for name in tried() if "." not in name and name not in (*others, STREAMS)]


def in_turn(row: int, cells: Sequence[Cell], seed: str = SEED) -> list[Cell]:
    """The cell of a row whose turn it is; neighbouring rows have neighbouring cells.

    Raises:
        ValueError: the seed is neither a number nor `all`.
    """
    if seed == ALL:
        return list(cells)
    if not seed.isdecimal():
        raise ValueError(f"{VARIABLE}={seed}: give a number, or {ALL} for the whole matrix")
    return [cells[(int(seed) + row) % len(cells)]]


def envs_in_turn(file):
    """The host, by test file one in turn of what every test machine has, and every environment beside those."""
    names, row = in_matrix(), sum(file.encode())
    return [HOST, *in_turn(row, sorted(REQUIRED - {HOST})), *(name for name in names if name not in REQUIRED)]


def workloads_of(name):
    """Workloads that a run of the tests launches in an environment: all on the host, elsewhere one in turn."""
    workloads = module_names("workloads")
    return workloads if name == HOST else in_turn(environment_names().index(name), workloads)


def small(study, workload):
    """A study with one workload for a launch of a test: as the workload has it, or small where it has options."""
    described, known = describe_workload(workload), options_of(workload)
    job = {"batch": described["batch"]}
    if known:
        job["batch"] = max(2, described.get("least_batch", 1))
        least = {name: known[name].least for name in ("image_px",) if name in known}
        own = {"samples": 3 * job["batch"], "epochs": 1, "warmup_steps": 1, "loader_workers": 1}
        job["options"] = {**least, **{name: value for name, value in own.items() if name in known}}
    return {**study, "workloads": {workload: job}}


def described(study, workload):
    """What a workload says of itself in a study, with the batch that it has there."""
    job = study["workloads"][workload]
    return {**describe_workload(workload, job.get("options", {})), "batch": job["batch"]}
