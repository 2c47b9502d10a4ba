"""Settings of the framework: as factors of a study, and as changes to a training job."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from asked import CONDITIONS, OF_A_STUDY, PART
from project import ROOT

from tare.cli import images as images_commands
from tare.core.errors import UnavailableError, UserError
from tare.images import headers
from tare.launch import sites
from tare.launch.conditions import program_environment
from tare.machine import fitting
from tare.model.studies import arms, campaigns, layout, loading, study
from tare.worker import frameworks, line, settings, train
from tare.worker.settings import amp, isa, onednn
from tare.worker.settings import compile as compilers
from tare.worker.settings import graph as captures
from workloads import mnist_cnn, sentiment_rnn

BATCH = 4


def images(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(BATCH, 1, 28, 28, generator=generator), torch.arange(BATCH)]


def pytorch():
    """The framework, imported."""
    framework = frameworks.of({})
    framework.import_()
    return framework


def job(wanted, workload=mnist_cnn):
    training = train.build_model(pytorch(), workload, {"settings": wanted})
    training.model.eval()  # dropout draws random numbers in another order where memory lies otherwise
    return training


# --- as factors


def test_a_setting_is_an_arm_of_every_environment_and_needs_no_image():
    arm = arms.parse("layout=channels-last")
    assert arm.is_setting and arm.is_optional and not arm.needs_image
    assert layout.slug_of(arm) == "layout-channels-last"
    assert layout.read_slug("layout-channels-last") == arm == arms.parse("layout=channels-last")
    assert arms.moves(arm, "host") and arms.moves(arm, "docker")
    assert arms.launch_names(arm, ["host"]) == ["host", "host.control", "host.headline"]


def test_unknown_levels_and_factors_are_named():
    with pytest.raises(UserError, match="amp has no level 'fp8'"):
        arms.parse("amp=fp8")
    with pytest.raises(UserError, match="no factor=level"):
        arms.parse("tf23=on")


def test_a_campaign_of_a_setting_holds_the_host_alone_and_its_launches_get_it():
    names = {campaign.name for campaign in campaigns.campaigns(loading.load_checked("config/full.yaml"))}
    assert {"rounds.host.amp-bf16", "rounds.host.compile-inductor", "rounds.host.tf32-on"} <= names
    levels = arms.levels_of({"stack": "same", "allocator": "steady", "page_cache": "warm"}, arms.parse("amp=bf16"))
    assert arms.conditions_at(OF_A_STUDY, levels).settings == {"amp": "bf16"}
    assert "settings" not in arms.conditions_at(OF_A_STUDY, {"allocator": "default", "stack": "same"}).to_json()


def test_the_headlines_own_level_is_no_arm():
    with pytest.raises(UserError, match="amp=off is the headline"):
        loading.load_checked(json.dumps({"study": "x", "arms": {"rounds": ["amp=off"]}}))


def test_settings_have_units_and_a_budget_of_their_own():
    settings = loading.load_checked("config/config.yaml").rounds
    settings = settings.replace(budget_s=9, arm_budget_s=8, setting_budget_s=7, setting_units=3, arm_units=5)
    found = campaigns.sampling_of(settings, 0.95, arms.parse("amp=bf16"))
    assert (found.units, found.budget_s) == (3, 7)
    found = campaigns.sampling_of(settings.replace(setting_budget_s=None), 0.95, arms.parse("amp=bf16"))
    assert found.budget_s == 8


def test_threads_are_a_condition_that_is_weighed_as_settings_are():
    arm = arms.parse("threads=2")
    assert arm.is_setting and not arm.is_inside and not arm.needs_image and arm.settings == {}
    assert arms.launch_names(arm, ["host"]) == ["host", "host.control", "host.headline"]
    levels = arms.levels_of({"stack": "same", "allocator": "default"}, arm)
    assert arms.conditions_at(OF_A_STUDY, levels).threads == 2
    assert layout.arm_of("rounds.host.threads-2") == arm


@pytest.mark.parametrize(
    ("level", "says"), [("1", "is the headline"), ("3", "more than conditions: cpus, 2"), ("0", "no level '0'")]
)
def test_a_number_of_threads_that_can_not_be_weighed_is_refused(level, says):
    with pytest.raises(UserError, match=says):
        loading.load_checked(json.dumps({"study": "x", "arms": {"rounds": [f"threads={level}"]}}))


def test_huge_pages_are_a_level_of_the_allocator():
    found = program_environment(CONDITIONS.replace(allocator="huge"), ROOT, 0)
    steady = program_environment(CONDITIONS, ROOT, 0)
    assert found == {**steady, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


@pytest.mark.parametrize("name", ["tf32=on", "graph=capture", "cudnn=benchmark"])
def test_what_needs_a_device_says_so_on_a_cpu(name):
    assert "needs a CUDA device" in arms.impossible(arms.parse(name), "cpu")
    assert arms.impossible(arms.parse(name), "cuda") is None


def test_device_auto_becomes_what_the_machine_has(monkeypatch):
    """By the machine that measures: checking a study asks no machine."""
    monkeypatch.setattr(fitting, "fitting_device", lambda stack: ("cuda", "a GPU"))
    whole = loading.load_checked('{"study": "x", "device": "auto"}')
    assert (whole.device, fitting.settled(whole).device) == ("auto", "cuda")
    part = loading.load_part(study.RoundsPart, study.part_of(whole, "rounds", "mnist_cnn"))
    assert (part.device, fitting.settled(part).device) == ("auto", "cuda")
    assert fitting.settled(whole.replace(device="cpu")).device == "cpu"


def test_the_lock_that_is_built_is_of_the_same_device(monkeypatch):
    seen = []
    monkeypatch.setattr(fitting, "fitting_device", lambda stack: ("cuda", stack))
    command = images_commands._with_variant(lambda arguments: seen.append(arguments.variant) or 0)
    for variant in ("auto", "cpu"):
        command(SimpleNamespace(stack="torch-2.13", variant=variant))
    assert seen == ["cuda", "cpu"]


@pytest.mark.parametrize(
    ("stack", "capability", "device", "why"),
    [
        ("torch-2.13", "6.1", "cpu", "Volta"),
        ("torch-2.13", "7.0", "cpu", "CUDA 13.0 of torch-2.13 needs 7.5"),
        ("torch-2.13", "9.0", "cuda", "GPU"),
        ("paper-2022", "7.0", "cuda", "GPU"),
        ("bound", "7.0", "cuda", "GPU"),
    ],
)
def test_devices_that_the_tools_or_the_stack_do_not_know_are_not_taken(monkeypatch, stack, capability, device, why):
    monkeypatch.setattr(fitting, "gpus", lambda: ({"name": "GPU", "compute_capability": capability},))
    found, reason = fitting.fitting_device(stack)
    assert found == device and why in reason


# --- as changes to a training job


def test_mixed_precision_computes_in_bf16_and_keeps_weights_in_fp32():
    plain, mixed = job({}), job({"amp": "bf16"})
    seen = []
    mixed.model[2].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    first, second = plain.step(images()), mixed.step(images())
    assert seen == [torch.bfloat16]
    assert {p.dtype for p in mixed.model.parameters()} == {torch.float32}
    assert first != second and second == pytest.approx(float(first), rel=0.05)


def test_channels_last_changes_where_numbers_lie_and_not_what_they_are():
    plain, other = job({}), job({"layout": "channels-last"})
    seen = []
    other.model[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    losses = [[float(training.step(images(seed))) for seed in range(3)] for training in (plain, other)]
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert other.model[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_what_a_workload_cannot_have_is_refused_with_the_reason():
    with pytest.raises(settings.Unable, match="no filter of four dimensions"):
        job({"layout": "channels-last"}, sentiment_rnn)
    with pytest.raises(settings.Unable, match=r"^torch\.compile compiles nothing of a model with RNN$"):
        job({"compile": "inductor"}, sentiment_rnn)
    with pytest.raises(settings.Unable, match="streams of a CUDA device"):
        job({"graph": "capture"})
    with pytest.raises(settings.Unable, match="use amp=bf16"):
        job({"amp": "fp16"})


def test_a_workload_without_a_loss_of_its_own_says_what_is_missing():
    class Bare:
        model = torch.nn.Conv2d(1, 1, 1)
        optimizer = None

    with pytest.raises(settings.Unable, match=r"loss\(batch\)"):
        settings.apply(pytorch(), Bare(), {"amp": "bf16"})


def test_the_framework_can_lack_a_compiler():
    class Old:
        __version__ = "1.11.0"

    old = frameworks.of({})
    old.module = Old
    with pytest.raises(settings.Unable, match=r"torch 1\.11\.0 has no torch\.compile"):
        settings.apply(old, None, {"compile": "inductor"})


@pytest.fixture
def switches():
    backends = torch.backends
    kept = backends.cudnn.benchmark, backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32
    yield
    backends.cudnn.benchmark, backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32 = kept


# Runs a step with oneDNN's own words on; the first line of its output is what the framework says of itself.
ONE_STEP = """
import json, sys
from tare.worker import frameworks, settings, train
from workloads import mnist_cnn
wanted = json.loads(sys.argv[1])
framework = frameworks.of({})
settings.begin(framework, wanted)
framework.import_()
training = train.build_model(framework, mnist_cnn, {"settings": wanted})
torch = framework.module
print(torch.backends.cpu.get_cpu_capability(), framework.facts()["switches"]["onednn"], flush=True)
print(float(training.step([torch.ones(4, 1, 28, 28), torch.arange(4)])))
"""


def one_step(**wanted):
    variables = {**os.environ, "ONEDNN_VERBOSE": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-c", ONE_STEP, json.dumps(wanted)]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_kernels_are_of_no_newer_processor_than_the_setting_says():
    found = one_step(isa="sse4")
    assert "DEFAULT True" in found and "isa:Intel SSE4.1" in found
    executed = [line for line in found.splitlines() if ",exec," in line]
    assert executed and not any(newer in line for line in executed for newer in ("avx", "amx"))


def test_without_onednn_none_of_its_primitives_runs():
    found = one_step(onednn="off")
    assert " False" in found and ",exec," not in found


def test_a_release_without_the_switch_says_so():
    old = SimpleNamespace(__name__="torch", __version__="1.4.0", backends=SimpleNamespace(mkldnn=object()))
    with pytest.raises(settings.Unable, match=r"torch 1\.4\.0 has no switch for oneDNN"):
        onednn.prepare(old, "off")
    for module, level in ((onednn, "off"), (isa, "sse4")):
        with pytest.raises(settings.Unable, match="from the package index has no oneDNN"):
            module.prepare(SimpleNamespace(__name__="tensorflow", __version__="2.1.0"), level)
        module.prepare(SimpleNamespace(__name__="tensorflow", __version__="2.21.0"), level)


@pytest.mark.parametrize("name", ["cntk", "jax", "mxnet", "numpy"])
def test_limits_of_instructions_are_pytorchs_and_tensorflows(name):
    with pytest.raises(settings.Unable, match=f"{name} has no setting isa=sse4"):
        settings.begin(frameworks.of({"framework": name}), {"isa": "sse4"})


class Refusing(torch.nn.Module):
    """A model that TorchScript can't compile."""

    def forward(self, *images, **other):
        return images[0]


