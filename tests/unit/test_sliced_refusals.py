"""Which jobs are not sliced, by what their run to the end showed, and whose two bills are too far apart."""

import pytest
import truths

from tare.experiments.sliced import bills_apart, unreaped_s
from tare.model.records.launches import LaunchRecord
from tare.model.records.slices import Slices


def launch(*, looks=0, idle=0, waiting=0, quantum=0, servers_us=0):
    slices = Slices(
        **{"means": "cgroup2", "spawn_ns": 0, "arrived_ns": 10, "ended_ns": 2_000_000_010, "end_ns": 2_000_000_020},
        **{"began_us": (0,), "length_us": (1_000_000,), "quiet_us": (1_000_000 + servers_us,)},
        **{"quantum_ms": (quantum,), "waited_us": (0,), "cpu_us": (900_000,)},
        **{"looks": looks, "idle_looks": idle, "waiting_looks": waiting},
    )
    return LaunchRecord(status="ok", reason=None, inside=None, deviations=(), slices=slices)


@pytest.mark.parametrize(
    ("seen", "refused"),
    [
        ({"looks": 1000, "idle": 100}, None),
        ({"looks": 1000, "idle": 101}, "was idle in"),
        ({"looks": 1000, "waiting": 10}, None),
        ({"looks": 1000, "waiting": 11}, "during its work"),
        ({"looks": 20, "waiting": 2}, None),  # may be chance
        ({"looks": 20, "waiting": 3}, "during its work"),
        ({}, None),
    ],
)
def test_a_job_that_waits_is_refused(seen, refused):
    found = truths.refusal_of(launch(**seen), "docker")
    assert (found is None) == (refused is None)
    assert refused is None or (refused in found and found.startswith("docker "))


def test_one_launch_that_waits_refuses_all():
    found = {"host": launch(looks=99), "podman": launch(looks=99, idle=50)}
    assert truths.waits(found).startswith("podman ")
    failed = found["podman"].replace(status="failed", reason="it died")
    assert truths.waits({"host": launch(), "docker": failed.replace(slices=None), "podman": failed}) is None
    assert truths.waits({"host": launch(), **found}).startswith("podman ")


def test_launches_whose_bills_differ_are_named_where_they_were_sliced():
    launches = {
        "host": launch(quantum=40),
        "apptainer": launch(quantum=40, servers_us=13_000),
        "docker": launch(quantum=40, servers_us=12_000),
        "whole": launch(servers_us=500_000),
    }
    launches["podman"] = launches["apptainer"].replace(status="failed", reason="it died")
    assert bills_apart(launches, {"run": 0.05, "step": 0.02}) == ["apptainer"]
    assert bills_apart(launches, None) == []


def test_what_a_daemon_started_is_no_work_of_others():
    """0.9 s of each launch: all of it in what its client has reaped, or nothing but the client's own."""
    reaped = launch().replace(client_user_s=1.1, client_system_s=0.1)
    of_a_daemon = launch().replace(client_user_s=0.04, client_system_s=0.01)
    gone = LaunchRecord(status="failed", reason="it died", inside=None, deviations=())
    assert unreaped_s({"host": reaped, "docker": of_a_daemon, "podman": gone}) == pytest.approx(0.85)
    assert unreaped_s({"docker": launch()}) == pytest.approx(0.9), "of a client that nobody watched"
