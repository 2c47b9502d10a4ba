"""Samples over time: what a process and its children use, what sampling costs, and the tables of both."""

import os
import subprocess
import sys
import threading
import time

import pytest
from test_metrics import profile_of, profile_record, values, write_trace

from tare.core.forked import forked
from tare.model import tables
from tare.report import figures
from tare.worker import profiled, sampling

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "periods", "seconds", "reason"),
    [
        ("usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 1500000", 3, 1.5, None),
        ("nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000", 3, 1.5, None),
        ("nr_periods 0\nnr_throttled 0\nthrottled_time 0", 0, 0.0, None),
        ("usage_usec 5\nuser_usec 4", None, None, sampling.NO_QUOTA),
        (None, None, None, sampling.NO_CGROUP),
    ],
)
def test_throttling_is_read_from_both_versions_of_cgroups(text, periods, seconds, reason):
    assert sampling.throttling(text) == (periods, seconds, reason)


def childless(function, *arguments):
    """Result of a function of this module in a process without children: one of pytest may run studies."""
    with forked(1) as pool:
        return pool.apply(function, arguments)


def around_a_child():
    """Samples before a child lives that uses memory and a CPU, and twice while it does; seconds between those."""
    before = sampling.Sampler(1.0).sample()
    code = "x = bytearray(50_000_000)\nprint('up', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            first, started = sampling.Sampler(1.0).sample(), time.monotonic()
            time.sleep(0.2)
            return before, first, sampling.Sampler(1.0).sample(), time.monotonic() - started
        finally:
            child.kill()


def test_children_are_sampled_with_their_parent():
    before, first, second, spent_s = childless(around_a_child)
    assert (before["processes"], second["processes"]) == (1, 2)
    assert second["rss_bytes"] > before["rss_bytes"] + 50_000_000
    # It shares the machine: some of the time is its own, and no more than one CPU's, but for the clock's tick.
    assert 0.02 < second["cpu_s"] - first["cpu_s"] < spent_s + 2 * sampling.TICK_S + 0.1


def in_a_thread(function):
    """Result of a function in a thread of its own, as the sampler's."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def asked_around(path):
    """Bytes that were asked for around nothing, and around reading a file in another thread than the sampler's."""
    sampler = sampling.Sampler(1.0)

    def asked(work):
        first = sampler.sample()
        work()
        return sampler.sample()["asked_bytes"] - first["asked_bytes"]

    nothing = in_a_thread(lambda: asked(lambda: None))
    return nothing, in_a_thread(lambda: asked(lambda: in_a_thread(path.read_bytes)))


def test_bytes_of_read_calls_are_the_programs_and_not_the_samplers(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3_000_000))
    nothing, reading = childless(asked_around, path)
    # Some bytes either way: of the two counts that it subtracts, one is read before the other.
    assert abs(nothing) < 10_000
    assert 2_999_900 < reading < 3_100_000


def test_what_cannot_be_read_has_its_reason(monkeypatch):
    monkeypatch.setattr(sampling.facts, "read_text", lambda path: None)
    monkeypatch.setattr(sampling, "children", lambda pid: (_ for _ in ()).throw(OSError("no such file")))
    sampler = sampling.Sampler(1.0)
    row = sampler.sample()
    assert (row["read_bytes"], row["throttled_s"], row["rss_bytes"]) == (None, None, None)
    assert set(sampler.reasons) == {"io", "throttled", "processes"}


def test_the_sampler_pauses_goes_on_and_says_what_it_cost():
    sampler = sampling.Sampler(0.005).start()
    time.sleep(0.05)
    sampler.pause()
    time.sleep(0.03)
    kept = len(sampler.rows)
    time.sleep(0.05)
    assert len(sampler.rows) == kept > 1
    sampler.resume()
    time.sleep(0.05)
    assert len(sampler.stop()) > kept and sampler.own_cpu_s >= 0


class Switched:
    """A sampler that only remembers whether it is on."""

    interval_s = 0.05

    def __init__(self):
        self.on = True

    def pause(self):
        self.on = False

    def resume(self):
        self.on = True


def test_steps_with_and_without_the_sampler_take_turns(monkeypatch):
    sampler, turns = Switched(), []
    monkeypatch.setattr(
        profiled,
        "steady_steps",
        lambda framework, training, batches, count: turns.append(sampler.on) or [1.0] * count,
    )
    with_it, without = profiled.steps_in_turns(None, None, [1], 8, 0.05, sampler)
    assert turns == [True, False, False, True, True, False, False, True] and sampler.on
    assert len(with_it) == len(without) == 8
    turns.clear()
    profiled.steps_in_turns(None, None, [1], 8, 0.001, sampler)  # a turn as long as two samples
    assert turns == [True, False, False, True]


