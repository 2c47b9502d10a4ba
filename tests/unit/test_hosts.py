"""Instances on other hosts: what a study names, what ssh is asked, what a host says of itself, each refusal."""

import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_adapters import LAUNCH
from test_launch import CONDITIONS, SPEC

from envs.docker import Docker
from envs.host import Host
from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root
from tare.experiments import designs
from tare.launch import conditions, group, hosts
from tare.launch.group import launch_group
from tare.launch.hosts import Hosts, OnHost
from tare.launch.place import Site
from tare.launch.scenarios import distributed
from tare.model.studies import expected, study
from tare.model.studies.study import NamedHost
from tare.report.answers import instances

A, B = NamedHost(ssh="a", address="10.0.0.1"), NamedHost(ssh="tare@b", address="10.0.0.2")
OURS = f"{platform.system()} {platform.machine()}"
SEEN = hosts.Seen(
    machine=OURS,
    cpus=(0, 2, 1),
    cpu_model="Model X",
    missing=(),
    addresses={"127.0.0.1": "lo", "10.0.0.1": "eth0"},
    ports=frozenset(),
)
# Says what a machine says, but for its addresses; starts what it is told by a shell, as sshd does.
SSH = """\
#!/bin/sh
for last; do
    [ "$before" = -- ] && host=$last
    before=$last
done
echo "$host $last" | head -n 1 >> "{folder}/asked"
{more}
exec /bin/sh -c "$last"
"""
IP = """\
#!/bin/sh
echo '1: lo    inet 127.0.0.1/8 scope host lo'
echo '7: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0'
echo '7: eth0    inet 10.0.0.2/24 brd 10.0.0.255 scope global secondary eth0'
"""


@pytest.fixture
def config():
    return {
        **study.load(project_root() / "config/config.yaml"),
        "scenarios": ["single", "distributed"],
        "distributed": {"environments": ["host"], "network": "hosts", "hosts": [A.to_json(), B.to_json()]},
    }


@pytest.fixture
def cache(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TARE_CACHE", folder)
        yield Path(folder)


@pytest.fixture
def stub(tmp_path, monkeypatch, cache):
    """A folder with an ssh and an ip of ours, which programs are looked for in first; `more` is shell text."""

    def made(more=""):
        for name, text in (("ssh", SSH.format(folder=tmp_path, more=more)), ("ip", IP)):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        for module in (conditions, hosts):
            monkeypatch.setattr(module, "PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path

    return made


def site(environment):
    return Site(environment=environment, python=sys.executable, reference=None, data=None)


def both(cpus=1):
    return Hosts(named=(A, B), cpus=cpus)


# --- the study


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"hosts": [A.to_json()]}, "hosts: 1 are named, and 2 instances need one each"),
        ({"exchange": "parameter-server"}, "hosts: 2 are named, and 3 instances need one each"),
        ({"arms": ["exchange=parameter-server"]}, "hosts: 2 are named, and 3 instances need one each"),
        ({"hosts": [A.to_json(), {"ssh": "c", "address": "10.0.0.1"}]}, "two have the same address"),
        ({"hosts": [A.to_json(), {"ssh": "c", "address": "node"}]}, "'node' must be an IPv4 address"),
        ({"hosts": [A.to_json(), {"ssh": "-oProxyCommand=x", "address": "10.0.0.2"}]}, "a name that ssh takes"),
        ({"hosts": [A.to_json(), {"ssh": "c"}]}, "hosts"),
        ({"hosts": [], "network": "hosts"}, "hosts: missing"),
        ({"hosts": [], "network": "switch", "arms": ["network=hosts"]}, "hosts: missing"),
        ({"network": "switch"}, "they are for network: hosts, and it is switch"),
        ({"delay_ms": 1.0}, "delay_ms: the network of a host is left as it is"),
    ],
)
def test_what_is_wrong_with_hosts_is_named_in_one_line(config, values, says):
    with pytest.raises(UserError) as caught:
        study.check({**config, "distributed": {**config["distributed"], **values}})
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_cold_page_cache_can_not_be_had_on_other_hosts(config):
    with pytest.raises(UserError, match="hosts: nobody empties their page caches"):
        study.check({**config, "conditions": {**config["conditions"], "page_cache": "cold"}})


def test_hosts_are_part_of_what_groups_and_their_network_depend_on(config):
    found = study.check(config)
    assert found.distributed.group["hosts"] == [A.to_json(), B.to_json()]
    part = study.reduced(found.to_json(), "rounds", "mnist_cnn", None, "distributed")
    assert part["distributed"]["hosts"] == [A.to_json(), B.to_json()]
    assert study.reduced(found.to_json(), "network")["distributed"]["hosts"] == [A.to_json(), B.to_json()]
    asked = distributed.network_of({"cpus": 2, "group": found.distributed.group})
    assert asked == Hosts(named=(A, B), cpus=2)
    assert all(expected.campaign_s(found, one) > 0 for one in study.campaigns(found))


