"""papers/findings.csv: expectations worked out by hand from what was published, for each kind of finding."""

import math

import pytest
from audit_builders import ENVIRONMENTS, frozen, only, pick

from tare.literature import published

# Sums over kernels of the CNN, worked out by hand from its logs:
# env: FLOPs sum of maxima and weighted; reads, writes likewise; GB/s read and write, without and with units.
SUMS = {
    "host": (475211776, 3484655615, 1780460, 12315935, 2098090, 13345537, 226.48, 226.48, 271.59, 271.59),
    "docker": (1404387328, 10985897983, 657871, 4132015, 988496, 5319326, 178.96, 134.41, 209.12, 209.12),
    "apptainer": (1404387328, 10985897983, 654298, 4129024, 945106, 5250505, 275.41, 135.18, 281.77, 198.92),
}
MODELS = ("resnet18", "resnet50", "alexnet")


def of(paper):
    table = frozen()
    return table[table["paper"] == paper]


@pytest.fixture(scope="module")
def nyu():
    return of("nyu2022")


@pytest.fixture(scope="module")
def columbia():
    return of("columbia2025")


@pytest.fixture(scope="module")
def nthu():
    return of("nthu2018")


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_sums_over_kernels_are_as_worked_out_by_hand(nyu, env):
    flops, weighted, reads, reads_weighted, writes, writes_weighted, *rates = SUMS[env]
    wanted = {"flops": (flops, weighted), "dram_read_transactions": (reads, reads_weighted),
              "dram_write_transactions": (writes, writes_weighted)}  # fmt: skip
    for name, (maxima, right) in wanted.items():
        assert only(nyu, "kernel_sum", env=env, metric=name)["recomputed"] == maxima
        assert only(nyu, "sum_of_maxima", env=env, metric=name)["recomputed"] == right
    both = only(nyu, "sum_of_maxima", env=env, metric="hbm_transactions")["recomputed"]
    assert both == reads_weighted + writes_weighted
    found = [
        only(nyu, check, env=env, metric=f"dram_{way}_bytes_per_s")["recomputed"]
        for way in ("read", "write")
        for check in ("kernel_sum", "units")
    ]
    assert [round(rate / 1e9, 2) for rate in found] == rates


def test_time_of_the_kernels_and_bytes_by_it(nyu):
    # 1.43 ms on the VM, 1.50 ms in the containers: one kernel of 1 invocation there has
    # 122700 x 32 B / 114.22 GB/s = 34.4 us, and 312036 x 32 B / 290.47 GB/s = 34.4 us.
    for env, wanted in (("host", 1.430e-3), ("docker", 1.499e-3), ("apptainer", 1.498e-3)):
        took = only(nyu, "kernel_time", env=env)["recomputed"]
        assert took == pytest.approx(wanted, rel=1e-3)
        mean = only(nyu, "mean_throughput", env=env, metric="dram_read_bytes_per_s")["recomputed"]
        assert mean == pytest.approx(SUMS[env][3] * 32 / took)


def test_published_flops_are_sums_of_maxima_and_not_what_ran(nyu):
    rows = pick(nyu, "sum_of_maxima", metric="flops").set_index("env")
    assert rows["published"].to_dict() == {env: SUMS[env][0] for env in ENVIRONMENTS}
    assert set(rows["agrees"]) == {"no"} and "7.33 times" in rows.loc["host", "note"]


def test_a_summary_that_its_own_kernels_do_not_give_is_of_another_run(nyu):
    for env, metric, agrees in (
        ("host", "dram_read_transactions", "yes"),
        ("docker", "dram_read_transactions", "no"),
        ("docker", "dram_write_bytes_per_s", "no"),
        ("docker", "flops", "yes"),
        ("apptainer", "dram_write_bytes_per_s", "yes"),
    ):
        assert only(nyu, "kernel_sum", env=env, metric=metric)["agrees"] == agrees, (env, metric)


