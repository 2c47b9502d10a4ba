"""Cells of the grid, really launched: steps that nothing watches, and counts from shapes alone."""

import statistics
from dataclasses import replace

import pytest
from matrix import envs_in_turn

from tare.experiments import grid, sliced
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.records.measured import GridCell
from tare.model.registry import SINGLE, environment, whole_options
from tare.model.schema import read
from tare.predict import rows, work
from tare.worker.families import CONVOLUTION, FAMILIES, OPTIMIZER

pytestmark = pytest.mark.runtime
OWN = grid.Cell(
    workload="further_networks", options={"network": 1, "image_px": 64}, batch=4, threads=1, env="host", counts=True
)


@pytest.fixture
def measured(study, forms, tmp_path, monkeypatch):
    """Measures a cell with the images of the other tests; returns its record as it was written."""
    monkeypatch.setattr(grid, "STEADY_S", 0.3)

    def measure(cell):
        adapter = environment(cell.env)
        site = site_of(cell.env, adapter, forms(cell.env), None)
        own = grid.Grid(study=study, folder=tmp_path, sites={cell.env: site}, processor="P")
        with adapter.session():
            own.measure(cell, "0")
        assert own.is_there(cell, "0")
        return read(GridCell, tmp_path / f"{cell.name}.json")

    return measure


@pytest.mark.parametrize("env", envs_in_turn(__file__))
def test_a_cell_times_steps_and_watches_nothing(env, measured):
    cell = grid.Cell(**{**vars(OWN), "env": env, "counts": False})
    found = measured(cell)
    assert found.ok and not found.deviations, found.reason
    inside = found.profiled()
    assert len(inside.plain_step_s) >= 3 and min(inside.plain_step_s) > 1e-4
    assert inside.profiled_steps == 0 and inside.samples == () and inside.counts.families is None
    assert found.title == "SqueezeNet 1.1" and found.seen_inside().facts.framework.threads == 1
    names = [mark.name for mark in found.seen_inside().marks]
    assert names.index("first_step") < names.index("plain_steps")


def test_a_cell_counts_what_a_profiled_launch_counts(study, forms, measured, tmp_path):
    found = measured(OWN)
    counted = work.of_counts(found.profiled().counts)
    flops = {
        family: sum(call.calls * call.flops for call in counted.alike if call.family == family)
        for family in FAMILIES
    }
    assert flops[CONVOLUTION] > 1e8 and {call.family for call in counted.alike} >= {CONVOLUTION, OPTIMIZER}
    assert list(rows._work([found])) == [
        rows.job_of("further_networks", whole_options("further_networks", OWN.options), 4)
    ]
    site = site_of("host", environment("host"), forms("host"), None)
    spec = grid.specification(OWN, study).without("plain", "counts", "steady_s", "plain_steps")
    spec = spec.replace(warmup_steps=1, steps=1, sample_interval_s=0.05)
    done = launch(site, spec, grid._conditions(OWN, study), keep={"trace": tmp_path / "trace.json.gz"})
    assert done.ok, done.reason
    profiled = found.replace(**done.given()).profiled()
    assert work.of_counts(profiled.counts) == counted
    plain, watched = (statistics.median(one.plain_step_s) for one in (found.profiled(), profiled))
    assert 1 / 4 < plain / watched < 4


def test_cells_of_a_group_share_the_machine_with_the_host_in_slices(study, forms, tmp_path, monkeypatch):
    assert sliced.refusal(SINGLE, study.found_device, "as_found") is None
    monkeypatch.setattr(grid, "STEADY_S", 0.3)
    adapters = {env: environment(env) for env in ("host", "apptainer")}
    sites = {env: site_of(env, adapter, forms(env), None) for env, adapter in adapters.items()}
    own = grid.Grid(study=study, folder=tmp_path, sites=sites, processor="P")
    group = [OWN, replace(OWN, counts=False, env="apptainer"), replace(OWN, counts=False, again=1)]
    programs = dict.fromkeys([cell.name for cell in group], "0")
    found = {cell.name: record for cell, record in own.measure_group(group, programs)}
    assert list(found) == [group[0].name, group[2].name, group[1].name]
    assert all(record.ok and not record.deviations for record in found.values())
    alone, again, elsewhere = found.values()
    assert alone.host_step_s == () and again.host_step_s == elsewhere.host_step_s == (again.step_s,)
    assert 1 / 3 < again.step_s / alone.step_s < 3 and again.slices.is_sliced and elsewhere.slices.is_sliced
    assert list(own.measure_group(group, programs)) == []
