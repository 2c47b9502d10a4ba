"""Audits of sentences, tables and recordings alone; each finding goes once its input is put right."""

import pytest
from audit_builders import edited, here, metric, only, pick, verdict
from builders import build_results

from tare.cli.main import main
from tare.core.errors import UserError
from tare.literature import audit, claims, published
from tare.model import tables

MODELS = ("resnet18", "resnet50", "alexnet")
RUN = metric("host", "user_s", 5.0)  # of another workload: none of the study's


def study(paper, folder=None, *changes):
    """A published study, with texts of its file replaced."""
    if folder is None:
        return published.load(paper)
    return published.load(paper, edited(folder, *changes, file=f"{paper}.yaml"))


def audited(*args):
    return audit.judge(study(*args), here(metrics=[RUN]))


@pytest.fixture(scope="module")
def columbia():
    return audited("columbia2025")


@pytest.fixture(scope="module")
def nthu():
    return audited("nthu2018")


def test_rates_are_the_formula_of_the_script_to_the_last_digit(columbia):
    rows = pick(columbia, "formula", metric="flops")
    assert len(rows) == 6 and set(rows["agrees"]) == {"yes"}
    # 89% of 2025 MHz x 1280 cores x 2
    assert only(rows, "formula", workload="alexnet", env="docker")["recomputed"] == pytest.approx(4.61376e12)
    ceiling = only(columbia, "formula_ceiling", metric="flops")
    assert (ceiling["published"], ceiling["recomputed"], ceiling["agrees"]) == (5.184e12, 5.184e12, "yes")
    clock = only(columbia, "formula_factor", metric="clock_max")
    assert clock["recomputed"] == pytest.approx(5.184e12 / (1280 * 2)) and clock["agrees"] == "yes"


def test_a_product_of_constants_and_an_utilisation_measures_nothing(columbia):
    flops, link = (only(columbia, "not_measured", metric=name) for name in ("flops", "memory_bandwidth"))
    assert flops["agrees"] == link["agrees"] == "no"
    assert "only gpu_utilisation varies" in flops["note"] and "one constant" in link["note"]
    assert pick(columbia, "formula_ceiling", metric="memory_bandwidth").empty


def test_a_rate_that_is_no_product_was_measured(tmp_path):
    table = audited(
        "columbia2025", tmp_path, ("env: host, value: 5.08032 TFLOP/s", "env: host, value: 4.7 TFLOP/s")
    )
    assert only(table, "formula", metric="flops", workload="resnet18", env="host")["agrees"] == "no"
    row = only(table, "not_measured", metric="flops")
    assert row["agrees"] == "yes" and "1 of 6 published values" in row["note"]


def test_another_clock_gives_another_ceiling(tmp_path):
    table = audited("columbia2025", tmp_path, ("value: 2025 MHz", "value: 2040 MHz"))
    assert only(table, "formula_ceiling", metric="flops")["agrees"] == "no"
    assert only(table, "formula_factor", metric="clock_max")["agrees"] == "no"


def test_the_container_recordings_begin_with_the_virtual_machines(columbia):
    rows = pick(columbia, "copied_rows", env="docker")
    assert dict(zip(rows["workload"], rows["recomputed"], strict=True)) == {
        "alexnet": 47, "resnet18": 59, "resnet50": 65,
    }  # fmt: skip
    assert set(rows["agrees"]) == {"no"} and all("whole recording of host" in note for note in rows["note"])
    assert set(pick(columbia, "copied_rows", env="host")["agrees"]) == {"yes"}


def test_a_recording_of_its_own_rows_has_no_copies(tmp_path):
    table = audited(
        "columbia2025",
        tmp_path,
        ("env: docker, model: alexnet, value: 104 rows", "env: docker, model: alexnet, value: 47 rows"),
    )
    assert only(table, "copied_rows", env="docker", workload="alexnet")["agrees"] == "yes"


@pytest.mark.parametrize(
    ("model", "largest", "agrees"), [("resnet18", 99, "yes"), ("resnet50", 76, "no"), ("alexnet", 73, "no")]
)
def test_maxima_of_the_table_beside_those_of_the_container_alone(columbia, model, largest, agrees):
    row = only(columbia, "own_maximum", metric="gpu_utilisation", workload=model, env="docker")
    assert (row["recomputed"], row["agrees"]) == (largest, agrees)
    assert ("is the maximum of host" in row["note"]) == (agrees == "no")
    assert row["measured_kind"] == "unavailable" and "not part of this study" in row["note"]
    assert only(columbia, "own_maximum", metric="flops", workload=model, env="docker")["agrees"] == agrees


