"""One file from a study: what is in it, equal bytes, and what is refused of files that others send."""

import hashlib
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import time
import zipfile
from functools import partial
from types import SimpleNamespace

import archive_builders
import builders
import pytest
from archive_builders import CAMPAIGN, LEFT_OUT

from tare.archive import members, reading, writing
from tare.archive.members import CRATE, INDEX, read_index
from tare.archive.reading import index_of, opened
from tare.cli.main import main
from tare.core.errors import IntegrityError, UserError
from tare.core.files import SMALL_BYTES, project_root, sha256_file
from tare.model import closure
from tare.model.journals.ledger import read_ledger
from tare.model.journals.sealed import read_sealed
from tare.model.studies.loading import load_checked

INDEX_OF_NOTHING = {
    "format": 1,
    "tare": "0",
    "study": "s",
    "machines": [],
    "members": {},
    "programs": {},
    "remade": [],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Results of a study, and the archive of them."""
    folder = tmp_path_factory.mktemp("archived")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        study = archive_builders.results_in(folder)
        written = writing.write(study, folder / "study.zip")
    return SimpleNamespace(folder=folder, study=study, written=written)


@pytest.fixture(autouse=True)
def unpacked(tmp_path_factory, monkeypatch):
    """Where archives are unpacked: a test leaves nothing there, whatever else of this process makes folders."""
    folder = tmp_path_factory.mktemp("unpacked")
    own = SimpleNamespace(TemporaryDirectory=partial(tempfile.TemporaryDirectory, dir=folder))
    monkeypatch.setattr(reading, "tempfile", own)
    yield
    assert not list(folder.iterdir())


@pytest.fixture
def here(whole, tmp_path, monkeypatch):
    """A copy of the results, in the working directory."""
    shutil.copytree(whole.folder / "results", tmp_path / "results", symlinks=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what is in it


def test_it_has_the_records_the_programs_and_the_pages_and_nothing_else(whole):
    folder = whole.folder
    with zipfile.ZipFile(whole.written.path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    of_results = {name for name in names if name.startswith("results/")}
    there = {path.relative_to(folder).as_posix() for path in (folder / "results").rglob("*") if path.is_file()}
    assert there - of_results == {*LEFT_OUT, *(name for name in there if name.startswith(
        ("results/starts/", "results/reference")
    ))} and of_results <= there  # fmt: skip
    tracked = subprocess.run(
        ["git", "ls-files", "Snakefile", "containers", "envs", "papers", "rules", "tare", "workloads"],
        cwd=project_root(), capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {name for name in tracked if (project_root() / name).exists()} <= names
    assert {"config/config.yaml", "config/nyu2022.yaml", "LICENSE", "data/registry.yaml"} <= names
    assert not [name for name in names if "__pycache__" in name or "/." in name or name.startswith("data/cache")]


def test_of_the_configuration_it_has_what_the_study_uses_and_no_other_study(whole):
    with zipfile.ZipFile(whole.written.path) as archive:
        names = {name for name in archive.namelist() if name.startswith("config/") and not name.endswith("/")}
    assert {"config/published/nyu2022.yaml", "config/devices.yaml"} <= names
    assert {name for name in names if not name.startswith("config/published/")} == {
        "config/config.yaml", "config/devices.yaml", "config/nyu2022.yaml",
    }  # fmt: skip


def test_programs_that_git_does_not_track_are_left_out_and_named_unless_the_study_runs_them(
    here, whole, monkeypatch
):
    untracked = {
        "workloads/mnist_cnn.py",
        "envs/docker.py",
        "papers/checks/limits.py",
        "config/published/nyu2022.yaml",
    }
    tracked = members._tracked()
    assert tracked is not None and untracked <= tracked
    monkeypatch.setattr(members, "_tracked", lambda: tracked - untracked)
    written = writing.write(whole.study, here / "a.zip")
    with zipfile.ZipFile(written.path) as archive:
        assert untracked - set(archive.namelist()) == {"papers/checks/limits.py"}
    (note,) = [note for note in written.notes if "git does not track" in note]
    assert note.startswith("left out: papers/checks/limits.py: ")
    monkeypatch.setattr(members, "_tracked", lambda: None)
    assert not [note for note in writing.write(whole.study, here / "b.zip").notes if "git" in note]


def test_results_where_no_archive_has_any_are_left_out_and_named(here, whole):
    for name in ("report/more/index.html", "on/box/report/index.html", "figures/a.html", "tables/more/a.csv"):
        (here / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "results" / name).write_text("no cost")
    written = writing.write(whole.study, here / "a.zip")
    (note,) = [note for note in written.notes if "no archive has a file there" in note]
    assert "results/report/more/index.html" in note and note.startswith("left out: ") and "and 1 more" in note
    with zipfile.ZipFile(written.path) as archive:
        assert not [name for name in archive.namelist() if "/more/" in name or "/on/" in name]


@pytest.mark.parametrize("several", [False, True])
def test_places_of_members_follow_from_the_study(several):
    place = members.belongs("mine", ["box", "fat"], several=several)

    def has(name):
        return place.fullmatch(name) is not None

    campaign = "results/campaigns/mine/box/mnist_cnn/rounds.docker+host"
    for name in (f"{campaign}/plan.json", f"{campaign}/superseded-1/units.jsonl", "results/data/mnist.json",
                 "results/campaigns/mine/fat/stamps/0a.json.ots", "results/images/@cuda/torch/arms/a/docker.json",
                 "results/profiles/mine/box/mnist_cnn/host/traces/a.csv", "tare/cli/main.py", "config/mine.yaml",
                 "results/probe/box/host.json", "results/ceilings/fat/0a.json"):  # fmt: skip
        assert has(name), name
    for name in (f"{campaign}/answer.html", "results/campaigns/other/box/ledger.jsonl", "config/other.yaml",
                 "results/campaigns/mine/slow/ledger.jsonl", "results/report/index.html", "results/mine/a.html",
                 "results/mine/report/more/a.html", "results/mine/on/slow/report/index.html", "benchmarks/a.py",
                 "results/probe/box/answer.HTML", "results/mine/notebooks/.a.ipynb"):  # fmt: skip
        assert not has(name), name
    own = ("tables/verdicts.csv", "report/why.html", "figures/a.svg", "notebooks/a.ipynb", "choose/box/a.json",
           "environments/docker/verdicts.csv", "machines/box/machine.json")  # fmt: skip
    assert {has(f"results/mine/{name}") for name in own} == {not several}
    assert {has(f"results/mine/on/box/{name}") for name in own} == {several}
    assert {has(f"results/mine/{name}") for name in ("tables/machines.csv",)} == {True}
    assert has("results/mine/report/index.html")


def test_two_calls_give_equal_bytes(here, whole):
    for path in sorted(here.rglob("*.json"), reverse=True):
        os.utime(path, (time.time(), 1_000_000_000))
        path.chmod(0o600)
    again = writing.write(whole.study, here / "other.zip")
    assert (here / "other.zip").read_bytes() == whole.written.path.read_bytes()
    assert (again.sha256, again.bytes) == (sha256_file(here / "other.zip"), (here / "other.zip").stat().st_size)


def test_every_member_stands_in_the_list_with_its_hash_and_is_as_it_was(whole):
    with opened(whole.written.path) as root:
        index = index_of(root)
        files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
        assert set(files) == {*index.members, INDEX, CRATE}
        for name, member in index.members.items():
            data = files[name].read_bytes()
            assert (hashlib.sha256(data).hexdigest(), len(data)) == (member.sha256, member.bytes)
            source = whole.folder / name if name.startswith("results/") else project_root() / name
            assert name == "config/nyu2022.yaml" or data == source.read_bytes()
        graph = json.loads(files[CRATE].read_text())["@graph"]
        (listed,) = [entity for entity in graph if entity["@id"] == INDEX]
        assert listed["sha256"] == sha256_file(files[INDEX])
        assert (index.study, index.machines) == ("nyu2022", ("box",))
    assert not root.exists()


def test_what_was_unpacked_is_read_as_results_are(whole):
    with opened(whole.written.path) as root:
        assert load_checked(root / "config/nyu2022.yaml") == whole.study
        assert read_sealed(root / CAMPAIGN / "sealed.json").plan.study == "nyu2022"
        events = [(entry.event, entry.campaign) for entry in read_ledger(root / CAMPAIGN.parents[1])]
        assert events[0] == ("stamped", "")
        assert {("opened", CAMPAIGN.name), ("sealed", CAMPAIGN.name)} <= set(events)


def test_programs_have_the_hashes_of_plans_and_campaigns_of_other_programs_are_named(here, whole, monkeypatch):
    with opened(whole.written.path) as root:
        index = index_of(root)
    paths = closure.measurement("rounds", "mnist_cnn", ["docker", "host"])
    assert {path: index.programs[path] for path in paths} == closure.programs(paths)
    assert set(closure.analysis()) <= set(index.programs)
    # the made-up plans say 0000… of their programs
    assert CAMPAIGN.as_posix() in index.remade
    (note,) = [note for note in whole.written.notes if "other programs" in note]
    assert note.endswith(index.remade[0])
    monkeypatch.setattr(writing, "_measured_by", lambda programs, plan: True)
    assert not writing.write(whole.study, here / "a.zip").notes


def test_a_plan_of_todays_programs_was_measured_by_them(whole):
    plan = read_sealed(whole.folder / CAMPAIGN / "sealed.json").plan
    paths = writing.measuring(plan)
    programs = closure.programs(paths)
    own = plan.replace(code_sha256=closure.programs_sha256(paths))
    assert writing._measured_by(programs, own)
    assert not writing._measured_by({**programs, "tare/launch/run.py": "0" * 64}, own)
    gone = own.replace(workload="gone")
    assert not writing._measured_by(programs, gone)


# --- the command


def test_the_command_writes_it_and_says_what_it_is(here, whole, monkeypatch, capsys):
    (here / "mine.yaml").write_text(builders.STUDY)
    assert main(["archive", "mine.yaml"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"nyu2022\.zip: \d+ files of nyu2022 on box, \d+\.\d MB\n", said)
    assert f"sha256 {sha256_file(here / 'nyu2022.zip')}" in said
    assert sha256_file(here / "nyu2022.zip") == whole.written.sha256


def refused(capsys, *words):
    """The one line with which the command ends."""
    status = main(["archive", *words])
    said = capsys.readouterr().err
    assert status in (2, 4) and said.startswith("tare: ") and said.count("\n") == 1, said
    return said


def test_nothing_that_was_measured_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "has been finished: run the study nyu2022 first" in refused(capsys, builders.STUDY)
    assert "an archive's name ends with .zip" in refused(capsys, builders.STUDY, "--out", "a.tar")
    assert "there is no study file none.yaml" in refused(capsys, "none.yaml")
    assert not list(tmp_path.iterdir())


def test_a_place_among_what_is_archived_is_refused(here, capsys):
    (here / "results/tables/a.zip").touch()
    said = refused(capsys, builders.STUDY, "--out", "results/tables/a.zip")
    assert "is among the files that would be archived" in said


def test_links_are_refused_where_they_would_be_left_out_and_images_stay_links(here, capsys):
    (here / "results/images/torch-2.13/docker.oci").symlink_to("/nonexistent")
    assert main(["archive", builders.STUDY]) == 0
    (here / "results/tables").rename(here / "elsewhere")
    (here / "results/tables").mkdir()
    (here / "results/tables/metrics.csv").symlink_to(here / "elsewhere/metrics.csv")
    assert "results/tables/metrics.csv is no plain file: put a copy in its place" in refused(capsys, builders.STUDY)
    (here / "results/tables/metrics.csv").unlink()
    (here / "results/tables/more").symlink_to(here / "elsewhere")
    assert "results/tables/more is a link to a folder" in refused(capsys, builders.STUDY)


def test_a_damaged_campaign_is_one_line(here, capsys):
    with (here / CAMPAIGN / "units.jsonl").open("ab") as handle:
        handle.write(b"{}\n")
    assert "units.jsonl is not what was sealed" in refused(capsys, builders.STUDY)


def test_a_name_that_no_member_may_have_is_one_line(here, capsys):
    (here / "results/tables/a\nb.csv").touch()
    assert "its name has a character that no path here has: rename it" in refused(capsys, builders.STUDY)


def test_a_file_that_changes_meanwhile_ends_it_and_leaves_nothing(here, whole, monkeypatch, capsys):
    text = writing.crate.text

    def late(*arguments):
        (here / "results/tables/metrics.csv").write_text("changed")
        return text(*arguments)

    monkeypatch.setattr(writing.crate, "text", late)
    said = refused(capsys, builders.STUDY)
    assert "results/tables/metrics.csv changed while it was archived" in said
    assert [path.name for path in here.iterdir()] == ["results"]


def test_what_is_larger_than_can_be_opened_is_not_written(here, monkeypatch, capsys):
    monkeypatch.setattr(writing, "MOST_BYTES", 1000)
    assert "are more than an archive holds" in refused(capsys, builders.STUDY)


def test_what_was_not_finished_or_is_not_there_is_told(here, whole):
    shutil.rmtree(here / "results/report")
    (here / CAMPAIGN / "sealed.json").unlink()
    written = writing.write(whole.study, here / "a.zip")
    assert written.notes[:2] == ("it has no results/report: `make report` makes it", f"{CAMPAIGN} was not finished")


# --- files that others send


def zipped(path, files, **changes):
    """A zip file; `changes` of the entry of each name, by what ZipInfo calls it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            for key, value in changes.get(name, {}).items():
                setattr(info, key, value)
            archive.writestr(info, data)
    return path


def listing(**members):
    """archive.json of some members, as bytes."""
    listed = {name: {"sha256": "0" * 64, "bytes": len(data)} for name, data in members.items()}
    return json.dumps({**INDEX_OF_NOTHING, "members": listed}).encode()


def line_of(path, **options):
    """The one line with which a file is refused."""
    with pytest.raises((IntegrityError, UserError)) as error, opened(path, **options):
        raise AssertionError("it was opened")
    said = str(error.value)
    assert said.isprintable() and len(said) < 1000, said
    return said


def test_a_small_archive_of_another_writer_is_opened(tmp_path):
    """As a person packs again what was unpacked: with entries for folders, other times and modes."""
    files = [
        ("results/", b""),
        ("results/tables/", b""),
        ("results/tables/a.csv", b"x"),
        (INDEX, listing(**{"results/tables/a.csv": b"x"})),
    ]
    with opened(zipped(tmp_path / "a.zip", files)) as root:
        assert (root / "results/tables/a.csv").read_text() == "x" and index_of(root).study == "s"


def test_members_that_are_missing_or_changed_are_for_the_checks_to_tell(tmp_path):
    files = [("tare/a.py", b"other"), (INDEX, listing(**{"tare/a.py": b"x", "tare/b.py": b"y"}))]
    with opened(zipped(tmp_path / "a.zip", files)) as root:
        assert set(index_of(root).members) == {"tare/a.py", "tare/b.py"} and not (root / "tare/b.py").exists()


def test_an_archive_that_is_cut_anywhere_is_one_line(tmp_path):
    data = zipped(
        tmp_path / "a.zip", [("tare/a.py", b"x" * 100), (INDEX, listing(**{"tare/a.py": b"x" * 100}))]
    ).read_bytes()
    path = tmp_path / "cut.zip"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert re.search("cut short", line_of(path))


def test_an_archive_with_any_byte_changed_is_opened_or_is_one_line(tmp_path):
    data = zipped(
        tmp_path / "a.zip", [("tare/a.py", b"x" * 100), (INDEX, listing(**{"tare/a.py": b"x" * 100}))]
    ).read_bytes()
    path, refusals = tmp_path / "changed.zip", 0
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            with opened(path):
                pass
        except (IntegrityError, UserError) as error:
            refusals += 1
            assert str(error).isprintable() and "\n" not in str(error)
    assert refusals > 0.6 * len(data)


def test_keys_of_a_later_minor_version_are_dropped_from_the_list_of_an_archive():
    member = {"sha256": "0" * 64, "bytes": 3}
    own = {**INDEX_OF_NOTHING, "members": {"tables/a.csv": member}}
    later = {**own, "later": "\x1b[2J", "members": {"tables/a.csv": member | {"later": "../../a"}}}
    read, wanted = (read_index(json.dumps(one).encode(), "an archive") for one in (later, own))
    assert read == wanted and "later" not in read.text()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"format": 2, "tare": "9.9", "new": 1}', "is an archive of format 2, and this version of Tare"),
        (b'{"format": "\\u001b[2J"}', "is an archive of format '"),
        (b"{}", "is an archive of format None"),
        (b"[]", "is no list of files"),
        (b"{", "is no list of files"),
        (b"\xff", "is no list of files"),
        (b"[" * 200_000, "is no list of files"),
        (b'{"format": 1, "format": 1}', "a key is there twice"),
        (json.dumps({**INDEX_OF_NOTHING, "members": {"a\nb" * 999: 1}}).encode(), r"archive.json: members: a\nb"),
    ],
)  # fmt: skip
def test_a_list_of_a_later_version_or_of_another_form_is_one_line(tmp_path, content, says):
    assert says in line_of(zipped(tmp_path / "a.zip", [(INDEX, content)]))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../a", "leads out of the archive"), ("tare/../../a", "leads out of the archive"),
        ("/etc/passwd", "leads out of the archive"), ("tare//a", "leads out of the archive"),
        ("tare/./a", "leads out of the archive"), ("", "leads out of the archive"),
        ("tare\\..\\a", "has a character"), ("tare/a\x1b[2J", "has a character"),
        ("tare/" + "a" * 300, "is too long"), ("tare/" + "a/" * 600 + "a", "is too long"),
        (".ssh/authorized_keys", "an archive has no such part"), ("a.py", "an archive has no such part"),
    ],
)  # fmt: skip
def test_members_that_lead_elsewhere_are_refused(tmp_path, name, says):
    files = [("tare/a.py", b"x"), (name, b""), (INDEX, listing(**{"tare/a.py": b"x"}))]
    said = line_of(zipped(tmp_path / "a.zip", files))
    assert says in said and "member" in said