def test_a_compiler_that_refuses_a_model_is_quoted_in_one_line():
    """As a launch's record shortens what it raises."""
    with pytest.raises(Exception, match="variable number of arguments") as raised:
        settings.apply(pytorch(), SimpleNamespace(model=Refusing()), {"compile": "torchscript"})
    said = line.reason_of(raised.value)
    assert "\n" in str(raised.value).strip() and "\n" not in said and len(said) < 320
    assert said.startswith("NotSupportedError: Compiled functions can't take variable number of arguments")


class Interrupted(torch.nn.Module):
    """A model that torch.compile can't have in one graph."""

    def forward(self, images):
        images = images + 1
        torch._dynamo.graph_break()
        return images * 2


def test_breaks_between_the_graphs_of_a_model_are_counted(monkeypatch):
    monkeypatch.setattr(compilers, "SCRIPTED", {})
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.compile(Interrupted(), backend="eager")(torch.zeros(2))
    assert pytorch().facts()["compiled"] == {"graphs": 2, "operators": 2, "breaks": 1}
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert pytorch().facts()["compiled"] is None


def test_facts_say_how_the_switches_stand(switches):
    settings.prepare(pytorch(), {"tf32": "on", "cudnn": "benchmark"})
    found = pytorch().facts()["switches"]
    assert found["tf32_products"] and found["tf32_convolutions"] and found["cudnn_benchmark"]
    settings.prepare(pytorch(), {"tf32": "off"})
    assert not pytorch().facts()["switches"]["tf32_products"]


