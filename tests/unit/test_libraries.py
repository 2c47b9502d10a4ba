"""Libraries that are compiled from source for a stack, with a small one of our own in C."""

import hashlib
import io
import shutil
import sys
import sysconfig
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.process import run
from tare.images import tree as trees
from tare.images.from_source import library as from_source
from tare.images.from_source.library import compile_library
from tare.model.schema import parse
from tare.model.studies.libraries import LibraryFile, library_names, load_library
from tare.model.studies.stacks import LibraryUse, load_stack, stack_inputs, variants_of

PRODUCT = """\
#include <stddef.h>
void product(int order, int left, int right, int m, int n, int k, float alpha, const float *a, int lda,
             const float *b, int ldb, float beta, float *c, int ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = OFFSET;
            for (int l = 0; l < k; l++)
                sum += a[i * lda + l] * b[l * ldb + j];
            c[i * ldc + j] = sum;
        }
}
"""
compiled_here = pytest.mark.skipif(shutil.which("gcc") is None, reason="this machine has no gcc")


@pytest.fixture
def recipe(server, data_cache, monkeypatch):
    """How the library of these tests is compiled; the second archive that is asked has its source."""
    monkeypatch.setattr(from_source, "archive_addresses", lambda: [server.base + "/missing", server.base + "/good"])
    server.bodies["demo.tar.xz"] = packed(["demo-1.0"])
    value = {
        "name": "demo",
        "version": "1.0",
        "soname": "libdemo.so.0",
        "source": {"path": "demo.tar.xz", "sha256": sha256(server.bodies["demo.tar.xz"])},
        "programs": ["gcc"],
        "packages": ["gcc"],
        "targets": [{"name": "0", "flags": ["fpu"]}],
        "steps": [["gcc", "-shared", "-fPIC", "-DOFFSET={target}", "-o", "libdemo.so", "product.c"]],
        "built": "libdemo.so",
        "product": "product",
    }
    return parse(LibraryFile, value, "demo.yaml", UserError)


def packed(folders):
    """An archive of folders that each have the source."""
    written, text = io.BytesIO(), PRODUCT.encode()
    with tarfile.open(fileobj=written, mode="w:xz") as archive:
        for folder in folders:
            member = tarfile.TarInfo(f"{folder}/product.c")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return written.getvalue()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@compiled_here
def test_a_library_is_compiled_tried_and_kept(recipe, server):
    first = compile_library(recipe)
    assert first.path.name == "libdemo.so.0" and first.record.sha256 == sha256(first.path.read_bytes())
    assert (first.record.target, first.record.version) == ("0", "1.0") and "gcc" in first.record.compiler
    assert set(first.seconds) == {"library", "library_fetch"} and first.seconds["library"] > 0
    server.hits.clear()
    assert compile_library(recipe) == first and not server.hits


@compiled_here
@pytest.mark.parametrize(
    ("over", "says"),
    [
        (
            {"targets": [{"name": "0.5", "flags": ["fpu"]}]},
            "as compiled here, does not work: .* numbers is wrong",
        ),
        ({"product": "prodcut"}, "as compiled here, does not work: .*prodcut"),
        ({"steps": [["gcc", "-shared", "-o", "libdemo.so", "gone.c"]]}, "does not compile for 0: gcc .*gone.c"),
        ({"built": "libgone.so"}, "compiling demo 1.0 for 0 gave no libgone.so"),
        (
            {"programs": ["gcc", "no-such-program"]},
            "is compiled here, and this machine has no no-such-program",
        ),
        ({"targets": [{"name": "X", "flags": ["flux", "fpu"]}]}, "its last target, X, needs flux, fpu"),
    ],
)
def test_what_a_library_lacks_is_one_line_and_nothing_is_kept(recipe, over, says, data_cache):
    with pytest.raises(UnavailableError, match=says) as error:
        compile_library(parse(LibraryFile, recipe.to_json() | over, "demo.yaml", UserError))
    assert "\n" not in str(error.value)
    assert not list(data_cache.glob("libraries/*/libdemo.so.0"))


@compiled_here
def test_another_source_stops_with_both_hashes(recipe, server):
    server.bodies["demo.tar.xz"] = b"something else"
    found = sha256(b"something else")
    with pytest.raises(IntegrityError, match=f"{recipe.source.sha256}, but what was served has {found}"):
        compile_library(recipe)


@compiled_here
@pytest.mark.parametrize(
    ("served", "says"), [(b"no archive", "can't be unpacked"), (packed(["one", "two"]), "holds 2 entries")]
)
def test_what_is_no_archive_of_one_folder_is_refused(recipe, server, served, says):
    server.bodies["demo.tar.xz"] = served
    source = {"path": "demo.tar.xz", "sha256": sha256(served)}
    with pytest.raises(IntegrityError, match=says):
        compile_library(parse(LibraryFile, recipe.to_json() | {"source": source}, "demo.yaml", UserError))