def test_members_that_are_not_listed_stay_packed_and_are_named(tmp_path):
    files = [("tare/a.py", b"x"), ("tare/b.py", b"y"), ("tare/more/", b""), (INDEX, listing(**{"tare/a.py": b"x"}))]
    left_out = []
    with opened(zipped(tmp_path / "a.zip", files), left_out=left_out) as root:
        assert {path.name for path in root.rglob("*")} == {"tare", "a.py", INDEX}
    assert left_out == ["tare/b.py", "tare/more/"]


def test_an_archive_that_unpacks_out_of_proportion_is_refused_before_it_is_unpacked(tmp_path):
    """As large as any that is allowed, from a file that is a thousandth of it."""
    one, half = bytes(SMALL_BYTES + (1 << 20)), bytes(SMALL_BYTES // 2 + (1 << 20))
    alone = [("tare/a", one), (INDEX, listing(**{"tare/a": one}))]
    assert "'tare/a': it unpacks to more than 200 times its size" in line_of(zipped(tmp_path / "a.zip", alone))
    said = line_of(small(tmp_path, half))
    assert said.endswith("a.zip unpacks to more than 200 times its size: it was made to fill a disk")


def test_members_that_stand_there_twice_or_are_a_folder_too_are_refused(tmp_path):
    listed = listing(**{"tare/a": b"x", "tare/a/b": b"x"})
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zipped(tmp_path / "a.zip", [("tare/a", b"x"), ("tare/a", b"y"), (INDEX, listed)])
    assert "'tare/a': it is there twice" in line_of(twice)
    both = zipped(tmp_path / "a.zip", [("tare/a", b"x"), ("tare/a/b", b"x"), (INDEX, listed)])
    assert "'tare/a': it is a file and a folder" in line_of(both)


@pytest.mark.parametrize(
    "kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, stat.S_IFDIR]
)
def test_links_and_devices_are_refused(tmp_path, kind):
    files = [("tare/a", b"/etc/passwd"), (INDEX, listing(**{"tare/a": b"/etc/passwd"}))]
    path = zipped(
        tmp_path / "a.zip", files, **{"tare/a": {"external_attr": (kind | 0o777) << 16, "create_system": 3}}
    )
    assert "'tare/a': it is no plain file" in line_of(path)


def directory_entry(data, name):
    """Where the entry of a member begins in the directory of a zip file."""
    place = data.rfind(name.encode()) - 46
    assert data[place : place + 4] == b"PK\x01\x02"
    return place


def patched(path, name, **fields):
    """A zip file with other numbers in its directory's entry of a member: flags, method, size."""
    data = bytearray(path.read_bytes())
    place = directory_entry(bytes(data), name)
    for field, value in fields.items():
        form, offset = {"flags": ("<H", 8), "method": ("<H", 10), "size": ("<L", 24), "offset": ("<L", 42)}[field]
        struct.pack_into(form, data, place + offset, value)
    path.write_bytes(data)
    return path


def small(tmp_path, data=b"x" * 1000):
    return zipped(
        tmp_path / "a.zip",
        [("tare/a", data), ("tare/b", data), (INDEX, listing(**{"tare/a": data, "tare/b": data}))],
    )


def test_encrypted_members_and_other_ways_to_pack_are_refused(tmp_path):
    assert "'tare/a': it is encrypted" in line_of(patched(small(tmp_path), "tare/a", flags=1))
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 99):
        assert "it is packed in a way" in line_of(patched(small(tmp_path), "tare/a", method=method))


