"""Copies of the host's files for its control, and pages that are drawn anew, on small files of our own."""

import mmap
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import fakes
import pytest

from tare.core import store
from tare.core.errors import UnavailableError
from tare.experiments import rounds
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.launch import pages
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


@pytest.fixture
def on_disk(tmp_path):
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", tmp_path], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    if kind.strip() in ("tmpfs", "ramfs"):
        pytest.skip(f"{tmp_path} is on a file system in memory, whose pages are the file")


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


@pytest.mark.usefixtures("on_disk")
def test_pages_of_a_file_are_dropped_written_back_first(tmp_path):
    path = tmp_path / "library.so"
    path.write_bytes(b"y" * (mmap.PAGESIZE * PAGES + 1))
    assert pages_of(path) == PAGES + 1
    assert drop(path) == (PAGES + 1, 0) and pages_of(path) == 0
    path.write_bytes(b"")
    assert drop(path) == (0, 0)


@pytest.mark.parametrize(("seen", "told", "twice"), [([8, 0], (8, 0), False), ([8, 3, 1], (8, 1), True)])
def test_what_stays_is_written_back_and_dropped_once_more(tmp_path, monkeypatch, seen, told, twice):
    path, calls, sizes = tmp_path / "it", [], iter(seen)
    path.write_bytes(b"12345")
    monkeypatch.setattr(pages, "resident", lambda handle, size: calls.append(size) or next(sizes))
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, *asked: calls.append(asked))
    monkeypatch.setattr(os, "fdatasync", lambda handle: calls.append("written"))
    once = [(0, 0, os.POSIX_FADV_DONTNEED), 5]
    assert drop(path) == told
    assert calls == [5, *once, *(["written", *once] if twice else [])]


def test_a_file_that_cannot_be_mapped_is_an_error(monkeypatch):
    with pytest.raises(OSError, match="Bad file descriptor"):
        resident(-1, 10)
    unmapped = []
    libc = SimpleNamespace(
        mmap=lambda *_: 4096, mincore=lambda *_: -1, munmap=lambda address, size: unmapped.append((address, size))
    )
    monkeypatch.setattr(pages, "_libc", libc)
    with pytest.raises(OSError):
        resident(0, 10)
    assert unmapped == [(4096, 10)]


@pytest.mark.parametrize(
    ("drops", "told"),
    [
        ([], "drawn anew"),
        ([(10, 0), (90, 1)], "drawn anew"),
        ([(10, 1), (90, 1)], "kept: 2% "),
        ([(0, 0)], "drawn anew"),
    ],
)
def test_a_hundredth_of_the_pages_may_stay(tmp_path, monkeypatch, drops, told):
    """Of what launches map, and of what a job runs code from."""
    left, read = iter([*drops, *drops]), []
    paths = [tmp_path / str(number) for number in range(len(drops))]
    for path in paths:
        path.write_bytes(b"123")
    monkeypatch.setattr(pages, "drop", lambda path: next(left))
    monkeypatch.setattr(pages, "_read", read.append)
    monkeypatch.setattr(pages, "_mapped", lambda environment, reference, folders: paths)
    site = Site(environment=environment(HOST), reference="/x")
    assert draw_anew({HOST: site}, "warm")[HOST].startswith(told) and read == []
    if drops:
        assert CodeFiles()._drawn(paths, set()).startswith(told)
        assert read == [path for path, (before, _) in zip(paths, drops, strict=True) if before], "as it was"


