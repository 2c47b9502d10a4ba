"""The study: one configuration file, checked whole before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root
from tare.machine.cuda_runtime import stack_cuda_versions
from tare.machine.facts import gpus
from tare.model import arms
from tare.model.registry import BASELINE, CONTROL, HOST, describe_workload, module_names
from tare.model.stacks import BOUND, known_stacks
from tare.model.words import nearest

__all__ = ["BASELINE", "CONTROL", "HOST"]
DEFAULT_STUDY = "nyu2022"

# The keys that each kind of work depends on: a change elsewhere in the study does not rerun it.
DEPENDS_ON = {
    "rounds": ("study", "seed", "stack", "device", "conditions", "confidence", "rounds", "margins"),
    "turns": ("study", "seed", "stack", "device", "conditions", "confidence", "turns", "margins"),
    "causes": ("study", "seed", "stack", "device", "conditions", "confidence", "rounds", "causes", "margins"),
    "sweep": ("study", "seed", "stack", "device", "conditions", "confidence", "rounds", "sweep"),
    "profile": ("study", "seed", "stack", "device", "conditions", "rounds", "profile"),
    "ceilings": ("study", "stack", "device", "conditions", "ceilings"),
    "starts": ("study", "seed", "stack", "device", "conditions", "starts"),
    "prices": ("study", "stack", "stacks", "environments"),
    "tables": ("margins",),
}


OLDEST_GPU = 7.0  # compute capability of Volta, where Nsight Compute starts
# Release notes of CUDA: what each major version still has kernels for.
OLDEST_FOR_CUDA = {"13": 7.5, "12": 5.0, "11": 3.5, "10": 3.0}


def fitting_device(stack: str) -> tuple[str, str]:
    """The device that `device: auto` means for a stack on this machine, `cuda` or `cpu`, and why in a few words."""
    try:
        found = gpus()
    except UnavailableError as error:
        return "cpu", f"no NVIDIA GPU: {error.reason}"
    if not found:
        return "cpu", "no NVIDIA GPU: the driver lists none"
    name, capability = found[0]["name"], float(found[0].get("compute_capability") or 0)
    if capability < OLDEST_GPU:
        return "cpu", f"{name} has compute capability {capability}, and {OLDEST_GPU} (Volta) is the least"
    cuda = None if stack == BOUND else stack_cuda_versions([stack]).get(stack)
    least = OLDEST_FOR_CUDA.get((cuda or "").partition(".")[0], 0.0)
    if capability < least:
        return "cpu", f"{name} has compute capability {capability}, and CUDA {cuda} of {stack} needs {least}"
    return "cuda", name


@cache
def schema() -> dict[str, Any]:
    """JSON schema of a study."""
    return json.loads((project_root() / "config/schemas/study.schema.json").read_text())


@cache
def _validator() -> Callable[[Any], Any]:
    # Not jsonschema: where Jupyter is installed its import takes two seconds, at each start of Snakemake.
    return fastjsonschema.compile(schema(), use_default=False)


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping: of the two, YAML would drop the first without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key {key.value!r} stands there twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(source: str | Path) -> dict[str, Any]:
    """Read a study from a YAML or JSON file, or from inline JSON; a preset is laid over config/config.yaml.

    Raises:
        UserError: unreadable, not YAML, or not a mapping.
    """
    text, where = str(source), "the inline study"
    if not text.lstrip().startswith("{"):
        where = text
        try:
            text = Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot read the study {where}: {error.strerror}") from error
    try:
        config = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise UserError(f"{where}{line} is not YAML: {getattr(error, 'problem', error)}") from error
    if not isinstance(config, dict):
        raise UserError(f"{where} must hold keys and values, not {type(config).__name__}")
    return config


def is_headline(campaign: str, kind: str | None = None) -> bool:
    """Whether a campaign of this name compares environments as the headline does, and is of this kind."""
    parts = campaign.split(".")
    return len(parts) == 2 and parts[0] in ((kind,) if kind else ("rounds", "turns"))


def load_checked(source: str | Path) -> dict[str, Any]:
    """A whole study from a file or inline JSON: a partial preset is completed from config/config.yaml."""
    found = load(source)
    base = load(project_root() / "config/config.yaml")
    complete = set(base) <= set(found)  # a whole study stays as it is: what it dropped does not come back
    return check(found if complete else merge(base, found))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay a preset over a study as Snakemake does: mappings are merged, anything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def check(config: Mapping[str, Any]) -> dict[str, Any]:
    """The study, if it is right.

    Raises:
        UserError: the first thing that is wrong, with where it is and the nearest valid name.
    """
    config = without_dropped(config)
    try:
        _validator()(config)
    except fastjsonschema.JsonSchemaValueException as problem:
        raise UserError(_explain(problem)) from problem
    for name in config["environments"]:
        known = module_names("envs")
        if name not in known:
            raise UserError(f"config: environments: no module envs/{name}.py: {nearest(name, known)}")
    for name, settings in config["workloads"].items():
        known = module_names("workloads")
        if name not in known:
            raise UserError(f"config: workloads: no module workloads/{name}.py: {nearest(name, known)}")
        _check_batches(name, settings)
    stacks = known_stacks()
    if config["stack"] not in stacks:
        raise UserError(
            f"config: stack: no folder containers/stacks/{config['stack']}: {nearest(config['stack'], stacks)}"
        )
    for name in config["stacks"]:
        if name not in stacks:
            raise UserError(f"config: stacks: no folder containers/stacks/{name}: {nearest(name, stacks)}")
        if name == config["stack"]:
            raise UserError(f"config: stacks: {name} is the headline's stack already; name another")
    for kind in ("rounds", "turns"):
        for text in config["arms"][kind]:
            _check_arm(config, kind, text)
    for name in config["arms"]["workloads"]:
        known = module_names("workloads")  # one that a preset dropped is no mistake
        if name not in known:
            raise UserError(f"config: arms: workloads: no module workloads/{name}.py: {nearest(name, known)}")
    if config["conditions"]["page_cache"] == "warm" and config["rounds"]["discarded"] < 1:
        raise UserError(
            "config: rounds: discarded: 0 leaves the page cache as found; say page_cache: as_found, or 1"
        )
    if config["conditions"]["threads"] > config["conditions"]["cpus"]:
        raise UserError("config: conditions: threads is larger than cpus; threads would wait for each other")
    if config["device"] == "auto":
        config = {**config, "device": fitting_device(config["stack"])[0]}
    return config


def _check_arm(config: Mapping[str, Any], kind: str, text: str) -> None:
    arm = arms.parse(text)
    if arm.factor == "allocator" and arm.level == config[kind]["allocator"]:
        raise UserError(f"config: arms: {kind}: {text} is what {kind} already run at; name another level")
    if arm.other_stack:
        raise UserError(f"config: arms: {kind}: {text} is another stack; name it in `stacks` instead")
    if (arm.factor, arm.level) == ("stack", "same") or arm.level == arms.SETTINGS.get(arm.factor, (None,))[0]:
        raise UserError(f"config: arms: {kind}: {text} is the headline; name another level")
    if (arm.factor, arm.level, config["stack"]) == ("stack", "native", BOUND):
        raise UserError(
            f"config: arms: {kind}: {text} needs packages that are locked, and {BOUND} has none; drop it"
        )
    if len(arms.members(arm, config["environments"])) == 1 and not arms.moves(arm, HOST):
        raise UserError(f"config: arms: {kind}: {text} changes none of the study's environments; drop it")


def without_dropped(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the workloads that a preset sets to nothing (`sentiment_rnn:`), which drops them."""
    workloads = config.get("workloads")
    if not isinstance(workloads, Mapping):
        return dict(config)
    return {**config, "workloads": {name: value for name, value in workloads.items() if value is not None}}


