"""Limits under which a process lives: of control groups of both versions, and of the process itself."""

import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest

from envs.docker import Docker
from tare.machine import caller
from tare.machine.caller import Limit, group_chains, limits_of, of_groups, parent_of_containers, unequal


def machine(folder, cgroup, mounts, files):
    """The folder of a process in /proc, its mounts, and control groups with files."""
    process = folder / "proc"
    process.mkdir(parents=True)
    (process / "cgroup").write_text("".join(f"{line}\n" for line in cgroup))
    lines = [
        f"{number} 1 0:{number} / {folder / point} rw - {kind} cgroup rw,{options}\n"
        for number, (point, kind, options) in enumerate(mounts)
    ]
    (folder / "mountinfo").write_text("".join(lines))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return list(group_chains(process, folder / "mountinfo"))


FIRST = (
    ["4:memory:/job/step", "2:cpu,cpuacct:/job/step"],
    [("cpu", "cgroup", "cpu,cpuacct"), ("memory", "cgroup", "memory")],
)
SECOND = (["0::/job/step"], [("unified", "cgroup2", "nsdelegate")])


def values(chains):
    return {name: one.value for name, one in of_groups(chains).items()}


def test_the_tightest_limit_of_all_groups_above_counts_in_version_1(tmp_path):
    files = {
        "cpu/job/cpu.cfs_quota_us": "50000\n",
        "cpu/job/cpu.cfs_period_us": "100000\n",
        "cpu/job/step/cpu.cfs_quota_us": "-1\n",
        "cpu/job/step/cpu.shares": "512\n",
        "cpu/job/cpu.shares": "1024\n",
        "memory/job/memory.limit_in_bytes": "1000\n",
        "memory/job/step/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.limit_in_bytes": "5000\n",
    }
    chains = machine(tmp_path, *FIRST, files)
    assert values(chains) == {"CPU quota": "0.5 processors", "memory": "1000 bytes", "CPU weight": "cpu.shares 512"}
    assert of_groups(chains)["memory"].where == str(tmp_path / "memory/job/memory.limit_in_bytes")


def test_what_a_runtime_made_goes_and_what_others_use_stays(tmp_path):
    for name in ("cpu/other", "cpu/job/step/task", "memory/job/step/task/kept", "pids/job"):
        (tmp_path / name).mkdir(parents=True)
    mounts = [f"1 1 0:1 / {tmp_path / name} rw - cgroup cgroup rw,{name}" for name in ("cpu", "memory", "pids")]
    (tmp_path / "mountinfo").write_text("\n".join([*mounts, f"1 1 0:1 / {tmp_path / 'none'} rw - ext4 x rw"]))
    caller.remove_empty("/job/step/task", tmp_path / "mountinfo")
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_dir()}
    assert left == {
        *("cpu", "cpu/other", "memory", "memory/job", "memory/job/step", "memory/job/step/task"),
        *("memory/job/step/task/kept", "pids"),
    }


def test_the_same_in_version_2(tmp_path):
    files = {
        "unified/job/cpu.max": "150000 100000\n",
        "unified/job/step/cpu.max": "max 100000\n",
        "unified/job/step/memory.max": "max\n",
        "unified/job/memory.high": "7\n",
        "unified/job/pids.max": "99\n",
        "unified/job/step/pids.max": "100\n",
        "unified/job/step/cpu.weight": "100\n",
        "unified/job/io.max": "8:0 rbps=1048576 wbps=max riops=max wiops=max\n",
    }
    assert values(machine(tmp_path, *SECOND, files)) == {
        "CPU quota": "1.5 processors",
        "memory before it is taken back": "7 bytes",
        "processes": "99",
        "I/O": "io.max 8:0 rbps=1048576 wbps=max riops=max wiops=max",
    }


def test_nothing_is_limited_where_nobody_set_anything(tmp_path):
    files = {"cpu/job/cpu.cfs_quota_us": "-1\n", "cpu/job/step/cpu.shares": "1024\n"}
    chains = machine(tmp_path, *FIRST, files)
    assert of_groups(chains) == {} and parent_of_containers(chains) is None


