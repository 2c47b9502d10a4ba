"""Finds what there is: one module per environment in envs/, one per workload in workloads/.

A workload's module is described by its constant DESCRIPTION and imports its framework only inside its
functions, so that reading the description needs no framework. What is wrong with a user's own file is reported in
one line, before anything is launched.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tare.core.errors import UserError
from tare.core.files import project_root
from tare.model import former
from tare.model.environment import Environment
from tare.model.schema import Record, parse
from tare.model.words import nearest
from tare.worker import frameworks

HOST = "host"
SINGLE = "single"  # the scenario of a job alone on its machine
SHARED = "shared"  # the scenario of two jobs on one machine
INSIDE = "_in_"  # in the name of a module of envs/: of what is inside, and of what is around it
DISTRIBUTED = "distributed"  # the scenario of several instances that train together
_ENVIRONMENTS: dict[str, type[Environment]] = {}
TEXTS, COUNTS = ("title", "dataset", "optimizer", "loss"), ("parameters", "samples", "batch")  # of a DESCRIPTION
VERBS = ("load", "step", "end_epoch")  # that every class of training jobs has
WORKLOAD_PAGE = "docs/add-a-workload.md"
ENVIRONMENT_PAGE = "docs/add-an-environment.md"
DESCRIBED = ("title", "description")  # of an environment, in records and on pages
ALMOST = 0.8  # names that are as much alike are taken for a slip of the pen
NO_OPTIONS: Mapping[str, int | float] = {}


class Option(Record):
    """What a study may choose of a workload's job other than the batch: a number, whole where its default is."""

    default: int | float  # its value where the study says nothing
    # `least`, `most`: its bounds
    least: int | float
    most: int | float
    why: str | None = None  # why it can't be less


def register(name: str) -> Callable[[type[Environment]], type[Environment]]:
    """Class decorator of an adapter in envs/: makes it known under `name`."""

    def add(adapter: type[Environment]) -> type[Environment]:
        adapter.name = name
        _ENVIRONMENTS[name] = adapter
        return adapter

    return add


def module_names(folder: str) -> list[str]:
    """Names of the modules of a folder, such as envs/ or workloads/, without the private ones."""
    place = project_root() / folder
    return list(_module_names(place, place.stat().st_mtime_ns if place.is_dir() else 0))


@cache
def _module_names(place: Path, changed_ns: int) -> tuple[str, ...]:
    """Those of a folder as it has been since it was last changed: they are asked for hundreds of times."""
    return tuple(sorted(path.stem for path in place.glob("*.py") if not path.stem.startswith("_")))


def environment_names() -> list[str]:
    """Names of the environments: the modules of envs/, of which `a_in_b.py` is called `a.b`: a inside of b."""
    return [stem.replace(INSIDE, ".") for stem in module_names("envs")]


def environment_module(name: str) -> str:
    """Name of the module of an environment in envs/."""
    return name.replace(".", INSIDE)


def scenario_names() -> list[str]:
    """Names of the scenarios: the modules of tare/launch/scenarios/."""
    return module_names("tare/launch/scenarios")


@cache
def environments() -> dict[str, type[Environment]]:
    """Every environment by name. Raises UserError: a module of envs/ can't be imported, or registers nothing under
    its own name.
    """
    names = environment_names()
    for name in names:
        module = environment_module(name)
        _imported("envs", module)
        if name not in _ENVIRONMENTS:
            raise UserError(f'envs/{module}.py must define one class with @register("{name}")')
    return {name: _ENVIRONMENTS[name] for name in names}


def environment(name: str) -> Environment:
    """The adapter called `name`. Raises UserError: there is none, and the message has the nearest name; or it is
    not what docs/add-an-environment.md says.
    """
    known = environments()
    if name not in known:
        if gone := former.environment(name):
            raise UserError(f"environment {gone}")
        raise UserError(f"no environment {name!r} in envs/: {nearest(name, known)}")
    if wrong := wrong_adapter(known[name]):
        raise UserError(f"envs/{environment_module(name)}.py: {wrong}: {ENVIRONMENT_PAGE} says what it needs")
    return known[name]()


def wrong_adapter(adapter: type[Environment]) -> str | None:
    """What is wrong with the class of an environment, by the names that it defines; None where nothing is."""
    known = {name for name in (*dir(Environment), *Environment.__annotations__) if not name.startswith("_")}
    classes = (one for one in adapter.__mro__ if one.__module__.partition(".")[0] != "tare")
    own = {name for one in classes for name in vars(one) if not name.startswith("_")}
    if missing := sorted(adapter.__abstractmethods__):
        near = difflib.get_close_matches(missing[0], own - known, n=1)
        return f"class {adapter.__name__} has no {missing[0]}" + (f"; is its {near[0]!r} meant?" if near else "")
    for name in sorted(own - known):
        if near := difflib.get_close_matches(name, known - own, n=1, cutoff=ALMOST):
            return f"class {adapter.__name__}: {name!r} is nothing that is asked for; is {near[0]!r} meant?"
    for name in DESCRIBED:
        if not isinstance(getattr(adapter, name, None), str):
            return f"class {adapter.__name__} has no {name}, a text"
    factors: object = adapter.factors
    if not isinstance(factors, Mapping) or not all(
        isinstance(levels, list | tuple) and all(isinstance(word, str) for word in (factor, *levels))
        for factor, levels in factors.items()
    ):
        return f"class {adapter.__name__}: factors is no mapping of names to tuples of levels"
    return None