def test_a_table_of_its_own_maxima_agrees(tmp_path):
    said = "{specification: gpu_utilisation, model: alexnet, env: docker, value: "
    table = audited("columbia2025", tmp_path, (said + "89.0 %", said + "73.0 %"))
    assert only(table, "own_maximum", metric="gpu_utilisation", workload="alexnet", env="docker")["agrees"] == "yes"


def test_means_stand_beside_the_maxima(columbia):
    row = only(columbia, "own_mean", workload="resnet50", env="docker")
    assert (row["published"], row["recomputed"], row["agrees"]) == (100, 3.51, "not recomputable")


def test_batches_of_the_text_are_not_those_of_the_logs(columbia, tmp_path):
    row = only(columbia, "restated", metric="batches_stop")
    assert (row["published"], row["recomputed"], row["agrees"]) == (15, 51, "no")
    table = audited("columbia2025", tmp_path, ("value: 15 batches", "value: 51 batches"))
    assert only(table, "restated", metric="batches_stop")["agrees"] == "yes"


def test_a_loss_that_is_no_number_trains_nothing(columbia, tmp_path):
    assert only(columbia, "loss", workload="alexnet")["agrees"] == "no"
    table = audited("columbia2025", tmp_path, ("model: alexnet, name: NaN", "model: alexnet, value: 5.3 1"))
    assert only(table, "loss", workload="alexnet")["agrees"] == "yes"


def said(claim, *args):
    rows = claims.judge_claims(study("columbia2025", *args), here(metrics=[RUN]))
    return rows[rows["claim"] == claim].set_index("workload")


@pytest.mark.parametrize("claim", ["container_more_efficient", "containerization_minimal"])
def test_one_run_establishes_nothing_of_step_times(claim):
    rows = said(claim)
    assert set(rows.index) == set(MODELS) and set(rows["published_says"]) == {"not established by its data"}
    assert "host 380 ms and docker 393 ms" in rows.loc["resnet18", "published_note"]
    assert "host 1.304 s and docker 1.317 s" in rows.loc["resnet50", "published_note"]
    assert "host 299 ms and docker 101 ms" in rows.loc["alexnet", "published_note"]
    assert set(rows["here"]) == {"open here"} and set(rows["reason"]) == {"this workload is not part of this study"}


def test_steps_like_their_own_mean_would_contradict(tmp_path):
    changes = [
        ("env: host, model: resnet50, value: 1.335 s", "env: host, model: resnet50, value: 1.304 s"),
        ("env: docker, model: resnet50, value: 1.348 s", "env: docker, model: resnet50, value: 1.317 s"),
    ]
    rows = said("container_more_efficient", tmp_path, *changes)
    assert rows.loc["resnet50", "published_says"] == "contradicted"
    assert rows.loc["resnet18", "published_says"] == "not established by its data"


def test_the_largest_rate_contradicts_where_nothing_was_copied():
    rows = said("flops_container_lower")
    assert rows.loc["resnet18", "published_says"] == "contradicted"
    assert set(rows.loc[["resnet50", "alexnet"], "published_says"]) == {"not established by its data"}


def test_utilisation_is_judged_with_the_figures_that_show_it():
    rows = said("utilisation_equal")
    assert rows["figures"].to_dict() == {"resnet18": "4", "resnet50": "5", "alexnet": "6"}
    assert rows.loc["alexnet", "published_says"] == "not established by its data"


def test_which_spread_is_meant_decides_where_the_gpu_is_used_more_steadily(tmp_path):
    wide, relative = said("utilisation_steadier"), said("utilisation_steadier_for_its_mean")
    assert set(wide["published_says"]) == {"contradicted"}
    assert set(relative["published_says"]) == {"not established by its data"}
    assert "docker 4.581 and host 1.321; host is the lowest" in relative.loc["resnet50", "published_note"]
    changed = said("utilisation_steadier", tmp_path, ("alexnet, value: 29.761 %", "alexnet, value: 19.1 %"))
    assert changed.loc["alexnet", "published_says"] == "not established by its data"


