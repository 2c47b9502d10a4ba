"""The campaign of causes: what each unit launches, with which list of files, and for which workloads at once."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from asked import part
from campaign_builders import CONDITIONS, MARGINS
from cause_builders import causes_record

from tare.core.errors import UnavailableError
from tare.experiments import causes, designs
from tare.experiments.campaign import run_campaign, run_campaigns
from tare.experiments.designs import Due, Setup
from tare.model.journals.sealed import read_sealed
from tare.model.records.campaigns import Unit
from tare.model.records.launches import LaunchRecord
from tare.model.schema import parse
from tare.model.studies.study import CausesPart

LISTED = {"modules": ["lib/a.pyc"], "libraries": [["lib/b.so", [[0, 2]]]]}
NAMES = ("host", "host.control", "docker")


def study(page_cache="warm", units=2, workloads=("mnist_cnn",)):
    found = {
        "study": "s",
        "seed": 3,
        "stack": "torch-2.13",
        "device": "cpu",
        "confidence": 0.95,
        "margins": MARGINS,
        "conditions": CONDITIONS.replace(page_cache=page_cache).to_json(),
        "rounds": {"allocator": "default"},
        "causes": {"units": units, "verdict_units": 3, "steps": 4, "warmup_steps": 2},
        "workloads": {name: {"batch": 64} for name in workloads},
    }
    return part(CausesPart, found)


@pytest.fixture
def launched(monkeypatch):
    """Every launch that the campaign makes: its site and its spec; what it finds is made up."""
    seen = []

    def launch(site, spec, conditions, *, pad_bytes):
        spec = spec.to_json()
        seen.append((site, spec))
        record = causes_record(site, random.Random(len(seen)))
        memory = {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1}
        record["inside"] |= {"schema": 1, "reason": None, "memory": memory}
        if "files" not in spec:
            record["inside"]["results"] = {"listed": LISTED if spec["keep_list"] else None}
        return parse(LaunchRecord, record, "a launch")

    replace_launches(monkeypatch, launch)
    return seen


def replace_launches(monkeypatch, launch):
    """Let this function stand for each launch, also of those that run side by side."""

    def side_by_side(orders):
        return {
            name: launch(one.site, one.program, one.conditions, pad_bytes=one.pad_bytes)
            for name, one in orders.items()
        }

    monkeypatch.setattr(designs, "launch", launch)
    monkeypatch.setattr(designs, "launch_side_by_side", side_by_side)


class Named(str):
    """A site that is known by its name."""

    framework = "torch"
    reference = None
    data_of: ClassVar[dict] = {}


def run(folder, config, names=NAMES):
    sites = {name: Named(name) for name in names}
    return run_campaign(
        folder,
        causes.causes(Setup(study=config, workload="mnist_cnn", sites=sites, unavailable={"podman": "not there"})),
    )


def test_the_host_lists_its_files_and_all_later_launches_read_them(tmp_path, launched):
    sealed = run(tmp_path / "c", study())
    assert (sealed.status, sealed.units) == ("sealed", 2)
    assert len(launched) == 3 * len(NAMES)
    first, later = launched[:3], launched[3:]
    assert {site: spec["keep_list"] for site, spec in first} == {name: name == "host" for name in NAMES}
    assert all(spec["files"] == LISTED for _, spec in later)
    assert all(spec["ends_at_once"] for _, spec in first), "they only warm the page cache"
    assert not any("ends_at_once" in spec for _, spec in later)
    found = read_sealed(tmp_path / "c/sealed.json")
    assert (found.plan.kind, found.plan.discarded, found.plan.sampling.units) == ("causes", 1, 2)
    assert found.plan.arm == "stack=same,allocator=default,page_cache=warm"
    assert found.plan.spec.repetitions == causes.PASSES and found.plan.sampling.verdict_units == 3
    assert [unit.discarded for unit in found.units] == [True, False, False]


def test_where_nothing_has_to_be_warm_only_the_host_lists(tmp_path, launched):
    run(tmp_path / "c", study(page_cache="as_found"))
    assert [site for site, _ in launched][:1] == ["host"]
    assert len(launched) == 1 + 2 * len(NAMES)


def test_units_have_random_orders_from_the_plans_seed(tmp_path, launched):
    run(tmp_path / "c", study(units=12))
    orders = {tuple(site for site, _ in launched[at : at + 3]) for at in range(3, len(launched), 3)}
    assert len(orders) > 2


def test_a_host_that_can_not_list_its_files_ends_the_campaign_with_its_reason(tmp_path, monkeypatch, launched):
    def fails(site, spec, conditions, *, pad_bytes):
        return LaunchRecord(status="failed", reason="no torch")

    replace_launches(monkeypatch, fails)
    with pytest.raises(UnavailableError, match="could not list the files that its imports need: no torch"):
        run(tmp_path / "c", study())


# Several workloads by the same launches.

WORKLOADS = ("mnist_cnn", "sentiment_rnn")


@dataclass(frozen=True)
class Place:
    """A site with the data of several workloads."""

    name: str
    data: Path = Path("mnist")
    data_of: dict = field(default_factory=lambda: {name: Path(name) for name in WORKLOADS})
    framework: str = "torch"
    reference: str | None = None


@pytest.fixture
def served(monkeypatch):
    """Every launch that the campaigns make: its site and its spec; `broken` says which of them fail."""
    seen, broken = [], set()

    def launch(site, spec, conditions, *, pad_bytes):
        spec = spec.to_json()
        seen.append((site, spec))
        names = [job["workload"] for job in spec.get("jobs", [spec])]
        if any((site.name, name) in broken for name in names):
            return LaunchRecord(status="failed", reason=f"no memory for {names[-1]}")
        made = causes_record(site.name, random.Random(len(seen)))
        memory = {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1}
        made["inside"] |= {"schema": 1, "reason": None, "memory": memory}
        results = made["inside"]["results"]
        if "files" not in spec:
            made["inside"]["results"] = {"listed": LISTED if spec["keep_list"] else None}
        elif "jobs" in spec:
            jobs = [
                {"kernels": {"rows": None, "reason": name}, "operators": results["operators"]} for name in names
            ]
            made["inside"]["results"] = {"first": results["first"], "files": results["files"], "jobs": jobs}
        return parse(LaunchRecord, made, "a launch")

    replace_launches(monkeypatch, launch)
    return seen, broken


def run_both(folder, names=NAMES):
    """The causes of both workloads together; returns what was sealed, by workload."""
    sites = {name: Place(name) for name in names}
    config = study(workloads=WORKLOADS)
    designs = {folder / name: causes.causes(Setup(study=config, workload=name, sites=sites)) for name in WORKLOADS}
    run_campaigns(designs, lambda dues: causes.run_together(dues, sites))
    return {name: read_sealed(folder / name / "sealed.json") for name in WORKLOADS}


def test_one_launch_serves_every_workload_with_its_own_kernels_and_the_files_of_all(tmp_path, served):
    found = run_both(tmp_path)
    seen, _ = served
    assert len(seen) == 3 * len(NAMES), "as many as of one workload"
    assert {tuple(job["workload"] for job in spec["jobs"]) for _, spec in seen} == {WORKLOADS}
    assert not any("workload" in spec for _, spec in seen)
    assert all(spec["files"] == LISTED for _, spec in seen[len(NAMES) :])
    for name, campaign in found.items():
        assert (campaign.plan.workload, len(campaign.counted)) == (name, 2)
        for unit in campaign.counted:
            results = [launch.seen_inside().results for launch in unit.launches.values()]
            assert {one["kernels"]["reason"] for one in results} == {name}
            assert all({"first", "files", "operators"} <= set(one) and "jobs" not in one for one in results)
    pairs = zip(*(campaign.counted for campaign in found.values()), strict=True)
    for one, other in pairs:
        assert one.order == other.order
        assert {n: launch.spawn_ns for n, launch in one.launches.items()} == {
            n: launch.spawn_ns for n, launch in other.launches.items()
        }


def test_a_workload_that_fails_is_tried_alone_and_harms_no_other(tmp_path, served):
    seen, broken = served
    broken.add(("docker", "sentiment_rnn"))
    found = run_both(tmp_path)
    assert all(unit.launches["docker"].ok for unit in found["mnist_cnn"].units)
    statuses = [unit.launches["docker"].status for unit in found["sentiment_rnn"].units]
    assert statuses == ["failed", "failed", "skipped"]
    alone = [(site.data, spec["workload"]) for site, spec in seen if "jobs" not in spec]
    assert {workload for _, workload in alone} == set(WORKLOADS)
    assert all(data == Path(workload) for data, workload in alone)


def test_a_campaign_that_has_come_less_far_waits(tmp_path, served):
    ends = run_both(tmp_path).values()
    dues = {
        number: Due(plan=one.plan, number=number, done=one.units[:number])
        for number, one in zip((1, 0), ends, strict=True)
    }
    assert set(causes.run_together(dues, {name: Place(name) for name in NAMES})) == {1}


def test_on_a_device_of_its_own_each_workload_has_its_own_launches(tmp_path, served):
    plans = [one.plan.replace(spec=one.plan.spec.replace(device="cuda")) for one in run_both(tmp_path).values()]
    seen, _ = served
    seen.clear()
    for plan in plans:
        dues = {
            one.workload: Due(plan=one, number=0, done=()) for one in sorted(plans, key=lambda p: p is not plan)
        }
        assert set(causes.run_together(dues, {name: Place(name) for name in NAMES})) == {plan.workload}
    assert {(site.data, spec["workload"]) for site, spec in seen} == {(Path(name), name) for name in WORKLOADS}


def test_files_are_those_of_the_first_unit_that_is_whole():
    def unit(number, voided=None):
        listed = {"modules": [f"lib/{number}.pyc"], "libraries": []}
        record = causes_record("host", random.Random(1))
        memory = {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1}
        record["inside"] |= {"schema": 1, "reason": None, "memory": memory, "results": {"listed": listed}}
        row = {"unit": number, "discarded": False, "voided": voided, "cost_s": 1.0, "order": []}
        return parse(Unit, {**row, "launches": {"host": record}}, "a unit")

    assert causes.files_of([]) is None and causes.files_of([unit(0, "it hung")]) is None
    found = causes.files_of([unit(0, "it hung"), unit(1), unit(2)])
    assert list(found.modules) == ["lib/1.pyc"]


def test_a_campaign_of_another_unit_or_that_knows_other_files_waits(tmp_path, served):
    one, other = run_both(tmp_path).values()
    listed = other.units[0].launches["host"]
    inside = listed.seen_inside().replace(results={"listed": {"modules": [], "libraries": []}})
    moved = other.units[0].replace(launches={"host": listed.replace(inside=inside)})
    sites = {name: Place(name) for name in NAMES}
    for first, done, serves in (
        (1, other.units[:1], True), (1, (moved,), False), (1, other.units[:2], False), (2, other.units[:1], False),
    ):  # fmt: skip
        due = Due(plan=one.plan, number=first, done=one.units[:first])
        found = causes.run_together({"a": due, "b": Due(plan=other.plan, number=len(done), done=done)}, sites)
        assert set(found) == ({"a", "b"} if serves else {"a"})


def test_what_a_launch_of_one_job_found_stays_its_own():
    record = causes_record("host", random.Random(1))
    memory = {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1}
    record["inside"] |= {"schema": 1, "reason": None, "memory": memory}
    launch = parse(LaunchRecord, record, "a launch")
    assert causes.of_one_job(launch, 1).inside.results == launch.inside.results