def _check_batches(name: str, settings: Mapping[str, Any]) -> None:
    samples = describe_workload(name)["samples"]
    for batch in (settings["batch"], *settings["sweep_batches"]):
        if batch > samples:
            raise UserError(f"config: workloads: {name}: batch {batch} is larger than its {samples} samples")


def _explain(problem: fastjsonschema.JsonSchemaValueException) -> str:
    where = ": ".join(str(part) for part in problem.path[1:]) or "top level"
    value = problem.value
    match problem.rule:
        case "additionalProperties":
            known = problem.definition["properties"]
            unknown = next(key for key in value if key not in known)
            return f"config: {where}: unknown key {unknown!r}: {nearest(str(unknown), known)}"
        case "required":
            missing = [key for key in problem.definition["required"] if key not in value]
            return f"config: {where}: {', '.join(missing)} missing"
        case "enum":
            known = [str(choice) for choice in problem.rule_definition]
            return f"config: {where}: {value!r} is not allowed: {nearest(str(value), known)}"
        case "not":
            return f"config: {where}: {value!r} is the name of a folder of results; choose another"
        case "contains":
            return f"config: {where}: host is missing; it is the reference of every comparison"
    limit = problem.rule_definition
    wanted = {
        "minimum": f"must be at least {limit}",
        "maximum": f"must be at most {limit}",
        "exclusiveMinimum": f"must be larger than {limit}",
        "exclusiveMaximum": f"must be smaller than {limit}",
        "type": f"must be of type {limit}",
        "pattern": "must be lower-case letters, digits and hyphens",
        "minItems": "must not be empty",
        "minProperties": "must not be empty",
        "uniqueItems": "holds something twice",
    }.get(problem.rule, problem.message)
    return f"config: {where}: {value!r} {wanted}"