def test_code_of_a_job_is_drawn_anew_unless_it_is_its_own_or_too_much(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")
    paths = [tmp_path / name for name in ("a", "b", "gone")]
    monkeypatch.setattr(pages, "drop", lambda path: (0, 0))
    device = paths[0].stat().st_dev
    assert CodeFiles()._drawn(paths, {device + 1}) == "drawn anew"
    alone, unseen = CodeFiles()._drawn(paths, {device}), CodeFiles()._drawn(paths[2:], {device})
    assert alone.startswith("kept: they are") and unseen.startswith("kept: what it runs")
    monkeypatch.setattr(pages, "MOST_BYTES", 5)
    assert CodeFiles()._drawn(paths, set()) == "drawn anew"
    monkeypatch.setattr(pages, "MOST_BYTES", 4)
    assert CodeFiles()._drawn(paths, set()).startswith("kept: it runs code from more than")


def test_what_is_mounted_for_a_process_anew_is_known_by_its_kind(tmp_path):
    (tmp_path / "mountinfo").write_text(
        "36 35 98:7 / /image rw shared:1 master:2 - fuse.squashfuse squashfuse ro\n"
        "37 35 7:3 / /other ro - squashfs /dev/loop3 ro\n"
        "38 35 8:1 / / rw - ext4 /dev/fuse rw\n"
    )
    assert pages._mounted_anew(tmp_path) == {os.makedev(98, 7), os.makedev(7, 3)}


def test_libraries_and_programs_are_what_launches_map(tmp_path):
    for name, text, mode in (
        ("form/lib/a.so.1", "x", 0o644), ("form/bin/run", "x", 0o755), ("form/lib/module.py", "x", 0o644),
        ("form/lib/empty.so", "", 0o755), ("form/lib/group", "x", 0o655), ("image.sif", "x", 0o644),
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    (tmp_path / "form/lib/link.so").symlink_to("a.so.1")
    (tmp_path / "form/lib/folder.so").mkdir()
    places = SimpleNamespace(places=lambda prepared: [Path(prepared.reference)])
    find = pages._mapped.__wrapped__
    form = {tmp_path / "form/lib/a.so.1", tmp_path / "form/bin/run"}
    assert set(find(places, str(tmp_path / "form"), ())) == form
    assert set(find(places, str(tmp_path / "image.sif"), (tmp_path / "form",))) == {tmp_path / "image.sif", *form}
    with pytest.raises(OSError, match="No such file"):
        find(places, str(tmp_path / "gone"), ())


@pytest.mark.parametrize(
    ("reference", "page_cache", "read"),
    [("/x", "warm", ["a"]), ("/x", "_".join(["as", "found"]), []), (None, "warm", []), ("/gone", "warm", [])],
)
def test_only_what_was_drawn_anew_is_read_again(monkeypatch, reference, page_cache, read):
    def mapped(environment, reference, folders):
        if reference == "/gone":
            raise UnavailableError("it has no separate files")
        return ["a"]

    found = []
    monkeypatch.setattr(pages, "_mapped", mapped)
    monkeypatch.setattr(pages, "_read", found.append)
    monkeypatch.setattr(pages, "drop", lambda path: (1, 0))
    told = read_again({"it": Site(environment=environment(HOST), reference=reference)}, page_cache)
    assert found == read and (told["it"] == "drawn anew") == bool(read)
    assert told["it"].startswith("kept: it has no separate files") == (page_cache == "warm" and not read)


@pytest.mark.usefixtures("on_disk")
def test_what_launches_map_is_dropped_and_what_others_map_is_told(host):
    library, module = (Path(host.reference) / name for name in ("library.so.1", "module.pyc"))
    assert library.read_bytes() and module.read_bytes()
    told = draw_anew({HOST: host, f"{HOST}.headline": host}, "warm")
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


@pytest.mark.usefixtures("on_disk")
def test_what_is_dropped_before_a_round_is_read_again_at_once(host):
    library, module = (Path(host.reference) / name for name in ("library.so.1", "module.pyc"))
    assert library.read_bytes() and module.read_bytes()
    told = read_again({HOST: host}, "warm")
    assert told[HOST] == "drawn anew"
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
    assert {told for unit in others for told in unit.pages.values()} == {"kept: it has no separate files"}


@pytest.mark.usefixtures("on_disk")
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
    assert code.outcomes[HOST] == "drawn anew"
    assert pages_of(program) == -(-program.stat().st_size // mmap.PAGESIZE), "read again"
    code.draw_anew("docker", os.getpid())
    assert code.outcomes["docker"].startswith("kept: ")
    code.draw_anew("podman", job.pid)
    assert code.outcomes["podman"].startswith("kept: ") and "can't be opened" in code.outcomes["podman"]
