"""Images on a disk of the node: where they are copied to, what of that is told, what is refused."""

import pathlib
import subprocess
import sys
from types import SimpleNamespace

import pytest
from waiting import wait_until

from tare.core import store
from tare.core.errors import UnavailableError
from tare.core.files import cache_dir
from tare.images import staging
from tare.machine import shared_files
from tare.model.records.images import ImageRecord
from tare.report import method


@pytest.fixture(autouse=True)
def anew(tmp_path, monkeypatch):
    """An empty cache, a scratch folder, and no folder of an earlier test."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    monkeypatch.delenv("TARE_MACHINE", raising=False)
    (tmp_path / "scratch").mkdir()
    staging._folder.cache_clear()


def on(monkeypatch, **kinds):
    """Say of what type the file systems are: of the `cache`, of the `scratch` folder."""
    monkeypatch.setattr(
        staging,
        "_kind",
        lambda path: next((kind for name, kind in kinds.items() if f"/{name}/" in f"{path}/"), "?"),
    )


def tree():
    """The record of a host whose tree is one file."""

    def make(folder):
        (folder / "bin").mkdir()
        (folder / "bin/python3").write_text("#!/bin/sh\n")
        return {"python": "3.11"}

    kept = store.keep(cache_dir("trees"), "0" * 32, make, what="making a tree")
    empty = dict.fromkeys(("reason", "digest", "image_id", "bytes", "base", "tree", "tree_digest", "key"), None)
    return ImageRecord(
        stack="s", variant="cpu", env="host", status="ok", reference=str(kept.path), path=str(kept.path),
        python=str(kept.path / "bin/python3"), packages=(), seconds={}, details={}, **empty,
    )  # fmt: skip


def test_without_a_word_of_a_workflow_nothing_is_copied_or_told(monkeypatch):
    monkeypatch.delenv(staging.SCRATCH, raising=False)
    record = tree()
    assert staging.place(record) == record and record.read_from is None


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({}, None),
        ({staging.SCRATCH: "thin=never"}, "never"),
        ({staging.SCRATCH: "thin=never gpu=always", "TARE_MACHINE": "gpu"}, "always"),
    ],
)
def test_the_word_is_that_of_the_machine(variables, word):
    assert staging.wanted(variables) == word


@pytest.mark.parametrize(
    ("word", "cache", "told"),
    [
        ("auto", "nfs4", "ext4, copied from nfs4"),
        ("auto", "ext4", "ext4"),
        ("always", "ext4", "ext4, copied from ext4"),
        ("never", "lustre", "lustre"),
    ],
)
def test_what_is_launched_lies_where_its_record_says(monkeypatch, tmp_path, word, cache, told):
    on(monkeypatch, cache=cache, scratch="ext4")
    monkeypatch.setenv(staging.SCRATCH, f"thin={word}")
    placed = staging.place(tree())
    assert placed.read_from == told
    where = tmp_path / ("scratch" if "copied" in told else "cache")
    assert placed.python is not None and placed.python.startswith(f"{where}/")
    assert pathlib.Path(placed.python).read_text() == "#!/bin/sh\n"
    assert placed.reference == placed.path == placed.python.removesuffix("/bin/python3")
    assert "read_from" not in placed.to_json(), "it is of this launch, not of the image"


@pytest.mark.parametrize("why", ["full", "unset", "in memory", "no folder"])
def test_without_room_it_is_read_where_it_lies_or_refused(monkeypatch, capsys, tmp_path, why):
    on(monkeypatch, cache="nfs4", scratch="tmpfs" if why == "in memory" else "ext4")
    record = tree()
    says = {"full": "no room", "unset": "TMPDIR is set", "in memory": "tmpfs", "no folder": "can't be written"}
    if why == "full":
        monkeypatch.setattr(store, "SPARE_BYTES", 1 << 60)
    elif why == "unset":
        monkeypatch.delenv("TMPDIR")
    elif why == "no folder":
        monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch/gone"))
    monkeypatch.setenv(staging.SCRATCH, "thin=auto")
    placed = staging.place(record)
    assert placed == record.replace(read_from="nfs4")
    _, line = capsys.readouterr().out.splitlines()  # behind that of the tree
    assert says[why] in line and line.endswith("it is read from nfs4")
    monkeypatch.setenv(staging.SCRATCH, "thin=always")
    staging._folder.cache_clear()
    if why != "in memory":  # which is taken where it is asked for
        with pytest.raises(UnavailableError, match=says[why]):
            staging.place(record)


KILLED = """
import sys
from tare.images import staging
print(staging._folder("always"), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("kill", [True, False])
def test_the_copies_go_however_the_process_ends(tmp_path, kill):
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        folder = pathlib.Path(process.stdout.readline().strip())
        assert folder.parent == tmp_path / "scratch" and folder.is_dir()
        if kill:
            process.kill()
        else:
            process.stdin.close()
        process.wait()
    wait_until(lambda: not folder.exists(), "the folder goes", 10)


def test_what_killed_jobs_left_goes_and_what_is_in_use_stays(tmp_path):
    left = tmp_path / "scratch" / f"{staging.PREFIX}left"
    left.mkdir()
    (left / staging.LOCK).touch()
    with staging._own_folder(tmp_path / "scratch") as used:
        staging._clear(tmp_path / "scratch")
        assert used.is_dir() and not left.exists()


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({"host": None, "docker": None}, None),
        ({"host": "xfs, copied from nfs4", "apptainer": "xfs, copied from nfs4"}, "xfs, copied from nfs4"),
        (
            {"host": "xfs, copied from nfs4", "podman": "nfs4"},
            "not the same: podman from nfs4; host from xfs, copied from nfs4. A comparison of the two includes",
        ),
    ],
)
def test_the_page_says_where_environments_were_read_from(kinds, told):
    images = {name: {"digest": "x"} | ({"read_from": kind} if kind else {}) for name, kind in kinds.items()}
    said = method._read_from([SimpleNamespace(plan=SimpleNamespace(provenance={"images": images}))])
    assert said == told or (told and said.startswith(told))


def test_types_of_file_systems():
    assert shared_files.is_local("xfs") and not shared_files.is_local("nfs4") and not shared_files.is_local("new")
