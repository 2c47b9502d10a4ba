"""A disk that is full when something is written: one line that names the file, nothing half, and it carries on.

Also: set-up in test_bootstrap.py; unpacking in test_tiny_imagenet.py; a second copy in test_store.py; programs
that find it full in test_process.py; forms of images in test_images.py.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from asked import CONDITIONS
from test_launch import SPEC, Bare, site_of
from test_oci import CONFIG, Registry
from test_stacks import installer, make_stack, make_wheel, sha256  # noqa: F401

from tare.cli.main import main
from tare.core import files, store
from tare.core.errors import TareError, UnavailableError, explain_os_error
from tare.core.files import project_root
from tare.images import wheels
from tare.images.oci import FolderLayer, assemble
from tare.images.pull import Repository, pull
from tare.launch.run import launch
from tare.model import tables
from tare.model.journals.sealed import UNITS, read_sealed
from tare.model.studies.layout import SEALED
from tare.report import figures, notebooks
from tare.report.figures import style
from tare.report.pages import write_overview

TESTS = project_root() / "tests"


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A folder in which each file that is to be written whole leads to a device that is always full."""
    folder = tmp_path / "full"
    folder.mkdir()

    def lead(prefix, dir):
        path = Path(dir, f"{prefix}leads")
        path.symlink_to("/dev/full")
        return os.open(path, os.O_WRONLY), str(path)

    monkeypatch.setattr(files.tempfile, "mkstemp", lead)
    monkeypatch.setattr(Path, "chmod", lambda path, mode: pytest.fail(f"{path} was written"))
    return folder


WRITERS = {
    "record.json": lambda path, _: files.write_json(path, {"a": 1}),
    "metrics.parquet": lambda path, evidence: tables.write("metrics", evidence.metrics, path),
    "metrics.csv": lambda path, evidence: tables.write("metrics", evidence.metrics, path),
    "figure.svg": lambda path, _: figures.write(style.empty("a figure", "nothing to draw"), path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_whatever_is_written_whole_names_its_file_and_leaves_nothing(name, full, evidence):
    with pytest.raises(OSError, match="No space left on device") as caught:
        WRITERS[name](full / name, evidence)
    line = explain_os_error(caught.value)
    assert line == f"no space left while writing {full / name}: free some, or point TARE_CACHE at a larger disk"
    assert list(full.iterdir()) == []


def test_a_command_says_so_in_one_line(full, capsys):
    assert main(["machine", "--out", str(full / "machine.json")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tare: no space left while writing {full / 'machine.json'}: ") and said.count("\n") == 1


def test_a_download_that_finds_no_room_says_how_much_it_needs(server, data_cache, monkeypatch):
    from data_server import dataset, https_source

    from tare.datasets import fetch

    usage = fetch.shutil.disk_usage(data_cache.parent)
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(UnavailableError, match=r"has 0 MB, and .* has 0 MB free: free some, or point TARE_CACHE"):
        fetch.fetch(dataset(https_source(f"{server.base}/ok/a")))
    assert not list(data_cache.rglob("*.json")) and not list((data_cache / "data/partial").iterdir())


CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC_PRIVATE = 0x44000


def mount_small(folder, kib):
    """Put a disk of so many KiB there, which this process and those that it starts see."""
    libc, uid = ctypes.CDLL(None, use_errno=True), os.getuid()
    done = libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if uid else 0))
    if uid:
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    done |= libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
    done |= libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, f"size={kib}k".encode())
    if done:
        raise AssertionError(f"no disk of its own: {os.strerror(ctypes.get_errno())}")


@pytest.fixture
def small(tmp_path):
    """Does something in a process of its own on a disk of so many KiB; what a command would say of its failure."""

    def line(kib, act, disk=tmp_path / "disk"):
        disk.mkdir(exist_ok=True)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            said = "nothing"
            try:
                mount_small(disk, kib)
                act(disk)
            except TareError as error:
                said = str(error)
            except OSError as error:
                said = explain_os_error(error) or repr(error)
            except BaseException as error:
                said = repr(error)
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as handle:
            said = handle.read()
        os.waitpid(child, 0)
        return said

    return line


def full_line(path):
    return f"no space left while writing {path}: free some, or point TARE_CACHE at a larger disk"


def test_an_image_that_finds_no_room_names_its_folder_and_leaves_nothing(small, tmp_path):
    layer = FolderLayer(entries=[{"path": "large", "text": "x" * 200_000, "mode": 0o644}], made_by="a test")

    def make(disk):
        try:
            store.keep(
                disk,
                "key",
                lambda folder: assemble([layer], config=CONFIG, labels={}, name="a", folder=folder),
                what="making an image",
            )
        finally:
            assert not [path for path in disk.iterdir() if not path.name.endswith(store.LOCK)]

    assert small(64, make) == full_line(tmp_path / "disk/key")


def test_a_layer_from_a_registry_that_finds_no_room_is_not_one_that_cannot_be_read(small, tmp_path):
    with Registry(("large", os.urandom(200_000))) as registry:
        image = Repository(host=registry.host, name="tiny", timeout_s=10, scheme="http")
        line = small(64, lambda disk: pull(image, registry.index, disk))
    assert re.fullmatch(
        re.escape(full_line("PATH")).replace("PATH", rf"{tmp_path}/disk/[0-9a-f]{{64}}\.tar"), line
    ), line


def test_wheels_that_find_no_room_name_their_folder(small, tmp_path, installer, monkeypatch):  # noqa: F811
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "disk"))
    wheel = make_wheel(installer)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("demo/large", os.urandom(1 << 20))
    stack = make_stack(tmp_path / "stack", sha256(wheel))
    line = small(512, lambda _: wheels.fetch_wheels(stack))
    assert re.match(
        rf"{tmp_path}/disk/wheels/\S+ or /\S+ is full: \S+ found no space left: free some, or point", line
    ), line
    assert "\n" not in line