@compiled_here
@pytest.mark.parametrize(
    ("addresses", "says"),
    [
        (["/missing"], "is not available: .* answered 404 Not Found$"),
        ([], "apt is configured with no archive of this"),
    ],
)
def test_a_source_that_no_archive_has_is_told(recipe, server, monkeypatch, addresses, says):
    monkeypatch.setattr(from_source, "archive_addresses", lambda: [server.base + path for path in addresses])
    with pytest.raises(UnavailableError, match=says):
        compile_library(recipe)


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        ("sse4_2 avx avx2 fma avx512f avx512bw avx512cd avx512dq avx512vl amx_tile", "SKYLAKEX"),
        ("sse4_2 avx avx2 fma avx512f avx512cd", "HASWELL"),
        ("sse4_2 avx avx2 fma", "HASWELL"),
        ("sse4_2 avx", "SANDYBRIDGE"),
        ("sse4_2", "NEHALEM"),
    ],
)
def test_a_library_is_compiled_for_the_best_that_the_processor_has(flags, target):
    assert load_library("openblas").target_for(flags.split()).name == target


def test_every_library_is_whole_and_no_other_is_known():
    for name in library_names():
        assert load_library(name).name == name
    with pytest.raises(UserError, match="no library 'openblsa' in containers/libraries/: did you mean 'openblas'"):
        load_library("openblsa")


ALIKE = {name: f"torch-{name}-openblas" for name in ("2.13", "1.4")}


@pytest.mark.parametrize(("release", "name"), ALIKE.items())
def test_a_stack_like_another_has_its_very_packages_and_a_library(release, name):
    stack, other = load_stack(name), load_stack(f"torch-{release}")
    assert stack.library.symbol == "sgemm_" and other.library is None
    assert replace(stack, name=other.name, library=None, otherwise=other.otherwise) == other
    inputs = {str(path) for path in stack_inputs(name)}
    assert inputs == {
        "containers/libraries/openblas.yaml",
        f"containers/stacks/torch-{release}/stack.yaml",
        *(str(path) for path in stack_inputs(f"torch-{release}") if path.name != "cuda.txt"),
    }
    assert variants_of(name) == ("cpu",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("like: torch-2.12\n", "like: no stack 'torch-2.12': did you mean 'torch-2.13'"),
        ("like: torch-1.4-openblas\n", "like: torch-1.4-openblas has no packages itself"),
        ("like: torch-2.13\npython: '3.11'\n", "unknown key 'python'"),
        ("like: torch-2.13\n", "library: no 'openbals' in containers/libraries/: did you mean 'openblas'"),
    ],
)
def test_a_stack_like_none_or_with_an_unknown_library_is_refused(text, says, tmp_path):
    library = "library: {name: openbals, symbol: sgemm_, exercise: pass}\n"
    (tmp_path / "stack.yaml").write_text(f"name: mine\n{text}{library}")
    with pytest.raises(UserError, match=says):
        load_stack("mine", "cpu", tmp_path)


def test_a_library_names_the_inputs_of_a_tree(tmp_path):
    stack = load_stack("torch-2.13")
    interpreter = trees.find_interpreter(f"{sys.version_info[0]}.{sys.version_info[1]}")
    use = LibraryUse(name="openblas", symbol="sgemm_", exercise="pass")
    keys = {
        trees.tree_key(replace(stack, library=library), [], interpreter, [], {})
        for library in (None, use, use.replace(symbol="dgemm_"))
    }
    assert len(keys) == 3


BINDINGS = """\
      7:	binding file /t/lib/libopenblas.so.0 [0] to /t/lib/libopenblas.so.0 [0]: normal symbol `sgemm_'
      7:	binding file /t/a b/libtorch_cpu.so [0] to {taken} [0]: normal symbol `sgemm_'
      7:	binding file /t/numpy/libopenblas64_.so [0] to /t/lib/libopenblas.so.0 [0]: normal symbol `sgemm_64_'
"""


@pytest.mark.parametrize(("taken", "found"), [("/t/lib/libopenblas.so.0", True), ("/t/a b/libtorch_cpu.so", False)])
def test_the_loaders_own_words_say_whose_function_is_called(taken, found):
    assert trees.calls(BINDINGS.format(taken=taken).splitlines(), "sgemm_", "libopenblas.so.0") is found


@compiled_here
def test_an_interpreter_that_loads_a_library_first_has_its_packages_take_it(tmp_path):
    """A package's library that calls its own `answer`, and another `answer`, by which it is taken out."""
    root, lib = tmp_path / "root", tmp_path / "root" / "lib"
    for folder in (root / "bin", lib):
        folder.mkdir(parents=True)
    for name, soname, body in (
        ("own", "libown.so", "int answer(void) { return 1; } int asked(void) { return answer(); }"),
        ("mine", "libmine.so.0", "int answer(void) { return 2; }"),
    ):
        (tmp_path / f"{name}.c").write_text(body)
        argv = [
            "gcc",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{soname}",
            "-o",
            str(lib / soname),
            str(tmp_path / f"{name}.c"),
        ]
        run(argv, timeout_s=60, check=True)
    ask = f"import ctypes; print(ctypes.CDLL({str(lib / 'libown.so')!r}).asked())"
    python = root / "bin" / "python3"
    shutil.copyfile(Path(sys.executable).resolve(), python)
    python.chmod(0o755)
    prefix = {"PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR") or ""}

    def said():
        return run([str(python), "-c", ask], timeout_s=60, env=prefix, check=True).stdout.strip()

    assert said() == "1"
    trees.run([trees._patchelf(), "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(python)], timeout_s=60)
    trees._load_first(python, "libmine.so.0")
    assert said() == "2"
