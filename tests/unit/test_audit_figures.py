"""Each bar of the paper against its own log, and where else it stands: found by search, gone once put right."""

import math

import pytest
from audit_builders import ENVIRONMENTS, here, mended, only, pick

from tare.literature import audit, figure_values, published


@pytest.fixture(scope="module")
def study():
    return published.load("nyu2022")


@pytest.fixture(scope="module")
def findings(study):
    return audit.judge(study, here())


# What each figure's values are in their own logs: y(es), n(o), ? where no log has them; host, docker, apptainer.
OWN_LOG = {
    "5": "nyn", "6": "nyn", "7": "yny", "8": "nnn", "9": "nyy", "10": "nny", "11": "ynn", "12": "nny",
    "13": "yyy", "14": "nny", "15": "yyy", "16": "nnn",
}  # fmt: skip


@pytest.mark.parametrize("figure", OWN_LOG)
def test_each_bar_is_held_against_its_own_log(findings, figure):
    found = [only(findings, "figure_value", figure=figure, env=env)["agrees"] for env in ENVIRONMENTS]
    assert "".join(word[0] for word in found) == OWN_LOG[figure]


def test_bars_by_batch_size_are_held_against_the_log_of_that_batch_size(findings):
    for figure, wanted in (("2", {16: "no", 32: "no", 64: "no", 128: "not recomputable", 256: "no"}),
                           ("3", {16: "yes", 32: "yes", 64: "yes", 128: "no", 256: "no"})):  # fmt: skip
        found = pick(findings, "figure_value", figure=figure)
        assert dict(zip(found["batch"], found["agrees"], strict=True)) == wanted


def test_times_are_held_against_their_own_run(findings):
    for figure, name, wanted in (
        ("17", "real_s", "yyn"), ("17", "system_s", "nyn"), ("18", "real_s", "nyn"), ("18", "system_s", "nyy"),
    ):  # fmt: skip
        found = [only(findings, "figure_value", figure=figure, env=e, metric=name)["agrees"] for e in ENVIRONMENTS]
        assert "".join(word[0] for word in found) == wanted, (figure, name)


def test_the_points_of_figure_4_follow_from_the_logs(findings):
    for workload, name, wanted in (
        ("mnist_cnn", "log2_intensity", math.log2(475211776 / (3878550 * 32))),
        ("mnist_cnn", "log2_gflops", math.log2(475211776 / 0.015012356 / 1e9)),
        ("sentiment_rnn", "log2_intensity", math.log2(651965536 / (2071931 * 32))),
        ("sentiment_rnn", "log2_gflops", math.log2(651965536 / 0.005671091 / 1e9)),
    ):
        row = only(findings, "figure_value", figure="4", workload=workload, metric=name)
        assert row["recomputed"] == pytest.approx(wanted) and row["agrees"] == "yes"


def test_every_value_of_every_figure_has_its_row(study, findings):
    rows = pick(findings, "figure_value")
    assert len(rows) == len(study.figures) == 62
    assert set(rows["figure"]) == {str(number) for number in range(2, 19)}
    assert rows["measured_kind"].notna().all()


def test_exchanged_bars_are_found_by_search(findings):
    swapped = pick(findings, "swapped")
    found = {(row.figure, row.env, row.batch if row.batch is not None else None) for row in swapped.itertuples()}
    assert {(figure, env) for figure, env, _ in found} == {
        ("3", "host"), ("10", "host"), ("10", "docker"), ("12", "host"), ("14", "docker"),
        ("16", "host"), ("16", "docker"), ("16", "apptainer"),
    }  # fmt: skip
    assert set(pick(swapped, "swapped", figure="3")["batch"]) == {128, 256}
    for figure in ("3", "10", "16"):
        assert pick(swapped, "swapped", figure=figure)["note"].str.contains("the two are exchanged").any()
    assert not pick(swapped, "swapped", figure="12")["note"].str.contains("exchanged").any()


def test_bars_put_in_their_places_are_no_longer_exchanged(tmp_path):
    study = mended(
        tmp_path,
        ("128: 3.835 s, 256: 3.86 s", "128: 3.86 s, 256: 3.835 s"),
        ("{host: 1987170 transactions, docker: 2071931 transactions",
         "{host: 2071931 transactions, docker: 1987170 transactions"),
    )  # fmt: skip
    table = audit.judge(study, here())
    assert pick(table, "swapped", figure="3").empty
    assert set(pick(table, "swapped", figure="16")["env"]) == {"apptainer"}
    assert set(pick(table, "figure_value", figure="3")["agrees"]) == {"yes"}


def test_figure_8_repeats_the_values_of_the_other_workload(findings, tmp_path):
    rows = pick(findings, "repeated", figure="8")
    assert set(rows["env"]) == {"host", "apptainer"} and rows["note"].str.contains("figure 7").all()
    assert "one digit from 947.93 us" in only(findings, "not_in_logs", figure="8", env="docker")["note"]
    old = "values: {host: 871.48 us, docker: 907.93 us, apptainer: 867.55 us}"
    new = "values: {host: 121.28 us, docker: 117.09 us, apptainer: 111.09 us}"
    table = audit.judge(mended(tmp_path, (old, new)), here())
    assert pick(table, "repeated", figure="8").empty and pick(table, "not_in_logs", figure="8").empty


def test_values_of_no_log_are_named(findings):
    rows = pick(findings, "not_in_logs", agrees="no")
    found = {(row.figure, row.env) for row in rows.itertuples()}
    assert {("14", "host"), ("7", "docker"), ("9", "host"), ("11", "docker"), ("11", "apptainer")} <= found
    assert ("13", "host") not in found and ("15", "docker") not in found


def test_a_height_that_fits_two_logs_is_no_swap(findings):
    row = only(findings, "not_in_logs", figure="17", env="apptainer", metric="real_s")
    assert row["agrees"] == "not recomputable" and "host and docker" in row["note"]


def test_a_label_may_be_off_by_its_last_digit_and_no_more(study):
    row = next(r for r in study.figures.itertuples() if r.figure == "7" and r.env == "host")
    log = figure_values.own_log(study, row)
    assert figure_values.allowance(row, log) == pytest.approx(0.01e-6)
