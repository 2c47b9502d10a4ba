"""The launch contract, by small real things: streams alone, a group over loopback, a co-runner on a core."""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import contract
import inside_code
import pytest
from matrix import HURRIED, envs_in_turn
from project import copy_checkout

from tare.core.errors import UnavailableError
from tare.core.files import cache_dir, project_root
from tare.experiments import rounds, sliced
from tare.launch import group, networks, prepare, scenarios
from tare.launch.conditions import choose_cpus
from tare.launch.group import launch_group
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.journals.units import replicates_at
from tare.model.records.launches import LaunchRecord
from tare.model.registry import describe_workload, environment
from tare.model.schema import parse
from tare.model.specification import MeasuredSteps
from tare.model.studies import arms

pytestmark = pytest.mark.runtime
WORKLOAD = "mnist_cnn"


@pytest.fixture(scope="module")
def spec(study):
    return rounds.whole_run_spec(WORKLOAD, describe_workload(WORKLOAD)["batch"], study).replace(**HURRIED)


@pytest.fixture(scope="module")
def conditions(study):
    return arms.conditions_at(study.conditions, rounds.headline_levels(study))


@pytest.fixture(scope="module")
def data(folders):
    return folders(describe_workload(WORKLOAD)["dataset"])


@pytest.fixture(scope="module")
def cell(forms, data):
    """A site that gets nothing but two streams: the unpacked image, as another environment has it, is its root."""
    return replace(site_of("cell", contract.Cell(), forms("charliecloud"), data), options={})


def burners():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if b"tare-busy-core" in line and b"while True" in line:
            found.append(int(path.parent.name))
    return found


def wait_for(holds, within_s=10.0):
    deadline = time.monotonic() + within_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def test_a_launch_that_shares_no_folder_trains_as_on_the_host(cell, spec, conditions, launches):
    record = launch(cell, spec, conditions, pad_bytes=64)
    assert record.ok, record.reason
    inside = record.seen_inside()
    host = launches("host", WORKLOAD, "train")["inside"]
    assert inside.results["losses"] == pytest.approx(host["results"]["losses"], rel=1e-5)
    assert record.transport == "channel" and record.deviations == ()
    assert set(record.unseen) == set(contract.Cell.unseen)
    assert {"mnt", "time", "net"} <= set(inside.facts.own_namespaces)
    assert not (cache_dir("launches") / record.launch).exists(), "nothing is left of it here"
    clock = record.clock
    assert not clock.shared and clock.exchanges == 32
    assert abs(clock.offset_ns + contract.CLOCK_AHEAD_S * 10**9) <= clock.error_ns < 10**9
    ours = [mark.at_ns + clock.offset_ns for mark in inside.marks]
    assert record.spawn_ns < ours[0] - clock.error_ns + 10**6 and ours[-1] - clock.error_ns < record.end_ns
    assert 0 < record.put_s < (record.end_ns - record.spawn_ns) / 1e9 and record.fetch_s > 0


def test_what_shares_no_folder_is_not_held_at_its_first_instruction(cell, study, forms, data, spec, conditions):
    sites = {"host": site_of("host", environment("host"), forms("host"), data), "cell": cell}
    assert sliced.refusals(sites) == {"cell": "it shares no files with this machine"}
    with (
        pytest.raises(UnavailableError, match="shares no files with this machine: its program can't be held"),
        prepare.ready(cell, spec, conditions, pad_bytes=64, held=True),
    ):
        pass


def test_its_measured_steps_are_those_of_the_host(cell, study, forms, data, conditions):
    wanted = MeasuredSteps(levels=("steady",), replicates=1, warmup_steps=2, steps=4)
    job = rounds.whole_run_spec(WORKLOAD, describe_workload(WORKLOAD)["batch"], study).replace(measured=wanted)
    host = site_of("host", environment("host"), forms("host"), data)
    records = [launch(site, job, conditions, pad_bytes=64) for site in (host, cell)]
    assert all(record.ok for record in records), [record.reason for record in records]
    ours, others = (replicates_at(record, "steady")[0] for record in records)
    assert ours.loss_last == pytest.approx(others.loss_last, rel=1e-5) and ours.pad_bytes == others.pad_bytes
    assert len(others.seconds) == 4 and min(others.seconds) > 0 and records[1].clock.shared is False


