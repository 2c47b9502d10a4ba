"""Instances that train together: what is asked for, what exchanges took, what a network is expected to give."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import campaign_builders
import pandas as pd
import pytest
from asked import CONDITIONS, OF_A_STUDY
from test_adapters import LAUNCH

from envs.charliecloud import Charliecloud
from envs.docker import Docker
from envs.host import Host
from envs.vm import Vm
from tare.analysis import choice, launch_rows
from tare.analysis.capacity import network
from tare.analysis.plans import expected
from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root
from tare.launch import networks, switch
from tare.launch.conditions import deviations
from tare.launch.group import split
from tare.launch.place import Site
from tare.launch.scenarios import barred, distributed, launcher
from tare.model.conditions import Group
from tare.model.levels import level_columns
from tare.model.records.launches import LaunchRecord
from tare.model.records.measured import NetworkRecord
from tare.model.roles import read_role
from tare.model.schema import parse
from tare.model.studies import arms, campaigns, checks, layout, loading, study
from tare.model.studies.cells import launch_columns
from tare.report import scenarios
from tare.stats.costs import ALL_REDUCE, exchange_s
from tare.worker.groups import exchange

S = 10**9
SITE = Site(environment=Host(), python="/usr/bin/python3", reference=None, data=None)
GROUP = Group(workers=2, exchange="all-reduce", network="switch", rate_mbit_per_s=1000.0, delay_ms=0.0)


@pytest.fixture
def config():
    return {
        **loading.load(project_root() / "config/config.yaml"),
        "scenarios": ["single", "distributed"],
        "distributed": {"environments": ["host", "docker"], "units": 4},
    }


# --- the study


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"worker": 2}, "did you mean 'workers'"),
        ({"workers": 1}, "distributed: workers: 1 must be at least 2"),
        ({"exchange": "ring"}, "distributed: exchange: 'ring' is not allowed"),
        ({"rate_mbit_per_s": 0.0}, "distributed: rate_mbit_per_s: 0.0 must be at least 1"),
        ({"network": "host", "delay_ms": 1.0}, "take network: switch"),
        ({"network": "Switch"}, "distributed: network: 'Switch' is not allowed"),
        ({"environments": ["host", "podman"]}, "podman is none of the study's environments"),
        ({"environments": ["docker"]}, "host is missing"),
        ({"workloads": ["mnist_cn"]}, "did you mean 'mnist_cnn'"),
        ({"arms": ["exchange=all-reduce"]}, "exchange=all-reduce is the headline"),
        ({"arms": ["input=real"]}, "input=real is the headline"),
        ({"arms": ["exchange=parameter-serve"]}, "did you mean 'parameter-server'"),
        ({"arms": ["allocator=steady"]}, "is no factor of a group"),
        ({"arms": ["input=synthetic"]}, "is impossible with mnist_cnn"),
        ({"sizes_kib": [1]}, "distributed: sizes_kib"),
        ({"network": "slurm"}, "network: slurm takes a node for each instance: name some in `machines`"),
        ({"arms": ["network=slurm"]}, "network: slurm takes a node for each instance"),
        ({"network": "slurm", "delay_ms": 1.0}, "take network: switch"),
    ],
)
def test_what_is_wrong_with_a_group_is_named_in_one_line(config, values, says):
    with pytest.raises(UserError) as caught:
        checks.check({**config, "distributed": {**config["distributed"], **values}})
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_the_largest_group_over_nodes_says_how_many_a_machine_is(config):
    def sized(**values):
        return checks.check({**config, "machines": ["thin"], "distributed": values}).distributed.nodes

    assert sized() == sized(exchange="parameter-server") == 1
    assert sized(network="slurm", workers=3) == sized(arms=["network=slurm"], workers=3) == 3
    assert sized(network="slurm", arms=["exchange=parameter-server"]) == 3, "the server has a node too"
    cold = {**config["conditions"], "page_cache": "cold"}
    with pytest.raises(UserError, match="no other node's page cache can be dropped"):
        checks.check({**config, "machines": ["thin"], "conditions": cold, "distributed": {"network": "slurm"}})
    part = study.reduced(
        checks.check({**config, "machines": ["thin"], "distributed": {"network": "slurm"}}).to_json(), "network"
    )
    assert part["distributed"]["network"] == "slurm"


def test_scenario_and_key_need_each_other(config):
    with pytest.raises(UserError, match="distributed: it is missing"):
        checks.check({key: value for key, value in config.items() if key != "distributed"})
    assert checks.check({**config, "scenarios": ["single"]}).distributed is None
    with pytest.raises(UserError, match="is of instances that train together; name it in `distributed: arms`"):
        checks.check({**config, "arms": {**config["arms"], "rounds": ["exchange=parameter-server"]}})


def test_steps_leave_some_to_time():
    found = loading.load_checked(project_root() / "config/nthu2018.yaml").to_json()
    found["workloads"]["resnet50"]["options"]["warmup_steps"] = 2
    with pytest.raises(UserError, match="steps: 2 leave none to time: 2 of resnet50 warm up"):
        checks.check({**found, "distributed": {**found["distributed"], "steps": 2}})


def test_campaigns_of_groups_are_whole_runs_with_a_name_of_their_own(config):
    found = checks.check(
        {**config, "distributed": {**config["distributed"], "arms": ["exchange=parameter-server"]}}
    )
    own = [one for one in campaigns.campaigns(found) if one.scenario == "distributed"]
    assert {one.kind for one in own} == {"rounds"} and {one.environments for one in own} == {("host", "docker")}
    assert {one.name for one in own} == {
        "rounds.docker+host.distributed",
        "rounds.docker+host.exchange-parameter-server.distributed",
    }
    for one in own:
        arm = layout.arm_of(one.name)
        assert (arm.name if arm else None) == one.arm
        assert expected.campaign_s(found, one) > 0


def test_a_group_is_part_of_its_own_campaigns_alone(config):
    whole = checks.check(config)
    arm = arms.parse("exchange=parameter-server")
    parts = {name: json.loads(study.part_of(whole, "rounds", "mnist_cnn", None, name)) for name in whole.scenarios}
    assert "distributed" not in parts["single"]
    assert parts["distributed"]["distributed"] == {"units": 4}, "what launches do not depend on is left out"
    assert study.reduced(parts["distributed"], "rounds", "mnist_cnn", arm, "distributed")["distributed"] == {
        "units": 4
    }
    wires = json.loads(study.part_of(whole, "network"))
    assert wires["environments"] == ["host", "docker"] and wires["distributed"] == {}
    everywhere = checks.check({**config, "distributed": {}})
    assert json.loads(study.part_of(everywhere, "network"))["environments"] == config["environments"]


def test_conditions_of_a_group_follow_its_levels():
    levels = {"allocator": "default", "exchange": "parameter-server", "network": "host"}
    found = arms.conditions_at(OF_A_STUDY, levels, GROUP).group
    assert found == GROUP.replace(exchange="parameter-server", network="host")
    assert (GROUP.size, found.size, found.servers) == (2, 3, 1)
    assert "group" not in arms.conditions_at(OF_A_STUDY, levels).to_json()


# --- launching


class Alone(Host):
    joins_networks = False


def test_a_scenario_says_who_can_not_train_together_and_how_it_launches():
    sites = {name: replace(SITE, environment=one) for name, one in (("host", Host()), ("docker", Docker()))}
    assert barred("distributed", sites, "switch") == {} == barred("distributed", sites, "host")
    guest = {"vm": replace(SITE, environment=Vm())}
    assert barred("distributed", guest, "switch") == {}
    assert barred("distributed", {**sites, **guest}, "overlay-of-containers") == {}
    for kind in ("overlay", "host"):
        assert barred("distributed", guest, kind)["vm"].endswith("its guests meet on a switch alone")
    (reason,) = barred("distributed", {"alone": replace(SITE, environment=Alone())}, "switch").values()
    assert reason.endswith("enters no network of this machine: its instances can't train together")
    assert barred("single", sites, "switch") == {} and launcher("single") is None and launcher("busy") is None
    assert launcher("distributed") is distributed.launched


def test_a_member_enters_the_namespace_of_a_launch_by_its_name_or_of_a_process_by_its_path():
    inside = replace(LAUNCH, network="launch:tare-1", interfaces=("eth0", "lo"))
    argv = Docker().command(inside)
    assert argv[argv.index("--network") + 1] == "container:tare-1"
    argv = Charliecloud().command(replace(LAUNCH, network="/proc/7/ns/net"))
    assert argv[6:9] == ["nsenter", "--net=/proc/7/ns/net", "--"]


def test_the_namespace_of_a_container_is_never_our_own():
    own = Path("/proc/self/ns/net").stat().st_ino
    with pytest.raises(UnavailableError, match="the container is on the host's network"):
        networks.process_in(own)
    with pytest.raises(UnavailableError, match="can't be seen from here"):
        networks.process_in(0)


def test_interfaces_are_held_against_what_a_member_should_see():
    facts = campaign_builders.facts("host")
    seen = parse(
        LaunchRecord,
        {
            "status": "ok",
            "reason": None,
            "inside": {
                **campaign_builders.inside("host", "train"),
                "facts": {**facts, "interfaces": ["eth0", "lo"]},
            },
        },
        "one",
    )

    def told(interfaces):
        launch = replace(LAUNCH, cpus=(0, 1), nofile=4096, interfaces=interfaces)
        return deviations(seen.seen_inside().facts, CONDITIONS, launch, workdir=Path("/w"))

    assert told(("eth0", "lo")) == [] == told(None)
    assert told(("lo",)) == ["network interfaces ['eth0', 'lo'], asked for ['lo']"]


def test_cpus_are_shared_out_where_there_are_enough():
    assert split([0, 1, 2, 3], 2) == [(0, 1), (2, 3)]
    assert split([0, 1], 3) == [(0, 1)] * 3


@pytest.mark.parametrize(
    ("said", "kind", "means"),
    [
        ("RTNETLINK answers: Operation not permitted", "bridge", "bridge: this user may not make network devices"),
        ("Error: Specified qdisc kind is unknown.", "netem", "netem: this kernel has no netem"),
        ("Error: Unknown device type.", "veth", "veth: this kernel has no veth"),
        ("RTNETLINK answers: File exists", "bridge", "bridge: its name is taken"),
        (
            "open: No such file or directory",
            "tun",
            "tun: /dev/net/tun can't be opened: this kernel has no tun, or this user may not",
        ),
        ("something else", "tbf", "tbf: something else"),
    ],
)
def test_what_a_kernel_or_a_user_lacks_for_a_switch_is_one_line(tmp_path, monkeypatch, said, kind, means):
    program = tmp_path / "ip"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(switch.Refused) as caught:
        switch.ask(kind, "ip", "link")
    assert str(caught.value) == means


@pytest.mark.parametrize(
    ("script", "means"),
    [("echo on its output; echo more; exit 2", "x: on its output"), ("exit 3", "x: ip ended with status 3")],
)
def test_a_program_that_says_little_is_told_by_what_there_is(tmp_path, monkeypatch, script, means):
    (tmp_path / "ip").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(switch.Refused) as caught:
        switch.ask("x", "ip", "link")
    assert str(caught.value) == means


def test_a_program_that_hangs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(switch, "COMMAND_S", 0.1)
    with pytest.raises(switch.Refused):
        switch.ask("bridge", sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)")


def test_without_iproute2_a_switch_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(switch.Refused, match="ip is not installed"):
        switch.ask("bridge", "ip", "link")


def test_names_of_devices_fit_the_kernel_and_carry_the_launchs_name(monkeypatch):
    asked = []
    monkeypatch.setattr(switch, "ask", lambda kind, *argv: asked.append(argv))
    monkeypatch.setattr(switch, "loopback_up", lambda: None)
    plan = {"name": "tare-0123456789ab", "ports": 2, "namespaces": [7, 8], "rate_bit_per_s": 1e9, "delay_ms": 0.5,
            "overlay": False, "taps": False}  # fmt: skip
    assert switch.build(plan) == [7, 8]
    names = {argv[argv.index("name") + 1] for argv in asked if "link" in argv and "add" in argv}
    assert names == {"t-0123456789ab", "0123456789ab-00", "0123456789ab-01"}
    assert all(len(name) < 16 for name in names), "IFNAMSIZ with its end"
    shaped = [argv for argv in asked if "qdisc" in argv]
    devices = [argv[argv.index("dev") + 1] for argv in shaped]
    assert devices == ["eth0", "eth0", "0123456789ab-00", "eth0", "eth0", "0123456789ab-01"]
    assert [word for argv in shaped for word in argv if word in ("netem", "tbf")] == ["netem", "tbf", "tbf"] * 2
    assert all("1000000000bit" in argv for argv in shaped if "tbf" in argv)


def test_machines_of_their_own_have_a_bridge_from_the_cable_to_a_tap(monkeypatch):
    asked = []
    monkeypatch.setattr(switch, "ask", lambda kind, *argv: asked.append(" ".join(argv)))
    monkeypatch.setattr(switch, "loopback_up", lambda: None)
    plan = {"name": "tare-0123456789ab", "ports": 1, "namespaces": [7], "rate_bit_per_s": 1e9, "delay_ms": 0,
            "overlay": False, "taps": True}  # fmt: skip
    switch.build(plan)
    within = "nsenter --net=/proc/7/ns/net -- "
    inside = [words.removeprefix(within) for words in asked if words.startswith(within)]
    assert inside[:5] == [
        "ip tuntap add dev tap0 mode tap",
        "ip link add name br0 type bridge",
        "ip link set dev eth0 master br0 up",
        "ip link set dev tap0 master br0 up",
        "ip link set dev br0 up",
    ]
    assert inside[5].startswith("tc qdisc add dev eth0 root") and not any("address add" in words for words in asked)


def test_an_overlay_is_between_hosts_and_sends_what_is_for_nobody_to_all_others(monkeypatch):
    asked, made = [], iter((7, 8, 17, 18))
    monkeypatch.setattr(switch, "ask", lambda kind, *argv: asked.append(" ".join(argv)))
    monkeypatch.setattr(switch, "loopback_up", lambda: asked.append("loopback"))
    monkeypatch.setattr(switch, "instance_namespace", lambda: next(made))
    plan = {"name": "tare-0", "ports": 2, "namespaces": [], "rate_bit_per_s": None, "delay_ms": 0, "overlay": True,
            "taps": False}  # fmt: skip
    assert switch.network_of(plan) == {"pids": [7, 8], "addresses": ["10.84.0.1", "10.84.0.2"]}
    at = {pid: f"nsenter --net=/proc/{pid}/ns/net -- " for pid in (7, 8, 17, 18)}
    assert asked[0] == "loopback" and not any("qdisc" in words for words in asked)
    cables = [words for words in asked if "type veth" in words]
    assert [words.rpartition(" ")[2] for words in cables] == ["17", "18"], "cables end at hosts"
    added = [words for words in asked if "address add" in words]
    assert added == [
        f"{at[17]}ip address add 10.83.0.1/24 dev eth0", f"{at[18]}ip address add 10.83.0.2/24 dev eth0",
        f"{at[7]}ip address add 10.84.0.1/24 dev eth0", f"{at[8]}ip address add 10.84.0.2/24 dev eth0",
    ]  # fmt: skip
    devices = [words for words in asked if "type vxlan" in words]
    assert [words.partition(" local ")[2] for words in devices] == ["10.83.0.1 dev eth0", "10.83.0.2 dev eth0"]
    assert [words[: len(at[17])] for words in devices] == [at[17], at[18]]
    ways = [words for words in asked if "fdb append" in words]
    assert [(words[: len(at[7])], words.partition(" dst ")[2]) for words in ways] == [
        (at[7], "10.83.0.2"), (at[8], "10.83.0.1"),
    ]  # fmt: skip


def test_instances_without_an_overlay_are_on_the_switch_itself(monkeypatch):
    made = iter((7, 8))
    monkeypatch.setattr(switch, "ask", lambda kind, *argv: None)
    monkeypatch.setattr(switch, "loopback_up", lambda: None)
    monkeypatch.setattr(switch, "instance_namespace", lambda: next(made))
    plan = {"name": "tare-0", "ports": 2, "namespaces": [], "rate_bit_per_s": 1e9, "delay_ms": 0, "overlay": False,
            "taps": False}  # fmt: skip
    assert switch.network_of(plan) == {"pids": [7, 8], "addresses": ["10.83.0.1", "10.83.0.2"]}


def test_a_loopback_is_set_up_and_running(monkeypatch):
    """SIOCSIFFLAGS of linux/sockios.h, and IFF_UP with IFF_RUNNING of linux/if.h."""
    asked = []
    monkeypatch.setattr(switch.fcntl, "ioctl", lambda one, request, value: asked.append((request, value)))
    switch.loopback_up()
    flags = (0x1 | 0x40).to_bytes(2, sys.byteorder)
    assert asked == [(0x8914, b"lo".ljust(16, b"\0") + flags + bytes(22))]


class Ended(BaseException):
    """A process has ended, with this status."""


@pytest.mark.parametrize(("refused", "status", "up"), [(0, 0, True), (-1, 1, False)])
def test_a_child_holds_a_namespace_of_its_own_or_says_why_not(monkeypatch, refused, status, up):
    done = []

    def ended(status):
        raise Ended(status)

    def library(name, *, use_errno):
        assert use_errno, "or the reason is lost"
        return SimpleNamespace(unshare=lambda flags: refused)

    ends = [*os.pipe(), *os.pipe()]
    (ready, tell), (held, hold) = ends[:2], ends[2:]
    pipes = iter(((ready, tell), (held, hold)))
    copy = os.dup(ready)
    monkeypatch.setattr(switch.ctypes, "CDLL", library)
    monkeypatch.setattr(switch, "loopback_up", lambda: done.append("up"))
    with monkeypatch.context() as patch:
        patch.setattr(switch.os, "pipe", lambda: next(pipes))
        patch.setattr(switch.os, "fork", lambda: 0)
        patch.setattr(switch.os, "_exit", ended)
        patch.setattr(switch.os, "read", lambda end, count: done.append(end == held and count > 0) or b"")
        with pytest.raises(Ended) as caught:
            switch.instance_namespace()
    assert caught.value.args == (status,) and done == (["up", True] if up else []), "it waits for its parent"
    if not up:
        os.close(tell)
    assert bool(os.read(copy, 200)) == (not up)
    for one in (copy, held):
        os.close(one)


@pytest.mark.parametrize("said", ["", "Operation not permitted"])
def test_a_parent_hears_of_its_childs_namespace(monkeypatch, said):
    pipes = [os.pipe(), os.pipe()]
    os.write(pipes[0][1], said.encode())
    left = iter(pipes)
    with monkeypatch.context() as patch:
        patch.setattr(switch.os, "pipe", lambda: next(left))
        patch.setattr(switch.os, "fork", lambda: 7)
        if said:
            with pytest.raises(switch.Refused, match=said):
                switch.instance_namespace()
            os.close(pipes[0][0])
        else:
            assert switch.instance_namespace() == 7
    os.close(pipes[1][1])  # the child's hold on it is the parent's, which lives


def test_a_word_of_the_protocol_is_said_at_once(monkeypatch):
    calls = []
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=calls.append, flush=lambda: calls.append("flush")))
    switch.say("up", {"pids": [7]})
    assert "".join(calls) == f'{switch.PROTOCOL} up {{"pids": [7]}}\nflush'


@pytest.mark.parametrize(
    ("words", "status"), [([], 2), (["nonsense"], 2), (["{}", "{}"], 2), (["--help"], 0), (["-h"], 0)]
)
def test_a_switch_without_a_plan_tells_what_it_is_where_that_is_asked_for_as_an_answer(words, status):
    ended = subprocess.run(
        [sys.executable, "-I", "-S", switch.__file__, *words], capture_output=True, text=True, timeout=30
    )
    said, other = (ended.stderr, ended.stdout) if status else (ended.stdout, ended.stderr)
    assert ended.returncode == status and switch.__doc__.strip() in said and not other


def test_a_switch_that_fails_says_so_by_its_protocol(tmp_path):
    plan = {"name": "tare-0", "ports": 0, "namespaces": [], "rate_bit_per_s": None, "delay_ms": 0, "overlay": False,
            "taps": False}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", switch.__file__, json.dumps(plan)],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, input="", check=False,
    )  # fmt: skip
    assert done.returncode == 1
    if os.getuid() == 0:  # the loopback of this machine is up already, so only iproute2 is missing
        word, values = done.stdout.split(" ", 2)[1:]
        assert word == "failed" and "is not installed" in json.loads(values)["reason"]


# --- times


def test_time_under_way_is_a_union_and_what_is_exposed_begins_with_the_last_gradient():
    spans = [(0, 10), (5, 12), (20, 30)]
    assert exchange.union_ns(spans) == 22 and exchange.exposed_ns(spans) == 10
    assert exchange.union_ns([(0, 10), (2, 4)]) == 10 and exchange.exposed_ns([(0, 10), (2, 4)]) == 8
    assert exchange.union_ns([]) == exchange.exposed_ns([]) == 0


class Device:
    """A CUDA device that has not come to an event until it is waited for; its time is what was submitted."""

    def __init__(self):
        self.done_ms, self.submitted_ms = -1.0, 0.0

    def works(self, ms):
        self.submitted_ms += ms

    def synchronize(self):
        self.done_ms = self.submitted_ms

    def Event(self, *, enable_timing):
        assert enable_timing
        device = self

        class Event:
            def record(self):
                self.at_ms = device.submitted_ms

            def elapsed_time(self, other):
                assert device.done_ms >= max(self.at_ms, other.at_ms), "not ready"
                return other.at_ms - self.at_ms

        return Event()


class Sums:
    """A collective's future: its callbacks run when the device has the sums."""

    def __init__(self, device, ms, gradients):
        self.device, self.ms, self.gradients = device, ms, gradients

    def get_future(self):
        return self

    def value(self):
        return [self.gradients]

    def then(self, done):
        self.device.works(self.ms)
        return done(self)


