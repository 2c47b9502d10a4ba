"""Instances that really train together: the switch and what it leaves behind, environments, both exchanges."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from matrix import HURRIED, envs_in_turn, in_turn

from tare.analysis import launch_rows
from tare.analysis.capacity import network
from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, project_root
from tare.core.process import run
from tare.experiments import rounds
from tare.experiments.network import measure_network
from tare.launch import switch
from tare.launch.conditions import PATH, launcher_environment
from tare.launch.networks import Wires, switched
from tare.launch.place import site_of
from tare.launch.scenarios import distributed
from tare.model.conditions import Group
from tare.model.records.measured import NetworkRecord
from tare.model.registry import describe_workload, environment
from tare.model.schema import read
from tare.model.studies import arms

pytestmark = pytest.mark.runtime
CLIENT = {"PATH": PATH}
WORKLOAD = "mnist_cnn"
TRIES = 5
GROUP = Group(workers=2, exchange="all-reduce", network="switch", rate_mbit_per_s=1000.0, delay_ms=0.0)
RECEIVE = """
import socket, time
with socket.socket() as listener:
    listener.bind(("{address}", 5000)); listener.listen(1); print("ready", flush=True)
    connection, _ = listener.accept()
seen, started = 0, None
while chunk := connection.recv(1 << 16):
    started = started or time.monotonic()
    seen += len(chunk)
print(seen / (time.monotonic() - started), flush=True)
"""
SEND = 'import socket; socket.create_connection(("{address}", 5000)).sendall(bytes({count}))'
HELD = """
import json, sys, time
from tare.launch.networks import Wires, switched
with switched({"PATH": sys.argv[1]}, 2, Wires(rate_bit_per_s=1e8)) as pids:
    print(json.dumps(pids), flush=True)
    time.sleep(600)
"""
HELD_BY_CONTAINERS = """
import json, sys, time
from tare.launch.networks import Wires, meeting
from tare.launch.place import site_of
from tare.model.records.images import ImageRecord
from tare.model.registry import environment
from tare.model.schema import parse
image = parse(ImageRecord, json.loads(sys.stdin.readline()), "an image")
site = site_of("docker", environment("docker"), image, None)
with site.environment.session(), meeting(site, 2, Wires(rate_bit_per_s=1e8)) as place:
    print(json.dumps([network.partition(":")[2] for network in place.networks]), flush=True)
    time.sleep(600)
"""
TOGETHER = """
import json, sys
from tare.launch.place import site_of
from tare.launch.scenarios import distributed
from tare.launch.transport import Binds
from tare.model.conditions import Conditions
from tare.model.records.images import ImageRecord
from tare.model.registry import environment
from tare.model.schema import parse
from tare.model.specification import Specification
name, marker, conditions = sys.argv[1:]
Binds.words = lambda self, python, program: ("/bin/sh", "-c", f"sleep {marker}")
image = parse(ImageRecord, json.loads(sys.stdin.readline()), "an image")
site = site_of(name, environment(name), image, None)
with site.environment.session():
    asked = parse(Conditions, json.loads(conditions), "conditions")
    distributed.launched(site, Specification(mode="train"), asked, 0)
