"""Real launches whose steps are slow: calibrated in proportion, alone, and never ended for being slow."""

import random
import tempfile

import pytest
from fakes import CONDITIONS, Fake, site, study
from inside_code import SLOW_STEP, code_folder, without_torch

from tare.experiments import blocks, turns
from tare.experiments.designs import Setup
from tare.model.studies.study import CONTROL, HOST

STEP_S = 0.31  # and longer on a machine that is busy otherwise
START = """
import json, os, sys
python, main, path = sys.argv[1:]
with open(path) as handle:
    spec = json.load(handle)
spec.update(workload="slow_step", framework="numpy", data="/nowhere", loader_workers=0)
with open(path, "w") as handle:
    json.dump(spec, handle)
os.execve(python, [python, "-s", main, path], json.loads(os.environ["TARE_SLOW"]))
"""


class Slow(Fake):
    """Launches of the real worker with NumPy alone."""

    def __init__(self, pids, code, python, variables):
        super().__init__(pids)
        self.words = [python, "-c", START, python, str(code / "tare/worker/main.py")]
        self.variables = variables

    def command(self, launch):
        return [*self.words, str(launch.workdir / "spec.json")]

    def environment_variables(self):
        import json

        return {"TARE_SLOW": json.dumps(self.variables)}


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A site of the slow workload."""
    with tempfile.TemporaryDirectory(prefix="tare-") as cache:
        monkeypatch.setenv("TARE_CACHE", cache)
        code = code_folder(tmp_path / "code", {"workloads/slow_step.py": SLOW_STEP.read_text()})
        python, variables = without_torch(tmp_path / "packages")
        (tmp_path / "pids").mkdir()
        more = {"TARE_STEP_S": str(STEP_S), "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
        yield site(Slow(tmp_path / "pids", code, python, {**variables, **more}))


@pytest.mark.timeout(600)
def test_slow_steps_are_calibrated_alone_and_in_proportion(slow, tmp_path, monkeypatch):
    """Both hosts on one core."""
    monkeypatch.setattr(blocks, "ANSWER_S", 1.0)  # what there is beyond it follows from the step
    plan = turns.turns(Setup(study=study(units=2, budget_s=60), workload="mnist_cnn", sites={HOST: slow})).plan
    names = [HOST, CONTROL]
    with blocks.live_block(
        dict.fromkeys(names, slow),
        plan.spec,
        {name: {**CONDITIONS, "launch_timeout_s": 60.0} for name in names},
        order=[HOST],
        pads=dict.fromkeys(names, 0),
        cores=[turns.cores_of(0, CONDITIONS)[0]],
        generator=random.Random(1),
    ) as (block, unit):
        assert turns.look_alone(block, block.lane, 1 << 40, len(names)) == len(names)
        block.start([CONTROL])
        found = turns.calibrate(block, plan)
    assert unit["voided"] is None
    trial = turns.trial_of(found["step_s"])
    assert found["step_s"] >= 0.9 * STEP_S
    assert (found["warmup"], found["discard"], found["steps"]) == (trial.warmup, 1, 1)
    steps = [
        len(draw["warmup_s"]) + sum(map(len, draw["turns"]["step_s"])) + sum(map(len, draw["turns"]["discarded_s"]))
        for draw in unit["launches"][CONTROL]["draws"]
    ]
    assert max(steps) <= 8 + 9, "of 44 in each draw"
