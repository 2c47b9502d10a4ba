"""The command line as a whole: what it may load before it knows what is wanted."""

import ast
import os
import platform
import subprocess
import sys
import tomllib

import pytest

from tare import __main__ as started
from tare.cli.main import build_parser, main
from tare.core.files import project_root
from tare.runtimes.bootstrap import PYTHONS

HEAVY = {
    *("snakemake", "seaborn", "matplotlib", "pydantic", "numpy", "pandas", "scipy", "yaml", "torch", "jinja2"),
    "fastjsonschema",
}
HELP = """
import atexit, sys
atexit.register(lambda: print("loaded", *sys.modules))
sys.argv = ["tare", "weigh", "--help"]
from tare.__main__ import main
main()
"""


def cpu_s_of(code):
    """Seconds of a CPU that a Python takes for it, and what it does."""
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=project_root())
    after = os.times()
    assert done.returncode == 0, done.stderr
    return sum(after[2:4]) - sum(before[2:4]), done.stdout


def test_help_loads_nothing_heavy_and_comes_at_once():
    """Within 0.15 s of a CPU, or, where others slow it down, in three times what a start of Python takes then."""
    seconds = []
    for _ in range(10):
        plain, _ = cpu_s_of("import argparse, json, pathlib, subprocess")
        took, printed = cpu_s_of(HELP)
        seconds.append(took)
        shown, _, loaded = printed.partition("\nloaded ")
        assert "--fail-if" in shown and "tare.cli.weigh" in loaded
        assert not HEAVY & {name.split(".")[0] for name in loaded.split()}
        if took < max(0.15, 3 * plain):
            return
    raise AssertionError(f"{seconds} s of a CPU, 0.06 where nothing else runs (load {os.getloadavg()[0]:.1f})")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("frobnicate", "tare: argument COMMAND: invalid choice: 'frobnicate' (choose from "),
        ("wiegh", "tare: argument COMMAND: invalid choice: 'wiegh': did you mean 'weigh'?; `tare --help`"),
        ("rounds", "tare rounds: the following arguments are required: --workload, --environments, --out"),
        ("plan --half-width 5", "tare plan: argument --half-width: 5 is not between 0 and 1; half a per cent is"),
        ("plan --half-width half", "tare plan: argument --half-width: half is not between 0 and 1"),
        ("run --batch many", "tare run: argument --batch: invalid int value: 'many'"),
    ],
)
def test_a_command_line_that_is_wrong_is_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(words.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(says) and said.count("\n") == 1 and said.endswith(" --help` says more\n")


def test_a_place_for_a_file_that_is_none_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["machine", "--out", ""]) == 2
    assert capsys.readouterr().err == "tare: cannot use .: Device or resource busy\n"


def test_an_interpreter_that_there_is_not_is_told_before_any_launch(monkeypatch, capsys):
    monkeypatch.setattr("tare.model.registry.environment", None)
    assert main(["bind-stack", "--python", "/nonexistent"]) == 2
    assert "no program /nonexistent" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["STUDY", "CONFIG"])
def test_a_study_file_that_there_is_not_is_one_line(word):
    command = ["make", "study-file", f"{word}=config/nowhere.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project_root())
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1 and "there is no study file config/nowhere.yaml: there are config/" in said[0]
    assert " config/config.yaml " in said[0]


def test_a_command_whose_reader_has_gone_ends_without_a_word():
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "tare", "plan", "--study", "config/modak2020.yaml"]
    done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=project_root(), check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        (
            "STUDDY=config/smoke.yaml",
            "make knows no variable STUDDY: did you mean 'STUDY'? (known: ALL, BUDGET_S, CONFIG, ",
        ),
        ("minutes=60", "make knows no variable minutes: did you mean 'MINUTES'? (known: "),
        ("SCENARIO=single", "make knows no variable SCENARIO: did you mean 'SCENARIOS'? (known: "),
    ],
)
def test_a_variable_that_make_does_not_know_is_refused_before_anything_is_done(word, says):
    done = subprocess.run(["make", "report", word], capture_output=True, text=True, cwd=project_root(), check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "") and says in line


def test_an_older_python_is_told_so_before_anything_is_imported():
    path = project_root() / "tare/__main__.py"
    code = f"import runpy, sys; sys.version_info = (3, 9, 1); runpy.run_path({str(path)!r}, run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1 and "needs CPython 3.11 to 3.13, and" in ended.stderr


NEEDS = f"Tare needs CPython 3.11 to 3.13, and {sys.executable} is"


