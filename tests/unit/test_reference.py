"""Reference campaigns: parts under a deadline, what travels, the packed folder and all for which it is refused."""

import os
import shutil
import sys
import time
import zipfile
from pathlib import Path
from platform import machine
from types import SimpleNamespace

import pytest
from image_builders import data_record
from test_campaign import plan_of

from tare.cli import reference as reference_command
from tare.cli.main import main
from tare.core.errors import IntegrityError, UnavailableError, UserError
from tare.core.files import project_root, read_json, sha256_file, write_json
from tare.core.manifest import read_manifest
from tare.core.process import run
from tare.datasets import catalog
from tare.experiments import campaign, reference, reference_input, reference_parts
from tare.experiments import carried as carried_packages
from tare.experiments.carried import add_packages
from tare.experiments.designs import Design
from tare.experiments.reference_parts import Clock, Part, outcome, parts_of, run_parts
from tare.model.journals.sealed import read_sealed
from tare.model.records.campaigns import Sampling
from tare.model.records.images import DataFile, DataRecord
from tare.model.registry import module_names
from tare.model.schema import read as read_record
from tare.model.studies import loading, sections

STUDY, STACK = "recorded", "torch-2.13"
TARE = {"version": "0.1.0", "commit": None, "modified": None, "reason": "git does not tell"}
OK = {"available": True, "reason": None}


@pytest.fixture(scope="module")
def config():
    return loading.load_checked("config/reference.yaml")


# --- the parts


def test_parts_come_in_order_of_worth_and_settings_are_weighed_on_the_host(config):
    parts = parts_of(config.replace(environments=("host", "charliecloud")), ["host", "charliecloud"])
    kinds = list(dict.fromkeys(part.kind for part in parts))
    assert kinds == ["ceilings", "profile", "rounds", "setting", "pipeline", "sweep"]
    names = [part.name for part in parts]
    assert names.index("profile mnist_cnn host") < names.index("rounds mnist_cnn")
    assert names.index("rounds mnist_cnn") < names.index("profile mnist_cnn charliecloud")
    setting = next(part for part in parts if part.arm == "amp=bf16")
    assert setting.out == f"campaigns/{STUDY}/box/resnet50/rounds.host.amp-bf16/sealed.json"
    assert setting.arguments[-4:] == ("--environments", "host", "--arm", "amp=bf16")
    first = next(part for part in parts if part.kind == "rounds")
    assert first.out == f"campaigns/{STUDY}/box/mnist_cnn/rounds.charliecloud+host/sealed.json"
    weighed = [part for part in parts if part.kind == "setting" and part.arm != "input=synthetic"]
    assert {part.workload for part in weighed} == {"resnet50"}


def test_a_shorter_budget_takes_its_share_from_every_campaign(config):
    half = reference.fitted(config, reference.BUDGET_S / 2, "cpu")
    assert half.rounds.budget_s == config.rounds.budget_s / 2
    assert reference.fitted(config, 9999.0, None).rounds == config.rounds
    assert half.device == "cpu"


def test_the_models_of_the_studies_of_images_and_of_sequences_are_in_it(config):
    """As published on a device; on a CPU small enough to leave the others their time."""
    wanted = {"resnet18", "resnet50", "alexnet", "inception3", "sentiment_lstm", "transformer_lm"}
    assert wanted < set(config.workloads) and config.data.tiny_imagenet == "stamps"
    small, full = (reference.fitted(config, reference.BUDGET_S, device) for device in ("cpu", "cuda"))
    assert small.workloads == config.workloads
    sizes = {name: (full.workloads[name].batch, full.workloads[name].sweep_batches) for name in wanted}
    assert sizes["resnet50"] == sizes["alexnet"] == (256, (256,)) and sizes["inception3"] == (32, (32,))
    options = full.workloads["resnet50"].options
    assert (options["image_px"], options["samples"], options["classes"]) == (224, 3 * 256, 200)
    assert all(settings.scaled(name) is None for name, settings in full.workloads.items())
    for whole in (small, full):
        parts = parts_of(whole, ["host"])
        for kind in ("profile", "rounds"):
            own = [part.workload for part in parts if part.kind == kind and part.arm is None]
            assert set(own) == set(config.workloads) and own[:2] == ["mnist_cnn", "sentiment_rnn"]