def test_units_were_not_looked_at(nyu):
    row = only(nyu, "units", env="apptainer", metric="dram_read_bytes_per_s")
    assert row["agrees"] == "no" and row["published"] == 275e9
    assert "with the numbers of 1 of them" in row["note"] and "275.41 GB/s" in row["note"]
    assert only(nyu, "units", env="host", metric="dram_read_bytes_per_s")["agrees"] == "yes"


def test_totals_are_calls_times_average_in_all_logs_but_one(nyu):
    rows = pick(nyu, "calls_times_average")
    assert len(rows) == 15
    wrong = rows[rows["agrees"] == "no"]
    assert set(zip(wrong["workload"], wrong["env"], wrong["metric"], strict=True)) == {
        ("sentiment_rnn", "apptainer", "htod_s"),
        ("sentiment_rnn", "apptainer", "memset_s"),
    }
    htod = only(rows, "calls_times_average", env="apptainer", workload="sentiment_rnn", metric="htod_s")
    assert htod["recomputed"] == pytest.approx(117.075e-6) and htod["published"] == pytest.approx(111.09e-6)


def test_two_logs_of_the_rnn_are_one(nyu):
    wrong = pick(nyu, "repeated", figure="log", agrees="no")
    assert len(wrong) == 1 and wrong.iloc[0]["workload"] == "sentiment_rnn" and wrong.iloc[0]["published"] == 9
    assert "2 lines of 442 lines" in wrong.iloc[0]["note"]


@pytest.mark.parametrize(
    ("labels", "said", "found", "agrees"),
    [
        ({"figure": "table V", "metric": "gpu_memory", "workload": "mnist_cnn"}, 32e9, 16e9, "no"),
        ({"figure": "table V", "metric": "gpu_memory", "workload": "sentiment_rnn"}, 32e9, 16e9, "no"),
        ({"figure": "table V", "metric": "gpu", "workload": "mnist_cnn"}, None, None, "yes"),
        ({"figure": "table V", "metric": "gpu", "workload": "sentiment_rnn"}, None, None, "no"),
        ({"figure": "text", "metric": "devices"}, 1, 2, "no"),
        ({"figure": "table I", "metric": "vcpu"}, 8, 1, "no"),
        ({"figure": "log", "metric": "best_batch", "workload": "mnist_cnn"}, 64, 256, "no"),
        ({"figure": "log", "metric": "best_batch", "workload": "sentiment_rnn"}, 128, 256, "no"),
        ({"figure": "2", "metric": "best_batch"}, 64, 64, "yes"),
        ({"figure": "3", "metric": "best_batch"}, 128, 128, "yes"),
        ({"figure": "text", "metric": "batch", "workload": "mnist_cnn"}, 64, 64, "yes"),
        ({"figure": "text", "metric": "batch", "workload": "sentiment_rnn"}, 128, 64, "no"),
        ({"figure": "17", "metric": "real_s", "env": "apptainer"}, 5.22, 5.18, "no"),
        ({"figure": "18", "metric": "real_s", "env": "apptainer"}, 3.66, 3.74, "yes"),
    ],
)
def test_text_and_tables_against_the_logs(nyu, labels, said, found, agrees):
    row = only(nyu, "contradiction", **labels)
    assert row["agrees"] == agrees
    assert row["published"] == said or (said is None and row.isna()["published"])
    assert row["recomputed"] == found or (found is None and row.isna()["recomputed"])


def test_the_vm_and_the_containers_ran_different_builds(nyu):
    row = only(nyu, "contradiction", metric="binaries")
    assert row["agrees"] == "no" and "compute_70 on host, compute_86 on docker" in row["note"]
    assert "7, docker 5 and apptainer 5; 1 in common" in only(nyu, "contradiction", metric="kernels")["note"]