def test_a_whole_run_compiles_in_its_own_folder_and_what_names_one_keeps_what_it_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    settings.prepare(pytorch(), {"compile": "inductor"})
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/kept")
    settings.prepare(pytorch(), {"compile": "inductor"})
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/kept"


# Imports a workload as a launch does, then says with how many processes the compiler would compile.
COMPILE_THREADS = """
import sys
from tare.worker.marks import Marks, now_ns
from tare.worker.train import import_workload
import_workload({"workload": "mnist_cnn", "settings": {"compile": "inductor"}}, Marks(now_ns()), 1)
import torch._inductor.config
print(torch._inductor.config.compile_threads)
"""


def test_the_compiler_is_told_to_compile_in_one_process_before_it_is_imported():
    """It would take a process for each processor, and torchvision imports it by itself."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TORCHINDUCTOR_")}
    argv = [sys.executable, "-c", COMPILE_THREADS]
    done = subprocess.run(
        argv, env={**variables, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "1\n", done.stderr[-2000:]


class Recorded:
    """Stands for torch.cuda where a graph is captured: the captured step runs again at each replay."""

    class Stream:
        def wait_stream(self, other):
            pass

    class CUDAGraph:
        step = None

        def replay(self):
            self.step()

    @staticmethod
    def current_stream():
        return Recorded.Stream()

    @staticmethod
    def get_rng_state():
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state):
        torch.set_rng_state(state)


def recorded_capture(training):
    captured = captures.Captured(torch, training)
    assert {group["capturable"] for group in training.optimizer.param_groups} == {True}
    for group in training.optimizer.param_groups:  # on a CPU the optimizer refuses to step so
        group["capturable"] = False
    captured.torch = type("T", (), {"cuda": Recorded, "is_tensor": torch.is_tensor, "no_grad": torch.no_grad})
    return captured


def test_steps_that_warm_a_capture_up_leave_no_trace():
    """Weights, the optimizer's state and the random numbers are as before: replays train as plain steps do."""
    training = job({})
    training.step(images(1))
    captured = recorded_capture(training)
    weights = [p.detach().clone() for p in training.model.parameters()]
    state = [v["square_avg"].clone() for v in training.optimizer.state.values()]
    before = captured.snapshot()
    numbers = torch.get_rng_state()
    for _ in range(captures.GRAPH_WARMUP_STEPS):
        captured.plain(images(2))
        torch.rand(1)
    assert any(not torch.equal(a, b) for a, b in zip(weights, training.model.parameters(), strict=True))
    captured.restore(before)
    assert all(torch.equal(a, b) for a, b in zip(weights, training.model.parameters(), strict=True))
    assert all(
        torch.equal(a, b["square_avg"]) for a, b in zip(state, training.optimizer.state.values(), strict=True)
    )
    assert torch.equal(numbers, torch.get_rng_state())