@pytest.mark.parametrize(
    ("system", "implementation", "version", "says"),
    [
        ("linux", "CPython", (3, 11, 0), ""),
        ("linux", "CPython", (3, 13, 9), ""),
        ("linux", "CPython", (3, 10, 9), f"{NEEDS} CPython 3.10: "),
        ("linux", "CPython", (3, 14, 0), f"{NEEDS} CPython 3.14: "),
        ("linux", "PyPy", (3, 11, 9), f"{NEEDS} PyPy 3.11: "),
        ("linux", "CPython", (4, 0, 0), f"{NEEDS} CPython 4.0: "),
        ("darwin", "CPython", (3, 12, 0), "Tare runs on Linux, and this is macOS: "),
        ("win32", "CPython", (3, 14, 0), "Tare runs on Linux, and this is Windows: "),
        ("freebsd14", "CPython", (3, 12, 0), "Tare runs on Linux, and this is freebsd14: "),
    ],
)
def test_what_tare_cannot_run_on_is_one_line(monkeypatch, capsys, system, implementation, version, says):
    """Of processors none is refused here: `tare weigh` has nothing that only one of them can do."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "platform", system)
        patched.setattr(sys, "version_info", version)
        patched.setattr(platform, "python_implementation", lambda: implementation)
        patched.setattr(platform, "machine", lambda: "aarch64")
        found = started.unfit()
        status = started.main() if found else None
    assert found.startswith(says) and bool(found) == bool(says) and "\n" not in found
    assert (status, capsys.readouterr().err) == ((3, f"tare: {found}\n") if found else (None, ""))


def test_the_versions_of_python_are_those_of_the_package_and_old_ones_can_read_that():
    project = tomllib.loads((project_root() / "pyproject.toml").read_text())["project"]
    (major, first), (_, last) = started.FIRST, started.LAST
    assert project["requires-python"] == f">={major}.{first},<{major}.{last + 1}"
    assert {(major, minor) for minor in range(first, last + 1)} == set(PYTHONS)
    ast.parse((project_root() / "tare/__main__.py").read_text(), feature_version=(3, 6))


def test_variables_that_make_hands_on_are_no_mistake():
    words = ["TARE_CACHE=/tmp/c", "PIP_INDEX_URL=x", "https_proxy=x", "TMPDIR=/tmp", "STUDY=x", "SCENARIOS=single"]
    done = subprocess.run(["make", "help", *words], capture_output=True, text=True, cwd=project_root(), check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["seed: 5\n", "# study: mine\n"])
def test_a_study_file_without_a_name_is_refused_before_the_set_up(tmp_path, text):
    (tmp_path / "mine.yaml").write_text(text)
    command = ["make", "study-file", f"STUDY={tmp_path}/mine.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project_root(), check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert (
        done.returncode == 2 and len(said) == 1 and said[0].startswith(f"tare: {tmp_path}/mine.yaml: study missing")
    )


MAIN = '\nif __name__ == "__main__":\n'
FOLDERS = ("tare", "envs", "workloads", "snakemake_logger_plugin_tare", "benchmarks", "tests")
RUN = [
    path
    for folder in FOLDERS
    for path in sorted((project_root() / folder).rglob("*.py"))
    if MAIN in path.read_text(encoding="utf-8")
]
# As they are called; others run as files.
MODULES = ("tare/__main__.py", "tare/runtimes/", "tare/images/", "tare/weigh/", "envs/apptainer.py")


def test_the_modules_that_can_be_run_are_found():
    names = {str(path.relative_to(project_root())) for path in RUN}
    assert {"tare/__main__.py", "tare/runtimes/remove.py", "tare/core/guard.py", "benchmarks/proof.py"} <= names


@pytest.mark.parametrize("path", RUN, ids=lambda path: str(path.relative_to(project_root())))
def test_every_module_that_can_be_run_knows_help(path):
    """Benchmarks load what takes seconds; of them it is read that they parse their arguments."""
    name = str(path.relative_to(project_root()))
    if name.startswith("benchmarks/"):
        assert "ArgumentParser(" in path.read_text(encoding="utf-8")
        return
    words = ["-m", name.removesuffix(".py").removesuffix("/__main__").replace("/", ".")]
    words = words if name.startswith(MODULES) else ["-I", name] if not name.startswith("tests/") else [name]
    asked = ask(*words, "--help")
    assert (asked.returncode, asked.stderr) == (0, "") and asked.stdout
    if name.startswith("tests/"):
        return
    for wrong in (["--hlep"], ["--hlep", "x", "y", "z", "a"]):
        refused = ask(*words, *wrong)
        assert refused.returncode == 2
        assert refused.stderr and "Traceback" not in refused.stderr


def ask(*words):
    return subprocess.run(
        [sys.executable, *words], cwd=project_root(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
