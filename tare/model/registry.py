"""Finds what there is: one module per environment in envs/, one per workload in workloads/.

A workload's module is described by its constant DESCRIPTION and imports its framework only inside its
functions, so that reading the description needs no framework.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model.environment import Environment
from tare.model.words import nearest
from tare.worker import frameworks

HOST = "host"
CONTROL = "host.control"  # the second host of a unit: what the instrument sees where nothing is
SINGLE = "single"  # the scenario of a job alone on its machine
BASELINE = ".headline"  # ends the name of an arm's launch that runs as the headline does
_ENVIRONMENTS: dict[str, type[Environment]] = {}
WORKLOAD_KEYS = ("title", "dataset", "parameters", "batch", "optimizer", "loss", "samples")


def register(name: str) -> Callable[[type[Environment]], type[Environment]]:
    """Class decorator of an adapter in envs/: makes it known under `name`."""

    def add(adapter: type[Environment]) -> type[Environment]:
        adapter.name = name
        _ENVIRONMENTS[name] = adapter
        return adapter

    return add


def module_names(folder: str) -> list[str]:
    """Names of the modules of a folder, such as envs/ or workloads/, without the private ones."""
    return sorted(path.stem for path in (project_root() / folder).glob("*.py") if not path.stem.startswith("_"))


def scenario_names() -> list[str]:
    """Names of the scenarios: the modules of tare/launch/scenarios/."""
    return module_names("tare/launch/scenarios")


@cache
def environments() -> dict[str, type[Environment]]:
    """Every environment by name.

    Raises:
        UserError: a module of envs/ registers nothing under its own name.
    """
    names = module_names("envs")
    for name in names:
        importlib.import_module(f"envs.{name}")
        if name not in _ENVIRONMENTS:
            raise UserError(f'envs/{name}.py must define one class with @register("{name}")')
    return {name: _ENVIRONMENTS[name] for name in names}


def environment(name: str) -> Environment:
    """The adapter called `name`.

    Raises:
        UserError: there is none; the message has the nearest name.
    """
    known = environments()
    if name not in known:
        raise UserError(f"no environment {name!r} in envs/: {nearest(name, known)}")
    return known[name]()


def workload(name: str) -> ModuleType:
    """The module of the workload called `name`.

    Raises:
        UserError: there is none, or its DESCRIPTION lacks a key.
    """
    known = module_names("workloads")
    if name not in known:
        raise UserError(f"no workload {name!r} in workloads/: {nearest(name, known)}")
    module = importlib.import_module(f"workloads.{name}")
    missing = [key for key in WORKLOAD_KEYS if key not in getattr(module, "DESCRIPTION", {})]
    if missing:
        raise UserError(f"workloads/{name}.py: DESCRIPTION lacks {', '.join(missing)}")
    return module


def check_framework(name: str, framework: str) -> None:
    """See that a workload is written for a framework, before anything is launched.

    Raises:
        UserError: it is not, or there is no such framework; the message says which there are.
    """
    known = frameworks.names()
    if framework not in known:
        raise UserError(f"no framework {framework!r} in tare/worker/frameworks: {nearest(framework, known)}")
    try:
        frameworks.training_class(workload(name), framework)
    except frameworks.Unable as error:
        raise UserError(str(error)) from None


def describe_workload(name: str) -> dict[str, Any]:
    """DESCRIPTION of a workload: title, dataset, parameter count, batch, optimizer, loss, samples."""
    return dict(workload(name).DESCRIPTION)