def test_whole_runs_without_reading_and_the_input_alone_come_after_the_headlines(config):
    parts = parts_of(config.replace(environments=("host", "docker")), ["host", "docker"])
    names = [part.name for part in parts]
    images = ["resnet50", "resnet18", "alexnet", "inception3"]
    assert [part.workload for part in parts if part.arm == "input=synthetic"] == images
    made, alone = (
        next(part for part in parts if part.name == name)
        for name in ("setting resnet50 input=synthetic", "pipeline resnet50")
    )
    assert made.out == f"campaigns/{STUDY}/box/resnet50/rounds.docker+host.input-synthetic/sealed.json"
    assert made.arguments[-5:] == ("--environments", "host", "docker", "--arm", "input=synthetic")
    assert alone.out == f"profiles/{STUDY}/box/resnet50/pipeline.json" and alone.arguments[0] == "pipeline"
    places = [names.index(name) for name in ("rounds transformer_lm", made.name, alone.name, "sweep mnist_cnn")]
    assert places == sorted(places)


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
    marker = tmp_path / "pid"
    code = "import signal, subprocess, sys; p = subprocess.Popen(['sleep', '600']);"
    code += "end = lambda *_: (open(sys.argv[1] + '.told', 'w').close(), sys.exit());"
    code += "signal.signal(signal.SIGTERM, end); open(sys.argv[1], 'w').write(str(p.pid)); p.wait()"
    started = time.monotonic()
    with (tmp_path / "log").open("w") as log:
        assert reference_parts._wait([sys.executable, "-c", code, str(marker)], None, log, 1.5) is None
    assert time.monotonic() - started < 120, "it waited for what sleeps for 600 s"
    assert marker.with_name("pid.told").exists(), "it was asked to end before it was killed"
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


@pytest.mark.parametrize("left_s", [1e6, 40.0])
def test_a_part_gets_its_records_and_its_share_of_the_budget_if_so_much_is_left(tmp_path, monkeypatch, left_s):
    seen, now = [], []

    def wait(argv, variables, log, timeout_s):
        seen.append((argv, float(variables[reference_parts.DEADLINE]), timeout_s))
        now.append(1002.54)
        log.write(b"tare: it broke\n")
        return 3

    monkeypatch.setattr(reference_parts, "_wait", wait)
    monkeypatch.setattr(reference_parts.time, "monotonic", lambda: now.pop() if now else 1000.0)
    clock = SimpleNamespace(left_s=left_s, budget_s=36_000.0)
    plain = Part(kind="ceilings", arguments=("ceilings",), out=Path("ceilings.json"))
    job = Part(kind="rounds", arguments=("rounds",), out=Path("sealed.json"), workload="mnist_cnn")
    for part in (plain, job):
        row = reference_parts.run_part(part, tmp_path, clock)
        assert (row["status"], row["reason"], row["seconds"]) == ("failed", "it broke", 2.5)
        argv, deadline, timeout_s = seen.pop()
        most_s = min(left_s, max(reference_parts.LEAST_CAP_S, reference_parts.SHARES[part.kind] * 36_000.0))
        assert (deadline, timeout_s) == (1000.0 + most_s, most_s + reference_parts.GRACE_S)
        assert argv[:4] == [sys.executable, "-m", "tare", part.kind]
        assert argv[-2:] == ["--out", str(tmp_path / part.out)]
        assert ("--data" in argv) == (part is job) and "--images" in argv


def test_the_outcome_of_a_part_is_read_from_its_record(tmp_path):
    assert outcome(sealed_at(tmp_path), 0, "") == ("ok", None)
    assert outcome(sealed_at(tmp_path, status="ended", reason="no time left"), 0, "") == ("ended", "no time left")
    assert outcome(sealed_at(tmp_path, units=0), 0, "") == ("unavailable", "host: it needs a CUDA device")
    assert outcome(tmp_path / "none.json", 3, "one\ntare: it broke\n") == ("failed", "it broke")
    assert outcome(tmp_path / "none.json", None, "")[0] == "unavailable"
    write_json(tmp_path / "profile.json", {"status": "failed", "reason": "out of memory"})
    assert outcome(tmp_path / "profile.json", 0, "") == ("failed", "out of memory")
    said = "tare: no unit of the campaign in /x counts: no time left: a unit takes up to 66 s; run it again\n"
    status, reason = outcome(tmp_path / "none.json", 3, said)
    assert (status, reason) == ("unavailable", "no time left: a unit takes up to 66 s")
    assert reference_parts.wants_again({"status": status, "reason": reason})


