"""Two jobs on one machine, by real launches: the co-runner trains beside a launch in its environment, and goes."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import contract
import pytest
from matrix import HURRIED, envs_in_turn, in_turn

from tare.core.files import cache_dir, project_root
from tare.experiments import co_runner, rounds
from tare.launch import limits
from tare.launch.conditions import choose_cpus
from tare.launch.place import site_of
from tare.launch.run import Order
from tare.launch.scenarios.shared import launch_member
from tare.model.registry import HOST, describe_workload, environment
from tare.model.roles import alone_of
from tare.model.studies import arms
from tare.model.studies.sections import Shared

pytestmark = pytest.mark.runtime
WORKLOAD = "mnist_cnn"


@pytest.fixture(scope="module")
def order_in(study, forms, folders):
    """An order of a whole run in an environment, and the co-runner's specification."""
    batch = describe_workload(WORKLOAD)["batch"]
    own = study.replace(shared=Shared(workload=WORKLOAD, batch=batch))
    second = co_runner.co_runner_spec(own, small=False)
    conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))

    def order(env):
        data = folders(describe_workload(WORKLOAD)["dataset"])
        cell = env == "cell"
        found, form = (contract.Cell(), forms("charliecloud")) if cell else (environment(env), forms(env))
        site = replace(site_of(env, found, form, data), data_of={WORKLOAD: data})
        site = replace(site, options={}) if cell else site
        spec = rounds.whole_run_spec(WORKLOAD, batch, study).replace(**HURRIED)
        return Order(site=site, program=spec, conditions=conditions, pad_bytes=64), second

    return order


def is_gone(launch, maker=None):
    """Whether a launch has left no process and no folder, and its maker no control group."""
    parent, _ = limits.cpu_hierarchy(limits.MOUNTS.read_text(), limits.OWN_CGROUP.read_text())
    folder = cache_dir("launches") / launch
    return not (carriers(launch) or folder.exists() or list(parent.glob(f"tare-{maker or os.getpid()}-*")))


# On the host without limits: the smoke study, which tests/workflow looks at. A cell shares no folder, and has
# another clock, by which a co-runner's steps are counted.
UNLIMITED = [(env, "none") for env in envs_in_turn("test_shared.py") if env != HOST]
OTHERS = in_turn(0, [(HOST, "cpuset"), (HOST, "quota"), ("docker", "quota"), ("cell", "none")])


@pytest.mark.parametrize(("env", "level"), [*UNLIMITED, *OTHERS])
def test_a_co_runner_trains_beside_a_launch_in_its_environment(env, level, order_in):
    if reason := limits.lacking(level, choose_cpus(2)):
        pytest.skip(reason)
    order, second = order_in(env)
    with order.site.environment.session():
        found = launch_member(env, order, second, level, threads=2)
    assert found.ok, found.reason
    own = found.co_runner
    assert own.steps > 0 and own.cpu_s > 0 and own.deviations == (), "it trained while the launch did"
    assert found.deviations == () and found.scenario == "shared"
    width = 1 if level == "cpuset" else 2
    assert len(found.inside.facts.affinity) == width
    assert ("throttled_s" in found.contention.values) == (level == "quota")
    assert is_gone(own.launch) and is_gone(found.launch)


def test_a_launch_alone_has_the_same_limits_and_nobody_beside_it(order_in):
    order, second = order_in("host")
    found = launch_member(alone_of("host"), order, second, "cpuset")
    assert found.ok, found.reason
    assert found.co_runner is None and len(found.inside.facts.affinity) == 1
    assert found.contention.values["machine_cpu_s"] > 0


HARNESS = """
import json, sys
from pathlib import Path
from tare.launch.place import site_of
from tare.launch.run import Order
from tare.launch.scenarios.shared import training
from tare.launch.limits import shared_out
from tare.launch.conditions import choose_cpus
from tare.model.conditions import Conditions
from tare.model.records.images import ImageRecord
from tare.model.registry import environment
from tare.model.schema import parse
from tare.model.specification import Specification
from dataclasses import replace
asked = json.loads(sys.stdin.readline())
adapter = environment(asked["env"])
data = Path(asked["data"])
site = site_of(asked["env"], adapter, parse(ImageRecord, asked["image"], "an image"), data)
second = parse(Specification, asked["co_runner"], "the co-runner")
site = replace(site, data_of={second.workload: data})
order = Order(site=site, program=second, conditions=parse(Conditions, asked["conditions"], "conditions"))
with adapter.session(), shared_out(asked["level"], choose_cpus(2)) as (_, share):
    with training(order, second, share) as live:
        print(live.prepared.planned.name, flush=True)
        import time; time.sleep(600)
"""


@pytest.mark.parametrize(("env", "level"), [("host", "quota"), ("docker", "none")])
def test_a_co_runner_is_gone_after_the_harness_was_killed(env, level, order_in, forms):
    if reason := limits.lacking(level, choose_cpus(2)):
        pytest.skip(reason)
    order, second = order_in(env)
    asked = {
        "env": env, "level": level, "co_runner": second.to_json(), "conditions": order.conditions.to_json(),
        "data": str(order.site.data), "image": forms(env).to_json(),
    }  # fmt: skip
    with environment(env).session():  # the daemon lives on
        harness = subprocess.Popen(
            [sys.executable, "-c", HARNESS], cwd=project_root(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        harness.stdin.write(json.dumps(asked).encode() + b"\n")
        harness.stdin.flush()
        name = harness.stdout.readline().decode().strip()
        assert name.startswith("tare-") and carriers(name)
        harness.kill()
        harness.wait()
        until = time.monotonic() + 60
        while not is_gone(name, harness.pid) and time.monotonic() < until:
            time.sleep(0.1)
        assert is_gone(name, harness.pid)


def carriers(name):
    """Processes whose arguments or environment name a launch."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if name.encode() in told:
            found.append(int(process.name))
    return found