def test_on_a_cuda_device_a_step_is_split_by_its_events():
    """Two buckets of 3 and 5 ms, the second handed over after 2 ms of computing; 4 ms before, 1 ms after."""
    device = Device()

    class Parallel:
        def __init__(self, model, broadcast_buffers):
            pass

        def register_comm_hook(self, state, hook):
            Parallel.hook = staticmethod(hook)

    class Bucket:
        def buffer(self):
            return self

        def div_(self, size):
            assert size == 2
            return self

    takes = iter((3.0, 5.0, 3.0, 5.0))
    module = SimpleNamespace(
        cuda=device,
        nn=SimpleNamespace(parallel=SimpleNamespace(DistributedDataParallel=Parallel)),
        distributed=SimpleNamespace(all_reduce=lambda gradients, async_op: Sums(device, next(takes), gradients)),
    )

    def step(batch):
        device.works(4)
        Parallel.hook(None, Bucket())
        device.works(2)
        Parallel.hook(None, Bucket())
        device.works(1)
        return "loss"

    training = SimpleNamespace(step=step, model=SimpleNamespace(parameters=lambda: []))
    framework = SimpleNamespace(device="cuda", module=module, size=2, workers=2)
    shared = exchange.AllReduce(framework, training)
    assert [training.step(None), training.step(None)] == ["loss", "loss"]
    assert device.done_ms < 0, "nothing waits for the device while it trains"
    told = shared.as_dict()
    assert told["reason"] is None and told["step_ns"] == [15_000_000] * 2
    assert told["in_flight_ns"] == [8_000_000] * 2 and told["exposed_ns"] == [5_000_000] * 2


