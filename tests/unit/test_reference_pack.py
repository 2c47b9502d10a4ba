"""Reference campaigns: the packed folder and all for which it is refused, carrying one on, an end in the middle."""

import gzip
import json
import random
import shutil
import stat
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import profile_record
from campaign_builders import rounds_campaign, write_campaign
from hostile import refused

from tare.analysis import reference as reference_tables
from tare.cli.main import main
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import project_root, read_json, sha256_file, write_json
from tare.experiments import reference, reference_pack, reference_parts
from tare.experiments.reference_parts import Clock
from tare.model.journals import references as folders
from tare.model.journals.sealed import LOCK, read_sealed
from tare.model.studies import loading
from tare.report import references as shown_references

STUDY = "recorded"
TARE = {"version": "0.1.0", "commit": None, "modified": None, "reason": "git does not tell"}
OK = {"available": True, "reason": None}


# --- the packed folder


@pytest.fixture
def recorded(tmp_path):
    """A finished reference folder."""
    folder = tmp_path / "gpu-box"
    plan, rows = rounds_campaign(STUDY, "mnist_cnn", ["host"], {}, 6, random.Random(1), None, None)
    write_campaign(folder / f"campaigns/{STUDY}/box/mnist_cnn/rounds.host", plan, rows, None)
    killed = folder / f"campaigns/{STUDY}/box/mnist_cnn/causes.host"
    write_json(killed / "plan.json", plan)
    profile = folder / f"profiles/{STUDY}/box/mnist_cnn/host"
    record = profile_record(STUDY, "mnist_cnn", "host", profile, random.Random(1))
    record["trace_sha256"] = sha256_file(profile / record["trace"])
    write_json(profile / "profile.json", record)
    write_json(folder / "machine.json", {"gpus": []})
    row = {"workload": "mnist_cnn", "env": None, "arm": None, "seconds": 9.0}
    kept = {"name": "rounds mnist_cnn", "kind": "rounds", "status": "ok", "reason": None}
    lost = {"name": "sweep mnist_cnn", "kind": "sweep", "status": "unavailable", "reason": "no time left"}
    where = f"campaigns/{STUDY}/box/mnist_cnn/rounds.host/sealed.json"
    content = {
        "schema": 1,
        "name": "gpu-box",
        "at": "2026-11-21T10:00:00Z",
        "tare": TARE,
        "study": STUDY,
        "machine": "box",
        "stack": plan["stack"],
        "device": {"kind": "cuda", "name": "Some GPU", "facts": {}},
        "torch": {"version": "2.11.0", "cuda": "13.0", "cuda_available": True, "cudnn": 91000, "device": "Some GPU",
                  "capability": "9.0"},
        "python": "3.12.3",
        "runs": [{"at": "2026-11-21T10:00:00Z", "tare": TARE, "budget_s": 540.0, "wall_s": 500.1}],
        "environments": {"host": {**OK, "version": "6.1"}},
        "workloads": {"mnist_cnn": OK},
        "parts": [{**row, **kept, "record": where}, {**row, **lost, "record": None}],
        "notes": [],
    }  # fmt: skip
    reference_pack.finish(folder, content)
    return folder


def test_a_finished_folder_is_whole_and_keeps_no_unsealed_campaign(recorded):
    found = folders.check(recorded)
    assert [part.status for part in found.parts] == ["ok", "unavailable"]
    assert not (recorded / f"campaigns/{STUDY}/box/mnist_cnn/causes.host").exists()


def test_the_packed_journal_holds_the_sealed_bytes(recorded):
    sealed = folders.sealed_campaigns(recorded)[0]
    packed = sealed.with_name("units.jsonl.gz")
    assert not sealed.with_name("units.jsonl").exists()
    units = read_sealed(sealed).units
    assert len(units) >= 6
    rows = gzip.decompress(packed.read_bytes()).replace(b'"status":"ok"', b'"status":"OK"', 1)
    packed.write_bytes(gzip.compress(rows))
    with pytest.raises(IntegrityError, match="not what was sealed"):
        read_sealed(sealed)
    packed.write_bytes(packed.read_bytes()[:50])
    with pytest.raises(IntegrityError, match="cut short"):
        read_sealed(sealed)


