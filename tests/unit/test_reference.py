"""Reference campaigns: parts under a deadline, what travels, the packed folder and all for which it is refused."""

import gzip
import json
import os
import random
import shutil
import sys
import time
import zipfile
from pathlib import Path

import pytest
from builders import profile_record
from campaign_builders import rounds_campaign, write_campaign

from tare import campaign, data, reference, reference_input, reference_pack, reference_parts, study
from tare.cli import main
from tare.errors import IntegrityError, UnavailableError, UserError
from tare.files import project_root, read_json, sha256_file, write_json
from tare.process import run
from tare.reference_parts import Clock, Part, outcome, parts_of, run_parts

STUDY, STACK = "recorded", "torch-2.13"
TARE = {"version": "0.1.0", "commit": None, "modified": None, "reason": "git does not tell"}
OK = {"available": True, "reason": None}


@pytest.fixture(scope="module")
def config():
    return study.load_checked("config/reference.yaml")


# --- the parts


def test_parts_come_in_order_of_worth_and_settings_are_weighed_on_the_host(config):
    parts = parts_of(config, ["host", "charliecloud"])
    kinds = list(dict.fromkeys(part.kind for part in parts))
    assert kinds == ["ceilings", "profile", "turns", "setting", "rounds", "causes", "sweep"]
    names = [part.name for part in parts]
    assert names.index("profile mnist_cnn host") < names.index("turns mnist_cnn")
    assert names.index("rounds mnist_cnn") < names.index("profile mnist_cnn charliecloud")
    setting = next(part for part in parts if part.arm == "amp=bf16")
    assert setting.out == f"campaigns/{STUDY}/mnist_cnn/turns.host.amp-bf16/sealed.json"
    assert setting.arguments[-4:] == ("--environments", "host", "--arm", "amp=bf16")
    turns = next(part for part in parts if part.kind == "turns")
    assert turns.out == f"campaigns/{STUDY}/mnist_cnn/turns.charliecloud+host/sealed.json"
    assert {part.workload for part in parts if part.kind == "setting"} == {"mnist_cnn"}


def test_a_shorter_budget_takes_its_share_from_every_campaign(config):
    half = reference.fitted(config, reference.BUDGET_S / 2, "cpu")
    assert half["turns"]["budget_s"] == config["turns"]["budget_s"] / 2
    assert reference.fitted(config, 9999.0, None)["turns"] == config["turns"]
    assert half["device"] == "cpu"


def part(kind="rounds", workload="mnist_cnn", **more):
    return Part(kind=kind, arguments=("rounds",), out=f"{kind}/{workload}/sealed.json", workload=workload, **more)


def test_what_does_not_fit_any_more_is_recorded_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(reference_parts, "run_part", lambda *_: pytest.fail("it was started"))
    late = Clock(started=time.monotonic() - 100, budget_s=105)
    rows = run_parts([part(), part("sweep")], {"mnist_cnn": OK}, tmp_path, late)
    assert [row["status"] for row in rows] == ["unavailable", "unavailable"]
    assert all(row["reason"].startswith("no time left: 5 s") for row in rows)


def test_a_workload_without_data_stops_no_other(tmp_path, monkeypatch):
    done = {"status": "ok", "reason": None, "seconds": 1.0}
    monkeypatch.setattr(reference_parts, "run_part", lambda one, *_: {"name": one.name, **done})
    states = {"mnist_cnn": OK, "sentiment_rnn": {"available": False, "reason": "no data set"}}
    parts = [part(workload="sentiment_rnn"), part()]
    rows = run_parts(parts, states, tmp_path, Clock(started=time.monotonic(), budget_s=500))
    assert [(row["status"], row["reason"]) for row in rows] == [("unavailable", "no data set"), ("ok", None)]


def test_a_part_that_ran_tells_what_the_next_of_its_kind_needs(tmp_path, monkeypatch):
    clock = Clock(started=time.monotonic(), budget_s=60)

    def slow(one, *_):
        return {"name": one.name, "status": "ok", "reason": None, "seconds": 90.0}

    monkeypatch.setattr(reference_parts, "run_part", slow)
    rows = run_parts([part(), part()], {"mnist_cnn": OK}, tmp_path, clock)
    assert [row["status"] for row in rows] == ["ok", "unavailable"]
    assert "it would take 72 s or more" in rows[1]["reason"]


