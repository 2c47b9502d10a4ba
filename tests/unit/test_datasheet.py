"""Peaks by vendors' documents, and the modelled peak of a processor: strict reading, and arithmetic by hand."""

import re

import pytest
import yaml

from tare.core.errors import UserError
from tare.machine import cpu_peak
from tare.model import datasheet

SHEET = {
    "pattern": "X-1",
    "source": "datasheet",
    "document": "The X-1, datasheet",
    "peak_flop_per_s": {"fp32": "15.7 TFLOP/s"},
    "memory_bytes_per_s": "900 GB/s",
    "memory_bytes": "16 GB",
}
MACHINE = {
    "cpu_signature": {"vendor": "AuthenticAMD", "family": 23, "model": 0x31},
    "cpu_flags": ["avx2", "fma"],
    "cpu_clock": {"hz": 2.5e9, "source": "nominal"},
}


def written(tmp_path, **changed):
    path = tmp_path / "devices.yaml"
    entry = {key: value for key, value in {**SHEET, **changed}.items() if value is not None}
    path.write_text(yaml.safe_dump({"X-1": entry}))
    return path


def test_the_v100s_of_the_study():
    found = datasheet.load()
    sxm, large, pcie = (found[name] for name in ("V100-SXM2-16GB", "V100-SXM2-32GB", "V100-PCIE-16GB"))
    assert dict(sxm.peak_flop_per_s) == {"fp64": 7.8e12, "fp32": 15.7e12, "fp16_tensor": 125e12}
    assert dict(pcie.peak_flop_per_s) == {"fp64": 7e12, "fp32": 14e12, "fp16_tensor": 112e12}
    assert {sheet.memory_bytes_per_s for sheet in (sxm, large, pcie)} == {9e11}
    assert (sxm.memory_bytes, large.memory_bytes) == (16e9, 32e9)
    assert all(sheet.source == "datasheet" and sheet.document for sheet in found.values())


@pytest.mark.parametrize(
    ("driver_name", "name"),
    [
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("Tesla V100-PCIE-16GB", "V100-PCIE-16GB"),
        ("NVIDIA GeForce GTX 1080 Ti", "GTX-1080-Ti"),
        ("NVIDIA GeForce GTX 1080", "GTX-1080"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
    ],
)
def test_devices_are_known_by_the_drivers_name(driver_name, name):
    assert datasheet.find(driver_name).name == name


def test_an_unknown_device_has_no_datasheet():
    assert datasheet.find("NVIDIA H200 NVL") is None
    assert datasheet.find("") is None
    with pytest.raises(UserError, match="did you mean 'V100-SXM2-16GB'"):
        datasheet.named("V100-SXM2-16G")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory_bytes_per_s": 900}, r"X-1: memory_bytes_per_s: 900 is no quantity.*'900 GB/s'"),
        ({"memory_bytes_per_s": "900"}, "no quantity"),
        ({"memory_bytes": "16 GiB"}, "no quantity"),
        ({"peak_flop_per_s": {"fp32": 15.7}}, r"X-1: peak_flop_per_s: fp32: 15\.7 is no quantity.*TFLOP/s"),
        ({"peak_flop_per_s": {"fp23": "15.7 TFLOP/s"}}, r"unknown key 'fp23': did you mean 'fp32'"),
        ({"memory_byte": "16 GB"}, r"X-1: unknown key 'memory_byte': did you mean 'memory_bytes'"),
        ({"document": None}, "X-1: document missing"),
        ({"source": "a friend"}, "X-1: source: 'a friend'"),
        ({"pattern": "X(1"}, "X-1: pattern: .* is no pattern"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, changed, message):
    with pytest.raises(UserError, match=message) as caught:
        datasheet.load(written(tmp_path, **changed))
    assert "devices.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_none_is_one_line(tmp_path):
    with pytest.raises(UserError, match="cannot read the devices"):
        datasheet.load(tmp_path / "none.yaml")
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(UserError, match="is not YAML"):
        datasheet.load(tmp_path / "a.yaml")


def test_the_right_file_is_read(tmp_path):
    sheet = datasheet.load(written(tmp_path))["X-1"]
    assert (sheet.peak_flop_per_s["fp32"], sheet.memory_bytes_per_s, sheet.memory_bytes) == (15.7e12, 9e11, 16e9)


def test_a_processors_peak_by_hand():
    found = cpu_peak.modelled(MACHINE, threads=2)
    assert found["kind"] == "modelled" and found["reason"] is None
    # 2 threads x 2 units x 8 lanes x 2 FLOP x 2.5 GHz
    assert found["peak_flop_per_s"] == {"float32": 160e9, "float64": 80e9}
    said = " ".join(found["assumptions"])
    assert "2.50 GHz, nominal" in said and "2 threads" in said and "2 FMA units" in said
    assert found["memory_bytes_per_s"] is None and "memory channels" in found["memory_reason"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cpu_clock": None, "reasons": {"cpu_clock": "no cpufreq"}}, "clock is not known: no cpufreq"),
        ({"cpu_signature": None}, "family and model"),
        (
            {"cpu_signature": {"vendor": "GenuineIntel", "family": 6, "model": 85}},
            "know how many FMA units",
        ),
        ({"cpu_flags": ["avx2"]}, "does not show fma"),
    ],
)
def test_a_peak_that_can_not_be_modelled_says_why(changed, reason):
    found = cpu_peak.modelled({**MACHINE, **changed}, threads=1)
    assert found["kind"] == "unavailable" and found["peak_flop_per_s"] == {}
    assert re.search(reason, found["reason"])
