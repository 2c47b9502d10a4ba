"""From counters of kernels to bytes, transactions and FLOPs; every expectation is worked out in a comment."""

from pathlib import Path

import pandas as pd
import pytest

from tare.core.errors import UnavailableError
from tare.profilers import counters, ncu, nvprof
from tare.profilers.printed import METRIC_COLUMNS

DATA = Path(__file__).parent.parent / "data"
# Names of counters as `ncu --query-metrics --chips …` of Nsight Compute 2024.1 lists them, without ".sum".
EVERYWHERE = {
    "gpu__time_duration", "dram__bytes_read", "dram__bytes_write", "dram__sectors_read", "dram__sectors_write",
    "sm__inst_executed_pipe_tensor",
    *(f"smsp__sass_thread_inst_executed_op_{t}{o}_pred_on" for t in "dfh" for o in ("add", "mul", "fma")),
}  # fmt: skip
PATHS = {
    (7, 0): {"fp16_dst_fp16", "fp16_dst_fp32"},
    (7, 5): {"fp16_dst_fp16", "fp16_bf16_tf32_dst_fp32", "int1", "int4", "int8"},
    (8, 0): {"bf16_dst_fp32", "fp16_dst_fp16", "fp16_dst_fp32", "fp64", "int1", "int4", "int8", "tf32_dst_fp32"},
    (9, 0): {"bf16_dst_fp32", "fp16", "fp64", "fp8", "int1", "int8", "tf32_dst_fp32"},
}
PATHS |= {(7, 2): PATHS[7, 0], (8, 6): PATHS[8, 0], (8, 9): PATHS[8, 0] | {"fp8"}}


def of_ncu(**changes):
    text = (DATA / "ncu_long.csv").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return ncu.read_metrics(text, "ncu")


def of_nvprof(name="metrics.log"):
    return nvprof.read((DATA / f"nvprof_{name}").read_text(), name).metrics


def values(table):
    return {name: quantity.value for name, quantity in counters.quantities(table).items()}


def metric_table(*rows):
    """Rows of kernel, invocations, metric, average, unit."""
    return pd.DataFrame(
        [
            [int(kernel[1:]), kernel, calls, metric, unit, mean, mean, mean, mean, unit]
            for kernel, calls, metric, mean, unit in rows
        ],
        columns=METRIC_COLUMNS,
    )


@pytest.mark.parametrize("capability", sorted(PATHS))
def test_every_name_that_ncu_is_asked_for_exists_on_the_chip(capability):
    asked = counters.ncu_metrics(capability)
    assert len(set(asked)) == len(asked)
    known = EVERYWHERE | {f"sm__ops_path_tensor_src_{name}" for name in PATHS[capability]}
    assert all(name.endswith(".sum") and name.removesuffix(".sum") in known for name in asked)
    assert {name.removesuffix(".sum") for name in asked} >= EVERYWHERE


def test_floating_point_on_tensor_cores_is_asked_for_whole():
    for capability, paths in PATHS.items():
        floating = {name for name in paths if not name.startswith("int")}
        assert {f"sm__ops_path_tensor_src_{name}.sum" for name in floating} <= set(counters.ncu_metrics(capability))


def test_devices_that_ncu_does_not_know_and_those_that_nobody_verified():
    with pytest.raises(UnavailableError, match=r"6\.1.*nvprof"):
        counters.ncu_metrics((6, 1))
    assert counters.ncu_metrics((12, 0)) == (*counters.BLACKWELL_DRAM, *counters.COMMON)


def test_work_of_launches_is_added():
    found = values(of_ncu())
    assert found["counted_kernels"] == 2
    assert found["counted_kernel_s"] == pytest.approx(2e-3)  # 1500 + 500 us
    assert found["dram_read_bytes"] == pytest.approx(3e6)  # 2.5 + 0.5 MB
    assert found["dram_write_bytes"] == pytest.approx(1e6)  # 640 + 360 kB
    assert (found["dram_read_sectors"], found["dram_write_sectors"]) == (93_750, 31_250)
    assert found["hbm_transactions"] == 125_000
    assert found["hbm_transactions"] * 32 == found["dram_read_bytes"] + found["dram_write_bytes"]
    # by time: 3 MB in 2 ms; a mean of kernels would be (2.5 / 1.5 + 0.5 / 0.5) / 2 = 1.33 GB/s
    assert found["dram_read_bytes_per_s"] == pytest.approx(1.5e9)


def test_flops_are_additions_multiplications_and_two_for_each_fused():
    found = values(of_ncu())
    assert found["flops_fp32"] == 1000 + 2000 + 2 * 4000 + 10 + 20 + 2 * 40
    assert found["flops_fp16"] == 3 + 5 + 2 * 7
    assert found["flops_fp64"] == 0
    tensor = {name: found[f"flops_tensor_{name}"] for name in counters.TENSOR}
    assert tensor == {"fp16": 16384, "bf16": 8192, "tf32": 0, "fp8": 0, "fp64": 0, "int8": 512}
    # whole numbers on tensor cores are no FLOPs
    assert found["flops_measured"] == 11_110 + 22 + 16384 + 8192


def test_a_launch_that_could_not_be_counted_makes_the_sum_unavailable():
    found = counters.quantities(of_ncu(**{'"2.50"': '"n/a"'}))
    assert found["dram_read_bytes"].value is None
    assert found["dram_read_bytes"].note == "dram__bytes_read.sum is n/a or overflowed for 1 of 2 kernels"
    assert found["dram_read_bytes_per_s"].value is None
    assert found["dram_write_bytes"].value == pytest.approx(1e6)


