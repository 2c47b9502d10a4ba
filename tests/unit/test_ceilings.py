"""The ceilings: how they are taken, what their record says, how likwid-bench's output is read."""

import os

import builders
import likwid
import pandas as pd
import pytest
from campaign_builders import inside as inside_of

from tare.analysis.capacity import ceilings
from tare.core.errors import UnavailableError
from tare.model.records.measured import CeilingsRecord
from tare.model.schema import parse
from tare.worker import ceilings as inside
from tare.worker import repeated

CACHES = {"L1d": 48 << 10, "L1i": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
SPEC = {
    "device": "cpu", "threads": 1, "seed": 0, "repetitions": 2, "working_sets_kib": [64], "gemm_sizes": [32, 64],
}  # fmt: skip


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def record(**changed):
    base = {
        **{"study": "s", "env": "host", "status": "ok", "reason": None, "device": "cpu"},
        "machine": {"cpu_caches_bytes": CACHES},
        "inside": inside_of("host", "ceilings", results=builders.ceilings_results()),
    }
    return parse(CeilingsRecord, {**base, **changed}, "ceilings")


@pytest.mark.parametrize(
    ("size", "threads", "level"),
    [
        (32 << 10, 1, "L1"),
        (40 << 10, 1, "L2"),
        (40 << 10, 2, "L1"),
        (512 << 10, 1, "L2"),
        (8 << 20, 1, "L3"),
        (30 << 20, 1, "between"),
        (64 << 20, 1, "between"),
        (128 << 20, 1, "DRAM"),
    ],
)
def test_a_working_set_lies_in_the_level_that_it_fits_with_room(size, threads, level):
    assert ceilings.level_of(size, CACHES, threads) == level


def test_without_sizes_of_caches_there_is_no_level():
    assert ceilings.level_of(1 << 20, None) == "unknown"
    old = record(machine=None)
    assert ceilings.levels(old) == {}
    assert ceilings.memory(old)["bytes_per_s"] == 1.1e10


def test_caches_of_the_processor_say_nothing_about_another_device():
    assert set(ceilings.bandwidths(record(device="cuda"))["level"]) == {"unknown"}


def test_levels_keep_their_best_and_memory_its_traffic():
    table = ceilings.bandwidths(record())
    assert list(table["level"]) == ["L2", "L2", "between", "between", "DRAM", "DRAM"]
    assert {name: row["bytes_per_s"] for name, row in ceilings.levels(record()).items()} == {
        "L2": 9e10,
        "DRAM": 1.1e10,
    }
    traffic = table[table["level"] == "DRAM"].set_index("kernel")["traffic_bytes_per_s"]
    assert traffic.to_dict() == pytest.approx({"copy": 1.65e10, "triad": 1.1e10 * 4 / 3})
    assert table[table["level"] != "DRAM"]["traffic_bytes_per_s"].isna().all()
    assert table["spread"].tolist() == pytest.approx([0.25] * 6) and set(table["repetitions"]) == {2}


def test_the_best_product_of_a_precision_is_its_roof():
    peaks = ceilings.peaks(
        record(modelled={"kind": "modelled", "peak_flop_per_s": {"float32": 8e10}, "reason": None})
    )
    assert list(peaks) == ["bfloat16", "float32", "float64"]
    assert (peaks["float32"]["kernel"], peaks["float32"]["flop_per_s"]) == ("onednn", 7.2e10)
    assert peaks["float32"]["share"] == pytest.approx(0.9)
    assert pd.isna(peaks["bfloat16"]["share"])
    assert ceilings.skipped(record()) == ["float16 (mm, n = 1024): it would take 0.9 s"]


def test_claims_come_from_a_datasheet_or_a_model_or_say_why_not():
    sheet = {
        "peak_flop_per_s": {"fp32": 67e12, "fp16_tensor": 9e14},
        "memory_bytes_per_s": 3e12,
        "document": "The X",
    }
    assert ceilings.claimed(record(datasheet=sheet)) == {"float32": 67e12, "float16": 9e14}
    assert ceilings.claimed_memory(record(datasheet=sheet)) == (3e12, "datasheet (The X)")
    assert ceilings.claimed(record()) == {} and "unavailable" in ceilings.claim_source(record())
    model = {"kind": "unavailable", "peak_flop_per_s": {}, "reason": "no clock", "memory_reason": "hidden"}
    assert ceilings.claim_source(record(modelled=model)) == "unavailable: no clock"
    assert ceilings.claimed_memory(record(modelled=model)) == (None, "hidden")


def test_a_small_pass_is_repeated_inside_a_call_and_writes_only_its_own_array(torch):
    case = inside.bandwidth_case(torch, "cpu", 2, "triad", 96 * 1024)
    passes = case.row["passes_per_call"]
    assert passes > 1 and case.amount >= inside.LEAST_CALL_BYTES
    assert 96 * 1024 <= case.row["working_set_bytes"] + 3 * 2 * 64 <= 1.1 * 96 * 1024
    view = inside.region(torch, "cpu", 2, 1024, 3)
    assert view.shape == (2, 2, 2, 2, 1024) and view.stride() == (1024 + 48, 16, 16, 16, 1)
    reach = sum((size - 1) * stride for size, stride in zip(view.shape, view.stride(), strict=True)) + 1
    assert reach == view.untyped_storage().nbytes() // 4
    case.make()()


def test_a_large_pass_is_a_call_of_its_own_and_a_device_never_overlaps(torch):
    assert inside.bandwidth_case(torch, "cpu", 1, "copy", 64 << 20).row["passes_per_call"] == 1
    assert inside.doublings("cuda", 1024) == 0


def test_every_case_keeps_all_its_repetitions(torch, monkeypatch):
    monkeypatch.setattr(repeated, "MIN_TIMED_S", 1e-4)
    bandwidth, _ = inside.bandwidth_rows(torch, SPEC)
    assert [row["kernel"] for row in bandwidth] == ["copy", "triad"]
    products, _ = inside.gemm_rows(torch, {**SPEC, "gemm_sizes": [32]})
    assert {row["precision"] for row in products} >= {"float32", "float64"}
    for row, key in [(row, "bytes_per_s") for row in bandwidth] + [(row, "flop_per_s") for row in products]:
        assert len(row[f"all_{key}"]) == 2 and row[key] == max(row[f"all_{key}"]) > 0


def test_a_product_that_takes_too_long_is_left_out_with_its_reason(torch, monkeypatch):
    monkeypatch.setattr(repeated, "MIN_TIMED_S", 1e-4)
    monkeypatch.setattr(inside, "MOST_CALL_S", 1e-12)
    rows, skipped = inside.gemm_rows(torch, SPEC)
    assert {row["size"] for row in rows} == {32} and {row["size"] for row in skipped} == {64}
    assert all("over the limit" in row["reason"] for row in skipped)


def test_what_a_framework_can_not_do_is_left_out_with_its_reason(torch):
    case = inside.product_case(torch, "cpu", "no_such_type", 32, "mm")
    rate, reason = inside.try_out(torch, "cpu", case)
    assert rate is None and reason.startswith("torch ")


def test_output_of_likwid_bench():
    output = "Time:\t\t7.88e-04 sec\nMFlops/s:\t\t1500.50\nMByte/s:\t\t152016.69\nCycles:\t1\n"
    assert likwid.parse(output, "") == (152016.69e6, 1500.5e6)
    with pytest.raises(UnavailableError, match="gave no rate: it broke"):
        likwid.parse("MByte/s:\t\tnan\n", "it broke")


def test_two_comparisons_keep_the_best_of_both_programs():
    one = likwid.Comparison(kernel="copy", size=1, likwid_kernel="c", ours_per_s=8.0, likwid_per_s=10.0)
    two = likwid.Comparison(kernel="copy", size=1, likwid_kernel="c", ours_per_s=9.5, likwid_per_s=9.0)
    assert one.ratio == 0.8 and one.joined(two).ratio == pytest.approx(0.95) and two.joined(None) is two


def test_sizes_to_compare_lie_in_their_levels():
    for level, size in likwid.sizes(CACHES).items():
        assert ceilings.level_of(size, CACHES) == level


# --- on a CUDA device


def cuda_record(l2_bytes=50 << 20):
    """As `tare ceilings` writes it on an H100 with 50 MiB of second-level cache; rates written for the purpose."""
    mib = 1 << 20

    def row(kernel, size, rate):
        return {
            "kernel": kernel,
            "working_set_bytes": size,
            "bytes_per_s": rate,
            "all_bytes_per_s": [rate * 0.99, rate],
        }

    def product(precision, rate):
        names = {"precision": precision, "size": 8192, "kernel": "mm"}
        return {**names, "flop_per_s": rate, "all_flop_per_s": [rate * 0.98, rate]}

    results = {
        "threads": 8,
        "bandwidth": [row("copy", 12 * mib, 6e12), row("copy", 48 * mib, 5e12), row("copy", 4096 * mib, 3.0e12)],
        "skipped_bandwidth": [
            {"kernel": "triad", "working_set_bytes": 12 * mib, "reason": "torch 2.6: no compiler"}
        ],
        "gemm": [
            product("float32", 5e13),
            product("tf32", 4e14),
            product("bfloat16", 7.9e14),
            product("float64", 6e13),
        ],
        "skipped": [
            {"precision": "float8_e4m3fn", "size": 2048, "kernel": "mm", "reason": "torch 2.6: no such call"}
        ],
    }
    device = {"name": "NVIDIA H100 80GB HBM3", "l2_bytes": l2_bytes}
    sheet = {
        "document": "a datasheet",
        "peak_flop_per_s": {"fp32": 6.7e13, "tf32_tensor": 4.94e14, "bf16_tensor": 9.89e14, "fp64": 3.4e13,
                            "fp64_tensor": 6.7e13},
        "memory_bytes_per_s": 3.35e12,
    }  # fmt: skip
    written = inside_of("host", "ceilings", results=results)
    written["facts"]["torch"]["device"] = device
    return record(
        device="cuda",
        datasheet=sheet,
        machine={"cpu_caches_bytes": {"L1d": 1 << 15, "L2": 1 << 30}},
        inside=written,
    )


def test_the_second_level_cache_of_a_device_is_a_level_of_its_own():
    """The processor's caches and threads have no part in it: 48 MiB fills more than three quarters of 50 MiB."""
    table = ceilings.bandwidths(cuda_record())
    assert table["level"].tolist() == ["L2", "between", "DRAM"]
    assert table["traffic_bytes_per_s"].isna().all(), "a device writes whole lines without reading them first"
    assert list(ceilings.levels(cuda_record())) == ["L2", "DRAM"]
    assert ceilings.memory(cuda_record())["bytes_per_s"] == 3.0e12


def test_a_device_whose_cache_nobody_knows_has_no_levels():
    assert set(ceilings.bandwidths(cuda_record(None))["level"]) == {"unknown"}


def test_each_precision_stands_beside_its_own_peak():
    table = ceilings.products(cuda_record()).set_index("precision")
    assert table.loc["tf32", "modelled_flop_per_s"] == 4.94e14
    assert table.loc["float64", "modelled_flop_per_s"] == 6.7e13, "libraries take the tensor cores for fp64 too"
    assert table.loc["bfloat16", "share"] == pytest.approx(7.9e14 / 9.89e14)
    assert next(iter(ceilings.peaks(cuda_record()))) == "bfloat16"


def test_what_was_left_out_on_a_device_has_its_reason():
    assert ceilings.skipped(cuda_record()) == [
        "float8_e4m3fn (mm, n = 2048): torch 2.6: no such call",
        "triad of 12288 KiB: torch 2.6: no compiler",
    ]


def test_small_working_sets_on_a_device_are_passed_over_inside_one_launch(torch, monkeypatch):
    calls = []

    class Properties:
        multi_processor_count = 132

    def compiled(framework, name):
        assert f"void {name}(" in inside.CUDA_PASSES
        return lambda grid, block, arguments: calls.append((name, grid, block, arguments[-2:]))

    monkeypatch.setattr(inside, "compiled", compiled)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, device=None, **more: ones(*size, **more))
    case = inside.compiled_case(torch, "triad", 12 << 20)
    case.make()()
    elements = (12 << 20) // 3 // 16
    assert case.row["working_set_bytes"] == 3 * elements * 16
    assert calls == [("triad_passes", (132 * 8, 1, 1), (256, 1, 1), [elements, case.row["passes_per_call"]])]
    assert (
        case.amount
        == case.row["working_set_bytes"] * case.row["passes_per_call"]
        >= 0.99 * inside.CUDA_PASSES_BYTES
    )


