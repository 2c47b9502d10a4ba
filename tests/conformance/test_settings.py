"""Settings of the framework: really applied in launches on the host, or refused with the reason.

The input is compared in every environment, and is applied in one of the others too.
"""

import functools

import pytest
from matrix import HURRIED, REQUIRED, in_turn, small

from tare.experiments import rounds
from tare.images import headers
from tare.launch import sites as site_module
from tare.launch.place import site_of
from tare.launch.run import launch
from tare.model.registry import HOST, describe_workload, environment, module_names
from tare.model.studies import arms

pytestmark = pytest.mark.runtime
LEVELS = {"stack": "same", "allocator": "default", "page_cache": "as_found"}
COMPILED = "compile=inductor"
TAKEN = in_turn(0, ["amp=bf16", "layout=channels-last", COMPILED])
SYNTHETIC = "input=synthetic"
CONTAINERS = in_turn(1, sorted(REQUIRED - {HOST}))
OF_IMAGES = in_turn(2, [name for name in module_names("workloads") if "inputs" in describe_workload(name)])


@pytest.fixture(scope="module")
def run_at(study, forms, folders):
    """Record of a whole run of a workload on the host at one setting."""

    @functools.cache
    def execute(workload, text):
        description = describe_workload(workload)
        record = forms("host")
        site = site_of("host", environment("host"), record, folders(description["dataset"]))
        arm = arms.parse(text) if text else None
        if arm and arm.factor == "compile":
            site = site_module._with_compiler(site, study.replace(stack="torch-2.13", device="cpu"))
        conditions = arms.conditions_at(study.conditions, arms.levels_of(LEVELS, arm))
        spec = rounds.whole_run_spec(workload, description["batch"], study).replace(**HURRIED)
        return launch(site, spec, conditions, pad_bytes=64).to_json()

    return execute


@pytest.fixture(scope="module")
def plain(run_at):
    return run_at("mnist_cnn", None)


@pytest.mark.parametrize("text", TAKEN)
def test_a_setting_trains_the_same_model_to_nearly_the_same_loss(run_at, plain, text):
    record = run_at("mnist_cnn", text)
    assert record["status"] == "ok", record["reason"]
    assert record["deviations"] == plain["deviations"]
    losses, others = record["inside"]["results"]["losses"], plain["inside"]["results"]["losses"]
    assert len(losses) == len(others)
    # The first loss is that of equal weights on equal images, but for other random numbers in the dropouts.
    assert losses[0] == pytest.approx(others[0], rel=0.1)
    if text == "amp=bf16":
        assert losses != others, "rounding to eight bits changes something"


@pytest.mark.parametrize("text", [text for text in TAKEN if text == COMPILED])
def test_the_compiler_really_compiled(run_at, text):
    """The first step holds the compilation: many times as long as any plain step."""
    record = run_at("mnist_cnn", text)
    marks = {mark["name"]: mark["at_ns"] for mark in record["inside"]["marks"]}
    first_s = (marks["first_step"] - marks["model"]) / 1e9
    steps = record["inside"]["results"]["step_ends_ns"]
    assert first_s > 10 * (steps[2] - steps[1]) / 1e9
    made = record["inside"]["facts"]["torch"]["compiled"]
    assert made["graphs"] >= 1 and made["breaks"] == 0 and made["operators"] > 5
    assert record["inside"]["memory"]["children_peak_rss_bytes"] > 1 << 24, "the compiler of C++ that it calls"


@pytest.mark.parametrize(("env", "workload"), [(env, name) for env in CONTAINERS for name in OF_IMAGES])
def test_synthetic_input_is_the_same_batch_wherever_it_is_made(env, workload, study, forms, folders, launches):
    own = small(study, workload)
    spec = rounds.whole_run_spec(workload, own.workloads[workload].batch, own).replace(**HURRIED)
    levels = arms.levels_of(rounds.headline_levels(own), arms.parse(SYNTHETIC))
    losses = {}
    for name in (HOST, env):
        adapter = environment(name)
        site = site_of(name, adapter, forms(name), folders(describe_workload(workload)["dataset"]))
        with adapter.session():
            record = launch(site, spec, arms.conditions_at(study.conditions, levels), pad_bytes=64)
        assert record.ok and record.deviations == (), record.reason
        losses[name] = record.inside.results["losses"]
    assert losses[env] == pytest.approx(losses[HOST], rel=1e-5)
    real = launches(HOST, workload, "train")["inside"]["results"]["losses"]
    assert len(real) == len(losses[env]) and losses[env] != pytest.approx(real, rel=1e-3), "of other pixels"


def test_a_model_without_filters_says_so(run_at):
    record = run_at("sentiment_rnn", "layout=channels-last")
    assert record["status"] == "failed" and "no filter of four dimensions" in record["reason"]


def test_headers_are_made_again_where_one_was_damaged():
    folder = headers.headers_of("torch-2.13", "cpu")
    victim = folder / "python/Python.h"
    good = victim.read_bytes()
    victim.write_bytes(b"#error damaged\n")
    assert headers.headers_of("torch-2.13", "cpu") == folder
    assert victim.read_bytes() == good


def test_a_machine_without_a_compiler_is_said_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = site_module.no_compiler("torch-2.13", "cpu")
    assert "needs a compiler" in reason and "apt-get install" in reason and "\n" not in reason
