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
from tare.model.specification import Job
from tare.model.studies import arms

pytestmark = pytest.mark.runtime
WORKLOAD, OTHER = "mnist_cnn", "sentiment_rnn"


@pytest.fixture(scope="module")
def searching(study, forms, folders):
    """Launch in an environment that looks for causes, of some workloads; without files it lists the host's."""
    conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
    batches = {name: describe_workload(name)["batch"] for name in (WORKLOAD, OTHER)}

    def start(name, workloads, **more):
        adapter = environment(name)
        data = {workload: folders(describe_workload(workload)["dataset"]) for workload in workloads}
        site = replace(site_of(name, adapter, forms(name), data[WORKLOAD]), data_of=data)
        spec = causes.causes_spec(WORKLOAD, batches[WORKLOAD], study).replace(**more)
        if len(workloads) > 1:
            jobs = tuple(Job(workload=workload, batch=batches[workload]) for workload in workloads)
            spec = spec.without("workload", "batch").replace(jobs=jobs)
        with adapter.session():
            return launch(site, spec, conditions, pad_bytes=64)

    return start


@pytest.fixture(scope="module")
def files(searching):
    """Those that the host's imports need, for both workloads."""
    return causes.listed(searching("host", (WORKLOAD, OTHER)))


@pytest.fixture(scope="module")
def searches(searching, files):
    """Record of one launch of one workload in an environment; each is run once."""
    return functools.cache(lambda name: searching(name, (WORKLOAD,), files=files).to_json())


@pytest.fixture(scope="module")
def of_both(searching, files):
    """Record of another launch on the host, of both workloads."""
    return searching("host", (WORKLOAD, OTHER), files=files)


def typed(record):
    return parse(LaunchRecord, record, "launch")


def calls(record):
    assert record["status"] == "ok", record["reason"]
    return {
        (row["library"], row["kernel"], row["shape"]): row["calls_per_step"] for row in kernel_rows(typed(record))
    }


def of_job(record, number):
    return calls(causes.of_one_job(record, number).to_json())


def test_two_hosts_run_the_same_kernels(searches, of_both):
    first, second = calls(searches("host")), of_job(of_both, 0)
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


def test_a_launch_of_two_workloads_finds_the_kernels_of_each(of_both):
    found = [of_job(of_both, number) for number in range(2)]
    assert all(found) and set(found[0]) != set(found[1])
    assert of_both.deviations == ()