def test_what_is_finished_again_packs_what_is_new_and_changes_nothing_else(recorded):
    content = read_json(recorded / "reference.json")
    content.pop("files")
    before = {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()}
    earlier = folders.sealed_campaigns(recorded)[0].parent
    (earlier / LOCK).touch()
    reference_pack.finish(recorded, content)
    assert {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()} == before
    later = earlier.with_name("rounds.host.later")
    write_campaign(later, *rounds_campaign(STUDY, "mnist_cnn", ["host"], {}, 6, random.Random(1), None, None), None)
    rows = (later / "units.jsonl").read_bytes()
    reference_pack.finish(recorded, content)
    packed = (later / "units.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == rows and not (later / "units.jsonl").exists()
    assert packed[4:8] == bytes(4), "no time of compression: equal bytes are packed to equal bytes"


def relist(folder):
    """List the folder's files anew, as somebody would who wants a change to pass."""
    content = read_json(folder / "reference.json")
    names = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "reference.json"]
    content["files"] = [
        {"path": str(path.relative_to(folder)), "bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in names
    ]
    write_json(folder / "reference.json", content)


def edit(folder, **changes):
    write_json(folder / "reference.json", {**read_json(folder / "reference.json"), **changes})


def change_units(folder):
    sealed = folders.sealed_campaigns(folder)[0].with_name("units.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(sealed.read_bytes()).splitlines()]
    rows[0]["cost_s"] = 0.5
    sealed.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


DEFECTS = {
    "a changed file": (lambda f: (f / "machine.json").write_text("{}"), IntegrityError, "is not what was recorded"),
    "a missing file": (lambda f: (f / "machine.json").unlink(), IntegrityError, "is missing"),
    "a file that nobody listed": (lambda f: (f / "more.json").write_text("{}"), IntegrityError, "is not among"),
    "a foreign file": (lambda f: ((f / "more.json").touch(), relist(f)), IntegrityError, "is no file of a"),
    "another schema": (lambda f: edit(f, schema=2), IntegrityError, "schema"),
    "an unknown key": (lambda f: edit(f, extra=1), IntegrityError, "unknown key 'extra'"),
    "a part without its record": (lambda f: edit(f, parts=[{**read_json(f / "reference.json")["parts"][0],
                                  "record": "campaigns/none.json"}]), IntegrityError, "which is not there"),
    "another study": (lambda f: edit(f, study="other"), IntegrityError, "is of the study"),
    "another machine": (lambda f: edit(f, machine="other"), IntegrityError, "is of the machine 'box'"),
    "another name": (lambda f: edit(f, name="other"), IntegrityError, "and in folder"),
    "units changed, listed anew": (lambda f: (change_units(f), relist(f)), IntegrityError, "not what was sealed"),
    "another trace": (lambda f: (next(f.glob("profiles/*/*/*/*/trace.json.gz")).write_bytes(b"x"), relist(f)),
                      IntegrityError, "is not the file that profile.json names"),
    "no record": (lambda f: (f / "reference.json").unlink(), UserError, "cannot read"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_folder_that_is_not_what_was_recorded_is_refused(recorded, defect):
    spoil, error, words = DEFECTS[defect]
    spoil(recorded)
    with pytest.raises(error, match=words):
        folders.check(recorded)


def test_a_folder_that_is_too_large_is_refused(recorded, monkeypatch):
    monkeypatch.setattr(folders, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="is the most that is kept"):
        folders.check(recorded)


def test_tables_are_made_outside_of_the_recorded_folder(recorded, tmp_path):
    before = {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()}
    assert main(["reference-tables", str(recorded), "--out", str(tmp_path / "tables")]) == 0
    header, *rows = (tmp_path / "tables/metrics.csv").read_text().splitlines()
    assert "metric" in header and len(rows) > 50
    assert (tmp_path / "tables/verdicts.csv").exists()
    assert {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()} == before
    with pytest.raises(UserError, match="is in the reference folder"):
        reference_tables.write_tables(recorded, recorded / "tables")


def test_one_bad_reference_leaves_its_reason_instead_of_tables(recorded, tmp_path):
    (recorded / "machine.json").unlink()
    arguments = ["reference-tables", str(recorded), "--out", str(tmp_path / "tables")]
    assert main(arguments) == 4
    assert main([*arguments, "--keep-going"]) == 0
    assert "machine.json is missing" in read_json(tmp_path / "tables/broken.json")["reason"]
    assert len((tmp_path / "tables/metrics.csv").read_text().splitlines()) == 1


def test_every_reference_that_is_kept_is_whole():
    kept = project_root() / "results/reference"
    assert list(kept.glob("*.zip"))
    for place in folders.references(kept):
        folders.check(folders.opened(place))


# --- archives


def zipped(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return path


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


OWN = "results/reference/box/"
WRONG = {
    "another's": ([("results/reference/other/reference.json", b"{}", 0)], "holds no results/reference/box/"),
    "above": ([(f"{OWN}../../x", b"", 0)], "is no file of a reference"),
    "from the root": ([(f"{OWN}/etc/x", b"", 0)], "is no file of a reference"),
    "a link": ([(f"{OWN}x", b"/etc/passwd", stat.S_IFLNK | 0o777)], "is no file of a reference"),
    "a bomb": ([(f"{OWN}x", bytes(folders.MOST_BYTES * 3), 0)], "more files, or larger ones"),
    "many": ([(f"{OWN}{n}", b"", 0) for n in range(folders.MOST_FILES + 1)], "more files, or larger ones"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_archive_that_is_none_of_a_reference_is_refused_in_one_line(case, tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    members, says = WRONG[case]
    said = refused(lambda: folders.opened(zipped(tmp_path / "box.zip", *members)))
    assert says in (said or "") and not list(tmp_path.rglob("x"))


def test_a_damaged_or_missing_archive_is_named(tmp_path, recorded, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "reference"
    root.mkdir()
    (root / "box.zip").write_bytes(b"PK no zip")
    assert folders.references(root) == [root / "box.zip"]
    assert "box.zip is damaged" in (refused(lambda: folders.opened(root / "box.zip")) or "")
    assert "there is no archive" in (refused(lambda: folders.opened(root / "none.zip")) or "")
    found, broken = shown_references.gather(tmp_path)
    assert found == [] and [(one.name, "damaged" in one.reason) for one in broken] == [("box", True)]
    out = tmp_path / "reference-tables/box"
    assert main(["reference-tables", str(root / "box.zip"), "--keep-going", "--out", str(out)]) == 0
    assert "damaged" in read_json(out / "broken.json")["reason"]


def test_a_recorded_campaign_is_archived_and_continued_from_there(recorded, tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    write_json(recorded / "study.json", loading.load_checked("config/reference.yaml").to_json())
    reference_pack.finish(
        recorded, {k: v for k, v in read_json(recorded / "reference.json").items() if k != "files"}
    )
    assert main(["archive", str(recorded)]) == 0
    written = recorded.with_name("gpu-box.zip")
    for name in ("members", "references"):
        assert main(["verify", str(written), "--only", name]) == (1 if name == "references" else 0), "made-up times"
    before = contents(recorded)
    shutil.rmtree(recorded)
    folder = folders.opened(written)
    assert folder.name == recorded.name and folders.references(recorded.parent) == [written]
    assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    reference._begin(wanted(tmp_path, out=recorded, more=True))
    assert {
        path.relative_to(recorded): path.read_bytes() for path in recorded.rglob("*") if path.is_file()
    } == before


def test_a_recorded_folder_without_a_finished_campaign_is_whole(recorded, tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    write_json(recorded / "study.json", loading.load_checked("config/reference.yaml").to_json())
    shutil.rmtree(recorded / "campaigns")
    record = read_json(recorded / "reference.json")
    write_json(recorded / "reference.json", {**record, "parts": record["parts"][1:]})
    relist(recorded)
    assert main(["archive", str(recorded)]) == 0
    assert main(["verify", str(recorded.with_name("gpu-box.zip")), "--only", "members", "references"]) == 0


# --- the request


def wanted(tmp_path, **changes):
    named = {"python": Path(sys.executable), "source": "config/reference.yaml", "carried": tmp_path / "none"}
    return reference.Wanted(**{**named, "budget_s": 60.0, "device": "cpu", "out": tmp_path / "box", **changes})


def test_mistakes_are_said_before_anything_is_measured(tmp_path):
    with pytest.raises(UserError, match=r"no part 'round'.*did you mean 'rounds'"):
        reference.run(wanted(tmp_path, only=("round",)))
    with pytest.raises(UserError, match="no name of a reference"):
        reference.run(wanted(tmp_path, out=tmp_path / "My Box"))
    (tmp_path / "box").mkdir()
    (tmp_path / "box/mine").touch()
    with pytest.raises(UserError, match="is not empty"):
        reference.run(wanted(tmp_path))


def test_a_campaign_is_carried_on_by_the_same_framework_on_the_same_device(tmp_path):
    now = {"python": "3.12.3", "torch": {"version": "2.11.0"}, "device": {"name": "Some GPU"}}
    reference.refuse_another(None, now, tmp_path)
    reference.refuse_another({**json.loads(json.dumps(now)), "parts": []}, now, tmp_path)
    with pytest.raises(UserError, match="was measured on 'The other'"):
        reference.refuse_another({**now, "device": {"name": "The other"}}, now, tmp_path)
    with pytest.raises(UserError, match="was measured on 'Another'"):
        reference.refuse_another({**now, "device": {"name": "Another"}}, now, tmp_path)
    with pytest.raises(UserError, match="was measured with python"):
        reference.refuse_another({**now, "python": "3.11.7"}, now, tmp_path)
    with pytest.raises(UserError, match="was measured with torch"):
        reference.refuse_another({**now, "torch": {"version": "2.10.0"}}, now, tmp_path)
    with pytest.raises(UserError, match="name the folder"):
        reference.run(wanted(tmp_path, out=None, more=True))


def whole_runs(config):
    """Names of the parts that are whole runs at the headline's levels."""
    return [f"rounds {name}" for name in config.workloads]


def test_what_had_no_time_is_tried_again_and_what_is_done_is_kept(recorded, tmp_path, monkeypatch):
    config = loading.load_checked("config/reference.yaml")
    before = folders.check(recorded).to_json()
    asked = []

    def run_parts(parts, workloads, out, clock, earlier, keep):
        asked.extend(part.name for part in parts)
        keep([reference_parts._row(part, "ok", None, 1.0) for part in parts])

    monkeypatch.setattr(reference, "run_parts", run_parts)
    monkeypatch.setattr(reference, "prepare_environments", lambda *_: {"host": OK})
    monkeypatch.setattr(reference, "bring_data", lambda *_: {})
    clock = Clock(started=time.monotonic(), budget_s=60)
    found = {}
    reference.measure(config, wanted(tmp_path, only=("sweep", "rounds")), recorded, clock, before, found.update)
    first, *sweeps = (f"sweep {name}" for name in config.workloads)
    runs = [name for name in whole_runs(config) if name != "rounds mnist_cnn"]
    assert asked == [first, *runs, *sweeps], "what was tried before comes first"
    rows = {row["name"]: row for row in found["parts"]}
    assert rows["rounds mnist_cnn"]["seconds"] == 9.0 and rows["sweep mnist_cnn"]["status"] == "ok"
    assert rows["pipeline resnet50"]["reason"] == "it was not asked for (--only)"
    assert reference_parts.wants_again(rows["pipeline resnet50"])
    assert not reference_parts.wants_again({"status": "failed", "reason": "it broke"})


def test_no_environment_is_tried_that_the_study_does_not_name(tmp_path, monkeypatch):
    tried = []

    def probed(one):
        tried.append(one.name)
        return SimpleNamespace(available=True, version="1", outcome=None, write=lambda path: None)

    def bound(python, folder, outcomes):
        return {name: SimpleNamespace(status="ok", reason=None) for name in outcomes}

    monkeypatch.setattr(reference, "probe_record", probed)
    monkeypatch.setattr(reference.installed, "bind", bound)
    found = reference.prepare_environments(tmp_path, Path(sys.executable), ("host", "docker"))
    assert tried == ["host", "docker"] == list(found) and found["docker"]["available"]
    (tmp_path / "empty").mkdir()
    config, out, before = reference._begin(wanted(tmp_path, out=tmp_path / "empty"))
    assert (config.device, out, before) == ("cpu", tmp_path / "empty", None)
    assert reference._begin(wanted(tmp_path, out=None))[1].parent == project_root() / "results/reference"


def test_without_a_host_nothing_is_measured(tmp_path, monkeypatch):
    probe = SimpleNamespace(available=True, version="1", outcome=None, write=lambda path: None)
    states = {"host": ("unavailable", "no torch here"), "docker": ("ok", None)}

    def bound(python, folder, outcomes):
        return {name: SimpleNamespace(status=states[name][0], reason=states[name][1]) for name in outcomes}

    monkeypatch.setattr(reference, "probe_record", lambda one: probe)
    monkeypatch.setattr(reference.installed, "bind", bound)
    for names in (("host", "docker"), ("docker",)):
        with pytest.raises(UnavailableError, match="the host can't be measured"):
            reference.prepare_environments(tmp_path, Path(sys.executable), names)
    states.update(host=("ok", None), docker=("failed", "no daemon"))
    found = reference.prepare_environments(tmp_path, Path(sys.executable), ("host", "docker"))
    assert found["docker"] == {"available": False, "version": "1", "reason": "no daemon"}


def test_a_new_campaign_begins_with_what_it_is_of_and_runs_what_can_be(tmp_path, monkeypatch):
    config, asked, found = loading.load_checked("config/reference.yaml"), [], {}
    config = config.replace(environments=("host", "docker"))
    monkeypatch.setattr(reference, "run_parts", lambda parts, *_: asked.extend(parts))
    monkeypatch.setattr(
        reference, "prepare_environments", lambda *_: {"host": OK, "docker": {**OK, "available": False}}
    )
    monkeypatch.setattr(reference, "bring_data", lambda *_: {"mnist": "no source answers"})
    clock = Clock(started=time.monotonic(), budget_s=60)
    reference.measure(config, wanted(tmp_path), tmp_path / "box", clock, None, found.update)
    assert (tmp_path / "box/study.json").exists() and (tmp_path / "box/machine.json").exists()
    assert found["workloads"]["mnist_cnn"] == {"available": False, "reason": "no source answers"}
    assert found["workloads"]["resnet50"]["available"]
    assert {part.name for part in asked} == {row["name"] for row in found["parts"]}
    assert not [part for part in asked if "docker" in part.arguments]
    assert {row["reason"] for row in found["parts"]} == {reference_parts.NOT_REACHED}


def test_a_default_name_is_the_devices_and_the_date(monkeypatch):
    monkeypatch.setattr(reference.machine, "gpus", lambda: ({"name": "NVIDIA H100 80GB HBM3"},))
    assert reference.default_name("cuda").startswith("nvidia-h100-80gb-hbm3-20")
    assert reference.NAME.fullmatch(reference.default_name("cuda"))


def ended_in_the_third_part(monkeypatch):
    """Parts that leave a sealed campaign each, until the third is interrupted in the middle; gives their names."""
    asked = []

    def run_part(part, out, clock):
        asked.append(part.name)
        left = (out / part.out).parent
        if len(asked) == 3:
            write_json(left / "plan.json", {})
            raise KeyboardInterrupt
        plan, rows = rounds_campaign(STUDY, part.workload, ["host"], {}, 6, random.Random(1), None, None)
        write_campaign(left, {**plan, "stack": "bound"}, rows, None)
        return reference_parts._row(part, "ok", None, 1.0)

    monkeypatch.setattr(reference_parts, "run_part", run_part)
    monkeypatch.setattr(reference, "prepare_environments", lambda *_: {"host": {**OK, "version": "6.1"}})
    monkeypatch.setattr(reference, "bring_data", lambda *_: {})
    facts = {"version": "2.13.0", "cuda": None, "cuda_available": False, "cudnn": None, "device": None}
    monkeypatch.setattr(reference, "torch_facts", lambda *_: {**facts, "capability": None, "python": "3.11.7"})
    monkeypatch.setattr(reference, "hide_host_name", lambda: "hidden")
    return asked


def test_an_interrupted_run_keeps_what_was_finished_and_is_carried_on(tmp_path, monkeypatch, capsys):
    asked = ended_in_the_third_part(monkeypatch)
    monkeypatch.setattr(Clock, "gone_s", 1.26)
    with pytest.raises(KeyboardInterrupt):
        reference.run(wanted(tmp_path, budget_s=540.0, only=("sweep", "rounds")))
    assert "--more" in capsys.readouterr().out
    rows = {row.name: row for row in folders.check(tmp_path / "box").parts}
    assert [rows[name].status for name in asked] == ["ok", "ok", "unavailable"]
    assert rows[asked[2]].reason.startswith("no time left: the run was ended")
    assert rows["pipeline resnet50"].reason == "it was not asked for (--only)"
    first, long_ago = list(asked), "2026-01-01T00:00:00Z"
    (begun,) = read_json(tmp_path / "box/reference.json")["runs"]
    edit(tmp_path / "box", runs=[{**begun, "at": long_ago}])
    reference.run(wanted(tmp_path, budget_s=540.0, only=("sweep", "rounds"), more=True))
    config = loading.load_checked("config/reference.yaml")
    every = [*whole_runs(config), *(f"sweep {name}" for name in config.workloads)]
    assert first == every[:3] and asked[3:] == every[2:]
    found = folders.check(tmp_path / "box")
    assert [row.status for row in found.parts if row.kind in ("sweep", "rounds")] == ["ok"] * len(every)
    assert [run.wall_s for run in found.runs] == [1.3, 1.3] and found.at == long_ago == found.runs[0].at
    assert found.notes == ("hidden",)


def test_a_run_that_was_killed_is_carried_on(recorded):
    (recorded / f"campaigns/{STUDY}/box/mnist_cnn/causes.host").mkdir()
    (recorded / f"campaigns/{STUDY}/box/mnist_cnn/causes.host/units.jsonl").write_text("{}")
    with pytest.raises(IntegrityError, match="is not among the files"):
        folders.check(recorded)
    reference_pack.drop_unfinished(recorded)
    assert len(folders.check(recorded).files) > 3


def test_one_of_a_version_that_named_no_machine_is_not_carried_on(recorded):
    content = {key: value for key, value in read_json(recorded / "reference.json").items() if key != "machine"}
    former = recorded / f"campaigns/{STUDY}"
    (former / "box/mnist_cnn").rename(former / "mnist_cnn")
    profiles = recorded / f"profiles/{STUDY}"
    (profiles / "box/mnist_cnn").rename(profiles / "mnist_cnn")
    plan = next(recorded.glob("campaigns/*/*/*/plan.json"))
    sealed = read_json(plan.with_name("sealed.json"))
    said = read_json(plan)
    machine = {key: value for key, value in said["machine"].items() if key != "name"}
    old = {key: value for key, value in said.items() if key != "launches"}
    write_json(plan, {**old, "schema": 2, "environments": ["host", "host.control"], "machine": machine})
    write_json(plan.with_name("sealed.json"), {**sealed, "plan_sha256": sha256_file(plan)})
    device = {**content["device"], "name": "Some GPU"}
    record = "campaigns/recorded/mnist_cnn/rounds.host/sealed.json"
    parts = [{**content["parts"][0], "record": record}, content["parts"][1]]
    write_json(recorded / "reference.json", {**content, "device": device, "parts": parts})
    relist(recorded)
    assert folders.check(recorded).machine is None
    (campaign,) = map(read_sealed, folders.sealed_campaigns(recorded))
    assert campaign.plan.machine.name == "some-gpu" and campaign.plan.launch_names == ("host", "host.control")
    with pytest.raises(UserError, match="is of a version whose paths name no machine: begin another"):
        reference.run(wanted(recorded.parent, out=recorded, more=True))


def test_a_folder_without_a_record_is_not_carried_on(tmp_path, capsys):
    write_json(tmp_path / "box/study.json", {})
    with pytest.raises(UserError, match=r"has no reference\.json, so there is nothing to continue"):
        reference.run(wanted(tmp_path, more=True))
    with pytest.raises(UserError, match=r"remove it: it has no reference\.json"):
        reference.run(wanted(tmp_path))
    with pytest.raises(SystemExit):
        main(["reference", "--budget-s", "nonsense"])
    assert "nonsense is no number of seconds from 30" in capsys.readouterr().err
