"""Coverage from recorded rounds: what is read of them, and what is counted on simulated ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import host_rounds
import numpy as np
import pytest

from tare.core.errors import UserError
from tare.core.files import project_root, read_json
from tare.stats.intervals import t_interval

BENCHMARKS = project_root() / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import recorded  # noqa: E402
import recorded_coverage as coverage  # noqa: E402


def a_campaign(folder, count=8, seed=1, **more):
    spreads = {"mood": 0.3, "launch": 0.02, "replicate": 0.01, "epoch": 0.03, **more}
    rows = host_rounds.simulated(np.random.default_rng(seed), count, **spreads)
    return host_rounds.write_rounds(folder, rows)


def test_ratios_are_of_second_host_to_host_of_rounds_that_were_sliced(tmp_path):
    steps = {level: [[0.05] * 6] * 3 for level in host_rounds.LEVELS}
    slower = {"default": [[0.06] * 6] * 3, "steady": [[0.05] * 6, [0.055] * 6, [0.055] * 6]}
    both = {"host": host_rounds.host_launch(1.0, steps), "host.control": host_rounds.host_launch(1.1, slower)}
    failed = {**both, "host.control": {**both["host"], "status": "failed", "reason": "it died", "inside": None}}
    whole = {name: host_rounds.host_launch(1.0, steps, sliced=False) for name in both}
    launches = [whole, both, failed, whole, both]
    rows = [host_rounds.host_round(number, one) for number, one in enumerate(launches)]
    rows.append(host_rounds.host_round(5, both, voided="the machine slept"))
    found = recorded.recorded(host_rounds.write_rounds(tmp_path / "rounds.host", rows))
    assert [unit.unit for unit in found.rounds] == [1, 4] and found.left_out == 2
    assert found.quantities == ["whole run", "body", "step, default", "step, steady"]
    epoch, after = host_rounds.EPOCH_END_S, host_rounds.AFTER_S
    assert found.ratios("body")[0] == pytest.approx(math.log((1.1 * epoch + after) / (epoch + after)), abs=1e-6)
    start_and_exit = after + 0.007
    whole_run = math.log((1.1 * epoch + start_and_exit) / (epoch + start_and_exit))
    assert found.ratios("whole run") == pytest.approx([whole_run] * 2, abs=1e-6)
    assert found.ratios("step, default") == pytest.approx([math.log(1.2)] * 2)
    assert found.ratios("step, steady") == pytest.approx([math.log(1.1)] * 2), "the median of its steps"
    by_replicate = recorded.replicate_ratios(found.rounds, "steady")
    assert by_replicate == pytest.approx(np.log([[1.0, 1.1, 1.1]] * 2), abs=1e-9)


@pytest.mark.parametrize(
    ("rows", "changes", "said"),
    [
        ([], {"kind": "sweep"}, "no campaign of rounds with a second host"),
        ([], {"launches": [{"environment": "host"}]}, "no campaign of rounds with a second host"),
        ([], {}, "no sliced round of both hosts so far"),
    ],
)
def test_other_folders_are_refused(tmp_path, rows, changes, said):
    with pytest.raises(UserError, match=said):
        recorded.recorded(host_rounds.write_rounds(tmp_path / "c", rows, **changes))
    with pytest.raises(UserError, match="name the folder of a campaign"):
        recorded.recorded(tmp_path)


def test_the_interval_is_students_of_log_ratios():
    logs = np.array([0.01, -0.02, 0.015, 0.0, 0.005, -0.01])
    found, wanted = coverage.deployed(logs), t_interval(logs, 0.05)
    assert (found.mean, found.low, found.high) == pytest.approx((wanted.mean, wanted.low, wanted.high))


def test_windows_are_consecutive_and_all_of_them():
    logs = np.arange(8.0)
    assert [one.tolist() for one in coverage.windows(logs, 6)] == [
        [*range(6)],
        [*range(1, 7)],
        [*range(2, 8)],
    ]
    assert coverage.windows(logs, 9) == []


def test_what_intervals_hold_is_counted_by_hand():
    alike = np.array([0.01, -0.01, 0.02, -0.02, 0.0, 0.0])
    found = coverage.covered([alike, alike + 1.0, alike + 0.01], truth=0.0)
    assert (found["campaigns"], found["hold"], found["alarms"]) == (3, 2, 1)
    moved = coverage.covered([alike, alike + 1.0, alike + 0.01], truth=1.0)
    assert (moved["hold"], moved["alarms"]) == (1, 1)


def test_the_correlation_of_neighbours_is_within_campaigns():
    generator = np.random.default_rng(4)
    noise = generator.normal(0, 1, (2, 5001))
    following = [one[1:] + one[:-1] + shift for one, shift in zip(noise, (0.0, 100.0), strict=True)]
    found, error = coverage.lag1(following)
    assert found == pytest.approx(0.5, abs=0.03) and error == pytest.approx(0.01)
    assert coverage.lag1([noise[0]])[0] == pytest.approx(0.0, abs=0.04)
    assert coverage.lag1([np.array([1.0, 2.0])]) == (None, None)


def test_independent_rounds_are_covered_as_often_as_promised():
    series = list(np.random.default_rng(5).normal(0, 0.01, (3, 600)))
    rows = coverage.rows_of("w", "body", series, 1500)
    assert {row["size"] for row in rows} == {6, 8, 10, 12} and len(rows) == 8
    for row in rows:
        assert row["coverage"] == pytest.approx(0.95, abs=0.025), row
        assert row["false_alarms"] == pytest.approx(0.05, abs=0.025), row
        assert row["sd"] == pytest.approx(0.01, rel=0.05) and abs(row["lag1"]) < 3 * row["lag1_error"]
    counts = {row["size"]: (row["intervals"], row["apart"]) for row in rows if row["way"] == "windows"}
    assert counts[6] == (3 * 595, 300) and counts[12] == (3 * 589, 150)
    assert all(row["intervals"] == 1500 for row in rows if row["way"] == "resampled")


def test_rounds_that_follow_each_other_are_covered_too_rarely_in_windows():
    slow = np.convolve(np.random.default_rng(6).normal(0, 0.01, 1205), np.ones(6) / 6, "valid")
    rows = coverage.rows_of("w", "body", [slow], 1000)
    by_way = {row["way"]: row for row in rows if row["size"] == 6}
    assert by_way["windows"]["coverage"] < 0.7 < 0.92 < by_way["resampled"]["coverage"]
    assert by_way["windows"]["lag1"] > 0.7


def test_a_difference_of_copies_is_a_false_alarm_and_is_covered():
    logs = np.random.default_rng(7).normal(0.02, 0.01, 400)
    rows = coverage.rows_of("w", "body", [logs], 1000)
    assert all(row["false_alarms"] > 0.9 and row["coverage"] > 0.92 for row in rows)


def test_campaigns_that_differ_by_more_than_their_rounds_fail_the_f_test():
    generator = np.random.default_rng(8)
    alike = [generator.normal(0, 0.01, 8) for _ in range(10)]
    ratio, p = coverage.f_test(alike)
    assert 0.3 < ratio < 2.5 and p > 0.02
    apart = [one + shift for one, shift in zip(alike, generator.normal(0, 0.02, 10), strict=True)]
    ratio, p = coverage.f_test(apart)
    assert ratio > 5 and p < 1e-4
    by_hand, _ = coverage.f_test([np.array([0.0, 2.0]), np.array([4.0, 6.0])])
    assert by_hand == pytest.approx(8.0)  # 16 between, 2 within
    assert coverage.f_test(alike[:1]) == (None, None)


def test_launches_that_are_alike_make_pairs(tmp_path):
    steps = {level: [[0.05] * 6] * 3 for level in host_rounds.LEVELS}
    seconds = {"host": 1.0, "host.control": 1.0, "zero": 1.1}
    both = {name: host_rounds.host_launch(one, steps) for name, one in seconds.items()}
    launches = [{"environment": "host"}, {"environment": "host", "is_control": True}, {"environment": "zero"}]
    folder = host_rounds.write_rounds(
        tmp_path / "rounds.host", [host_rounds.host_round(number, both) for number in range(4)], launches=launches
    )
    found = recorded.recorded(folder, ["zero", "other"])
    assert found.alike == ("host", "host.control", "zero") and len(found.pairs) == 3
    assert found.ratios("body", ("host", "host.control")) == pytest.approx([0.0] * 3)
    assert min(found.ratios("body", ("host", "zero"))) > 0.05
    rows = {(row["quantity"], *row["pair"]): row for row in coverage.whole_campaigns([coverage.entry_of(found)])}
    assert rows["body", "host", "host.control"]["hold"] == 1 and rows["body", "host", "zero"]["hold"] == 0
    assert len(rows) == 3 * len(found.quantities)


def test_the_program_reads_folders_and_writes_rows_and_ratios(tmp_path):
    folders = [a_campaign(tmp_path / "w" / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    out = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARKS / "recorded_coverage.py"), *map(str, folders), "--draws", "20"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True)
    found = read_json(out)
    assert [one["rounds"] for one in found["recorded"]] == [8, 8]
    pairs = [one for each in found["recorded"] for one in each["log_ratios"].values()]
    assert all(len(logs) == 8 for one in pairs for logs in one.values())
    assert len(found["rows"]) == 4 * 4 * 2 and len(done.stdout.splitlines()) == 33 + 2 + 4
    assert {row["intervals"] for row in found["rows"] if row["way"] == "windows"} == {6, 2, 0}
    third = a_campaign(tmp_path / "w" / "three", seed=2)
    again = [*command[:2], str(folders[0]), str(third), "--draws", "20", "--out", str(out)]
    subprocess.run(again, capture_output=True, check=True)
    assert len(read_json(out)["recorded"]) == 3, "what is there stays, once"
    (tmp_path / "plan.json").write_text(json.dumps({}))
    wrong = subprocess.run([*command[:2], str(tmp_path)], capture_output=True, text=True, check=False)
    assert wrong.returncode != 0 and len(wrong.stderr.splitlines()) == 1
