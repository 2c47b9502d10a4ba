"""The store: made once, never used without its hash, whole or not there, one maker at a time."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.core import manifest, store
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import project_root, read_json, sha256_file, sha256_text
from tare.images import build

KEY = "k"


class Maker:
    """Writes a file, a program and a link; counts."""

    def __init__(self):
        self.calls = 0

    def __call__(self, folder):
        self.calls += 1
        assert list(folder.iterdir()) == []
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("content")
        (folder / "program").write_text("#!/bin/sh\n")
        (folder / "program").chmod(0o755)
        (folder / "link").symlink_to("deep")
        return {"seconds": {"make": 1.5}}


@pytest.fixture
def make():
    return Maker()


def kept(tmp_path, make, **options):
    return store.keep(tmp_path, KEY, make, what="making it", **options)


@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_whole_is_made_once_and_told_alike(tmp_path, make, in_place):
    first = kept(tmp_path, make, in_place=in_place)
    again = kept(tmp_path, make, in_place=in_place)
    assert make.calls == 1 and not first.cached and again.cached
    assert (first.path, first.about, first.entries, first.digest) == (
        tmp_path / KEY,
        {"seconds": {"make": 1.5}},
        again.entries,
        again.digest,
    )
    assert [entry["path"] for entry in first.entries] == ["deep/file", "link", "program"]
    assert first.size_bytes == len("content") + len("#!/bin/sh\n")
    assert store.find(tmp_path, KEY) == again and store.find(tmp_path, "other") is None
    assert first.digest == store.keep(tmp_path, "other", make, what="making another").digest


def damage(folder, how):
    match how:
        case "edit with its old time":
            before = (folder / "deep/file").stat()
            (folder / "deep/file").write_text("CONTENT")
            os.utime(folder / "deep/file", ns=(before.st_atime_ns, before.st_mtime_ns))
        case "add":
            (folder / "added").touch()
        case "remove":
            (folder / "program").unlink()
        case "mode":
            (folder / "program").chmod(0o644)
        case "turn a link":
            (folder / "link").unlink()
            (folder / "link").symlink_to("/")
        case "lose the record":
            folder.with_name(f"{KEY}.json").unlink()
        case "cut the record short":
            folder.with_name(f"{KEY}.json").write_text('{"digest": "sha2')
        case "lose the folder":
            folder.rename(folder.with_name("elsewhere"))


DAMAGES = [
    "edit with its old time", "add", "remove", "mode", "turn a link", "lose the record", "cut the record short",
    "lose the folder",
]  # fmt: skip


@pytest.mark.parametrize("how", DAMAGES)
def test_what_was_changed_is_not_handed_out_and_made_again(tmp_path, make, how):
    first = kept(tmp_path, make)
    damage(first.path, how)
    assert store.find(tmp_path, KEY) is None
    again = kept(tmp_path, make)
    assert make.calls == 2 and not again.cached and again.digest == first.digest


def test_contents_are_hashed_once_and_again_only_when_one_was_touched(tmp_path, make, monkeypatch):
    kept(tmp_path, make)
    hashed = []
    monkeypatch.setattr(manifest, "sha256_file", lambda path: hashed.append(path.name) or sha256_file(path))
    assert kept(tmp_path, make).cached and hashed == []
    os.utime(tmp_path / KEY / "program")
    assert kept(tmp_path, make).cached and sorted(hashed) == ["file", "program"]
    assert kept(tmp_path, make).cached and len(hashed) == 2


@pytest.mark.parametrize("in_place", [False, True])
def test_what_fails_leaves_nothing_that_could_be_taken_for_whole(tmp_path, make, in_place):
    def fail(folder):
        make(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        kept(tmp_path, fail, in_place=in_place)
    assert [path.name for path in tmp_path.iterdir()] == [f".{KEY}.lock"]
    assert not kept(tmp_path, make, in_place=in_place).cached


KILLED = """
import sys, time
from pathlib import Path
from tare.core import store
def make(folder):
    (folder / "half").write_text("half")
    print("making", flush=True)
    time.sleep(600)
