"""What was computed of a paper, joined with what a machine measured; a table that is another is refused."""

import shutil

import pytest
from audit_builders import edited, frozen, here, metric, only, probe, verdict
from builders import build_results

from tare.cli.main import main
from tare.core.errors import IntegrityError, UserError
from tare.literature import audit, claims, published
from tare.literature.finding import amount, significant
from tare.model import tables
from tare.model.records.machine import MachineRecord
from tare.model.schema import parse
from tare.model.studies import papers


@pytest.fixture(scope="module")
def study():
    return published.load("nyu2022")


@pytest.fixture(scope="module")
def findings(study):
    return audit.judge(study, here())


def test_this_machine_stands_beside_each_bar(study):
    rows = [metric("docker", "real_s", value, rep=rep) for rep, value in enumerate((6.0, 8.0, 7.0))]
    rows += [metric("host", "real_s", value, rep=rep, campaign="sweep", batch=16)
             for rep, value in enumerate((3.0, 4.0, 5.0))]  # fmt: skip
    rows += [
        metric("docker", "memset_s", None, rep=None, campaign="profile", reason="the device is a CPU"),
        metric("docker", "flops_per_step", 4.5e9, rep=None, campaign="profile", kind="modelled", unit="1"),
    ]
    table = audit.judge(study, here(metrics=rows))
    row = only(table, "figure_value", figure="17", env="docker", metric="real_s")
    assert (row["measured"], row["measured_kind"]) == (7.0, "measured") and "median of 3 whole runs" in row["note"]
    assert only(table, "figure_value", figure="2", batch=16)["measured"] == 4.0
    assert "batch sizes are 16" in only(table, "figure_value", figure="2", batch=32)["note"]
    row = only(table, "figure_value", figure="5", env="docker")
    assert row["measured_kind"] == "unavailable" and "the device is a CPU" in row["note"]
    row = only(table, "figure_value", figure="13", env="docker")
    assert (row["measured"], row["measured_kind"]) == (4.5e9, "modelled") and "one training step" in row["note"]
    row = only(table, "figure_value", figure="18", env="docker", metric="real_s")
    assert row["measured_kind"] == "unavailable" and "not part of this study" in row["note"]


def test_a_gpu_fills_what_a_cpu_cannot(study):
    rows = [metric("docker", "memset_s", 2e-6, rep=None, campaign="profile")]
    row = only(audit.judge(study, here(metrics=rows)), "figure_value", figure="5", env="docker")
    assert (row["measured"], row["measured_kind"]) == (2e-6, "measured")


def test_an_arm_is_not_taken_for_the_headline(study):
    rows = [metric("docker", "real_s", 7.0, campaign="rounds.docker+host.stack-native")]
    row = only(audit.judge(study, here(metrics=rows)), "figure_value", figure="17", env="docker", metric="real_s")
    assert row["measured_kind"] == "unavailable"


def test_tables_of_the_machine_stand_beside_this_one(study):
    machine = {
        "cpu_model": "Example",
        "cpu_logical": 2,
        "memory_bytes": 8_000_000_000,
        "distribution": "Debian 12",
        "virtualisation": "vm kvm",
        "disk": {"path": "/", "total_bytes": 5, "free_bytes": 1},
        "gpus": None,
        "reasons": {"gpus": "no driver"},
        "cpu_clock": {"hz": 2.5e9, "source": "nominal"},
    }
    probes = {"docker": probe("docker", "20.10.24"), "apptainer": probe("apptainer", reason="gone")}
    table = audit.judge(study, here(machine=parse(MachineRecord, machine, "machine"), probes=probes))
    row = only(table, "specification", figure="table I", metric="vcpu")
    assert (row["published"], row["measured"], row["measured_kind"]) == (8, 2, "measured")
    assert only(table, "specification", figure="table I", metric="clock")["measured"] == 2.5e9
    assert "20.10.24" in only(table, "specification", metric="docker")["note"]
    assert "unavailable, gone" in only(table, "specification", metric="singularity")["note"]
    row = only(table, "specification", figure="table V", metric="gpu_memory")
    assert row["measured_kind"] == "unavailable" and "no driver" in row["note"]
    gpu = {"name": "Tesla T4", "memory_mib": "16384", "power_limit_w": "70.00"}
    table = audit.judge(study, here(machine=parse(MachineRecord, {**machine, "gpus": [gpu]}, "machine")))
    assert only(table, "specification", figure="table V", metric="gpu_memory")["measured"] == 16384 * 2**20
    assert "Tesla T4" in only(table, "specification", figure="table V", metric="gpu")["note"]


def test_every_study_can_be_audited():
    for paper in papers.paper_names():
        table = audit.judge(published.load(paper), here())
        assert len(table) and set(table["paper"]) == {paper}


