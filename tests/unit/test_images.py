"""From a stack to each environment's record, with adapters and a base of our own and a tree of no interpreter."""

import json
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from tare.cli.main import main
from tare.core import store
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import cache_dir, read_json, sha256_file, write_json
from tare.images import base as recipe_file
from tare.images import build
from tare.images import tree as trees
from tare.images.base import Base
from tare.images.oci import TarLayer
from tare.images.runtime_forms import image_of
from tare.images.wheels import Fetched, Wheel
from tare.model.environment import Environment, Prepared
from tare.model.records.images import ImageRecord
from tare.model.schema import parse

STACK = "torch-2.13"


class Runtime(Environment):
    """An adapter that unpacks nothing: its form is a copy of the archive's length. It can be `loose`, too."""

    name = "docker"
    contained = True
    factors = {"fit": ("tight", "loose")}  # noqa: RUF012

    def __init__(self):
        self.calls = 0
        self.lost = False
        self.failure = None

    def prepare(self, image, folder):
        if self.failure:
            raise self.failure
        self.calls += 1
        self.lost = False
        form = folder / f"{image.digest[7:19]}.form"
        form.write_text(f"{image.archive.stat().st_size} {image.tree}")
        return Prepared(reference=str(form), bytes=form.stat().st_size, seconds={"convert": 1.5})

    def form(self, options):
        return "loose" if options.get("fit") == "loose" else None

    def prepare_form(self, form, image, folder):
        prepared = self.prepare(image, folder)
        return replace(prepared, details={"form": form})

    def probe(self):
        raise AssertionError("a record of a probe is taken")

    def command(self, launch):
        raise AssertionError("nothing is launched")

    def is_intact(self, prepared):
        return not self.lost and Path(prepared.reference).exists()


class Host(Runtime):
    name = "host"
    contained = False


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A stack whose tree and base are tiny, and two environments; `recipe` and `base` may be changed."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "base.tar").write_bytes(b"")
    with tarfile.open(tmp_path / "base.tar", "w"):
        pass
    layer = tmp_path / "base.tar"

    class World:
        recipe = recipe_file.load_recipe()
        runtime, host = Runtime(), Host()
        base = Base(
            kind="debian",
            name="Debian test",
            digest="sha256:" + "b" * 64,
            layers=(TarLayer(path=layer, digest=f"sha256:{sha256_file(layer)}", made_by="base"),),
            glibc=(2, 36),
            reason="the registry does not answer",
            seconds=1.0,
        )
        folder = tmp_path

        def tree(self, stack, wheels, interpreter):
            def make(folder):
                (folder / "bin").mkdir()
                (folder / "bin" / "python3").write_text("python")
                return {"python": "3.11.7", "glibc": [2, 36], "seconds": {"compile": 2.0}}

            kept = store.keep(tmp_path / "cache" / "trees", "key", make, what="making a tree")
            return replace(trees._tree(kept, stack), cached=False)

        def get_base(self, _):
            if isinstance(self.base, Exception):
                raise self.base
            return self.base

    world = World()
    wheel = Wheel(name="torch", version="2.13.0", sha256="a" * 64, path=tmp_path / "torch.whl")
    wheel.path.write_bytes(b"a wheel")
    monkeypatch.setattr(build, "fetch_fitting", lambda stack: (stack, Fetched(wheels=(wheel,), seconds=3.0)))
    monkeypatch.setattr(build, "build_tree", world.tree)
    monkeypatch.setattr(build, "get_base", world.get_base)
    monkeypatch.setattr(build, "load_recipe", lambda: world.recipe)
    known = {"docker": world.runtime, "host": world.host}
    monkeypatch.setattr(build, "environment", known.__getitem__)
    return world