def test_a_member_of_which_a_hundred_gigabytes_are_claimed_is_refused_before_it_is_read(tmp_path):
    """Its entry has the form for such sizes."""
    large = 100 * 10**9
    path = tmp_path / "a.zip"
    files = [("tare/a", b"x"), (INDEX, listing(**{"tare/a": b"x"}))]
    extra = struct.pack("<HHQ", 1, 8, large)
    zipped(path, files, **{"tare/a": {"extra": extra}})
    patched(path, "tare/a", size=0xFFFFFFFF)
    assert "says that it has 100000 MB unpacked, and 2147 MB is the most" in line_of(path)


def test_a_bomb_is_refused_by_its_size_and_one_that_lies_writes_no_more_than_it_says(tmp_path):
    bomb = bytes(50_000_000)
    path = small(tmp_path, bomb)
    assert path.stat().st_size < 200_000
    assert "says that it has 100 MB unpacked, and 50 MB is the most" in line_of(path, most_bytes=50_000_000)
    said = line_of(patched(path, "tare/a", size=1000))
    assert "is damaged" in said or "cut short" in said


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """As bombs do that are small however much they unpack to."""
    path = small(tmp_path)
    assert "its bytes are those of another one too" in line_of(patched(path, "tare/b", offset=0))


def test_what_stands_before_or_behind_an_archive_is_refused(tmp_path):
    data = small(tmp_path).read_bytes()
    path = tmp_path / "b.zip"
    path.write_bytes(b"#!/bin/sh\n" + data)
    assert "has something before" in line_of(path)
    path.write_bytes(data + b"more")
    assert "does not end as one" in line_of(path)


