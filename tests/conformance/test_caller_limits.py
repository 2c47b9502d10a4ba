"""Limits of the process that measures hold in every environment alike, or end its comparison by name."""

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from matrix import APART, INSTALLED, REQUIRED
from slurm import cluster
from waiting import wait_until

from envs.vm import Vm
from tare.core.files import project_root
from tare.launch.trial import trial_form
from tare.model.registry import environment, environments
from tare.runtimes.programs import may_install

pytestmark = [pytest.mark.runtime, pytest.mark.quiet]  # what limits hold back is counted
CGROUPS = Path("/sys/fs/cgroup")
TURNS, EMULATED_TURNS = 300_000, 30_000  # some tenths of a second
GIB = 1 << 30
ENTER = 'for folder in $0; do echo $$ > "$folder/cgroup.procs" || exit; done; exec "$@"'
CPU = max(os.sched_getaffinity(0))  # not the one that launches have without a set


@contextlib.contextmanager
def group(controller, **values):
    """A control group of version 1 below our own, with values in its files; its folder."""
    if not (CGROUPS / controller / "cgroup.procs").exists():
        pytest.skip(
            f"no hierarchy of version 1 with the controller {controller}: version 2 has no group for us here"
        )
    paths = {row.split(":")[1]: row.split(":")[2] for row in Path("/proc/self/cgroup").read_text().splitlines()}
    folder = CGROUPS / controller / paths[controller].strip("/") / f"tare-test-{controller}-{os.getpid()}"
    folder.mkdir()
    try:
        for name, value in values.items():
            (folder / f"{controller}.{name}").write_text(str(value))
        yield folder
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)
    assert not list(CGROUPS.glob(f"*/**/{folder.name}")), "a runtime has left groups that it made beside ours"


@pytest.fixture(scope="module")
def forms():
    """The trial image's form in an environment, made once: that is no part of a launch under limits."""

    @functools.cache
    def form(name):
        adapter = environment(name)
        with adapter.session():
            return trial_form(adapter).reference if adapter.contained else ""

    return form


@pytest.fixture
def launched(probes, forms):
    """What became of a launch from a process in groups, or behind the words of another program."""

    def launch(name, *folders, before=()):
        probe = probes(name)
        if not probe.available:
            assert name not in REQUIRED and may_install() is not None, f"{name}: {probe.reason}"
            pytest.skip(f"{name} is unavailable here: {probe.reason}")
        turns = EMULATED_TURNS if probe.details.get("emulated") else TURNS
        isolates = str(int(probe.details["isolates_network"]))
        job = [sys.executable, str(project_root() / "tests/limited.py"), name, forms(name), isolates, str(turns)]
        inside = ["sh", "-c", ENTER, " ".join(map(str, folders))]
        variables = {**os.environ, "PYTHONPATH": f"{project_root()}:{project_root() / 'tests'}"}
        done = subprocess.run(
            [*inside, *before, *job], capture_output=True, text=True, timeout=300, env=variables, cwd=project_root()
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return launch


@pytest.fixture(params=sorted(REQUIRED | INSTALLED))
def name(request):
    return request.param


def is_held_back(found, cpu_group):
    """By the group's own count, and as the job itself felt it."""
    (throttled,) = re.findall(r"^nr_throttled (\d+)$", (cpu_group / "cpu.stat").read_text(), re.MULTILINE)
    return int(throttled) > 0 and found["body_s"] > 1.5 * found["cpu_s"]


def test_half_a_processor_of_a_set_is_just_that_in_every_environment(name, launched):
    with group("cpu", cfs_quota_us=50_000) as half, group("cpuset", cpus=CPU, mems=0) as own:
        found = launched(name, half, own)
        assert found["status"] == "ok", found
        assert found["cpus"] == str(CPU) and is_held_back(found, half), found


def test_a_limit_of_memory_holds_in_every_environment(name, launched):
    with group("memory", limit_in_bytes=4 * GIB) as folder:
        found = launched(name, folder)
    assert found["status"] == "ok", found


def test_a_niceness_holds_or_is_named(name, launched):
    found = launched(name, before=["nice", "-n", "5"])
    if name == "docker":  # its daemon has no option for it
        assert "limits of this session: niceness: " in found["reason"], found
    else:
        assert found["status"] == "ok" and found["nice"] == str(min(19, os.nice(0) + 5)), found


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm"), {"all": "Nodes=ALL Default=YES"}) as found:
        yield found


def test_the_limits_of_a_slurm_job_hold_in_every_environment(name, launched, slurm):
    """Its memory and its processors, by control groups of version 1; `launched` refuses what has others."""
    srun = [slurm.folder / "bin/srun", "--quiet", "--ntasks=1", "--cpus-per-task=1", "--mem=3000"]
    found = launched(name, before=srun)
    assert found["status"] == "ok", found
    assert found["limits"]["memory"] == f"{3000 << 20} bytes" and found["cpus"].isdigit(), found
    wait_until(lambda: not list(CGROUPS.glob("*/slurm_*/uid_*/job_*")), "all groups of the job are gone")


def test_a_guest_lives_under_all_of_them_at_once(launched):
    """Of QEMU, which every environment in a guest is: each starts what is inside by its settings alone."""
    with (
        group("cpu", cfs_quota_us=50_000) as half,
        group("cpuset", cpus=CPU, mems=0) as own,
        group("memory", limit_in_bytes=4 * GIB) as memory,
    ):
        found = launched(APART, half, own, memory, before=["nice", "-n", "5"])
        assert found["status"] == "ok", found
        assert found["cpus"] == str(CPU) and is_held_back(found, half), found
        used = int((memory / "memory.max_usage_in_bytes").read_text())
        assert 1 << 27 < used <= 4 * GIB, "the guest's memory counts as its caller's"
    inside = [kind for name, kind in environments().items() if name.endswith(f".{APART}")]
    assert inside and all(kind.command is Vm.command for kind in inside)
