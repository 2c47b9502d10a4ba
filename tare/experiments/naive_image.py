"""Two timed builds of the image that a user would write by hand: one `docker build`, one `apptainer build`.

containers/naive/ has the Dockerfile and the definition file. Both begin with the base and the interpreter of Tare's
own image and install the same wheels by pip. Packages are fetched and checked against their hashes before, and a
build has no network. Each image is built once with nothing cached: measured seconds and bytes, without an interval.
A build counts once its image imports the stack.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, project_root
from tare.core.process import Finished, at_death, run
from tare.core.progress import say
from tare.experiments.alone import measuring
from tare.images import build
from tare.images.base import load_recipe
from tare.images.interpreter import Interpreter, with_interpreter
from tare.images.oci import ARCHIVE, assemble
from tare.images.tree import Tree, build_tree, import_code
from tare.images.wheels import Wheel, fetch_fitting, packages_of
from tare.launch.conditions import launcher_environment, shared_memory_bytes
from tare.launch.prepare import ended_with_us, own_folder
from tare.model.environment import Environment, Launch
from tare.model.records.images import Builder, NaiveBuild, NaiveImageRecord
from tare.model.registry import environment
from tare.model.studies.stacks import Stack, load_stack
from tare.runtimes.programs import find_apptainer

DOCKERFILE, DEFINITION = "containers/naive/Dockerfile", "containers/naive/apptainer.def"
BASE, BASE_ARCHIVE = "tare/naive-base", "base.tar"  # as the Dockerfile and the definition name it
LABEL = "tare.naive"  # of the base, which what is built upon it inherits
TAG = "tare/naive:built"
CODE = ("tare/worker", "workloads")
PYTHON = "/usr/bin/python3"
CALL_S, BUILD_S = 600.0, 3600.0
COMPRESSION = "-comp zstd -Xcompression-level 3"  # of every .sif here
# Root in %post is the user in a separate namespace, which has no network: root of a container lacks capabilities.
AS_ROOT = ("unshare", "--user", "--map-root-user", "--net", "--")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What both builds begin with, in one scratch folder."""

    folder: Path  # the scratch folder; BASE_ARCHIVE and `context` are in it
    tag: str  # of the image in BASE_ARCHIVE
    code: str  # Python that the image has to run to its end

    @property
    def context(self) -> Path:
        """What Dockerfile and definition copy, with both of them."""
        return self.folder / "context"


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image that was built; `reference` is what its runtime launches."""

    reference: str
    seconds: float
    bytes: int


def measure_naive_image(name: str, variant: str, out: Path) -> None:
    """Build both images and write their record; what can't be had has its reason. `variant`: `cpu` or `cuda`.
    Raises IntegrityError: something fetched is not what its hash says.
    """
    stack, interpreter = with_interpreter(load_stack(name, variant))
    wheels: Sequence[Wheel] = ()
    with measuring(out):
        try:
            stack, fetched = fetch_fitting(stack)
            wheels = fetched.wheels
            builds = build_both(stack, wheels, interpreter)
        except UnavailableError as error:
            builds = tuple(_unavailable(builder, error) for builder in BUILDERS)
        record = NaiveImageRecord(
            stack=stack.name, variant=stack.variant, packages=packages_of(wheels), builds=builds
        )
        record.write(out)


def build_both(stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter) -> tuple[NaiveBuild, ...]:
    """Build a stack's image by each builder; one that can't says why. Raises UnavailableError: no base or no
    interpreter to build upon.
    """
    recipe, tree = load_recipe(), build_tree(stack, wheels, interpreter)
    base = build.base_for(tree, recipe)
    made = tempfile.TemporaryDirectory(prefix="naive-", dir=cache_dir("naive"))
    with made as name, at_death(name, folder=Path(name)):
        folder = Path(name)
        image = assemble(base.layers, config=recipe["config"], labels={LABEL: "1"}, name=BASE, folder=folder)
        (folder / ARCHIVE).rename(folder / BASE_ARCHIVE)
        parts = Parts(folder=folder, tag=image["tag"], code=import_code(stack))
        write_context(parts.context, tree, wheels)
        return tuple(_tried(builder, parts) for builder in BUILDERS)


def write_context(folder: Path, tree: Tree, wheels: Sequence[Wheel]) -> None:
    """Make a folder with what Dockerfile and definition copy: interpreter with pip, wheels, their lock, code.
    `folder`: not there yet. `tree`: whose interpreter and standard library are taken, without its packages.
    `wheels`: checked against their hashes by whoever fetched them; pip checks them again. Raises UnavailableError:
    this Python has no pip that could be taken along.
    """
    pip = importlib.util.find_spec("pip")
    if pip is None or pip.origin is None:
        raise UnavailableError("this Python has no pip to take along")
    library = next(Path(entry["path"]).parent for entry in tree.entries if entry["path"].endswith("/os.py"))
    packages, python = library / "site-packages", folder / "python"
    for entry in tree.entries:
        path = Path(entry["path"])
        if path.is_relative_to(packages):
            continue
        target = python / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if "link" in entry:
            target.symlink_to(entry["link"])
        else:
            shutil.copyfile(tree.path / path, target)
            target.chmod(entry["mode"])
    unwritten = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(pip.origin).parent, python / packages / "pip", ignore=unwritten)
    (folder / "wheels").mkdir()
    for wheel in wheels:
        shutil.copyfile(wheel.path, folder / "wheels" / wheel.path.name)
    lines = (f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    for name in CODE:
        shutil.copytree(project_root() / name, folder / "code" / name, ignore=unwritten)
    for name in (DOCKERFILE, DEFINITION):
        shutil.copyfile(project_root() / name, folder / Path(name).name)


def _tried(builder: Builder, parts: Parts) -> NaiveBuild:
    adapter = environment(builder)
    say(f"building the naive image with {adapter.title}")
    try:
        probe = adapter.probe()
        if not probe.available:
            raise UnavailableError(probe.reason or f"{adapter.title} is not available", probe.remedy)
        with adapter.session(), BUILDERS[builder](adapter, parts) as built:
            _check(adapter, built.reference, parts.code)
            return NaiveBuild(
                builder=builder,
                status="ok",
                reason=None,
                version=probe.version,
                seconds=round(built.seconds, 3),
                bytes=built.bytes,
            )
    except UnavailableError as error:
        return _unavailable(builder, error)


def _unavailable(builder: Builder, error: UnavailableError) -> NaiveBuild:
    say(f"no naive image by {builder}: {error}")
    return NaiveBuild(
        builder=builder, status="unavailable", reason=str(error), version=None, seconds=None, bytes=None
    )


@contextlib.contextmanager
def _docker(adapter: Environment, parts: Parts) -> Iterator[Built]:
    """Built by the classic builder, which every daemon has; removed afterwards, with the base."""
    variables = {**launcher_environment(adapter), "DOCKER_BUILDKIT": "0"}

    def call(*arguments: str, timeout_s: float = CALL_S) -> Finished:
        return run(["docker", *arguments], timeout_s=timeout_s, env=variables, check=True)

    prune = ["docker", "image", "prune", "--force", "--filter", f"label={LABEL}"]
    ends = [["docker", "image", "rm", "--force", TAG, BASE, parts.tag], prune]
    with at_death(f"{parts.folder} in Docker", commands=ends, env=variables):
        try:
            call("load", "--quiet", "--input", str(parts.folder / BASE_ARCHIVE))
            call("tag", parts.tag, f"{BASE}:latest")
            built = call(*docker_arguments(parts.context), timeout_s=BUILD_S)
            shown = call("image", "inspect", "--format", "{{.Id}} {{.Size}}", TAG).stdout.split()
            yield Built(reference=shown[0], seconds=built.wall_s, bytes=int(shown[1]))
        finally:
            for command in ends:
                run(command, timeout_s=CALL_S, env=variables)


def docker_arguments(context: Path) -> list[str]:
    """Of `docker`: a build without a network, with nothing pulled and nothing cached; pure."""
    return ["build", "--network", "none", "--pull=false", "--force-rm", "--no-cache", "--tag", TAG, str(context)]


@contextlib.contextmanager
def _apptainer(adapter: Environment, parts: Parts) -> Iterator[Built]:
    """Built in a separate user namespace without a network."""
    program, target = find_apptainer(), parts.folder / "naive.sif"
    if program is None:
        raise UnavailableError("neither apptainer nor singularity is installed")
    temporary = dict.fromkeys(("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR"), str(parts.folder))
    argv = apptainer_command(program, target, parts.context, len(os.sched_getaffinity(0)))
    variables = {**launcher_environment(adapter), **temporary}
    built = run(argv, timeout_s=BUILD_S, env=variables, cwd=parts.context)
    if not built.ok:
        raise UnavailableError(explain(built))
    yield Built(reference=str(target), seconds=built.wall_s, bytes=target.stat().st_blocks * 512)


def apptainer_command(program: Path, target: Path, context: Path, processors: int) -> list[str]:
    """The argument list of a build to a .sif, compressed as every .sif here; pure."""
    options = ("--disable-cache", "--mksquashfs-args", f"{COMPRESSION} -processors {processors}")
    return [*AS_ROOT, str(program), "build", *options, str(target), str(context / Path(DEFINITION).name)]


def explain(finished: Finished) -> str:
    """One line on `apptainer build` that failed: what %post said last, where that is what failed; pure."""
    lines = finished.stderr.splitlines()
    if any("FATAL" in line and "%post" in line for line in lines):
        lines = [line for line in lines if "FATAL" not in line]
    return replace(finished, argv=("apptainer build",), stderr="\n".join(lines)).explain()


BUILDERS: Mapping[Builder, Callable[[Environment, Parts], AbstractContextManager[Built]]] = {
    "docker": _docker,
    "apptainer": _apptainer,
}


def _check(adapter: Environment, reference: str, code: str) -> None:
    """The image is of use: it imports the stack, launched as its runtime launches any image here."""
    with own_folder() as (name, folder):
        launch = Launch(
            name=name,
            argv=(PYTHON, "-c", code),
            reference=reference,
            binds=(),
            workdir=Path("/"),
            cpus=tuple(sorted(os.sched_getaffinity(0))),
            shm_bytes=shared_memory_bytes(),
            nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            uid=os.getuid(),
            gid=os.getgid(),
        )
        with ended_with_us(adapter, launch, folder):
            finished = run(adapter.command(launch), timeout_s=CALL_S, env=launcher_environment(adapter))
    if not finished.ok:
        raise UnavailableError(f"the image was built, and does not import the stack: {finished.explain()}")