def test_the_table_survives_its_file(findings, tmp_path):
    tables.write("published", findings, tmp_path / "published.csv")
    again = tables.read("published", tmp_path / "published.csv")
    assert again["note"].tolist() == findings["note"].tolist()
    assert again["figure"].tolist() == findings["figure"].tolist()
    assert again["workload"].isna().sum() == findings["workload"].isna().sum()


def test_a_column_of_numbers_and_gaps_that_is_text_stays_text(tmp_path):
    row = {name: "" for name in tables.CLAIMS.columns} | {"paper": "p", "claim": "c", "workload": "w", "match": "m"}
    row |= {"statement": "s", "published_says": "contradicted", "published_note": "n", "here": "holds here"}
    rows = [{**row, "evidence": "e", "reason": None, "figures": figures} for figures in ("7", None)]
    tables.write("claims", tables.make("claims", rows), tmp_path / "claims.csv")
    assert tables.read("claims", tmp_path / "claims.csv")["figures"].dropna().tolist() == ["7"]


def test_numbers_are_written_for_readers():
    assert amount(1.5072e-05, "s") == "15.072 us"
    assert amount(135179370000.0, "B/s") == "135.18 GB/s"
    assert amount(3484655615, "1") == "3,484,655,615"
    assert significant(0.00012345678) == "0.00012346"
    assert significant(1234567.0) == "1,234,567"


def test_the_command_writes_both_tables(tmp_path, capsys):
    results = build_results(tmp_path / "results")
    places = ["--results", str(results), "--shared", str(results), "--out", str(tmp_path / "out")]
    assert main(["audit", "--paper", "nyu2022", *places]) == 0
    assert "findings" in capsys.readouterr().out
    table = tables.read("published", tmp_path / "out/published.csv")
    row = only(table, "figure_value", figure="18", env="docker", metric="real_s")
    metrics = tables.read("metrics", results / "tables/metrics.parquet")
    runs = metrics[(metrics["workload"] == "sentiment_rnn") & (metrics["launch"] == "docker")]
    runs = runs[(runs["metric"] == "real_s") & runs["campaign"].str.match(r"rounds\.[^.]+$")]
    assert row["measured"] == pytest.approx(runs["value"].median()) and row["measured_kind"] == "measured"
    judged = tables.read("claims", tmp_path / "out/claims.csv").set_index(["claim", "workload"])
    # The builder's Docker takes longer to start and to end, its Apptainer to import.
    assert judged.loc[("time_equal", "mnist_cnn"), "here"] == "does not hold here"
    # Its profiled launches ran on a CPU; its trial launches name a version.
    assert judged.loc[("memset_docker_highest", "mnist_cnn"), "here"] == "not the same question"
    says = judged.loc[("time_equal", "mnist_cnn"), "match"]
    assert "device class: other (published GPU, NVIDIA Tesla V100; here CPU, Example CPU" in says
    assert "here python 3.11.7, cuda none and torch 2.13.0+cpu" in says
    assert "runtimes: other (published docker 20.10.4 and apptainer 3.6.3; here docker 1.2.3" in says


def test_an_audit_without_tables_or_of_an_unknown_study_is_one_line(tmp_path, capsys):
    places = ["--results", str(tmp_path), "--out", str(tmp_path)]
    assert main(["audit", "--paper", "nyu2022", *places]) == 2
    assert main(["audit", "--paper", "nyu", *places]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "metrics.parquet" in lines[0] and "did you mean 'nyu2022'" in lines[1]


def test_step_times_are_judged_here_by_whole_runs_once_the_study_trains_the_model():
    rows = [verdict("docker", "epoch_rest_s", 0.9, 0.95, "different", workload="resnet18")]
    own = [metric("host", "user_s", 5.0, workload="resnet18")]
    found = claims.judge_claims(published.load("columbia2025"), here(metrics=own, verdicts=rows))
    row = found[(found["claim"] == "containerization_minimal") & (found["workload"] == "resnet18")].iloc[0]
    assert row["here"] == "does not hold here" and "epoch_rest_s docker / host 0.925" in row["evidence"]
    assert "runtimes: unknown" in row["match"]


def test_table_1_stands_beside_what_was_measured_of_its_models():
    of = {"rep": None, "campaign": "profile", "workload": "alexnet"}
    own = [
        metric("docker", "gpu_utilization_peak", 97.0, unit="%", **of),
        metric("docker", "step_flop_per_s", 3e12, unit="FLOP/s", kind="modelled", **of),
        metric("docker", "dram_read_bytes_per_s", None, unit="B/s", reason="no counters", **of),
    ]
    table = audit.judge(published.load("columbia2025"), here(metrics=own))
    labels = {"workload": "alexnet", "env": "docker"}
    use, rate, link = (
        only(table, "specification", metric=name, **labels)
        for name in ("gpu_utilisation", "flops", "memory_bandwidth")
    )
    assert (use["measured"], use["measured_kind"]) == (97, "measured")
    assert (rate["measured"], rate["measured_kind"]) == (3e12, "modelled")
    assert link["measured_kind"] == "unavailable" and "no counters" in link["note"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("factors: [pcie_lanes,", "factors: [pcie_lane,", "memory_bandwidth: factors: no entry or row 'pcie_lane'"),
        ("{result: flops,", "{result: flop,", "formulas: result: no row 'flop'"),
        ("facts: [step_last,", "facts: [step_lst,", "container_more_efficient: facts: no entry or row 'step_lst'"),
        ("restates: batches_stop", "restates: batches", "iterations_logged: restates: no entry 'batches'"),
        ("facts: [step_last,", "facts: [clock_max,", "facts: clock_max '2025 MHz' is no epoch_rest_s"),
        ("    metrics: [flop_per_s]", "    metrics: [flop_per_s, epoch_rest_s]", "facts are of one metric"),
    ],
)  # fmt: skip
def test_a_name_that_is_nowhere_is_refused_in_one_line(tmp_path, old, new, message):
    with pytest.raises(UserError, match=r"columbia2025\.yaml") as told:
        published.load("columbia2025", edited(tmp_path, (old, new), file="columbia2025.yaml"))
    assert message in str(told.value)