@pytest.mark.parametrize("env", [*envs_in_turn("test_contract.py"), "cell"])
def test_two_that_train_together_end_with_equal_weights(env, forms, data, cell, spec, conditions):
    site = cell if env == "cell" else site_of(env, environment(env), forms(env), data)
    with site.environment.session():
        record = launch_group(site, spec, conditions, size=2)
    assert record.ok, record.reason
    assert [one.rank for one in record.instances] == [0, 1]
    weights = {one.inside.results["weights_sha256"] for one in record.instances}
    assert len(weights) == 1 and None not in weights
    samples = [one.inside.results["samples"] for one in record.instances]
    assert sum(samples) == pytest.approx(describe_workload(WORKLOAD)["samples"], abs=2)
    assert record.spawn_ns == min(one.spawn_ns for one in record.instances)
    assert record.end_ns == max(one.end_ns for one in record.instances)
    networks = {one.inside.facts.namespaces["net"] for one in record.instances}
    assert len(networks) == 1, "they met in one network"
    if site.environment.joins_networks:
        assert networks != {str(Path("/proc/self/ns/net").readlink())} and record.deviations == ()
    else:  # they met on the host's, and the record says that this is not what was asked for
        assert all(text.split(": ", 1)[1].startswith("network interfaces") for text in record.deviations)


AS_A_USER = """
import json, os, sys
from pathlib import Path
from envs.host import Host
from tare.launch.group import launch_group
from tare.launch.place import Site
from tare.model.conditions import Conditions
from tare.model.schema import parse
from tare.model.specification import Specification
variables = {"TARE_STEP_S": "0.001", "PYTHONPATH": os.environ["PYTHONPATH"].split(":")[1]}
site = Site(environment=Host(), python=sys.executable, reference=None, data=Path("/"), variables=variables)
spec = Specification(mode="train", workload="slow_step", batch=4, seed=1, device="cpu", loader_workers=0)
conditions = parse(Conditions, json.loads(sys.argv[1]), "conditions")
print(json.dumps(launch_group(site, spec, conditions, size=2).to_json()))
"""
BECOME = """
set -e
mount --bind "$1" "$2/python"
mount --bind "$3" "$2/packages"
user=$4; shift 4
exec setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all -- "$@"
"""


