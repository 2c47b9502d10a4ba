"""A disk that is full when something is written: one line that names the file, nothing half, and it carries on.

Of single stages: set-up in test_bootstrap.py; unpacking in test_tiny_imagenet.py; what is made and kept in
test_store.py; programs that find it full in test_process.py; forms of images in test_images.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tare.cli.main import explain_os_error, main
from tare.core import files
from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.model import tables
from tare.model.journals.sealed import SEALED, UNITS, read_sealed
from tare.report import figures
from tare.report.figures import style

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

from tare.cli.main import explain_os_error

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