def test_state_that_only_the_warm_up_made_begins_at_zero():
    training = job({})
    captured = recorded_capture(training)
    before = captured.snapshot()
    captured.plain(images(3))
    captured.restore(before)
    assert all(not v["square_avg"].any() for v in training.optimizer.state.values())


def test_a_capture_lets_a_loaders_thread_pin_memory_where_the_framework_can_say_so():
    class Graph:
        def __init__(self, cuda_graph, capture_error_mode="global"):
            pass

    class Old:
        def __init__(self, cuda_graph):
            pass

    captured = recorded_capture(job({}))
    for graph, wanted in ((Graph, {"capture_error_mode": "thread_local"}), (Old, {})):
        captured.torch.cuda = type("C", (), {"graph": graph})
        assert captured.strictness() == wanted
    captured.torch.cuda = torch.cuda
    assert captured.strictness() == {"capture_error_mode": "thread_local"}


def test_frameworks_before_2_3_have_the_scaler_in_another_place():
    class Plain:
        def __init__(self, *device):
            self.device = device

    def framework(**amp):
        cuda = type("C", (), {"amp": type("A", (), {"GradScaler": Plain})})
        return type("T", (), {"cuda": cuda, **amp})

    def scaler(torch):
        return amp.scaled_step(torch, None).__closure__[0].cell_contents

    assert scaler(framework()).device == ()
    assert scaler(framework(amp=type("A", (), {}))).device == ()
    assert scaler(framework(amp=type("A", (), {"GradScaler": Plain}))).device == ("cuda",)


def test_headers_that_can_not_be_had_are_the_reason_why_nothing_compiles(monkeypatch):
    """As where the distribution's Python came without: the arm's campaign has no units, and the study goes on."""

    def none(*_):
        raise UnavailableError("/usr/bin/python3.13 has no headers", "apt-get install python3.13-dev")

    monkeypatch.setattr(headers, "compiler", lambda device: "g++")
    monkeypatch.setattr(headers, "python_headers", none)
    reason = sites.no_compiler(PART.stack, PART.device)
    assert "has no headers" in reason and "python3.13-dev" in reason
