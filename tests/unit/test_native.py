"""Native installations with a small wheel of our own: a real virtual environment, and a real image in a base that
is made of this machine's interpreter. No runtime is needed, and no network."""

import os
import re
import shutil
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from test_images import Runtime
from test_stacks import STACK_YAML, make_wheel

from tare.core.errors import UnavailableError
from tare.core.files import sha256_file
from tare.core.process import run
from tare.images import base as recipe_file
from tare.images import build, native
from tare.images.base import Base
from tare.images.interpreter import find_interpreter, shared_libraries, stdlib_files
from tare.images.layers import Blob, layers_of, unpack, whiteouts
from tare.images.oci import TarLayer
from tare.images.rootfs import differences, find_guest, run_guest, snapshot
from tare.images.tree import EPOCH_S
from tare.images.wheels import Fetched, Wheel
from tare.model.studies.stacks import load_stack

VERSION = "3.11"
PACKAGES = f"usr/lib/python{VERSION}/site-packages"
STDLIB = (
    "encodings/", "collections/", "re/", "importlib/", "concurrent/", "multiprocessing/", "ctypes/", "json/",
    "urllib/",
)  # fmt: skip


def copy_interpreter(root: Path) -> None:
    """A root filesystem of this machine's interpreter, glibc and what they need, under /usr."""
    interpreter = find_interpreter(VERSION)
    library = root / "usr/lib" / f"python{VERSION}"
    names = [
        name
        for name in stdlib_files(interpreter)
        if "/" not in name or name.startswith(STDLIB) or re.match(r"lib-dynload/_?[a-m]|lib-dynload/_?[p-z]", name)
    ]
    for name in names:
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(interpreter.stdlib / name, library / name)
    (library / "site-packages").mkdir()
    program = root / f"usr/bin/python{VERSION}"
    program.parent.mkdir()
    shutil.copy(interpreter.executable, program)
    libraries = root / "lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    extensions = [name for name in names if name.startswith("lib-dynload/")]
    found, _ = shared_libraries(interpreter, extensions)
    listed = run(["ldd", *map(str, [program, *found.values()])], timeout_s=60, check=True).stdout
    glibc = {Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+) \(", listed, re.MULTILINE)}
    for path in {*found.values(), *(path for path in glibc if path.name not in found)}:
        shutil.copy(path, libraries / path.name)
    for soname, path in found.items():
        shutil.copy(path, libraries / soname)


@pytest.fixture(scope="module")
def base_layer(tmp_path_factory):
    """The layer of a base that brings a Python, and an older package of the same name as our wheel's."""
    folder = tmp_path_factory.mktemp("base")
    root = folder / "root"
    root.mkdir()
    copy_interpreter(root)
    old = root / PACKAGES / "Demo-0.9.dist-info"
    old.mkdir()
    (old.parent / "demo").mkdir()
    for name, text in {
        "demo/__init__.py": "VALUE = 1\n",
        "demo/old.py": "OLD = 1\n",
        "other.py": "A = 1\n",
    }.items():
        (old.parent / name).write_text(text)
    (old / "RECORD").write_text("demo/__init__.py,,\ndemo/old.py,,\nDemo-0.9.dist-info/RECORD,,\n")
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as archive:
        archive.add(root, "")
    return layer


@pytest.fixture
def world(tmp_path, monkeypatch, base_layer):
    """A tiny stack with its wheel, and a base."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    path = make_wheel(tmp_path / "wheels")

    class World:
        recipe = recipe_file.load_recipe()
        wheel = Wheel(name="demo", version="1.0", sha256=sha256_file(path), path=path)
        fetched = Fetched(wheels=(wheel,), seconds=1.0)
        base = Base(
            kind="debian",
            name="a base",
            digest="sha256:" + "b" * 64,
            layers=(TarLayer(path=base_layer, digest=f"sha256:{sha256_file(base_layer)}", made_by="base"),),
            glibc=(2, 36),
            reason=None,
            seconds=1.0,
        )

    stack = tmp_path / "stack"
    stack.mkdir()
    (stack / "stack.yaml").write_text(STACK_YAML)
    (stack / "cpu.txt").write_text(f"demo==1.0 --hash=sha256:{World.wheel.sha256}\n")
    World.stack = load_stack("tiny", "cpu", stack)
    monkeypatch.setattr(native, "get_base", lambda _: World.base)
    monkeypatch.setattr(native, "fetch_wheels", lambda _: World.fetched)
    monkeypatch.setattr(native, "load_stack", lambda name, variant: World.stack)
    return World


class Host(Runtime):
    name = "host"
    contained = False


# --- the host's virtual environment


def test_host_gets_a_virtual_environment_that_pip_filled(world):
    record = native.derive("tiny", "cpu", Host(), world.recipe)
    assert (record.status, record.install, record.options) == ("ok", "native", {})
    program = "import demo, sys; print(demo.VALUE, sys.prefix, demo.__cached__)"
    value, prefix, cached = run([record.python, "-I", "-c", program], timeout_s=60, env={}).stdout.split()
    assert (value, prefix) == ("42", record.reference)
    assert Path(cached).exists(), "the installer did not compile"
    packages = Path(record.tree)
    assert (packages / "demo-1.0.dist-info/INSTALLER").read_text().strip() == "pip"
    assert (packages / "demo/tests/kept.py").exists() and (packages / "demo/big.bin").exists()  # nothing is pruned
    assert record.details["installer"].startswith("pip ") and record.bytes > 0
    assert not (Path(record.reference) / "bin/pip").exists()
    assert native.derive("tiny", "cpu", Host(), world.recipe) == record.replace(cached=True)


def test_damaged_virtual_environment_is_made_again_with_an_equal_digest(world):
    record = native.derive("tiny", "cpu", Host(), world.recipe)
    assert native.find(Path(record.reference).name)
    (Path(record.tree) / "demo/__init__.py").write_text("VALUE = 41\n")
    assert not native.find(Path(record.reference).name)
    again = native.derive("tiny", "cpu", Host(), world.recipe)
    assert not again.cached and again.digest == record.digest and native.find(Path(record.reference).name)


def test_wheel_that_is_not_the_locks_is_refused(world):
    world.fetched = Fetched(wheels=(replace(world.wheel, sha256="a" * 64),), seconds=1.0)
    record = native.derive("tiny", "cpu", Host(), world.recipe)
    assert record.status == "unavailable" and "hash" in record.reason.lower()


def test_stack_that_does_not_import_is_refused(world):
    world.stack = replace(world.stack, imports=("demo", "absent_module"))
    record = native.derive("tiny", "cpu", Host(), world.recipe)
    assert record.status == "unavailable" and "absent_module" in record.reason
    assert record.reference is None and record.python is None


def test_host_without_that_python_says_what_would_bring_it(world):
    world.stack = replace(world.stack, python="3.2")
    record = native.derive("tiny", "cpu", Host(), world.recipe)
    assert record.status == "unavailable" and "no CPython 3.2 on this machine (to fix it: " in record.reason


def test_installer_looks_nowhere_and_checks_hashes():
    argv = native.install_command(Path("/v/bin/python"), Path("/v/lock.txt"))
    assert argv[3:5] == ["--python", "/v/bin/python"]
    assert {"--isolated", "--no-index", "--no-deps", "--require-hashes"} <= set(argv)
    assert argv[-2:] == ["--requirement", "/v/lock.txt"]


# --- the image


def members(record):
    blob = layers_of(Path(record.path))[-1]
    with blob.path.open("rb") as handle:
        handle.seek(blob.offset)
        with tarfile.open(fileobj=handle, mode="r:") as archive:
            return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}, [
                member for member in archive.getmembers() if member.mtime != EPOCH_S
            ]


def test_image_holds_the_packages_whole_where_its_own_python_finds_them(world, tmp_path):
    record = native.build(world.stack, world.fetched, world.recipe)
    assert (record.status, record.reason) == ("ok", None)
    assert record.python == f"/usr/bin/python{VERSION}"
    assert record.tree.inside == f"/{PACKAGES}"
    files, other_times = members(record)
    assert files[f"{PACKAGES}/demo/__init__.py"] == b"VALUE = 42\n"
    assert f"{PACKAGES}/demo/big.bin" in files and other_times == []
    # nothing is left out: scripts of both kinds start the base's own interpreter, and the list of files is true
    assert files[f"{PACKAGES}/demo_extra.py"] == b"MORE = 1\n"
    for name in ("demo", "demo-run"):
        assert files[f"usr/bin/{name}"].startswith(f"#!/usr/bin/python{VERSION}\n".encode())
    listed = [row.split(",")[0] for row in files[f"{PACKAGES}/demo-1.0.dist-info/RECORD"].decode().splitlines()]
    assert {"../../../bin/demo", "../../../bin/demo-run", "demo/big.bin", "demo_extra.py"} <= set(listed)
    for name in listed:
        assert os.path.normpath(f"{PACKAGES}/{name}") in files
    root = tmp_path / "image"
    root.mkdir()
    unpack(layers_of(Path(record.path)), root)
    guest = find_guest(root, VERSION)
    finished = run_guest(guest, ["-c", "import demo; print(demo.VALUE)"], timeout_s=60)
    assert finished.stdout == "42\n", finished.stderr


def test_bytecode_of_packages_and_library_fits_its_sources_in_the_image(world, tmp_path):
    record = native.build(world.stack, world.fetched, world.recipe)
    assert record.details["sources_without_bytecode"] == 1  # demo/broken.py
    root = tmp_path / "image"
    root.mkdir()
    unpack(layers_of(Path(record.path)), root)
    ask = ["-c", "import importlib.util as u; print(u.MAGIC_NUMBER.hex())"]
    its_own = bytes.fromhex(run_guest(find_guest(root, VERSION), ask, timeout_s=60).stdout)
    for name in (f"{PACKAGES}/demo/__init__", f"usr/lib/python{VERSION}/os"):
        source = root / f"{name}.py"
        compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-311.pyc"
        magic, flags, time_s, size = struct.unpack("<4sIII", compiled.read_bytes()[:16])
        assert magic == its_own
        assert (flags, time_s, size) == (0, int(source.stat().st_mtime), source.stat().st_size)
        assert (
            str(root).encode() not in compiled.read_bytes() and str(tmp_path).encode() not in compiled.read_bytes()
        )


def test_package_of_the_base_gives_way(world):
    record = native.build(world.stack, world.fetched, world.recipe)
    files, _ = members(record)
    assert {name for name in files if ".wh." in name} == {
        f"{PACKAGES}/demo/.wh.old.py",
        f"{PACKAGES}/Demo-0.9.dist-info/.wh.RECORD",
    }
    assert f"{PACKAGES}/other.py" not in files  # what the base has and nobody changed


def test_equal_inputs_give_an_equal_image(world, tmp_path, monkeypatch):
    first = native.build(world.stack, world.fetched, world.recipe)
    assert native.build(world.stack, world.fetched, world.recipe) == first.replace(cached=True)
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "another"))
    second = native.build(world.stack, world.fetched, world.recipe)
    assert not second.cached and second.digest == first.digest


def test_container_gets_a_form_and_gets_it_again(world, monkeypatch):
    runtime = Runtime()
    record = native.derive("tiny", "cpu", runtime, world.recipe)
    assert (record.status, record.install, record.python) == ("ok", "native", f"/usr/bin/python{VERSION}")
    assert record.details["python_version"].startswith(VERSION)
    runtime.lost = True
    monkeypatch.setattr(build, "environment", {"docker": runtime}.__getitem__)
    again = build.ensure(record)
    assert runtime.calls == 2 and again.digest == record.digest and again.install == "native"


def test_stack_that_does_not_import_in_the_base_is_unavailable(world):
    world.stack = replace(world.stack, imports=("absent_module",))
    record = native.derive("tiny", "cpu", Runtime(), world.recipe)
    assert record.status == "unavailable" and "a base does not import" in record.reason
    assert "absent_module" in record.reason


def test_base_without_a_python_gives_way_to_the_distributions_own(world, monkeypatch, tmp_path):
    bare = tmp_path / "bare.tar"
    with tarfile.open(bare, "w"):
        pass
    asked = []

    def debian_base(recipe, reason):
        asked.append((recipe["packages"], reason))
        return world.base

    monkeypatch.setattr(native, "debian_base", debian_base)
    assert native.native_base(world.recipe, VERSION) is world.base and asked == []
    with_python, bare_layer = world.base, TarLayer(path=bare, digest="", made_by="base")
    world.base = replace(with_python, layers=(bare_layer,), kind="registry", name="python:3.11-slim")
    monkeypatch.setattr(native, "debian_base", lambda recipe, reason: debian_base(recipe, reason) and with_python)
    assert native.native_base(world.recipe, VERSION) is with_python
    (packages, reason), *_ = asked
    assert f"python{VERSION}" in packages and "libc6" in packages
    assert reason == f"python:3.11-slim has no Python {VERSION}"
    with pytest.raises(UnavailableError, match=r"a base with python3\.7, .* has no Python 3\.7"):
        native.native_base(world.recipe, "3.7")


def test_base_that_cannot_be_had_is_a_record_with_its_reason(world, monkeypatch):
    def nothing(_):
        raise UnavailableError("no base image: nothing answers")

    monkeypatch.setattr(native, "get_base", nothing)
    record = native.derive("tiny", "cpu", Runtime(), world.recipe)
    assert (record.status, record.reason) == ("unavailable", "no base image: nothing answers")


def test_library_that_the_base_lacks_and_a_file_needs_is_named(base_layer, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    unpack([Blob(path=base_layer)], root)
    inside = next((root / "usr/lib" / f"python{VERSION}" / "lib-dynload").glob("zlib.*"))
    library = next(Path(folder) for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64")
                   if Path(folder, "libz.so.1").exists()) / "libz.so.1"  # fmt: skip
    line = "7f00-7f01 r-xp 0 0:0 1 {}\n"
    maps = line.format(inside) + line.format(library)
    assert native.needed_from_outside(maps, root) == [str(library)]
    # nothing that is mapped from inside asks for it by its name: something opened it because it was there
    assert native.needed_from_outside(line.format(library), root) == []
    within = root / "lib/x86_64-linux-gnu/libz.so.1"
    assert native.needed_from_outside(line.format(inside) + line.format(within), root) == []


def test_base_whose_python_does_not_run_is_refused(base_layer, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    unpack([Blob(path=base_layer)], root)
    shutil.rmtree(root / "usr/lib" / f"python{VERSION}" / "encodings")
    with pytest.raises(UnavailableError, match="does not run"):
        find_guest(root, VERSION)
    assert find_guest(root, "3.2") is None


def test_differences_are_what_was_added_changed_and_removed(tmp_path):
    for name in ("kept", "changed", "gone"):
        (tmp_path / name).write_text("a")
    before = snapshot(tmp_path)
    os.utime(tmp_path / "changed", (1, 1))
    (tmp_path / "gone").unlink()
    (tmp_path / "added").symlink_to("kept")
    assert differences(before, snapshot(tmp_path)) == (["added", "changed"], ["gone"])
    assert whiteouts(["gone", "a/b/c"]) == [".wh.gone", "a/b/.wh.c"]


def test_removing_a_package_never_reaches_outside_the_image(tmp_path):
    root = tmp_path / "root"
    info = root / "packages" / "demo-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "precious").write_text("")
    (info / "RECORD").write_text("../../precious,,\n/etc/nothing-of-this-name,,\n")
    native.remove_distribution(info, root)
    assert (tmp_path / "precious").exists() and not info.exists()
