"""What studies that ran beside the tests have made: the smoke preset, the documentation's own examples."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import pandas as pd
import pytest
from beside import MINE, POOR
from matrix import in_turn
from project import PROFILE, ROUNDS, code_blocks, snakemake, tare

from tare.archive.reading import index_of, opened
from tare.experiments.alone import LOCKS
from tare.experiments.sliced import LEFT_OUT
from tare.model.journals.sealed import read_sealed

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(4500)]  # a whole study, on a machine that may be busy


def test_the_documentations_scenario_stands_in_plan_units_and_rows(extended):
    (folder,) = (extended / "results/campaigns/tiny/box/softmax_mnist").glob("*.busy_core")
    assert folder.name.split(".")[0] == "rounds"
    found = read_sealed(folder / "sealed.json")
    assert found.plan.scenario == "busy_core" and "busy_core" in found.plan.slicing_refused
    assert len(found.counted) == 2 and all(unit.scenario["lived"] for unit in found.units)
    metrics = pd.read_csv(extended / "results/tiny/tables/metrics.csv")
    rows = metrics[metrics["campaign"].str.endswith(".busy_core")]
    assert len(rows) > 0 and set(rows["scenario"]) == {"busy_core"}
    assert "busy_core" not in set(metrics.loc[~metrics["campaign"].str.endswith(".busy_core"), "scenario"])


def test_a_broken_environment_never_stops_the_others(extended):
    verdicts = pd.read_csv(extended / "results/tiny/tables/verdicts.csv")
    own = verdicts["scenario"] == "single"
    real = verdicts[own & (verdicts["metric"] == "real_s")].set_index("launch")
    assert real.loc["namespaces", "n_units"] == 2
    assert real.loc["broken", "n_units"] == 0
    assert real.loc["broken", "verdict"] == "inconclusive"
    metrics = pd.read_csv(extended / "results/tiny/tables/metrics.csv")
    broken = metrics[(metrics["launch"] == "broken") & (metrics["metric"] == "real_s")]
    assert set(broken["kind"]) == {"unavailable"}
    reasons = list(broken["reason"])  # whole, so that what came first can be read where it was something else
    assert [reason for reason in reasons if "broken on purpose" not in reason] == []
    page = (extended / "results/tiny/report/print.html").read_text()
    assert "broken on purpose" in page


def test_a_broken_environment_fails_alone_in_a_round_and_is_given_up(extended):
    """It never comes to its program's first instruction: the others are sliced without it."""
    verdicts = pd.read_csv(extended / "results/tiny/tables/verdicts.csv")
    steps = verdicts[(verdicts["metric"] == "step_s") & (verdicts["reference"] == "host")]
    steps = steps[steps["campaign"].str.contains("broken")]  # one environment's own campaigns have no other
    # Of the scenario busy_core too there are whole runs, which measure no steps.
    assert set(steps["campaign"]) == {"steps.broken+charliecloud+docker+host+namespaces"}
    for campaign, rows in steps.groupby("campaign"):
        rows = rows.set_index("launch")
        assert rows.loc["namespaces", "n_units"] == 2, campaign
        assert rows.loc["broken", "n_units"] == 0, campaign
    path = next(extended.glob("results/campaigns/tiny/box/softmax_mnist/rounds.broken+*+namespaces/sealed.json"))
    found = read_sealed(path)
    assert found.sealed.units == 2
    assert all("only calibrates the slices" in unit.voided for unit in found.units if unit.voided is not None)
    assert "broken on purpose" in found.sealed.failures["broken"]
    statuses = [unit.launches["broken"].status for unit in found.units]
    assert statuses == ["failed", "failed", *["skipped"] * (len(found.units) - 2)]
    assert all(unit.launches["host"].slices.is_sliced for unit in found.counted)


def test_an_arm_compares_environments_at_its_level_and_the_level_with_the_headline(varied):
    verdicts = pd.read_csv(varied / "results/varied/tables/verdicts.csv")
    arm = verdicts[(verdicts["level_allocator"] == "steady") & (verdicts["metric"] == "real_s")]
    pairs = set(zip(arm["launch"], arm["reference"], strict=True))
    assert ("namespaces", "host") in pairs and ("host", "host.headline") in pairs
    assert arm.set_index(["launch", "reference"]).loc[("host", "host.headline"), "n_units"] == 2


