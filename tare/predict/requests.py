"""What a user asks to be chosen: a request in Tare's own YAML form, or one in the JSON form of MODAK.

A key that is not known, or that contradicts another, is reported and passed over; what is left of the request
is used. What can't be read at all, or names what there is not, is refused in one line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tare.core.errors import UserError
from tare.model.registry import describe_workload, environments, module_names, whole_options
from tare.model.schema import Count as AtLeastOne
from tare.model.schema import Positive, Record, parse, read_yaml
from tare.model.studies import arms
from tare.model.studies.stacks import BOUND, framework_of, known_stacks
from tare.model.words import nearest

ALLOCATOR, COMPILE = "allocator", "compile"
FACTORS: Mapping[str, tuple[str, ...]] = {ALLOCATOR: arms.COMMON[ALLOCATOR], **arms.SETTINGS}
GIB = 1 << 30
MOST_COUNTED = 1_000_000  # processes or cores
MOST_SAID = 200  # characters of what a request holds, in a message
JobWord = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@/+-]+$")]  # it becomes a word of a job script


class Request(Record):
    """A training job, what may be chosen of it, and what has to hold."""

    workload: str  # a module of workloads/
    options: Mapping[str, int | float] = Field(default_factory=dict)  # the others have their defaults
    # samples per step; the first is the reference, whose losses others are held against
    batches: Annotated[tuple[AtLeastOne, ...], Field(min_length=1)]
    epochs: AtLeastOne | None = None  # None for what the workload says
    steps: AtLeastOne | None = None  # in the place of epochs
    # those that may be taken; None for all that the target has
    environments: tuple[str, ...] | None = None
    stacks: tuple[str, ...] | None = None
    threads: tuple[AtLeastOne, ...] | None = None
    # levels that may be taken, by factor; the framework's default is always one
    settings: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    memory_bytes: Positive | None = None  # None for what the target has
    root: bool = True  # whether an environment may need the rights of root, as Docker's daemon does
    # share by which the loss may differ from the reference's; None for no such constraint
    loss_within: Annotated[float, Field(gt=0, lt=1)] | None = None
    loss_steps: Annotated[int, Field(ge=2)] = 8  # after which both losses are compared
    limit_s: Positive | None = None
    command: tuple[str, ...] = ()  # what a job script runs, program and arguments
    # as a scheduler is asked for them
    name: JobWord | None = None
    queue: JobWord | None = None
    account: JobWord | None = None

    def steps_of(self, batch: int) -> int:
        """Steps of the job with a batch: of its epochs, or of as many samples as the reference's steps have."""
        described = describe_workload(self.workload, self.options)
        if self.steps is not None:
            return -(-self.steps * self.batches[0] // batch)
        return (self.epochs or int(described.get("epochs", 1))) * -(-int(described["samples"]) // batch)


@dataclass
class Reading:
    """A request that is being read, and what was passed over of it."""

    where: str
    notes: list[str] = field(default_factory=list)

    def unknown(self, found: Mapping[str, Any], known: Sequence[str], place: str = "") -> None:
        """Report keys that are not known."""
        for key in found:
            if key not in known:
                self.notes.append(f"{place}{key} is not known and was passed over: {nearest(str(key), known)}")


def read_request(path: Path, workload: str | None = None) -> tuple[Request, list[str]]:
    """The request in a file, and what was passed over of it.

    `workload`: which it is, where the file does not say, as MODAK's form can't. Raises UserError: it can't be read,
    or names something that there is not.
    """
    found = read_yaml(path, "the request")
    if not isinstance(found, dict):
        raise UserError(f"{path} must hold keys and values, not {type(found).__name__}")
    return read_given(found, str(path), workload)


def read_given(found: Mapping[str, Any], where: str, workload: str | None = None) -> tuple[Request, list[str]]:
    """A request by its keys; see `read_request`. `where`: begins messages."""
    found = _named(found)
    reading = Reading(where)
    modak = bool({"job", "optimisation", "optimization"} & set(found))
    given = _modak(found, reading) if modak else _own(found, reading)
    if workload is not None:
        if given.get("workload", workload) != workload:
            reading.notes.append(f"workload {given['workload']} was passed over: the command line says {workload}")
        given["workload"] = workload
    return _checked(given, reading), reading.notes


def _named(value: Any) -> Any:
    """The same with texts for all keys, as JSON has them: YAML takes numbers and more."""
    if isinstance(value, dict):
        return {str(key): _named(one) for key, one in value.items()}
    return [_named(one) for one in value] if isinstance(value, list) else value


def _shown(value: object) -> str:
    """A value of a request, in a message."""
    text = repr(value)
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}…"


# --- our own form

# Keys of a request, and the field that each fills.
OWN = (
    *("workload", "options", "batch", "epochs", "steps", "environments", "stacks", "threads", "settings"),
    *("compile", "memory_gib", "root", "loss_within", "loss_steps", "minutes", "command"),
    *("name", "queue", "account"),
)

AS_GIVEN = (
    *("workload", "options", "epochs", "steps", "root", "loss_within", "loss_steps"),
    *("name", "queue", "account"),
)


def _own(found: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    reading.unknown(found, OWN)
    given = {key: found[key] for key in AS_GIVEN if key in found}
    if found.get("command") is not None:
        given["command"] = _words(found["command"], reading)
    for key, name in {
        "environments": "environments",
        "stacks": "stacks",
        "threads": "threads",
        "batch": "batches",
    }.items():
        if found.get(key) is not None:
            given[name] = _listed(found[key])
    settings = found.get("settings") or {}
    if not isinstance(settings, dict):
        raise UserError(f"{reading.where}: settings: {_shown(settings)} must be of type object")
    settings = {str(key): _listed(levels) for key, levels in settings.items()}
    if found.get("compile") is not None:
        if "compile" in settings:
            reading.notes.append("compile and settings.compile are both given: the second counts")
        settings.setdefault("compile", _listed(found["compile"]))
    if settings:
        given["settings"] = settings
    for key, name, unit in (("memory_gib", "memory_bytes", GIB), ("minutes", "limit_s", 60)):
        if found.get(key) is not None:
            given[name] = _number(found[key], f"{reading.where}: {key}") * unit
    return given


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _words(value: Any, reading: Reading) -> list[Any]:
    """A command as its words; a text is split as a shell does. Raises UserError: a quotation mark is not closed."""
    if not isinstance(value, str):
        return _listed(value)
    try:
        return shlex.split(value)
    except ValueError as error:
        raise UserError(f"{reading.where}: command: {_shown(value)}: {str(error).lower()}") from None


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{where}: {_shown(value)} must be of type number")
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{where}: {_shown(value)} is too large") from None


# --- what both come to


def _checked(given: dict[str, Any], reading: Reading) -> Request:
    where = reading.where
    name = given.get("workload")
    if name is None:
        raise UserError(f"{where} names no workload: name one of workloads/ with --workload")
    if name not in (known := module_names("workloads")):
        raise UserError(f"{where}: workload: no {_shown(name)} in workloads/: {nearest(str(name), known)}")
    if given.get("steps") is not None and given.get("epochs") is not None:
        reading.notes.append("epochs and steps are both given: steps count")
        del given["epochs"]
    options = given.get("options") or {}
    if not isinstance(options, dict):
        raise UserError(f"{where}: options: {_shown(options)} must be of type object")
    for key, value in options.items():
        if not key.isidentifier():
            raise UserError(f"{where}: options: {_shown(key)} is no name of an option")
        _number(value, f"{where}: options: {key}")
    whole_options(name, options, f"{where}: options")
    if not given.get("batches"):
        given["batches"] = [describe_workload(name, options)["batch"]]
    given["settings"] = _settings(given.get("settings") or {}, reading)
    given = {key: value for key, value in given.items() if value is not None}
    return parse(Request, given, where, UserError)


def setting_of(text: str) -> tuple[str, str]:
    """Factor and level of `factor=level`. Raises UserError: no such setting, the default, or a compiler."""
    factor, _, level = text.partition("=")
    if factor == COMPILE:
        raise UserError(
            f"--settings {text}: a cell times steps without a compiler's work: measure it with "
            "`tare optimise --search`, which compares whole jobs"
        )
    if level in FACTORS.get(factor, ())[1:]:
        return factor, level
    known = [f"{name}={one}" for name, levels in FACTORS.items() if name != COMPILE for one in levels[1:]]
    raise UserError(f"--settings {text}: no such setting: {nearest(text, known)}")


def _settings(found: Mapping[str, Sequence[Any]], reading: Reading) -> dict[str, list[str]]:
    settings = {}
    for factor, levels in found.items():
        if factor not in FACTORS:
            reading.notes.append(f"settings.{factor} is not known and was passed over: {nearest(factor, FACTORS)}")
            continue
        # YAML takes a bare `off` for false.
        words = [
            {True: "on", False: "off"}.get(level, level) if isinstance(level, bool) else level for level in levels
        ]
        for word in words:
            if word not in (known := FACTORS[factor]):
                near = nearest(str(word), known)
                reading.notes.append(f"settings.{factor}: {word!r} is not known and was passed over: {near}")
        settings[factor] = [word for word in words if word in FACTORS[factor]]
    return {factor: levels for factor, levels in settings.items() if levels}


# --- MODAK's form: keys as its published examples have them

_FRAMEWORKS = {"tensorflow": "tensorflow", "pytorch": "torch", "mxnet": "mxnet", "cntk": "cntk"}
_ANY: Mapping[str, Any] = {}  # any keys are allowed


def _keys(names: str) -> Mapping[str, Any]:
    return dict.fromkeys(names.split(), _ANY)


_SECTION = {"version": _ANY, "xla": _ANY, "glow": _ANY, "ngraph": _ANY, "backend": _ANY}
_FORM: Mapping[str, Any] = {
    "job_options": _keys(
        "job_name account queue wall_time_limit node_count core_count process_count_per_node "
        "core_count_per_process memory_limit minimum_memory_per_processor request_gpus request_specific_nodes "
        "job_array standard_output_file standard_error_file combine_stdout_stderr architecture_constraint "
        "copy_environment copy_environment_variable job_dependency request_event_notification email_address "
        "defer_job node_exclusive"
    ),
    "application": _keys(
        "app_tag container_runtime app_type executable arguments mpi_ranks threads pre-execution post-execution "
        "build"
    ),
    "target": {"name": _ANY, "job_scheduler_type": _ANY},
    "optimisation": {
        **dict.fromkeys(("enable_opt_build", "enable_autotuning", "app_type", "autotuning"), _ANY),
        "opt_build": {"cpu_type": _ANY, "acc_type": _ANY},
        "app_type-ai_training": {
            "config": _keys("ai_framework type distributed_training layers parameters"),
            "data": _keys("location basedata size count etl"),
            **{f"ai_framework-{name}": _SECTION for name in (*_FRAMEWORKS, "keras")},
        },
        "app_type-hpc": _ANY,
        "app_type-ai_inference": _ANY,
    },
}
_ARGUMENTS = {
    "batches": r"(?:train[-_]?)?batch[-_]?size",
    "epochs": r"(?:(?:train|max|num)[-_]?)?epochs",
    "steps": r"(?:(?:train|max|num)[-_]?)?steps",
}
# Keys of the form by section that neither a prediction nor a job script uses.
_NOT_USED: Mapping[str, str] = {
    "job_options": (
        "request_gpus request_specific_nodes job_array standard_output_file standard_error_file "
        "combine_stdout_stderr architecture_constraint copy_environment copy_environment_variable job_dependency "
        "request_event_notification email_address defer_job node_exclusive"
    ),
    "application": "app_type pre-execution post-execution build",
    "target": "name job_scheduler_type",
    "optimisation.app_type-ai_training.config": "type layers parameters",
    "optimisation.app_type-ai_training.data": "location basedata size count etl",
}
_RUNTIMES = {"singularity": "apptainer"}  # by other names than those of environments
_NO_DEVICE = ("", "none", None)
_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": GIB, "kib": 1 << 10, "mib": 1 << 20, "gib": GIB, "": 1}


def _modak(found: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """A request in MODAK's form."""
    if "job" in found:
        reading.unknown(found, ("job",))
        found = _section(found, "job", reading, "")
    job = dict(found)
    if "optimization" in job:
        reading.notes.append("optimization was read as optimisation, as MODAK spells it")
        job.setdefault("optimisation", job.pop("optimization"))
    reading.notes += _unknown_in(job, _FORM, "")
    options, application, wanted = (
        _section(job, name, reading, "") for name in ("job_options", "application", "optimisation")
    )
    given = _of_application(application, reading) | _of_options(options, reading)
    given |= _of_cores(options, application, given, reading)
    if wanted.get("app_type", "ai_training") != "ai_training":
        raise UserError(
            f"{reading.where}: app_type is {_shown(wanted['app_type'])}: steps are predicted of ai_training alone"
        )
    _of_builds(wanted, reading)
    if unused := list(_not_used(job)):
        reading.notes.append(f"{', '.join(unused)}: passed over, because no prediction or job script uses it")
    return given | _of_training(wanted, reading)


def _section(found: Mapping[str, Any], name: str, reading: Reading, place: str) -> dict[str, Any]:
    own = found.get(name)
    if own is None:
        return {}
    if not isinstance(own, dict):
        raise UserError(f"{reading.where}: {place}{name}: {_shown(own)} must be of type object")
    return own


def _unknown_in(found: Mapping[str, Any], form: Mapping[str, Any], place: str) -> Iterator[str]:
    for key, value in found.items():
        if key not in form:
            yield f"{place}{key} is not known and was passed over: {nearest(str(key), form)}"
        elif form[key] and isinstance(value, dict):
            yield from _unknown_in(value, form[key], f"{place}{key}.")


def _of_application(found: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Of the application: the workload where its tag names one, batch and length where its arguments do."""
    given: dict[str, Any] = {}
    if found.get("app_tag") in module_names("workloads"):
        given["workload"] = found["app_tag"]
    arguments = found.get("arguments")
    text = shlex.join(map(str, arguments)) if isinstance(arguments, list) else str(arguments or "")
    for name, pattern in _ARGUMENTS.items():
        if argument := re.search(rf"(?:^|\s)-{{0,2}}{pattern}[=\s]+(\d{{1,18}})(?!\d)", text):
            given[name] = [int(argument[1])] if name == "batches" else int(argument[1])
            reading.notes.append(f"{argument[0].strip().lstrip('-')} was read from application.arguments")
    if {"steps", "epochs"} <= set(given):
        reading.notes.append("application.arguments has steps and epochs: the epochs were passed over")
        del given["epochs"]
    runtime = str(found.get("container_runtime") or "").strip().lower()
    if (env := _RUNTIMES.get(runtime, runtime)) in environments():
        given["environments"] = [env]
    elif runtime:
        near = nearest(runtime, environments())
        reading.notes.append(f"application.container_runtime: {runtime!r} is not known and was passed over: {near}")
    if found.get("executable"):
        given["command"] = _words(f"{found['executable']} {text}", reading)
    return given


def _of_options(found: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Of the job: its name, queue and account, its limits of time and memory, and its cores."""
    names = {"name": "job_name", "queue": "queue", "account": "account"}
    given: dict[str, Any] = {key: found[name] for key, name in names.items() if found.get(name)}
    limit = re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})", str(found.get("wall_time_limit", "")).strip())
    if limit:
        hours, minutes, seconds = (int(part or 0) for part in limit.groups())
        given["limit_s"] = float(hours * 3600 + minutes * 60 + seconds)
    elif found.get("wall_time_limit"):
        reading.notes.append(
            f"job_options.wall_time_limit: {found['wall_time_limit']!r} is no time and was passed over"
        )
    if (size := _size(found, "memory_limit", reading)) is not None:
        given["memory_bytes"] = size
    return given


def _size(found: Mapping[str, Any], key: str, reading: Reading) -> float | None:
    """Bytes of a size that a job's options have."""
    if not found.get(key):
        return None
    size = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmg]i?b)?", str(found[key]).strip().lower())
    if size:
        return float(size[1]) * _UNITS[size[2] or ""]
    reading.notes.append(f"job_options.{key}: {found[key]!r} is no size and was passed over")
    return None