"""


@pytest.fixture(scope="module")
def spec(study):
    return rounds.whole_run_spec(WORKLOAD, describe_workload(WORKLOAD)["batch"], study).replace(**HURRIED)


@pytest.fixture(scope="module")
def data(folders):
    return folders(describe_workload(WORKLOAD)["dataset"])


def conditions_of(study, **group):
    plain = arms.conditions_at(study.conditions, rounds.headline_levels(study))
    return plain.replace(group=GROUP.replace(**group))


def within(pid, script):
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", sys.executable, "-I", "-S", "-c", script]


def rate_between(first, second, count, address="10.83.0.1"):
    """Bytes a second that arrive at the first of two namespaces."""
    receiver = subprocess.Popen(within(first, RECEIVE.format(address=address)), stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout.readline().strip() == "ready"
        sent = run(within(second, SEND.format(address=address, count=count)), timeout_s=30)
        assert sent.ok, sent.explain()
        return float(receiver.stdout.readline())
    finally:
        receiver.kill()
        receiver.wait()


def rates_between(first, second, count, bounds, address="10.83.0.1"):
    """Bits a second of a stream, until one lies within bounds: who is kept from running sees another rate."""
    found = []
    while len(found) < TRIES and not (found and bounds[0] < found[-1] < bounds[1]):
        found.append(rate_between(first, second, count, address) * 8)
    return found


def devices_here():
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def is_held(pid):
    """Whether a process holds a network namespace; one that was killed does not, reaped or not."""
    return Path(f"/proc/{pid}/ns/net").exists()


def wait_for(holds, within_s=20.0):
    deadline = time.monotonic() + within_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def test_a_switch_passes_on_at_the_rate_that_was_set_and_touches_nothing_of_the_machine():
    before = devices_here()
    with switched(CLIENT, 2, Wires(rate_bit_per_s=100e6)) as (first, second):
        assert devices_here() == before
        limited = rates_between(first, second, 5_000_000, (85e6, 105e6))
        with switched(CLIENT, 2, Wires(rate_bit_per_s=None)) as others:  # two studies at once, same addresses
            free = rates_between(*others, 50_000_000, (500e6, math.inf))
    assert 85e6 < limited[-1] < 105e6, "100 Mbit/s, headers included"
    assert free[-1] > 500e6
    assert devices_here() == before
    assert wait_for(lambda: not any(map(is_held, (first, second, *others))))


def test_a_delay_is_there_or_the_kernel_that_lacks_it_is_named():
    try:
        with switched(CLIENT, 2, Wires(rate_bit_per_s=None, delay_ms=5.0)) as (first, second):
            shown = run(["nsenter", f"--net=/proc/{second}/ns/net", "--", "tc", "qdisc", "show"], timeout_s=10)
            assert "netem" in shown.stdout and "delay 5ms" in shown.stdout
            assert rate_between(first, second, 1000) > 0
    except UnavailableError as error:
        assert str(error) == "a group can't have its own network: netem: this kernel has no netem"


def test_an_overlay_passes_on_through_the_switch_below():
    with switched(CLIENT, 2, Wires(rate_bit_per_s=100e6, overlay=True)) as (first, second):
        shown = run(["nsenter", f"--net=/proc/{first}/ns/net", "--", "ip", "-d", "link"], timeout_s=10)
        assert "vxlan id 83" in shown.stdout and "mtu 1450" in shown.stdout
        assert 80e6 < rates_between(first, second, 5_000_000, (80e6, 100e6), "10.84.0.1")[-1] < 100e6


def test_a_switch_goes_with_a_harness_that_is_killed():
    harness = subprocess.Popen(
        [sys.executable, "-c", HELD, PATH], cwd=project_root(), stdout=subprocess.PIPE, text=True
    )
    pids = json.loads(harness.stdout.readline())
    assert len(pids) == 2 and all(map(is_held, pids))
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    assert wait_for(lambda: not any(map(is_held, pids)))


def test_containers_that_hold_networks_go_with_a_harness_that_is_killed(forms):
    docker, image, launches = environment("docker"), forms("docker").to_json(), cache_dir("launches")

    def is_there(name):
        asked = ["docker", "container", "inspect", name]
        return run(asked, timeout_s=30, env=launcher_environment(docker)).ok or (launches / name).exists()

    with docker.session():  # the daemon lives on
        harness = subprocess.Popen(
            [sys.executable, "-c", HELD_BY_CONTAINERS], cwd=project_root(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        print(json.dumps(image), file=harness.stdin, flush=True)
        names = json.loads(harness.stdout.readline())
        assert len(names) == 2 and all(map(is_there, names))
        harness.kill()
        harness.wait()
        assert wait_for(lambda: not any(map(is_there, names)), 60.0)


def sleepers(marker):
    """Processes that sleep for as many seconds as `marker` says, whatever namespaces they are in."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{marker}\0".encode():
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("env", "kind"),
    [("host", "switch"), *in_turn(1, [("docker", "switch"), ("charliecloud", "overlay")])],
)
def test_a_group_on_its_switch_goes_with_a_harness_that_is_killed(env, kind, study, forms):
    marker, before = str(985_000 + os.getpid() % 997), devices_here()
    argv = [sys.executable, "-c", TOGETHER, env, marker, json.dumps(conditions_of(study, network=kind).to_json())]
    with environment(env).session():  # a daemon lives on
        harness = subprocess.Popen(argv, cwd=project_root(), stdin=subprocess.PIPE, text=True)
        print(json.dumps(forms(env).to_json()), file=harness.stdin, flush=True)
        assert wait_for(lambda: len(sleepers(marker)) == 2, 90.0)
        networks = {str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in sleepers(marker)}
        assert len(networks) == 2 and str(Path("/proc/self/ns/net").readlink()) not in networks
        harness.kill()
        harness.wait()
        assert wait_for(lambda: not sleepers(marker), 60.0)
        assert wait_for(lambda: not networks.intersection(namespaces_in_use()), 60.0), (
            "no process holds one of them"
        )
    assert devices_here() == before