@pytest.mark.skipif(os.getuid() != 0, reason="who is not root is an ordinary user in every other test")
def test_an_ordinary_user_has_a_group_with_a_network_of_its_own(conditions):
    """Without any right of root's: the network's namespace lies in a user namespace."""
    user = 65534
    with tempfile.TemporaryDirectory(prefix="tare-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        checkout = copy_checkout(folder / "checkout")
        (checkout / "workloads/slow_step.py").write_text(inside_code.SLOW_STEP.read_text())
        for part in ("python", "packages", "cache"):
            (folder / part).mkdir()
        os.chown(folder / "cache", user, user)
        # Interpreter and packages may lie where this user may not look, so they are shown elsewhere.
        shown = [sys.base_prefix, name, sysconfig.get_path("purelib")]
        become = ["unshare", "--mount", "sh", "-c", BECOME, "become", *shown, str(user)]
        python = f"{name}/python/bin/python3.{sys.version_info.minor}"
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{checkout}:{name}/packages"}
        own |= {"TARE_CACHE": str(folder / "cache"), "HOME": str(folder / "cache")}

        def as_a_user(*argv):
            return subprocess.run(
                [*become, *argv], cwd=checkout, env=own, capture_output=True, text=True, timeout=120
            )

        may = as_a_user("unshare", "--user", "--map-current-user", "--net", python, "-c", "pass")
        if may.returncode:
            pytest.skip(f"an ordinary user can't do this here: {may.stderr.strip()[-200:]}")
        done = as_a_user(python, "-c", AS_A_USER, json.dumps(conditions.to_json()))
    assert done.returncode == 0, done.stderr[-3000:]
    record = parse(LaunchRecord, json.loads(done.stdout.splitlines()[-1]), "a group")
    assert record.ok, record.reason
    assert len({one.inside.results["weights_sha256"] for one in record.instances}) == 1
    assert all(one.inside.facts.uid == user for one in record.instances)
    (network,) = {one.inside.facts.namespaces["net"] for one in record.instances}
    assert network != str(Path("/proc/self/ns/net").readlink())


def test_a_member_that_dies_ends_the_others_with_its_reason(forms, data, spec, conditions):
    site = site_of("host", environment("host"), forms("host"), data)

    class Half(type(site.environment)):
        def command(self, launch):
            argv = super().command(launch)
            if "RANK=1" in argv:
                argv = ["sh", "-c", "sleep 4; echo out of luck >&2; exit 3"]
            return argv

    started = time.monotonic()
    record = launch_group(replace(site, environment=Half()), spec, conditions, size=2)
    assert time.monotonic() - started < 30
    assert record.status == "failed" and record.reason == "rank 1: sh ended with status 3: out of luck"
    assert [one.status for one in record.instances] == ["stopped", "failed"]
    assert "ended with its group: rank 1" in record.instances[0].reason


def test_a_port_that_is_taken_meanwhile_is_told_and_another_is_taken(forms, data, spec, conditions, monkeypatch):
    site, free_port = site_of("host", environment("host"), forms("host"), data), networks.free_port
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = listening.getsockname()[1]
        monkeypatch.setattr(networks, "free_port", lambda: taken)
        monkeypatch.setattr(group, "PORTS", 1)
        record = launch_group(site, spec, conditions, size=2, network="host")
        assert record.status == "failed" and group.PORT_IS_TAKEN in record.reason, record.reason
        assert record.reason.startswith("rank 0: ") and str(taken) in record.reason and "\n" not in record.reason
        offered = iter([taken, free_port()])
        monkeypatch.setattr(networks, "free_port", lambda: next(offered))
        monkeypatch.setattr(group, "PORTS", 2)
        record = launch_group(site, spec, conditions, size=2, network="host")
    assert record.ok, record.reason


def test_a_rank_that_never_starts_is_a_timeout_that_names_it(forms, data, spec, conditions):
    site = site_of("host", environment("host"), forms("host"), data)

    class Late(type(site.environment)):
        def command(self, launch):
            argv = super().command(launch)
            return ["sleep", "600"] if "RANK=1" in argv else argv

    record = launch_group(replace(site, environment=Late()), spec, conditions.replace(launch_timeout_s=8.0), size=2)
    assert (record.status, record.reason) == ("timeout", "rank 1 did not start after 8 s")


KILLED = """
import sys
from tare.launch.run import launch
from tare.launch.place import site_of
from tare.launch.transport import Binds
from tare.model.conditions import Conditions
from tare.model.records.images import ImageRecord
from tare.model.registry import environment
from tare.model.schema import parse
from tare.model.specification import Specification
import json
Binds.words = lambda self, python, program: ("/bin/sh", "-c", f"sleep {sys.argv[2]}")
adapter = environment(sys.argv[1])
image = parse(ImageRecord, json.loads(sys.stdin.readline()), "an image")
conditions = parse(Conditions, json.loads(sys.argv[3]), "conditions")
with adapter.session():
    launch(site_of(sys.argv[1], adapter, image, None), Specification(mode="train"), conditions)
"""


@pytest.mark.parametrize("env", ["host", "docker", "apptainer", "charliecloud"])
def test_a_launch_ends_when_the_harness_is_killed(env, forms, conditions):
    marker = str(986_000 + hash(env) % 997)

    def sleeping():
        return [
            path.parent.name
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if f"sleep\0{marker}\0".encode() in read_bytes(path) and b"python" not in read_bytes(path)
        ]

    argv = [sys.executable, "-c", KILLED, env, marker, json.dumps(conditions.to_json())]
    with environment(env).session():  # the daemon lives on: it is not its end that ends the container
        harness = subprocess.Popen(argv, cwd=project_root(), stdin=subprocess.PIPE)
        harness.stdin.write(json.dumps(forms(env).to_json()).encode() + b"\n")
        harness.stdin.flush()
        assert wait_for(sleeping, 60)
        harness.kill()
        harness.wait()
        assert wait_for(lambda: not sleeping(), 20)


def read_bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_busy_core_is_there_while_it_surrounds_and_gone_afterwards(monkeypatch):
    monkeypatch.setitem(scenarios.SCENARIOS, "busy-core", contract.busy_core)
    with scenarios.surrounded("busy-core", scenarios.around(choose_cpus(1))) as span:
        assert wait_for(lambda: len(burners()) == 1)
        time.sleep(0.5)
    found = span.to_json()
    assert found["lived"] and found["ended_ns"] - found["began_ns"] > 4e8
    assert burners() == []
    with scenarios.surrounded("busy-core", scenarios.around(choose_cpus(1))) as span:
        os.kill(burners()[0], signal.SIGKILL)
        time.sleep(0.2)
    assert not span.to_json()["lived"] and "did not last" in span.reason


def test_a_busy_core_ends_when_the_harness_is_killed():
    script = (
        "import sys, time; sys.path.insert(0, 'tests'); import contract\n"
        "from tare.launch import scenarios\n"
        "scenarios.SCENARIOS['busy-core'] = contract.busy_core\n"
        "with scenarios.surrounded('busy-core', scenarios.around([0])): time.sleep(600)\n"
    )
    harness = subprocess.Popen([sys.executable, "-c", script], cwd=project_root())
    assert wait_for(lambda: len(burners()) == 1, 30)
    harness.kill()
    harness.wait()
    assert wait_for(lambda: not burners())


def test_a_scenario_that_can_not_begin_is_one_line():
    def broken(around):
        return scenarios.co_runner(["sh", "-c", "exit 7"], around)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scenarios.SCENARIOS, "broken", broken)
        with scenarios.surrounded("broken", scenarios.around([0])) as span:
            pass
    assert span.reason == "the scenario broken could not begin: sh ended with status 7"
    assert not span.to_json()["lived"]