def test_image_is_assembled_once_and_again_when_the_recipe_changes(world):
    first = build.build(STACK, "cpu")
    assert not first.cached and first.status == "ok"
    assert image_of(first).tag.startswith("tare/torch-2.13:")
    assert first.seconds.keys() >= {"fetch", "tree", "base", "assemble"}
    assert first.to_json()["packages"] == [{"name": "torch", "version": "2.13.0", "sha256": "a" * 64}]
    again = build.build(STACK, "cpu")
    assert again == first.replace(cached=True)
    world.recipe = {**world.recipe, "config": {**world.recipe["config"], "workdir": "/else"}}
    changed = build.build(STACK, "cpu")
    assert not changed.cached and changed.key != first.key and changed.digest != first.digest


def test_damaged_archive_is_made_again_and_refused_until_then(world):
    first = build.build(STACK, "cpu")
    archive = Path(first.path)
    whole = archive.read_bytes()
    archive.write_bytes(whole.replace(b"python", b"nohtyp"))
    with pytest.raises(IntegrityError, match="build-image"):
        image_of(first)
    again = build.build(STACK, "cpu")
    assert not again.cached and archive.read_bytes() == whole


def test_form_is_kept_until_its_file_changes(world):
    image = build.build(STACK, "cpu")
    record = build.derive(image, "docker")
    assert (record.status, record.cached, world.runtime.calls) == ("ok", False, 1)
    assert record.python == "/opt/tare/torch-2.13/bin/python3"
    assert record.seconds["convert"] == 1.5 and record.seconds["fetch"] == 3.0
    assert record.tree_digest == image.tree.digest and record.digest == image.digest
    assert build.derive(image, "docker") == record.replace(cached=True)
    Path(record.reference).write_text("tampered with")
    assert build.derive(image, "docker").cached is False
    assert world.runtime.calls == 2


def test_records_say_what_lies_on_the_disk(world):
    image = build.build(STACK, "cpu")
    assert image.storage.disk_bytes >= image.bytes and image.storage.files == 2  # a folder and the archive, no more
    form, tree = build.derive(image, "docker").storage, build.derive(image, "host").storage
    assert (form.files, form.shared_bytes) == (1, 0)
    assert tree.disk_bytes == tree.shared_bytes > 0
    assert build.build_stack_tree(STACK, "cpu").record.wheel_bytes == len(b"a wheel")


def test_a_record_of_an_image_from_another_cache_gives_the_tree_in_this_one(world):
    """Results that were copied, or a cache that moved: content decides, not the path that was true there."""
    image = build.build(STACK, "cpu")
    own = build.derive(image, "host")
    moved = image.replace(tree=image.tree.replace(path="/elsewhere/trees/0"))
    assert build.derive(moved, "host").reference == own.reference
    other = image.replace(tree=image.tree.replace(digest="sha256:" + 64 * "0"))
    with pytest.raises(IntegrityError, match="is gone or damaged; make it again with"):
        build.derive(other, "host")


def test_seconds_outlive_a_preparation_that_had_nothing_to_make(world, monkeypatch):
    image = build.build(STACK, "cpu")
    record = build.derive(image, "docker")
    kept = Path(record.reference).parent.with_name("docker.json")
    write_json(kept, {**read_json(kept), "source": "an adapter before its last edit"})
    made = world.runtime.prepare
    monkeypatch.setattr(world.runtime, "prepare", lambda *given: replace(made(*given), seconds={}))
    again = build.derive(image, "docker")
    assert world.runtime.calls == 2
    assert (again.seconds, again.cached) == (record.seconds, True)


def test_form_of_a_level_is_kept_beside_the_other(world):
    image = build.build(STACK, "cpu")
    plain = build.derive(image, "docker")
    assert plain.options == {} and plain.install == "tree"
    tight = build.derive(image, "docker", {"fit": "tight"})
    assert tight == plain.replace(options={"fit": "tight"}, cached=True)
    loose = build.derive(image, "docker", {"fit": "loose"})
    assert loose.options == {"fit": "loose"} and loose.details == {"form": "loose"}
    assert loose.reference != plain.reference and loose.digest == plain.digest
    assert world.runtime.calls == 2
    Path(loose.reference).unlink()
    again = build.ensure(loose)
    assert again == loose and Path(again.reference).exists() and world.runtime.calls == 3


