"""Stacks and their locks, the wheels, and the tree that is built from them with a small wheel of our own."""

import hashlib
import http.server
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tare.core.elf import refuse_executable_stack
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import project_root
from tare.core.manifest import first_difference, read_manifest
from tare.images import interpreter, wheels
from tare.images import tree as trees
from tare.images.interpreter import find_interpreter
from tare.images.tree import build_tree, foreign_libraries, unpack_wheel
from tare.model.studies import stacks
from tare.model.studies.stacks import (
    Stack,
    framework_of,
    known_stacks,
    load_stack,
    read_lock,
    stack_inputs,
    stack_names,
    stacks_dir,
)

STACK_YAML = """\
name: tiny
python: "3.11"
packages: {demo: a package of the test}
variants:
  cpu: {lock: cpu.txt}
prune:
  - {why: tests, paths: ["*/tests/*", demo/big.bin]}
keep: [demo/tests/kept.py]
imports: [demo]
older_names: {libolder.so.1: libz.so.1}
"""


def make_wheel(folder: Path, version: str = "1.0") -> Path:
    """A wheel with a module, files that the stack prunes, a script, and an executable."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"demo-{version}-py3-none-any.whl"
    info = f"demo-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        contents = {
            "demo/__init__.py": "VALUE = 42\n",
            "demo/broken.py": "print 'old'\n",
            "demo/tests/test_demo.py": "assert False\n",
            "demo/tests/kept.py": "",
            "demo/big.bin": "x" * 1000,
            f"demo-{version}.data/scripts/demo": "#!python\n",
            f"demo-{version}.data/purelib/demo_extra.py": "MORE = 1\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": "[console_scripts]\ndemo-run = demo:main\n",
        }
        names = [*contents, "demo/tool", f"{info}/RECORD"]
        contents[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in names)
        for name, text in contents.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        tool = zipfile.ZipInfo("demo/tool")
        tool.external_attr = 0o755 << 16
        archive.writestr(tool, "#!/bin/sh\n")
    return path


def make_stack(folder: Path, digest: str, version: str = "1.0") -> Stack:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stack.yaml").write_text(STACK_YAML)
    (folder / "cpu.txt").write_text(f"demo=={version} \\\n    --hash=sha256:{digest}\n    # via us\n")
    return load_stack("tiny", "cpu", folder)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def installer(tmp_path, monkeypatch):
    """An installer that knows one folder of wheels and nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "served"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "served"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A tree of the tiny stack in a cache of its own; tests copy it before they harm it."""
    folder = tmp_path_factory.mktemp("built")
    wheel = make_wheel(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TARE_CACHE", str(folder / "cache"))
        stack = make_stack(folder / "stack", sha256(wheel))
        entry = wheels.Wheel(name="demo", version="1.0", sha256=sha256(wheel), path=wheel)
        yield stack, entry, build_tree(stack, [entry])


def test_committed_locks_are_complete_and_name_no_place():
    for name in stack_names():
        for lock in (stacks_dir() / name).glob("*.txt"):
            requirements = read_lock(lock)
            assert all(len(digest) == 64 for requirement in requirements for digest in requirement.hashes)
            text = lock.read_text()
            assert "://" not in text
            assert "--find-links" not in text and "--index-url" not in text


def test_current_stack_has_one_torch_in_each_variant():
    cpu, cuda = (load_stack("torch-2.13", variant) for variant in ("cpu", "cuda"))
    versions = [{r.name: r.version for r in stack.requirements} for stack in (cpu, cuda)]
    assert [v["torch"] for v in versions] == ["2.13.0+cpu", "2.13.0"]
    shared = {"torchvision", "tokenizers", "numpy"}
    assert {n: versions[0][n] for n in shared} == {n: versions[1][n] for n in shared}
    assert not any(name.startswith("nvidia") for name in versions[0])
    assert cpu.is_pruned("torch/bin/protoc") and not cpu.is_pruned("torch/bin/torch_shm_manager")
    assert cpu.is_pruned("torchvision/_C.so") and not cuda.is_pruned("torchvision/_C.so")


def test_a_library_loses_the_mark_of_an_executable_stack_and_nothing_else(tmp_path):
    """A file of two segments, the second of which says what the stack is: readable, writable, executable."""
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 8, 8, 4096)
    before, after = (struct.pack("<IIQQQQQQ", 0x6474E551, flags, *[0] * 6) for flags in (7, 6))
    path = tmp_path / "libold.so"
    path.write_bytes(head + load + before + b"rest")
    assert refuse_executable_stack(path) and path.read_bytes() == head + load + after + b"rest"
    assert not refuse_executable_stack(path)


def test_a_library_that_asks_for_no_executable_stack_is_named(built, monkeypatch, tmp_path):
    stack, wheel, tree = built
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    for name in ("demo/none.so", "demo/__init__.py"):
        with pytest.raises(UserError, match=f"no_executable_stack: no file {name} that asks for one"):
            build_tree(replace(stack, no_executable_stack=(name,)), [wheel])
    assert tree.key == build_tree(stack, [wheel]).key


def test_a_library_is_there_under_an_older_name_too(built):
    stack, wheel, tree = built
    link = tree.path / "lib/libolder.so.1"
    assert str(link.readlink()) == "libz.so.1" and link.is_file()
    assert [entry["link"] for entry in tree.entries if entry["path"] == "lib/libolder.so.1"] == ["libz.so.1"]
    others = [replace(stack, older_names=names) for names in ({}, {"libolder.so.1": "libstdc++.so.6"})]
    own = find_interpreter(stack.python)
    assert len({trees.tree_key(one, [wheel], own, [], {}) for one in (stack, *others)}) == 3


def test_paper_stack_is_one_build_for_both_variants():
    cpu, cuda = (load_stack("paper-2022", variant) for variant in ("cpu", "cuda"))
    versions = {requirement.name: requirement.version for requirement in cpu.requirements}
    assert (versions["torch"], versions["torchvision"], versions["torchtext"]) == ("1.11.0", "0.12.0", "0.12.0")
    assert cpu.lock_sha256 == cuda.lock_sha256
    assert cpu.is_pruned("torchvision/image.so") and not cuda.is_pruned("torchvision/image.so")


@pytest.mark.parametrize(("name", "files"), [("torch-2.13", ["cpu.txt", "cuda.txt"]), ("paper-2022", ["pypi.txt"])])
def test_stack_inputs_are_those_that_the_variants_name_once_each(name, files):
    folder = stacks_dir() / name
    assert stack_inputs(name) == [(folder / file).relative_to(project_root()) for file in files]
    assert sorted(path.name for path in folder.glob("*.txt")) == files  # and nothing else lies there


@pytest.mark.parametrize(
    ("version", "abi"), [("3.6", "cp36m"), ("3.7", "cp37m"), ("3.8", "cp38"), ("3.11", "cp311")]
)
def test_abi_says_pymalloc_until_3_7(version, abi, tmp_path):
    stack = replace(make_stack(tmp_path, "0" * 64), python=version)
    assert stack.abi == abi
    command = wheels.download_command(stack, Path("lock"), Path("out"), [])
    assert [command[at + 1] for at, part in enumerate(command) if part == "--abi"] == [abi, "abi3", "none"]
    assert "manylinux1_x86_64" in command  # as the wheels of that time are named


@pytest.mark.parametrize(
    ("version", "safe_path"), [("3.6", False), ("3.7", False), ("3.10", False), ("3.11", True), ("3.12", True)]
)
def test_compiler_gets_an_option_only_where_python_has_it(version, safe_path, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(trees, "run", lambda argv, **_: seen.append(argv))
    trees._compile(tmp_path, replace(make_stack(tmp_path, "0" * 64), python=version))
    assert seen and all(("-P" in argv) == safe_path and "-S" in argv for argv in seen)
    dated = [argv[-1] == str(trees.EPOCH_S) for argv in seen]
    assert all(one == (version == "3.6") for one in dated)


def test_unknown_stack_and_variant_have_the_nearest_name():
    with pytest.raises(UserError, match=r"did you mean 'torch-2\.13'"):
        load_stack("torch-2.12")
    with pytest.raises(UserError, match="did you mean 'cuda'"):
        load_stack("torch-2.13", "cudaa")


def test_stack_with_an_unknown_or_missing_key_is_refused(tmp_path):
    make_stack(tmp_path, "0" * 64)
    for old, new, message in (
        ("keep:", "kept:", "did you mean 'keep'"),
        ('python: "3.11"', "", "stack.yaml: python missing"),
    ):
        (tmp_path / "stack.yaml").write_text(STACK_YAML.replace(old, new))
        with pytest.raises(UserError, match=message):
            load_stack("tiny", "cpu", tmp_path)


def test_stack_names_its_framework_or_is_pytorchs(tmp_path):
    make_stack(tmp_path, "0" * 64)
    assert load_stack("tiny", "cpu", tmp_path).framework == "torch"
    (tmp_path / "stack.yaml").write_text(STACK_YAML + "\nframework: numpy\n")
    assert load_stack("tiny", "cpu", tmp_path).framework == "numpy"
    (tmp_path / "stack.yaml").write_text(STACK_YAML + "\nframework: nunpy\n")
    own = {"jax": {"jax-0.10"}, "mxnet": {"mxnet-1.6"}, "cntk": {"cntk-2.7"}, "tensorflow": set()}
    for name in (*known_stacks(), None):
        own.setdefault(framework_of(name), set()).add(name)
    assert {name.partition("-")[0] for name in own["tensorflow"]} == {"tensorflow"}
    assert own["torch"] >= {"torch-2.13", "paper-2022", "bound", None}
    with pytest.raises(UserError, match=r"framework: no 'nunpy' in .*'numpy'"):
        load_stack("tiny", "cpu", tmp_path)


@pytest.mark.parametrize(
    "text", ["demo==1.0\n", "demo>=1.0 --hash=sha256:" + "0" * 64 + "\n", "demo==1 --hash=sha256:12\n", "# none\n"]
)
def test_lock_without_version_or_hash_is_refused(tmp_path, text):
    (tmp_path / "lock.txt").write_text(text)
    with pytest.raises(IntegrityError):
        read_lock(tmp_path / "lock.txt")


def test_lock_key_ignores_comments(tmp_path):
    before = make_stack(tmp_path, "1" * 64).lock_sha256
    lock = tmp_path / "cpu.txt"
    lock.write_text("# locked today\n" + lock.read_text())
    assert load_stack("tiny", "cpu", tmp_path).lock_sha256 == before
    assert make_stack(tmp_path, "2" * 64).lock_sha256 != before


def test_wheels_are_fetched_once_and_again_where_one_was_changed(tmp_path, cache, installer):
    wheel = make_wheel(installer)
    content = wheel.read_bytes()
    stack = make_stack(tmp_path / "stack", sha256(wheel))
    first = wheels.fetch_wheels(stack)
    assert [w.sha256 for w in first.wheels] == [sha256(wheel)]
    wheel.unlink()
    assert wheels.fetch_wheels(stack) == first  # from the cache, with the seconds of the download
    cached = first.wheels[0].path
    cached.write_bytes(b"something else")
    with pytest.raises(UnavailableError, match="demo"):
        wheels.fetch_wheels(stack)
    wheel.write_bytes(content)
    assert wheels.fetch_wheels(stack).wheels == first.wheels and cached.read_bytes() == content


def test_served_wheel_with_a_wrong_hash_stops_with_both_hashes_and_the_name(tmp_path, cache, installer):
    wheel = make_wheel(installer)
    with pytest.raises(IntegrityError) as caught:
        wheels.fetch_wheels(make_stack(tmp_path / "stack", "0" * 64))
    for part in ("0" * 64, sha256(wheel), "demo"):
        assert part in str(caught.value)
    assert not list(cache.glob("wheels/*/*.whl"))


def test_missing_wheel_is_unavailable(tmp_path, cache, installer):
    installer.mkdir()
    with pytest.raises(UnavailableError, match="demo"):
        wheels.fetch_wheels(make_stack(tmp_path / "stack", "0" * 64))


def test_local_build_is_taken_from_the_stacks_own_index(tmp_path, cache, installer, monkeypatch):
    page = tmp_path / "index" / "simple" / "demo"
    wheel = make_wheel(page, "1.0+cpu")
    (page / "index.html").write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    installer.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(tmp_path / "index"))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/nothing")
        stack = replace(make_stack(tmp_path / "stack", sha256(wheel), "1.0+cpu"), index=f"{url}/simple")
        assert wheels.fetch_wheels(stack).wheels[0].version == "1.0+cpu"
        server.shutdown()


@pytest.fixture
def two_builds(tmp_path, cache, installer, monkeypatch):
    """A stack in a folder of stacks, whose build for CPUs nobody has but whose plain one the installer finds."""
    folder = tmp_path / "stacks" / "tiny"
    wheel = make_wheel(installer)
    make_stack(folder, sha256(wheel), "1.0+cpu")
    text = STACK_YAML.replace(
        "cpu: {lock: cpu.txt}",
        "cpu: {lock: cpu.txt, otherwise: plain}\n  plain: &plain {lock: plain.txt}\n  cuda: *plain",
    )
    (folder / "stack.yaml").write_text(text)
    (folder / "plain.txt").write_text(f"demo==1.0 --hash=sha256:{sha256(wheel)}\n")
    monkeypatch.setattr(stacks, "stacks_dir", lambda: tmp_path / "stacks")
    return wheel


def test_where_a_build_for_cpus_is_nowhere_the_plain_one_stands_in_and_stays(two_builds, installer, capsys):
    chosen, fetched = wheels.fetch_fitting(load_stack("tiny"))
    assert (chosen.variant, fetched.wheels[0].version) == ("plain", "1.0")
    assert "the variant plain of tiny stands in for cpu" in capsys.readouterr().out
    make_wheel(installer, "1.0+cpu")  # what came to be there since changes nothing
    assert wheels.fetch_fitting(load_stack("tiny")) == (chosen, fetched)
    assert "tiny in its variant plain, which stood in for cpu before" in capsys.readouterr().out


def test_wheels_that_another_variant_shares_make_nothing_stand_in(two_builds, installer):
    """As those of a study on a CUDA device: the build for CPUs is still looked for."""
    wheels.fetch_fitting(load_stack("tiny", "cuda"))
    wheel = make_wheel(installer, "1.0+cpu")
    (stacks.stacks_dir() / "tiny" / "cpu.txt").write_text(f"demo==1.0+cpu --hash=sha256:{sha256(wheel)}\n")
    assert wheels.fetch_fitting(load_stack("tiny"))[0].variant == "cpu"


def test_where_neither_build_is_to_be_had_both_are_told_once(two_builds):
    two_builds.unlink()
    with pytest.raises(UnavailableError) as caught:
        wheels.fetch_fitting(load_stack("tiny"))
    said = str(caught.value)
    assert said.index("demo==1.0+cpu") < said.index("variant plain") < said.index("PIP_FIND_LINKS=")


def test_a_build_that_is_there_is_taken_and_a_wrong_one_is_not_passed_over(two_builds, installer):
    wheel = make_wheel(installer, "1.0+cpu")
    with pytest.raises(IntegrityError):
        wheels.fetch_fitting(load_stack("tiny"))
    (stacks.stacks_dir() / "tiny" / "cpu.txt").write_text(f"demo==1.0+cpu --hash=sha256:{sha256(wheel)}\n")
    assert wheels.fetch_fitting(load_stack("tiny"))[0].variant == "cpu"


def test_a_stand_in_that_is_no_variant_is_refused_with_the_nearest(two_builds):
    path = stacks.stacks_dir() / "tiny" / "stack.yaml"
    path.write_text(path.read_text().replace("otherwise: plain", "otherwise: plane"))
    with pytest.raises(UserError, match=r"otherwise.*plane.*plain"):
        load_stack("tiny")


def test_download_command_names_the_stacks_python_not_ours(tmp_path):
    stack = replace(make_stack(tmp_path, "0" * 64), python="3.9")
    command = wheels.download_command(stack, Path("lock"), Path("out"), ["--retries", "1"])
    assert command[1:4] == ["-m", "pip", "download"]
    for pair in (["--python-version", "3.9"], ["--abi", "cp39"], ["--only-binary", ":all:"], ["--dest", "out"]):
        assert command[command.index(pair[0]) : command.index(pair[0]) + 2] == pair
    assert "--require-hashes" in command and "--no-deps" in command
    assert command[-4:] == ["--retries", "1", "--requirement", "lock"]


def test_wheel_that_leads_out_of_its_folder_is_refused(tmp_path):
    path = tmp_path / "evil-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../outside.py", "")
    wheel = wheels.Wheel(name="evil", version="1", sha256=sha256(path), path=path)
    with pytest.raises(IntegrityError, match="leads out"):
        unpack_wheel(wheel, tmp_path / "packages", make_stack(tmp_path / "stack", "0" * 64))
    assert not (tmp_path / "outside.py").exists()


def python(tree: Path, code: str, **environment: str) -> str:
    argv = [str(tree / "bin" / "python3"), "-c", code]
    return subprocess.run(argv, env=environment, cwd="/", check=True, capture_output=True, text=True).stdout.strip()


def test_tree_holds_what_the_stack_says(built):
    _, _, tree = built
    paths = {entry["path"]: entry for entry in tree.entries}
    packages = "lib/python3.11/site-packages"
    assert f"{packages}/demo/__init__.py" in paths
    assert f"{packages}/demo/tests/kept.py" in paths
    assert f"{packages}/demo_extra.py" in paths
    assert f"{packages}/demo-1.0.dist-info/METADATA" in paths
    assert paths[f"{packages}/demo/tool"]["mode"] == 0o755
    for absent in ("demo/tests/test_demo.py", "demo/big.bin", "demo-1.0.data/scripts/demo", "pip/__init__.py"):
        assert f"{packages}/{absent}" not in paths
    assert f"{packages}/demo/__pycache__/__init__.cpython-311.pyc" in paths
    assert f"{packages}/demo/__pycache__/broken.cpython-311.pyc" not in paths
    assert str(tree.inside) == "/opt/tare/tiny"
    assert tree.size_bytes == sum(entry.get("size", 0) for entry in tree.entries)


def test_tree_runs_in_an_empty_environment_and_takes_only_glibc_from_outside(built):
    _, _, tree = built
    code = "import ssl, ctypes, sqlite3, demo; print(open('/proc/self/maps').read())"
    assert foreign_libraries(python(tree.path, code), tree.path) == []
    assert foreign_libraries(f"0-1 r-xp 0 00:00 1   {shutil.which('sh')}.so\n", tree.path) != []


def test_bytecode_names_the_place_in_images_and_is_never_checked_again(built):
    _, _, tree = built
    path = tree.path / "lib/python3.11/site-packages/demo/__pycache__/__init__.cpython-311.pyc"
    data = path.read_bytes()
    assert data[4:8] == b"\x01\0\0\0"  # hash-based, unchecked
    assert b"/opt/tare/tiny/lib/python3.11/site-packages/demo/__init__.py" in data
    assert str(tree.path).encode() not in data


def test_bytecode_by_time_is_taken_as_it_is(tmp_path):
    """What a CPython without hashed bytecode gets: compiled again only where a source has another time."""
    package = tmp_path / "here/demo"
    package.mkdir(parents=True)
    source = package / "__init__.py"
    source.write_text("VALUE = __file__\n")
    script = trees._compiler("3.6")
    argv = [sys.executable, "-s", "-S", str(script), str(tmp_path / "here"), "/there", str(trees.EPOCH_S)]
    subprocess.run(argv, input=b"demo/__init__.py\n", check=True)
    (compiled,) = (package / "__pycache__").glob("*.pyc")
    assert source.stat().st_mtime == trees.EPOCH_S and b"/there/demo/__init__.py" in compiled.read_bytes()
    says = [sys.executable, "-B", "-v", "-c", "import demo"]
    seen = subprocess.run(says, env={"PYTHONPATH": str(tmp_path / "here")}, capture_output=True, text=True).stderr
    assert f"{compiled} matches" in seen


def test_import_check_is_not_fooled_by_packages_in_the_users_home(built, tmp_path, monkeypatch):
    stack, wheel, _ = built
    home = tmp_path / ".local/lib/python3.11/site-packages"
    home.mkdir(parents=True)
    (home / "stray.py").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(home))
    with pytest.raises(UnavailableError, match="stray"):
        build_tree(replace(stack, imports=("demo", "stray")), [wheel])
    assert list((tmp_path / "cache" / "trees").glob("*/")) == []


def test_tree_works_wherever_it_lies(built, tmp_path):
    _, _, tree = built
    moved = tmp_path / "some where" / "else"
    shutil.copytree(tree.path, moved, symlinks=True)
    code = "import sys, demo, ssl; print(sys.prefix == sys.argv[0] or demo.__file__)"
    assert python(moved, code).startswith(str(moved))
    assert first_difference(tree.entries, moved) is None


def test_equal_inputs_give_an_equal_tree_elsewhere(built, tmp_path, monkeypatch):
    stack, wheel, tree = built
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "a cache elsewhere"))
    again = build_tree(stack, [wheel])
    assert not again.cached
    assert again.path != tree.path
    assert (again.key, again.digest, again.entries) == (tree.key, tree.digest, tree.entries)


def test_cached_tree_is_checked_and_a_broken_one_built_again(built, tmp_path, monkeypatch, capsys):
    stack, wheel, tree = built
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    store = tmp_path / "cache" / "trees"
    shutil.copytree(tree.path, store / tree.key, symlinks=True)
    shutil.copy(tree.path.with_name(f"{tree.key}.json"), store)
    assert build_tree(stack, [wheel]).cached
    victim = store / tree.key / "lib/python3.11/site-packages/demo/__init__.py"
    before = victim.stat()
    victim.write_text("VALUE = 43\n")  # as long as it was, and given back its time
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = build_tree(stack, [wheel])
    assert not again.cached and again.digest == tree.digest
    assert "is damaged" in capsys.readouterr().out
    (store / tree.key / "added").write_text("")
    assert not build_tree(stack, [wheel]).cached
    assert read_manifest(store / tree.key) == list(tree.entries)


@pytest.mark.parametrize(
    ("here", "taken"),
    [({"3.11", "3.13"}, "3.11"), ({"3.13", "3.12", "3.7"}, "3.12"), ({"3.13"}, "3.13"), ({"3.7"}, None)],
)
def test_the_stacks_own_python_is_taken_where_it_is_and_another_stands_in(monkeypatch, here, taken):
    def found(version):
        if version not in here:
            raise UnavailableError(f"no CPython {version} on this machine", f"pyenv install {version}")
        return version

    monkeypatch.setattr(interpreter, "find_interpreter", found)
    stack = load_stack("torch-2.13", "cpu")
    if taken is None:
        with pytest.raises(UnavailableError, match=r"no CPython 3\.11, 3\.12 or 3\.13 on this machine"):
            interpreter.with_interpreter(stack)
        return
    fitting, python = interpreter.with_interpreter(stack)
    assert (fitting.python, fitting.abi, python) == (taken, f"cp{taken.replace('.', '')}", taken)
    assert fitting.requirements == stack.requirements and fitting.inside == stack.inside


def test_what_an_import_leaves_among_temporary_files_goes(built):
    stack, _, tree = built
    name = f"left-by-an-import-{os.getpid()}-"
    leaves = replace(stack, before_imports=f"import tempfile; tempfile.mkdtemp(prefix={name!r})")
    trees._try_imports(tree.path, leaves)
    assert not list(Path("/tmp").glob(f"{name}*")) + list(Path(tempfile.gettempdir()).glob(f"{name}*"))


DEBIAN = Path("/usr/bin/python3.11")


@pytest.mark.skipif(
    not DEBIAN.exists() or not Path("/usr/lib/python3/dist-packages").exists(), reason="no Debian CPython 3.11 here"
)
def test_debians_own_interpreter_makes_a_tree_without_debians_packages(built, tmp_path, monkeypatch):
    stack, wheel, _ = built
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    tree = build_tree(stack, [wheel], find_interpreter("3.11", [str(DEBIAN)]))
    code = "import sys, demo, ssl; print(*sys.path); print(open('/proc/self/maps').read())"
    path, _, maps = python(tree.path, code, HOME=str(tmp_path)).partition("\n")
    assert all(Path(part).is_relative_to(tree.path) for part in path.split())
    assert foreign_libraries(maps, tree.path) == []
    assert not any("apt" in Path(entry["path"]).name for entry in tree.entries if "packages/" in entry["path"])


@pytest.mark.parametrize(
    ("apt_knows", "there", "says"),
    [
        ({"python3.13"}, {"apt-cache", "pyenv"}, "apt-get install python3.13"),
        ({"python3.11", "python3.13"}, {"apt-cache"}, "apt-get install python3.11"),
        ({"python3.9"}, {"apt-cache", "pyenv"}, "pyenv install 3.13"),
        ({"python3.11"}, {"pyenv"}, "pyenv install 3.13"),
        (set(), {"apt-cache"}, "put a CPython 3.13 on PATH as python3.13; pyenv builds one"),
    ],
)
def test_what_brings_a_missing_python_is_a_package_that_there_is(monkeypatch, apt_knows, there, says):
    monkeypatch.setattr(interpreter, "_candidates", lambda version: iter(()))
    monkeypatch.setattr(interpreter.programs, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(interpreter.programs, "candidate", lambda name: "1" if name in apt_knows else None)
    with pytest.raises(UnavailableError) as caught:
        interpreter.with_interpreter(load_stack("torch-2.13", "cpu"))
    assert caught.value.reason.startswith("no CPython 3.11, 3.12 or 3.13 on this machine, and no portable build ")
    assert says in str(caught.value.remedy)


def test_no_interpreter_of_that_version_is_unavailable_with_the_command():
    with pytest.raises(UnavailableError, match=r"no CPython 2\.6"):
        find_interpreter("2.6")
    with pytest.raises(UnavailableError):
        find_interpreter("3.11", ["/bin/true", "/nonexistent/python3.11"])