@pytest.mark.parametrize(("kib", "says"), [(4, "spec.json"), (8, "its own files are in")])
def test_a_launch_that_finds_no_room_names_its_folder(small, launch_cache, kib, says):
    def act(_):
        raise UnavailableError(launch(site_of(Bare()), SPEC, CONDITIONS).reason)

    line = small(kib, act, launch_cache / "launches")
    assert says in line and f"{launch_cache}/launches/tare-" in line and "\n" not in line
    assert "no space left" in line and "free some, or point TARE_CACHE" in line


def test_a_notebook_and_a_page_that_find_no_room_are_named(small, tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "notebooks").mkdir(parents=True)
    cells = [nbformat.v4.new_code_cell("results = workloads = None", metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell("print('x' * 100_000)")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), root / "notebooks/large.ipynb")
    monkeypatch.setattr(notebooks, "data_root", lambda: root)
    line = small(64, lambda disk: notebooks.execute_all(["large"], tmp_path, [], disk / "out"))
    assert line == full_line(tmp_path / "disk/out/large.ipynb")
    assert small(4, write_overview) == full_line(tmp_path / "disk/studies.html")


# A campaign on a disk of its own, on which two pages are free beside its plan: a row of its journal is cut in two.
SMALL_DISK = """
mount -t tmpfs -o size=256k tmpfs disk
mkdir disk/campaign
dd if=/dev/zero of=disk/filler bs=4k 2> /dev/null || true
truncate -s -12k disk/filler
"$@" > first 2>&1 && exit 1
cp disk/campaign/units.jsonl torn
rm disk/filler
"$@" > second 2>&1
cp -r disk/campaign whole
"""
MEASURE = """
import sys
from pathlib import Path

import quick_campaign

from tare.core.errors import explain_os_error

try:
    quick_campaign.main(Path("disk/campaign/sealed.json"), Path("notes"), 14)
except OSError as error:
    sys.exit(explain_os_error(error))
"""


def test_a_campaign_on_a_disk_that_fills_up_keeps_its_units_and_carries_on(tmp_path, monkeypatch):
    for name in ("disk", "notes", "locks"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("PYTHONPATH", f"{project_root()}:{TESTS}")
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    shell = ["unshare", "--mount", *as_root, "sh", "-eu", "-c", SMALL_DISK, "sh"]
    done = subprocess.run(
        [*shell, sys.executable, "-c", MEASURE], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr + "".join(path.read_text() for path in tmp_path.glob("[fs]*"))
    said = (tmp_path / "first").read_text().splitlines()
    assert said[-1].startswith(f"no space left while writing disk/campaign/{UNITS}: free some")
    torn = (tmp_path / "torn").read_bytes()
    kept = torn[: torn.rfind(b"\n") + 1]
    assert 0 < len(kept) < len(torn) == 4096, "the last row was cut"
    whole = (tmp_path / "whole" / UNITS).read_bytes()
    assert whole.startswith(kept)
    found = read_sealed(tmp_path / "whole" / SEALED)
    assert [unit.unit for unit in found.units] == list(range(15)) and len(found.counted) == 14