def test_containers_go_below_the_group_that_is_limited(tmp_path):
    chains = machine(tmp_path / "a", *FIRST, {"cpu/job/step/cpu.cfs_quota_us": "50000\n"})
    assert parent_of_containers(chains) == "/job/step", "version 1 has processes and groups side by side"
    above = {"memory/job/memory.limit_in_bytes": "1000\n"}
    assert parent_of_containers(machine(tmp_path / "b", *FIRST, above)) == "/job/step", "the nearest"
    apart = (["4:memory:/other", "2:cpu,cpuacct:/job"], FIRST[1])
    both = {"cpu/job/cpu.cfs_quota_us": "50000\n", "memory/other/memory.limit_in_bytes": "1000\n"}
    assert parent_of_containers(machine(tmp_path / "c", *apart, both)) is None, "one path for two groups"


@pytest.mark.parametrize(
    ("limited", "busy", "found"),
    [
        ("job", "job/step", "/job"),  # what is limited has no processes of its own
        ("job/step", "job/step", None),
        ("job/step", "", "/job/step"),
    ],
)
def test_in_version_2_no_group_has_processes_and_groups(tmp_path, limited, busy, found):
    files = {f"unified/{limited}/cpu.max": "50000 100000\n"}
    files |= {f"unified/{busy}/cgroup.procs": "12\n"} if busy else {}
    assert parent_of_containers(machine(tmp_path, *SECOND, files)) == found


def test_systemds_driver_takes_slices_alone(tmp_path):
    own = (["0::/user.slice/user-0.slice/session-1.scope"], SECOND[1])
    above = {"unified/user.slice/user-0.slice/cpu.max": "50000 100000\n"}
    chains = machine(tmp_path / "a", *own, above)
    assert parent_of_containers(chains, systemd=True) == "/user.slice/user-0.slice"
    on_scope = {"unified/user.slice/user-0.slice/session-1.scope/cpu.max": "50000 100000\n"}
    assert parent_of_containers(machine(tmp_path / "b", *own, on_scope), systemd=True) is None


def test_what_differs_is_named_with_both_values():
    ours = {"CPU quota": Limit(value="0.5 processors", where="/a"), "niceness": Limit(value="5", where="/b")}
    theirs = {"niceness": Limit(value="5", where="/c"), "processes": Limit(value="99", where="/d")}
    assert unequal(ours, ours) == []
    assert unequal(ours, theirs) == [
        "CPU quota: 0.5 processors here (/a), not limited in the launch",
        "processes: not limited here, 99 in the launch",
    ]
    assert unequal(ours, theirs, ours_alone=frozenset({"processes", "CPU quota"})) == []


def test_a_real_process_has_the_limits_that_it_was_given():
    def lowered():
        os.nice(3)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))

    plain = limits_of()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, preexec_fn=lowered)
    try:
        found = limits_of(child.pid)
        assert found["address space (ulimit -v)"].value == str(1 << 33)
        assert int(found["niceness"].value) == min(19, os.nice(0) + 3) or os.nice(0) == 19
        assert any(said.startswith("address space") for said in unequal(plain, found))
        assert "does not run under the limits of this session" in caller.refused(child.pid)
        assert caller.refused(os.getpid()) is None
    finally:
        child.communicate(b"\n")


def test_docker_is_given_the_limits_that_others_inherit(monkeypatch):
    stack = resource.RLIMIT_STACK
    monkeypatch.setattr(caller.resource, "getrlimit", lambda number: (7, 9) if number == stack else (-1, -1))
    found = caller.inherited_limits()
    assert found["stack"] == (7, 9) and found["memlock"] == (-1, -1) and len(found) == 6
    launch = SimpleNamespace(
        inherited={"stack": (7, 9), "rss": (-1, -1)}, nofile=5, network=None, isolate_network=False, cpus=(0,),
        shm_bytes=1, quota=None, options={}, gpu=None, devices=(), counters=False,
    )  # fmt: skip
    monkeypatch.setattr(Docker, "parent", lambda self: None)
    flags = Docker().conditions(launch)
    assert flags[4:10] == ["--ulimit", "nofile=5:5", "--ulimit", "stack=7:9", "--ulimit", "rss=-1:-1"]