def member(rank, *, samples=8, step_s=0.1, exposed_s=0.04, reason=None):
    """A member of a group with four steps, the first of which is not like the others; times by hand."""
    at = [1, 2, 3, 4, 5, 6, 7, 8]
    names = ("entry", "imports", "joined", "data", "model", "first_step", "epoch_end", "last")
    marks = [{"name": n, "at_ns": t * S, "user_s": 0.0, "system_s": 0.0} for n, t in zip(names, at, strict=True)]
    step, exposed = [int(x * 1e9) for x in (9, step_s, step_s, step_s)], [int(exposed_s * 1e9)] * 4
    told = {"kind": "all-reduce", "workers": 2, "payload_bytes": 4000, "reason": reason}
    if reason is None:
        told |= {"step_ns": step, "exposed_ns": exposed, "in_flight_ns": [2 * one for one in exposed]}
    ends = [6 * S, *(6 * S + int(n * step_s * 1e9) for n in (1, 2, 3))]
    results = {"samples": samples, "steps": 4, "step_ends_ns": ends, "losses": [1.0], "exchange": told,
               "warmup_steps": 1, "warmup_samples": 2}  # fmt: skip
    inside = campaign_builders.inside("host", "train", marks, results)
    return {"rank": rank, "status": "ok", "reason": None, "spawn_ns": 0, "end_ns": 9 * S, "inside": inside}