def test_record_of_an_earlier_version_is_derived_again(world):
    record = build.derive(build.build(STACK, "cpu"), "docker")
    told = {key: value for key, value in record.to_json().items() if key not in ("options", "install")}
    told["reference"] = told["path"] = str(world.folder / "where forms lay before they had a manifest")
    old = parse(ImageRecord, told, "an earlier record")
    assert build.ensure(old).digest == record.digest
    Path(old.reference).touch()
    assert build.ensure(old) is old


def test_what_a_probe_said_of_the_network_outlives_a_lost_form(world):
    record = build.derive(build.build(STACK, "cpu"), "docker").replace(isolates_network=False)
    world.runtime.lost = True
    assert build.ensure(record).isolates_network is False


def test_host_gets_the_tree_itself(world):
    record = build.derive(build.build(STACK, "cpu"), "host")
    assert record.python == f"{record.reference}/bin/python3"
    assert record.tree_digest == record.digest
    assert "assemble" not in record.seconds
    assert build.ensure(record) is record
    Path(record.python).write_text("nohtyp")
    assert build.ensure(record).tree_digest == record.tree_digest  # built again


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (UnavailableError("no daemon"), "no daemon"),
        (OSError(28, "No space left on device"), r"no space left while writing .*/docker: free some, or point"),
    ],
)
def test_environment_that_fails_is_a_record_with_its_reason(world, failure, says):
    world.runtime.failure = failure
    image = build.build(STACK, "cpu")
    record = build.derive(image, "docker")
    assert record.status == "unavailable" and record.reference is None and record.bytes is None
    assert re.search(says, record.reason), record.reason
    assert record.tree_digest == image.tree.digest
    with pytest.raises(UnavailableError):
        build.ensure(record)
    world.runtime.failure = None
    assert build.derive(image, "docker").status == "ok"


def test_host_is_measured_where_no_base_can_be_had(world):
    world.base = UnavailableError("no base image: nothing answers")
    image = build.build(STACK, "cpu")
    assert image.status == "unavailable"
    assert build.derive(image, "host").status == "ok"
    assert "nothing answers" in build.derive(image, "docker").reason


def test_lost_form_comes_back_before_a_launch(world):
    record = build.derive(build.build(STACK, "cpu"), "docker")
    assert build.ensure(record) is record
    world.runtime.lost = True
    again = build.ensure(record)
    assert world.runtime.calls == 2 and again.digest == record.digest


def test_another_image_is_not_passed_off_as_the_lost_one(world):
    record = build.derive(build.build(STACK, "cpu"), "docker")
    world.runtime.lost = True
    world.recipe = {**world.recipe, "config": {**world.recipe["config"], "workdir": "/else"}}
    assert build.ensure(record).digest == record.digest, "of its archive"
    world.runtime.lost = True
    shutil.rmtree(store.find(cache_dir("images"), record.key).path)
    with pytest.raises(IntegrityError, match=record.digest):
        build.ensure(record)


def test_base_with_too_old_a_c_library_gives_way(world, monkeypatch):
    asked = []
    monkeypatch.setattr(build, "debian_base", lambda recipe, reason: asked.append(reason) or world.base)
    old = {"kind": "registry", "name": "python:3.11-slim", "reason": None}
    tree = world.tree(build.load_stack(STACK, "cpu"), (), None)
    for glibc, gives_way in (((2, 31), True), ((2, 36), False), ((2, 41), False)):
        base = Base(**{**vars(world.base), **old, "glibc": glibc})
        assert (build._fitting_base(base, tree, world.recipe["base"]) is world.base) is gives_way
    assert asked == ["python:3.11-slim has glibc 2.31, and this machine's interpreter needs 2.36"]


