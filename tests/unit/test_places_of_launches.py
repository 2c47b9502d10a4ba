"""Where launches meet and what is made for them: values by hand, without a launch."""

import contextlib
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest
from asked import CONDITIONS, spec
from test_adapters import LAUNCH

from envs.docker import Docker
from envs.host import Host
from envs.vm import Vm
from tare.core.errors import UnavailableError
from tare.core.process import Finished
from tare.launch import conditions, group, networks, prepare
from tare.launch.channel import ConversationError
from tare.launch.networks import Wires
from tare.launch.place import Site
from tare.launch.scenarios import distributed, shared
from tare.launch.slicing.rounds import in_own_time, slices_of
from tare.model.conditions import Group
from tare.model.records.launches import Clock, LaunchRecord

SITE = Site(environment=Host(), python="p", reference=None, data=None)
GROUP = Group(workers=2, exchange="all-reduce", network="switch", rate_mbit_per_s=1000.0, delay_ms=0.5)


@pytest.mark.parametrize(("wanted", "kind", "interfaces"), [(None, None, ("lo",)), ("host", "host", None)])
def test_on_the_hosts_network_all_have_one_loopback_and_a_port_that_is_free(wanted, kind, interfaces):
    with networks.meeting(replace(SITE, isolates_network=False), 3, wanted) as found:
        assert (found.networks, found.address, found.interface) == (("host",) * 3, "127.0.0.1", "lo")
        assert found.interfaces == interfaces
        assert (found.record.kind if found.record else None) == kind
        with socket.socket() as one:
            one.bind(("127.0.0.1", found.port))


@pytest.mark.parametrize(
    ("network", "environment", "overlay"),
    [
        ("switch", None, False), ("overlay", None, True), ("overlay-of-containers", None, True),
        ("overlay-of-containers", Docker(), True), ("overlay-of-containers", Host(), False),
        ("overlay-of-containers", Vm(), False), ("overlay", Host(), True),
    ],
)  # fmt: skip
def test_a_group_meets_on_a_switch_or_an_overlay_with_the_rate_of_its_study(network, environment, overlay):
    found = distributed.network_of(GROUP.replace(network=network), environment)
    assert found == Wires(rate_bit_per_s=1e9, delay_ms=0.5, overlay=overlay)


def test_a_group_without_a_rate_has_none_and_one_on_the_hosts_network_no_wires():
    assert distributed.network_of(GROUP.replace(rate_mbit_per_s=None)) == Wires(rate_bit_per_s=None, delay_ms=0.5)
    assert distributed.network_of(GROUP.replace(network="host")) == "host"


def test_mount_points_of_a_launch_alone_go_after_it_the_deepest_first(tmp_path):
    (tmp_path / "shared").mkdir()
    points = [tmp_path / "shared/all", tmp_path / "shared/one/code/deep"]
    adapter = SimpleNamespace(mount_points=lambda planned: points)
    planned = replace(LAUNCH, name="one", reference=str(tmp_path / "shared"))
    assert prepare.own_mount_points(adapter, planned) == [points[1], points[1].parent, points[1].parent.parent]
    for _ in range(2):
        with prepare.mount_points(adapter, planned):
            assert all(point.is_dir() for point in points)
        assert points[0].is_dir() and not (tmp_path / "shared/one").exists()
    with prepare.mount_points(adapter, replace(planned, reference=str(tmp_path / "image"))):
        assert not points[1].exists(), "never where an image should be"


def test_cpus_of_one_core_are_as_the_kernel_lists_them(tmp_path):
    folder = tmp_path / "cpu3/topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text("1,3\n")
    assert conditions.siblings_of(3, tmp_path) == "1,3" and conditions.siblings_of(1, tmp_path) is None


def billed():
    """What was billed to a launch that was stopped from 2 s to 5 s after its first instruction at 10 s."""
    ended = Finished(
        argv=("it",), returncode=0, stdout="", stderr="", started_ns=9 * 10**9, ended_ns=17 * 10**9, user_s=0.0,
        system_s=0.0, timed_out=False,
    )  # fmt: skip
    job = SimpleNamespace(
        holder=SimpleNamespace(means="cgroup2"),
        servers=SimpleNamespace(clock=lambda: {1: 4_000_000, 2: 2_000_000}),
        ended_ns=16 * 10**9,
        began_ns=[10 * 10**9, 15 * 10**9],
        stopped_ns=[12 * 10**9 - 5000, 16 * 10**9],
        quiet_ns=[12 * 10**9, 16 * 10**9],
        quantum_s=[0.04, 0.0],
        waited_s=[0.25, 0.0],
        cpu_ns=[7, 1_500_000_000, 2_250_000_000],
        gates_ns=[11 * 10**9],
        gates_cpu_ns=[900_000_000],
        **{"looks": 9, "idle_looks": 2, "waiting_looks": 1, "memory_bytes": 4096},
    )
    return slices_of(SimpleNamespace(finished=ended, servers=2, arrived_ns=10 * 10**9), job)