def test_a_part_that_outruns_its_deadline_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(reference_parts, "GRACE_S", 0.2)
    marker = tmp_path / "pid"
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']);"
    code += "open(sys.argv[1], 'w').write(str(p.pid)); p.wait()"
    started = time.monotonic()
    with (tmp_path / "log").open("w") as log:
        assert reference_parts._wait([sys.executable, "-c", code, str(marker)], None, log, 1.5) is None
    assert time.monotonic() - started < 10
    child = Path("/proc", marker.read_text(), "cmdline")
    for _ in range(50):  # a kill takes a moment
        if not child.exists() or not child.read_bytes():  # gone, or waits to be reaped
            return
        time.sleep(0.1)
    pytest.fail("what the part had started still runs")


def sealed_at(folder, **fields):
    path = folder / "sealed.json"
    write_json(path, {"status": "sealed", "reason": None, "units": 3, "failures": {}, **fields})
    write_json(folder / "plan.json", {"unavailable": {"host": "it needs a CUDA device"}})
    return path


def test_the_outcome_of_a_part_is_read_from_its_record(tmp_path):
    assert outcome(sealed_at(tmp_path), 0, "") == ("ok", None)
    assert outcome(sealed_at(tmp_path, status="ended", reason="no time left"), 0, "") == ("ended", "no time left")
    assert outcome(sealed_at(tmp_path, units=0), 0, "") == ("unavailable", "host: it needs a CUDA device")
    assert outcome(tmp_path / "none.json", 3, "one\ntare: it broke\n") == ("failed", "it broke")
    assert outcome(tmp_path / "none.json", None, "")[0] == "unavailable"
    write_json(tmp_path / "profile.json", {"status": "failed", "reason": "out of memory"})
    assert outcome(tmp_path / "profile.json", 0, "") == ("failed", "out of memory")


# --- a campaign under a deadline


PLAN = {"kind": "rounds", "study": "s", "workload": "w", "environments": ["host", "host.control"], "discarded": 0,
        "sampling": {"units": 50, "confidence": 0.95}}  # fmt: skip


def slow_unit(number, done):
    time.sleep(0.05)
    rows = {name: {"status": "ok", "reason": None} for name in PLAN["environments"]}
    return {"order": list(rows), "launches": rows}


def test_a_campaign_ends_before_its_deadline_and_is_sealed_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv(campaign.DEADLINE, repr(time.monotonic() + 0.5))
    one = campaign.Campaign(folder=tmp_path, plan=PLAN, run_unit=slow_unit)
    summary = campaign.run_campaign(one)
    assert summary["status"] == "ended" and summary["reason"].startswith("no time left")
    assert 1 <= summary["units"] < 50
    plan, units = campaign.read_sealed(tmp_path / "sealed.json")
    assert len(units) == summary["units"] and plan["ended"] == summary["reason"]


def test_a_campaign_without_time_for_one_unit_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setenv(campaign.DEADLINE, repr(time.monotonic() - 1))
    with pytest.raises(UnavailableError, match="no time left"):
        campaign.run_campaign(campaign.Campaign(folder=tmp_path, plan=PLAN, run_unit=slow_unit))


# --- what travels


