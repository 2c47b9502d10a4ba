"""How far a campaign is: units foreseen from those that are done, time left from what they cost, half-widths."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path

import pytest
from campaign_builders import ROUND_S, rounds_campaign
from test_campaign import TO_THE_PILOT, clock, run, unit  # noqa: F401  (a fixture: each unit takes as long)

from tare.core import progress, status
from tare.experiments import campaign, outlook
from tare.experiments.designs import Design
from tare.model.journals.units import planned_alpha
from tare.model.records.campaigns import Plan, Unit
from tare.model.schema import parse
from tare.model.studies.study import CONTROL, HOST
from tare.stats.fits import VALUES_OF
from tare.stats.intervals import log_ratios_of, student

NAMES = [HOST, "docker"]


def seen_at(kind, build, counts, **sampling):
    """The outlook after so many units, by that number; the plan and all units."""
    plan, rows = build("s", "mnist_cnn", NAMES, {}, 8, random.Random(1))
    plan["sampling"] |= {"budget_s": 1e6, **sampling}
    checked = parse(Plan, plan, "plan")
    units = [parse(Unit, row, "unit") for row in rows]
    design = Design(plan=checked, run_unit=None, what="mnist_cnn whole runs", values=VALUES_OF[kind])
    found = {}
    for count in counts:
        own = [VALUES_OF[kind](unit) for unit in units[:count] if unit.counts]
        found[count] = outlook.of(design, checked, units[:count], own, 7, undecided=True)
    return found, checked, units


def test_before_the_first_unit_nobody_knows():
    found, _, _ = seen_at("rounds", rounds_campaign, [0])
    assert (found[0].left_s, found[0].half_width, found[0].total) == (None, None, 7)


def test_units_are_foreseen_from_the_spread_of_those_that_are_done():
    found, plan, units = seen_at("rounds", rounds_campaign, [1, 2, 4], half_width=0.001)
    assert found[1].left_s is None, "what is discarded may be less than a unit"
    assert found[2].left_s == pytest.approx(5 * ROUND_S), "a pilot at least"
    assert found[4].total > 100 and found[4].left_s == pytest.approx((found[4].total - 4) * ROUND_S)
    ratios = log_ratios_of([VALUES_OF["rounds"](unit) for unit in units[1:4]], plan.environments)
    widest = max(student(logs).half_width(planned_alpha(plan)) for logs in ratios.values())
    assert set(ratios) == {CONTROL, "docker"}
    assert found[4].half_width == pytest.approx(math.expm1(widest))
    assert found[4].wanted == 0.001


def test_no_more_units_are_foreseen_than_the_budget_pays():
    found, _, _ = seen_at("rounds", rounds_campaign, [4], half_width=0.001, budget_s=10 * ROUND_S)
    assert found[4].total == 1 + 6 + 3  # ten times a unit's cost less the discarded one and the pilot


def test_of_several_campaigns_the_one_farthest_from_its_end_is_told_with_the_time_of_all(tmp_path, monkeypatch):
    monkeypatch.setenv(status.FOLDER, str(tmp_path / "told"))
    monkeypatch.chdir(tmp_path)

    def one(what, done, left_s, half_width):
        return outlook.Outlook(what=what, done=done, total=9, left_s=left_s, half_width=half_width, wanted=0.01)

    campaigns = {
        Path("a/sealed.json"): one("near", 4, 50.0, 0.012),
        tmp_path / "b/sealed.json": one("far", 4, 60.0, 0.03),
        Path("c/sealed.json"): one("done", 9, 0.0, 0.5),
    }
    outlook.tell(campaigns)
    (told,) = status.heard(tmp_path / "told")
    assert (told.what, told.left_s, told.half_width) == ("far", 110.0, 0.03)
    assert told.outs == ("a/sealed.json", "b/sealed.json", "c/sealed.json")
    outlook.tell({**campaigns, Path("d/sealed.json"): one("new", 0, None, None)})
    assert next(status.heard(tmp_path / "told")).left_s is None, "one of them is not known yet"


def test_a_campaign_tells_after_each_unit(tmp_path, monkeypatch):
    monkeypatch.setenv(status.FOLDER, str(tmp_path / "told"))
    seen = []
    told = status.tell
    monkeypatch.setattr(status, "tell", lambda one: (seen.append(one), told(one)))
    sealed = run(tmp_path / "c", sampling=TO_THE_PILOT)
    assert [one.done for one in seen] == list(range(sealed.units + 2))
    assert seen[0].left_s is None and seen[-1].left_s == 0.0 and seen[-1].total == sealed.units + 1
    assert [one.total for one in seen[:4]] == [5] * 4, "the pilot, while nothing else is known"
    assert seen[5].total == sealed.units + 1, "foreseen from the whole pilot, as it is decided"
    kept = json.loads((tmp_path / "told" / f"{os.getpid()}.json").read_text())
    assert kept["done"] == sealed.units + 1 and kept["wanted"] == TO_THE_PILOT.half_width


def test_nobody_listens_and_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.delenv(status.FOLDER, raising=False)
    monkeypatch.setattr(status, "tell", lambda one: pytest.fail("nobody asked"))
    run(tmp_path / "c")


def test_where_a_line_is_drawn_units_are_not_printed_but_what_failed_is(tmp_path, monkeypatch, capsys):
    for module in (progress, campaign):
        monkeypatch.setattr(module, "below_a_line", lambda: True)
    run(tmp_path / "c", lambda k, done: unit(k, done, status="failed" if k == 2 else "ok"), sampling=TO_THE_PILOT)
    assert capsys.readouterr().out == f"{progress.CLEAR}    test 3 of 5: failed: docker\n"