def namespaces_in_use():
    """The network namespaces that processes are in."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            found.add(str(path.readlink()))
    return found


@pytest.mark.parametrize("env", envs_in_turn("test_distributed.py"))
def test_instances_train_together_on_a_switch(env, study, forms, data, spec):
    site = site_of(env, environment(env), forms(env), data)
    with site.environment.session():
        record = distributed.launched(site, spec, conditions_of(study), 64)
    assert record.ok, record.reason
    assert record.deviations == () and record.network.kind == "switch"
    members = [one.inside for one in record.instances]
    assert len({one.facts.namespaces["net"] for one in members}) == 2, "each has a network of its own"
    assert all(one.facts.interfaces == ("eth0", "lo") for one in members)
    assert len({one.results["weights_sha256"] for one in members}) == 1
    assert [one.results["samples"] for one in members] == [describe_workload(WORKLOAD)["samples"]] * 2
    assert members[0].results["losses"] != members[1].results["losses"], "each in an order of its own"
    rows = {row["metric"]: row["value"] for row in launch_rows.whole_run_rows(record)}
    payload = 4 * describe_workload(WORKLOAD)["parameters"]
    assert rows["exchange_bytes"] == payload
    # Two members: each sends as many bytes as it has. They can't travel faster than the cable.
    assert rows["exchange_s"] > 0.9 * payload * 8 / 1e9
    assert 0 <= rows["exposed_exchange_s"] <= rows["exchange_s"] + 1e-6 and 0 <= rows["exchange_share"] < 1
    told = members[0].results["exchange"]
    steps = zip(told["exposed_ns"], told["in_flight_ns"], told["step_ns"], strict=True)
    assert all(0 <= exposed <= busy <= whole for exposed, busy, whole in steps)
    assert 0 < rows["join_s"] < 30


def test_containers_train_together_on_the_network_of_their_daemons_host(study, forms, data, spec):
    site = site_of("docker", environment("docker"), forms("docker"), data)
    before = devices_here()
    with site.environment.session():
        shared = distributed.launched(site, spec, conditions_of(study, network="host"), 64)
    assert shared.ok, shared.reason
    assert shared.network.kind == "host" and shared.deviations == ()
    members = [one.inside for one in shared.instances]
    assert len({one.facts.namespaces["net"] for one in members}) == 1
    assert len({one.results["weights_sha256"] for one in members}) == 1
    assert devices_here() == before


@pytest.mark.parametrize("kind", in_turn(0, ("overlay", "host")))
def test_a_parameter_server_trains_as_all_reduce_does_over_another_network(kind, study, forms, data, spec):
    site = site_of("host", environment("host"), forms("host"), data)
    served = distributed.launched(site, spec, conditions_of(study, exchange="parameter-server"), 64)
    summed = distributed.launched(site, spec, conditions_of(study, network=kind), 64)
    assert served.ok, served.reason
    assert summed.ok, summed.reason
    assert len(served.instances) == 3 and len(summed.instances) == 2
    for record in (served, summed):
        assert len({one.inside.results["weights_sha256"] for one in record.instances}) == 1
    losses = [one.instances[0].inside.results["losses"] for one in (served, summed)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    last = served.instances[2].inside.results
    assert last["samples"] == 0 and last["steps"] == len(losses[0])
    rows = {row["metric"]: row["value"] for row in launch_rows.whole_run_rows(served)}
    # A worker's own gradient up the server's one cable and its weights down; those of the other, which share the
    # cable, may pass while this one still computes.
    assert rows["exchange_s"] == rows["exposed_exchange_s"] > 0.9 * 2 * rows["exchange_bytes"] * 8 / 1e9
    assert served.network.kind == "switch" and summed.network.kind == kind and summed.deviations == ()
    networks = {one.inside.facts.namespaces["net"] for one in summed.instances}
    assert len(networks) == (2 if kind == "overlay" else 1)


@pytest.mark.parametrize("name", ["host", *in_turn(0, ("docker", "charliecloud", "apptainer"))])
def test_an_overlay_of_containers_is_theirs_alone(name, study, forms, data, spec):
    site = site_of(name, environment(name), forms(name), data)
    with site.environment.session():
        record = distributed.launched(site, spec, conditions_of(study, network="overlay-of-containers"), 64)
    assert record.ok, record.reason
    assert record.network.kind == ("switch" if name == "host" else "overlay")


def test_a_server_that_dies_ends_its_workers_within_seconds(study, forms, data, spec):
    site = site_of("host", environment("host"), forms("host"), data)

    class Dying(type(site.environment)):
        def command(self, launch):
            argv = super().command(launch)
            return ["sh", "-c", "sleep 3; echo no power >&2; exit 3"] if "RANK=2" in argv else argv

    began = time.monotonic()
    group = conditions_of(study, exchange="parameter-server")
    record = distributed.launched(replace(site, environment=Dying()), spec, group, 0)
    assert time.monotonic() - began < 60
    assert record.status == "failed" and record.reason == "rank 2: sh ended with status 3: no power"
    assert {one.status for one in record.instances[:2]} == {"stopped"}


def descendants(pid):
    """Folders in /proc of the processes that a process started, and of theirs."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[process] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    found, young = [], [pid]
    while young:
        parent = young.pop()
        own = [process for process, its in parents.items() if its == parent]
        found += own
        young += [int(process.name) for process in own]
    return found