store.keep(Path(sys.argv[1]), sys.argv[3], make, what="making it", in_place=sys.argv[2] == "True")
"""


@contextlib.contextmanager
def maker(folder, in_place, key=KEY):
    """Another process that is making an entry."""
    argv = [sys.executable, "-c", KILLED, str(folder), str(in_place), key]
    with subprocess.Popen(argv, cwd=project_root(), stdout=subprocess.PIPE, text=True) as process:
        try:
            while process.stdout.readline() != "making\n":
                assert process.poll() is None
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_maker_that_is_killed_frees_the_entry_and_leaves_no_half(tmp_path, make, in_place):
    with maker(tmp_path, in_place) as process:
        process.kill()
    started = time.monotonic()
    assert not kept(tmp_path, make, in_place=in_place).cached
    assert time.monotonic() - started < 120, "it waited for a maker that is gone"
    assert not list(tmp_path.rglob("half")) and read_json(tmp_path / f"{KEY}.json")["entries"]


def make_other(folder, make):
    return store.keep(folder, "other", make, what="making another")


def begin_images(folder, make):
    build.clear_unfinished()


@pytest.mark.parametrize(
    ("begin", "place"), [(make_other, "k"), (begin_images, "trees"), (begin_images, "forms/a")]
)
@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_killed_maker_left_goes_with_the_next_making_and_nothing_else(
    tmp_path, make, monkeypatch, in_place, begin, place
):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    folder = tmp_path / place
    store.keep(folder, "whole", make, what="making it")
    for name in (".notes.making.mine", "mine", ".locked.making.mine/half", "trial"):  # of nobody's entry, or used
        (folder / name).mkdir(parents=True)
    (folder / ".beside.lock").touch()
    with maker(folder, in_place, "killed") as killed, maker(folder, in_place, "living"):
        killed.kill()
        killed.wait()
        before = {path.name for path in folder.iterdir()}
        begin(folder, make)
        gone = before - {path.name for path in folder.iterdir()}
        halves = [path for path in folder.rglob("half") if path.is_file()]
    assert gone == {name for name in before if name == "killed" or name.startswith(".killed.making.")} != set()
    assert len(halves) == 1 and "living" in str(halves[0]) and store.find(folder, "whole") is not None


def test_keys_follow_every_input():
    assert store.key_of(1, "a") == store.key_of(1, "a") != store.key_of(1, "b")
    assert len(store.key_of()) == 32


@pytest.fixture
def stuck(tmp_path, monkeypatch):
    """An entry of which one file can't be removed."""
    folder = tmp_path / KEY / "deep"
    folder.mkdir(parents=True)
    (folder / "busy").touch()
    unlink = os.unlink

    def refusing(path, *args, **options):
        if Path(path).name == "busy":
            raise OSError(16, "Device or resource busy", path)
        unlink(path, *args, **options)

    monkeypatch.setattr(os, "unlink", refusing)
    return tmp_path / KEY


def test_what_can_not_be_removed_is_said_in_one_line(tmp_path, stuck, capsys):
    store.forget(tmp_path, KEY)
    said = capsys.readouterr().out.strip()
    assert said == f"{stuck} can't be removed ([Errno 16] Device or resource busy: 'busy'); remove it by hand"


@pytest.mark.parametrize("in_place", [False, True])
def test_what_stands_in_the_way_ends_the_making_before_it_begins(tmp_path, stuck, make, in_place):
    with pytest.raises(UnavailableError, match=f"{stuck} is in the way of making it"):
        kept(tmp_path, make, in_place=in_place)
    assert make.calls == 0


# Second copies.

LONG = "0123456789abcdef" * 2


@pytest.fixture
def first(tmp_path):
    """An entry of which one file holds the entry's own path, as bytecode of a virtual environment does."""

    def make(folder):
        (folder / "deep").mkdir()
        (folder / "deep" / "library.so").write_bytes(bytes(range(256)) * 64)
        (folder / "deep" / "empty").touch()
        (folder / "script").write_text(f"#!{tmp_path}/{LONG}/bin/python, {LONG}\n")
        (folder / "script").chmod(0o755)
        os.utime(folder / "script", (1577836800, 1577836800))
        (folder / "link").symlink_to("deep")
        return {}

    return store.keep(tmp_path, LONG, make, what="making it")


