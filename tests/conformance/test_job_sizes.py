"""Jobs of other sizes than the studies' own, in real campaigns: steps of two seconds, launches that fill a limit.

Workloads of NumPy, launched on the host from a copy of the checkout by an interpreter that has nothing else.
Further environments are further sites of the host: how many launches live together is what counts.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import inside_code
import pytest
from project import copy_checkout

from tare.model.sealed import read_sealed
from tare.model.study import CONTROL, HOST

STEP_S = 2.0
MIB = 1 << 20
BALLAST_MIB = 260  # that a launch takes, beside its interpreter
LIMIT_MIB = 1024  # three such launches and the harness fit, four don't
# The planner's least: what is tried here follows from one step, and each takes two seconds.
PROGRAM = """
import json, sys
from pathlib import Path
from envs.host import Host
from tare.experiments import blocks, turns
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.launch.place import Site
from tare.stats import planning
wanted = json.loads(sys.argv[1])
planning.DRAWS, planning.CYCLES, blocks.ANSWER_S = (1,), (1,), 5.0
site = Site(environment=Host(), python=wanted["python"], reference=None, data=Path("/"), isolates_network=False,
            variables=wanted["variables"], framework="numpy")
sites = dict.fromkeys(wanted["names"], site)
setup = Setup(study=wanted["study"], workload=wanted["workload"], sites=sites)
run_campaign(Path(wanted["out"]), turns.turns(setup))
"""
BUSY = f'''"""A job that multiplies matrices for {STEP_S} s in each step, however much of a core it is given."""

import time

DESCRIPTION = {{
    "title": "Busy", "dataset": "mnist", "parameters": 4096, "samples": 8, "batch": 4,
    "optimizer": "none", "loss": "none", "seed": 1, "imports": (),
}}


class NumpyTraining:
    """A matrix that is turned."""

    def __init__(self, numpy, device):
        self.weights = [numpy.linalg.qr(numpy.random.RandomState(1).standard_normal((64, 64)))[0]]

    @staticmethod
    def load(folder):
        """Samples of one number."""
        import numpy

        return [(numpy.ones(1),) for _ in range(DESCRIPTION["samples"])]

    def step(self, batch):
        """Products until the time is over; returns a loss."""
        ends, turned = time.monotonic() + {STEP_S}, self.weights[0]
        while time.monotonic() < ends:
            turned = turned @ self.weights[0]
        return float(abs(turned).mean())

    def end_epoch(self):
        """Nothing happens between epochs."""


FRAMEWORKS = {{"numpy": NumpyTraining}}
'''
BALLAST = f'''"""A job that takes {BALLAST_MIB} MiB of memory: one array, of which each step changes every page."""

DESCRIPTION = {{
    "title": "Ballast", "dataset": "mnist", "parameters": {BALLAST_MIB * MIB // 8}, "samples": 8, "batch": 4,
    "optimizer": "none", "loss": "none", "seed": 1, "imports": (),
}}


class NumpyTraining:
    """One array of numbers."""

    def __init__(self, numpy, device):
        self.weights = [numpy.ones(DESCRIPTION["parameters"])]

    @staticmethod
    def load(folder):
        """Samples of one number."""
        import numpy

        return [(numpy.ones(1),) for _ in range(DESCRIPTION["samples"])]

    def step(self, batch):
        """A number in every page; returns a loss."""
        self.weights[0][:: 4096 // 8] += 1
        return 1 / self.weights[0][0]

    def end_epoch(self):
        """Nothing happens between epochs."""


FRAMEWORKS = {{"numpy": NumpyTraining}}
'''
STUDY = {
    "study": "sizes",
    "seed": 1,
    "stack": "none",
    "device": "cpu",
    "confidence": 0.95,
    "margins": {"run": 0.05, "step": 0.02},
    "conditions": {"threads": 1, "cpus": 1, "open_files": 1024, "page_cache": "as_found", "launch_timeout_s": 60.0},
    "turns": {
        **{"allocator": "steady", "prior": {"block": 0.001, "draw": 0.001}, "units": 2, "pilot": 6},
        **{"half_width": 0.01, "budget_s": 5.0, "arm_budget_s": 5.0},
    },
}


@pytest.fixture(scope="module")
def campaign_of(tmp_path_factory):
    """Runs a campaign of a workload; returns it as it was sealed."""
    root = tmp_path_factory.mktemp("sizes")
    checkout = copy_checkout(root / "checkout")
    (checkout / "workloads/busy.py").write_text(BUSY)
    (checkout / "workloads/ballast.py").write_text(BALLAST)
    python, variables = inside_code.without_torch(root / "packages")

    def run(workload, names, before=()):
        own = {"PYTHONPATH": variables["PYTHONPATH"]}
        wanted = {"python": python, "variables": own, "names": names, "workload": workload}
        wanted |= {"study": {**STUDY, "workloads": {workload: {"batch": 4}}}, "out": str(root / workload)}
        done = subprocess.run(
            [*before, sys.executable, "-c", PROGRAM, json.dumps(wanted)],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return read_sealed(root / workload / "sealed.json")

    return run


def test_steps_of_two_seconds_are_measured_in_proportion(campaign_of):
    found = campaign_of("busy", [HOST, CONTROL])
    first, *counted = found.units
    assert [unit.voided for unit in found.units] == [None] * 3 and found.sealed.status == "sealed"
    assert all(launch.ok for unit in found.units for launch in unit.launches.values())
    settled = first.calibration
    steps = [step for unit in counted for draw in drawn(unit) for burst in draw.turns.step_s for step in burst]
    assert [settled.step_s, *steps] == pytest.approx([STEP_S] * (1 + len(steps)), rel=0.1)
    assert (settled.warmup, settled.discard, settled.steps) == (2, 1, 1)
    made = [sum(map(len, (*draw.turns.step_s, *draw.turns.discarded_s, draw.warmup_s))) for draw in drawn(first)]
    assert max(made) <= 10, "of a draw of the calibration"
    assert {len(draw.warmup_s) for unit in counted for draw in drawn(unit)} == {2}


def drawn(unit):
    return [draw for launch in unit.launches.values() for draw in launch.draws]


@contextlib.contextmanager
def memory_group(limit_bytes):
    """A control group with a limit of memory below our own, of whichever version has the controller here."""
    own = {row.split(":")[1]: row.split(":")[2] for row in Path("/proc/self/cgroup").read_text().splitlines()}
    second = Path("/sys/fs/cgroup")
    if (second / "memory.limit_in_bytes").exists() or (second / "memory/memory.limit_in_bytes").exists():
        folder, limit = second / "memory" / own["memory"].strip("/"), "memory.limit_in_bytes"
    elif "memory" in (second / own[""].strip("/") / "cgroup.subtree_control").read_text().split():
        folder, limit = second / own[""].strip("/"), "memory.max"
    else:
        pytest.skip("no memory controller that this process may give a group of its own")
    folder = folder / f"tare-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"no group with a limit of memory can be made: {error}")
    try:
        yield folder
    finally:
        for _ in range(50):  # the last of its processes are reaped by others
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


def killed_for_memory(folder):
    """Processes that the kernel has killed because the group's memory ended."""
    events = next(folder / name for name in ("memory.oom_control", "memory.events") if (folder / name).exists())
    return int(dict(line.split() for line in events.read_text().splitlines())["oom_kill"])


def test_launches_that_fill_a_limit_of_memory_are_split_before_one_dies(campaign_of):
    names = [HOST, CONTROL, "one", "two"]
    with memory_group(LIMIT_MIB * MIB) as folder:
        inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(folder)]
        found = campaign_of("ballast", names, before=inside)
        assert killed_for_memory(folder) == 0
    assert found.units[0].calibration.group < len(names) and found.sealed.status == "sealed"
    assert [unit.voided for unit in found.units] == [None] * 5
    ran = [{name for name, launch in unit.launches.items() if launch.ok} for unit in found.counted]
    assert ran == [{HOST, CONTROL, "one"}, {HOST, CONTROL, "two"}] * 2
    peaks = [draw.peak_rss_bytes for unit in found.units for draw in drawn(unit)]
    assert min(peaks) > BALLAST_MIB * MIB and BALLAST_MIB * len(names) > LIMIT_MIB, "all together would have died"
