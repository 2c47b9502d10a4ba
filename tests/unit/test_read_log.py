"""`tare read-log`: forms are recognised, numbers stand beside what was published, bad input is one line."""

import gzip
import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from log_variants import torch_events, torch_json

from tare.cli import main
from tare.core.errors import IntegrityError, TareError, UserError
from tare.literature import own_log, published
from tare.profilers import logs

DATA = Path(__file__).parent.parent / "data"
FORMS = {
    "nvprof_summary.log": "nvprof, summary",
    "nvprof_summary.csv": "nvprof, summary",
    "nvprof_metrics.log": "nvprof, metrics",
    "nvprof_metrics.csv": "nvprof, metrics",
    "ncu_long.csv": "ncu, CSV",
    "ncu_raw.csv": "ncu, CSV",
}


def event(category, name, ts, dur, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def write_trace(path, *extra):
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 50), event("user_annotation", "ProfilerStep#2", 50, 50),
        event("kernel", "gemm", 10, 20, stream=7), event("kernel", "gemm", 60, 20, stream=7), *extra,
    ]  # fmt: skip
    with gzip.open(path, "wt") as handle:
        json.dump({"traceEvents": events}, handle)
    return path


def run(capsys, *arguments):
    status = main.main(["read-log", *map(str, arguments)])
    told = capsys.readouterr()
    return status, told.out, told.err