def test_a_part_that_failed_or_has_an_odd_record_says_so_in_few_words(tmp_path):
    record = sealed_at(tmp_path)
    assert outcome(record, 3, "one\ntwo\ntare: it broke\n") == ("failed", "it broke")
    assert outcome(record, 4, "no time left: 5 s") == ("failed", "no time left: 5 s")
    assert outcome(record, 1, "x" * 600) == ("failed", "x" * 500)
    assert outcome(tmp_path / "none.json", 0, " \n\n") == ("failed", "it printed nothing")
    assert outcome(record, UnavailableError.exit_code, "tare: no Docker\n") == ("failed", "no Docker")
    said = "no time left: " + "x" * 600
    assert outcome(record, 1, said) == ("failed", said[:500])
    assert outcome(record, UnavailableError.exit_code, said) == ("unavailable", said[:500])
    ended = sealed_at(tmp_path, status="ended", reason="no time left", units=0)
    assert outcome(ended, 0, "") == ("unavailable", "no time left")
    gone = sealed_at(tmp_path, units=0, failures={"docker": "it broke", "host": "no room"})
    assert outcome(gone, 0, "") == ("unavailable", "it broke")
    sealed_at(tmp_path, units=0)
    write_json(tmp_path / "plan.json", {"unavailable": None})
    assert outcome(gone, 0, "") == ("unavailable", "no unit counts")
    profile = tmp_path / "profile.json"
    for status, found in (
        ("ok", ("ok", None)),
        ("unavailable", ("unavailable", "none")),
        ("ended", ("failed", "none")),
    ):
        write_json(profile, {"status": status, "reason": "none", "units": 0})
        assert outcome(profile, 0, "") == found


def test_the_clock_tells_what_is_gone_and_what_is_left(monkeypatch):
    monkeypatch.setattr(reference_parts.time, "monotonic", lambda: 130.0)
    clock = Clock(started=100.0, budget_s=540.0)
    assert (clock.gone_s, clock.left_s) == (30.0, 510.0)


def test_the_cheapest_of_a_kind_says_what_the_next_one_needs_and_only_if_it_ended_well(tmp_path, monkeypatch):
    ran = []

    def run_part(one, *_):
        ran.append(one.name)
        status, clock.left_s, seconds = told[len(ran) - 1]
        return {"name": one.name, "status": status, "reason": None, "seconds": seconds, "record": None}

    monkeypatch.setattr(reference_parts, "run_part", run_part)
    least = reference_parts.LEAST_S["rounds"]
    clock = SimpleNamespace(left_s=0.8 * least, gone_s=0.0)
    told = [("failed", 0.8 * least, 500.0), ("unavailable", 0.8 * least, 500.0), ("ok", 80.0, 100.0)]
    told += [("ok", 16.0, 20.0), ("ok", 15.9, 90.0)]
    rows = run_parts([part()] * 6, {"mnist_cnn": OK}, tmp_path, clock)
    assert [row["status"] for row in rows] == ["failed", "unavailable", "ok", "ok", "ok", "unavailable"]
    assert "it would take 16 s or more" in rows[-1]["reason"] and rows[-1]["seconds"] == 0.0


def test_a_row_of_before_stands_where_it_has_a_record_and_the_new_one_none(tmp_path, monkeypatch):
    new = {"name": part().name, "status": "failed", "reason": "it broke", "seconds": 1.0, "record": None}
    monkeypatch.setattr(reference_parts, "run_part", lambda *_: dict(new))
    sealed_at(tmp_path / "rounds/mnist_cnn")
    clock, kept = SimpleNamespace(left_s=0.0, gone_s=0.0), []
    before = {"name": part().name, "status": "ended", "reason": "no time left", "record": part().out}

    def row_of(earlier):
        (row,) = run_parts([part()], {"mnist_cnn": OK}, tmp_path, clock, {part().name: earlier}, kept.append)
        return row

    assert row_of(before) is before and kept == [[before]]
    assert row_of({**before, "record": None})["status"] == "unavailable"
    clock.left_s = 500.0
    assert row_of({**before, "record": None}) == new
    monkeypatch.setattr(reference_parts, "run_part", lambda *_: {**new, "status": "ok", "record": part().out})
    assert row_of({**before, "record": None})["status"] == "ok"


@pytest.mark.parametrize(
    ("status", "reason", "again"),
    [
        ("ended", "no time left: 5 s", True), ("unavailable", reference_parts.NOT_ASKED, True),
        ("unavailable", "no Docker", False), ("ended", "the machine changed", False),
        ("failed", "no time left", False), ("ok", None, False),
    ],
)  # fmt: skip
def test_only_what_had_no_time_or_was_not_asked_for_is_tried_again(status, reason, again):
    assert reference_parts.wants_again({"status": status, "reason": reason}) == again


def test_a_row_names_its_record_where_there_is_one_and_why_a_part_was_not_run():
    one = part(env="host")
    found = {status: reference_parts._row(one, status, None, 1.26) for status in ("ok", "ended", "failed")}
    assert {status: row["record"] for status, row in found.items()} == {
        "ok": one.out,
        "ended": one.out,
        "failed": None,
    }
    assert found["ok"]["seconds"] == 1.3 and found["ok"]["name"] == "rounds mnist_cnn host"
    assert reference_parts.not_run(one, [one])["reason"] == reference_parts.NOT_REACHED
    assert reference_parts.not_run(one, [])["reason"] == reference_parts.NOT_ASKED


