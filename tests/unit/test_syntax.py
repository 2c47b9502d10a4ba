"""The hash of a program: the same under each supported Python, whatever its layout, and of that program alone."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from project import ROOT

from tare.model.syntax import program_sha256

SUPPORTED = ("3.11", "3.12", "3.13")
EVERY_CONSTRUCT = ROOT / "tests/data/every_construct.txt"
MEASURES = ("tare/worker", "tare/launch", "envs", "workloads")
GOLDEN = "fb6dc9ef2fa0106249d282794859493b1162f7ef4728336d700728623902200d"
HASHES = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from tare.model.syntax import program_sha256
hashes = {one: program_sha256(pathlib.Path(one).read_bytes(), one) for one in sys.argv[2:]}
json.dump([sys.version, hashes], sys.stdout)
"""


def pythons(versions: Sequence[str] = SUPPORTED) -> dict[str, str]:
    """A program of each of these versions that is here: this one, those on the PATH, pyenv's."""
    found = {"{}.{}".format(*sys.version_info): sys.executable}
    for version in versions:
        folders = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
        for path in (shutil.which(f"python{version}"), *map(str, folders)):
            if version not in found and path and _is_of(path, version):
                found[version] = path
    return found


def _is_of(path: str, version: str) -> bool:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.startswith(f"Python {version}.")


def hashes_by(python: str, paths: list[Path]) -> dict[str, str]:
    """Hashes of files as another Python finds them, without any package."""
    argv = [python, "-I", "-S", "-c", HASHES, str(ROOT), *map(str, paths)]
    version, found = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    print(f"asked Python {version}")
    return found


@pytest.mark.parametrize("version", SUPPORTED)
def test_each_python_finds_the_same_hashes(version):
    python = pythons().get(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    paths = [EVERY_CONSTRUCT, *(path for name in MEASURES for path in ROOT.glob(f"{name}/**/*.py"))]
    found = hashes_by(python, paths)
    assert found[str(EVERY_CONSTRUCT)] == GOLDEN
    assert found == {str(path): program_sha256(path.read_bytes()) for path in paths}


def test_this_python_finds_the_hash_that_is_written_down():
    assert program_sha256(EVERY_CONSTRUCT.read_bytes()) == GOLDEN


PROGRAM = b'''
def f(x, y=1):
    """Says."""
    return g(x, "a'b", [y, 2], f"{x:>{y}}!")
'''
SAME = {
    "a comment": PROGRAM.replace(b"    return", b"    # why\n\n    return"),
    "a docstring": PROGRAM.replace(b"Says.", b"Says more."),
    "no docstring": PROGRAM.replace(b'    """Says."""\n', b""),
    "line breaks": PROGRAM.replace(b"[y, 2]", b"[\n        y,\n        2,\n    ]"),
    "quotes": PROGRAM.replace(b'"a\'b"', b"'a\\'b'").replace(b'f"{x:>{y}}!"', b"f'{x:>{y}}!'"),
    "parts of a text": PROGRAM.replace(b'f"{x:>{y}}!"', b'f"{x:>{y}}" "!"'),
    "parentheses": PROGRAM.replace(b"y=1", b"y=(1)"),
    "a version": PROGRAM + b'__version__ = "2"\n',
    "a prefix that says nothing": PROGRAM.replace(b'"a\'b"', b'u"a\'b"'),
}
OTHER = {
    "a name": PROGRAM.replace(b"g(x", b"h(x"),
    "a number's type": PROGRAM.replace(b"y=1", b"y=1.0"),
    "a truth for a number": PROGRAM.replace(b"y=1", b"y=True"),
    "bytes for a text": PROGRAM.replace(b'"a\'b"', b'b"a\'b"'),
    "None for nothing": PROGRAM.replace(b"return g(", b"return None, g("),
    "a keyword only": PROGRAM.replace(b"x, y=1", b"x, *, y=1"),
    "a default": PROGRAM.replace(b"x, y=1", b"x, y"),
    "an f-string's text": PROGRAM.replace(b"}}!", b"}}?"),
    "an f-string's form": PROGRAM.replace(b":>{y}}", b":<{y}}"),
    "an f-string's conversion": PROGRAM.replace(b"{x:>", b"{x!r:>"),
    "a text that is no f-string": PROGRAM.replace(b'f"{x', b'"{x'),
    "indentation": PROGRAM.replace(b"    return g", b"    if x:\n        return g"),
}


@pytest.mark.parametrize("change", SAME)
def test_what_changes_no_program_changes_no_hash(change):
    assert SAME[change] != PROGRAM
    assert program_sha256(SAME[change]) == program_sha256(PROGRAM)


@pytest.mark.parametrize("change", OTHER)
def test_another_program_has_another_hash(change):
    assert OTHER[change] != PROGRAM
    assert program_sha256(OTHER[change]) != program_sha256(PROGRAM)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"def f(*, a, b=1): pass", b"def f(*, a=1, b): pass"),
        (b"x = {**a, b: c}", b"x = {a: c, **b}"),
        (b"x = []", b"x = ()"),
        (b"return_ = None", b"return_: None"),
        (b"x[1:]", b"x[:1]"),
        (b"f(a, *b)", b"f(*b, a)"),
        (b'return f""', b"return"),
        (b'return f"{x}"', b"return x"),
        (b'return f"{x}{y}"', b'return f"{x}", f"{y}"'),
    ],
)
def test_what_is_missing_counts_in_its_place(one, other):
    assert program_sha256(one) != program_sha256(other)
