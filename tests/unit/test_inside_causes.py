"""What a launch that looks for causes reads: verbose lines as old and new libraries write them, and files."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from tare.core.files import project_root
from tare.worker import frameworks, instruments, kernels, needed
from tare.worker.instruments import torch as torch_instruments

# As torch 2.13 (oneDNN 3.12, MKL 2024.2) and torch 1.11 (oneDNN 2.5) wrote them on a step of the CNN.
NEW_CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx512_core,backward_weights,"
    "src:f32:a:blocked:aBcd16b::f0 wei:f32:a:blocked:ABcd16b16a::f0 bia:f32:a:blocked:a::f0 "
    "dst:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,"
    "mb64_ic32oc64_ih26oh24kh3sh1dh0ph0_iw26ow24kw3sw1dw0pw0,7.396"
)
NEW_REORDER = (
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:blk,undef,src:f32::blocked:abcd::f0 "
    "dst:f32::blocked:Acdb16a::f0,attr-scratchpad:user,,32x1x3x3,0.00610352"
)
OLD_CONVOLUTION = (
    "onednn_verbose,exec,cpu,convolution,jit:avx512_common,forward_training,src_f32::blocked:abcd:f0 "
    "wei_f32::blocked:Acdb16a:f0 bia_f32::blocked:a:f0 dst_f32::blocked:aBcd16b:f0,attr-scratchpad:user ,"
    "alg:convolution_direct,mb64_ic1oc32_ih28oh26kh3sh1dh0ph0_iw28ow26kw3sw1dw0pw0,23.4639"
)
OLD_REORDER = (
    "onednn_verbose,exec,cpu,reorder,jit:blk,undef,src_f32::blocked:aBcd16b:f0 dst_f32::blocked:abcd:f0,,,"
    "64x32x26x26,24.0759"
)
SGEMM = (
    "MKL_VERBOSE SGEMM(T,N,128,64,9216,0x7ffea55d95f0,0x7f48f6b94040,9216,0x556725629400,9216,0x7ffea55d9610,"
    "0x556723db0f00,128) 8.66ms CNR:OFF Dyn:0 FastMM:1 TID:0  NThr:1"
)
OTHERS = (
    "onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost and bfloat16 support",
    "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,memory_descriptors",
    "onednn_verbose,info,prim_template:operation,engine,primitive,implementation,prop_kind,exec_time",
    "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64 architecture",
    "loss 0.5",
    "",
)


@pytest.mark.parametrize(
    ("line", "kernel", "shape", "seconds"),
    [
        (
            NEW_CONVOLUTION,
            "convolution jit:avx512_core backward_weights",
            "mb64_ic32oc64_ih26oh24kh3sh1dh0ph0_iw26ow24kw3sw1dw0pw0",
            7.396e-3,
        ),
        (NEW_REORDER, "reorder jit:blk", "32x1x3x3", 0.00610352e-3),
        (
            OLD_CONVOLUTION,
            "convolution jit:avx512_common forward_training",
            "mb64_ic1oc32_ih28oh26kh3sh1dh0ph0_iw28ow26kw3sw1dw0pw0",
            23.4639e-3,
        ),
        (OLD_REORDER, "reorder jit:blk", "64x32x26x26", 24.0759e-3),
    ],
)
def test_primitives_of_onednn(line, kernel, shape, seconds):
    assert kernels.parse_line(line) == ("onednn", kernel, shape, pytest.approx(seconds))


def test_calls_of_mkl_lose_addresses_and_keep_flags_and_sizes():
    assert kernels.parse_line(SGEMM) == ("mkl", "SGEMM T,N", "128,64,9216,9216,9216,128", pytest.approx(8.66e-3))
    elsewhere = SGEMM.replace("0x55", "0x7f").replace("8.66ms", "87.79us")
    assert kernels.parse_line(elsewhere)[:3] == kernels.parse_line(SGEMM)[:3]
    assert kernels.parse_line(elsewhere)[3] == pytest.approx(87.79e-6)


@pytest.mark.parametrize("line", [*OTHERS, SGEMM[:40], NEW_CONVOLUTION[:90]])
def test_other_lines_and_cut_ones_name_no_kernel(line):
    assert kernels.parse_line(line) is None


def test_only_the_step_after_the_separator_counts():
    text = "\n".join([SGEMM, NEW_REORDER, kernels.SEPARATOR, SGEMM, SGEMM, NEW_REORDER, *OTHERS])
    assert [(row["library"], row["calls"]) for row in kernels.of_text(text)] == [("mkl", 2), ("onednn", 1)]
    with pytest.raises(ValueError, match="cut short"):
        kernels.of_text(SGEMM)


def test_generated_names_lose_their_hash():
    name = "void cutlass_80_simt_sgemm_64x64_8x5_nn_align1"
    assert kernels.without_hash(name) == name
    assert kernels.without_hash("fused_kernel_3fa9c1d27be4a6") == kernels.without_hash(
        "fused_kernel_9bd04e55aa12cd"
    )


def pytorch():
    """The framework, imported."""
    framework = frameworks.of({})
    framework.import_()
    return framework


class Job:
    """A workload of one matrix product, as the module of a workload is seen from inside."""

    DESCRIPTION = types.MappingProxyType({"parameters": 0})

    class Training:
        def __init__(self, torch, device):
            self.model = torch.nn.Identity()
            self.weight = torch.ones(64, 32)

        def step(self, batch):
            return batch[0] @ self.weight


def test_a_forked_step_names_what_it_runs_and_leaves_its_parent_silent(tmp_path):
    """In a fresh process, as launches are: MKL asks once in its life whether to tell its calls."""
    spec = {"device": "cpu", "threads": 1, "record": str(tmp_path / "record.json")}
    code = (
        "import json, os, sys, torch, test_inside_causes as own; from tare.worker import kernels; "
        f"found = kernels.capture(own.pytorch(), own.Job, [torch.ones(16, 64)], json.loads({json.dumps(spec)!r})); "
        "print(json.dumps([found, 'MKL_VERBOSE' in os.environ]))"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), str(project_root())])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    found, told = json.loads(done.stdout)  # nothing else was printed
    assert found["reason"] is None and not told
    assert all(row["calls"] >= 1 and row["library"] in ("mkl", "onednn") for row in found["rows"])
    if torch.backends.mkl.is_available():
        assert any(row["kernel"].startswith("SGEMM") for row in found["rows"])


def test_a_step_that_fails_gives_its_reason(tmp_path):
    class Broken(Job):
        class Training(Job.Training):
            def step(self, batch):
                raise RuntimeError("no")

    spec = {"device": "cpu", "threads": 1, "record": str(tmp_path / "record.json")}
    found = kernels.capture(pytorch(), Broken, [torch.ones(1)], spec)
    assert found == {"rows": None, "reason": "the step that names its kernels ended with status 256"}


def test_a_framework_whose_children_can_not_follow_names_no_kernels_and_is_not_forked(tmp_path, monkeypatch):
    framework = pytorch()
    framework.can_fork = False
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it was forked"))
    spec = {"device": "cpu", "threads": 1, "record": str(tmp_path / "record.json")}
    found = kernels.capture(framework, Job, [torch.ones(1)], spec)
    assert found == {"rows": None, "reason": "torch does not go on in a forked process"}


def test_what_a_first_optimizer_imports_is_there_before_it():
    """In a fresh process: others of these tests have made optimizers."""
    code = (
        "import sys, test_inside_causes as own; framework = own.pytorch(); before = set(sys.modules); "
        "framework.import_late(); late = set(sys.modules) - before; between = set(sys.modules); "
        "weights = [framework.module.zeros(1, requires_grad=True)]; "
        "framework.module.optim.Adadelta(weights); framework.module.optim.Adam(weights); "
        "print('torch._dynamo' in late, sorted(set(sys.modules) - between))"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), str(project_root())])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "[]"], done.stderr


def test_operators_are_summed_over_the_recorded_steps():
    training = Job.Training(torch, "cpu")
    spec = {"device": "cpu", "warmup_steps": 1, "steps": 3}
    found = instruments.of(pytorch()).operators(training, [[torch.ones(16, 64)]], spec)
    calls = {row["kernel"]: row["calls"] for row in found["rows"]}
    assert (found["steps"], calls["aten::mm"]) == (3, 3)
    assert not any(name.startswith("ProfilerStep") for name in calls)


def test_an_annotation_on_the_devices_timeline_is_no_kernel():
    """The profiler repeats an optimizer's step there, over the whole time of its kernels."""

    def average(key, device, annotation):
        made = {"key": key, "device_type": f"DeviceType.{device}", "is_user_annotation": annotation}
        return types.SimpleNamespace(**made, count=1, self_cpu_time_total=3.0, self_device_time_total=5.0)

    rows = torch_instruments.rows_of(
        [
            average("Optimizer.step#SGD.step", "CPU", True),
            average("Optimizer.step#SGD.step", "CUDA", True),
            average("vectorized_add", "CUDA", False),
        ]
    )
    assert [(row["library"], row["kernel"], row["s"]) for row in rows] == [
        ("cuda", "vectorized_add", pytest.approx(5e-6)),
        ("operator", "Optimizer.step#SGD.step", pytest.approx(3e-6)),
    ]