def test_a_commands_own_end_is_told_at_once(tmp_path):
    with (tmp_path / "log").open("w") as log:
        assert reference_parts._wait([sys.executable, "-c", "raise SystemExit(3)"], None, log, 100.0) == 3


def test_parts_are_campaigns_of_the_studys_own_stack_alone_and_of_environments_that_can_be_used(
    config, monkeypatch
):
    both = parts_of(config.replace(environments=("host", "podman")), ["host", "podman"])
    assert "profile mnist_cnn podman" in [one.name for one in both]
    alone = parts_of(config.replace(environments=("host", "docker")), ["host"])
    assert not [one for one in alone if "docker" in one.arguments]
    without = parts_of(config.replace(pipeline=None), ["host"])
    assert [one.name for one in without] == [one.name for one in alone if one.kind != "pipeline"]
    common = {"workload": "mnist_cnn", "environments": ("host",), "name": "c"}
    found = [
        SimpleNamespace(**{**common, "kind": kind, "stack": stack, "scenario": scenario, "arm": arm})
        for kind in ("rounds", "sweep")
        for stack in (config.stack, "a-stack", "torch-1.4")
        for scenario in ("single", "shared", "two_jobs")
        for arm in (None, "amp=bf16")
    ]
    monkeypatch.setattr(reference_parts, "campaigns", lambda whole: found)
    (rounds,), (sweep,) = (list(reference_parts._campaigns(config, kind)) for kind in ("rounds", "sweep"))
    assert (rounds.name, sweep.name) == ("rounds mnist_cnn", "sweep mnist_cnn")
    assert "--environments" in rounds.arguments and "--environments" not in sweep.arguments
    assert "--arm" not in rounds.arguments and rounds.arguments[3:5] == ("--workload", "mnist_cnn")
    (setting,) = reference_parts._campaigns(config, "rounds", of_arms=True)
    assert setting.name == "setting mnist_cnn amp=bf16" and setting.arguments[-2:] == ("--arm", "amp=bf16")
    assert "--workload" not in alone[0].arguments


# --- a campaign under a deadline


def slow_unit(plan, number, done):
    time.sleep(0.05)
    rows = {name: {"status": "ok", "reason": None} for name in plan.launch_names}
    return {"order": list(rows), "launches": rows}


SLOW = Design(plan=plan_of(Sampling(units=50, confidence=0.95), discarded=0), run_unit=slow_unit, what="slow")


def test_a_campaign_ends_before_its_deadline_and_is_sealed_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv(campaign.DEADLINE, repr(time.monotonic() + 0.5))
    summary = campaign.run_campaign(tmp_path, SLOW)
    assert summary.status == "ended" and summary.reason.startswith("no time left")
    assert 1 <= summary.units < 50
    found = read_sealed(tmp_path / "sealed.json")
    assert len(found.units) == summary.units and found.ended == summary.reason


def test_a_campaign_without_time_for_one_unit_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setenv(campaign.DEADLINE, repr(time.monotonic() - 1))
    with pytest.raises(UnavailableError, match="no time left"):
        campaign.run_campaign(tmp_path, SLOW)


# --- what travels


