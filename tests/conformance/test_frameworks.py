"""Another framework than PyTorch in real campaigns: NumPy alone, with an interpreter that has nothing else."""

import json
import os
import re
import struct
import subprocess
import sys

import inside_code
import pytest
from project import code_blocks, copy_checkout

from tare.launch import conditions
from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import replicates_at

# Runs in a copy of the checkout that has the page's workload; says where it put the campaigns.
PROGRAM = """
import json, sys
from dataclasses import replace
from pathlib import Path
from envs.host import Host
from tare.experiments import rounds
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.experiments.measure import profiled_launch
from tare.launch.run import Site, launch
from tare.model.schema import parse
from tare.model.studies.study import RoundsPart
wanted = json.loads(sys.argv[1])
site = Site(environment=Host(), python=wanted["python"], reference=None, data=Path(wanted["data"]),
            isolates_network=False, variables=wanted["variables"], framework="numpy")
study = parse(RoundsPart, wanted["study"], "the study")
setup = Setup(study=study, workload="softmax_numpy", sites={"host": site, "host.control": site})
out = Path(wanted["out"])
run_campaign(out / "rounds", rounds.rounds(setup))
spec = rounds.whole_run_spec("softmax_numpy", 64, study)
conditions = study.conditions.of_launch(allocator="steady")
profiled = spec.replace(warmup_steps=1, steps=2, sample_interval_s=0.1)
record = profiled_launch(site, profiled, conditions, out / "trace.json.gz")
(out / "profile.json").write_text(json.dumps(record))
record = None
for _ in range(3 if wanted["processors"] > 1 else 0):  # other tests may have the processors
    record = launch(replace(site, framework="greedy"), spec, conditions.replace(cpus=2))
    if not record.ok:
        break
(out / "greedy.json").write_text(json.dumps(record and record.to_json()))
"""
# A framework that takes all processors whatever it is told; so many threads, that others leave it most of them.
GREEDY = '''"""NumPy, and sixteen busy threads."""

import hashlib
import threading
import time

from tare.worker.frameworks.numpy import Numpy


class Greedy(Numpy):
    name = "greedy"

    def synchronize(self):
        until, data = time.monotonic() + 0.3, bytes(1 << 20)

        def work():
            while time.monotonic() < until:
                hashlib.sha256(data).digest()  # which others may compute beside

        threads = [threading.Thread(target=work) for _ in range(16)]
        for act in (threading.Thread.start, threading.Thread.join):
            for thread in threads:
                act(thread)


FRAMEWORK = Greedy
'''
ALSO = 'FRAMEWORKS["greedy"] = NumpyTraining\n'
SAMPLING = {"units": 2, "stack_units": 2, "pilot": 6, "half_width": 0.01, "budget_s": 5.0, "arm_budget_s": 5.0}
STUDY = {
    "study": "numpy",
    "seed": 1,
    "stack": "none",
    "device": "cpu",
    "confidence": 0.95,
    "margins": {"run": 0.05, "step": 0.02},
    "conditions": {"threads": 1, "cpus": 1, "open_files": 1024, "page_cache": "as_found", "launch_timeout_s": 60.0},
    "rounds": {
        **{"allocator": "default", "discarded": 0, **SAMPLING},
        "steps": {"levels": ["default", "steady"], "replicates": 2, "warmup_steps": 1, "seconds": 0.1},
    },
    "workloads": {"softmax_numpy": {"batch": 64}},
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a campaign, a profile and a launch that was refused."""
    root = tmp_path_factory.mktemp("numpy")
    checkout = copy_checkout(root / "checkout")
    (checkout / "workloads/softmax_numpy.py").write_text(code_blocks("add-a-framework.md", "python")[0] + ALSO)
    (checkout / "tare/worker/frameworks/greedy.py").write_text(GREEDY)
    raw = root / "data/MNIST/raw"
    raw.mkdir(parents=True)
    labels = bytes(index * 7 % 10 for index in range(512))
    pixels = b"".join(bytes(255 * (place == label) for place in range(784)) for label in labels)
    (raw / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, 512, 28, 28) + pixels)
    (raw / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 512) + labels)
    python, variables = inside_code.without_torch(root / "packages")
    out = root / "out"
    out.mkdir()
    wanted = {"python": python, "variables": {"PYTHONPATH": variables["PYTHONPATH"]}, "study": STUDY}
    wanted |= {"data": str(root / "data"), "out": str(out), "processors": len(os.sched_getaffinity(0))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(wanted)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def inside_of(unit):
    return [row.inside for row in unit.launches.values()]


def test_a_campaign_of_a_framework_that_is_not_pytorch(measured):
    sealed = read_sealed(measured / "rounds" / "sealed.json")
    counted = [unit for unit in sealed.units if unit.counts]
    assert len(counted) == 2
    for unit in counted:
        for inside in inside_of(unit):
            assert inside.status == "ok" and inside.facts.framework.name == "numpy"
            assert inside.facts.framework.threads == 1
        for launch in unit.launches.values():
            made = [one for level in ("default", "steady") for one in replicates_at(launch, level)]
            assert len(made) == 4 and all(one.forked and min(one.seconds) > 0 for one in made)


def test_a_profile_says_what_the_framework_can_not_tell(measured):
    record = json.loads((measured / "profile.json").read_text())
    assert record["status"] == "ok", record["reason"]
    results = record["inside"]["results"]
    assert len(results["plain_step_s"]) == 2 and "none for numpy" in results["profiler_reason"]
    assert not any("torch" in row["path"] for row in results["mapped"])
    assert "trace" not in record and not (measured / "trace.json.gz").exists()


def test_a_framework_that_takes_all_processors_whatever_it_is_told_is_refused(measured):
    record = json.loads((measured / "greedy.json").read_text())
    if record is None:
        pytest.skip("it takes two processors to keep more than one busy")
    assert record["inside"]["facts"]["framework"]["threads"] == 1, "what it says of itself"
    busy = record["inside"]["results"]["processors"]
    if busy <= 1 + conditions.EXTRA_PROCESSORS:
        assert record["status"] == "ok"
        pytest.skip(f"others had the processors: in three tries it kept no more than {busy:.1f} busy")
    assert record["status"] == "failed", f"it kept {busy} processors busy"
    assert re.fullmatch(r"refused: threads kept \d\.\d processors busy, asked for 1", record["reason"])