def test_the_page_says_on_which_hosts_instances_are(config):
    told = instances.about(
        SimpleNamespace(study=study.check(config), workloads=list(study.check(config).workloads))
    )
    assert "each on a machine of its own (a, tare@b)" in told and "this one machine" not in told


def test_a_unit_that_warms_is_made_on_the_hosts_as_any(monkeypatch):
    launched = []
    monkeypatch.setattr(designs.warmth, "in_memory", lambda *_: True)
    monkeypatch.setattr(designs.warmth, "note", lambda *_: None)
    monkeypatch.setattr(
        designs.scenarios, "launcher", lambda _: lambda **asked: launched.append(asked) or designs.skipped("x")
    )
    hot = {**CONDITIONS, "page_cache": "warm"}
    for names in ([], [A.to_json()]):
        plan = SimpleNamespace(
            conditions={**hot, "group": {"hosts": names}}, headline_conditions=None, discarded=1, spec={},
            scenario="distributed",
        )  # fmt: skip
        designs.one_after_other(plan, {"host": None}, [], ["host"], {"host": 0})
        assert len(launched) == len(names)


# --- what is asked, and what is heard


def test_ssh_asks_nobody_and_believes_no_unknown_key(monkeypatch):
    monkeypatch.delenv(hosts.SETTINGS, raising=False)
    argv = hosts.ssh("tare@b", ["echo", "a b"])
    assert argv[0] == "ssh" and argv[-3:] == ["--", "tare@b", "echo 'a b'"]
    options = set(argv[2:-3:2])
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ControlPath=none", "ServerAliveInterval=5"} <= options
    monkeypatch.setenv(hosts.SETTINGS, "/etc/other")
    assert hosts.ssh("b", ["true"])[1:3] == ["-F", "/etc/other"]


def test_a_launch_on_a_host_is_the_environments_own_command():
    adapter = OnHost(Host(), "b")
    asked = replace(LAUNCH, network="host", binds=(), workdir=Path("/"))
    line = adapter.command(asked)[-1]
    assert line.startswith(
        f"/usr/bin/env PATH={conditions.PATH} taskset -c 0,2 prlimit --nofile=1024:1024 -- env -C"
    )
    assert adapter.transport == "channel" and adapter.mount_points(asked) == ()
    ((*_, host, script),) = adapter.cleanup(LAUNCH)
    assert host == "b" and "tare-7" not in script and "/tmp/[t]are-7" in script


def test_what_is_left_of_a_launch_on_a_host_is_ended_and_nobody_else(tmp_path):
    name = f"tare-{os.urandom(6).hex()}"
    script = hosts.SWEEP.format(pattern=f"[{name[0]}]{name[1:]}")
    folder = Path("/tmp") / name
    folder.mkdir()
    worker = subprocess.Popen(["sleep", "600"], env={"HOME": str(folder)})
    other = subprocess.Popen(["sleep", "600"], env={"HOME": f"/tmp/other-{name[5:]}"})
    try:
        assert subprocess.run(["/bin/sh", "-c", script], timeout=60).returncode == 0
        assert worker.wait(timeout=30) == -9 and other.poll() is None and not folder.exists()
    finally:
        for one in (worker, other):
            one.kill()
            one.wait()


def test_what_a_host_says_is_read():
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list:{}"
    found = hosts.seen_in(
        {
            "machine": "Linux x86_64",
            "status": "Name:\tcat\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2,5\n",
            "cores": "\n".join(topology.format(*each) for each in ((0, "0-1"), (1, "0-1"), (2, "2"), (5, "5"))),
            "model": "model name\t: Model: X",
            "missing": "/one path\n/two",
            "addresses": IP.replace("echo '", "").replace("'", ""),
            "ports": "  sl  local_address rem_address   st\n   0: 0100007F:733C 00000000:0000 0A 0 0\n"
            "   1: 00000000000000000000000000000000:0016 0:0 0A\n",
        }
    )
    assert found.cpus == (0, 2, 5, 1), "the first of each core before the second of any"
    assert found.cpu_model == "Model: X" and found.missing == ("/one path", "/two")
    assert found.addresses == {"127.0.0.1": "lo", "10.0.0.1": "eth0", "10.0.0.2": "eth0"}
    assert found.ports == {29500, 22}
    assert hosts.listed("") == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"machine": "Linux aarch64"}, "it is Linux aarch64, and this machine"),
        ({"machine": "Darwin arm64"}, "it is Darwin arm64, and this machine"),
        ({"missing": ("/cache/tree/bin/python3",)}, "/cache/tree/bin/python3 is not there: copy it (rsync -aR"),
        ({"cpu_model": "Model Y"}, "its processor is Model Y, that of the first host Model X"),
        ({"cpus": (0,)}, "1 CPUs may be used there, and conditions: cpus is 2"),
        ({"addresses": {"10.0.0.9": "eth0"}}, "it does not have the address 10.0.0.1; it has 10.0.0.9"),
        ({"addresses": {}}, "it has none that ip (iproute2) shows"),
    ],
)
def test_a_host_that_can_not_be_had_says_why(changes, says):
    reason = hosts.unfit(A, replace(SEEN, **changes), SEEN, 2)
    assert reason is None if says is None else says in reason and "\n" not in reason


