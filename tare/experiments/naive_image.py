"""What an image of a naive Dockerfile costs beside ours: both made here, one after the other, from the same parts.

Both take the same base, interpreter and wheels, which lie on this machine already: neither downloads anything. Ours
is made as always, but in an empty folder, so that nothing comes from the cache. The other is built by the Docker
daemon, without its layer cache, then again with it, then with another line of code. Each is made once: there are no
intervals. What a push and a pull move is counted, not moved: the layers, compressed as a registry keeps them.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.core.errors import TareError, UnavailableError
from tare.core.files import cache_dir
from tare.core.manifest import manifest_digest, read_manifest
from tare.core.process import Finished, at_death, run
from tare.core.progress import say
from tare.experiments.alone import measuring
from tare.experiments.definition_image import build_definitions, without
from tare.images import build, naive
from tare.images.base import Base
from tare.images.interpreter import Interpreter, with_interpreter
from tare.images.native import import_code, pip_version
from tare.images.oci import ARCHIVE, FolderLayer, TarLayer, assemble, write_layer
from tare.images.recipe import load_recipe
from tare.images.storage import storage_of
from tare.images.tree import Tree, build_tree, fill_tree
from tare.images.wheels import Wheel, fetch_fitting, packages_of
from tare.launch.conditions import launcher_environment
from tare.model.environment import Environment, OciImage, Prepared
from tare.model.records.images import ImageRecord
from tare.model.records.naive_image import CountedLayer, FormCost, MadeImage, NaiveImageRecord
from tare.model.registry import environment
from tare.model.studies.stacks import Stack, load_stack
from tare.runtimes import daemon_images
from tare.runtimes.daemon import endpoint_variables

DOCKER = "docker"
CALL_S = 120.0
BUILD_S = 3600.0
TAG, CHANGED = "tare/naive:built", "tare/naive:changed"
CHECKER = "tare-naive-check"  # the container that imports the stack


def measure_naive_image(name: str, variant: str, forms: Sequence[ImageRecord], out: Path) -> None:
    """Make both images, build the definition file, and write their record; what can't be had has its reason.

    Args:
        name: of the stack.
        variant: `cpu` or `cuda`.
        forms: image records of the environments; those whose form lies in a file or a folder are compared. Where
            there are some and Docker's is not among them, the definition file is built alone.
        out: the record.

    Raises:
        IntegrityError: something fetched is not what its hash says.
    """
    stack, interpreter = with_interpreter(load_stack(name, variant))
    with measuring(out):
        try:
            stack, fetched = fetch_fitting(stack)
        except UnavailableError as error:
            record, definition = _none(stack, error), without(str(error))
        else:
            record = _compared(stack, fetched.wheels, interpreter, forms)
            definition = build_definitions(stack, fetched.wheels, interpreter)
        record.replace(definition=definition).write(out)


def _compared(
    stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter, forms: Sequence[ImageRecord]
) -> NaiveImageRecord:
    try:
        if forms and DOCKER not in {form.env for form in forms}:
            raise UnavailableError(f"{DOCKER}, which builds it, is none of the study's environments")
        return compare(stack, wheels, interpreter, forms)
    except UnavailableError as error:
        return _none(stack, error)


def _none(stack: Stack, error: UnavailableError) -> NaiveImageRecord:
    say(f"no naive image of {stack.name}: {error}")
    return NaiveImageRecord(stack=stack.name, variant=stack.variant, status="unavailable", reason=str(error))


def compare(
    stack: Stack, wheels: Sequence[Wheel], interpreter: Interpreter, forms: Sequence[ImageRecord]
) -> NaiveImageRecord:
    """Make both images and count what they cost.

    Args:
        stack: of both.
        wheels: its packages.
        interpreter: of both.
        forms: as `measure_naive_image`.

    Raises:
        UnavailableError: no daemon, a build that fails, an image that does not import the stack.
    """
    recipe, docker = load_recipe(), environment(DOCKER)
    tree = build_tree(stack, wheels, interpreter)
    base = build.base_for(tree, recipe)
    with docker.session(), tempfile.TemporaryDirectory(prefix="making-", dir=cache_dir("naive")) as name:
        client = Client(docker)
        images = ["docker", "image", "rm", "--force", TAG, CHANGED, naive.BASE]
        ends = [["docker", "rm", "--force", CHECKER], images, client.pruning()]
        with at_death(name, commands=ends, env=client.variables, folder=Path(name)):
            try:
                return _Comparison(stack, wheels, base, recipe, forms, client, Path(name)).run(interpreter, tree)
            finally:
                client.remove(TAG, CHANGED, naive.BASE)


class Client:
    """The Docker client, with the classic builder, which every daemon has and which needs no further program."""

    def __init__(self, docker: Environment) -> None:
        self.docker = docker
        self.variables = {**launcher_environment(docker), "DOCKER_BUILDKIT": "0"}

    def call(self, *arguments: str, timeout_s: float = CALL_S, check: bool = True) -> Finished:
        """`docker ARGUMENTS`."""
        return run(["docker", *arguments], timeout_s=timeout_s, env=self.variables, check=check)

    def pruning(self) -> list[str]:
        """What removes the images without a name that our builds left; pure."""
        return ["docker", "image", "prune", "--force", "--filter", f"label={naive.LABEL}"]

    def remove(self, *tags: str) -> None:
        """Remove images, and what was made on the way to them."""
        self.call("image", "rm", "--force", *tags, check=False)
        run(self.pruning(), timeout_s=CALL_S, env=self.variables)


class _Comparison:
    """Both images, in one scratch folder."""

    def __init__(
        self,
        stack: Stack,
        wheels: Sequence[Wheel],
        base: Base,
        recipe: dict[str, Any],
        forms: Sequence[ImageRecord],
        client: Client,
        folder: Path,
    ) -> None:
        self.stack, self.wheels, self.base, self.recipe = stack, wheels, base, recipe
        self.forms, self.client, self.folder = forms, client, folder

    def run(self, interpreter: Interpreter, tree: Tree) -> NaiveImageRecord:
        """Ours first, then the other; `tree` is the one of the cache, whose digest ours must have again."""
        ours, our_layers, same = self._ours(interpreter, tree)
        other, layers, steps = self._naive(tree)
        counted = _counted([*our_layers, *layers])  # once nothing is timed any more: it takes both processors
        version = self.client.call("version", "--format", "{{.Server.Version}}").stdout.strip()
        return NaiveImageRecord(
            stack=self.stack.name,
            variant=self.stack.variant,
            status="ok",
            reason=None,
            packages=packages_of(self.wheels),
            builder=f"docker build, classic builder, Docker {version}",
            installer=pip_version(),
            compression=naive.COMPRESSION,
            steps=steps,
            same_digest=same,
            naive=other.replace(layers=counted[len(our_layers) :]),
            ours=ours.replace(layers=counted[: len(our_layers)]),
        )

    def _ours(self, interpreter: Interpreter, cached: Tree) -> tuple[MadeImage, Sequence[naive.SavedLayer], bool]:
        """Tree and image, made again in empty folders, and loaded into the daemon that does not have it then."""
        root, archive = self.folder / "tree", self._new("ours")
        root.mkdir()
        say(f"making the image of {self.stack.name} once more")
        timer = _Timer()
        fill_tree(root, self.stack, self.wheels, interpreter)
        entries = read_manifest(root)
        timer.stage("tree")
        made = build.assemble_tree(self.stack, root, entries, self.base, self.recipe, archive)
        timer.stage("assemble")
        image = self._image(archive, made)
        layers = naive.saved_layers(image.archive)
        with self._loaded(root, entries) as prepared:
            seconds = {**timer.seconds, **prepared.seconds}
            forms = self._made_forms(image, prepared)
        found = MadeImage(
            seconds=_rounded(seconds),
            layers=(),
            new_with_stack=(len(layers) - 1,),
            new_with_code=(),  # code is bound into a launch, and in no image
            forms=forms,
        )
        return found, layers, manifest_digest(entries) == cached.digest

    @contextlib.contextmanager
    def _loaded(self, root: Path, entries: Sequence[dict[str, Any]]) -> Iterator[Prepared]:
        """Ours in the daemon, upon a small layer of its own: so it has none of these layers, whatever it holds."""
        folder = self._new("loaded")
        mark = FolderLayer(
            entries=[{"path": "tare-mark", "text": str(time.time_ns()), "mode": 0o644}], made_by="mark"
        )
        with (folder / "mark.tar").open("wb") as sink:
            digest, _ = write_layer(mark, sink)
        lowest = TarLayer(path=folder / "mark.tar", digest=digest, made_by=mark.made_by)
        base = replace(self.base, layers=(lowest, *self.base.layers))
        made = build.assemble_tree(self.stack, root, entries, base, self.recipe, folder)
        removal = ["image", "rm", "--force", made["tag"]]
        with at_death(made["tag"], commands=[["docker", *removal]], env=self.client.variables):
            try:
                yield self.client.docker.prepare(self._image(folder, made), folder)
            finally:
                self.client.call(*removal, check=False)
                for name in (made["image_id"], made["digest"]):  # one of them is what the daemon called it
                    daemon_images.forget(endpoint_variables().get("DOCKER_HOST", ""), name)

    def _naive(self, tree: Tree) -> tuple[MadeImage, Sequence[naive.SavedLayer], int]:
        """Built cold, built again, built with another line of code; checked, saved, converted."""
        context, archive = self._new("context"), self._new("naive")
        naive.write_context(context, tree, self.wheels)
        self._load_base()
        say(f"building the naive image of {self.stack.name}")
        timer = _Timer()
        built = self._build(context, TAG, cached=False)
        timer.stage("build")
        self._build(context, TAG, cached=True)
        timer.stage("build_cached")
        self._check()
        naive.touch_code(context)
        timer = _Timer(timer.seconds)
        self._build(context, CHANGED, cached=True)
        timer.stage("build_code")
        say("counting and converting both")
        saved = archive / "saved.tar"
        self.client.call("save", "--output", str(saved), TAG, timeout_s=BUILD_S)
        layers = naive.saved_layers(saved)
        digests = [layer.digest for layer in layers]
        changed = self.client.call("image", "inspect", "--format", '{{join .RootFS.Layers " "}}', CHANGED)
        image = self._rewritten(layers, archive)
        image_id = self.client.call("image", "inspect", "--format", "{{.Id}}", TAG).stdout.strip()
        found = MadeImage(
            seconds=_rounded(timer.seconds),
            layers=(),
            new_with_stack=tuple(range(naive.stack_begins(layers), len(layers))),
            new_with_code=tuple(range(naive.first_difference(digests, changed.stdout.split()), len(layers))),
            forms=self._made_forms(image, Prepared(reference=image_id, bytes=None)),
        )
        return found, layers, naive.steps_of(built.stdout)

    def _load_base(self) -> None:
        """The base of ours, as an image of the daemon with the name that the Dockerfile gives it."""
        folder = self._new("base")
        made = assemble(
            self.base.layers,
            config=self.recipe["config"],
            labels={naive.LABEL: "1"},
            name=naive.BASE,
            folder=folder,
        )
        self.client.call("load", "--quiet", "--input", str(self._image(folder, made).archive))
        self.client.call("tag", made["tag"], f"{naive.BASE}:latest")
        self.client.call("image", "rm", made["tag"])

    def _build(self, context: Path, tag: str, *, cached: bool) -> Finished:
        command = naive.build_command(context, tag, cached=cached)
        finished = run(command, timeout_s=BUILD_S, env=self.client.variables)
        if not finished.ok:
            raise UnavailableError(f"the naive image can't be built: {finished.explain()}")
        return finished

    def _check(self) -> None:
        """The image is of use: its Python imports the stack."""
        code = import_code(self.stack)
        limits = ("--rm", "--name", CHECKER, "--network", "none", "--entrypoint", "/usr/bin/python3")
        finished = self.client.call("run", *limits, TAG, "-c", code, timeout_s=BUILD_S, check=False)
        if not finished.ok:
            raise UnavailableError(f"the naive image does not import {self.stack.name}: {finished.explain()}")

    def _rewritten(self, layers: Sequence[naive.SavedLayer], folder: Path) -> OciImage:
        """The same layers in an archive as every runtime takes it."""
        tars = []
        for number, layer in enumerate(layers):
            path = folder / f"layer{number}.tar"
            naive.copy_layer(layer, path)
            tars.append(TarLayer(path=path, digest=layer.digest, made_by=layer.made_by))
        made = assemble(tars, config=self.recipe["config"], labels={}, name="tare/naive", folder=folder)
        for tar in tars:
            tar.path.unlink()
        return self._image(folder, made)

    def _made_forms(self, image: OciImage, loaded: Prepared) -> dict[str, FormCost]:
        """Every form that lies in a file or a folder, made now; Docker's, which is there, is counted."""
        found = {}
        for form in self.forms:
            adapter = environment(form.env)
            if not adapter.contained:
                continue
            if form.env == DOCKER:
                found[form.env] = _form_cost(adapter, loaded, loaded.seconds)
            elif form.status != "ok":
                found[form.env] = FormCost(seconds=None, disk_bytes=None, reason=form.reason)
            elif form.path is None:
                reason = f"{adapter.title} keeps its images in a store of its own, which is left alone here"
                found[form.env] = FormCost(seconds=None, disk_bytes=None, reason=reason)
            else:
                found[form.env] = self._form(adapter, image)
        return found

    def _form(self, adapter: Environment, image: OciImage) -> FormCost:
        with tempfile.TemporaryDirectory(prefix=f"{adapter.name}-", dir=self.folder) as folder:
            try:
                prepared = adapter.prepare(image, Path(folder))
            except TareError as error:
                return FormCost(seconds=None, disk_bytes=None, reason=str(error))
            return _form_cost(adapter, prepared, prepared.seconds)

    def _image(self, folder: Path, made: Mapping[str, Any]) -> OciImage:
        return OciImage(
            archive=folder / ARCHIVE,
            digest=made["digest"],
            image_id=made["image_id"],
            tag=made["tag"],
            tree=self.stack.inside,
        )

    def _new(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder


class _Timer:
    """Seconds of stages that follow each other."""

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})
        self._since = time.monotonic()

    def stage(self, name: str) -> None:
        """One has ended, the next begins."""
        now = time.monotonic()
        self.seconds[name], self._since = now - self._since, now


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


def _counted(layers: Sequence[naive.SavedLayer]) -> tuple[CountedLayer, ...]:
    sizes = naive.gzip_sizes(layers)
    return tuple(
        CountedLayer(made_by=layer.made_by, digest=layer.digest, bytes=layer.bytes, gzip_bytes=size)
        for layer, size in zip(layers, sizes, strict=True)
    )


def _form_cost(adapter: Environment, prepared: Prepared, seconds: Mapping[str, float]) -> FormCost:
    storage = storage_of(adapter, prepared, None)
    took = round(sum(seconds.values()), 3) if seconds else None
    return FormCost(seconds=took, disk_bytes=storage.disk_bytes, reason=storage.reason)
