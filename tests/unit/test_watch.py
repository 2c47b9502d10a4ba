"""Launches under ncu: their exact words, what is recorded, and what is said where they give nothing."""

import gzip
from pathlib import Path
from types import SimpleNamespace

import pytest
from asked import CONDITIONS, spec
from ncu_text import DRAM, FFMA, csv_of

from tare.analysis.profile_rows import read_counters
from tare.core.errors import IntegrityError, UnavailableError
from tare.core.files import sha256_file
from tare.experiments import counter_launches
from tare.launch.place import Site
from tare.launch.prepare import FOLDER
from tare.model.records.measured import CounterPart, Counters
from tare.model.schema import parse

NCU = counter_launches.Tool(
    program=Path("/opt/nvidia/nsight-compute/2025.3.1/ncu"),
    folder=Path("/opt/nvidia/nsight-compute/2025.3.1"),
    version="2025.3.1.0",
)
SITE = Site(environment=None, python="/python", reference=None, data=None)
SPEC = spec(device="cuda", workload="mnist_cnn", batch=64, counter_steps=2, warmup_steps=3)


def fake_launch(answers, status="ok"):
    """Stands for the launch: writes what the profiler would, and keeps what it was asked for."""
    asked = []

    def launch(site, spec, conditions, *, keep, keep_always, wrapper):
        asked.append((site, spec, wrapper))
        assert keep_always
        (path,) = keep.values()
        text = answers.pop(0)
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        results = {"losses": [2.3, 2.2], "counter_steps": 2}
        record = {"status": status, "reason": "it died", "inside": {"results": results}}
        return SimpleNamespace(to_json=lambda: record)

    return launch, asked


@pytest.fixture
def with_ncu(monkeypatch):
    monkeypatch.setattr(counter_launches, "find", lambda: NCU)


def test_the_words_of_ncu():
    assert counter_launches.ncu_words(NCU, ("a.sum", "b.sum"), "counters.dram.csv") == [
        "/opt/nvidia/nsight-compute/2025.3.1/ncu",
        *("--profile-from-start", "off", "--target-processes", "all", "--replay-mode", "kernel"),
        *("--cache-control", "none", "--clock-control", "none", "--metrics", "a.sum,b.sum"),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", f"{FOLDER}/counters.dram.csv"),
    ]


@pytest.mark.parametrize(
    ("program", "folder"),
    [
        ("/opt/nvidia/nsight-compute/2025.3.1/ncu", "/opt/nvidia/nsight-compute/2025.3.1"),
        ("/usr/lib/nsight-compute/ncu", "/usr/lib/nsight-compute"),
        ("/opt/nvidia/nsight-compute/2025.1/target/linux/ncu", "/opt/nvidia/nsight-compute/2025.1"),
        ("/usr/local/cuda-12.4/nsight-compute-2024.1.1/ncu", "/usr/local/cuda-12.4/nsight-compute-2024.1.1"),
        ("/usr/lib/nsight-compute/target/linux/ncu", "/usr/lib/nsight-compute"),
        ("/opt/nsight-systems-2025.1/nsight-compute/ncu", "/opt/nsight-systems-2025.1"),
        ("/opt/nsight-systems/2025.1/nsight-compute/target/ncu", "/opt/nsight-systems/2025.1"),
        ("/home/me/tools/ncu", "/home/me/tools"),
    ],
)
def test_the_folder_that_environments_are_shown_holds_the_whole_installation(program, folder):
    assert counter_launches._installation(Path(program)) == Path(folder)


def test_two_launches_count_traffic_once_through_and_operations_by_replay(tmp_path, monkeypatch, with_ncu):
    # Step: gemm reads 4096 B (128 sectors), writes 1024 B (32); relu reads 1024, writes 1024. 2 steps of both.
    traffic = csv_of(DRAM, [("gemm", (4096, 1024, 128, 32)), ("relu", (1024, 1024, 32, 32))] * 2)
    operations = csv_of((FFMA,), [("gemm", (1000,)), ("relu", (0,))] * 2, passes=3)
    launch, asked = fake_launch([traffic, operations])
    monkeypatch.setattr(counter_launches, "launch", launch)
    record = counter_launches.count(SITE, SPEC, CONDITIONS, tmp_path, (9, 0))
    assert (record["status"], record["tool"], record["steps"]) == ("ok", "ncu 2025.3.1.0", 2)
    assert {key: record[key] for key in counter_launches.NCU} == {
        "replay": "kernel",
        "cache_control": "none",
        "clock_control": "none",
    }
    assert [(p["name"], p["launches"], p["most_passes"]) for p in record["parts"]] == [
        ("dram", 4, 1),
        ("operations", 4, 3),
    ]
    for site, job, _ in asked:
        assert NCU.folder in site.folders and job.counters and job.mode == "counters"
    assert all(name.startswith("dram__") for name in record["parts"][0]["metrics"])
    assert not any(name.startswith("dram__") for name in record["parts"][1]["metrics"])
    table = read_counters(parse(Counters, record, "counters").parts, tmp_path)
    from tare.profilers.counters import metric_rows

    rows = {row["metric"]: row["value"] for row in metric_rows(table, record["steps"], "ncu")}
    assert rows["dram_read_bytes"] == 5120 and rows["dram_write_bytes"] == 2048
    assert rows["hbm_transactions"] == 128 + 32 + 32 + 32
    assert list(tmp_path.glob("*.csv")) == [], "the raw text is not left beside the packed one"
    assert (tmp_path / record["parts"][0]["file"]).read_bytes()[4:8] == bytes(4), "no time of compression"