def test_a_directory_of_too_many_or_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading.zipfile, "ZipFile", None)
    path = tmp_path / "a.zip"
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 60_000, 60_000, 100, 0, 0)
    path.write_bytes(bytes(100) + end)
    assert "has more files than an archive may have" in line_of(path)
    path.write_bytes(
        bytes(80) + b"PK\x06\x07" + bytes(16) + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 100, 0, 0)
    )
    assert "has more files than an archive may have" in line_of(path)
    monkeypatch.setattr(reading, "MOST_PACKED_BYTES", 50)
    assert "and an archive at most" in line_of(path)


def test_what_is_no_archive_is_one_line(tmp_path):
    assert "No such file" in line_of(tmp_path / "none.zip")
    assert "is no file" in line_of(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "is no file" in line_of(tmp_path / "pipe")
    (tmp_path / "text").write_text("text" * 100)
    assert "is cut short, or no archive" in line_of(tmp_path / "text")
    assert "it has no archive.json" in line_of(zipped(tmp_path / "a.zip", [("tare/a.py", b"")]))
    with pytest.raises(IntegrityError, match="it is no archive"):
        index_of(tmp_path)


def test_what_reads_an_archive_ends_with_its_own_error_and_nothing_stays(whole):
    with pytest.raises(ValueError, match="own"), opened(whole.written.path) as root:
        raise ValueError("own")
    assert not root.exists()


def test_names_are_those_of_the_layout():
    assert members.wrong_name("results/campaigns/nyu2022/box/mnist_cnn/rounds.docker@vm+host/units.jsonl") is None
    assert members.wrong_name(INDEX) is None and members.wrong_name("Snakefile") is None