def record_of(*members):
    first = members[0]
    told = {key: first[key] for key in ("status", "reason", "spawn_ns", "end_ns", "inside")}
    return parse(LaunchRecord, {**told, "instances": list(members)}, "a group")


def rows_of(record):
    return {row["metric"]: row for row in launch_rows.whole_run_rows(record)}


def test_rows_of_a_group_by_hand():
    found = rows_of(record_of(member(0), member(1)))
    values = {name: row["value"] for name, row in found.items()}
    assert values["join_s"] == 1 and values["data_s"] == 1 and values["model_s"] == 1
    assert values["samples_per_s"] == pytest.approx(2 * 8 / 2), "of both, over epochs of two seconds"
    assert values["images_per_s"] == pytest.approx(2 * 6 / 0.3), "of both, over the three steps behind the warm-up"
    assert values["group_step_s"] == pytest.approx(0.1) and values["compute_step_s"] == pytest.approx(0.06)
    assert values["exposed_exchange_s"] == pytest.approx(0.04) and values["exchange_s"] == pytest.approx(0.08)
    assert values["exchange_share"] == pytest.approx(0.4) and values["exchange_bytes"] == 4000
    assert values["exchange_bytes_per_s"] == pytest.approx(50_000)
    assert {row["kind"] for row in found.values()} <= {"measured", "unavailable"}