def _whole(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < MOST_COUNTED else None


def _of_cores(
    options: Mapping[str, Any], application: Mapping[str, Any], given: Mapping[str, Any], reading: Reading
) -> dict[str, Any]:
    """Threads of the one process that is predicted, and the memory that its cores have together."""
    several = False
    for place, found, key in (
        ("job_options", options, "node_count"),
        ("job_options", options, "process_count_per_node"),
        ("application", application, "mpi_ranks"),
    ):
        if (count := _whole(found.get(key)) or 1) > 1:
            several = True
            reading.notes.append(f"{place}.{key} is {count}: what is predicted is one process on one node")
    known = {
        "application.threads": application.get("threads"),
        "job_options.core_count_per_process": options.get("core_count_per_process"),
        "job_options.core_count": options.get("core_count"),
    }
    first: tuple[str, int] | None = None
    for name, value in known.items():
        cores = _whole(value)
        if cores is None:
            if value:
                reading.notes.append(f"{name}: {_shown(value)} is no number of cores and was passed over")
        elif several and name == "job_options.core_count":
            reading.notes.append(f"{name} is of several processes together, and was passed over")
        elif first is None:
            first = (name, cores)
        elif first[1] != cores:
            reading.notes.append(f"{name} {cores} contradicts {first[0]} {first[1]}, and was passed over")
    found_here: dict[str, Any] = {} if first is None else {"threads": [first[1]]}
    each = _size(options, "minimum_memory_per_processor", reading)
    if each is not None and "memory_bytes" not in given and first is not None:
        found_here["memory_bytes"] = each * first[1]
    elif each is not None:
        why = "memory_limit counts" if "memory_bytes" in given else "the number of cores is not given"
        reading.notes.append(f"job_options.minimum_memory_per_processor was passed over: {why}")
    return found_here


def _not_used(job: Mapping[str, Any]) -> Iterator[str]:
    """Keys with a value that are known and not used."""
    for place, names in _NOT_USED.items():
        section: Any = job
        for name in place.split("."):
            section = section.get(name) if isinstance(section, dict) else None
        for name in names.split():
            if isinstance(section, dict) and section.get(name):
                yield f"{place}.{name}"
    wanted = job.get("optimisation")
    if isinstance(wanted, dict) and wanted.get("enable_autotuning") and wanted.get("autotuning"):
        yield "optimisation.autotuning"


def _of_builds(wanted: Mapping[str, Any], reading: Reading) -> None:
    """Switches and the sections that they switch on, which may contradict each other."""
    for switch, name in (("enable_opt_build", "opt_build"), ("enable_autotuning", "autotuning")):
        if name in wanted and wanted.get(switch) is False:
            reading.notes.append(f"optimisation.{name} contradicts {switch}: false, and was ignored")
        elif wanted.get(switch) and name not in wanted:
            reading.notes.append(f"optimisation.{switch} has no section {name}, and was passed over")
    builds = _section(wanted, "opt_build", reading, "optimisation.")
    if wanted.get("enable_opt_build") and builds:
        reading.notes.append(
            f"optimisation.opt_build.cpu_type: {builds.get('cpu_type')!r} was passed over: the stack determines it"
        )
    if builds.get("acc_type") not in _NO_DEVICE:
        reading.notes.append(
            f"optimisation.opt_build.acc_type is {builds['acc_type']!r}: the target says on which device a job runs"
        )


def _of_training(wanted: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The framework, its release and its compiler, as stacks and settings."""
    place = "optimisation.app_type-ai_training."
    training = _section(wanted, "app_type-ai_training", reading, "optimisation.")
    for other in ("app_type-hpc", "app_type-ai_inference"):
        if wanted.get(other):
            reading.notes.append(f"optimisation.{other} contradicts app_type ai_training, and was passed over")
    config = _section(training, "config", reading, place)
    if config.get("distributed_training"):
        reading.notes.append("config.distributed_training: what is predicted is one process on one node")
    sections = [key.removeprefix("ai_framework-") for key in training if key.startswith("ai_framework-")]
    named = config.get("ai_framework") or (sections[0] if sections else None)
    if named is None:
        return {}
    for other in sections:
        if other != named:
            reading.notes.append(
                f"ai_framework-{other} contradicts config.ai_framework {named}, and was passed over"
            )
    own = _section(training, f"ai_framework-{named}", reading, place)
    framework = str(own.get("backend") if named == "keras" else named)
    if framework not in _FRAMEWORKS:
        raise UserError(
            f"{reading.where}: ai_framework: no framework {_shown(framework)}: {nearest(framework, _FRAMEWORKS)}"
        )
    given: dict[str, Any] = {
        "stacks": _stacks(_FRAMEWORKS[framework], own.get("version") if named != "keras" else None, reading)
    }
    if own.get("glow"):
        reading.notes.append("glow was passed over: no stack has that compiler")
    chosen = [name for name in ("xla", "ngraph") if own.get(name)]
    if chosen:
        given["settings"] = {"compile": chosen}
    return given


def _stacks(framework: str, version: object, reading: Reading) -> list[str]:
    """Stacks of a framework's release; of all its releases where none is given."""
    own = [name for name in known_stacks() if name != BOUND and framework_of(name) == framework]
    if version is None:
        return own
    wanted = f"{framework}-{version}"
    found = [name for name in own if name == wanted or name.startswith(f"{wanted}-")]
    if not found:
        said = _shown(f"{framework} {version}")[1:-1]
        raise UserError(f"{reading.where}: no stack has {said}: {nearest(wanted, own)}")
    return found
