"""What a job of a group has made outlives the failure of another."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from tare.core.errors import UserError
from tare.machine import cluster, together
from tare.model.studies.machines import Measured, Nodes


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def made(*names):
    """Outputs of a job: a file, and a folder with a file."""
    for path in map(Path, names):
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(path))


def test_what_was_removed_is_put_back_as_it_was(tmp_path, monkeypatch):
    """From wherever: Snakemake has left the folder of its workflow when its process ends."""
    watched = together.watch(["a.json", "traces"])
    made("a.json", "traces/trace.json")
    made_in = together.made_for()
    watched.keep(made_in)
    then = Path("a.json").stat()
    Path("a.json").unlink()
    shutil.rmtree("traces")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    together.put_back(made_in)
    monkeypatch.chdir(tmp_path)
    now = Path("a.json").stat()
    assert (now.st_mtime_ns, now.st_ino) == (then.st_mtime_ns, then.st_ino)
    assert Path("traces/trace.json").read_text() == "traces/trace.json" and not together.MADE.exists()


def test_what_is_there_is_left_alone():
    watched = together.watch(["a.json"])
    made("a.json")
    watched.keep(together.made_for())
    Path("a.json").unlink()
    Path("a.json").write_text("anew")
    together.put_back(together.made_for())
    assert Path("a.json").read_text() == "anew" and not together.MADE.exists()


@pytest.mark.parametrize("later", [[], ["a.json"]])
def test_a_job_that_has_not_made_all_keeps_nothing(later):
    """And what lay there before it is none of what it made."""
    made("b.json")
    watched = together.watch(["a.json", "b.json"])
    made(*later)
    watched.keep(together.made_for())
    assert not together.MADE.exists()


def test_one_that_was_killed_as_it_kept_is_passed_over():
    place = together.made_for() / "0123"
    place.mkdir(parents=True)
    (place / together.LIST).write_text('{"outputs": ["gone.json"]}')
    together.put_back(together.made_for())
    assert not Path("gone.json").exists() and not together.MADE.exists()


@pytest.mark.parametrize(("minutes", "fits"), [(None, True), (40, True), (39, False)])
def test_jobs_go_together_where_the_sum_of_their_limits_may_be_taken(minutes, fits):
    node = cluster.Node(name="n1", cpus=4, memory_mib=1000, gres="", minutes=minutes, features=(), state="idle")
    machine = Measured(kind="thin", nodes=Nodes(partition="thin"))
    assert cluster.go_together(machine, node, [1.0, 400.0, 0.0]) is fits, "10, 20 and 10 minutes"


def test_what_another_workflow_keeps_is_left_to_it_but_for_what_is_old(monkeypatch):
    watched = together.watch(["a.json"])
    made("a.json")
    monkeypatch.setenv(together.SENDER, "1:2")
    first = together.made_for()
    watched.keep(first)
    Path("a.json").unlink()
    monkeypatch.setenv(together.SENDER, "3:4")
    together.put_back(together.made_for())
    assert not Path("a.json").exists() and first.exists()
    together.put_back(first)
    assert Path("a.json").exists()
    watched.keep(first)
    first.mkdir(parents=True, exist_ok=True)
    os.utime(first, (0, 0))
    together.put_back(together.made_for())
    assert not together.MADE.exists()


@pytest.mark.parametrize(
    ("jobs", "variables", "pays"),
    [
        (200, {}, False),
        (201, {}, True),
        (9, {"TARE_SMALL_JOBS": "together"}, True),
        (999, {"TARE_SMALL_JOBS": "alone"}, False),
    ],
)
def test_small_jobs_go_together_where_there_are_many_or_as_it_is_said(jobs, variables, pays):
    assert cluster.pays_together(jobs, variables) is pays


def test_a_word_that_says_neither_is_refused():
    with pytest.raises(UserError, match="TARE_SMALL_JOBS: it is 'both': give `together` or `alone`"):
        cluster.pays_together(1, {"TARE_SMALL_JOBS": "both"})


@pytest.mark.parametrize(
    ("account", "told", "refused"),
    [
        ("mine", r"mine\nother\n", None),
        ("Mine", r"mine\nother\n", None),
        ("mine", "", None),
        (None, r"other\n", None),
        ("mine", r"other\nother\nthird\n", "has no account mine in Slurm: name one of other, third"),
    ],
)
def test_an_account_that_slurm_does_not_know_of_this_user_is_refused(tmp_path, monkeypatch, account, told, refused):
    sacctmgr = tmp_path / "sacctmgr"
    sacctmgr.write_text(f"#!/bin/sh\nprintf '{told}'\n")
    sacctmgr.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    machine = Measured(kind="thin", nodes=Nodes(partition="thin", account=account))
    with pytest.raises(UserError, match=refused) if refused else contextlib.nullcontext():
        cluster.refuse_unknown_account(machine)