def test_a_parameter_server_has_no_part_in_rates():
    served = member(2, samples=0)
    served["inside"]["results"] |= {"losses": [], "exchange": None}
    assert rows_of(record_of(member(0), member(1), served))["samples_per_s"]["value"] == pytest.approx(8)


def test_where_an_exchange_is_not_timed_the_reason_stands_instead():
    untimed = "the host submits without waiting"
    found = rows_of(record_of(member(0, reason=untimed), member(1, reason=untimed)))
    assert found["group_step_s"]["kind"] == "unavailable" and "without waiting" in found["group_step_s"]["reason"]
    assert found["exchange_bytes"]["value"] == 4000
    alone = member(0)["inside"]
    alone["results"]["exchange"] = None
    single = parse(
        LaunchRecord, {"status": "ok", "reason": None, "spawn_ns": 0, "end_ns": 9 * S, "inside": alone}, "x"
    )
    assert "group_step_s" not in rows_of(single)


def test_arms_of_a_scenario_are_no_arms_of_the_study():
    table = pd.DataFrame(
        [
            {"workload": "w", "scenario": "single", "campaign": "rounds.docker+host.stack-native"},
            {
                "workload": "w",
                "scenario": "distributed",
                "campaign": "rounds.docker+host.input-synthetic.distributed",
            },
        ]
    )
    assert choice.arm_campaigns(table, "w") == ["rounds.docker+host.stack-native"]


