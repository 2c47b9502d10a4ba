"""What an image by an Apptainer definition file costs: its %post run by every way to be root that there is here.

The definition has the steps of the Dockerfile beside it, from an equal context: same base, interpreter, wheels and
code. Each way builds once, with nothing cached: there are no intervals. A build counts once its image imports the
stack.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir
from tare.core.places import user_name
from tare.core.process import at_death, run
from tare.core.progress import say
from tare.images import build
from tare.images.definition import ways
from tare.images.interpreter import Interpreter
from tare.images.native import import_code
from tare.images.oci import ARCHIVE, assemble
from tare.images.recipe import load_recipe
from tare.images.tree import build_tree
from tare.images.wheels import Wheel
from tare.launch.conditions import launcher_environment, shared_memory_bytes
from tare.launch.prepare import ended_with_us, own_folder
from tare.machine.security import switch_behind
from tare.model.environment import Environment, Launch
from tare.model.records.naive_image import DefinitionBuild, DefinitionBuilds, Way
from tare.model.registry import environment
from tare.model.studies.stacks import Stack
from tare.runtimes.programs import find_apptainer

APPTAINER = "apptainer"
BUILD_S = 3600.0
CHECK_S = 600.0
PYTHON = "/usr/bin/python3"
NAME = "tare/naive-base"


def build_definitions(stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter) -> DefinitionBuilds:
    """Build the definition by every way; what can't be had says why.

    Args:
        stack: of the image.
        wheels: its packages.
        interpreter: its Python.
    """
    try:
        adapter = environment(APPTAINER)
        probe = adapter.probe()
        if not probe.available:
            raise UnavailableError(probe.reason or "Apptainer is not to be had", probe.remedy)
        with adapter.session(), scratch() as folder:
            definition = _context(folder, stack, wheels, interpreter)
            importing = (PYTHON, "-c", import_code(stack))
            builds = [build_by(way, definition, importing, adapter) for way in ways.WAYS]
    except UnavailableError as error:
        return without(str(error))
    return DefinitionBuilds(builder=f"{adapter.title} {probe.version}", builds=tuple(builds))


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder where images are made, which goes with us."""
    made = tempfile.TemporaryDirectory(prefix="defining-", dir=cache_dir("naive"))
    with made as name, at_death(name, folder=Path(name)):
        yield Path(name)


def without(reason: str) -> DefinitionBuilds:
    """No build by any way, for one reason."""
    return DefinitionBuilds(builder=None, builds=tuple(_unavailable(way, reason) for way in ways.WAYS))


def _unavailable(way: Way, reason: str) -> DefinitionBuild:
    return DefinitionBuild(way=way, status="unavailable", reason=reason, seconds=None, bytes=None, disk_bytes=None)


def _context(folder: Path, stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter) -> Path:
    """What the definition copies, below a folder; the definition."""
    recipe = load_recipe()
    tree = build_tree(stack, wheels, interpreter)
    base = build.base_for(tree, recipe)
    assemble(base.layers, config=recipe["config"], labels={}, name=NAME, folder=folder)
    context = folder / "context"
    context.mkdir()
    return ways.write_context(context, tree, wheels, folder / ARCHIVE)


def build_by(way: Way, definition: Path, program: Sequence[str], adapter: Environment) -> DefinitionBuild:
    """Build a definition one way, and run a program in its image; what fails says why.

    Args:
        way: who is root.
        definition: in the folder that its paths are relative to, beside which images are made.
        program: that the image has to run to its end, with its arguments.
        adapter: Apptainer's.
    """
    say(f"building {definition.name}: {way}")
    try:
        return _built(way, definition, program, adapter)
    except UnavailableError as error:
        say(f"not built: {error}")
        return _unavailable(way, str(error))


def _built(way: Way, definition: Path, program: Sequence[str], adapter: Environment) -> DefinitionBuild:
    apptainer = find_apptainer()
    if apptainer is None:
        raise UnavailableError("neither apptainer nor singularity is installed")
    folder = definition.parent.parent
    with tempfile.TemporaryDirectory(prefix=f"{way}-", dir=folder) as name:
        target = Path(name) / "image.sif"
        finished = run(
            ways.build_command(
                apptainer, way, definition, target, root=os.getuid() == 0, processors=len(os.sched_getaffinity(0))
            ),
            timeout_s=BUILD_S,
            env=ways.variables(launcher_environment(adapter), Path(name)),
            cwd=definition.parent,
        )
        if error := ways.refused(finished, user_name(), ways.subuid()):
            switch = switch_behind(error.reason)
            raise UnavailableError(error.reason, error.remedy or (switch.remedy if switch else None))
        _check(target, program, adapter)
        size = target.stat()
    return DefinitionBuild(
        way=way,
        status="ok",
        reason=None,
        seconds=round(finished.wall_s, 3),
        bytes=size.st_size,
        disk_bytes=size.st_blocks * 512,
    )


def _check(image: Path, program: Sequence[str], adapter: Environment) -> None:
    """The image is of use: it runs a program, as Apptainer launches any image here."""
    with own_folder() as (name, folder):
        launch = Launch(
            name=name,
            argv=tuple(program),
            reference=str(image),
            binds=(),
            workdir=Path("/"),
            cpus=tuple(sorted(os.sched_getaffinity(0))),
            shm_bytes=shared_memory_bytes(),
            nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            uid=os.getuid(),
            gid=os.getgid(),
        )
        with ended_with_us(adapter, launch, folder):
            finished = run(adapter.command(launch), timeout_s=CHECK_S, env=launcher_environment(adapter))
    if not finished.ok:
        raise UnavailableError(f"the image was built, and does not run: {finished.explain()}")