def test_the_roof_is_that_of_the_precision_that_ran_and_says_what_bounds(nyu):
    row = only(nyu, "roof", metric="roof_flop_per_s", workload="mnist_cnn")
    assert (row["published"], row["recomputed"], row["agrees"]) == (125e12, 15.7e12, "no")
    assert only(nyu, "ridge")["agrees"] == "yes"
    points = pick(nyu, "roof", metric="flop_per_s")
    # What the CNN's log in Singularity gives as time stands in another unit than all others: no point of it.
    own = points[(points["workload"] == "mnist_cnn") & (points["env"] == "apptainer")]
    assert [name.rpartition("/")[2] for name in own["id"]] == ["invocation-weighted"]
    cnn = points[(points["workload"] == "mnist_cnn") & (points["env"] == "host")].iloc[0]
    assert cnn["recomputed"] == pytest.approx(475211776 / 0.015012356)
    docker = points[(points["workload"] == "mnist_cnn") & (points["env"] == "docker")].iloc[1]
    assert docker["recomputed"] == pytest.approx(10985897983 / 1.4992e-3, rel=1e-3)
    assert set(points.loc[points["env"] == "host", "agrees"]) == {"yes"} and (points["env"] == "host").sum() == 3
    assert set(points.loc[points["env"] == "docker", "agrees"]) == {"not recomputable"}


def test_what_cannot_be_recomputed_says_why(nyu):
    rows = pick(nyu, "not_recomputable")
    lost = rows[(rows["workload"] == "sentiment_rnn") & (rows["metric"] == "flops")]
    assert set(lost["env"]) == set(ENVIRONMENTS) and lost["note"].str.contains("44 of about 1000 rows").all()
    assert rows[(rows["workload"] == "mnist_cnn") & (rows["metric"] == "flops")].empty
    assert len(rows[rows["metric"] == "kernels"]) == 3 and len(rows[rows["metric"] == "real_s"]) == 6


def test_no_note_is_left_open_and_each_finding_has_a_name_of_its_own():
    table = frozen()
    assert table["note"].str.endswith(".").all()
    assert not table["note"].str.contains(r"\bnan\b|\bNone\b|\.\.", regex=True).any()
    assert not table.duplicated(["paper", "id"]).any() and not table["id"].str.contains(" ").any()


# What each figure's values are in their own logs: y(es), n(o), ? where no log has them; host, docker, apptainer.
OWN_LOG = {
    "5": "nyn", "6": "nyn", "7": "yny", "8": "nnn", "9": "nyy", "10": "nny", "11": "ynn", "12": "nny",
    "13": "yyy", "14": "nny", "15": "yyy", "16": "nnn",
}  # fmt: skip


@pytest.mark.parametrize("figure", OWN_LOG)
def test_each_bar_is_held_against_its_own_log(nyu, figure):
    found = [only(nyu, "figure_value", figure=figure, env=env)["agrees"] for env in ENVIRONMENTS]
    assert "".join(word[0] for word in found) == OWN_LOG[figure]


def test_bars_by_batch_size_are_held_against_the_log_of_that_batch_size(nyu):
    for figure, wanted in (("2", {16: "no", 32: "no", 64: "no", 128: "not recomputable", 256: "no"}),
                           ("3", {16: "yes", 32: "yes", 64: "yes", 128: "no", 256: "no"})):  # fmt: skip
        found = pick(nyu, "figure_value", figure=figure)
        assert dict(zip(found["batch"], found["agrees"], strict=True)) == wanted


def test_times_are_held_against_their_own_run(nyu):
    for figure, name, wanted in (
        ("17", "real_s", "yyn"), ("17", "system_s", "nyn"), ("18", "real_s", "nyn"), ("18", "system_s", "nyy"),
    ):  # fmt: skip
        found = [only(nyu, "figure_value", figure=figure, env=e, metric=name)["agrees"] for e in ENVIRONMENTS]
        assert "".join(word[0] for word in found) == wanted, (figure, name)