@pytest.fixture
def record(tmp_path):
    write_trace(tmp_path / "t.json.gz")
    found = profile_record(cuda=False)
    inside = found["inside"]
    inside["marks"].append({"name": "first_step_start", "at_ns": 3 * S, "user_s": 0.0, "system_s": 0.0})
    blank = {"rss_bytes": 5, "cgroup_memory_bytes": None, "throttled_periods": None, "throttled_s": None}
    names = ("at_ns", "cpu_s", "read_bytes", "written_bytes", "asked_bytes", "processes")
    samples = [(2 * S, 1.0, 0, 0, 10, 1), (3 * S, 2.5, 100, 7, 30, 2), (5 * S, 2.0, 300, 7, 40, 1)]
    inside["results"] |= {
        "plain_step_s": [0.5, 0.5],
        "loaded_steps": [[3 * S, 4 * S, 64], [4 * S, int(4.5 * S), 64]],
        "samples": [{**blank, **dict(zip(names, row, strict=True))} for row in samples],
        "sample_reasons": {"throttled": "no quota"},
        "sampler_cpu_s": 0.006,
        "sampled_step_s": [0.51, 0.51, 0.51],
        "unsampled_step_s": [0.50, 0.50, 0.50],
    }  # fmt: skip
    return found


def test_time_is_aligned_at_the_start_of_the_first_step(record, tmp_path):
    rows = tables.make("samples", profile_of(record, tmp_path).sample_rows())
    assert rows["aligned_s"].tolist() == [-1.0, 0.0, 2.0]
    assert rows["cpu_percent"].tolist()[1] == pytest.approx(150)
    assert rows["read_bytes_per_s"].tolist()[1:] == [100, 100]
    # A child that ended took its CPU time along: no rate is told.
    assert rows["cpu_percent"].isna().tolist() == [True, False, True]
    assert rows["throttled_percent"].isna().all()


def test_steps_with_the_loader_are_a_table_with_a_measured_rate(record, tmp_path):
    profile = profile_of(record, tmp_path)
    rows = tables.make("steps", profile.step_rows())
    assert rows[["start_s", "end_s", "samples_per_s"]].to_numpy().tolist() == [[0.0, 1.0, 64.0], [1.0, 1.5, 128.0]]
    found = values(profile.metrics())
    assert found["loaded_samples_per_s"] == pytest.approx(128 / 1.5)
    assert found["step_samples_per_s"] == pytest.approx(64 / 0.5)


def test_operations_a_second_are_modelled_and_totals_have_reasons(record, tmp_path):
    rows = {row["metric"]: row for row in profile_of(record, tmp_path).metrics()}
    assert rows["step_flop_per_s"]["kind"] == "modelled"
    assert rows["step_flop_per_s"]["value"] == pytest.approx(rows["flops_per_step"]["value"] / 0.5)
    assert rows["sampled_read_bytes"]["value"] == 300
    assert (rows["throttled_s"]["kind"], rows["throttled_s"]["reason"]) == ("unavailable", "no quota")


def test_what_sampling_costs_is_a_metric(record, tmp_path):
    found = values(profile_of(record, tmp_path).metrics())
    assert found["sampling_cpu_share"] == pytest.approx(0.006 / 3)
    assert found["sampling_slowdown"] == pytest.approx(1.02)


def test_an_older_record_has_reasons_and_no_aligned_time(record, tmp_path):
    inside = record["inside"]
    inside["marks"] = [mark for mark in inside["marks"] if mark["name"] != "first_step_start"]
    for name in ("loaded_steps", "sampler_cpu_s", "sampled_step_s", "unsampled_step_s", "sample_reasons"):
        del inside["results"][name]
    profile = profile_of(record, tmp_path)
    rows = {row["metric"]: row for row in profile.metrics()}
    for name in ("sampling_cpu_share", "sampling_slowdown", "loaded_samples_per_s"):
        assert rows[name]["kind"] == "unavailable" and rows[name]["reason"]
    assert tables.make("samples", profile.sample_rows())["aligned_s"].isna().all()
    assert profile.step_rows() == []


def drawn(record, tmp_path):
    profile = profile_of(record, tmp_path)
    samples = tables.make("samples", profile.sample_rows())
    return figures.utilisation(samples, record["workload"], tables.make("steps", profile.step_rows()))


def test_a_timeline_begins_before_the_first_step_and_ticks_the_steps(record, tmp_path):
    panels = {axes.get_ylabel().split("\n")[0]: axes for axes in drawn(record, tmp_path).figure.axes}
    assert list(panels.values())[-1].get_xlabel() == "seconds from the start of the first step"
    axes = panels["resident memory"]
    assert axes.lines[0].get_xdata().tolist() == [-1.0, 0.0, 2.0]
    ticks = [line for line in axes.lines if line.get_marker() == "|"]
    assert len(ticks) == 1 and ticks[0].get_xdata().tolist() == [1.0, 1.5]
    rate = panels["samples/s"].lines[0]
    assert rate.get_ydata().tolist() == [64.0, 128.0] and rate.get_xdata().tolist() == [1.0, 1.5]


def test_what_nobody_sampled_has_no_panel_and_is_named(record, tmp_path):
    figure = drawn(record, tmp_path).figure
    assert not any("throttled" in axes.get_ylabel() for axes in figure.axes)
    assert any("Unavailable: throttling" in text.get_text() for text in figure.texts)