def test_a_stack_that_only_the_host_runs_needs_no_image(world, tmp_path):
    out, image = tmp_path / "results", tmp_path / "image"
    common = ["--stack", STACK, "--variant", "cpu"]
    assert main(["build-tree", *common, "--out", str(out / "tree.json")]) == 0
    derived = ["derive-image", *common, "--env", "host"]
    assert main([*derived, "--image", str(out / "tree.json"), "--out", str(out / "host.json")]) == 0
    host = read_json(out / "host.json")
    assert host["status"] == "ok" and host["digest"] == read_json(out / "tree.json")["digest"]
    assert not list(out.glob("*.tar"))
    assert main(["build-image", *common, "--out", str(image / "oci.json")]) == 0
    assert main([*derived, "--out", str(image / "host.json")]) == 0
    assert read_json(image / "host.json") == host | {"base": read_json(image / "oci.json")["base"], "key": ANY}


def test_what_is_made_again_has_the_same_record(world, tmp_path):
    """Snakemake compares what records hold: from an empty cache and from a full one it is the same."""
    common = ["--stack", STACK, "--variant", "cpu"]
    commands = {
        "tree": ["build-tree", *common],
        "oci": ["build-image", *common],
        "host": ["derive-image", *common, "--env", "host"],
        "docker": ["derive-image", *common, "--env", "docker"],
    }
    found = []
    for folder in (tmp_path / "first", tmp_path / "again"):
        for name, command in commands.items():
            assert main([*command, "--out", str(folder / f"{name}.json")]) == 0
        found.append({name: (folder / f"{name}.json").read_text() for name in commands})
    assert found[0] == found[1]


def test_a_stack_that_can_not_be_had_has_no_form_on_the_host(world, tmp_path, monkeypatch):
    def missing(*_):
        raise UnavailableError("no CPython 3.11 here")

    monkeypatch.setattr(build, "with_interpreter", missing)
    tree, out = tmp_path / "tree.json", tmp_path / "host.json"
    common = ["--stack", STACK, "--variant", "cpu"]
    assert main(["build-tree", *common, "--optional", "--out", str(tree)]) == 0
    assert main(["derive-image", *common, "--env", "host", "--image", str(tree), "--out", str(out)]) == 0
    record = read_json(out)
    assert record["status"] == "unavailable" and "no CPython 3.11 here" in record["reason"]


def test_commands_write_records_and_link_the_files(world, tmp_path, capsys):
    out = tmp_path / "results"
    assert main(["build-tree", "--stack", STACK, "--variant", "cpu", "--out", str(out / "tree.json")]) == 0
    assert main(["build-image", "--stack", STACK, "--variant", "cpu", "--out", str(out / "oci.json")]) == 0
    assert read_json(out / "tree.json")["digest"] == read_json(out / "oci.json")["tree"]["digest"]
    assert (out / "image.oci.tar").resolve() == Path(read_json(out / "oci.json")["path"])
    for name in ("docker", "host"):
        assert main(["derive-image", "--stack", STACK, "--env", name, "--out", str(out / f"{name}.json")]) == 0
    record = read_json(out / "docker.json")
    assert (out / Path(record["path"]).name).read_text() == Path(record["path"]).read_text()
    world.runtime.failure = UnavailableError("no daemon")
    Path(record["reference"]).unlink()
    assert main(["derive-image", "--stack", STACK, "--env", "docker", "--out", str(out / "docker.json")]) == 0
    assert read_json(out / "docker.json")["status"] == "unavailable"
    assert "no daemon" in capsys.readouterr().out


def test_bad_arguments_are_one_line(tmp_path, capsys):
    out = str(tmp_path / "x.json")
    assert main(["build-tree", "--stack", "torch", "--out", out]) == 2
    assert main(["derive-image", "--stack", STACK, "--env", "dokcer", "--out", out]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "did you mean 'docker'" in errors[1]


@pytest.mark.parametrize("text", ["base: [", "base: {registry: {}}\n", "[]\n"])
def test_recipe_without_its_parts_is_refused(tmp_path, text):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(UserError, match=r"recipe\.yaml"):
        recipe_file.load_recipe(tmp_path / "recipe.yaml")


def test_recipe_pins_a_digest_and_records_are_json():
    registry = recipe_file.load_recipe()["base"]["registry"]
    assert registry["digest"].startswith("sha256:") and len(registry["digest"]) == 71
    json.dumps(recipe_file.load_recipe())
