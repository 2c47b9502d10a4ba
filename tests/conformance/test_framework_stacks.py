"""The same job in the stacks of other frameworks, really built and run on the host and in a container."""

import functools
import statistics
from pathlib import Path

import inside_code
import pytest
from asking import skip_without_interpreter
from matrix import ALL, HURRIED, REQUIRED, in_turn
from project import ROOT

from tare.analysis.launch_rows import PROFILERS
from tare.cli.main import main
from tare.experiments import rounds
from tare.images import build
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.machine.facts import processor_flags
from tare.model.records.images import OciRecord
from tare.model.records.launches import Inside, TrainResults
from tare.model.registry import HOST, environment
from tare.model.schema import parse, read
from tare.model.studies import arms
from tare.model.studies.sections import WorkloadSettings
from tare.model.studies.stacks import framework_of, is_official, load_stack, stack_names
from tare.profilers import torch_trace
from tare.runtimes.programs import candidate, may_install

pytestmark = pytest.mark.runtime
WORKLOAD = "mnist_cnn_equal"
# Without dropout nothing is left to chance: all frameworks compute the same to rounding, which grows by the step.
JOB = {"batch": 64, "options": {"samples": 256, "epochs": 1, "dropout": 0}}
NEAR = 2e-3
OTHERS = [
    name
    for name in stack_names()
    if (framework_of(name) != "torch" or name == "torch-1.4") and not is_official(name)
]
COMPILERS = {"tensorflow": "xla", "torch": "torchscript"}
# The first loss alone: after an update rounding alone makes percents of it, also in PyTorch beside itself
# (benchmarks/resnet50_rounding.py).
DEEP = ("resnet50_equal", {"batch": 16, "options": {"samples": 16, "epochs": 1, "classes": 10, "enlarged": 2}})
JOBS = dict([(WORKLOAD, JOB), DEEP])
DEEP_NEAR = 5e-4  # normalisation sums in single precision; a padding of one more side is 4e-2 off
# Every stack that has this workload but the headline's, some with another one; in containers each in one, by turns.
ON_THE_HOST = [
    *((name, (WORKLOAD, JOB), NEAR) for name in stack_names() if name in OTHERS or load_stack(name).library),
    *((name, DEEP, DEEP_NEAR) for name in ("tensorflow-2.1", "tensorflow-2.21") if ALL),
]
CONTAINERS = sorted(REQUIRED - {HOST})
IN_CONTAINERS = [(name, CONTAINERS[number % len(CONTAINERS)]) for number, name in enumerate(OTHERS)]


@pytest.fixture(scope="module")
def losses(study, folders):
    """Losses of a whole run where the image of a stack is for, at settings; fails where the launch did."""

    def run(image, settings, workload=WORKLOAD, job=JOB):
        own = study.replace(workloads={workload: parse(WorkloadSettings, job, "a job")}, device="cpu")
        adapter = environment(image.env)
        site = site_of(image.env, adapter, image, folders("mnist"))
        spec = rounds.whole_run_spec(workload, job["batch"], own).replace(**HURRIED)
        conditions = arms.conditions_at(own.conditions, rounds.headline_levels(own))
        with adapter.session():
            record = launch(site, spec, conditions.replace(settings=settings))
        assert record.status == "ok", record.reason
        framework = record.seen_inside().facts.framework
        if settings or framework.name == "jax":
            assert (record.compiled or framework.compiled)["graphs"] >= 1
            assert framework.name != "jax" or framework.compile_s > 0.1
        return record.seen_inside().results["losses"]

    return run


@pytest.fixture(scope="module")
def expected(losses, forms):
    """Losses of the headline's stack; each job is run once."""
    return functools.cache(lambda workload: losses(forms(HOST), {}, workload, JOBS[workload]))


@pytest.fixture(scope="module")
def image_of(tmp_path_factory):
    """Image record of a stack for an environment; skips where the machine lacks its interpreter or Open MPI,
    and there only; or where no archive of its distribution has the source of its library, as without a network."""

    @functools.cache
    def make(stack, env=HOST):
        out = tmp_path_factory.mktemp("stack") / "oci.json"
        assert main(["build-image", "--stack", stack, "--variant", "cpu", "--optional", "--out", str(out)]) == 0
        record = read(OciRecord, out)
        if load_stack(stack).library is not None and "is not available" in (record.reason or ""):
            pytest.skip(record.reason)
        if "the loader finds no libmpi" in (record.reason or ""):
            bringing = [one for packages in load_stack(stack).library_packages.values() for one in packages]
            assert may_install() is not None or not any(map(candidate, bringing)), record.reason
            pytest.skip(record.reason)
        if record.status != "ok":
            skip_without_interpreter(stack, record.reason)
        image = build.derive(record, env)
        assert image.status == "ok", image.reason
        return image

    return make


