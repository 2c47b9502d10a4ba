"""Modules that are loaded after the imports: counted by phase until the first step has ended, and never later."""

import json
import os
import subprocess
import sys

import inside_code
import pytest
from project import ROOT
from test_syntax import pythons

from tare.model.records.launches import Inside, TrainResults
from tare.model.schema import parse
from tare.worker.marks import Watch

FRAMEWORK = '''"""A framework of Python's own numbers, which imports a part of itself at first use."""

from tare.worker import frameworks


class Plain(frameworks.Framework):
    name = "plain"

    def import_(self):
        import math

        self.module = math

    def import_late(self):
        import workloads.first_use

    def facts(self):
        return {"name": self.name, "version": "1", "threads": 1}

    def parameters(self, training):
        return 1

    def collate(self, samples):
        return [list(part) for part in zip(*samples)]

    def batch_bytes(self, batch):
        return 8 * len(batch[-1])


FRAMEWORK = Plain
'''
WORKLOAD = '''"""Loads modules in its data, its model, its first step and its second one."""

import importlib
import os
import threading

import _frozen_importlib

DESCRIPTION = {
    "title": "Late", "dataset": "mnist", "parameters": 1, "samples": 64, "batch": 4, "optimizer": "none",
    "loss": "none", "seed": 1, "imports": (),
}


def load_third():
    import workloads.by_a_thread


class Training(object):
    def __init__(self, module, device):
        import workloads.first_use
        import workloads.slow

        importlib.import_module("workloads.quick")
        importlib.import_module("workloads.quick")
        thread = threading.Thread(target=load_third)
        thread.start()
        thread.join()
        self.steps = 0

    @staticmethod
    def load(folder):
        import workloads.slow_step

        return [(float(number), 1.0) for number in range(64)]

    def step(self, batch):
        with open(os.environ["TARE_SEEN"], "a") as seen:
            seen.write(_frozen_importlib._find_and_load.__qualname__ + "\\n")
        self.steps += 1
        if self.steps == 1:
            import workloads.in_first
            try:
                import workloads.nowhere
            except ImportError:
                pass
        if self.steps == 2:
            import workloads.in_second
        return 1.0

    def end_epoch(self):
        pass


FRAMEWORKS = {"plain": Training}
'''
VERSIONS = tuple(f"3.{minor}" for minor in range(6, 14))  # that stacks have
EMPTY = ("first_use", "quick", "by_a_thread", "in_first", "in_second", "inner")
SLOW = "import time\nimport workloads.inner\ntime.sleep(0.2)\n"


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    files = {"tare/worker/frameworks/plain.py": FRAMEWORK, "workloads/late.py": WORKLOAD}
    files |= {f"workloads/{name}.py": "" for name in EMPTY} | {"workloads/slow.py": SLOW}
    files["workloads/slow_step.py"] = inside_code.SLOW_STEP.read_text()
    return inside_code.code_folder(tmp_path_factory.mktemp("code"), files)


def launches(code, folder, python=sys.executable):
    own = inside_code.Inside(code, folder, python, {"TARE_SEEN": str(folder / "seen")})
    own.defaults |= {"workload": "late", "framework": "plain", "batch": 4}
    return own


