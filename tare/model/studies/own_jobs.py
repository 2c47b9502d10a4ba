"""Jobs of a user's own in a study: commands, in the user's images.

Of such a job Tare knows what any program shows: when it starts and ends, and its steps if the study asks.
It has no module in workloads/, so nothing that only those have: `NOT_OF_COMMANDS` is the one list of that.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tare.core.errors import UserError
from tare.core.files import canonical_json, sha256_file, sha256_text
from tare.model.choices import RUNTIMES, UNCONTAINED, WHAT, Choice, image_kind, read_bind
from tare.model.environment import Bind
from tare.model.registry import HOST, module_names
from tare.model.schema import Record, parse
from tare.model.words import nearest

OWN_IMAGES = "own"  # what tables call the stack of such a job
# Of a study's environments, those that start a user's own image; `host` takes none, or a virtual environment.
ENVIRONMENTS = tuple(name for name in RUNTIMES if name == HOST or name not in UNCONTAINED)
ON_THE_HOST = tuple(name for name in UNCONTAINED if name != HOST)
LARGEST_HASHED_BYTES = 16 << 20
# Sources of programs in a job's folder, by the ends of their names, and most of them that are looked at.
SOURCES = (".py", ".pyx", ".sh", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".cuh")
MOST_SOURCES = 5000
NOT_SOURCES = ("__pycache__", "node_modules")
ENVIRONMENTS_HAVE = ("pyvenv.cfg", "conda-meta")  # packages, whose files are not the job's own
# What only networks of workloads/ have, and why a command has none.
NOT_OF_COMMANDS: Mapping[str, str] = {
    "job_length": "cost by job length: only Tare's own networks show separate times of the start and of the steps",
    "causes": "causes by kernels, operators and files: Tare looks for them in its own networks only (`tare weigh` "
    "finds the cause of a slower command)",
    "profile": "profile: the profiler runs inside Tare's own networks",
    "roofline": "roofline: FLOPs and bytes are counted from the operators of Tare's own networks",
    "images": "cost of its images: they are your own, and Tare builds none of them",
    "losses": "losses or data sets: those that a command has stay its own",
    "conditions": "conditions seen from inside: each runtime gives your job what it gives by itself",
}


class OwnJob(Record):
    """A command, where it runs, and in which images."""

    # no shell is involved
    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    folder: str  # in which it starts and may write, seen everywhere at the same path
    # by environment what `--env` of `tare weigh` takes behind `=`: an image, and options of its runtime; of `host`,
    # which needs none, venv=FOLDER or conda=PREFIX. A path counts from the folder
    images: Mapping[str, str] = Field(default_factory=dict)
    # `none`, `auto` (detected by optimizers and their like), or a pattern that a line of its output has at each
    # step's end
    steps: str = "none"
    network: bool = False
    binds: tuple[str, ...] = ()  # what else of this machine it sees: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro
    variables: Mapping[str, str] = Field(default_factory=dict)

    @property
    def workdir(self) -> Path:
        """Its folder."""
        return Path(self.folder).expanduser().absolute()

    @property
    def shown(self) -> tuple[Bind, ...]:
        """Its binds. Raises UserError: one is not there, or has another form."""
        return tuple(read_bind(text) for text in self.binds)

    def choice(self, env: str, where: str = "images") -> Choice:
        """One of a study's environments, as `tare weigh` starts it; `where` begins the message. Raises UserError:
        it can't be had without an image, or the image is named wrongly.
        """
        text = self.images.get(env, "").strip()
        if env not in ENVIRONMENTS:
            known = ", ".join(ENVIRONMENTS)
            raise UserError(f"{where}: a command can't be run in {env}: those that can are {known}")
        if env == HOST:
            if not text:
                return Choice(name=HOST, runtime="host")
            runtime, _, text = text.partition("=")
            if runtime not in ON_THE_HOST:
                raise UserError(
                    f"{where}: host: {runtime!r} is no image of a host: leave it out, or say venv=FOLDER"
                )
        elif not text:
            raise UserError(f"{where}: {env} has no image: give it {WHAT[env].replace('=', ': ')}")
        else:
            runtime = env
        try:
            image, *options = shlex.split(text) or [""]
        except ValueError as error:
            raise UserError(f"{where}: {env}: {str(error).lower()}") from error
        found = parse(
            Choice,
            {"name": env, "runtime": runtime, "image": image, "options": options},
            f"{where}: {env}",
            UserError,
        )
        return found.replace(image=str(self.workdir / Path(image).expanduser())) if _is_path(found) else found

    def sources_sha256(self) -> str:
        """Of the sources of programs in its folder, by path and content: the first MOST_SOURCES by path."""
        found = sorted(_sources(self.workdir))[:MOST_SOURCES]
        return sha256_text(
            canonical_json([[str(path.relative_to(self.workdir)), sha256_file(path)] for path in found])
        )

    def named_files(self) -> dict[str, str]:
        """SHA-256 of the files of its folder that its command names, such as `train.py`.

        It depends on these for sure. Large ones are left out, and so is whatever it opens by itself.
        """
        found = {word: self.workdir / word for word in self.command}
        return {
            word: sha256_file(path)
            for word, path in found.items()
            if path.is_file() and path.is_relative_to(self.workdir) and path.stat().st_size <= LARGEST_HASHED_BYTES
        }


def _is_path(choice: Choice) -> bool:
    """Whether its image is a file or a folder of this machine."""
    if choice.runtime == "apptainer":
        return image_kind(choice) != "source"
    return choice.runtime in ("charliecloud", *ON_THE_HOST)


def set_apart(config: Mapping[str, Any], of_networks: Iterable[str]) -> dict[str, Any]:
    """A study's configuration, with the user's own jobs separate from Tare's networks, each checked.

    `config`: in which both are `workloads`. `of_networks`: keys that only networks have.

    Raises UserError: such a job is named, or written, wrongly.
    """
    workloads = config.get("workloads")
    if not isinstance(workloads, Mapping):
        return dict(config)
    own = {name: each for name, each in workloads.items() if isinstance(each, Mapping) and {*each} & _KEYS}
    checked = {name: _checked(str(name), each, set(of_networks)).to_json() for name, each in own.items()}
    if not checked:
        return dict(config)
    others = {name: each for name, each in workloads.items() if name not in own}
    apart = config.get("own_jobs")
    return {**config, "workloads": others, "own_jobs": {**(apart if isinstance(apart, Mapping) else {}), **checked}}


_KEYS = {"command", "folder", "images"}  # by which such a job is known


def _checked(name: str, settings: Mapping[str, Any], of_networks: set[str]) -> OwnJob:
    where = f"config: workloads: {name}"
    if name in module_names("workloads"):
        raise UserError(f"{where}: command: it is the name of one of Tare's own networks; call your job otherwise")
    if wrong := [key for key in settings if key in of_networks]:
        raise UserError(f"{where}: {wrong[0]}: only Tare's own networks have it, and this is a command; drop it")
    if isinstance(words := settings.get("command"), str):
        raise UserError(f"{where}: command: it is a list of words, as in {words.split() or ['python', 'train.py']}")
    found = parse(OwnJob, settings, where, UserError)
    try:
        re.compile(found.steps)
    except re.error as error:
        raise UserError(f"{where}: steps: {found.steps!r} is no regular expression: {error}") from error
    return found


def check(jobs: Mapping[str, OwnJob], environments: Iterable[str], known: Iterable[str]) -> None:
    """See that each job has an image for each environment of its study; `known` are those that there are. Raises
    UserError: one has not, or names an environment that there is not.
    """
    for name, job in jobs.items():
        where = f"config: workloads: {name}: images"
        for env in job.images:
            if env not in known:
                raise UserError(f"{where}: no environment {env!r} in envs/: {nearest(env, known)}")
        for env in environments:
            job.choice(env, where)


def refuse_missing(jobs: Mapping[str, OwnJob], environments: Iterable[str]) -> None:
    """See that what jobs name of this machine is there, before anything is measured. Raises UserError: a folder, a
    bind, or an image that is a file, is not.
    """
    for name, job in jobs.items():
        where = f"workloads: {name}"
        if not job.workdir.is_dir():
            raise UserError(f"{where}: folder: there is no folder {job.workdir}")
        for env in environments:
            found = job.choice(env, f"{where}: images")
            if _is_path(found) and not Path(str(found.image)).exists():
                raise UserError(f"{where}: images: {env}: there is no {found.image}")
        try:
            _ = job.shown
        except UserError as error:
            raise UserError(f"{where}: binds: {error}") from None


def _sources(folder: Path) -> Iterator[Path]:
    """Sources of programs in a folder and below, but for hidden folders and those of packages."""
    for place, folders, files in os.walk(folder):
        if any(name in {*folders, *files} for name in ENVIRONMENTS_HAVE):
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in NOT_SOURCES and not name.startswith(".")]
        for path in (Path(place, name) for name in files if name.endswith(SOURCES)):
            if path.is_file() and path.stat().st_size <= LARGEST_HASHED_BYTES:
                yield path
