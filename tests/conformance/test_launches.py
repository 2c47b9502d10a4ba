"""Every environment with every workload, really launched, under equal conditions and with equal losses."""

import re
from pathlib import Path

import pytest
from matrix import described, small

from tare.analysis.launch_rows import whole_run_rows
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.launch.transport import Binds
from tare.model.records.launches import LaunchRecord
from tare.model.registry import environment
from tare.model.schema import parse
from tare.model.specification import Specification

pytestmark = pytest.mark.runtime


def test_it_trains_under_the_conditions_that_were_asked_for(env_name, workload_name, study, launches):
    record = launches(env_name, workload_name, "train")
    assert record["status"] == "ok", record["reason"]
    assert record["deviations"] == []
    rows = {row["metric"]: row for row in whole_run_rows(parse(LaunchRecord, record, "launch"))}
    phases = ("runtime_start_s", "imports_s", "data_s", "model_s", "first_step_s", "epoch_rest_s", "exit_s")
    assert all(rows[name]["value"] > 0 for name in phases)
    assert sum(rows[name]["value"] for name in phases) == pytest.approx(rows["real_s"]["value"], rel=1e-6)
    assert rows["user_s"]["value"] > 0.5
    job = described(small(study, workload_name), workload_name)
    assert record["inside"]["results"]["samples"] == job["samples"]
    assert ("images_per_s" in rows) == ("warmup_steps" in job)


def test_it_computes_what_the_host_computes(env_name, workload_name, study, launches):
    ours = launches(env_name, workload_name, "train")["inside"]["results"]["losses"]
    hosts = launches("host", workload_name, "train")["inside"]["results"]["losses"]
    assert ours == pytest.approx(hosts, rel=1e-5)
    job = described(small(study, workload_name), workload_name)
    assert len(ours) == -(-job["samples"] // job["batch"])


def test_the_environment_block_is_equal_to_the_byte(env_name, own_workload, launches):
    names = launches("host", own_workload, "train")["inside"]["facts"]["environment_names"]
    assert launches(env_name, own_workload, "train")["inside"]["facts"]["environment_names"] == names
    assert "PATH" in names and "TARE_PAD" in names and "OMP_NUM_THREADS" in names


def test_the_same_tree_is_mapped_byte_for_byte(env_in_turn, launches):
    """In one of the others: the smoke study's test compares all of them."""

    def of_tree(record):
        root = re.sub(r"/bin/python3(\.\d+)?$", "", record["inside"]["facts"]["executable"])
        return {
            row["path"].removeprefix(root): row["sha256"]
            for row in record["inside"]["results"]["mapped"]
            if row["path"].startswith(root)
        }

    ours = launches(env_in_turn, "mnist_cnn", "profile")
    assert ours["status"] == "ok", ours["reason"]
    host = of_tree(launches("host", "mnist_cnn", "profile"))
    assert of_tree(ours) == host
    assert len(host) > 50
    assert any("libtorch_cpu.so" in path for path in host)


def test_contained_launches_see_another_root_than_the_host(env_name, own_workload, launches):
    adapter = environment(env_name)
    facts = launches(env_name, own_workload, "train")["inside"]["facts"]
    inside_image = facts["executable"].startswith("/opt/tare/")
    assert inside_image == adapter.contained
    if adapter.contained:
        assert "mnt" in facts["own_namespaces"]
    assert "net" in facts["own_namespaces"]  # an empty network, for the host as well


def test_a_launch_that_hangs_is_killed_with_all_it_started(env_name, study, forms, folders, tmp_path, monkeypatch):
    """The timeout ends the program inside too, also where a daemon keeps it alive."""
    adapter = environment(env_name)
    site = site_of(env_name, adapter, forms(env_name), None)
    marker = f"{987_000 + hash(env_name) % 997}"

    monkeypatch.setattr(Binds, "words", lambda self, python, program: ("/bin/sh", "-c", f"sleep {marker}"))
    with adapter.session():
        conditions = study.conditions.of_launch(launch_timeout_s=4.0)
        assert launch(site, Specification(mode="train"), conditions).status == "timeout"
        assert processes_with(marker) == []


def processes_with(marker):
    """Command lines of live processes that hold a marker; waits a moment for the dying ones."""
    import time

    for _ in range(50):
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"sleep {marker}" in line:
                found.append(line)
        if not found:
            return []
        time.sleep(0.1)
    return found
