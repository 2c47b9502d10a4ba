"""Copies of the host's files for its control, and pages that are drawn anew, on small files of our own."""

import mmap
import os
import shutil
import subprocess
from pathlib import Path

import fakes
import pytest

from tare.core import store
from tare.experiments import rounds
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.launch.pages import CodeFiles, draw_anew, drop, of_whole_runs, read_again, resident
from tare.launch.place import Site
from tare.launch.sites import control_site
from tare.launch.slicing.freezing import hold
from tare.model.journals.sealed import read_rows
from tare.model.registry import HOST, environment
from tare.model.roles import CONTROL

KEY = "fedcba9876543210" * 2
PAGES = 8


@pytest.fixture
def host(tmp_path):
    """A site of the host whose form is a library and a program."""

    def make(folder):
        (folder / "bin").mkdir()
        (folder / "bin" / "python3").write_bytes(b"x" * mmap.PAGESIZE)
        (folder / "bin" / "python3").chmod(0o755)
        (folder / "library.so.1").write_bytes(b"y" * mmap.PAGESIZE * PAGES)
        (folder / "module.pyc").write_bytes(b"z")
        return {}

    kept = store.keep(tmp_path, KEY, make, what="making it")
    python = str(kept.path / "bin" / "python3")
    return Site(environment=environment(HOST), python=python, reference=str(kept.path), data=None)


def pages_of(path):
    with path.open("rb") as handle:
        return resident(handle.fileno(), os.fstat(handle.fileno()).st_size)


def test_the_control_launches_from_a_copy(host, tmp_path):
    control, told = control_site(host)
    assert told == {"files": "own copy"}
    assert control.python == str(tmp_path / store.copy_key(KEY) / "bin" / "python3")
    assert len(control.python) == len(host.python) and control.reference != host.reference
    assert not Path(control.python).samefile(host.python)


def test_without_room_the_control_shares_the_files_and_one_line_says_so(host, monkeypatch, capsys):
    usage = store.shutil.disk_usage(host.reference)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: usage._replace(free=0))
    control, told = control_site(host)
    assert control == host and told["files"] == "shared" and "no room" in told["reason"]
    line = [line for line in capsys.readouterr().out.splitlines() if CONTROL in line]
    assert len(line) == 1 and "the host's own files" in line[0]


def test_an_installation_of_the_machine_is_not_copied(host):
    bound = Site(environment=host.environment, python="/usr/bin/env", reference="/usr/bin/env", data=None)
    control, told = control_site(bound)
    assert control == bound and "this machine's own installation" in told["reason"]


def test_pages_of_a_file_are_dropped_written_back_first(tmp_path):
    path = tmp_path / "library.so"
    path.write_bytes(b"y" * mmap.PAGESIZE * PAGES)
    before = pages_of(path)
    if drop(path)[1]:
        pytest.skip(f"{tmp_path} is on a file system in memory, whose pages are the file")
    assert (before, pages_of(path)) == (PAGES, 0)


def test_what_launches_map_is_dropped_and_what_others_map_is_told(host):
    library, module = (Path(host.reference) / name for name in ("library.so.1", "module.pyc"))
    assert library.read_bytes() and module.read_bytes()
    told = draw_anew({HOST: host, f"{HOST}.headline": host}, "warm")
    if pages_of(library):
        pytest.skip("the file system is in memory, whose pages are the file")
    assert told == {HOST: "drawn anew", f"{HOST}.headline": "drawn anew"}
    assert pages_of(module) == 1  # it is read, never mapped
    with library.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) == PAGES * ord("y")
        assert draw_anew({HOST: host}, "warm")[HOST].startswith("kept: ")


def test_files_that_cannot_be_opened_are_told(host, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    told = draw_anew({HOST: host}, "cold")[HOST]
    assert told.startswith("kept: ") and told.endswith("can't be opened (Permission denied)")


def test_nothing_is_touched_where_the_page_cache_is_left_as_found(host):
    library = Path(host.reference) / "library.so.1"
    library.read_bytes()
    assert draw_anew({HOST: host}, "as_found")[HOST] == "kept: the study leaves the page cache as found"
    assert pages_of(library) == PAGES


@pytest.mark.parametrize(
    ("condition", "told"), [("cold", "drawn anew"), ("warm", "kept: "), ("as_found", "kept: ")]
)
def test_whole_runs_have_new_pages_where_each_starts_cold(condition, told):
    assert of_whole_runs(condition).startswith(told)


def test_what_is_dropped_before_a_round_is_read_again_at_once(host):
    library, module = (Path(host.reference) / name for name in ("library.so.1", "module.pyc"))
    assert library.read_bytes() and module.read_bytes()
    told = read_again({HOST: host}, "warm")
    if told[HOST] != "drawn anew":
        pytest.skip(f"the pages of this file system can't be dropped: {told[HOST]}")
    assert (pages_of(library), pages_of(module)) == (PAGES, 1)
    assert read_again({HOST: host}, "as_found")[HOST] == "kept: the study leaves the page cache as found"


@pytest.mark.usefixtures("launch_cache")
def test_every_round_says_what_became_of_the_pages(tmp_path):
    sites = {name: fakes.site(fakes.Fake(tmp_path)) for name in (HOST, CONTROL)}
    setup = Setup(
        study=fakes.study(units=2), workload="mnist_cnn", sites=sites, provenance={"control": {"files": "shared"}}
    )
    run_campaign(tmp_path / "c", rounds.rounds(setup))
    first, *others = read_rows(tmp_path / "c").units
    assert {tuple(sorted(unit.pages)) for unit in (first, *others)} == {(HOST, CONTROL)}
    assert all(told.startswith("kept: ") for told in first.pages.values()), "it is what brings them in"
    assert {told for unit in others for told in unit.pages.values()} == {"kept: it has no files of its own"}


def test_what_a_job_runs_code_from_is_seen_and_drawn_anew(tmp_path):
    program = tmp_path / "sleep"
    shutil.copy(shutil.which("sleep"), program)
    with subprocess.Popen([program, "60"]) as job:
        try:
            holder = hold([job.pid], "tare-test-mapped", [])
            while str(program) not in (seen := holder.mapped()):
                assert job.poll() is None
            holder.close()
        finally:
            job.kill()
    assert not any(path.startswith("[") for path in seen), "no file: the kernel's own pages"
    code = CodeFiles(seen={HOST: {str(program), str(tmp_path / "gone")}})
    code.draw_anew(HOST, os.getpid())
    if code.told[HOST] != "drawn anew":
        pytest.skip(f"the pages of this file system can't be dropped: {code.told[HOST]}")
    assert pages_of(program) == -(-program.stat().st_size // mmap.PAGESIZE), "read again"
    code.draw_anew("docker", os.getpid())
    assert code.told["docker"].startswith("kept: ")