# --- the network


def network_launch(n=2, rate=100e6, trip=1e-4):
    """What members of a group saw of a network of 100 MB/s, with all-reduces that take twice what a ring would."""
    sizes = (1 << 10, 1 << 20)
    took = [{"bytes": b, "s": [2 * exchange_s(ALL_REDUCE, b, n, rate, trip)] * 3} for b in sizes]
    results = [
        {"size": n, "stream": {"bytes": 100_000_000, "s": 1.0}, "round_trip_s": trips, "all_reduce": took}
        for trips in ([], [trip, trip, 5 * trip])
    ]
    inside = [campaign_builders.inside("host", "network", [], one) for one in results]
    parts = [
        {"rank": rank, "status": "ok", "reason": None, "spawn_ns": 0, "end_ns": 1, "inside": one}
        for rank, one in enumerate(inside)
    ]
    return {"status": "ok", "reason": None, "inside": inside[0], "instances": parts}


def network_record():
    return parse(
        NetworkRecord,
        {
            "study": "s", "machine": "box", "stack": "t",
            "group": {"workers": 2, "rate_mbit_per_s": 800.0, "delay_ms": 0.0},
            "launches": {"host": network_launch(), "docker": {"status": "failed", "reason": "no room"}},
            "unavailable": {"vm": "it enters no network"},
        },
        "a network",
    )  # fmt: skip