def test_a_framework_that_cannot_compile_a_kernel_leaves_those_sizes_out_with_the_reason(torch, monkeypatch):
    def compiled(framework, name):
        raise RuntimeError("no NVRTC here\nand more")

    monkeypatch.setattr(inside, "compiled", compiled)
    rows, skipped = inside.bandwidth_rows(torch, {**SPEC, "device": "cuda", "working_sets_kib": [12288]})
    assert rows == [] and [row["kernel"] for row in skipped] == ["copy", "triad"]
    assert skipped[0]["reason"] == f"torch {torch.__version__}: no NVRTC here"


def test_a_kernel_is_compiled_in_a_context_and_without_a_toolkit(torch, monkeypatch):
    """The framework makes no context for it, and refuses where no CUDA_HOME is known."""
    done = []

    def compile_kernel(source, name):
        done.append(os.environ["CUDA_HOME"])
        return name

    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(torch, "ones", lambda *size, device: done.append(device))
    monkeypatch.setattr(torch.cuda, "_compile_kernel", compile_kernel)
    assert inside.compiled(torch, "copy_passes") == "copy_passes"
    assert done == ["cuda", inside.TOOLKIT] and "CUDA_HOME" not in os.environ
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    inside.compiled(torch, "copy_passes")
    assert done[-1] == os.environ["CUDA_HOME"] == "/opt/cuda"
