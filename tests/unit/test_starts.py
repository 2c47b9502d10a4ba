"""First starts: order, phases, a broken environment, a page cache that can't be emptied, what is counted inside."""

import json
import random

import image_cost_builders
import pytest

from tare.core.errors import UserError
from tare.experiments import designs, starts
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.machine.fitting import settled
from tare.model.journals.sealed import read_sealed
from tare.model.records.launches import LaunchRecord
from tare.model.schema import parse
from tare.model.studies.layout import SEALED
from tare.model.studies.loading import load_checked
from tare.worker import start


class Named(str):
    """A site that is known by its name."""

    framework = "torch"


SITES = {name: Named(name) for name in ("host", "host.control", "docker", "apptainer")}


def study_of(page_cache):
    preset = {"stacks": [], "starts": {"repetitions": 2}, "conditions": {"page_cache": page_cache}}
    return settled(load_checked(json.dumps(preset)))


@pytest.fixture
def study():
    """One whose whole runs are no warm starts."""
    return study_of("as_found")


@pytest.fixture
def launches(monkeypatch):
    """What was launched, in order; `broken` holds names whose launches fail."""
    seen, broken, generator = [], set(), random.Random(1)

    def launch(site, spec, conditions, *, pad_bytes):
        phase = conditions.page_cache
        seen.append((site, phase))
        if site in broken:
            return LaunchRecord(status="failed", reason="no such image")
        return parse(LaunchRecord, image_cost_builders.start_record(site, phase, generator), "a start")

    monkeypatch.setattr(designs, "launch", launch)
    monkeypatch.setattr(starts, "cold_obstacle", lambda: None)
    return seen, broken


def run(study, folder):
    unavailable = {"charliecloud": "ch-run is not installed"}
    run_campaign(
        folder, starts.starts(Setup(study=study, workload="mnist_cnn", sites=SITES, unavailable=unavailable))
    )
    return read_sealed(folder / SEALED)


def test_every_launch_is_cold_and_then_warm_in_balanced_order(study, launches, tmp_path):
    record = run(study, tmp_path)
    seen, _ = launches
    assert len(seen) == 2 * 2 * len(SITES)
    assert all(seen[i][0] == seen[i + 1][0] for i in range(0, len(seen), 2))
    assert [phase for _, phase in seen] == ["cold", "warm"] * (len(seen) // 2)
    assert len({unit.order for unit in record.units}) == 2
    assert record.plan.unavailable == {"charliecloud": "ch-run is not installed"}


def test_where_whole_runs_begin_warm_every_launch_is_cold(launches, tmp_path):
    record = run(study_of("warm"), tmp_path)
    assert {phase for _, phase in launches[0]} == {"cold"} and len(launches[0]) == 2 * len(SITES)
    assert all(set(unit.launches) == {f"{name}/cold" for name in SITES} for unit in record.units)


def test_a_broken_environment_is_not_tried_again_and_stops_no_other(study, launches, tmp_path):
    seen, broken = launches
    broken.add("docker")
    record = run(study, tmp_path)
    assert [name for name, _ in seen].count("docker") == 1
    first, second = (unit.launches for unit in record.units)
    assert first["docker/cold"].status == "failed"
    assert [first["docker/warm"].status, second["docker/cold"].status] == ["skipped", "skipped"]
    assert second["docker/warm"].reason == "not tried again: no such image"
    others = [one for unit in (first, second) for name, one in unit.items() if "docker" not in name]
    assert len(others) == 2 * 2 * (len(SITES) - 1) and all(one.ok for one in others)


def test_where_the_cache_can_not_be_emptied_nothing_is_called_cold(study, launches, tmp_path, monkeypatch):
    monkeypatch.setattr(starts, "cold_obstacle", lambda: "only root may")
    record = run(study, tmp_path)
    assert {phase for _, phase in launches[0]} == {"as_found", "warm"}
    assert record.plan.spec.no_cold == "only root may"


def test_the_obstacle_names_the_command(tmp_path):
    assert "drop_caches" in starts.cold_obstacle(tmp_path / "missing")
    switch = tmp_path / "switch"
    switch.touch()
    assert starts.cold_obstacle(switch) is None


def test_machine_reads_are_counted_in_bytes_or_not_at_all(tmp_path):
    source = tmp_path / "vmstat"
    source.write_text("nr_free_pages 12\npgpgin 34\npgpgout 5\n")
    assert starts.read_so_far(source) == 34 * 1024
    source.write_text("nr_free_pages 12\n")
    assert starts.read_so_far(source) is None
    assert starts.read_so_far(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("before", "after", "read"), [(100, 350, 250), (0, 0, 0), (None, 350, None), (100, None, None)]
)
def test_a_start_has_what_the_machine_read_meanwhile(study, launches, monkeypatch, before, after, read):
    counts = iter((before, after))
    monkeypatch.setattr(starts, "read_so_far", lambda: next(counts))
    plan = starts.starts(Setup(study=study, workload="mnist_cnn", sites=SITES)).plan
    assert starts._start(SITES["docker"], plan.spec, plan.conditions, 0).machine_read_bytes == read


def test_a_start_counts_what_the_process_read(tmp_path):
    source = tmp_path / "io"
    source.write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 0\n")
    assert start.read_bytes(str(source)) == (4096, None)
    source.write_text("rchar: 9\n")
    assert start.read_bytes(str(source))[0] is None and "read_bytes" in start.read_bytes(str(source))[1]
    assert "No such file" in start.read_bytes(str(tmp_path / "missing"))[1]


def test_an_unknown_workload_or_environment_is_one_line_before_anything_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(starts, "sites", lambda *_: pytest.fail("it asks the others already"))
    with pytest.raises(UserError, match="no workload 'mnist'"):
        starts.measure_starts('{"stacks": []}', "mnist", ["docker"], None, tmp_path / "sealed.json")
    with pytest.raises(UserError, match="no environment 'dokcer'"):
        starts.measure_starts('{"stacks": []}', "mnist_cnn", ["dokcer"], tmp_path, tmp_path / "sealed.json")
    assert not (tmp_path / "sealed.json").exists()