def test_another_stack_is_compared_or_says_what_would_provide_it(varied):
    verdicts = pd.read_csv(varied / "results/varied/tables/verdicts.csv")
    rows = verdicts[verdicts["stack"] == "paper-2022"]
    tree = json.loads((varied / "results/images/paper-2022/tree.json").read_text())
    page = (varied / "results/varied/report/print.html").read_text()
    if tree["status"] == "ok":
        # Beside other work a round may be found not to be sliced; it is not mixed with one that is.
        (name,) = (one for one in set(rows["campaign"]) if one.startswith("rounds."))
        found = read_sealed(varied / "results/campaigns/varied/box/softmax_mnist" / name / "sealed.json")
        slices = [unit.launches["namespaces"].slices for unit in found.counted]
        kinds = Counter(one is not None and one.is_sliced for one in slices)
        assert kinds.total() == 2
        for metric in ("real_s", "step_s"):
            own = rows[rows["metric"] == metric].set_index(["launch", "reference"])
            assert own.loc[("host", "host.headline"), "n_units"] == 2
            assert own.loc[("namespaces", "host"), "n_units"] in kinds.values()
        assert "paper-2022 instead of torch-2.13, on the host" in page
    else:
        assert rows.empty
        assert tree["reason"] in page


def test_a_missing_runtime_is_unavailable_with_its_reason(extended):
    page = re.sub(r"<[^>]+>", "", (extended / "results/tiny/report/print.html").read_text())
    metrics = pd.read_csv(extended / "results/tiny/tables/metrics.csv")
    for env, word in (("charliecloud", "ch-run"), ("docker", "docker")):
        rows = metrics[(metrics["launch"] == env) & (metrics["metric"] == "real_s")]
        assert set(rows["kind"]) == {"unavailable"}
        assert rows["reason"].str.contains(word, case=False).all()
        record = json.loads((extended / f"results/probe/box/{env}.json").read_text())
        assert not record["available"] and record["remedy"]
        assert record["remedy"] in page


def test_the_documentations_environment_and_workload_reach_the_report(extended):
    page = (extended / "results/tiny/report/print.html").read_text()
    assert "Softmax regression on MNIST" in page
    assert re.search(r">\s*Namespaces\s*<", page)


def test_a_page_has_nothing_of_a_paper_of_which_its_study_runs_nothing(extended):
    page = (extended / "results/tiny/report/print.html").read_text()
    assert 'id="paper"' not in page and "nyu2022" not in page
    assert not list((extended / "results/tiny").glob("**/*nyu2022*"))


def test_only_the_studys_environments_are_tried(extended):
    probes = {path.stem for path in (extended / "results/probe/box").glob("*.json")}
    assert probes == {"host", "namespaces", "broken", "docker", "charliecloud"}


def test_logs_lie_in_one_place(extended):
    assert not (extended / "results/tiny/logs").exists()
    own = {path.name for path in (extended / "results/logs/tiny").iterdir()}
    assert {"report.log", "tables.log", "notebooks.log", "box"} <= own
    assert {"rounds", "machine.log"} <= {path.name for path in (extended / "results/logs/tiny/box").iterdir()}


PAGES = ("add-an-environment.md", "add-a-workload.md", "add-a-scenario.md")


def test_the_commands_of_the_pages_on_additions_do_what_they_say(extended, tmp_path):
    """Snakemake's dry, but for those that made this study; of the launches of what they add, one."""
    lines = [
        line.split("#")[0] for page in PAGES for one in code_blocks(page, "console") for line in one.splitlines()
    ]
    commands = {tuple(line.split()) for line in lines}
    asked = {command[1:] for command in commands if command[:1] == ("snakemake",)}
    own = {("--cores", "1", target, *MINE) for target in ("all", "namespaces")}
    assert own < asked
    for command in asked - own:
        if not any(set(command) < set(other) for other in asked):
            done = snakemake(extended, *command, "-n", **POOR)
            assert "nothing to be done" in (done.stdout + done.stderr).lower()
    launches = sorted(command[3:] for command in commands if command[:4] == ("python", "-m", "tare", "run"))
    added = [command for command in launches if {"namespaces", "softmax_mnist"} & set(command)]
    assert len(launches) == 3 and len(added) == 2
    for command in in_turn(0, added):
        done = tare(extended, *command, **{LOCKS: str(tmp_path)})
        assert done.returncode == 0 and re.search(r"real_s +[\d.]+ s", done.stdout), done.stdout + done.stderr