def test_slices_are_told_in_microseconds_since_the_first_instruction():
    found = billed()
    assert (found.spawn_ns, found.arrived_ns, found.ended_ns, found.end_ns) == tuple(
        n * 10**9 for n in (9, 10, 16, 17)
    )
    assert (found.began_us, found.length_us, found.quiet_us) == (
        (0, 5_000_000), (1_999_995, 1_000_000), (2_000_000, 1_000_000),
    )  # fmt: skip
    assert (found.quantum_ms, found.waited_us, found.cpu_us) == ((40, 0), (250_000, 0), (1_500_000, 2_250_000))
    assert (found.gates_us, found.gates_cpu_us, found.servers_cpu_us) == ((1_000_000,), (900_000,), 6_000)
    assert (found.servers, found.means, found.looks, found.idle_looks) == (2, "cgroup2", 9, 2)
    assert (found.waiting_looks, found.memory_bytes) == (1, 4096)


def test_in_its_own_time_a_launch_ends_without_what_it_was_stopped_for():
    record = LaunchRecord(status="ok", reason=None, spawn_ns=9 * 10**9, end_ns=17 * 10**9)
    found = in_own_time(record, billed())
    assert found.end_ns == 14 * 10**9 and found.slices == billed()
    never = record.replace(end_ns=None)
    assert in_own_time(never, billed()) == never


@pytest.mark.parametrize(
    ("ended", "killed", "cleaned"),
    [(("ok", "ok"), [], []), (("ok", "failed"), [], [1]), (("ok", None), [1], [1]), ((None, None), [0, 1], [0, 1])],
)
def test_of_a_group_only_members_that_did_not_end_well_are_cleaned_up(monkeypatch, ended, killed, cleaned):
    done = {"killed": [], "cleaned": []}

    def ready_one(site, program, asked, *, pad_bytes, member):
        talk = SimpleNamespace(go=lambda: None, kill=lambda: done["killed"].append(member))
        return contextlib.nullcontext(SimpleNamespace(start=lambda: talk, environment=None, planned=member))

    def watch(live, asked):
        for one, status in zip(live, ended, strict=True):
            one.record = status and LaunchRecord(status=status, reason=None if status == "ok" else "it died")

    monkeypatch.setattr(
        group, "meeting", lambda site, size, network: contextlib.nullcontext(SimpleNamespace(record=None))
    )
    monkeypatch.setattr(group, "ready", ready_one)
    monkeypatch.setattr(group, "members_at", lambda place, size, cpus: list(range(size)))
    monkeypatch.setattr(group, "clean_up", lambda environment, planned: done["cleaned"].append(planned))
    monkeypatch.setattr(group, "_watch", watch)
    monkeypatch.setattr(group, "_together", lambda live, culprit, asked, network: [one.rank for one in live])
    assert group._launch_once(None, None, CONDITIONS, 2, 0, None) == [0, 1]
    assert done == {"killed": killed, "cleaned": cleaned}


def test_a_neighbour_made_the_steps_that_ended_while_the_launch_ran_by_its_own_clock(monkeypatch):
    told = {"step_ends_ns": [10, 20, 30, 40, 50], "seconds": 1.5, "cpu_s": 0.5}
    record = LaunchRecord(status="ok", reason=None, clock=Clock(offset_ns=100, error_ns=1), deviations=("odd",))
    monkeypatch.setattr(shared, "record_of", lambda finished, prepared, asked: record)
    talk = SimpleNamespace(ask=lambda *given, timeout_s: told, end=lambda *, timeout_s: None)
    live = shared.Live(
        prepared=SimpleNamespace(planned=SimpleNamespace(name="tare-1")),
        talk=talk,
        spec=spec(workload="mnist_cnn", batch=8),
        conditions=CONDITIONS,
    )
    beside = LaunchRecord(status="ok", reason=None, spawn_ns=120, end_ns=140)
    found = live.end(beside)
    assert (found.steps, found.seconds, found.cpu_s) == (3, 1.5, 0.5)
    assert (found.launch, found.workload, found.batch, found.deviations) == ("tare-1", "mnist_cnn", 8, ("odd",))
    assert live.has_ended
    del told["cpu_s"]
    with pytest.raises(ConversationError, match="lacks 'cpu_s'"):
        live.end(beside)
    failed = record.replace(status="failed", reason="it died")
    monkeypatch.setattr(shared, "record_of", lambda finished, prepared, asked: failed)
    live.has_ended = False
    with pytest.raises(UnavailableError, match="it died"):
        live.end(beside)
    assert not live.has_ended