def workload(name: str) -> ModuleType:
    """The module of the workload called `name`. Raises UserError: there is none, it can't be imported, or is not
    what docs/add-a-workload.md says.
    """
    known = module_names("workloads")
    if name not in known:
        raise UserError(f"no workload {name!r} in workloads/: {nearest(name, known)}")
    module = _imported("workloads", name)
    if wrong := _wrong_description(getattr(module, "DESCRIPTION", {})) or _wrong_definitions(module):
        raise UserError(f"workloads/{name}.py: {wrong}: {WORKLOAD_PAGE} says what it needs")
    return module


def _imported(folder: str, name: str) -> ModuleType:
    """A module of a folder that people add files to."""
    where = f"{folder}/{name}.py"
    try:
        return importlib.import_module(f"{folder}.{name}")
    except SyntaxError as error:
        raise UserError(f"{error.filename or where} line {error.lineno} is not Python: {error.msg}") from error
    except Exception as error:  # whatever someone's own file raises
        said = (str(error).strip().splitlines() or [""])[0]
        raise UserError(f"{where} can't be imported: {type(error).__name__}: {said}") from error


def _wrong_description(found: Mapping[str, Any]) -> str | None:
    """What is wrong with a DESCRIPTION; None where nothing is."""
    if missing := [key for key in (*TEXTS, *COUNTS, "imports") if key not in found]:
        return f"DESCRIPTION lacks {', '.join(missing)}"
    for key in TEXTS:
        if not isinstance(found[key], str) or not found[key]:
            return f"DESCRIPTION: {key}: {found[key]!r} is no text"
    for key in COUNTS:
        if type(found[key]) is not int or found[key] < 1:
            return f"DESCRIPTION: {key}: {found[key]!r} is no whole number from 1 on"
    if found["batch"] > found["samples"]:
        return f"DESCRIPTION: batch {found['batch']} is larger than its {found['samples']} samples"
    if isinstance(found["imports"], str):
        return f"DESCRIPTION: imports: {found['imports']!r} is one name: write ({found['imports']!r},)"
    return None


def _wrong_definitions(module: ModuleType) -> str | None:
    """What is wrong with what a workload defines, its classes of training jobs first; None where nothing is."""
    trainings = getattr(module, "FRAMEWORKS", None) or {frameworks.DEFAULT: getattr(module, "Training", None)}
    for training in trainings.values():
        if training is None:
            return "no class Training"
        if missing := [verb for verb in VERBS if not callable(getattr(training, verb, None))]:
            return f"class {training.__name__} lacks {', '.join(missing)}"
    if "options" in module.DESCRIPTION and not callable(getattr(module, "described", None)):
        return "DESCRIPTION has options, and there is no function described(options)"
    return None


def options_of(name: str) -> dict[str, Option]:
    """The options that a workload declares; none for most. Raises UserError: there is no such workload, or an
    option of its DESCRIPTION is not what an option is.
    """
    declared = workload(name).DESCRIPTION.get("options", {})
    where = f"workloads/{name}.py: DESCRIPTION: options"
    return {key: parse(Option, value, f"{where}: {key}", UserError) for key, value in declared.items()}


def whole_options(name: str, given: Mapping[str, int | float], where: str = "options") -> dict[str, int | float]:
    """All options of a workload: those that are given, the others at their defaults. `name`: of the workload.
    `given`: by name of the option. `where`: begins the message. Raises UserError: the workload has no such option,
    or it can't be that; the message has the nearest name.
    """
    known = options_of(name)
    for key, value in given.items():
        if not known:
            raise UserError(f"{where}: {key}: {name} has no options; drop it")
        if key not in known:
            raise UserError(f"{where}: {name} has no option {key!r}: {nearest(key, known)}")
        option = known[key]
        if isinstance(option.default, int) and not isinstance(value, int):
            raise UserError(f"{where}: {key}: {value!r} must be of type integer")
        if value < option.least:
            why = f": {option.why}" if option.why else ""
            raise UserError(f"{where}: {key}: {value!r} must be at least {option.least!r}{why}")
        if value > option.most:
            raise UserError(f"{where}: {key}: {value!r} must be at most {option.most!r}")
    return {key: type(option.default)(given.get(key, option.default)) for key, option in known.items()}


def check_framework(name: str, framework: str) -> None:
    """See that a workload is written for a framework, before anything is launched. Raises UserError: it is not, or
    there is no such framework; the message says which there are.
    """
    known = frameworks.names()
    if framework not in known:
        raise UserError(f"no framework {framework!r} in tare/worker/frameworks: {nearest(framework, known)}")
    try:
        frameworks.training_class(workload(name), framework)
    except frameworks.Unable as error:
        raise UserError(str(error)) from None


def describe_workload(name: str, options: Mapping[str, int | float] = NO_OPTIONS) -> dict[str, Any]:
    """What a workload says of itself: title, dataset, parameter count, batch, optimizer, loss, samples. `name`: of
    the workload. `options`: those that are given; counts of parameters and samples may follow from them. Raises
    UserError: there is no such workload, or it can't have these options.
    """
    whole = whole_options(name, options)
    module = workload(name)
    return dict(module.described(whole) if whole else module.DESCRIPTION)


def imports_of(name: str) -> tuple[str, ...]:
    """The modules that a workload imports, sorted; of those of which one is enough, `a or b`."""
    modules = describe_workload(name)["imports"]
    return tuple(sorted(" or ".join(one) if isinstance(one, tuple | list) else one for one in modules))
