"""Groups over nodes of a Slurm job: steps that start members, what they are told, how a node's clock is compared.

Slurm is made up here: an `srun` that notes how it was asked, and starts what stands behind its options here.
"""

import json
import os
import tempfile
import time
from pathlib import Path

import pytest
from asked import CONDITIONS
from test_adapters import LAUNCH
from test_launch import alive
from test_program import SITE, sh

from envs.apptainer import Apptainer
from envs.charliecloud import Charliecloud
from envs.docker import Docker
from envs.host import Host
from envs.podman import Podman
from envs.vm import Vm
from tare.core.errors import UnavailableError
from tare.core.files import project_root
from tare.launch import group, networks, nodes, scenarios
from tare.launch.scenarios import distributed
from tare.machine import caller, facts, memory
from tare.model.conditions import Group
from tare.model.records.machine import unlike

SRUN = """#!/bin/sh
echo "$*" >> {folder}/asked
for word; do case "$word" in --nodelist=*) SLURMD_NODENAME="${{word#*=}}"; export SLURMD_NODENAME;; esac; done
while :; do case "$1" in --*) shift ;; *) break ;; esac; done
exec "$@"
"""
SQUEUE = """#!/bin/sh
case "$*" in *--steps*) echo "7.3 tare-7"; echo "7.4 tare-70" ;; *) cat {folder}/listed ;; esac
"""
SCONTROL = """#!/bin/sh
case "$2" in
hostnames) echo "$3" | tr , '\\n' ;;
*) printf 'NodeName=%s NodeAddr=%s State=IDLE\\n' "$4" "$(cat {folder}/address)" ;;
esac
"""
SCANCEL = """#!/bin/sh
echo "$*" >> {folder}/ended
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TARE_CACHE", folder)
        yield Path(folder)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A job of the nodes n1, n2 and n3, of which this process is on n2."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in {"srun": SRUN, "squeue": SQUEUE, "scontrol": SCONTROL, "scancel": SCANCEL}.items():
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    (folder / "listed").write_text("n1,n2,n3\n")
    (folder / "address").write_text("127.0.0.1")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    return folder


def test_a_step_asks_for_the_cpus_of_its_node_and_for_no_binding():
    found = nodes.Allocation(job="7", nodes=("n1",), addresses=("10.0.0.1",), cpus=32)
    assert found.step("n1", "tare-7") == [
        *("srun", "--jobid=7", "--job-name=tare-7", "--nodelist=n1", "--nodes=1", "--ntasks=1"),
        *("--cpus-per-task=32", "--cpu-bind=none", "--mem=0", "--overlap", "--export=ALL"),
        *("--mpi=none", "--unbuffered", "--quiet"),
    ]


def test_the_nodes_of_a_job_begin_with_the_one_that_this_is(slurm):
    found = nodes.allocation(2)
    assert (found.job, found.nodes, found.addresses) == ("7", ("n2", "n1"), ("127.0.0.1",) * 2)
    assert found.cpus == len(os.sched_getaffinity(0))


def test_what_a_job_has_not_is_one_line(slurm, monkeypatch):
    with pytest.raises(
        UnavailableError, match=r"^network: slurm: a group of 4 takes a node for each, and job 7 has 3$"
    ):
        nodes.allocation(4)
    (slurm / "address").write_text("no.such.name.invalid")
    with pytest.raises(UnavailableError, match=r"the node n2 has no address: no.such.name.invalid"):
        nodes.allocation(2)
    (slurm / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id' >&2; exit 1\n")
    with pytest.raises(UnavailableError, match=r"^network: slurm: squeue ended with status 1: .*Invalid job id$"):
        nodes.allocation(2)
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(UnavailableError, match=r"this is no job of Slurm: name nodes in `machines`"):
        nodes.allocation(2)


def test_a_controller_that_restarts_is_waited_for(slurm, monkeypatch):
    monkeypatch.setattr(nodes, "LOOK_S", 0.01)
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    script = (
        f"#!/bin/sh\necho >> {slurm}/tries\n"
        f"[ $(wc -l < {slurm}/tries) -gt 2 ] || {{ echo '{away}' >&2; exit 1; }}\necho n1,n2\n"
    )
    (slurm / "squeue").write_text(script)
    assert nodes.allocation(2).nodes == ("n2", "n1") and len((slurm / "tries").read_text()) == 3
    monkeypatch.setattr(nodes, "LOST_S", 0.0)
    (slurm / "tries").unlink()
    with pytest.raises(UnavailableError, match=r"^network: slurm: squeue ended with status 1: .*Unable to contact"):
        nodes.allocation(2)


def test_a_step_is_ended_by_its_name_and_no_other(slurm):
    found = nodes.allocation(1)
    assert nodes.run(found.ending("tare-7"), timeout_s=10).ok
    assert (slurm / "ended").read_text() == "7.3\n", "a name that begins alike is another step"


def test_a_launch_on_a_node_is_what_its_adapter_names_behind_a_step(slurm):
    found = nodes.allocation(2)
    node = nodes.Node(
        name="n1", allocation=found, talk=None, address="127.0.0.1", interface="lo", port=None, boot_id=None
    )
    plain = Apptainer(program="/opt/apptainer", userns=True)
    own = node.starts(plain)
    assert own.command(LAUNCH) == [*found.step("n1", LAUNCH.name), *plain.command(LAUNCH)]
    first, *others = own.cleanup(LAUNCH)
    assert first == found.ending(LAUNCH.name)
    assert others == [[*found.step("n1", f"{LAUNCH.name}-end"), *words] for words in plain.cleanup(LAUNCH)]
    assert (own.title, own.program, isinstance(own, Apptainer)) == (plain.title, "/opt/apptainer", True)
    assert plain.command(LAUNCH)[0] != "srun", "the adapter itself is as it was"


@pytest.mark.parametrize(
    ("adapter", "may"),
    [(Host, True), (Apptainer, True), (Charliecloud, True), (Docker, False), (Podman, False), (Vm, False)],
)
def test_what_srun_starts_has_to_be_the_launch_itself(adapter, may):
    reason = networks.barred(adapter(), "slurm")
    assert (reason is None) == may
    assert may or (reason.startswith(adapter.title) and "take host, apptainer or charliecloud" in reason)


def test_a_node_tells_its_clock_and_how_it_is_reached(slurm):
    with nodes.held(Host(), 2) as found:
        pids = [one.talk.pid for one in found]
        low, high = found[1].offset()
        assert low <= 0 <= high, "it is our own clock here"
        assert [one.compared() for one in found] == [None, None]
        assert [(one.name, one.interface, one.address) for one in found] == [
            ("n2", "lo", "127.0.0.1"), ("n1", "lo", "127.0.0.1")
        ]  # fmt: skip
        assert all(0 < one.port < 65536 for one in found)
    assert not any(map(alive, pids))


def test_another_kernels_clock_is_compared_as_often_as_it_is_asked(slurm):
    with nodes.held(Host(), 2) as (_, other):
        other.boot_id = "another"
        first, second = other.compared(), other.compared()
        other.talk.kill()
        last = other.compared()
    assert not first.shared and abs(first.offset_ns) <= first.error_ns < 10**9
    assert second.exchanges == 2 * nodes.EXCHANGES == last.exchanges, "a node that is lost was compared before"


@pytest.mark.parametrize(
    ("address", "says"),
    [("192.0.2.1", "can't listen at 192.0.2.1"), ("255.255.255.255", "no step starts on n2")],
)
def test_an_address_that_is_of_no_use_is_one_line(slurm, address, says):
    (slurm / "address").write_text(address)
    with pytest.raises(UnavailableError, match=says) as caught, networks.meeting(SITE, 2, "slurm"):
        pass
    assert "\n" not in str(caught.value)


def test_a_step_that_can_not_be_started_is_one_line(slurm):
    (slurm / "srun").write_text("#!/bin/sh\necho 'srun: error: Unable to create step: Access denied' >&2; exit 1\n")
    says = r"no step starts on n2: srun ended with status 1: .*Access denied"
    with pytest.raises(UnavailableError, match=says), nodes.held(Host(), 2):
        pass


TOLD = 'env | grep -E "RANK|WORLD|MASTER_ADDR|SOCKET_IFNAME" | sort > told$RANK; taskset -cp $$ > cpus$RANK'


def test_members_have_a_node_each_with_all_of_its_cpus(slurm, tmp_path):
    found = group.launch_group(SITE, sh(TOLD, workdir=tmp_path), CONDITIONS, size=2, network="slurm")
    assert found.ok, found.reason
    assert found.network.kind == "slurm" and found.network.nodes == ("n2", "n1")
    for rank in range(2):
        assert (tmp_path / f"told{rank}").read_text().split() == [
            "GLOO_SOCKET_IFNAME=lo", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1",
            "NCCL_SOCKET_IFNAME=lo", f"RANK={rank}", "WORLD_SIZE=2",
        ]  # fmt: skip
    asked = [line.split() for line in (slurm / "asked").read_text().splitlines()]
    started = [words for words in asked if f"--job-name={found.launch}" in words]
    assert len(started) == 1 and "--nodelist=n2" in started[0], "rank 0 is on the node of whoever measures"
    assert f"--cpus-per-task={len(os.sched_getaffinity(0))}" in started[0]


def test_cpus_of_members_are_those_of_a_job_alone_on_its_node(slurm, monkeypatch):
    monkeypatch.setattr(group, "choose_cpus", lambda count: tuple(range(count)))
    with networks.meeting(SITE, 2, "slurm") as place:
        members = group.members_at(place, 2, 2)
    assert [one.cpus for one in members] == [(0, 1), (0, 1)], "two members of one machine have one each"
    assert {one.network for one in members} == {"host"} and members[0].interfaces is None


def test_a_member_that_dies_ends_the_others_and_its_node_is_named(slurm, tmp_path):
    script = "echo $$ > pid$RANK; [ $RANK = 0 ] || { echo no power >&2; exit 3; }; exec sleep 600"
    began = time.monotonic()
    found = group.launch_group(SITE, sh(script, workdir=tmp_path), CONDITIONS, size=2, network="slurm")
    assert found.status == "failed" and found.reason.startswith("rank 1 on n1: ") and "no power" in found.reason
    assert "\n" not in found.reason and found.instances[0].status == "stopped"
    assert time.monotonic() - began < 15
    assert not alive(int((tmp_path / "pid0").read_text()))


@pytest.mark.parametrize("first", [0, 1])
def test_a_member_out_of_memory_is_the_cause_though_another_ends_first(slurm, tmp_path, monkeypatch, first):
    limit = caller.Limit(value=f"{1200 << 20} bytes", where="/groups/memory.max")
    monkeypatch.setattr(memory, "limits_of", lambda: {caller.MEMORY: limit})
    script = (
        f"[ $RANK = {first} ] || sleep 0.5; [ $RANK = 1 ] || {{ echo 'the peer has gone' >&2; exit 1; }}; "
        "echo 'slurmstepd: error: Detected 1 oom_kill event in StepId=7.4. Some of the step tasks were killed.' "
        ">&2; exit 137"
    )
    found = group.launch_group(SITE, sh(script, workdir=tmp_path), CONDITIONS, size=2, network="slurm")
    assert found.status == "failed" and found.reason.startswith(
        "rank 1 on n1: Slurm step 7.4: the kernel ended a process for lack of memory: the job may use 1,200 MiB of"
    )
    assert "\n" not in found.reason


def test_members_on_another_kernel_have_their_clock_and_their_cpus_are_looked_at(slurm, tmp_path, monkeypatch):
    script = tmp_path / "inside.py"
    script.write_text("pass")
    seen = []

    def record_of(finished, prepared, conditions):
        seen.append(prepared.carried.clock)
        return real(finished, prepared, conditions)

    real = group.record_of
    monkeypatch.setattr(group, "record_of", record_of)
    monkeypatch.setattr(nodes, "boot_id", lambda: "ours")
    found = group.launch_group(SITE, sh("true", workdir=tmp_path), CONDITIONS, size=2, network="slurm")
    assert found.ok and all(one is not None and not one.shared for one in seen) and len(seen) == 2
    assert [one.clock.exchanges for one in found.instances] == [2 * nodes.EXCHANGES] * 2


def test_a_scenario_over_nodes_begins_where_the_job_has_as_many(slurm):
    asked = Group(workers=2, exchange="parameter-server", network="slurm", rate_mbit_per_s=None, delay_ms=0.0)
    around = scenarios.around([0], CONDITIONS.replace(group=asked))
    with distributed.surround(around) as problem:
        assert problem() is None
    more = asked.replace(workers=3)
    with scenarios.surrounded("distributed", scenarios.around([0], CONDITIONS.replace(group=more))) as span:
        pass
    assert "a group of 4 takes a node for each, and job 7 has 3" in span.reason
    assert distributed.network_of(asked, Host()) == "slurm"


def test_nodes_describe_themselves_and_what_is_unlike_is_told(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(project_root()))
    monkeypatch.setenv("TARE_MACHINE", "pair")
    first = facts.record()
    found = nodes.described(first, 2, tmp_path)
    assert list(found) == ["n2", "n1"] and found["n1"].host_name == first.host_name
    assert unlike(list(found.values())) == [] and list(tmp_path.glob(".machine*")) == []
    other = first.replace(kernel="6.9", memory_bytes=first.memory_bytes * 2)
    assert unlike([first, other]) == ["memory_bytes", "kernel"]
    whole = first.replace(nodes=found)
    whole.write(tmp_path / "machine.json")
    assert json.loads((tmp_path / "machine.json").read_text())["nodes"]["n1"]["name"] == "pair"
    assert "nodes" not in whole.facts()


def test_a_node_that_starts_no_step_is_waited_for_and_voids_its_unit(slurm, monkeypatch):
    monkeypatch.setattr(nodes, "LOOK_S", 0.05)
    found = nodes.allocation(2)
    assert nodes.lost(found) is None
    works = (slurm / "srun").read_text()
    back = f'#!/bin/sh\ncase "$*" in *nodelist=n1*) cp {slurm}/works {slurm}/srun; exit 1 ;; esac\n'
    (slurm / "works").write_text(works)
    (slurm / "works").chmod(0o755)
    (slurm / "srun").write_text(back)
    assert nodes.lost(found) == "network: slurm: no step could be started on n1 for a while", "and it is back"
    assert (slurm / "srun").read_text() == works
    monkeypatch.setattr(nodes, "LOST_S", 0.1)
    (slurm / "srun").write_text("#!/bin/sh\nexit 1\n")
    assert nodes.lost(found) == "network: slurm: no step could be started on n2, n1 for a while"
