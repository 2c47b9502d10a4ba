"""What is missing is named at once, with a command that works where it is read."""

import sys

import pytest

from tare.cli.main import main
from tare.core import remedies
from tare.core.errors import UserError
from tare.core.files import project_root

DEFAULT = str(project_root() / "config/config.yaml")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder without results, and nobody else who measures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    return tmp_path


def test_a_launch_in_a_fresh_clone_names_all_that_is_missing_and_what_makes_it(clone, capsys):
    assert main(["run", "--env", "docker", "--workload", "mnist_cnn", "--study", DEFAULT]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    image, data = "results/images/torch-2.13/docker.json", "results/data/mnist.json"
    assert f"no {image} and no {data} so far: make them with `" in line
    assert line.endswith(f"snakemake --cores 1 {image} {data}`")


def test_an_environment_that_there_is_not_is_no_missing_record(clone, capsys):
    assert main(["run", "--env", "dokcer", "--workload", "mnist_cnn", "--study", DEFAULT]) == 2
    assert "did you mean 'docker'" in capsys.readouterr().err


def test_what_is_there_is_not_named(tmp_path):
    (tmp_path / "there").touch()
    remedies.require([tmp_path / "there"])
    with pytest.raises(UserError, match=r"no \S+/gone so far: make it with `[^`]*snakemake --cores 1 \S+/gone`"):
        remedies.require([tmp_path / "there", tmp_path / "gone", tmp_path / "gone"])


def test_a_program_is_called_by_its_name_where_that_is_found(tmp_path, monkeypatch):
    program = tmp_path / "with space/bin/snakemake"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", str(program.parent))
    assert remedies.own_program("snakemake") == "snakemake"
    monkeypatch.setenv("PATH", "/nowhere")
    assert remedies.own_program("snakemake") == f"'{program}'"
    monkeypatch.chdir(tmp_path)
    assert remedies.own_program("snakemake") == "'with space/bin/snakemake'"
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert remedies.own_program("snakemake") == "snakemake"
