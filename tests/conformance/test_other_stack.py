"""The paper's stack beside the current one: built here, equal data, and training on the host and in Docker."""

import functools
import json
import subprocess
from pathlib import Path

import pytest
from asking import skip_without_interpreter
from matrix import HURRIED, in_turn

from tare.cli.main import main
from tare.core.files import project_root
from tare.experiments import rounds
from tare.images import build
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.records.images import OciRecord
from tare.model.registry import HOST, describe_workload, environment
from tare.model.schema import read
from tare.model.studies import arms

pytestmark = pytest.mark.runtime
OTHER = "paper-2022"
WORKLOADS = ["mnist_cnn", "sentiment_rnn", *in_turn(0, ["sentiment_lstm", "transformer_lm"])]
TRAINED = in_turn(1, WORKLOADS)  # the first loss of all is compared
VERSIONS = """
import json, sys, torch, torchvision, torchtext
modules = (torch, torchvision, torchtext)
print(json.dumps([sys.version.split()[0], sys.prefix] + [module.__version__ for module in modules]))
"""
IDS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from workloads import _reviews as workload
texts, labels = workload.read_rows(sys.argv[2])
ids = workload.encode(texts)
print(json.dumps([sorted({"tokenizers", "torchtext"} & set(sys.modules)), ids, labels]))
"""

# Without dropout: what it draws depends on the processor as well, by the library that each stack takes there.
FIRST_LOSSES = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
from tare.worker.frameworks import of
framework = of({"framework": "torch", "device": "cpu"})
framework.import_()
found = {}
for name, data in json.loads(sys.argv[2]).items():
    workload = importlib.import_module("workloads." + name)
    dataset = workload.Training.load(data)
    training = workload.Training(framework.module, "cpu")
    training.model.eval()
    batch = next(iter(framework.module.utils.data.DataLoader(dataset, batch_size=64)))
    found[name] = float(training.loss(batch))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Image record of the paper's stack; where this machine lacks its CPython, the product's own reason."""
    out = tmp_path_factory.mktemp("other") / "oci.json"
    assert main(["build-image", "--stack", OTHER, "--variant", "cpu", "--optional", "--out", str(out)]) == 0
    record = read(OciRecord, out)
    if record.status != "ok":
        skip_without_interpreter(OTHER, record.reason)
    return record


@pytest.fixture(scope="module")
def other_forms(other, probes):
    """Its image record for an environment that must work here."""

    @functools.cache
    def form(name):
        assert probes(name).available, probes(name).reason
        record = build.derive(other, name)
        assert record.status == "ok", record.reason
        return record

    return form


def run_python(tree, code, *arguments):
    """Standard output of a tree's interpreter in an empty process environment."""
    argv = [str(Path(tree) / "bin" / "python3"), "-s", "-c", code, *map(str, arguments)]
    finished = subprocess.run(argv, env={}, cwd="/", capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout


@pytest.mark.meets(stack=OTHER)
def test_its_tree_imports_on_the_host(other):
    version, prefix, *modules = json.loads(run_python(other.tree.path, VERSIONS))
    assert version.startswith("3.7.") and other.tree.python == version
    assert prefix == other.tree.path
    locked = {package.name: package.version for package in other.packages}
    wanted = [locked[name] for name in ("torch", "torchvision", "torchtext")]
    assert [found.partition("+")[0] for found in modules] == wanted == ["1.11.0", "0.12.0", "0.12.0"]


def test_both_stacks_make_the_same_token_ids_of_the_same_rows(other, image, folders):
    data, found = folders("sentiment"), {}
    for name, tree in ((OTHER, other.tree.path), ("current", image.tree.path)):
        found[name] = json.loads(run_python(tree, IDS, project_root(), data).splitlines()[-1])
    (old_library, old_ids, old_labels), (new_library, new_ids, new_labels) = found[OTHER], found["current"]
    assert (old_library, new_library) == (["torchtext"], ["tokenizers"])  # two libraries, not one twice
    assert {len(row) for row in new_ids} == {100} and len(new_ids) == 999
    assert len({token for row in new_ids for token in row}) > 100  # neither made everything unknown
    assert old_labels == new_labels
    differing = [number for number, pair in enumerate(zip(old_ids, new_ids, strict=True)) if pair[0] != pair[1]]
    assert differing == []


@pytest.fixture(scope="module")
def other_launches(study, other_forms, folders):
    """Record of one launch of a workload from the paper's stack, under the study's conditions; run once, kept."""

    @functools.cache
    def run(name, workload):
        adapter = environment(name)
        site = site_of(name, adapter, other_forms(name), folders(describe_workload(workload)["dataset"]))
        spec = rounds.whole_run_spec(workload, describe_workload(workload)["batch"], study).replace(**HURRIED)
        conditions = arms.conditions_at(study.conditions, rounds.headline_levels(study))
        with adapter.session():
            return launch(site, spec, conditions, pad_bytes=64).to_json()

    return run


@pytest.mark.parametrize("env", [HOST, "docker"])
@pytest.mark.parametrize("workload", TRAINED)
def test_it_trains_with_torch_1_11_and_computes_what_its_host_computes(env, workload, other_launches, other_forms):
    record = other_launches(env, workload)
    assert record["status"] == "ok", record["reason"]
    assert record["deviations"] == []
    facts, results = record["inside"]["facts"], record["inside"]["results"]
    assert facts["torch"]["version"].partition("+")[0] == "1.11.0"
    assert facts["python"].startswith("3.7.")
    assert facts["executable"].startswith(str(Path(other_forms(env).python).parent))
    assert results["samples"] == describe_workload(workload)["samples"]
    assert results["losses"] == pytest.approx(
        other_launches(HOST, workload)["inside"]["results"]["losses"], rel=1e-5
    )


@pytest.fixture(scope="module")
def first_losses(other, image, folders):
    """Of each workload, in the paper's stack and in the current one."""
    data = json.dumps({name: str(folders(describe_workload(name)["dataset"])) for name in WORKLOADS})
    return [
        json.loads(run_python(tree, FIRST_LOSSES, project_root(), data).splitlines()[-1])
        for tree in (other.tree.path, image.tree.path)
    ]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_its_first_loss_is_that_of_the_current_stack(workload, first_losses):
    """Equal seeds, data and models: the first batch, before any update, has the same loss in both."""
    ours, current = first_losses
    assert ours[workload] == pytest.approx(current[workload], rel=1e-5)
