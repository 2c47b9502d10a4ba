"""The structure: the contracts of pyproject.toml hold, types agree, the part that runs inside stays lean."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tare.core.files import cache_dir, project_root

ROOT = project_root()
FRAMEWORKS = {
    "torch",
    "torchvision",
    "torchtext",
    "tokenizers",
    "numpy",
    "tensorflow",
    "jax",
    "optax",
    "mxnet",
    "cntk",
}


def sources(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path):
    """Names of the modules that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


@pytest.mark.parametrize("program", ["lint-imports", "mypy"])
def test_packages_import_as_agreed_and_types_agree(program):
    """What mypy keeps of another checkout goes by the hash of each file."""
    argv = [str(Path(sys.executable).with_name(program))]
    if program == "mypy":
        argv += ["--cache-dir", str(cache_dir("mypy"))]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_is_named_like_one_of_the_standard_library():
    names = {path.stem for path in sources("tare", "envs", "workloads") if not path.stem.startswith("_")}
    assert not names & set(sys.stdlib_module_names), names & set(sys.stdlib_module_names)


def test_the_part_that_runs_inside_imports_the_standard_library_and_frameworks_only():
    allowed = set(sys.stdlib_module_names) | FRAMEWORKS | {"tare", "workloads"}
    for path in sources("tare/worker", "workloads"):
        for name in imports(path):
            assert name.split(".")[0] in allowed, f"{path} imports {name}"
            assert not name.startswith("tare.") or name.startswith("tare.worker"), f"{path} imports {name}"


def test_what_starts_a_launch_imports_nothing_for_its_types():
    """`typing` takes 4 ms, which a launch without a framework would not spend."""
    program = "import sys; sys.path.insert(0, '.'); import tare.worker.boot, tare.worker.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "tare.worker.main" in done.stdout.split() and "typing" not in done.stdout.split(), done.stderr