@pytest.fixture
def carried(tmp_path, monkeypatch, data_cache):
    """A packed folder with one small data set and one small package."""
    source = data_cache / "data/prepared/abc123"
    source.mkdir(parents=True)
    (source / "rows.txt").write_text("row\n" * 100)
    file = DataFile(path="rows.txt", bytes=400, sha256=sha256_file(source / "rows.txt"))
    record = data_record(rows=100, files=(file,), bytes=400, folder=str(source))

    def packages(folder):
        folder.mkdir()
        with zipfile.ZipFile(folder / "tare_test_package-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("tare_test_package.py", "VALUE = 7\n")

    choices = sections.DataChoices(sentiment="auto")
    monkeypatch.setattr(
        reference_input, "load_checked", lambda path: SimpleNamespace(workloads=["w"], data=choices)
    )
    monkeypatch.setattr(reference_input, "describe_workload", lambda name: {"dataset": "tiny"})
    monkeypatch.setattr(reference_input, "pack_packages", packages)
    monkeypatch.setattr(catalog, "prepare", lambda name, *_: record)
    folder = tmp_path / "carried"
    reference_input.pack(folder)
    shutil.rmtree(source)
    return folder


def test_data_arrive_byte_for_byte_where_there_is_no_source(carried, tmp_path, monkeypatch):
    def nothing(name, *_):
        raise UnavailableError("no source answers")

    monkeypatch.setattr(catalog, "prepare", nothing)
    assert reference_input.read(carried)["files"]
    assert reference_input.bring_data(carried, ["tiny", "other"], tmp_path / "records") == {
        "other": "no data set other: no source answers"
    }
    record = read_record(DataRecord, tmp_path / "records/tiny.json")
    assert (catalog.ensure(record) / "rows.txt").read_text() == "row\n" * 100


def test_a_set_of_many_files_travels_by_folders_as_the_study_chooses_it(tmp_path, monkeypatch, data_cache):
    """The record of one that the workflow made of another source is no record of this one."""
    source = data_cache / "data/prepared/abc124"
    for number in range(catalog.MANY_FILES):
        (source / f"train/n{number % 3}/images").mkdir(parents=True, exist_ok=True)
        (source / f"train/n{number % 3}/images/{number}.JPEG").write_bytes(b"image %d" % number)
    (source / "wnids.txt").write_text("n0\nn1\nn2\n")
    kept = SimpleNamespace(entries=read_manifest(source))
    made = data_record(name="tiny_imagenet", choice="stamps", files=catalog._files(kept), folder=str(source))
    asked = []

    def prepare(name, choice):
        asked.append((name, choice))
        return made

    monkeypatch.setattr(catalog, "prepare", prepare)
    monkeypatch.setattr(catalog, "ensure", lambda record: source)
    monkeypatch.setattr(reference_input, "project_root", lambda: tmp_path)
    made.replace(choice="auto").write(tmp_path / "results/data/tiny_imagenet.json")
    chosen = sections.DataChoices(sentiment="auto", tiny_imagenet="stamps")
    reference_input._pack_data("tiny_imagenet", chosen, tmp_path / "carried")
    assert asked == [("tiny_imagenet", "stamps")]
    shutil.rmtree(source)
    packed = read_record(DataRecord, tmp_path / "carried/tiny_imagenet.json")
    found = Path(catalog.unpack(packed, tmp_path / "carried/tiny_imagenet.tar.gz").folder)
    assert len(list(found.rglob("*.JPEG"))) == catalog.MANY_FILES
    assert (found / "train/n1/images/1.JPEG").read_bytes() == b"image 1"


def test_a_carried_file_that_changed_is_refused(carried):
    (carried / "data/tiny.json").write_text("{}")
    with pytest.raises(IntegrityError, match="is not what was packed"):
        reference_input.read(carried)


def test_packages_that_are_lacking_come_from_the_folder(carried, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/before")
    before = list(sys.path)
    try:
        folder = add_packages(carried, ("tare_test_package", "json"))
        import tare_test_package

        assert tare_test_package.VALUE == 7 and sys.path[0] == str(folder)
        assert os.environ["PYTHONPATH"] == f"{folder}:/before" and len(folder.name) == 16
        assert add_packages(carried, ("json",)) is None
        assert add_packages(carried, ("nobody_brought_this",)) is None, "only what checks records is needed"
    finally:
        sys.path[:] = before


def test_a_wheel_that_is_not_what_was_packed_is_refused(carried, monkeypatch):
    monkeypatch.setattr(carried_packages, "find_spec", lambda name: None)
    (wheel,) = (carried / "wheels").iterdir()
    for number in range(8):
        wheel.write_text(f"another {number}")
        with pytest.raises(IntegrityError, match="is not what was packed"):
            add_packages(carried, ("tare_test_package",))


def test_wheels_are_packed_for_every_python_by_the_hashes_of_the_lock(tmp_path, monkeypatch):
    asked = []

    def run(argv, **more):
        lock = Path(argv[argv.index("--requirement") + 1]).read_text()
        asked.append((argv[-1], lock, argv[argv.index("--dest") + 1]))
        return SimpleNamespace(ok=len(asked) != 6, explain=lambda: "no network")

    monkeypatch.setattr(carried_packages, "run", run)
    carried_packages.pack_packages(tmp_path / "wheels")
    assert [version for version, *_ in asked] == list(carried_packages.PYTHONS)
    (lock,) = {lock for _, lock, _ in asked}
    assert {line.split("==")[0] for line in lock.splitlines()} == set(carried_packages.PACKAGES)
    assert all("--hash=sha256:" in line for line in lock.splitlines())
    assert {folder for *_, folder in asked} == {str(tmp_path / "wheels")}
    with pytest.raises(UnavailableError, match="no network"):
        carried_packages.pack_packages(tmp_path / "others")
    assert len(asked) == 6


def test_a_package_that_nobody_brought_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(carried_packages, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"has no pydantic of version 2\.7.*make reference-input"):
        add_packages(tmp_path)


def test_what_checks_records_is_brought_whole_where_it_is_too_old_and_fits_this_python(tmp_path, monkeypatch):
    """Its compiled core is of one Python; one of the five alone would not fit the others."""
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(carried_packages.metadata, "version", lambda name: "1.10.2")
    (tmp_path / "wheels").mkdir()
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for name in carried_packages.CHECKER:
        compiled = name == "pydantic-core"
        for tag in (f"cp310-cp310-x_{machine()}", f"{own}-{own}-x_{machine()}") if compiled else ("py3-none-any",):
            stem = name.replace("-", "_")
            with zipfile.ZipFile(tmp_path / "wheels" / f"{stem}-9.9-{tag}.whl", "w") as archive:
                archive.writestr(f"{stem}.txt", tag)
    folder = add_packages(tmp_path, carried_packages.CHECKER)
    assert {path.stem for path in folder.iterdir()} == {n.replace("-", "_") for n in carried_packages.CHECKER}
    assert (folder / "pydantic_core.txt").read_text().startswith(own)
    assert sys.path[0] == str(folder)


@pytest.mark.parametrize(
    ("version", "checks"),
    [
        ("2.6.9", False), ("2.7", True), ("2.12.1", True), ("1.10", False), ("3.0", True), ("unknown", False),
        (None, False),
    ],
)  # fmt: skip
def test_this_pythons_own_pydantic_checks_where_it_is_new_enough(tmp_path, monkeypatch, version, checks):
    def installed(name):
        if version is None:
            raise carried_packages.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(carried_packages.metadata, "version", installed)
    if checks:
        assert add_packages(tmp_path, carried_packages.CHECKER) is None
    else:
        with pytest.raises(UnavailableError):
            add_packages(tmp_path, carried_packages.CHECKER)


def test_a_folder_of_other_things_is_not_overwritten(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UserError, match="holds other things"):
        reference_input.pack(tmp_path)


def test_a_folder_that_was_packed_before_is_packed_anew_and_never_one_that_is_too_large(
    carried, tmp_path, monkeypatch, data_cache
):
    source = data_cache / "data/prepared/abc123"
    source.mkdir(parents=True, exist_ok=True)
    (source / "rows.txt").write_text("row\n" * 100)
    (carried / "stale.txt").touch()
    file_of = reference_input._file
    monkeypatch.setattr(reference_input, "_file", lambda path, folder: {**file_of(path, folder), "bytes": 10})
    most = 10 * len(reference_input.read(carried)["files"])
    monkeypatch.setattr(reference_input, "MOST_BYTES", most)
    content = reference_input.pack(carried)
    assert content == reference_input.read(carried) and not (carried / "stale.txt").exists()
    assert most == sum(file["bytes"] for file in content["files"])
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(reference_input, "MOST_BYTES", most - 1)
    for folder in (tmp_path / "empty", tmp_path / "not/there"):
        with pytest.raises(UserError, match="is the most"):
            reference_input.pack(folder)
        assert folder.exists() and not (folder / reference_input.LIST).exists()


def test_nothing_carried_is_no_fault_and_a_file_that_was_lost_is(carried, tmp_path):
    assert reference_input.read(tmp_path / "none") is None
    (carried / "data/tiny.tar.gz").unlink()
    with pytest.raises(IntegrityError, match=r"tiny\.tar\.gz is not what was packed \(sha256 missing\)"):
        reference_input.read(carried)


def test_a_data_set_that_nobody_carried_is_prepared_here(tmp_path, monkeypatch):
    asked = []

    def prepare(name):
        asked.append(name)
        return data_record(name=name)

    monkeypatch.setattr(catalog, "prepare", prepare)
    monkeypatch.setattr(catalog, "ensure", asked.append)
    assert reference_input.bring_data(tmp_path / "none", ["mnist"], tmp_path / "records") == {}
    assert asked == ["mnist", data_record(name="mnist")] and (tmp_path / "records/mnist.json").exists()


def test_what_the_workflow_prepared_is_packed_as_it_is(tmp_path, monkeypatch):
    source = tmp_path / "prepared"
    source.mkdir()
    (source / "rows.txt").write_text("row\n")
    file = DataFile(path="rows.txt", bytes=4, sha256=sha256_file(source / "rows.txt"))
    made = data_record(name="mnist", files=(file,), bytes=4, folder=str(source))
    monkeypatch.setattr(reference_input, "project_root", lambda: tmp_path)
    monkeypatch.setattr(catalog, "prepare", lambda *_: pytest.fail("it was prepared again"))
    monkeypatch.setattr(catalog, "ensure", lambda record: source)
    chosen = sections.DataChoices(sentiment="auto")
    made.write(tmp_path / reference_input.layout.data_record(chosen.record_of("mnist")))
    for _ in range(2):  # as of two data sets
        reference_input._pack_data("mnist", chosen, tmp_path / "carried")
    assert read_record(DataRecord, tmp_path / "carried/mnist.json").folder == "prepared"


@pytest.mark.parametrize(("changed", "modified"), [("", False), (" M a.py\n", True)])
def test_the_version_is_what_git_says_and_else_of_when_the_input_was_packed(monkeypatch, changed, modified):
    said = {"rev-parse": "c0ffee\n", "status": changed}

    def answers(argv, *, check, **_):
        assert check
        return SimpleNamespace(stdout=said[argv[1]])

    monkeypatch.setattr(reference_input, "run", answers)
    found = reference_input.version()
    assert (found["commit"], found["modified"], found["reason"]) == ("c0ffee", modified, None)
    assert reference.version_or_packed({"tare": TARE}) == found

    def refuse(argv, **_):
        raise UnavailableError("no git")

    monkeypatch.setattr(reference_input, "run", refuse)
    assert reference_input.version()["commit"] is None and "no git" in reference_input.version()["reason"]
    assert reference.version_or_packed(None) == reference_input.version()
    packed = reference.version_or_packed({"tare": {**TARE, "commit": "c0ffee"}})
    assert packed["commit"] == "c0ffee" and "was packed" in packed["reason"]


# --- what the folder says of the machine


def test_a_study_takes_the_processors_that_there_are_and_its_share_of_the_time(config, monkeypatch):
    monkeypatch.setattr(reference.os, "sched_getaffinity", {0: {3, 5}}.__getitem__)
    found = reference.fitted(config, reference.BUDGET_S / 7, "cpu")
    assert found.conditions.cpus == 2 < config.conditions.cpus
    assert found.rounds.budget_s == round(config.rounds.budget_s / 7, 1)
    assert found.rounds.arm_budget_s == round(config.rounds.arm_budget_s / 7, 1)
    monkeypatch.setattr(reference.os, "sched_getaffinity", {0: set(range(99))}.__getitem__)
    assert reference.fitted(config, reference.BUDGET_S, "cpu").conditions.cpus == config.conditions.cpus


GPUS = ({"name": "NVIDIA H100"}, {"name": "another"})


def test_a_device_is_named_by_its_driver_or_by_the_framework(monkeypatch):
    monkeypatch.setattr(reference.machine, "gpus", lambda: GPUS)
    assert reference.describe_device("cuda", {"device": "H"}) == {
        "kind": "cuda",
        "name": "NVIDIA H100",
        "facts": GPUS[0],
    }
    monkeypatch.setattr(reference.machine, "gpus", lambda: ({"name": ""},))
    assert reference.describe_device("cuda", {"device": "H"})["name"] == "H"
    monkeypatch.setattr(reference.machine, "describe", lambda: {"cpu_model": "Example CPU"})
    assert reference.describe_device("cpu", {}) == {"kind": "cpu", "name": "Example CPU", "facts": None}
    monkeypatch.setattr(reference.machine, "describe", lambda: {"cpu_model": "9" * 70})
    assert reference.default_name("cpu").startswith("9" * 60 + "-2")
    monkeypatch.setattr(reference.machine, "describe", lambda: {"cpu_model": ""})
    assert reference.default_name("cpu").startswith("cpu-2")


def test_a_machine_is_named_by_its_device_unless_it_has_a_name(monkeypatch):
    monkeypatch.setattr(reference.machine, "gpus", lambda: GPUS)
    monkeypatch.setenv(reference.MACHINE, "given")
    reference.name_machine("cuda", None)
    assert os.environ[reference.MACHINE] == "given"
    reference.name_machine("cuda", {"machine": "of-before"})
    assert os.environ[reference.MACHINE] == "of-before"
    monkeypatch.delenv(reference.MACHINE)
    reference.name_machine("cuda", None)
    assert os.environ[reference.MACHINE] == "nvidia-h100"


@pytest.mark.parametrize("refused", [0, 1])
def test_a_host_name_is_hidden_where_it_may_be(monkeypatch, refused):
    asked = []
    library = SimpleNamespace(unshare=lambda flags: asked.append(flags) or refused)
    monkeypatch.setattr(reference.ctypes, "CDLL", lambda name, *, use_errno: library if use_errno else None)
    monkeypatch.setattr(reference.socket, "sethostname", asked.append)
    assert ("own host name" in reference.hide_host_name()) == bool(refused)
    assert asked == [reference.NEW_UTS, *([] if refused else ["reference"])]


@pytest.mark.parametrize(
    ("ok", "available", "device", "says"),
    [
        (True, True, "cuda", None), (True, False, "cpu", None),
        (True, False, "cuda", "finds no CUDA device"), (False, True, "cpu", "does not import torch"),
    ],
)  # fmt: skip
def test_a_framework_is_used_that_imports_and_finds_the_device_of_the_study(
    monkeypatch, ok, available, device, says
):
    printed = f'a warning\nand another\n{{"version": "2", "cuda_available": {str(available).lower()}}}\n'
    ended = SimpleNamespace(ok=ok, stdout=printed, explain=lambda: "it broke")
    monkeypatch.setattr(reference.process, "run", lambda *_, **__: ended)
    if says is None:
        assert reference.torch_facts(Path("p"), device) == {"version": "2", "cuda_available": available}
    else:
        with pytest.raises(UserError, match=says):
            reference.torch_facts(Path("p"), device)


def test_how_it_went_is_said_with_each_part_that_left_nothing(tmp_path, capsys):
    (tmp_path / "a").write_bytes(b"x" * 20_000)
    parts = [
        {"name": name, "status": status, "reason": "why"}
        for name, status in (("one", "ok"), ("two", "ended"), ("three", "failed"), ("four", "unavailable"))
    ]
    reference.report({"parts": parts, "runs": [{"wall_s": 20.0}, {"wall_s": 10.0}]}, tmp_path)
    said = capsys.readouterr().out
    assert "2 of 4 parts in 30 s; 0.02 MB" in said and "three: failed: why" in said and "four: " in said
    assert "one:" not in said and "two:" not in said


# --- a second try


@pytest.mark.parametrize(
    ("first", "units", "restored"), [(6, 9, False), (6, 6, False), (6, 2, True), (6, None, True), (0, None, True)]
)
def test_a_second_try_replaces_the_first_only_if_it_leaves_as_much(tmp_path, first, units, restored):
    row = {
        "name": "rounds mnist_cnn",
        "status": "ended",
        "reason": "no time left",
        "record": "c/rounds/sealed.json",
    }
    sealed_at(tmp_path / "c/rounds", units=first)
    with reference_parts.better(row, tmp_path) as tried:
        assert not (tmp_path / "c/rounds").exists()
        if units is not None:
            sealed_at(tmp_path / "c/rounds", units=units)
        tried.append({"status": "ok", "record": row["record"] if units else None})
    assert read_json(tmp_path / "c/rounds/sealed.json")["units"] == (first if restored else units)
    assert (tried[0] is row) == restored
    assert not list(tmp_path.glob(".earlier-*"))


@pytest.mark.parametrize("done", [False, True])
def test_what_a_first_try_left_is_put_back_where_the_second_is_interrupted(tmp_path, done):
    row = {"name": "rounds mnist_cnn", "status": "ended", "reason": "no time left", "record": "c/sealed.json"}
    sealed_at(tmp_path / "c", units=6)
    with pytest.raises(KeyboardInterrupt), reference_parts.better(row, tmp_path) as tried:
        tried.extend([{"status": "failed", "record": None}] * done)
        raise KeyboardInterrupt
    assert read_json(tmp_path / "c/sealed.json")["units"] == 6
    for none in (None, {**row, "record": None}):
        with reference_parts.better(none, tmp_path) as tried:
            tried.append("what came of it")
        assert tried == ["what came of it"] and (tmp_path / "c/sealed.json").exists()


# --- a Python that has little more than the framework


LACKING = (
    "pandera",
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
    "tare.cli.main",
    "tare.experiments.measure",
    "tare.experiments.reference",
    "tare.images.installed",
    "tare.cli.runs",
    "tare.cli.reference",
)


def imports(lacking, modules):
    """A Python without some packages that imports modules, and all environments."""
    code = f"""
import importlib, sys
class Refuse:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {lacking}:
            raise ModuleNotFoundError("a machine without " + name)
sys.meta_path.insert(0, Refuse())
for name in {modules}:
    importlib.import_module(name)
"""
    return run([sys.executable, "-c", code], timeout_s=120, cwd=project_root())


def test_measuring_imports_nothing_that_a_frameworks_own_machine_lacks():
    ended = imports(LACKING, (*MEASURES, *(f"envs.{name}" for name in module_names("envs"))))
    assert ended.ok, ended.stderr[-1500:]


def test_what_brings_packages_needs_none_of_them():
    ended = imports(
        (*LACKING, "pydantic", "pydantic_core"),
        ("tare.cli.main", "tare.cli.reference", "tare.experiments.carried"),
    )
    assert ended.ok, ended.stderr[-1500:]


def test_a_package_that_this_python_lacks_is_named_before_an_import_fails(monkeypatch, capsys):
    monkeypatch.setattr(reference_command, "find_spec", lambda name: None if name == "yaml" else object())
    assert main(["reference"]) == 3
    assert "has no PyYAML (to fix it: pip install PyYAML" in capsys.readouterr().err


def test_an_older_python_is_told_so_before_anything_is_imported():
    started = project_root() / "tare/__main__.py"
    code = f"import runpy, sys; sys.version_info = (3, 9, 1); runpy.run_path({str(started)!r}, run_name='__main__')"
    ended = run([sys.executable, "-c", code], timeout_s=60)
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1 and "needs CPython 3.11 to 3.13, and" in ended.stderr
