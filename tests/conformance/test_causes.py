"""Launches that look for causes, really run: two hosts run the same kernels, and so does every environment."""

import functools
from dataclasses import replace

import pytest

from tare.analysis.launch_rows import cause_rows, kernel_rows
from tare.experiments import causes, rounds
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.records.launches import LaunchRecord
from tare.model.registry import describe_workload, environment
from tare.model.schema import parse
from tare.model.studies import arms

pytestmark = pytest.mark.runtime
WORKLOAD, OTHER = "mnist_cnn", "sentiment_rnn"


@pytest.fixture(scope="module")
def searches(study, forms, folders):
    """Record of the n-th launch in an environment; each is run once. The first of all lists the host's files."""
    conditions = arms.conditions_at(study["conditions"], rounds.headline_levels(study))
    spec = causes.causes_spec(WORKLOAD, describe_workload(WORKLOAD)["batch"], study)

    def start(name, more):
        adapter = environment(name)
        site = site_of(name, adapter, forms(name), folders(describe_workload(WORKLOAD)["dataset"]))
        with adapter.session():
            return launch(site, {**spec, **more}, conditions, pad_bytes=64).to_json()

    @functools.cache
    def files():
        return causes.listed(typed(start("host", {})))

    @functools.cache
    def run(name, number=1):
        return start(name, {"files": files()})

    return run


def typed(record):
    return parse(LaunchRecord, record, "launch")


def calls(record):
    assert record["status"] == "ok", record["reason"]
    return {
        (row["library"], row["kernel"], row["shape"]): row["calls_per_step"] for row in kernel_rows(typed(record))
    }


def test_two_hosts_run_the_same_kernels(searches):
    first, second = calls(searches("host", 1)), calls(searches("host", 2))
    assert first == second
    libraries = {key[0] for key in first}
    assert libraries == {"operator", "onednn", "mkl"}
    weights = [key for key in first if key[0] == "onednn" and "backward_weights" in key[1]]
    assert len(weights) == 2  # one for each of the two convolutions


def test_the_same_stack_runs_the_same_kernels_in_every_environment(env_in_turn, searches):
    assert calls(searches(env_in_turn)) == calls(searches("host"))


def test_every_environment_says_what_its_files_cost(env_in_turn, searches):
    record = searches(env_in_turn)
    assert record["deviations"] == []
    found = {row["metric"]: row for row in cause_rows(typed(record))}
    hosts = {row["metric"]: row for row in cause_rows(typed(searches("host")))}
    for metric in ("files_count", "files_bytes", "libraries_count", "libraries_touched_bytes"):
        assert found[metric]["value"] == hosts[metric]["value"]  # the same tree, the same list
    assert found["files_count"]["value"] > 500
    for metric in ("files_first_s", "files_stat_s", "files_read_s", "libraries_map_s", "imports_after_read_s"):
        assert found[metric]["kind"] == "measured" and found[metric]["value"] > 0


def test_a_launch_of_two_workloads_finds_the_kernels_of_each(study, forms, folders, searches):
    batches = {name: describe_workload(name)["batch"] for name in (WORKLOAD, OTHER)}
    data = {name: folders(describe_workload(name)["dataset"]) for name in batches}
    host = environment("host")
    site = replace(site_of("host", host, forms("host"), data[WORKLOAD]), data_of=data)
    alone = causes.causes_spec(WORKLOAD, batches[WORKLOAD], study)
    lanes = [{"workload": name, "batch": batch} for name, batch in batches.items()]
    spec = {**{key: value for key, value in alone.items() if key not in lanes[0]}, "lanes": lanes}
    conditions = arms.conditions_at(study["conditions"], rounds.headline_levels(study))
    with host.session():
        first = launch(site, spec, conditions, pad_bytes=64)
        record = launch(site, {**spec, "files": causes.listed(first)}, conditions, pad_bytes=64)
    found = [calls(causes.of_one_job(record, number).to_json()) for number in range(len(lanes))]
    assert found[0] == calls(searches("host"))
    assert found[1] and set(found[1]) != set(found[0])
    assert record.deviations == ()