def test_the_points_of_figure_4_follow_from_the_logs(nyu):
    for workload, name, wanted in (
        ("mnist_cnn", "log2_intensity", math.log2(475211776 / (3878550 * 32))),
        ("mnist_cnn", "log2_gflops", math.log2(475211776 / 0.015012356 / 1e9)),
        ("sentiment_rnn", "log2_intensity", math.log2(651965536 / (2071931 * 32))),
        ("sentiment_rnn", "log2_gflops", math.log2(651965536 / 0.005671091 / 1e9)),
    ):
        row = only(nyu, "figure_value", figure="4", workload=workload, metric=name)
        assert row["recomputed"] == pytest.approx(wanted) and row["agrees"] == "yes"


def test_every_value_of_every_figure_has_its_row(nyu):
    rows = pick(nyu, "figure_value")
    assert len(rows) == len(published.load("nyu2022").figures) == 62
    assert set(rows["figure"]) == {str(number) for number in range(2, 19)}


def test_exchanged_bars_are_found_by_search(nyu):
    swapped = pick(nyu, "swapped")
    assert set(zip(swapped["figure"], swapped["env"], strict=True)) == {
        ("3", "host"), ("10", "host"), ("10", "docker"), ("12", "host"), ("14", "docker"),
        ("16", "host"), ("16", "docker"), ("16", "apptainer"),
    }  # fmt: skip
    assert set(pick(swapped, "swapped", figure="3")["batch"]) == {128, 256}
    for figure in ("3", "10", "16"):
        assert pick(swapped, "swapped", figure=figure)["note"].str.contains("the two are exchanged").any()
    assert not pick(swapped, "swapped", figure="12")["note"].str.contains("exchanged").any()


def test_values_that_stand_elsewhere_or_nowhere_are_named(nyu):
    rows = pick(nyu, "repeated", figure="8")
    assert set(rows["env"]) == {"host", "apptainer"} and rows["note"].str.contains("figure 7").all()
    assert "one digit from 947.93 us" in only(nyu, "not_in_logs", figure="8", env="docker")["note"]
    rows = pick(nyu, "not_in_logs", agrees="no")
    found = {(row.figure, row.env) for row in rows.itertuples()}
    assert {("14", "host"), ("7", "docker"), ("9", "host"), ("11", "docker"), ("11", "apptainer")} <= found
    assert ("13", "host") not in found and ("15", "docker") not in found
    row = only(nyu, "not_in_logs", figure="17", env="apptainer", metric="real_s")
    assert row["agrees"] == "not recomputable" and "host and docker" in row["note"], "a height that fits two logs"


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


def test_the_container_recordings_begin_with_the_virtual_machines(columbia):
    rows = pick(columbia, "copied_rows", env="docker")
    assert dict(zip(rows["workload"], rows["recomputed"], strict=True)) == {
        "alexnet": 47, "resnet18": 59, "resnet50": 65,
    }  # fmt: skip
    assert set(rows["agrees"]) == {"no"} and all("whole recording of host" in note for note in rows["note"])
    assert set(pick(columbia, "copied_rows", env="host")["agrees"]) == {"yes"}


@pytest.mark.parametrize(
    ("model", "largest", "agrees"), [("resnet18", 99, "yes"), ("resnet50", 76, "no"), ("alexnet", 73, "no")]
)
def test_maxima_of_the_table_beside_those_of_the_container_alone(columbia, model, largest, agrees):
    row = only(columbia, "own_maximum", metric="gpu_utilisation", workload=model, env="docker")
    assert (row["recomputed"], row["agrees"]) == (largest, agrees)
    assert ("is the maximum of host" in row["note"]) == (agrees == "no")
    assert only(columbia, "own_maximum", metric="flops", workload=model, env="docker")["agrees"] == agrees


def test_means_batches_and_losses(columbia):
    row = only(columbia, "own_mean", workload="resnet50", env="docker")
    assert (row["published"], row["recomputed"], row["agrees"]) == (100, 3.51, "not recomputable")
    row = only(columbia, "restated", metric="batches_stop")
    assert (row["published"], row["recomputed"], row["agrees"]) == (15, 51, "no")
    assert only(columbia, "loss", workload="alexnet")["agrees"] == "no"