def test_the_command_audits_studies_of_which_nothing_is_trained_here(tmp_path):
    results, out = build_results(tmp_path / "results"), tmp_path / "out"
    places = ["--results", str(results), "--shared", str(results), "--out", str(out)]
    assert main(["audit", "--paper", "columbia2025", "nthu2018", *places]) == 0
    table, judged = (tables.read(name, out / f"{name}.csv") for name in ("published", "claims"))
    assert set(table["paper"]) == {"columbia2025", "nthu2018"}
    measured = table[table["measured_kind"].notna()]
    assert len(measured) and set(measured["measured_kind"]) == {"unavailable"}
    own = judged[judged["paper"] == "columbia2025"]
    assert len(own) == 11 * 3 and set(own["reason"]) == {"this workload is not part of this study"}
    assert "device class: unknown" in own["match"].iloc[0]


def test_every_finding_is_in_the_table_and_only_numbers_of_this_machine_are_added():
    for paper in papers.paper_names():
        kept = frozen()
        kept = kept[(kept["paper"] == paper) & (kept["check"] != audit.CLAIM)].reset_index(drop=True)
        table = audit.judge(published.load(paper), here())
        same = ["figure", "check", "workload", "env", "batch", "metric", "unit", "published", "recomputed"]
        assert table[[*same, "agrees"]].equals(kept[[*same, "agrees"]]), paper
        added = [told.removeprefix(note) for told, note in zip(table["note"], kept["note"], strict=True)]
        assert all(words == "" or words.startswith(" Here: ") for words in added), paper


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A copy of the table and of its hashes, which the project reads."""
    for path in (papers.findings_file(), papers.sums_of(papers.findings_file())):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(papers, "findings_file", lambda: tmp_path / "findings.csv")
    return tmp_path / "findings.csv"


def test_a_table_that_was_edited_is_refused_in_one_line(kept):
    assert papers.refuse_stale(papers.paper_names()) == kept
    kept.write_text(kept.read_text().replace("475211776.0", "475211777.0", 1))
    with pytest.raises(
        IntegrityError, match=r"findings\.csv is not as it was computed .* papers/compute_findings"
    ) as told:
        audit.judge(published.load("nyu2022"), here())
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("gone", ["findings.csv", "findings.sha256"])
def test_a_table_that_is_missing_is_named_with_what_writes_it(kept, gone):
    kept.with_name(gone).unlink()
    with pytest.raises(UserError, match=rf"{gone}: No such file or directory: run `.*compute_findings"):
        papers.refuse_stale()


def test_a_papers_file_that_is_newer_than_its_findings_is_refused(kept, tmp_path, monkeypatch, capsys):
    folder = edited(tmp_path, ("docker: 651965536 FLOP", "docker: 951965536 FLOP"))
    (folder / "more2026.yaml").write_text((folder / "modak2020.yaml").read_text().replace("modak2020", "more2026"))
    monkeypatch.setattr(papers, "folder", lambda: folder)
    with pytest.raises(IntegrityError, match=r"nyu2022\.yaml is not the file that .* was computed from: run"):
        papers.refuse_stale(["modak2020", "nyu2022"])
    assert papers.refuse_stale(["modak2020"]) == kept
    with pytest.raises(UserError, match=r"has no findings of more2026\.yaml: run"):
        papers.refuse_stale(["more2026"])
    places = ["--results", str(tmp_path), "--out", str(tmp_path)]
    assert main(["audit", "--paper", "nyu2022", *places]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
