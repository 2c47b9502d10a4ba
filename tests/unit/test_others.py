"""Who else used the processors: counted, kept with units, told in tables and on the first page."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import fakes
import pytest
from campaign_builders import sealed_campaign

from tare.experiments import designs, rounds
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.machine import others
from tare.machine.others import Instant, between, instant
from tare.model.journals.sealed import read_rows
from tare.model.journals.units import others_in
from tare.model.records.campaigns import Others
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL

STAT = """\
cpu  1000 20 300 5000 40 5 6 70 80 9
cpu0 500 10 150 2500 20 2 3 35 40 4
cpu1 500 10 150 2500 20 3 3 35 40 5
intr 1 2
"""
BUSY = "import time\nuntil = time.monotonic() + {}\nwhile time.monotonic() < until: pass"


def used(cpu_s=0.5, stolen_s=0.0, seconds=5.0):
    return Others(cpu_s=cpu_s, stolen_s=stolen_s, seconds=seconds, processors=2)


# --- counting


def test_the_kernels_counts_are_read_of_all_processors(tmp_path):
    (tmp_path / "stat").write_text(STAT)
    seen = instant(tmp_path / "stat")
    ticks = os.sysconf("SC_CLK_TCK")
    assert seen.busy_s == pytest.approx((1000 + 20 + 300 + 5 + 6) / ticks), "guests' time is in user"
    assert (seen.stolen_s, seen.processors) == (70 / ticks, 2)


@pytest.mark.parametrize("text", [None, "", "cpu0 1 2 3\n", "cpu0 a b c d e f g h\n"])
def test_counts_that_can_not_be_read_are_none(tmp_path, text):
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert instant(tmp_path / "stat") is None


def test_what_is_ours_is_taken_off_and_never_more():
    before = Instant(at_s=10.0, busy_s=100.0, stolen_s=1.0, own_s=30.0, processors=2)
    after = replace(before, at_s=14.0, busy_s=107.0, stolen_s=1.5, own_s=32.0)
    assert between(before, after) == Others(cpu_s=5.0, stolen_s=0.5, seconds=4.0, processors=2)
    assert between(before, after, 4.5).cpu_s == 0.5
    assert between(before, after, 9.0).cpu_s == 0.0, "ticks and clocks of processes differ by a little"
    assert between(None, after) is between(before, None) is between(before, before) is None


def test_stretches_add_up_and_one_that_is_not_known_leaves_all_unknown():
    both = others_in([used(0.5), used(1.5, stolen_s=0.25, seconds=3.0)])
    assert both == Others(cpu_s=2.0, stolen_s=0.25, seconds=8.0, processors=2)
    assert others_in([]) is others_in([used(), None]) is None


def test_a_program_of_another_is_seen_and_our_own_is_not():
    """One that is alive and unreaped is another's to the books; one that we started and reaped is ours."""
    seen = []
    stranger = subprocess.Popen([sys.executable, "-c", BUSY.format(60)])
    try:
        time.sleep(0.5)
        for _ in range(5):  # on a busy machine it may be kept from running
            with others.watched(seen):
                time.sleep(1.0)
            if seen[-1].cpu_s > 0.3 * seen[-1].seconds:
                break
    finally:
        stranger.kill()
        stranger.wait()
    assert seen[-1].cpu_s > 0.3 * seen[-1].seconds and seen[-1].processors == os.cpu_count()
    before = instant()
    subprocess.run([sys.executable, "-c", BUSY.format(1.0)], check=True)
    after = instant()
    assert after.own_s - before.own_s > 0.2


def test_launches_of_a_daemon_are_ours(monkeypatch):
    ticking = iter([(0.0, 0.0), (5.0, 4.0)])
    monkeypatch.setattr(others, "instant", lambda: Instant(
        **dict(zip(("at_s", "busy_s"), next(ticking), strict=True)), stolen_s=0.0, own_s=0.0, processors=2,
    ))  # fmt: skip
    seen = []
    with others.watched(seen, lambda: 3.5):
        pass
    assert seen[0].cpu_s == 0.5


# --- in units


def test_units_of_whole_runs_are_watched_while_the_host_runs(monkeypatch):
    ticking = iter(range(100))

    def now():
        at = float(next(ticking))
        return Instant(at_s=at, busy_s=2 * at, stolen_s=0.0, own_s=0.5 * at, processors=2)

    monkeypatch.setattr(others, "instant", now)
    monkeypatch.setattr(designs.warmth, "note", lambda *_: None)
    monkeypatch.setattr(
        designs,
        "launched",
        lambda site, **order: LaunchRecord(status="ok", reason=None, inside=None, deviations=()),
    )
    names = [HOST, "docker", CONTROL]
    plan = sealed_campaign({"kind": "rounds", "launches": names, "discarded": 0}).plan
    row = designs.one_after_other(plan, dict.fromkeys(names), [], names, dict.fromkeys(names, 0))
    assert row["others"] == {"cpu_s": 3.0, "stolen_s": 0.0, "seconds": 2.0, "processors": 2}
    only = designs.one_after_other(plan, {"docker": None}, [], ["docker"], {"docker": 0})
    assert "others" not in only


@pytest.mark.usefixtures("launch_cache")
def test_sliced_rounds_are_watched_while_their_launches_run(tmp_path):
    sites = {name: fakes.site(fakes.Fake(tmp_path)) for name in (HOST, CONTROL)}
    setup = Setup(study=fakes.study(units=2), workload="mnist_cnn", sites=sites)
    run_campaign(tmp_path / "c", rounds.rounds(setup))
    for unit in read_rows(tmp_path / "c").units:
        body_s = sum(launch.slices.body_s for launch in unit.launches.values())
        assert unit.others.seconds >= body_s > 0
        assert unit.others.processors == os.cpu_count() and unit.others.cpu_s >= 0