def told(marks):
    """By mark: modules loaded, and the number of imports that were watched."""
    return {mark.name: (mark.modules, None if mark.imports_ns is None else len(mark.imports_ns)) for mark in marks}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_phase_says_what_was_imported_within_it_and_no_later_step_is_watched(version, code, tmp_path):
    python = pythons(VERSIONS).get(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    wanted = {"levels": ["default"], "replicates": 1, "warmup_steps": 1, "steps": 2}
    record = launches(code, tmp_path, python).run(mode="train", steps=3, measured=wanted)
    assert record["status"] == "ok", record["reason"]
    inside = parse(Inside, record, "record.json")
    found = told(inside.marks)
    assert found["data"] == (1, 1)
    # slow and what it imports, quick, and one that another thread waited for
    assert found["model"] == (4, 2)
    assert found["first_step"] == (1, 1)
    assert found["epoch_end"] == (1, None)
    assert found["imports"][0] > 0 and found["imports"][1] is None
    before, model = inside.mark("data"), inside.mark("model")
    assert 0.2 <= model.imports_s <= (model.at_ns - before.at_ns) / 1e9
    assert all(before.at_ns <= start < end <= model.at_ns for start, end in model.imports_ns)
    first, *later = (tmp_path / "seen").read_text().split()
    assert first == "Watch.load" and later == ["_find_and_load"] * 5
    assert len(inside.results_as(TrainResults).replicates[0].seconds) == 2


def test_runs_that_share_a_start_say_it_each(code, tmp_path):
    record = launches(code, tmp_path).run(mode="train", batches=[4, 8], steps=2)
    assert record["status"] == "ok", record["reason"]
    for run in record["results"]["runs"]:
        marks = {mark["name"]: mark for mark in run["marks"]}
        assert (marks["model"]["modules"], len(marks["model"]["imports_ns"])) == (4, 2)
        assert "imports_ns" not in marks["epoch_end"]
    assert sorted(set((tmp_path / "seen").read_text().split())) == ["Watch.load", "_find_and_load"]


def test_an_import_that_fails_in_the_middle_counts_and_the_watch_goes_on(tmp_path, monkeypatch):
    (tmp_path / "tare_half.py").write_text("import tare_whole\nraise ValueError('half')\n")
    (tmp_path / "tare_whole.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    watch = Watch()
    watch.begin()
    try:
        with pytest.raises(ValueError, match="half"):
            import tare_half  # noqa: F401
        with pytest.raises(ImportError):
            import tare_nowhere  # noqa: F401
        assert len(watch.spans) == 1 and not watch.inside
    finally:
        watch.end()
        for name in ("tare_half", "tare_whole"):
            sys.modules.pop(name, None)


# Builds the model of each workload in a fork of one process, which has imported what they need: in a fork, since
# what one loads would be there for the next. Prints a line of JSON: by workload, what its model loaded.
MODELS = """
import json, os, sys
from tare.worker.marks import Marks, now_ns
from tare.worker.train import build_model, import_workload

found = {}
for spec in json.loads(sys.argv[1]):
    framework, workload = import_workload(spec, Marks(now_ns()), 1)
for spec in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        before = set(sys.modules)
        build_model(framework, sys.modules["workloads." + spec["workload"]], spec)
        os.write(writing, json.dumps(sorted(set(sys.modules) - before)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        found[spec["workload"]] = json.loads(told.read())
    os.waitpid(child, 0)
print(json.dumps(found))
"""


def torch_jobs():
    """Specifications of the workloads that PyTorch trains, by what they import: those alike share a process."""
    found = {}
    for path in sorted((ROOT / "workloads").glob("[a-z]*.py")):
        workload = __import__(f"workloads.{path.stem}", fromlist=["DESCRIPTION"])
        known = getattr(workload, "FRAMEWORKS", None) or {"torch": workload.Training}
        if "torch" in known:
            options = workload.DESCRIPTION.get("options") or {}
            spec = {"workload": path.stem, "options": {name: one["default"] for name, one in options.items()}}
            imports = getattr(known["torch"], "imports", workload.DESCRIPTION["imports"])
            found.setdefault(imports, []).append(spec)
    return found


@pytest.mark.parametrize("jobs", torch_jobs().values(), ids=lambda jobs: "+".join(job["workload"] for job in jobs))
def test_no_model_in_pytorch_imports_the_framework_any_further(jobs):
    """The compiler, and sympy with it, comes with the first optimizer unless it is there."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-c", MODELS, json.dumps(jobs)]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert sorted(found) == [job["workload"] for job in jobs]
    for workload, modules in found.items():
        own = [name for name in modules if name.split(".")[0] in ("torch", "sympy")]
        assert not own, f"{workload}: {own[:5]}"