def test_the_order_of_models_holds_by_the_table_and_not_by_the_containers_own_rows(tmp_path):
    largest, mean, memory = (
        said(f"models_by_{name}") for name in ("utilisation", "mean_utilisation", "gpu_memory")
    )
    assert largest["published_says"].to_dict() == {
        "resnet50": "contradicted", "resnet18": "contradicted", "alexnet": "not established by its data",
    }  # fmt: skip
    assert "resnet50 is not above resnet18" in largest.loc["resnet50", "published_note"]
    assert set(mean["published_says"]) == {"contradicted"}
    assert set(memory["published_says"]) == {"not established by its data"}
    assert "resnet50 21.979 GB, resnet18 8.661 GB and alexnet 2.907 GB" in memory.loc["alexnet", "published_note"]
    swapped = said("models_by_gpu_memory", tmp_path, ("alexnet, value: 2907 MB", "alexnet, value: 9000 MB"))
    assert swapped.loc["alexnet", "published_says"] == swapped.loc["resnet18", "published_says"] == "contradicted"
    assert swapped.loc["resnet50", "published_says"] == "not established by its data"


def test_a_build_that_no_run_saves_anything_of_is_never_paid_back(tmp_path):
    rows = said("building_pays_when_repeated")
    assert set(rows["published_says"]) == {"not established by its data"}, "one run, whose numbers lie apart"
    # 0.299 - 0.101 s by 51 iterations are 10.098 s a run, of 199.7 s
    assert (
        "saves 10.098 s, so that a build of 199.7 s is paid back after 20 runs"
        in rows.loc["alexnet", "published_note"]
    )
    assert "663 ms more, so that a build of 199.7 s is never paid back" in rows.loc["resnet18", "published_note"]
    steady = [
        ("env: host, model: resnet50, value: 1.335 s", "env: host, model: resnet50, value: 1.304 s"),
        ("env: docker, model: resnet50, value: 1.348 s", "env: docker, model: resnet50, value: 1.317 s"),
    ]
    rows = said("building_pays_when_repeated", tmp_path, *steady)
    assert rows.loc["resnet50", "published_says"] == "contradicted"


def test_step_times_are_judged_here_by_whole_runs_once_the_study_trains_the_model():
    rows = [verdict("docker", "epoch_rest_s", 0.9, 0.95, "different", workload="resnet18")]
    own = [metric("host", "user_s", 5.0, workload="resnet18")]
    found = claims.judge_claims(study("columbia2025"), here(metrics=own, verdicts=rows))
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
    table = audit.judge(study("columbia2025"), here(metrics=own))
    labels = {"workload": "alexnet", "env": "docker"}
    use, rate, link = (
        only(table, "specification", metric=name, **labels)
        for name in ("gpu_utilisation", "flops", "memory_bandwidth")
    )
    assert (use["measured"], use["measured_kind"]) == (97, "measured")
    assert (rate["measured"], rate["measured_kind"]) == (3e12, "modelled")
    assert link["measured_kind"] == "unavailable" and "no counters" in link["note"]


def test_the_conclusion_promises_more_than_the_text(nthu, tmp_path):
    row = only(nthu, "restated", metric="single_synth_degradation_max")
    assert (row["published"], row["recomputed"], row["agrees"]) == (15, 10, "no")
    assert "section 4.1: <= 15 %" in row["note"] and "section 6(1): < 10 %" in row["note"]
    assert only(nthu, "restated", metric="dist_synth_throughput_cvm")["agrees"] == "yes"
    # 1.5 times is 50% longer.
    assert only(nthu, "restated", metric="dist_elapsed_max_factor")["agrees"] == "yes"
    table = audited("nthu2018", tmp_path, ("scenario: single, value: 10 %", "scenario: single, value: 15 %"))
    assert only(table, "restated", metric="single_synth_degradation_max")["agrees"] == "yes"


def test_what_has_no_label_and_no_spread_cannot_be_recomputed(nthu, tmp_path):
    rows = pick(nthu, "not_recomputable", metric="labels")
    assert list(rows["figure"]) == [str(number) for number in range(2, 11)]
    assert "without the number of their runs" in only(nthu, "not_recomputable", metric="spread")["note"]
    judged = pick(nthu, "not_judged")
    assert len(judged) == sum(one.why_not is not None for one in published.load("nthu2018").sentences) > 10
    assert judged["note"].str.contains(r"\(section [46]").all() and set(judged["agrees"]) == {"not recomputable"}
    table = audited("nthu2018", tmp_path, ("kind: text, name: not stated", "kind: text, value: 5 runs"))
    assert pick(table, "not_recomputable", metric="spread").empty


def test_a_setting_of_a_paper_is_no_property_of_a_machine(nthu):
    note = only(nthu, "specification", metric="batch_per_gpu", workload="resnet50")["note"]
    assert "a setting of the paper's" in note


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
        study("columbia2025", tmp_path, (old, new))
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
    assert len(own) == 11 * len(MODELS) and set(own["reason"]) == {"this workload is not part of this study"}
    assert "device class: unknown" in own["match"].iloc[0]
