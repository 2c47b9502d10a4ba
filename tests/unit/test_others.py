"""Who else used the processors: counted, kept with units, told in tables and on the first page."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from campaign_builders import json_units, sealed_campaign, with_units
from fakes import CONDITIONS, Fake, site

from tare.analysis import metrics
from tare.experiments import blocks, designs
from tare.machine import others
from tare.machine.others import Instant, between, instant
from tare.model.journals.units import others_in
from tare.model.records.campaigns import Others
from tare.model.records.launches import LaunchRecord
from tare.model.studies.study import CONTROL, HOST
from tare.report.machine.others import UNWATCHED, others_note, others_table

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
    plan = sealed_campaign({"kind": "rounds", "environments": names, "discarded": 0}).plan
    row = designs.one_after_other(plan, dict.fromkeys(names), [], names, dict.fromkeys(names, 0))
    assert row["others"] == {"cpu_s": 3.0, "stolen_s": 0.0, "seconds": 2.0, "processors": 2}
    only = designs.one_after_other(plan, {"docker": None}, [], ["docker"], {"docker": 0})
    assert "others" not in only


@pytest.mark.usefixtures("launch_cache")
def test_units_of_steps_are_watched_while_launches_take_turns(tmp_path):
    with blocks.live_block(
        {HOST: site(Fake(tmp_path, None))}, {"mode": "turns"}, {HOST: CONDITIONS}, order=[HOST], pads={HOST: 0},
        cores=[0], generator=designs.random.Random(1),
    ) as (block, record):  # fmt: skip
        block.run(blocks.Stretch(draws=2, cycles=3, warmup=1, burst=blocks.Burst(discard=0, steps=1)))
    assert record["others"]["seconds"] >= sum(record["cycle_s"]) > 0
    assert record["others"]["processors"] == os.cpu_count() and record["others"]["cpu_s"] >= 0


# --- in tables, and on the page


def with_others(campaign, found):
    """The same, with what others used in each unit."""
    return with_units(campaign, [{**unit, "others": found and found.to_json()} for unit in json_units(campaign)])


def of_all(evidence, found):
    return replace(evidence, campaigns=[with_others(one, found) for one in evidence.campaigns])


def test_metrics_have_a_row_of_the_host_for_each_unit_that_was_watched(evidence):
    campaign = next(one for one in evidence.campaigns if one.kind == "rounds" and one.arm is None)
    rows = [
        row for row in metrics.campaign_metrics(with_others(campaign, used())) if row["metric"] == "others_cpus"
    ]
    assert len(rows) == len(campaign.counted)
    assert {(row["env"], row["value"], row["unit"], row["kind"]) for row in rows} == {(HOST, 0.1, "1", "measured")}
    plain = {row["metric"] for row in metrics.campaign_metrics(with_others(campaign, None))}
    assert not plain & {"others_cpus", "stolen_cpus"}


def test_the_page_of_the_machine_has_who_else_was_there_and_the_first_page_where_it_matters(evidence):
    busy = of_all(evidence, used(4.0, stolen_s=1.0))
    table = others_table(busy)
    assert [row[2:] for row in table.rows] == [["0.80", "0.80", "0.20"]] * 4
    assert others_note(busy) == (
        "While this was measured, other programs used 0.8 and its hypervisor withheld 0.2 of this machine's 2 "
        "processors: a quieter hour gives narrower intervals."
    )
    assert others_note(of_all(evidence, used(0.05))) is None
    unwatched = of_all(evidence, None)
    assert others_note(unwatched) is None
    assert all(row[2] == f"unavailable: {UNWATCHED}" for row in others_table(unwatched).rows)
