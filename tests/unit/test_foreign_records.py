"""Records that are cut short, empty, or of something else: one clear line each, never a traceback."""

import gzip
import json
import re
import shutil

import builders
import pytest

from tare.analysis import extract
from tare.core.errors import IntegrityError, UserError
from tare.core.files import read_json, write_json

NAME = "causes.apptainer+charliecloud+docker+host+podman"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return builders.build_results(tmp_path_factory.mktemp("whole") / "results", units=2)


@pytest.fixture
def results(whole, tmp_path):
    """Folder of one workload's campaigns and profiles, to be spoilt."""
    for kind in ("campaigns", "profiles"):
        shutil.copytree(whole / kind, tmp_path / kind)
    return tmp_path


def build(results, workload="mnist_cnn", env="docker", name=NAME):
    folder = results / "campaigns/nyu2022/box" / workload / name
    profile = results / "profiles/nyu2022/box" / workload / env / "profile.json"
    return extract.build([folder / "sealed.json"], [profile])


def test_whole_records_become_tables(results):
    tables = build(results)
    assert len(tables["kernels"]) and len(tables["operators"])
    assert set(tables["verdicts"]["metric"]) >= {"files_first_s", "files_read_s", "imports_after_read_s"}
    assert set(tables["verdicts"]["margin"]) == {0.05}


def test_traces_that_are_read_beside_the_campaigns_make_the_same_tables(results):
    sealed = [results / "campaigns/nyu2022/box/mnist_cnn" / NAME / "sealed.json"]
    profiles = sorted((results / "profiles/nyu2022/box/mnist_cnn").glob("*/profile.json"))
    alone, beside = (extract.build(sealed, profiles, jobs=jobs) for jobs in (1, 2))
    assert len(profiles) > 1 and len(alone["operators"])
    for name in set(alone) - {"ledger"}:  # whose rows that are still to be written say now
        assert alone[name].to_csv() == beside[name].to_csv(), name
    trace = profiles[0].with_name("trace.json.gz")
    trace.write_bytes(trace.read_bytes()[:-30])
    with pytest.raises(IntegrityError, match="is cut short or damaged"):
        extract.build(sealed, profiles, jobs=2)


@pytest.mark.parametrize("keep", [0, 200, -30])
@pytest.mark.parametrize("name", ["units.jsonl", "plan.json"])
def test_a_journal_or_a_plan_cut_short_is_not_what_was_sealed(results, name, keep):
    path = results / "campaigns/nyu2022/box/mnist_cnn" / NAME / name
    path.write_bytes(path.read_bytes()[: keep or None] if keep else b"")
    with pytest.raises(IntegrityError, match=f"{name} is not what was sealed"):
        build(results)


def test_an_empty_seal_is_named(results):
    path = results / "campaigns/nyu2022/box/mnist_cnn" / NAME / "sealed.json"
    path.write_text("")
    with pytest.raises(IntegrityError, match=r"sealed\.json is cut short or not JSON"):
        build(results)


def test_a_campaign_of_another_workload_is_refused(results):
    base = results / "campaigns/nyu2022/box"
    shutil.rmtree(base / "mnist_cnn" / NAME)
    shutil.copytree(base / "sentiment_rnn" / NAME, base / "mnist_cnn" / NAME)
    with pytest.raises(IntegrityError, match="is of workload 'sentiment_rnn' but is under 'mnist_cnn'"):
        build(results)


def test_a_campaign_of_another_kind_is_refused(results):
    base = results / "campaigns/nyu2022/box/mnist_cnn"
    shutil.rmtree(base / NAME)
    shutil.copytree(base / NAME.replace("causes", "rounds"), base / NAME)
    with pytest.raises(IntegrityError, match="is a campaign of rounds but is under 'causes"):
        build(results)


@pytest.mark.parametrize("content", ["", '{"schema": 1, "wor', "[]"])
def test_a_profile_cut_short_or_empty_is_named(results, content):
    (results / "profiles/nyu2022/box/mnist_cnn/docker/profile.json").write_text(content)
    with pytest.raises(IntegrityError, match=r"profile\.json is (cut short|no record)"):
        build(results)


def test_a_profile_of_another_workload_is_refused(results):
    base = results / "profiles/nyu2022/box"
    shutil.copyfile(base / "sentiment_rnn/docker/profile.json", base / "mnist_cnn/docker/profile.json")
    with pytest.raises(IntegrityError, match="is of workload 'sentiment_rnn' but is under 'mnist_cnn'"):
        build(results)


def test_a_profile_that_lacks_a_part_is_named(results):
    path = results / "profiles/nyu2022/box/mnist_cnn/docker/profile.json"
    record = read_json(path)
    del record["inside"]["results"]["mapped"]
    write_json(path, record)
    with pytest.raises(IntegrityError, match="mapped missing: run it again"):
        build(results)


def test_a_missing_trace_and_a_cut_one_are_named(results):
    path = results / "profiles/nyu2022/box/mnist_cnn/docker/trace.json.gz"
    data = path.read_bytes()
    for spoilt in (b"", data[: len(data) // 2], data[:200] + b"\0" * 50 + data[250:]):
        path.write_bytes(spoilt)
        with pytest.raises(IntegrityError, match="run the profile again"):
            build(results)
    path.unlink()
    with pytest.raises((IntegrityError, UserError), match="trace"):
        build(results)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([{"ph": "X", "name": "a"}], "event 1: ts is null, no number"),
        (["X"], "is no trace of torch.profiler: no event has a ph"),
        ([{"ph": "X", "ts": 0, "dur": 1}], "event 1: name is null, no text"),
    ],
)
def test_a_trace_of_broken_events_is_named(results, events, says):
    path = results / "profiles/nyu2022/box/mnist_cnn/docker/trace.json.gz"
    with gzip.open(path, "wt") as handle:
        json.dump({"traceEvents": events}, handle)
    with pytest.raises((IntegrityError, UserError), match=re.escape(f"{path}") + ".*" + re.escape(says)):
        build(results)


def test_a_trace_of_another_launch_with_as_many_steps_is_refused_by_its_hash(results):
    base = results / "profiles/nyu2022/box/mnist_cnn"
    record = read_json(base / "docker/profile.json")
    write_json(base / "docker/profile.json", {**record, "trace_sha256": "0" * 64})
    with pytest.raises(IntegrityError, match="is not the trace that its record names"):
        build(results)