def test_what_the_members_saw_is_read_back():
    found = network.wires(network_record())
    assert set(found) == {"host"}
    wire = found["host"]
    assert wire.stream_bytes_per_s == 1e8 and wire.round_trip_s == 1e-4 and wire.workers == 2


def metrics_table():
    """Two units of a workload in two environments, and the operations that a profile counted."""
    common = {"study": "s", "stack": "t", "batch": 4, "workload": "mnist_cnn", "kind": "measured", "source": "x",
              "reason": None}  # fmt: skip
    levels = level_columns({"stack": "same", "page_cache": "warm", "exchange": "all-reduce", "network": "switch"})
    values = {"real_s": 5.0, "samples_per_s": 30.0, "group_step_s": 0.1, "compute_step_s": 0.06, "exchange_s": 0.05,
              "exposed_exchange_s": 0.04, "exchange_share": 0.4, "exchange_bytes": 1e6}  # fmt: skip
    rows = [
        {**common, "campaign": "rounds.docker+host.distributed", "scenario": "distributed", **levels,
         **launch_columns(read_role(env), "distributed"),
         "rep": rep, "metric": name, "value": value * (1.1 if env == "docker" else 1), "unit": "s"}
        for env in ("host", "docker") for rep in (0, 1) for name, value in values.items()
    ]  # fmt: skip
    plain = {**common, "scenario": "single", **launch_columns(read_role("host"), "single"), **levels, "rep": None}
    rows.append({**plain, "campaign": "profile", "metric": "flops_per_step", "value": 1e9, "unit": "FLOP"})
    rows.append({**plain, "campaign": "rounds.docker+host", "metric": "samples_per_s", "value": 20.0, "unit": "1/s",
                 "rep": 0})  # fmt: skip
    return pd.DataFrame(rows)


