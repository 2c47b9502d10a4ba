"""Environments as a user names them: `--env docker=IMAGE`, `--env a='docker=IMAGE --cpus 2'`, or a YAML file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from tare.core.arguments import without_secrets
from tare.core.errors import UserError
from tare.core.streams import plain
from tare.model.environment import Bind
from tare.model.schema import Record, matching, parse, read_yaml
from tare.model.words import nearest

Runtime = Literal["host", "docker", "podman", "apptainer", "charliecloud", "venv", "conda"]
RUNTIMES: tuple[str, ...] = get_args(Runtime)
ALIASES = {"singularity": "apptainer", "ch-run": "charliecloud"}
# Where the file system, and so the interpreter and all libraries, are the machine's own.
UNCONTAINED = ("host", "venv", "conda")
WHAT = {
    "docker": "a tag or a digest: docker=python:3.12-slim",
    "podman": "a tag or a digest: podman=python:3.12-slim",
    "apptainer": "a .sif file, a sandbox folder or a source: apptainer=job.sif, apptainer=docker://python:3.12-slim",
    "charliecloud": "an unpacked image: charliecloud=FOLDER",
    "venv": "a virtual environment: venv=FOLDER",
    "conda": "a conda environment: conda=PREFIX",
}
RUNTIME = re.compile(rf"\s*({'|'.join([*RUNTIMES, *ALIASES])})(?:\s*[=:]\s*|\s+|$)")
LONGEST = 200  # characters of what is quoted in a message
LABEL = r"[a-z][a-z0-9_+-]*"  # a number alone is the name of a batch size (tare.model.roles)
# Options of a runtime that Tare gives itself, which a user's would contradict.
WORKDIR, NO_TERMINAL, AWAITED = (
    "give --workdir to `tare weigh`",
    "a job has no terminal here",
    "Tare waits for the job",
)
OF_DOCKER = {
    "--name": "Tare names its containers",
    "--rm": "Tare removes its containers",
    **dict.fromkeys(("--detach", "-d"), AWAITED),
    **dict.fromkeys(("--tty", "-t", "-it", "-ti"), NO_TERMINAL),
    "--entrypoint": "the command after `--` is what runs",
    **dict.fromkeys(("--workdir", "-w"), WORKDIR),
    "--restart": "a launch runs once",
}
OURS: Mapping[str, Mapping[str, str]] = {
    "docker": OF_DOCKER,
    "podman": OF_DOCKER,
    "apptainer": dict.fromkeys(("--pwd", "--cwd"), WORKDIR),
    "charliecloud": dict.fromkeys(("--cd", "-c"), WORKDIR),
}


class Choice(Record):
    """One environment to be weighed."""

    name: Annotated[
        str, matching(LABEL, "must begin with a small letter; then come small letters, digits and _ + -")
    ]
    runtime: Runtime  # that starts it
    image: str | None = None  # tag, digest, file, folder or prefix; None of the host
    # of the runtime, as its own command line takes them; where files are the machine's own, the words before the
    # command, such as `taskset -c 0`
    options: tuple[str, ...] = ()
    # of the job, on top of those that every environment gets
    variables: Mapping[str, str] = Field(default_factory=dict)
    unset: tuple[str, ...] = ()  # variables that it does not get
    binds: tuple[str, ...] = ()  # what else of this machine its jobs see: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro

    @model_validator(mode="after")
    def _names_its_image(self) -> Choice:
        if self.runtime == "host" and self.image is not None:
            raise ValueError(f"host takes no image, and {self.image!r} was given")
        if self.runtime != "host" and not self.image:
            raise ValueError(f"{self.runtime} needs {WHAT[self.runtime]}")
        for text in self.binds:
            read_bind(text)
        for option in self.options:
            if reason := OURS.get(self.runtime, {}).get(option.partition("=")[0]):
                raise ValueError(f"option {option} of {self.runtime}: {reason}")
        return self

    @property
    def shown(self) -> tuple[Bind, ...]:
        """Its binds."""
        return tuple(read_bind(text) for text in self.binds)

    @property
    def is_contained(self) -> bool:
        """Whether it has its own files."""
        return self.runtime not in UNCONTAINED

    def as_recorded(self) -> dict[str, Any]:
        """As JSON, without secrets: what records hold of it."""
        found = self.to_json()
        if self.options:
            found["options"] = list(map(without_secrets, self.options))
        if self.variables:
            pairs = (without_secrets(f"{name}={value}").partition("=") for name, value in self.variables.items())
            found["variables"] = {name: value for name, _, value in pairs}
        return found

    @property
    def text(self) -> str:
        """As `--env` takes it, but for secrets."""
        value = shlex.join([*([self.image] if self.image else []), *self.options])
        own = self.runtime if self.image is None and not self.options else f"{self.runtime}={value}"
        return without_secrets(own if self.name == self.runtime else f"{self.name}={own}")


class Choices(Record):
    """The file of `--envs`."""

    environments: tuple[Choice, ...]


def read_choice(text: str) -> Choice:
    """An environment from the value of `--env`: RUNTIME=IMAGE OPTIONS, or NAME=RUNTIME=IMAGE OPTIONS. Raises
    UserError: it names no runtime, or lacks its image.
    """
    shown = f"--env {plain(text)[:LONGEST]}"
    found = RUNTIME.match(text)
    name, _, rest = (ALIASES.get(found[1], found[1]), "", text) if found else text.partition("=")
    found = found or RUNTIME.match(rest)
    if found is None:
        word = name if get_close_matches(name, RUNTIMES) or not rest else re.split(r"[=:\s]", rest, maxsplit=1)[0]
        raise UserError(f"{shown}: {word[:LONGEST]!r} is no runtime: {nearest(word, [*RUNTIMES, *ALIASES])}")
    runtime = ALIASES.get(found[1], found[1])
    try:
        words = shlex.split(rest[found.end() :])
    except ValueError as error:
        raise UserError(f"{shown}: {str(error).lower()}") from error
    image = words.pop(0) if words and runtime != "host" else None
    if image is not None and words:
        image = image.removesuffix(":")
    given = {"name": name.strip(), "runtime": runtime, "image": image, "options": words}
    return parse(Choice, given, shown, UserError)


def read_choices(texts: Sequence[str], file: Path | None) -> tuple[Choice, ...]:
    """The environments of a command line, in order, those of its file after the others; the first is the reference.
    Raises UserError: fewer than one are named, two have one name, or one is wrong.
    """
    found = [read_choice(text) for text in texts]
    if file is not None:
        found += parse(Choices, read_yaml(file, "the environments"), str(file), UserError).environments
    if not found:
        raise UserError("name what is compared: --env host --env docker=IMAGE; the first is the reference")
    for one in found:
        if sum(one.name == other.name for other in found) > 1:
            raise UserError(f"two environments are called {one.name}: name one, such as --env before='{one.text}'")
    return tuple(found)


def read_bind(text: str) -> Bind:
    """What a job sees of this machine: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro. Raises UserError: it has another
    form, or its source is not there.
    """
    parts = text.split(":")
    if len(parts) > 3 or not all(parts) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise UserError(f"bind {text!r}: write it as SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro")
    source = Path(parts[0]).expanduser().absolute()
    target = Path(parts[1]) if len(parts) > 1 else source
    if not source.exists():
        raise UserError(f"bind {text!r}: there is no {source}")
    if not target.is_absolute():
        raise UserError(f"bind {text!r}: its target {target} has to be an absolute path")
    return Bind(source=source, target=target, writable=parts[2:] != ["ro"])


def option_values(options: Sequence[str], *names: str) -> list[str]:
    """The values that a runtime's options give to one of these names: `--cpus 2` or `--cpus=2`."""
    return _apart(options, names)[0]


def without_options(options: Sequence[str], *names: str) -> tuple[str, ...]:
    """A runtime's options without these, each of which takes a value."""
    return tuple(_apart(options, names)[1])


def _apart(options: Sequence[str], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Values of the options of these names, and the other options."""
    values, others, left = [], [], iter(options)
    for option in left:
        name, is_joined, value = option.partition("=")
        if name in names:
            values.append(value if is_joined else next(left, ""))
        else:
            others.append(option)
    return values, others


def image_kind(choice: Choice) -> str:
    """What an Apptainer image is: `source` to be pulled, `sandbox` or `sif`."""
    text = choice.image or ""
    if re.match(r"^[a-z][a-z0-9+-]*://", text):
        return "source"
    return "sandbox" if Path(text).is_dir() else "sif"