def said(claim):
    rows = pick(of("columbia2025"), "claim", claim=claim)
    return rows.set_index("workload")


@pytest.mark.parametrize("claim", ["container_more_efficient", "containerization_minimal"])
def test_one_run_establishes_nothing_of_step_times(claim):
    rows = said(claim)
    assert set(rows.index) == set(MODELS) and set(rows["agrees"]) == {"not established by its data"}
    assert "host 380 ms and docker 393 ms" in rows.loc["resnet18", "note"]
    assert "host 1.304 s and docker 1.317 s" in rows.loc["resnet50", "note"]
    assert "host 299 ms and docker 101 ms" in rows.loc["alexnet", "note"]


def test_the_largest_rate_contradicts_where_nothing_was_copied():
    rows = said("flops_container_lower")["agrees"]
    assert rows["resnet18"] == "contradicted"
    assert set(rows[["resnet50", "alexnet"]]) == {"not established by its data"}


def test_which_spread_is_meant_decides_where_the_gpu_is_used_more_steadily():
    wide, relative = said("utilisation_steadier"), said("utilisation_steadier_for_its_mean")
    assert set(wide["agrees"]) == {"contradicted"} and set(relative["agrees"]) == {"not established by its data"}
    assert "docker 4.581 and host 1.321; host is the lowest" in relative.loc["resnet50", "note"]


def test_the_order_of_models_holds_by_the_table_and_not_by_the_containers_own_rows():
    largest, mean, memory = (
        said(f"models_by_{name}") for name in ("utilisation", "mean_utilisation", "gpu_memory")
    )
    assert largest["agrees"].to_dict() == {
        "resnet50": "contradicted", "resnet18": "contradicted", "alexnet": "not established by its data",
    }  # fmt: skip
    assert "resnet50 is not above resnet18" in largest.loc["resnet50", "note"]
    assert set(mean["agrees"]) == {"contradicted"} and set(memory["agrees"]) == {"not established by its data"}
    assert "resnet50 21.979 GB, resnet18 8.661 GB and alexnet 2.907 GB" in memory.loc["alexnet", "note"]


def test_a_build_that_no_run_saves_anything_of_is_never_paid_back():
    rows = said("building_pays_when_repeated")
    assert set(rows["agrees"]) == {"not established by its data"}, "one run, whose numbers lie apart"
    # 0.299 - 0.101 s by 51 iterations are 10.098 s a run, of 199.7 s
    assert "saves 10.098 s, so that a build of 199.7 s is paid back after 20 runs" in rows.loc["alexnet", "note"]
    assert "663 ms more, so that a build of 199.7 s is never paid back" in rows.loc["resnet18", "note"]


def test_the_conclusion_promises_more_than_the_text(nthu):
    row = only(nthu, "restated", metric="single_synth_degradation_max")
    assert (row["published"], row["recomputed"], row["agrees"]) == (15, 10, "no")
    assert "section 4.1: <= 15 %" in row["note"] and "section 6(1): < 10 %" in row["note"]
    assert only(nthu, "restated", metric="dist_synth_throughput_cvm")["agrees"] == "yes"
    # 1.5 times is 50% longer.
    assert only(nthu, "restated", metric="dist_elapsed_max_factor")["agrees"] == "yes"


def test_what_has_no_label_and_no_spread_cannot_be_recomputed(nthu):
    rows = pick(nthu, "not_recomputable", metric="labels")
    assert list(rows["figure"]) == [str(number) for number in range(2, 11)]
    assert "without the number of their runs" in only(nthu, "not_recomputable", metric="spread")["note"]
    judged = pick(nthu, "not_judged")
    assert len(judged) > 10 and judged["note"].str.contains(r"\(section [46]").all()
    assert set(judged["agrees"]) == {"not recomputable"}
