"""Jobs of other sizes than the studies' own, in real campaigns: steps of two seconds, launches that fill a limit.

Workloads of NumPy, launched on the host from a copy of the checkout by an interpreter that has nothing else.
Further environments are further sites of the host: how many launches live together is what counts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import inside_code
from project import copy_checkout

STEP_S = 2.0
MIB = 1 << 20
BALLAST_MIB = 260  # that a launch takes, beside its interpreter
LIMIT_MIB = 1024  # three such launches and the harness fit, four don't
PROGRAM = """
import json, sys
from pathlib import Path
from envs.host import Host
from tare.experiments import rounds
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.launch.place import Site
from tare.model.schema import parse
from tare.model.studies.study import RoundsPart
wanted = json.loads(sys.argv[1])
site = Site(environment=Host(), python=wanted["python"], reference=None, data=Path("/"), isolates_network=False,
            variables=wanted["variables"], framework="numpy")
sites = dict.fromkeys(wanted["names"], site)
study = parse(RoundsPart, wanted["study"], "the study")
setup = Setup(study=study, workload=wanted["workload"], sites=sites)
run_campaign(Path(wanted["out"]), rounds.rounds(setup))
"""
SLOW = f'''"""A job whose steps take {STEP_S} s, however much of a core it is given: a product, then sleep."""

import time

DESCRIPTION = {{
    "title": "Slow", "dataset": "mnist", "parameters": 4096, "samples": 8, "batch": 4,
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
        """A product, and sleep until the time is over; returns a loss."""
        ends = time.monotonic() + {STEP_S}
        turned = self.weights[0] @ self.weights[0]
        time.sleep(max(0.0, ends - time.monotonic()))
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
STUDY: dict[str, Any] = {
    "study": "sizes",
    "seed": 1,
    "stack": "none",
    "device": "cpu",
    "confidence": 0.95,
    "margins": {"run": 0.05, "step": 0.02},
    "conditions": {"threads": 1, "cpus": 1, "open_files": 1024, "page_cache": "as_found", "launch_timeout_s": 60.0},
    "rounds": {
        **{"allocator": "default", "discarded": 0, "units": 2, "pilot": 6},
        **{"half_width": 0.01, "budget_s": 5.0, "arm_budget_s": 5.0},
    },
}


def campaign(
    folder: Path,
    workload: str,
    names: Sequence[str],
    before: Sequence[str] = (),
    steps: Mapping[str, Any] | None = None,
) -> None:
    """Run a campaign of a workload; it is sealed in FOLDER/out.

    Args:
        folder: new, or that of a checkout's copy in FOLDER/tare.
        workload: slow or ballast.
        names: of the launches.
        before: words of a program that starts it.
        steps: that each run measures after its epoch; None for none.
    """
    checkout = folder / "tare"
    if not checkout.exists():
        copy_checkout(checkout)
    (checkout / f"workloads/{workload}.py").write_text({"slow": SLOW, "ballast": BALLAST}[workload])
    python, variables = inside_code.without_torch(folder / "packages")
    wanted = {"python": python, "variables": {"PYTHONPATH": variables["PYTHONPATH"]}, "names": names}
    study = {**STUDY, "rounds": {**STUDY["rounds"], "steps": steps}, "workloads": {workload: {"batch": 4}}}
    wanted |= {"study": study, "out": str(folder / "out")}
    done = subprocess.run(
        [*before, sys.executable, "-c", PROGRAM, json.dumps({**wanted, "workload": workload})],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    if done.returncode:
        raise AssertionError(done.stdout[-2000:] + done.stderr[-4000:])