def test_points_of_the_network_by_hand():
    found = network.points(metrics_table(), network_record()).set_index("env")
    host = found.loc["host"]
    assert host["n"] == 2 and host["exposed_s"] == 0.04
    assert host["modelled_s"] == pytest.approx(1e-4 + 1e6 / 1e8)
    elsewhere = network_record().replace(group={"workers": 2, "network": "overlay"})
    assert network.points(metrics_table(), elsewhere)["modelled_s"].isna().all(), "of another network"
    mixed = metrics_table()
    mixed["level_network"] = "overlay-of-containers"
    apart = network.points(mixed, network_record()).set_index("env")
    assert apart["network"].to_dict() == {"docker": "overlay", "host": "switch"}
    assert apart.loc["host", "modelled_s"] == host["modelled_s"] and pd.isna(apart.loc["docker", "modelled_s"])
    empty = network.points(metrics_table().iloc[-2:], network_record())
    assert empty.empty and list(empty.columns) == list(network.COLUMNS)


def test_sentences_say_what_the_network_gave_and_why_others_did_not():
    record = network_record()
    lines = scenarios.network_sentences(record, network.wires(record))
    rates = "4.64 MB/s (1.00 KiB) and 49.5 MB/s (1.00 MiB)"
    assert lines[0] == f"Host: TCP stream 800 Mbit/s, round trip 100 µs, all-reduce {rates}."
    assert lines[1] == "Docker: unavailable: no room." and lines[2].endswith("unavailable: it enters no network.")


def test_a_page_says_that_instances_have_a_node_each(config):
    def about(**values):
        found = checks.check({**config, "machines": ["thin"], "distributed": values})
        return scenarios.about(SimpleNamespace(study=found, workloads=list(found.workloads)))

    assert "on this one machine" in about() and "node" not in about()
    nodes = about(network="slurm")
    assert "each on its own node of the cluster" in nodes and "on this one machine" not in nodes