@pytest.fixture
def carried(tmp_path, monkeypatch, data_cache):
    """A packed folder with one small data set and one small package."""
    source = data_cache / "data/prepared/abc123"
    source.mkdir(parents=True)
    (source / "rows.txt").write_text("row\n" * 100)
    file = {"path": "rows.txt", "bytes": 400, "sha256": sha256_file(source / "rows.txt")}
    record = {"schema": 1, "name": "tiny", "dataset": "tiny", "rows": 100, "files": [file], "folder": str(source)}

    def packages(folder):
        folder.mkdir()
        with zipfile.ZipFile(folder / "tare_test_package-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("tare_test_package.py", "VALUE = 7\n")

    monkeypatch.setattr(reference_input, "module_names", lambda folder: ["w"])
    monkeypatch.setattr(reference_input, "describe_workload", lambda name: {"dataset": "tiny"})
    monkeypatch.setattr(reference_input, "_pack_packages", packages)
    monkeypatch.setattr(reference_input, "_pack_ch_run", lambda folder: "not here")
    monkeypatch.setattr(data, "prepare", lambda name, *_: record)
    folder = tmp_path / "carried"
    reference_input.pack(folder)
    shutil.rmtree(source)
    return folder


def test_data_arrive_byte_for_byte_where_there_is_no_source(carried, tmp_path, monkeypatch):
    def nothing(name, *_):
        raise UnavailableError("no source answers")

    monkeypatch.setattr(data, "prepare", nothing)
    assert reference_input.read(carried)["left_out"] == "not here"
    assert reference_input.bring_data(carried, ["tiny", "other"], tmp_path / "records") == {
        "other": "no data set other: no source answers"
    }
    record = read_json(tmp_path / "records/tiny.json")
    assert (data.ensure(record) / "rows.txt").read_text() == "row\n" * 100


def test_a_carried_file_that_changed_is_refused(carried):
    (carried / "data/tiny.json").write_text("{}")
    with pytest.raises(IntegrityError, match="is not what was packed"):
        reference_input.read(carried)


def test_packages_that_are_lacking_come_from_the_folder(carried, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/before")
    before = list(sys.path)
    try:
        folder = reference_input.add_packages(carried, ("tare_test_package", "json"))
        import tare_test_package

        assert tare_test_package.VALUE == 7 and sys.path[-1] == str(folder)
        assert os.environ["PYTHONPATH"] == f"/before:{folder}"
        assert reference_input.add_packages(carried, ("json",)) is None
    finally:
        sys.path[:] = before


def test_a_package_that_nobody_brought_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(reference_input, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"has no fastjsonschema.*make reference-input"):
        reference_input.add_packages(tmp_path)


def test_a_folder_of_other_things_is_not_overwritten(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UserError, match="holds other things"):
        reference_input.pack(tmp_path)


# --- the packed folder


@pytest.fixture
def recorded(tmp_path):
    """A finished reference folder."""
    folder = tmp_path / "gpu-box"
    plan, rows = rounds_campaign(STUDY, "mnist_cnn", ["host"], {}, 6, random.Random(1), None, None)
    write_campaign(folder / f"campaigns/{STUDY}/mnist_cnn/rounds.host", plan, rows, None)
    killed = folder / f"campaigns/{STUDY}/mnist_cnn/turns.host"
    write_json(killed / "plan.json", plan)
    profile = folder / f"profiles/{STUDY}/mnist_cnn/host"
    record = profile_record(STUDY, "mnist_cnn", "host", profile, random.Random(1))
    record["trace_sha256"] = sha256_file(profile / record["trace"])
    write_json(profile / "profile.json", record)
    write_json(folder / "machine.json", {"gpus": []})
    row = {"workload": "mnist_cnn", "env": None, "arm": None, "seconds": 9.0}
    kept = {"name": "rounds mnist_cnn", "kind": "rounds", "status": "ok", "reason": None}
    lost = {"name": "turns mnist_cnn", "kind": "turns", "status": "unavailable", "reason": "no time left"}
    where = f"campaigns/{STUDY}/mnist_cnn/rounds.host/sealed.json"
    content = {
        "schema": 1,
        "name": "gpu-box",
        "at": "2026-11-21T10:00:00Z",
        "tare": TARE,
        "study": STUDY,
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
    found = reference_pack.check(recorded)
    assert [part["status"] for part in found["parts"]] == ["ok", "unavailable"]
    assert not (recorded / f"campaigns/{STUDY}/mnist_cnn/turns.host").exists()
    assert main(["check-reference", str(recorded)]) == 0


def test_the_packed_journal_holds_the_sealed_bytes(recorded):
    sealed = reference_pack.sealed_campaigns(recorded)[0]
    packed = sealed.with_name("units.jsonl.gz")
    assert not sealed.with_name("units.jsonl").exists()
    _, units = campaign.read_sealed(sealed)
    assert len(units) >= 6
    rows = gzip.decompress(packed.read_bytes()).replace(b'"status":"ok"', b'"status":"OK"', 1)
    packed.write_bytes(gzip.compress(rows))
    with pytest.raises(IntegrityError, match="not what was sealed"):
        campaign.read_sealed(sealed)
    packed.write_bytes(packed.read_bytes()[:50])
    with pytest.raises(IntegrityError, match="cut short"):
        campaign.read_sealed(sealed)


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
    sealed = reference_pack.sealed_campaigns(folder)[0].with_name("units.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(sealed.read_bytes()).splitlines()]
    rows[0]["cost_s"] = 0.5
    sealed.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


DEFECTS = {
    "a changed file": (lambda f: (f / "machine.json").write_text("{}"), IntegrityError, "is not what was recorded"),
    "a missing file": (lambda f: (f / "machine.json").unlink(), IntegrityError, "is missing"),
    "a file that nobody listed": (lambda f: (f / "more.json").write_text("{}"), IntegrityError, "is not among"),
    "a foreign file": (lambda f: ((f / "more.json").touch(), relist(f)), IntegrityError, "is no file of a"),
    "another schema": (lambda f: edit(f, schema=2), IntegrityError, "schema"),
    "an unknown key": (lambda f: edit(f, extra=1), IntegrityError, "must not contain .'extra"),
    "a part without its record": (lambda f: edit(f, parts=[{**read_json(f / "reference.json")["parts"][0],
                                  "record": "campaigns/none.json"}]), IntegrityError, "which is not there"),
    "another study": (lambda f: edit(f, study="other"), IntegrityError, "is of the study"),
    "another name": (lambda f: edit(f, name="other"), IntegrityError, "lies under"),
    "units changed, listed anew": (lambda f: (change_units(f), relist(f)), IntegrityError, "not what was sealed"),
    "another trace": (lambda f: (next(f.glob("profiles/*/*/*/trace.json.gz")).write_bytes(b"x"), relist(f)),
                      IntegrityError, "is not the file that profile.json names"),
    "no record": (lambda f: (f / "reference.json").unlink(), UserError, "cannot read"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_folder_that_is_not_what_was_recorded_is_refused(recorded, defect):
    spoil, error, words = DEFECTS[defect]
    spoil(recorded)
    with pytest.raises(error, match=words):
        reference_pack.check(recorded)


def test_a_folder_that_is_too_large_is_refused(recorded, monkeypatch):
    monkeypatch.setattr(reference_pack, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="is the most that is kept"):
        reference_pack.check(recorded)


def test_tables_are_made_outside_of_the_recorded_folder(recorded, tmp_path):
    before = {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()}
    assert main(["reference-tables", str(recorded), "--out", str(tmp_path / "tables")]) == 0
    header, *rows = (tmp_path / "tables/metrics.csv").read_text().splitlines()
    assert "metric" in header and len(rows) > 50
    assert (tmp_path / "tables/verdicts.csv").exists()
    assert {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()} == before
    with pytest.raises(UserError, match="lies in the reference folder"):
        reference_pack.write_tables(recorded, recorded / "tables")


def test_one_bad_reference_leaves_its_reason_instead_of_tables(recorded, tmp_path):
    (recorded / "machine.json").unlink()
    arguments = ["reference-tables", str(recorded), "--out", str(tmp_path / "tables")]
    assert main(arguments) == 4
    assert main([*arguments, "--keep-going"]) == 0
    assert "machine.json is missing" in read_json(tmp_path / "tables/broken.json")["reason"]
    assert len((tmp_path / "tables/metrics.csv").read_text().splitlines()) == 1


def test_every_reference_that_is_kept_is_whole():
    kept = project_root() / "results/reference"
    for folder in reference_pack.references(kept):
        reference_pack.check(folder)


# --- a Python that has little more than the framework


LACKING = (
    "pandera",
    "pydantic",
    "snakemake",
    "papermill",
    "nbconvert",
    "jupyter",
    "markdown",
    "zstandard",
    "spython",
    "pynvml",
)
MEASURES = (
    "tare.cli",
    "tare.measure",
    "tare.reference",
    "tare.bound",
    "tare.commands.runs",
    "tare.commands.reference",
)


def test_measuring_imports_nothing_that_a_frameworks_own_machine_lacks():
    code = f"""
import importlib, sys
class Refuse:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {LACKING}:
            raise ModuleNotFoundError("a machine without " + name)
sys.meta_path.insert(0, Refuse())
for name in {MEASURES}:
    importlib.import_module(name)
from tare.registry import environments
print(sorted(environments()))
"""
    ended = run([sys.executable, "-c", code], timeout_s=120, cwd=project_root())
    assert ended.ok, ended.stderr[-1500:]
    assert "charliecloud" in ended.stdout


# --- the request


def wanted(tmp_path, **changes):
    named = {"python": Path(sys.executable), "source": "config/reference.yaml", "carried": tmp_path / "none"}
    return reference.Wanted(**{**named, "budget_s": 60.0, "device": "cpu", "out": tmp_path / "box", **changes})


def test_mistakes_are_said_before_anything_is_measured(tmp_path):
    with pytest.raises(UserError, match=r"no part 'turn'.*did you mean 'turns'"):
        reference.run(wanted(tmp_path, only=("turn",)))
    with pytest.raises(UserError, match="no name of a reference"):
        reference.run(wanted(tmp_path, out=tmp_path / "My Box"))
    (tmp_path / "box").mkdir()
    (tmp_path / "box/mine").touch()
    with pytest.raises(UserError, match="holds something already"):
        reference.run(wanted(tmp_path))


def test_a_campaign_is_carried_on_by_the_same_framework_on_the_same_device(tmp_path):
    now = {"python": "3.12.3", "torch": {"version": "2.11.0"}, "device": {"name": "Some GPU"}}
    reference.refuse_another(None, now, tmp_path)
    reference.refuse_another({**now, "parts": []}, now, tmp_path)
    with pytest.raises(UserError, match="was measured on 'Another'"):
        reference.refuse_another({**now, "device": {"name": "Another"}}, now, tmp_path)
    with pytest.raises(UserError, match="was measured with torch"):
        reference.refuse_another({**now, "torch": {"version": "2.10.0"}}, now, tmp_path)
    with pytest.raises(UserError, match="name the folder"):
        reference.run(wanted(tmp_path, out=None, more=True))


def test_what_had_no_time_is_tried_again_and_what_is_done_is_kept(recorded, tmp_path, monkeypatch):
    config = study.load_checked("config/reference.yaml")
    before = reference_pack.check(recorded)
    asked = []

    def run_parts(parts, *_):
        asked.extend(part.name for part in parts)
        return [reference_parts._row(part, "ok", None, 1.0) for part in parts]

    monkeypatch.setattr(reference, "run_parts", run_parts)
    monkeypatch.setattr(reference, "prepare_environments", lambda *_: {"host": OK})
    monkeypatch.setattr(reference, "bring_data", lambda *_: {})
    clock = Clock(started=time.monotonic(), budget_s=60)
    found = reference.measure(config, wanted(tmp_path, only=("turns", "rounds")), recorded, clock, before)
    assert asked == ["turns mnist_cnn", "turns sentiment_rnn", "rounds sentiment_rnn"]
    rows = {row["name"]: row for row in found["parts"]}
    assert rows["rounds mnist_cnn"]["seconds"] == 9.0 and rows["turns mnist_cnn"]["status"] == "ok"
    assert rows["sweep mnist_cnn"]["reason"] == "it was not asked for (--only)"
    assert reference_parts.wants_again(rows["sweep mnist_cnn"])
    assert not reference_parts.wants_again({"status": "failed", "reason": "it broke"})


@pytest.mark.parametrize(("units", "kept"), [(9, 9), (2, 6), (None, 6)])
def test_a_second_try_replaces_the_first_only_if_it_leaves_as_much(tmp_path, units, kept):
    row = {
        "name": "rounds mnist_cnn",
        "status": "ended",
        "reason": "no time left",
        "record": "c/rounds/sealed.json",
    }
    sealed_at(tmp_path / "c/rounds", units=6)
    with reference_parts.better(row, tmp_path) as tried:
        assert not (tmp_path / "c/rounds").exists()
        if units is not None:
            sealed_at(tmp_path / "c/rounds", units=units)
        tried.append({"status": "ok", "record": row["record"] if units else None})
    assert read_json(tmp_path / "c/rounds/sealed.json")["units"] == kept
    assert (tried[0] is row) == (kept == 6)
    assert not list(tmp_path.glob(".earlier-*"))


def test_a_default_name_is_the_devices_and_the_date(monkeypatch):
    monkeypatch.setattr(reference.machine, "gpus", lambda: ({"name": "NVIDIA H100 80GB HBM3"},))
    assert reference.default_name("cuda").startswith("nvidia-h100-80gb-hbm3-20")
    assert reference.NAME.fullmatch(reference.default_name("cuda"))