def test_a_type_that_was_not_collected_is_no_zero():
    table = of_ncu()
    without = table[~table["metric"].str.contains("src_bf16")]
    found = counters.quantities(without)
    assert found["flops_tensor_bf16"].value is None
    assert found["flops_measured"].value is None and "bf16" in found["flops_measured"].note
    # not even where the table does not say which device it was
    unknown = without[~without["metric"].str.contains("capability")]
    assert counters.quantities(unknown)["flops_tensor_bf16"].value is None
    assert counters.quantities(unknown)["flops_tensor_fp16"].value == 16384


def test_what_a_generation_does_not_have_is_zero():
    capability = [
        ("k1", 1, "device__attribute_compute_capability_major", 8, "1"),
        ("k1", 1, "device__attribute_compute_capability_minor", 0, "1"),
        ("k1", 1, "sm__inst_executed_pipe_tensor.sum", 5, "1"),
    ]
    assert counters.quantities(metric_table(*capability))["flops_tensor_fp8"].value == 0


def test_an_idle_tensor_pipe_is_zero_for_every_type():
    found = values(metric_table(("k1", 3, "sm__inst_executed_pipe_tensor.sum", 0, "1")))
    assert all(found[f"flops_tensor_{kind}"] == 0 for kind in counters.TENSOR)


def test_on_volta_an_instruction_of_the_pipe_stands_for_512_operations():
    rows = [
        ("k1", 1, "device__attribute_compute_capability_major", 7, "1"),
        ("k1", 1, "device__attribute_compute_capability_minor", 0, "1"),
        ("k1", 1, "sm__inst_executed_pipe_tensor.sum", 10, "1"),
    ]
    found = counters.quantities(metric_table(*rows))["flops_tensor_fp16"]
    assert (found.value, found.kind) == (5120, "modelled")
    ampere = counters.quantities(metric_table(("k1", 1, rows[0][2], 8, "1"), *rows[1:]))["flops_tensor_fp16"]
    assert ampere.value is None


def test_nvprof_weighs_averages_by_invocations():
    found = values(of_nvprof())
    assert found["counted_kernels"] == 5
    assert found["dram_read_sectors"] == 4 * 1000 + 4000
    assert found["dram_write_sectors"] == 4 * 500 + 2000
    assert found["hbm_transactions"] == 12_000
    assert found["dram_read_bytes"] == 8000 * 32
    # the sum of the largest invocations, each kernel once, would be 34,000
    assert found["flops_fp32"] == 4 * 20_000 + 4000
    assert found["flops_measured"] == 84_000  # tensor cores were idle


def test_a_rate_is_bytes_by_time_and_a_share_weighs_by_time():
    found = values(of_nvprof())
    # 31.25 MB/s are 31.25 x 2^20 B/s for both kernels: 4000 x 32 B each take the same time
    assert found["dram_read_bytes_per_s"] == pytest.approx(31.25 * 2**20)
    assert found["counted_kernel_s"] == pytest.approx(2 * 4000 * 32 / (31.25 * 2**20))
    assert found["dram_write_bytes_per_s"] == pytest.approx(31.25 * 2**20 / 2)
    assert found["warp_execution_efficiency"] == pytest.approx((95 + 50) / 2)


def test_without_time_a_share_weighs_by_invocations():
    table = of_nvprof()
    table = table[~table["metric"].str.endswith("throughput")]
    assert values(table)["warp_execution_efficiency"] == pytest.approx((4 * 95 + 50) / 5)
    assert values(table)["dram_read_bytes_per_s"] is None


def test_a_kernel_that_read_nothing_takes_its_time_from_its_writes():
    table = of_nvprof()
    relu = table["kernel"] == "relu(float*)"
    reads = table["metric"].isin(("dram_read_transactions", "dram_read_throughput"))
    table.loc[relu & reads, ["min", "max", "avg"]] = 0
    # writes of relu: 2000 x 32 B at 16000 x 1024 B/s
    expected = 4000 * 32 / (31.25 * 2**20) + 2000 * 32 / (16000 * 1024)
    assert values(table)["counted_kernel_s"] == pytest.approx(expected)


def test_nvprof_does_not_count_tensor_cores_and_an_overflow_is_no_number():
    found = counters.quantities(of_nvprof("metrics.csv"))
    assert found["flops_tensor_fp16"].value is None and "nvprof does not count" in found["flops_tensor_fp16"].note
    assert found["flops_fp32"].value is None and "overflowed for 1 of 2" in found["flops_fp32"].note
    assert found["dram_read_bytes"].value == 8000 * 32


def test_older_names_and_parts_of_flops_are_read():
    parts = [("k1", 2, f"flop_count_dp_{op}", mean, "1") for op, mean in (("add", 10), ("mul", 20), ("fma", 30))]
    assert values(metric_table(*parts))["flops_fp64"] == 2 * (10 + 20 + 60)
    assert values(metric_table(("k1", 2, "flops_sp", 7, "1")))["flops_fp32"] == 14


def test_rows_are_per_step_but_rates_are_not():
    rows = {row["metric"]: row for row in counters.metric_rows(of_ncu(), 2, "ncu")}
    assert set(rows) == {*counters.UNITS, *counters.RATES}
    assert rows["dram_read_bytes"]["value"] == pytest.approx(1.5e6)
    assert rows["dram_read_bytes_per_s"]["value"] == pytest.approx(1.5e9)
    assert (rows["flops_measured"]["kind"], rows["flops_measured"]["source"]) == ("measured", "ncu")
    lost = {row["metric"]: row for row in counters.metric_rows(of_nvprof("metrics.csv"), 2, "nvprof")}
    assert (lost["flops_fp32"]["kind"], lost["flops_fp32"]["value"]) == ("unavailable", None)
