"""The benchmark of protocols: what it measures next, what it counts, what it writes; nothing is measured here."""

from __future__ import annotations

import importlib.util
import itertools
import math
import statistics
import time
from collections import Counter

import pytest
from scipy import stats

from tare.core.errors import UnavailableError
from tare.core.files import project_root

SEED = 2022


@pytest.fixture(scope="module")
def protocols():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("protocols", project_root() / "benchmarks/protocols.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(name, repetition, ratio, low=None, high=None, **more):
    found = {"repetition": repetition, "protocol": name, "busy": None, "machine_s": 10.0, "ratio": ratio,
             "claim": False, "conclusion": f"{ratio}"}  # fmt: skip
    return {**found, **({} if low is None else {"low": low, "high": high}), **more}


def test_every_repetition_holds_each_protocol_once_and_a_third_are_busy(protocols):
    first = list(itertools.islice(protocols.missing([], SEED), 12 * 4))
    assert Counter(name for _, name, _ in first) == dict.fromkeys(protocols.TITLES, 12)
    busy = {repetition for repetition, _, loaded in first if loaded}
    assert len(busy) == 4 and {number // 3 for number in busy} == {0, 1, 2, 3}
    orders = {tuple(name for number, name, _ in first if number == repetition) for repetition in range(12)}
    assert len(orders) > 1


def test_what_was_interrupted_goes_on_with_what_is_missing(protocols):
    wanted = list(itertools.islice(protocols.missing([], SEED), 12))
    done = [row(name, repetition, 1.0) for repetition, name, _ in wanted[:5]]
    assert list(itertools.islice(protocols.missing(done, SEED), 7)) == wanted[5:]


def test_the_budget_holds_what_was_measured_before(protocols):
    rows = [row("tare", number, 1.0, machine_s=60.0) for number in range(5)]
    assert protocols.pays(rows, 360.0, 60.0) and not protocols.pays(rows, 359.0, 60.0)
    late = [*rows[:-1], row("tare", 4, 1.0, machine_s=100.0)]
    assert not protocols.pays(late, 439.0, 60.0) and protocols.pays(late, 440.0, 60.0)


def test_claims_misses_and_widths_are_counted_apart_for_busy_ones(protocols):
    load = {"processes": 1, "cpu_s": 5.0}
    rows = [
        row("tare", 0, 1.00, 0.98, 1.02),
        row("tare", 1, 1.03, 1.01, 1.05, claim=True),
        row("tare", 2, 1.01, 0.95, 1.07, busy=load),
        row("tare", 3, None, reason="2 units give no interval", busy=load),
        row("sequential", 0, 1.05, claim=True),
    ]
    found = protocols.summarise(rows, 0.02)
    quiet, busy = found["tare"]["quiet"], found["tare"]["busy"]
    assert (quiet["answers"], quiet["claims"], quiet["misses"], quiet["beyond_margin"]) == (2, 1, 1, 1)
    assert quiet["half_width"] == pytest.approx(0.02) and (quiet["lowest"], quiet["highest"]) == (1.0, 1.03)
    assert (busy["measured"], busy["answers"], busy["misses"]) == (2, 1, 0)
    assert busy["half_width"] == pytest.approx(0.06)
    assert found["tare"]["all"]["measured"] == 4
    assert found["sequential"]["quiet"]["misses"] is None and found["pyperf"]["all"]["measured"] == 0


def test_the_page_has_every_count_and_every_measurement(protocols):
    rows = [row("tare", 0, 1.03, 1.01, 1.05, claim=True, conclusion="different: +3.0%"),
            row("pyperf", 1, 0.99, 0.97, 1.01, busy={"processes": 1, "cpu_s": 5.0},
                conclusion="|t| = 1")]  # fmt: skip
    page = protocols.page(
        {"workload": "mnist_cnn", "seconds": 90, "margin": 0.02, "cpu": "Example", "kernel": "6.1",
         "at": "2026-01-02T03:04:05Z", "measurements": rows, "summary": protocols.summarise(rows, 0.02)}
    )  # fmt: skip
    assert (
        f"| {protocols.TITLES['tare']} | quiet | 1 | 1 of 1 | 1 of 1 | 1 of 1 | ±2.0% | +3.0% to +3.0% | 10 |"
        in page
    )
    assert f"| {protocols.TITLES['tare']} | busy | 0 | | | | | | |" in page
    assert "took 0.50 CPUs" in page
    assert "| 1 | quiet | not measured | not measured | not measured | different: +3.0% |" in page
    assert "| 2 | busy | not measured | \\|t\\| = 1 |" in page
    table = [line.replace("\\|", "") for line in page.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table[:10]} == {10} and {line.count("|") for line in table[10:]} == {7}


class Launches:
    """A bench whose processes take given times, and where the clock passes by what they take."""

    def __init__(self, module, times):
        self.module, self.times = module, iter(times)
        self.seconds = 0.0
        self.study = {"seed": SEED, "margins": {"step": 0.02}}

    def steps(self, ends, take):
        take(lambda count: [next(self.times) for _ in range(count)])


def test_pyperfs_interval_is_welchs_by_the_mean_of_a(protocols):
    times = [0.1, 0.1, 9.0, 1.0, 1.1, 1.2, 0.1, 0.1, 9.0, 1.1, 1.2, 1.0] * 2
    b = [2.0, 2.2, 2.4, 2.2, 2.4, 2.0]
    for place, value in zip((15, 16, 17, 21, 22, 23), b, strict=True):
        times[place] = value
    found = protocols.Bench.pyperf(Launches(protocols, times))
    a = [1.0, 1.1, 1.2, 1.1, 1.2, 1.0]
    wanted = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert found["ratio"] == pytest.approx(statistics.fmean(b) / statistics.fmean(a)) and found["claim"]
    assert found["low"] == pytest.approx(1 + wanted.low / statistics.fmean(a))
    assert found["high"] == pytest.approx(1 + wanted.high / statistics.fmean(a))
    assert (found["low"] + found["high"]) / 2 == pytest.approx(found["ratio"])


def test_a_protocol_without_an_answer_says_why(protocols, capsys):
    bench = Launches(protocols, [])

    def fails():
        raise UnavailableError("2 units give no interval")

    bench.tare = fails
    found = protocols.measure(bench, "tare", 0, False)
    assert found["ratio"] is None and found["reason"] == "2 units give no interval"
    assert "no answer" in capsys.readouterr().out


def test_a_busy_load_works_is_counted_and_ends(protocols):
    with protocols.busy("1/0") as load:
        time.sleep(0.5)
    assert load["processes"] >= 1 and 0 < load["cpu_s"] < math.inf