def test_counters_that_the_driver_reserves_are_unavailable_with_the_remedy(tmp_path, monkeypatch, with_ncu):
    text = (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
        "on the target device 0. For instructions on enabling permissions and to get more information see "
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
    )
    launch, _ = fake_launch([text], status="failed")
    monkeypatch.setattr(counter_launches, "launch", launch)
    record = counter_launches.count(SITE, SPEC, CONDITIONS, tmp_path, (9, 0))
    assert record["status"] == "unavailable" and "ERR_NVGPUCTRPERM" in record["reason"] and record["remedy"]


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_a_launch_that_dies_under_ncu_is_a_failure_and_not_a_zero(tmp_path, monkeypatch, with_ncu, status):
    launch, _ = fake_launch([None], status=status)
    monkeypatch.setattr(counter_launches, "launch", launch)
    record = counter_launches.count(SITE, SPEC, CONDITIONS, tmp_path, (9, 0))
    assert record["status"] == "failed" and "it died" in record["reason"]


def test_a_machine_without_the_profiler_says_where_it_is_had(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    record = counter_launches.count(SITE, SPEC, CONDITIONS, tmp_path, (9, 0))
    assert (record["status"], record["reason"]) == ("unavailable", "ncu is not installed")
    assert "nsight-compute" in record["remedy"]


def test_a_device_that_ncu_does_not_know_is_said(tmp_path, monkeypatch, with_ncu):
    record = counter_launches.count(SITE, SPEC, CONDITIONS, tmp_path, (6, 1))
    assert record["status"] == "unavailable" and "6.1" in record["reason"]


def test_a_file_that_is_not_the_records_is_refused(tmp_path):
    path = tmp_path / "counters.dram.csv.gz"
    path.write_bytes(gzip.compress(b"x", mtime=0))
    part = {"file": path.name, "sha256": sha256_file(path), "name": "dram", "launches": 1, "most_passes": 1}
    part = parse(CounterPart, part, "part")
    path.write_bytes(gzip.compress(b"y", mtime=0))
    with pytest.raises(IntegrityError, match="run the profile again"):
        read_counters([part], tmp_path)


def test_a_profiler_that_does_not_start_is_unavailable(tmp_path, monkeypatch):
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UnavailableError):
        counter_launches.find()
    program.write_text("#!/bin/sh\necho 'Version 2025.3.1.0 (build 36398880) (public-release)'\n")
    assert (counter_launches.find().version, counter_launches.find().folder) == ("2025.3.1.0", tmp_path)


def test_a_script_on_path_is_followed_to_the_program_that_environments_can_start(tmp_path, monkeypatch):
    """A toolkit's `bin/ncu` starts another script elsewhere, which starts the program."""
    script, other = tmp_path / "cuda-13.0/bin/ncu", tmp_path / "opt/nsight-compute/2024.1.1/target/linux-x64/ncu"
    program = tmp_path / "opt/nsight-compute/2025.3.1/target/linux-x64/ncu"
    foreign, third = (program.parents[1] / f"linux-{name}64/ncu" for name in ("a", "b"))
    for path in (script, other, program, foreign, third):
        path.parent.mkdir(parents=True)
    script.write_text("#!/usr/bin/env bash\nexec elsewhere\n")
    head = bytearray(Path("/proc/self/exe").read_bytes()[:64])
    for path in (other, program):
        path.write_bytes(head)
    for path, changed in ((foreign, b"\xff\x00"), (third, bytes([head[18], head[19] ^ 0xFF]))):
        path.write_bytes(head[:18] + changed + head[20:])  # of another processor
    answer = SimpleNamespace(ok=True, stdout="Version 2025.3.1.0 (build 36398880) (public-release)")
    monkeypatch.setattr(counter_launches, "run", lambda argv, **more: answer)
    monkeypatch.setattr(counter_launches.shutil, "which", lambda name: str(script))
    places = (tmp_path / "opt",)
    assert counter_launches._binary(script, "2025.3.1.0", places) == program
    assert counter_launches._installation(program) == tmp_path / "opt/nsight-compute/2025.3.1"
    assert counter_launches._binary(program, "2025.3.1.0", places) == program
    for told, starts in (("2025.3.1.0", False), ("2025.3.1.9", True), ("2025.3.0.9", True)):
        answer.ok, answer.stdout = starts, f"Version {told} (build 36398880) (public-release)"
        assert counter_launches._binary(script, "2025.3.1.0", places) == script, "it does not answer as the script"
    answer.ok, answer.stdout = True, "Version 2025.3.1.0 (build 36398880) (public-release)"
    program.unlink()
    assert counter_launches._binary(script, "2025.3.1.0", places) == script
    assert counter_launches.find().version == "2025.3.1.0"