def test_the_documentations_environment_passes_the_conformance_tests(extended):
    """Those that once named the host where a new environment without an image is none, and some quick ones."""
    chosen = "can_not_be_written adapter_says shown_arrives without_the_driver driver_that works_or_says is_stopped"
    chosen = f"namespaces and ({' or '.join(chosen.split())})"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/conformance", "-k", chosen],
        cwd=extended, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_a_second_run_has_nothing_to_do_and_says_so_quickly(extended):
    started = time.monotonic()
    done = snakemake(extended, "-n", "--cores", "1", "all", *MINE, **POOR)
    assert time.monotonic() - started < 30  # 5 s on an idle machine: benchmarks/ measures it
    assert "nothing to be done" in (done.stdout + done.stderr).lower()


def test_snakemakes_own_report_still_works(extended, tmp_path):
    page = tmp_path / "report.html"
    snakemake(extended, "--cores", "1", "--report", str(page), "all", *MINE, **POOR)
    text = page.read_text()
    for words in ("the whole report", "ratio to the host", "what an image costs"):
        assert words in text


def test_the_smoke_preset_makes_everything_that_is_promised(smoke):
    results = smoke / "results/smoke"
    for name in (
        "metrics.parquet",
        "metrics.csv",
        "verdicts.csv",
        "job_length.csv",
        "decisions.csv",
        "decisions.json",
        "operators.csv",
        "samples.csv",
        "steps.csv",
        "fingerprints.csv",
        "image_costs.csv",
        "ledger.csv",
        "published.csv",
        "claims.csv",
    ):
        assert (results / "tables" / name).stat().st_size > 0
    for name in ("batch_size", "environments", "profile", "roofline", "nyu2022", "job_length"):
        assert (results / f"notebooks/{name}.html").stat().st_size > 10_000
    for env in ("host", "docker", "apptainer", "charliecloud"):
        record = json.loads((smoke / f"results/images/torch-2.13/{env}.json").read_text())
        assert record["status"] == "ok", record["reason"]
    page = (results / "report/print.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "") and 'src="http' not in page


def test_every_environment_trained_and_computed_the_same(smoke):
    metrics = pd.read_csv(smoke / "results/smoke/tables/metrics.csv")
    for kind, metric, loss in (("rounds", "real_s", "loss_last"), ("steps", "step_s", "step_loss_last")):
        joint = metrics[metrics["campaign"] == f"{kind}.apptainer+charliecloud+docker+host"]
        real = joint[joint["metric"] == metric]
        assert set(real["launch"]) == {"host", "host.control", "docker", "apptainer", "charliecloud"}
        apart = real[real["kind"] != "measured"]  # rounds that are made for other launches
        assert set(apart["reason"]) <= {f"skipped: {LEFT_OUT}"}
        assert set(apart["launch"]).isdisjoint({"host", "host.control"})
        assert (real[real["kind"] == "measured"].groupby("launch").size() >= 2).all()
        losses = joint[joint["metric"] == loss].groupby("rep")["value"]
        assert (losses.max() - losses.min() <= 1e-5 * losses.mean()).all()


def test_a_run_beside_a_co_runner_stands_in_units_rows_and_page(smoke):
    sealed = read_sealed(smoke / "results/campaigns/smoke/box/mnist_cnn/rounds.host.shared/sealed.json")
    (unit,) = sealed.counted
    beside, alone = unit.launches["host"], unit.launches["host.alone"]
    assert beside.co_runner.workload == "mnist_cnn" and beside.co_runner.steps > 0 and alone.co_runner is None
    metrics = pd.read_csv(smoke / "results/smoke/tables/metrics.csv")
    own = metrics[(metrics["scenario"] == "shared") & (metrics["metric"] == "slowdown")]
    assert set(own["launch"]) == {"host", "host.control"} and (own["value"] > 0).all()
    assert 'id="co_runner"' in (smoke / "results/smoke/report/environments.html").read_text()


def test_instances_that_train_together_stand_in_units_rows_and_page(smoke):
    sealed = read_sealed(smoke / "results/campaigns/smoke/box/mnist_cnn/rounds.host.distributed/sealed.json")
    assert len(sealed.counted) == 2
    for launch in (unit.launches[name] for unit in sealed.counted for name in ("host", "host.control")):
        assert launch.ok and len(launch.instances) == 2 and launch.network.kind == "switch"
    metrics = pd.read_csv(smoke / "results/smoke/tables/metrics.csv")
    own = metrics[(metrics["scenario"] == "distributed") & (metrics["metric"] == "exchange_s")]
    assert set(own["launch"]) == {"host", "host.control"} and (own["value"] > 0).all()
    network = json.loads((smoke / "results/smoke/machines/box/network.json").read_text())
    assert network["launches"]["host"]["status"] == "ok"
    assert 'id="instances"' in (smoke / "results/smoke/report/environments.html").read_text()


def test_every_environment_has_its_costs_and_was_started(smoke):
    table = pd.read_csv(smoke / "results/smoke/tables/image_costs.csv")
    values = table.groupby(["launch", "item"])["value"].max()
    for env in ("host", "docker", "apptainer", "charliecloud"):
        assert values[env, "ready_s"] > 0 and values[env, "disk_bytes"] > 100e6 and values[env, "archive_bytes"] > 0
        assert values[env, "warm_start_s"] > 0
    assert values["apptainer", "disk_bytes"] < values["charliecloud", "disk_bytes"]


def test_a_broken_environment_is_started_once_and_stops_no_other(extended):
    table = pd.read_csv(extended / "results/tiny/tables/image_costs.csv")
    own = table["stack"] == "torch-2.13"  # starts are measured for the study's own stack
    started = table[own & (table["item"] == "warm_start_s")].set_index("launch")
    reason = started.loc["broken", "reason"]
    assert "not tried again" in reason and "broken on purpose" in reason
    assert started.loc["namespaces", "value"] > 0 and started.loc["host.control", "value"] > 0
    assert {started.loc[env, "kind"] for env in ("docker", "charliecloud")} == {"unavailable"}


def test_the_tables_hold_the_papers_metrics_with_their_kinds(smoke):
    metrics = pd.read_csv(smoke / "results/smoke/tables/metrics.csv")
    kinds = metrics[metrics["campaign"] == "profile"].groupby("metric")["kind"].agg(set)
    for name in ("memset_s", "htod_s", "dtoh_s", "dram_read_bytes", "dram_write_bytes", "hbm_transactions"):
        assert kinds[name] == {"unavailable"}
    assert kinds["flops_per_step"] == {"modelled"}
    assert kinds["profiler_slowdown"] == {"measured"}
    flops = metrics[(metrics["metric"] == "flops_per_step") & (metrics["workload"] == "mnist_cnn")]["value"]
    assert set(flops) == {4580179968.0}  # by hand in test_inside.py


def test_the_same_tree_was_mapped_everywhere(smoke):
    prints = pd.read_csv(smoke / "results/smoke/tables/fingerprints.csv")
    tree = prints[prints["path"].str.startswith("{tree}")]
    assert tree.groupby(["workload", "path"])["sha256"].nunique().max() == 1
    assert tree.groupby("launch").size().nunique() == 1


def test_progress_says_stage_and_n_of_m(smoke):
    progress = (smoke / "progress.txt").read_text()
    assert re.search(r" rounds (\d+) of \1\b", progress), progress
    assert "[ 1/" in progress
    assert "sealed; before correction for the study's other comparisons:" in progress
    assert "mnist_cnn whole run: docker" in progress and "mnist_cnn step: docker" in progress
    assert "\x1b" not in progress, "nothing is drawn where there is no terminal"


def test_headlines_come_first_and_are_told_when_they_are_sealed(smoke):
    lines = (smoke / "progress.txt").read_text().splitlines()

    def at(words):
        return next(number for number, line in enumerate(lines) if words in line)

    for headline in ("mnist_cnn step: docker", "mnist_cnn whole run: docker"):
        for later in ("causes 1 of", "batch sweep 1 of", "starts 1 of", "compile=torchscript 1 of"):
            assert at("    sealed; ") < at(headline) < at(later), (headline, later)
    everyone = "apptainer+charliecloud+docker+host"
    for later in ("kernels, operators and files", "batch sweep on", "start every environment", PROFILE):
        assert at(f"{ROUNDS}, {everyone}") < at(later), later


def test_the_study_is_archived_with_the_programs_that_measured_it(smoke, tmp_path):
    done = tare(smoke, "archive", "config/smoke.yaml", "--out", str(tmp_path / "smoke.zip"))
    assert done.returncode == 0, done.stderr
    with opened(tmp_path / "smoke.zip") as root:
        index = index_of(root)
        assert (index.machines, index.remade) == (("box",), ())
        pages = {path.name for path in (root / "results/smoke/report").iterdir()}
        assert pages >= {"index.html", "print.html"}
        assert read_sealed(next(root.glob("results/campaigns/smoke/box/*/*/sealed.json"))).counted
        assert not [path for path in root.rglob("*") if path.suffix in (".sif", ".tar", ".oci")]
    assert (tmp_path / "smoke.zip").stat().st_size < 50e6


def test_a_setting_is_weighed_and_one_that_the_device_lacks_has_its_reason(varied):
    """A new workload has the settings of the framework without a line of its own."""
    verdicts = pd.read_csv(varied / "results/varied/tables/verdicts.csv")
    level = verdicts[(verdicts["campaign"] == "rounds.host.amp-bf16") & (verdicts["metric"] == "real_s")]
    level = level[level["reference"] != "host"]
    assert level["n_units"].tolist() == [2] and level["ratio"].notna().all()
    sealed = json.loads(
        (varied / "results/campaigns/varied/box/softmax_mnist/rounds.host.graph-capture/sealed.json").read_text()
    )
    assert (sealed["status"], sealed["units"]) == ("sealed", 0)
    page = (varied / "results/varied/report/print.html").read_text()
    assert "Environment or settings?" in page
    assert "graph=capture needs a CUDA device" in page


def test_an_interrupted_campaign_carries_on(extended, tmp_path):
    """Ctrl-C after the first round: one line, the round kept, the next run carries on from it."""
    out = "results/interrupted/sealed.json"
    arguments = [
        sys.executable,
        "-m",
        "tare",
        "rounds",
        "--study",
        "config/mine.yaml",
        "--workload",
        "softmax_mnist",
        "--environments",
        "host",
        "--out",
        out,
    ]
    environment = {**os.environ, "PYTHONPATH": str(extended), LOCKS: str(tmp_path)}  # it waits for no other test
    running = subprocess.Popen(
        arguments, cwd=extended, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )  # fmt: skip
    journal = extended / "results/interrupted/units.jsonl"
    deadline = time.monotonic() + 300
    while not journal.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=60)
    assert journal.exists(), output
    assert running.returncode == 130
    assert errors.strip().splitlines() == ["tare: interrupted; finished units are kept, the next run continues"]
    first = journal.read_text()
    assert first.count("\n") == 1
    done = subprocess.run(arguments, cwd=extended, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "continues; units measured before: 1" in done.stdout
    assert journal.read_text().startswith(first)


def test_a_truncated_record_is_one_clear_line(extended, tmp_path):
    sealed = tmp_path / "campaign/sealed.json"
    source = next(extended.glob("results/campaigns/tiny/box/softmax_mnist/rounds.*/sealed.json")).parent
    shutil.copytree(source, sealed.parent)
    units = sealed.with_name("units.jsonl")
    units.write_text(units.read_text()[:-200])
    done = tare(extended, "tables", "--campaigns", str(sealed), "--out", str(tmp_path / "tables"))
    assert done.returncode == 4
    assert "units.jsonl is not what was sealed" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_runtime_that_came_is_tried_again(extended, tmp_path):
    """On the machine as it is, where ch-run is there: the old `unavailable` is forgotten, by itself."""
    folder = tmp_path / "copy"
    shutil.copytree(extended, folder, symlinks=True)
    done = snakemake(folder, "-n", "--cores", "1", "all", *MINE)
    planned = done.stdout + done.stderr
    assert "try a launch in charliecloud" in planned
    assert "try a launch in namespaces" not in planned


def test_a_study_agrees_with_itself(smoke, tmp_path):
    done = tare(smoke, "diff", ".", ".", "--study", "smoke", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "agreement.csv")
    verdicts = pd.read_csv(smoke / "results/smoke/tables/verdicts.csv")
    assert len(table) == len(verdicts) and "different" not in set(table["agreement"])
    compared = table[table["agreement"] != "not compared"]
    assert len(compared) == verdicts["ci_low"].notna().sum() and set(compared["first_n"]) == set(
        compared["second_n"]
    )
    assert "Do both machines agree?" in (tmp_path / "index.html").read_text()
