"""Which cells of a matrix of tests a run takes: one of each row, or all of them (`make test ALL=1`)."""

import contextlib
import os
from collections.abc import Sequence
from typing import TypeVar

from tare.core.errors import UserError
from tare.model.registry import (
    HOST,
    check_framework,
    describe_workload,
    environment_names,
    module_names,
    options_of,
)
from tare.model.studies.sections import WorkloadSettings
from tare.worker.frameworks import DEFAULT

Cell = TypeVar("Cell")
VARIABLE = "TARE_TEST_ALL"
ALL = os.environ.get(VARIABLE, "") not in ("", "0")
# Of the random moments at which tests kill: the same each time, unless others are asked for.
SEED = os.environ.get("TARE_TEST_SEED") or "1"
# Of launches whose end nobody looks at: to end in order takes a second.
HURRIED = {"ends_at_once": True}

# What a test machine is meant to have: a missing one fails, and is not skipped. Others are tested where they work.
REQUIRED = {"host", "docker", "apptainer", "charliecloud"}
# Beside those, what `make setup-test` installs where it may.
INSTALLED = {"podman"}
# It takes too long to start for the matrix, and has a test file of its own: tests/conformance/test_vm.py.
APART = "vm"


def tried():
    """Every environment that there is, but for virtual machines and what is inside of them."""
    return [name for name in environment_names() if name.rpartition(".")[2] != APART]


def in_matrix():
    """Of those that are tried, all that are inside of nothing else."""
    return [name for name in tried() if "." not in name]


def in_turn(row: int, cells: Sequence[Cell], everything: bool = ALL) -> list[Cell]:
    """The cell of a row, or all cells; neighbouring rows have neighbouring cells."""
    return list(cells) if everything else [cells[row % len(cells)]]


def envs_in_turn(file):
    """The host, one by test file of what a test machine has or installs, and every environment beside."""
    names, row = in_matrix(), sum(file.encode())
    own = [name for name in names if name in REQUIRED | INSTALLED and name != HOST]
    return [HOST, *in_turn(row, own), *(name for name in names if name not in (HOST, *own))]


def in_pytorch():
    """Workloads that are written for PyTorch, which the stack of the tests has."""
    found = []
    for name in module_names("workloads"):
        with contextlib.suppress(UserError):
            check_framework(name, DEFAULT)
            found.append(name)
    return found


def workloads_of(name):
    """Workloads that a run of the tests launches in an environment: all on the host, elsewhere one."""
    workloads = in_pytorch()
    return workloads if name == HOST else in_turn(environment_names().index(name), workloads)


def workloads_in_turn(name):
    """Of the workloads of an environment one of each data set's."""
    workloads = workloads_of(name)
    sets = sorted({describe_workload(workload)["dataset"] for workload in workloads})
    rows = [[one for one in workloads if describe_workload(one)["dataset"] == dataset] for dataset in sets]
    return [workload for number, row in enumerate(rows) for workload in in_turn(number, row)]


def small(study, workload):
    """A study with one workload for a launch of a test: as the workload has it, or small where it has options."""
    described, known = describe_workload(workload), options_of(workload)
    batch, options = described["batch"], {}
    if known:
        batch = max(2, described.get("least_batch", 1))
        least = {name: known[name].least for name in ("image_px", "enlarged") if name in known}
        own = {"samples": 2 * batch, "epochs": 1, "warmup_steps": 1, "loader_workers": 1}
        options = {**least, **{name: value for name, value in own.items() if name in known}}
    return study.replace(workloads={workload: WorkloadSettings(batch=batch, options=options)})


def described(study, workload):
    """What a workload says of itself in a study, with the batch that it has there."""
    job = study.workloads[workload]
    return {**describe_workload(workload, job.options), "batch": job.batch}