def test_a_second_copy_has_equal_content_inodes_of_its_own_and_a_path_of_equal_length(first):
    copy = store.second_copy(first, "it")
    assert copy.path.parent == first.path.parent and copy.path != first.path
    assert len(str(copy.path)) == len(str(first.path))
    library = "deep/library.so"
    assert (copy.path / library).read_bytes() == (first.path / library).read_bytes()
    assert (copy.path / library).stat().st_ino != (first.path / library).stat().st_ino
    assert (copy.path / "link").readlink() == Path("deep")
    assert (copy.path / "script").read_text() == (first.path / "script").read_text().replace(LONG, copy.key)
    ours, theirs = (found.path / "script" for found in (copy, first))
    assert (ours.stat().st_mtime, ours.stat().st_mode) == (theirs.stat().st_mtime, theirs.stat().st_mode)
    others = [[entry for entry in found.entries if entry["path"] != "script"] for found in (copy, first)]
    assert others[0] == others[1] and copy.about == {"copy_of": first.digest, "holds_own_path": 1}
    assert store.second_copy(first, "it").cached


def test_a_damaged_second_copy_is_made_again_and_goes_with_the_first(first, capsys):
    copy = store.second_copy(first, "it")
    (copy.path / "deep" / "library.so").write_bytes(b"other")
    again = store.second_copy(first, "it")
    assert not again.cached and "is damaged" in capsys.readouterr().out
    store.forget(first.path.parent, first.key)
    assert store.find(again.path.parent, again.key) is None and not again.path.exists()


def test_where_there_is_no_room_for_a_copy_the_line_says_so(first, monkeypatch):
    usage = store.shutil.disk_usage(first.path)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    with pytest.raises(UnavailableError, match=r"there is no room for its 0\.0 GB in ") as caught:
        store.second_copy(first, "it")
    assert "\n" not in str(caught.value)
    assert list(first.path.parent.glob(f"{store.copy_key(LONG)}*")) == []


def test_a_disk_that_fills_up_while_it_is_copied_leaves_one_line_and_no_half(first, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "cp"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho \"cp: error writing 'x': No space left on device\" >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    with pytest.raises(UnavailableError, match="cp found no space left: free some") as caught:
        store.second_copy(first, "it")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.glob(f"*{store.copy_key(LONG)}*")) == [tmp_path / f".{store.copy_key(LONG)}.lock"]


def test_where_nothing_can_be_written_the_line_says_so(first, monkeypatch):
    def refuse(path, **rest):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(store, "locked", refuse)
    with pytest.raises(UnavailableError, match="can't be written: Read-only file system"):
        store.second_copy(first, "it")


def test_a_copy_that_is_not_what_was_read_is_refused(first, monkeypatch):
    monkeypatch.setattr(store, "_rename", lambda path, old, new: bool(path.write_bytes(b"rotten")))
    with pytest.raises(IntegrityError, match="is not what was read"):
        store.second_copy(first, "it")
    assert store.find(first.path.parent, store.copy_key(LONG)) is None


def test_what_the_file_system_says_is_one_hash_of_every_file_and_link_by_its_path(tmp_path):
    for name in ("b/two", "b/a/one", "zero", "empty"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "to-a-folder").symlink_to("b/a")
    (tmp_path / "empty").unlink()
    (tmp_path / "empty").mkdir()

    def line(name):
        status = (tmp_path / name).lstat()
        fields = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return f"{name if '/' in name else f'./{name}'} {fields}"

    lines = [line(name) for name in ("to-a-folder", "zero", "b/two", "b/a/one")]
    before = manifest.stat_digest(tmp_path)
    assert before == sha256_text("\n".join(lines))
    (tmp_path / "b/a/one").chmod(0o600)
    assert manifest.stat_digest(tmp_path) != before
