"""The benchmark of protocols: what each method concludes, what is measured next, what is written."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import host_rounds
import planted_program
import pytest
from asked import CONDITIONS
from scipy import stats

from tare.core.errors import UnavailableError, UserError
from tare.core.files import project_root, read_json, write_json
from tare.stats.intervals import t_interval

BENCHMARKS = project_root() / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import busy  # noqa: E402
import protocols  # noqa: E402

SEED = 2022
A = [1.00, 1.02, 0.98, 1.01, 0.99]


def runs(whole, step=0.05):
    """Whole runs, whose steps take a share of them."""
    return [
        {"whole_s": seconds, "cpu_s": 0.9 * seconds, "step_s": [9.0, 9.0, step * seconds, 1.2 * step * seconds]}
        for seconds in whole
    ]


def row(design, repetition, a, b, *, truth=0.0, condition="quiet", **more):
    return {
        **{"condition": condition, "seconds": 60.0, "repetition": repetition, "truth": truth, "design": design},
        **{"at": "2026-01-02T03:04:05Z", "load_1min": 0.5, "load_cpu_s": 0.0, "others_cpu_s": 3.0},
        **{"cpu": "A Processor", "kernel": "6.1"},
        **{"machine_s": 60.0, "voided": [], "reason": None, "a": a, "b": b, **more},
    }


def test_medians_claim_beyond_two_per_cent_and_have_no_interval():
    found = protocols.medians(runs(A), runs([1.03 * seconds for seconds in A]))
    assert found.ratio == pytest.approx(1.03) and (found.claim, found.low, found.high) == (1, None, None)
    assert protocols.medians(runs(A), runs([0.97 * seconds for seconds in A])).claim == -1
    assert protocols.medians(runs(A), runs([1.019 * seconds for seconds in A])).claim == 0


def test_means_of_whole_runs_leave_the_first_out_and_have_welchs_interval():
    b = [5.0, 1.10, 1.12, 1.08, 1.11]
    found = protocols.hyperfine(runs(A), runs(b))
    wanted = stats.ttest_ind(b[1:], A[1:], equal_var=False).confidence_interval(0.95)
    mean = statistics.fmean(A[1:])
    assert (found.low, found.high) == pytest.approx((1 + wanted.low / mean, 1 + wanted.high / mean))
    assert found.ratio == pytest.approx(statistics.fmean(b[1:]) / mean) and (found.n, found.claim) == (4, 1)


def test_processes_are_the_means_of_their_steps_after_the_warm_up():
    b = [seconds * 1.1 for seconds in A]
    found = protocols.pyperf(runs(A), runs(b))
    means = [[0.055 * seconds for seconds in side] for side in (A, b)]
    assert found.ratio == pytest.approx(1.1) and found.n == 5
    wanted = stats.ttest_ind(means[1], means[0], equal_var=False).confidence_interval(0.95)
    assert found.low == pytest.approx(1 + wanted.low / statistics.fmean(means[0]))


def test_pairs_and_rounds_have_students_interval_of_log_ratios_and_pairs_a_warm_up():
    b = [1.02, 1.03, 1.00, 1.02, 1.01]
    logs = [math.log(two / one) for one, two in zip(A, b, strict=True)]
    for method, used in ((protocols.METHODS["sliced"], logs), (protocols.METHODS["alternating"], logs[1:])):
        found, wanted = method(runs(A), runs(b)), t_interval(used, 0.05)
        assert [math.log(end) for end in (found.ratio, found.low, found.high)] == pytest.approx(
            [wanted.mean, wanted.low, wanted.high]
        )
        assert (found.n, found.claim) == (len(used), 1)
    slow_first = protocols.alternating(runs([1.0, *A]), runs([9.0, *A]))
    assert slow_first.ratio == pytest.approx(1.0) and slow_first.claim == 0


def test_the_same_launches_are_read_by_three_methods_and_failures_by_none():
    rows = [
        row("sequential", 0, runs(A), runs(A)),
        row("sliced", 0, runs(A), runs(A)),
        row("alternating", 0, [], [], reason="it failed"),
    ]
    found = protocols.conclusions(rows)
    assert [one["method"] for one in found] == ["medians", "hyperfine", "pyperf", "sliced"]
    assert all(one["claim"] == 0 and one["ratio"] == pytest.approx(1.0) for one in found)


def test_false_claims_misses_and_coverage_are_counted_by_condition_and_truth():
    wide, slow = [1.0, 1.1, 0.9, 1.05, 0.95], [1.03 * seconds for seconds in A]
    planted = protocols.TRUTHS["planted"]
    rows = [
        row("sliced", 0, runs(A), runs(A)),
        row("sliced", 1, runs(A), runs(slow)),
        row("sliced", 2, [], [], reason="2 rounds in a row are void"),
        row("sliced", 0, runs(A), runs(slow), truth=planted),
        row("sliced", 1, runs(A), runs(wide), truth=planted),
        row("sliced", 0, runs(A), runs([0.9 * seconds for seconds in A]), truth=planted, condition="busy"),
    ]
    found = protocols.summarise(rows)["sliced"]
    equal, told = found["quiet"]["equal"], found["quiet"]["planted"]
    assert (equal["measured"], equal["answers"], equal["claims"], equal["misses"]) == (3, 2, 1, 1)
    assert (equal["lowest"], equal["highest"]) == pytest.approx((1.0, 1.03))
    assert (told["answers"], told["claims"], told["missed"], told["misses"]) == (2, 1, 1, 0)
    busy = found["busy"]["planted"]
    assert (busy["claims"], busy["missed"], busy["misses"]) == (1, 1, 1), "faster is no find of what is slower"
    assert found["bursts"]["equal"]["measured"] == 0 and found["bursts"]["equal"]["half_width"] is None
    assert protocols.summarise(rows)["medians"]["quiet"]["equal"]["misses"] is None


def test_every_repetition_has_each_design_and_truth_once_in_orders_of_its_own():
    every = list(protocols.missing([], SEED, "quiet", 12))
    assert Counter((design, name) for _, design, name in every) == dict.fromkeys(
        itertools.product(protocols.DESIGNS, protocols.TRUTHS), 12
    )
    orders = {tuple(place[1:] for place in every if place[0] == repetition) for repetition in range(12)}
    assert len(orders) > 6


def test_what_was_interrupted_goes_on_with_what_is_missing_of_its_condition():
    every = list(protocols.missing([], SEED, "busy", 2))
    rows = [
        row(design, repetition, [], [], truth=protocols.TRUTHS[name], condition="busy")
        for repetition, design, name in every[:5]
    ]
    assert list(protocols.missing(rows, SEED, "busy", 2)) == every[5:]
    assert len(list(protocols.missing(rows, SEED, "quiet", 2))) == 12


def test_a_call_ends_before_a_measurement_that_its_minutes_do_not_pay_for(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(protocols.time, "monotonic", lambda: now[0])
    clock = protocols.Clock(160.0)
    assert clock.pays()
    now[0] = 131.0
    clock.spent()
    assert not clock.pays()
    clock.until = 162.0
    assert clock.pays()


class Bench:
    """Launches that take no time; the clock passes by what they would."""

    def __init__(self, monkeypatch, seconds, voided=()):
        self.now, self.seconds, self.voided, self.order = 0.0, seconds, voided, []
        monkeypatch.setattr(protocols.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(protocols, "sliced_round", self.round)

    def once(self, name, truth, generator):
        self.order.append(name)
        self.now += 4.0
        return {"whole_s": 4.0, "step_s": [0.1] * 4, "name": name}

    def orders(self, truth, generator):
        return {}

    def round(self, orders, done, generator):
        self.now += 8.0
        whole = {name: host_rounds.host_launch(1.0) for name in ("host", "host.control")}
        unit = host_rounds.host_round(len(done), whole, voided="it" if len(done) in self.voided else None)
        return host_rounds.as_units([{**unit, "discarded": not any(one.voided is None for one in done)}])[0]


def test_all_designs_use_the_same_machine_time(monkeypatch):
    bench = Bench(monkeypatch, 60.0)
    generator = protocols.random.Random(1)
    found = protocols.Bench.sequential(bench, 0.0, generator)
    assert (len(found["a"]), len(found["b"]), bench.now) == (7, 8, 60.0)
    assert bench.order == ["host"] * 7 + ["host.control"] * 8
    bench = Bench(monkeypatch, 60.0)
    found = protocols.Bench.alternating(bench, 0.0, generator)
    assert (len(found["a"]), len(found["b"]), bench.now) == (7, 7, 56.0)
    assert {one["name"] for one in found["b"]} == {"host.control"} and len(set(bench.order[::2])) == 2
    bench = Bench(monkeypatch, 60.0)
    found = protocols.Bench.sliced(bench, 0.0, generator)
    assert (len(found["a"]), len(found["b"]), bench.now, found["voided"]) == (6, 6, 56.0, []), "one calibrates"


def test_void_rounds_do_not_count_and_two_in_a_row_end_a_measurement(monkeypatch):
    generator = protocols.random.Random(1)
    found = protocols.Bench.sliced(Bench(monkeypatch, 60.0, voided=(2, 4)), 0.0, generator)
    assert len(found["a"]) == 4 and found["voided"] == ["it", "it"]
    with pytest.raises(UnavailableError, match="2 rounds in a row are void"):
        protocols.Bench.sliced(Bench(monkeypatch, 60.0, voided=(2, 3)), 0.0, generator)


def test_a_measurement_without_values_says_why(capsys):
    def fails(truth, generator):
        raise UnavailableError("the launch of host failed: no memory")

    bench = SimpleNamespace(seed=SEED, seconds=60.0, conditions=CONDITIONS, sliced=fails)
    found = protocols.measure(bench, "quiet", 0, "sliced", "planted")
    assert found["reason"] == "the launch of host failed: no memory" and found["a"] == []
    assert protocols.conclusions([found]) == [] and found["truth"] == protocols.TRUTHS["planted"]
    assert "no memory" in capsys.readouterr().err


@pytest.mark.parametrize("condition", ["busy", "bursts"])
def test_a_load_works_is_counted_and_ends(condition):
    with busy.loaded(condition, [0], "1/0") as load:
        time.sleep(0.5)
    assert 0 < load["load_cpu_s"] < math.inf
    with busy.loaded("quiet", [0], "1") as load:
        pass
    assert load["load_cpu_s"] == 0.0


def test_what_is_planted_is_a_share_of_the_processor_time_of_all_work_before():
    clock = [10.0]

    def read():
        clock[0] += 0.001
        return clock[0]

    def step(self, batch):
        clock[0] += 1.0
        return "loss"

    charged = planted_program.owing(step, 0.03, read)
    assert charged(None, None) == "loss"
    assert clock[0] == pytest.approx(11.0 * 1.03, abs=0.01)
    charged(None, None)
    charged(None, None)
    assert clock[0] == pytest.approx(13.0 * 1.03, abs=0.02)
    equal = planted_program.owing(step, 0.0, read)
    before = clock[0]
    equal(None, None)
    assert clock[0] - before == pytest.approx(1.0, abs=0.01)


def a_result():
    planted = protocols.TRUTHS["planted"]
    rows = [
        row(design, number, runs(A), runs([factor * seconds for seconds in A]), truth=truth, condition=condition)
        for design in protocols.DESIGNS
        for condition in ("quiet", "busy")
        for truth, factor in ((0.0, 1.0), (planted, 1.03))
        for number in range(2)
    ]
    key = {"schema": protocols.SCHEMA, "workload": "mnist_cnn", "epochs": 1}
    return protocols.result([{**key, **one} for one in rows], key)


def test_the_page_has_a_table_of_counts_and_one_of_repetitions_for_each_condition(tmp_path):
    write_json(tmp_path / "found.json", a_result())
    lines = protocols.page(read_json(tmp_path / "found.json")).splitlines()
    starts = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert [start for start in starts if start in protocols.TITLES.values()] == [*protocols.TITLES.values()] * 2
    assert [line for line in lines if line.startswith("## ")] == ["## Quiet", "## Busy"]
    assert sum(", B took 103.0% of A's processor time" in line for line in lines) == 2
    assert sum(line.startswith("A Processor, Linux 6.1, 2026-01-02. 60 s") for line in lines) == 2
    counts = [line for line in lines if line.startswith(f"| {protocols.TITLES['sliced']} |")]
    assert len(counts) == 2
    cells = [cell.strip() for cell in counts[0].strip("|").split("|")]
    assert cells[1:4] == ["5 and 5", "0 of 2", "±0.00%"] and cells[5:7] == ["0 of 2", "0 of 4"]
    hyperfine = next(line for line in lines if line.startswith(f"| {protocols.TITLES['hyperfine']} |"))
    assert "| 2 of 2 |" in hyperfine, "3% within its half-width is missed"
    per_repetition = [line for line in lines if line.startswith(("| 1 |", "| 2 |"))]
    assert len(per_repetition) == 8 and all(line.count("|") == 8 for line in per_repetition)
    assert "**+3.0% ± 0.0**" in next(line for line in per_repetition if "planted" in line)


def test_a_run_is_timed_until_the_end_of_its_training():
    steps = {"steady": [[0.05] * 6] * 3}
    (unit,) = host_rounds.as_units([host_rounds.host_round(0, {"host": host_rounds.host_launch(1.0, steps)})])
    found = protocols.values_of("host", unit.launches["host"])
    assert found["whole_s"] == pytest.approx(0.005 + host_rounds.EPOCH_END_S) and found["cpu_s"] == 1.1
    with pytest.raises(UnavailableError, match="the launch of host failed: it died"):
        protocols.values_of("host", unit.launches["host"].replace(status="failed", reason="it died"))


def test_the_result_keeps_raw_values_and_what_they_say():
    found = a_result()
    assert found["measurements"][0]["a"] == runs(A) and "workload" not in found["measurements"][0]
    assert len(found["conclusions"]) == 5 * 2 * 2 * 2


def test_what_is_published_keeps_the_conditions_that_were_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(protocols, "KEPT", tmp_path / "kept.json")
    key = {"schema": protocols.SCHEMA, "workload": "mnist_cnn", "epochs": 1}
    new = {"measurements": [row("sliced", 0, runs(A), runs(A), condition="busy")]}
    assert protocols.others_kept(new, key) == []
    write_json(protocols.KEPT, a_result())
    assert {one["condition"] for one in protocols.others_kept(new, key)} == {"quiet"}
    with pytest.raises(UserError, match="another workload"):
        protocols.others_kept(new, {**key, "epochs": 2})


@pytest.mark.skipif(not protocols.KEPT.exists(), reason="no results of this instrument are kept yet")
def test_the_page_is_the_one_that_the_kept_results_give():
    kept = read_json(protocols.KEPT)
    assert protocols.PAGE.read_text() == protocols.page(kept)
    assert protocols.conclusions(kept["measurements"]) == kept["conclusions"]


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "nothing to do"), (["--publish", "--out", "/nowhere/x.json"], "/nowhere/x.json is not there")],
)
def test_a_call_that_can_do_nothing_is_one_line(words, said):
    command = [sys.executable, str(BENCHMARKS / "protocols.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project_root(), check=False)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