def test_a_worker_that_dies_while_it_trains_ends_the_others_within_seconds(study, forms, data, spec):
    site = site_of("host", environment("host"), forms("host"), data)
    killed = []

    def end_the_second():
        """Kill it once it has computed for longer than its imports take."""
        until = time.monotonic() + 120
        while not killed and time.monotonic() < until:
            time.sleep(0.1)
            for process in descendants(os.getpid()):  # a study beside this test has a second rank, too
                with contextlib.suppress(OSError):
                    is_second = b"RANK=1" in (process / "environ").read_bytes().split(b"\0")
                    ticks = (process / "stat").read_text().rpartition(")")[2].split()
                    if is_second and int(ticks[11]) / os.sysconf("SC_CLK_TCK") > 5.0:
                        os.kill(int(process.name), signal.SIGKILL)
                        killed.append(time.monotonic())

    watch = threading.Thread(target=end_the_second, daemon=True)
    watch.start()
    record = distributed.launched(site, spec.replace(epochs=100_000), conditions_of(study), 0)
    ended = time.monotonic()
    assert killed and ended - killed[0] < 20, "the other ends within seconds"
    assert record.status == "failed" and "\n" not in record.reason and record.reason.startswith("rank 1: ")
    assert record.instances[0].status == "stopped"


def test_a_kernel_that_refuses_a_namespace_is_one_line(monkeypatch):
    monkeypatch.setattr(switch, "CLONE_NEWNET", 1)  # which unshare(2) refuses
    with pytest.raises(switch.Refused, match=r"^a network namespace: Invalid argument$"):
        switch.instance_namespace()


def test_the_network_alone_is_measured_by_its_own_command(tmp_path, forms, monkeypatch):
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    record = forms("host")
    record.write(tmp_path / "images/host.json")
    group = {"environments": ["host"], "rate_mbit_per_s": 200.0, "sizes_kib": [1, 1024], "repetitions": 3}
    study = {"study": "mine", "scenarios": ["single", "distributed"], "device": "cpu", "distributed": group}
    for _ in range(TRIES):
        measure_network(json.dumps(study), tmp_path / "images", tmp_path / "network.json")
        found = read(NetworkRecord, tmp_path / "network.json")
        wire = network.wires(found)["host"]
        if 170e6 < wire.stream_bytes_per_s * 8 < 210e6:
            break
    assert 170e6 < wire.stream_bytes_per_s * 8 < 210e6
    assert 0 < wire.round_trip_s < 0.05 and set(wire.all_reduce) == {1 << 10, 1 << 20}
    assert wire.all_reduce[1 << 20] > 0.9 * (1 << 20) * 8 / 200e6, "a megabyte each way"