def settings_of(study: Mapping[str, Any], workload: str) -> dict[str, Any]:
    """Settings of one workload of a study.

    Raises:
        UserError: the study does not name it.
    """
    if workload not in study["workloads"]:
        raise UserError(f"the study names no workload {workload!r}: {nearest(workload, study['workloads'])}")
    return dict(study["workloads"][workload])


def sampling_of(
    settings: Mapping[str, Any], confidence: float, metric: str, arm: arms.Arm | None
) -> dict[str, Any]:
    """How many units a campaign has, for its plan: a fixed number, or a pilot, a precision and a time budget."""
    budget_s = settings["arm_budget_s" if arm else "budget_s"]
    if arm and arm.is_setting:
        budget_s = settings.get("setting_budget_s", budget_s)
    sampling = {"metric": metric, "confidence": confidence, "budget_s": budget_s}
    own = settings.get(_units_key(arm)) if arm else None
    units = own or settings.get("units")
    if units:
        return {**sampling, "units": units}
    return {**sampling, "pilot": settings["pilot"], "half_width": settings["half_width"]}


def _units_key(arm: arms.Arm) -> str:
    if arm.other_stack:
        return "stack_units"
    return "setting_units" if arm.is_setting else "arm_units"


def subset(config: Mapping[str, Any], kind: str, workload: str | None = None) -> str:
    """The part of a study that one kind of work depends on, as one line of JSON for its command line."""
    part = {key: config[key] for key in DEPENDS_ON[kind]}
    if workload is not None:
        settings = dict(config["workloads"][workload])
        if kind != "sweep":
            settings.pop("sweep_batches")
        part["workloads"] = {workload: settings}
    # What a job does not depend on must not come back from the default study: it may not fit this one's stack.
    part.setdefault("stacks", [])
    part.setdefault("arms", {"rounds": [], "turns": []})
    return json.dumps(part, sort_keys=True)


def results_folder(study: str) -> str:
    """Where a study's results lie: `results` for the default study, `results/<study>` for any other."""
    return "results" if study == DEFAULT_STUDY else f"results/{study}"


def campaign_name(kind: str, names: Iterable[str], arm: str | None = None) -> str:
    """Name of a campaign: its kind, its set of environments, its arm: `turns.docker+host.allocator-default`."""
    environments = "+".join(sorted(set(names)))
    return ".".join([kind, environments, *([arms.parse(arm).slug] if arm else [])])


def causes_name(config: Mapping[str, Any]) -> str:
    """Name of the campaign that looks for causes in all environments of a study."""
    return campaign_name("causes", config["environments"])


def campaign_names(config: Mapping[str, Any], workload: str) -> list[str]:
    """Names of the campaigns of rounds and turns that a study holds for one workload, the headline's first."""
    names = [campaign_name(kind, config["environments"]) for kind in ("rounds", "turns")]
    if workload in config["arms"]["workloads"]:
        for kind in ("rounds", "turns"):
            for text in config["arms"][kind]:
                arm = arms.parse(text)
                # A setting is weighed on the host: beside it stands what environments cost in the headline.
                members = [HOST] if arm.is_setting else arms.members(arm, config["environments"])
                names.append(campaign_name(kind, members, text))
    for name in config["stacks"]:
        names += [campaign_name(kind, config["environments"], f"stack={name}") for kind in ("rounds", "turns")]
    return names