def test_a_group_meets_on_a_port_that_nobody_has_on_its_first_host(monkeypatch):
    seen = {
        "a": replace(SEEN, ports=frozenset({22, 29500, 29501})),
        "tare@b": replace(SEEN, addresses={B.address: "e"}),
    }
    monkeypatch.setattr(hosts, "look", lambda name, paths: seen[name])
    site = Site(environment=Host(), python="/usr/bin/python3", reference=None, data=None)
    there, port = hosts.members(site, 2, Hosts(named=(A, B), cpus=2))
    assert port == 29502 and [one.interface for one in there] == ["eth0", "e"]


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("No ED25519 host key is known for b.\nHost key verification failed.", "`ssh b` once by hand shows it"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "not the one that is",
        ),
        ("root@b: Permission denied (publickey).", "give it a public key (ssh-copy-id b)"),
        ("ssh: Could not resolve hostname b: Name or service not known", "there is no host of this name"),
        (
            "ssh: connect to host b port 22: No route to host",
            "status 255: ssh: connect to host b port 22: No route",
        ),
    ],
)
def test_what_ssh_says_becomes_one_line(stub, said, means):
    stub(f"cat >&2 <<'END'\n{said}\nEND\nexit 255")
    with pytest.raises(UnavailableError) as caught:
        hosts.look("b")
    assert caught.value.reason.startswith("b: ") and means in caught.value.reason
    assert "\n" not in caught.value.reason


def test_without_ssh_the_remedy_is_told(monkeypatch):
    monkeypatch.setattr(hosts, "PATH", "/nowhere")
    with pytest.raises(UnavailableError) as caught:
        hosts.look("b")
    assert caught.value.reason == "ssh is not installed" and "openssh-client" in caught.value.remedy


# --- groups


def test_a_group_on_hosts_is_launched_by_ssh_and_gives_one_record(stub, cache):
    folder = stub()
    record = launch_group(site(Host()), SPEC, CONDITIONS, size=2, network=both())
    assert record.ok, record.reason
    assert record.network.kind == "hosts" and record.network.hosts == ("a", "tare@b")
    assert record.transport == "channel" and record.deviations == ()
    asked = (folder / "asked").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["a", "tare@b", "a", "tare@b"], "a look each, then a launch each"
    assert not any(Path(one.inside.facts.cwd).exists() for one in record.instances)
    assert list(cache.glob("launches/*")) == []


def test_members_are_told_where_they_meet_on_their_hosts(stub):
    stub()
    there, port = hosts.members(site(Host()), 2, both(cpus=1))
    assert [one.interface for one in there] == ["eth0", "eth0"] and [one.host for one in there] == ["a", "tare@b"]
    assert hosts.FIRST_PORT <= port < hosts.LAST_PORT
    assert {len(one.cpus) for one in there} == {1}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("case $host:$last in tare@b:*PATH=*) echo 'Connection to b closed by remote host.' >&2; exit 255;; esac",
         "rank 1 on tare@b: its channel: ssh ended with status 255: Connection to b closed by remote host."),
        ("case $host in a) echo 'ssh: connect to host a port 22: Connection refused' >&2; exit 255;; esac",
         "a: ssh ended with status 255: ssh: connect to host a port 22: Connection refused"),
    ],
)  # fmt: skip
def test_a_host_that_is_gone_ends_its_group_with_a_reason(stub, cache, more, says):
    folder = stub(more)
    record = launch_group(site(Host()), SPEC, CONDITIONS, size=2, network=both())
    assert record.status == "failed" and record.reason == says
    if record.instances:
        swept = [line for line in (folder / "asked").read_text().splitlines() if "for process in /proc" in line]
        assert "tare@b" in [line.split()[0] for line in swept], "what may be left there is ended"
    assert list(cache.glob("launches/*")) == []


def test_clocks_that_can_not_be_compared_refuse_a_member(stub, monkeypatch):
    stub()
    monkeypatch.setattr(group, "APART_NS", -1)
    record = launch_group(site(Host()), SPEC, CONDITIONS, size=2, network=both())
    assert record.status == "failed"
    assert "on a: refused: its clock and ours could" in record.reason or "on tare@b: refused" in record.reason


def test_what_belongs_to_this_machine_is_not_started_elsewhere(stub):
    stub()
    record = launch_group(site(Docker()), SPEC, CONDITIONS, size=2, network=both())
    assert record.status == "failed" and "no instance of it runs on other hosts" in record.reason
    shown = replace(site(Host()), folders=(Path("/driver"),))
    record = launch_group(shown, SPEC, CONDITIONS, size=2, network=both())
    assert record.reason == "another host can't be shown /driver"