@pytest.mark.parametrize(("stack", "env"), in_turn(0, IN_CONTAINERS))
def test_its_losses_in_its_own_image_are_those_of_the_headlines_stack(stack, env, losses, image_of, expected):
    """On the host it draws, and runs with a graph compiler."""
    image = image_of(stack, env)
    assert (image.stack, image.env) == (stack, env) and image.python.startswith("/opt/tare/")
    found = losses(image, {})
    assert found == pytest.approx(expected(WORKLOAD), rel=NEAR)
    compiler = "ngraph" if stack.endswith("-ngraph") else COMPILERS.get(framework_of(stack))
    if compiler == "ngraph" and "avx512f" in processor_flags() and not is_of_intel():
        with pytest.raises(AssertionError, match="bad err=45 in Xbyak::Error"):  # docs/add-a-framework.md
            losses(image_of(stack), {"compile": compiler})
    elif compiler:
        assert losses(image_of(stack), {"compile": compiler}) == pytest.approx(found, rel=NEAR)


def is_of_intel():
    return "GenuineIntel" in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize(("stack", "job", "near"), ON_THE_HOST)
def test_every_stack_gives_the_same_losses_on_the_host_also_with_a_library_that_is_compiled_here(
    stack, job, near, losses, image_of, expected
):
    workload, _ = job
    found = losses(image_of(stack), {}, *job)
    assert found and found == pytest.approx(expected(workload), rel=near)


@pytest.mark.parametrize("stack", in_turn(0, OTHERS))
def test_each_replicate_begins_anew_and_trains_on_the_batches_of_the_run(stack, image_of, folders, tmp_path):
    """Where a process that has trained can't be followed by children, the run's own goes on, and says why."""
    launches = inside_code.Inside(ROOT, tmp_path, image_of(stack).python)
    launches.variables["OMP_NUM_THREADS"] = "1"
    launches.defaults |= {"workload": WORKLOAD, "framework": framework_of(stack), "data": str(folders("mnist"))}
    wanted = {"levels": ["steady"], "replicates": 2, "warmup_steps": 2, "steps": 3}
    record = launches.run(mode="train", measured=wanted, **JOB)
    assert record["status"] == "ok", record["reason"]
    results = parse(Inside, record, "record.json").results_as(TrainResults)
    made = results.replicates
    assert all(min(one.seconds) > 0.001 for one in made), "a step ends before the next begins"
    if made[0].forked:
        assert len(made) == 2 and made[0].loss_first == pytest.approx(made[1].loss_first, rel=1e-5)
        assert made[0].loss_first == pytest.approx(results.losses[0], rel=1e-5)
    else:
        assert len(made) == 1 and made[0].reason and made[0].loss_first < results.losses[0]


@pytest.mark.parametrize("stack", in_turn(0, OTHERS))
def test_a_profiled_launch_names_its_operators(stack, image_of, folders, tmp_path):
    """What a step's operators took is most of the step, where a framework has a profiler that names them."""
    framework, trace = framework_of(stack), tmp_path / "trace.json.gz"
    launches = inside_code.Inside(ROOT, tmp_path, image_of(stack).python)
    launches.variables["OMP_NUM_THREADS"] = "1"
    launches.defaults |= {"workload": WORKLOAD, "framework": framework, "data": str(folders("mnist")), **JOB}
    launches.defaults |= {"warmup_steps": 2, "steps": 3}
    results = launches.run(mode="profile", sample_interval_s=0.05, trace=str(trace))["results"]
    assert min(results["plain_step_s"]) > 0.001, "a step ends before it is timed"
    if framework not in PROFILERS or stack.startswith(("torch-1", "tensorflow-1")):
        assert results["profiler_reason"] and not trace.exists()
        return
    assert results["profiler_reason"] is None
    events = torch_trace.read_events(trace)
    assert torch_trace.step_count(events) == results["profiled_steps"] == 3
    found = torch_trace.families(events).groupby("family")["self_s"].sum() / 3
    took = statistics.median(results["profiled_step_s"])
    assert {"convolution", "matrix product", "pooling"} <= set(found.index)
    assert 0.3 * took < found.sum() < 2.2 * took, "XLA runs operators on two threads at once"
    listed = launches.run(mode="causes")["results"]["listed"]
    looked = launches.run(mode="causes", files=listed, repetitions=1)["results"]["operators"]
    assert looked["reason"] is None and looked["steps"] == 3
    assert {row["kernel"] for row in looked["rows"]} == set(torch_trace.operators(events)["name"])
