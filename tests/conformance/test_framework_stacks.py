"""The same job in the stacks of other frameworks, really built and run on the host: losses are equal."""

import pytest
from matrix import in_turn

from tare.cli.main import main
from tare.experiments import rounds
from tare.images import build
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.records.images import OciRecord
from tare.model.registry import HOST, environment
from tare.model.schema import read
from tare.model.studies import arms
from tare.model.studies.stacks import framework_of, stack_names

pytestmark = pytest.mark.runtime
WORKLOAD = "mnist_cnn_equal"
# Without dropout nothing is left to chance: all frameworks compute the same to rounding, which grows by the step.
JOB = {"batch": 64, "options": {"samples": 256, "epochs": 1, "dropout": 0}}
OTHERS = [name for name in stack_names() if framework_of(name) != "torch" or name == "torch-1.4"]
COMPILERS = {"tensorflow": "xla", "torch": "torchscript"}


@pytest.fixture(scope="module")
def losses(study, folders, forms):
    """Losses of a whole run on the host by the image of a stack, at settings; fails where the launch did."""
    own = {**study, "workloads": {WORKLOAD: JOB}, "device": "cpu"}

    def run(image, settings=None):
        adapter = environment(HOST)
        site = site_of(HOST, adapter, image, folders("mnist"))
        spec = rounds.whole_run_spec(WORKLOAD, JOB["batch"], own)
        conditions = arms.conditions_at(own["conditions"], rounds.headline_levels(own))
        record = launch(site, spec, {**conditions, "settings": settings or {}})
        assert record.status == "ok", record.reason
        return record.seen_inside().results["losses"]

    run.headline = run(forms(HOST))
    return run


@pytest.fixture(scope="module")
def image_of(tmp_path_factory):
    """Image record of a stack for the host; skips where the machine lacks its interpreter or its wheels."""

    def make(stack):
        out = tmp_path_factory.mktemp(stack) / "oci.json"
        assert main(["build-image", "--stack", stack, "--variant", "cpu", "--optional", "--out", str(out)]) == 0
        record = read(OciRecord, out)
        if record.status != "ok":
            pytest.skip(record.reason)
        return build.derive(record, HOST)

    return make


@pytest.mark.parametrize("stack", in_turn(0, OTHERS))
def test_its_losses_are_those_of_the_headlines_stack(stack, losses, image_of):
    image = image_of(stack)
    found = losses(image)
    assert found == pytest.approx(losses.headline, rel=2e-3)
    compiler = COMPILERS.get(framework_of(stack))
    if compiler:
        assert losses(image, {"compile": compiler}) == pytest.approx(found, rel=2e-3)