def values(name, steps=None):
    return {row["metric"]: row for row in logs.rows(logs.read(DATA / name), steps)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_form_is_recognised_by_its_content(name, tmp_path):
    assert logs.read(DATA / name).form == FORMS[name]
    packed = gzip.compress((DATA / name).read_bytes())
    for other, content in (("a.txt.gz", packed), ("packed.log", packed), ("b.gz", (DATA / name).read_bytes())):
        (tmp_path / other).write_bytes(content)
        assert logs.read(tmp_path / other).form == FORMS[name]


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_log_that_stands_twice_in_its_file_is_not_counted_twice(name, tmp_path):
    path = tmp_path / "twice.log"
    path.write_bytes((DATA / name).read_bytes() * 2)
    with pytest.raises(IntegrityError, match=r"twice\.log line \d+: the same table as at line \d+"):
        logs.read(path)


def test_a_file_that_is_refused_hides_nothing_of_the_others(tmp_path, capsys):
    empty, missing = tmp_path / "empty.csv", tmp_path / "missing.csv"
    empty.write_text("")
    alone = run(capsys, DATA / "nvprof_summary.csv")
    status, out, err = run(capsys, empty, DATA / "nvprof_summary.csv", missing, "--out", tmp_path / "table.csv")
    assert (status, out) == (2, alone[1])
    assert err == f"tare: {empty} is empty\ntare: cannot read {missing}: No such file or directory\n"
    assert set(pd.read_csv(tmp_path / "table.csv")["file"]) == {str(DATA / "nvprof_summary.csv")}


def test_where_all_files_are_refused_nothing_is_written(tmp_path, capsys):
    status, out, err = run(capsys, tmp_path / "a", tmp_path / "b", "--out", tmp_path / "table.csv")
    assert (status, out, err.count("\n")) == (2, "", 2)
    assert not (tmp_path / "table.csv").exists()


def test_logs_of_two_profilers_in_one_file_are_refused(tmp_path):
    path = tmp_path / "both.csv"
    path.write_bytes((DATA / "nvprof_metrics.csv").read_bytes() + (DATA / "ncu_raw.csv").read_bytes())
    with pytest.raises(UserError, match="tables of ncu and of nvprof: give each"):
        logs.read(path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no plain file: save it"):
        logs.read(tmp_path / "pipe")


def test_a_damaged_archive_is_said_in_one_line(tmp_path):
    packed = bytearray(gzip.compress(bytes(random.Random(1).choices(b"abcdefgh,\n", k=50_000))))
    packed[len(packed) // 2] ^= 255
    (tmp_path / "log.gz").write_bytes(packed)
    with pytest.raises(IntegrityError, match="cut short or damaged"):
        logs.read(tmp_path / "log.gz")


def test_every_log_of_the_folder_is_read():
    logs_there = {path.name for path in DATA.iterdir() if path.is_file()}
    assert logs_there == {*FORMS, "README.md", "every_construct.txt"}  # the last is a program


def test_a_log_of_another_systems_encoding_is_read(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes((DATA / "nvprof_summary.log").read_text().encode("utf-16"))
    assert logs.read(path).form == "nvprof, summary"


def test_forms_of_one_profile_agree():
    plain, table = values("nvprof_summary.log"), values("nvprof_summary.csv")
    for name in ("kernel_s", "kernel_calls", "htod_s", "dtoh_s", "memset_calls"):
        assert plain[name]["value"] == pytest.approx(table[name]["value"])
    assert {plain[name]["kind"] for name in ("htod_bytes", "device_busy_s")} == {"unavailable"}


def test_steps_divide_what_is_work_and_nothing_else():
    whole, each = values("ncu_long.csv"), values("ncu_long.csv", steps=4)
    assert each["flops_fp32"]["value"] == whole["flops_fp32"]["value"] / 4
    assert (each["flops_fp32"]["per"], whole["flops_fp32"]["per"]) == (logs.STEP, logs.WHOLE)
    assert each["dram_read_bytes_per_s"]["value"] == whole["dram_read_bytes_per_s"]["value"]
    assert each["dram_read_bytes_per_s"]["per"] == logs.WHOLE


def test_a_trace_brings_its_own_steps(tmp_path):
    rows = {row["metric"]: row for row in logs.rows(logs.read(write_trace(tmp_path / "t.json.gz")), None)}
    assert (rows["kernel_calls"]["value"], rows["kernel_calls"]["per"]) == (1, logs.STEP)
    assert rows["kernel_s"]["value"] == pytest.approx(20e-6)


def test_the_command_prints_and_writes_a_tidy_table(capsys, tmp_path):
    out = tmp_path / "tidy.csv"
    status, told, _ = run(capsys, DATA / "nvprof_summary.log", DATA / "ncu_raw.csv", "--steps", 2, "--out", out)
    assert status == 0
    assert "nvprof, summary\n  warning: 2 records have invalid timestamps" in told
    assert "metric" in told and "htod_s" in told
    table = pd.read_csv(out)
    assert table.columns.tolist() == [
        "file", "form", "metric", "value", "unit", "kind", "source", "per", "reason",
    ]  # fmt: skip
    found = table.set_index(["source", "metric"])["value"]
    assert found["nvprof", "htod_s"] == pytest.approx(250e-6)
    assert found["ncu", "flops_measured"] == (11_110 + 22 + 16384 + 8192) / 2
    lost = table[table["kind"] == "unavailable"]
    assert lost["value"].isna().all() and lost["reason"].notna().all()


def test_a_reader_that_has_seen_enough_gets_no_traceback():
    words = [sys.executable, "-m", "tare", "read-log", str(DATA / "ncu_raw.csv")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)


def metrics_log(folder, kernels):
    """A log of nvprof from the published table of kernels, so that its sums are known."""
    lines = ["Invocations  Metric Name  Metric Description  Min  Max  Avg"]
    for _, rows in kernels.groupby("kernel_index"):
        lines.append(f"    Kernel: {rows['kernel'].iloc[0]}")
        for row in rows.itertuples():
            unit = "" if row.avg_unit == "1" else row.avg_unit
            cells = [f"{value}{unit}" for value in (f"{row.avg:.12g}", f"{row.max:.12g}")]
            lines.append(f"   {row.invocations}  {row.metric}  What it is  {cells[0]}  {cells[1]}  {cells[0]}")
    path = folder / "published.log"
    path.write_text("==1== Metric result:\n" + "\n".join(lines) + "\n")
    return path


def test_the_papers_own_kernels_give_its_sums(capsys, tmp_path):
    kernels = pd.read_csv(published.load("nyu2022").path.with_name("nyu2022_kernels.csv"))
    path = metrics_log(tmp_path, kernels[(kernels["workload"] == "mnist_cnn") & (kernels["env"] == "host")])
    out = tmp_path / "beside.csv"
    status, told, _ = run(
        capsys, path, "--paper", "nyu2022", "--workload", "mnist_cnn", "--env", "host", "--paper-out", out
    )
    assert status == 0 and "compared with nyu2022, mnist_cnn in host" in told
    table = pd.read_csv(out).set_index(["metric", "where"])
    # config/published/nyu2022.yaml: figure 13 and the log say 475,211,776; weighted by invocations it is more
    flops = table.loc[("flops_fp32", "figure 13")]
    assert (flops["published"], flops["value"], flops["agrees"]) == (475_211_776, 3_484_655_615, "no")
    # the study's own way, the largest invocation of each kernel once, gives its number
    row = table.loc[("flops", "log, sum of maxima")]
    assert (row["published"], row["value"], row["agrees"]) == (475_211_776, 475_211_776, "yes")
    assert row["note"] == "the largest invocation of each of 7 kernels, once: 475,211,776"


def test_a_total_agrees_within_its_printed_digits():
    study = published.load("nyu2022")

    def judged(htod_s):
        row = {"metric": "htod_s", "value": htod_s, "unit": "s"}
        found = own_log.beside(study, "mnist_cnn", "host", [row], None)
        return {one["where"]: one["agrees"] for one in found}

    assert judged(871.48e-6) == {"figure 7": "yes", "log, total": "yes"}
    assert judged(871.6e-6) == {"figure 7": "no", "log, total": "no"}


def test_names_that_the_study_does_not_have_are_refused(capsys):
    log = DATA / "nvprof_metrics.log"
    status, _, error = run(capsys, log, "--paper", "nyu2022", "--workload", "mnist_cn", "--env", "host")
    assert status == 2 and "no workload 'mnist_cn'" in error and "mnist_cnn" in error
    status, _, error = run(capsys, log, "--paper", "nyu2022", "--workload", "mnist_cnn", "--env", "podman")
    assert status == 2 and "no env 'podman'" in error
    status, _, error = run(capsys, log, "--paper", "nyu2022")
    assert status == 2 and "needs --workload and --env" in error
    status, _, error = run(capsys, log, "--env", "host")
    assert status == 2 and "name the study too" in error
    status, _, error = run(capsys, log, "--steps", "0")
    assert status == 2 and "at least one training step" in error
    words = ("--paper", "nyu2022", "--workload", "mnist_cnn", "--env", "host", "--out", "t.csv")
    status, _, error = run(capsys, log, *words, "--paper-out", "t.csv")
    assert status == 2 and "--out and --paper-out are both t.csv" in error


@pytest.mark.parametrize(("steps", "warned"), [("2", False), ("3", True)])
def test_steps_that_are_not_those_of_the_trace_are_told(tmp_path, capsys, steps, warned):
    path = tmp_path / "trace.json"
    path.write_text(torch_json(torch_events()))
    status, told, _ = run(capsys, path, "--steps", steps)
    assert status == 0 and ("warning: the trace marks 2 steps, and --steps says 3, which counts" in told) == warned


@pytest.mark.parametrize(
    ("content", "wrong", "said"),
    [
        (b"", UserError, "is empty"),
        (b"epoch 1, loss 2\n", UserError, "no form that is known: nvprof"),
        (b"\x7fELF\0\0\0binary", IntegrityError, "not a text: export it first"),
        (b'{"traceEvents": [', IntegrityError, "no whole torch.profiler trace"),
        (b'{"schema": 1}', IntegrityError, "no whole torch.profiler trace"),
        (b"SQLite format 3\0" + bytes(90), IntegrityError, "no whole SQLite export"),
        (b"[1/1] Executing 'cuda_gpu_trace' stats report\n", UserError, "nsys export --type sqlite"),
        (b"==PROF== Connected\n==WARNING== No kernels were profiled.\n", UserError, "no kernel was profiled"),
        (b"==9== NVPROF is profiling process 9\n", UserError, "holds no table of nvprof"),
        (b"srun: ERR_NVGPUCTRPERM - The user does not have permission\n", UserError, "may not read the device's"),
    ],
)
def test_bad_files_are_one_line_that_names_them(tmp_path, capsys, content, wrong, said):
    path = tmp_path / "bad.log"
    path.write_bytes(content)
    with pytest.raises(wrong, match=r"bad\.log"):
        logs.read(path)
    status, _, error = run(capsys, path)
    assert status == wrong.exit_code
    assert said in error and len(error.splitlines()) == 1


def test_files_that_cannot_be_read_are_one_line(tmp_path, capsys):
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"x" * 10_000)[:30])
    (tmp_path / "no.gz").write_bytes(b"no archive")
    for path in (tmp_path / "missing.log", tmp_path, tmp_path / "cut.log.gz", tmp_path / "no.gz"):
        with pytest.raises(TareError):
            logs.read(path)
        status, _, error = run(capsys, path)
        assert status in (2, 4) and len(error.splitlines()) == 1


def test_a_trace_of_a_cpu_is_no_profile_of_a_device(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event("cpu_op", "aten::mm", 0, 5)]}))
    with pytest.raises(UserError, match="holds no activity of a device"):
        logs.read(path)


def test_an_export_of_nsys_is_recognised_by_its_first_bytes(tmp_path):
    connection = sqlite3.connect(tmp_path / "report")
    connection.executescript("""
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, streamId INTEGER, bytes INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (0, 1000, 7, 64);
    """)
    connection.close()
    rows = {row["metric"]: row["value"] for row in logs.rows(logs.read(tmp_path / "report"), None)}
    assert (rows["memset_s"], rows["memset_bytes"], rows["kernel_calls"]) == (pytest.approx(1e-6), 64, 0)