def test_files_are_those_that_this_process_imported_and_mapped():
    modules, cached = needed.module_files(), torch.__cached__
    assert (cached if Path(cached).exists() else torch.__file__) in modules
    assert not any(needed.is_library(path) for path in modules)
    pages = dict(needed.library_pages())
    large = next(path for path in pages if path.endswith("libtorch_cpu.so"))
    touched = sum(count for _, count in pages[large])
    assert 100 < touched <= Path(large).stat().st_size // needed.PAGE_BYTES + 1


def test_runs_of_numbers():
    assert needed.runs({7, 3, 4, 5, 9, 8}) == [[3, 3], [7, 3]]
    assert needed.runs(set()) == []


def test_passes_count_what_they_read(tmp_path):
    module, library = tmp_path / "m.pyc", tmp_path / "l.so"
    module.write_bytes(b"x" * 5000)
    library.write_bytes(b"y" * 3 * needed.PAGE_BYTES)
    files = {"modules": [str(module)], "libraries": [[str(library), [[0, 1], [2, 1]]]]}
    assert needed.read(files["modules"]) == 5000
    found = needed.passes(files, 3)
    assert [len(found[key]) for key in ("stat_s", "read_s", "map_s")] == [3, 3, 3]
    assert (found["modules_bytes"], found["touched_bytes"]) == (5000, 2 * needed.PAGE_BYTES)
    assert min(needed.first_pass(files).values()) > 0


def test_a_file_that_this_tree_lacks_is_named():
    with pytest.raises(FileNotFoundError, match=r"lacks .*lib/nothing\.pyc, which the host's imports needed"):
        needed.in_this_tree({"modules": ["lib/nothing.pyc"], "libraries": []})
    assert needed.prefix() == str(Path(sys.executable).resolve().parent.parent)
