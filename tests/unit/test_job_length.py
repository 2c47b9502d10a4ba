"""Cost by job length: the formula, its range over a box, its coverage; rows, figure and sentences of campaigns."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import campaign_builders
import numpy as np
import pandas as pd
import pytest

from tare.analysis import job_length as rows_of
from tare.analysis.metrics import campaign_metrics
from tare.analysis.verdicts import Measured
from tare.core.errors import IntegrityError
from tare.model import tables
from tare.model.studies.layout import campaign_name
from tare.report import answer as report
from tare.report import figures
from tare.report.words.quantities import seconds
from tare.report.words.wording import signed
from tare.stats.costs import NEVER, Cost, CostBox
from tare.stats.intervals import t_interval

HALF_PERCENT = Cost(host_s=4.0, fixed_s=0.6, step=0.005)


def campaign(kind, units=8, names=("host", "docker"), seed=3, stopped=None):
    plan, rows = campaign_builders.rounds_campaign("s", "mnist_cnn", [*names], {}, units, random.Random(seed))
    plan["sampling"]["verdict_units"] = 6
    if stopped:
        rows[3]["launches"][stopped] |= {"status": "timeout", "reason": "it was killed after 180 s", "inside": None}
    found = campaign_builders.sealed_campaign(plan, rows, campaign_name("rounds", names))
    found = campaign_builders.steps_of(found) if kind == "steps" else found
    return Measured(campaign=found, metrics=pd.DataFrame(campaign_metrics(found)))


def table_of(*found):
    return tables.make("job_length", rows_of.cost_rows(found))


def value(table, env, item, length_s=None, column="value"):
    own = table[(table["launch"] == env) & (table["item"] == item)]
    return (own if length_s is None else own[own["length_s"] == length_s])[column].item()


def test_the_formula_by_hand():
    assert HALF_PERCENT.at(0) == pytest.approx(0.15)
    assert HALF_PERCENT.at(96) == pytest.approx((0.6 + 0.48) / 100)
    assert HALF_PERCENT.below(0.01) == pytest.approx((0.6 - 0.04) / 0.005)
    assert HALF_PERCENT.at(HALF_PERCENT.below(0.01)) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("fixed_s", "step", "length"),
    [
        (0.6, 0.01, NEVER), (0.6, 0.02, NEVER), (-1.0, 0.02, NEVER), (0.04, 0.0, 0.0), (-1.0, -0.1, 0.0),
        (0.6, 0.0, 56.0),
    ],
)  # fmt: skip
def test_the_length_beyond_which_it_is_below_one_per_cent(fixed_s, step, length):
    assert Cost(host_s=4.0, fixed_s=fixed_s, step=step).below(0.01) == pytest.approx(length)


@pytest.mark.parametrize("cost", [HALF_PERCENT, Cost(host_s=2.0, fixed_s=-0.3, step=0.02)])
def test_it_goes_one_way_from_what_happens_once_to_the_steps(cost):
    costs = np.array([cost.at(length) for length in np.logspace(-3, 8, 200)])
    steps = np.diff(costs)
    assert (steps <= 0).all() or (steps >= 0).all()
    assert costs[0] == pytest.approx(cost.fixed_s / cost.host_s, rel=0.01)
    assert costs[-1] == pytest.approx(cost.step, rel=0.01)


def test_the_two_corners_hold_the_range_over_the_whole_box():
    generator = np.random.default_rng(5)
    for _ in range(50):
        fixed_s, step = np.sort(generator.normal(0.1, 0.5, 2)), np.sort(generator.normal(0.004, 0.01, 2))
        box = CostBox(
            low=Cost(host_s=3.0, fixed_s=fixed_s[0], step=step[0]),
            high=Cost(host_s=3.0, fixed_s=fixed_s[1], step=step[1]),
        )
        for _ in range(40):
            inside = Cost(host_s=3.0, fixed_s=generator.uniform(*fixed_s), step=generator.uniform(*step))
            length_s = 10 ** generator.uniform(-2, 7)
            assert box.at(length_s)[0] <= inside.at(length_s) <= box.at(length_s)[1]
            assert box.below(0.01)[0] <= inside.below(0.01) <= box.below(0.01)[1]


def test_the_box_covers_all_lengths_together_with_hosts_that_vary_too():
    """Simulated whole runs and steps: the true cost lies in the range at every length, and so does its limit."""
    generator, campaigns, units, covered = np.random.default_rng(8), 600, 8, 0
    truth = Cost(host_s=3.0, fixed_s=0.5, step=0.004)
    lengths = [1, 30, 1000, 1e6]
    for _ in range(campaigns):
        hosts = truth.host_s * np.exp(generator.normal(0, 0.04, (units, 2)))
        env = (truth.host_s + truth.fixed_s) * np.exp(generator.normal(0, 0.04, units))
        fixed = t_interval(env - hosts.mean(axis=1), 0.025)
        step = t_interval(generator.normal(math.log1p(truth.step), 0.006, units), 0.025)
        _, box = rows_of.cost_of(
            float(hosts.mean()), fixed.mean_low_high, [math.expm1(end) for end in step.mean_low_high]
        )
        found = [box.at(length)[0] <= truth.at(length) <= box.at(length)[1] for length in lengths]
        covered += all(found) and box.below(0.01)[0] <= truth.below(0.01) <= box.below(0.01)[1]
    error = math.sqrt(0.95 * 0.05 / campaigns)
    assert covered / campaigns >= 0.95 - 2 * error
    assert covered < campaigns


def test_rows_find_what_was_planted():
    table = table_of(campaign("rounds"), campaign("steps"))
    once = sum(seconds for name, seconds in campaign_builders.PHASES.items() if name != "epoch_rest")
    planted = 13 * 0.03 + 1.6 * 0.12
    assert value(table, "host", "host_fixed_s") == pytest.approx(once, rel=0.02)
    assert value(table, "docker", "fixed_s") == pytest.approx(planted, abs=0.05)
    for item, truth in (("fixed_s", planted), ("step_share", 0.035)):
        assert value(table, "docker", item, column="low") < truth < value(table, "docker", item, column="high")
    fixed_s, step = (
        [value(table, "docker", item, column=end) for end in ("value", "low", "high")]
        for item in ("fixed_s", "step_share")
    )
    _, box = rows_of.cost_of(value(table, "host", "host_fixed_s"), fixed_s, step)
    for length_s in rows_of.NAMED:
        ends = [value(table, "docker", "cost", length_s, end) for end in ("low", "high")]
        assert ends == pytest.approx(list(box.at(length_s)))
    assert value(table, "docker", "length_below", column="low") == NEVER
    kinds = table.groupby("item")["kind"].agg(set).to_dict()
    assert kinds["fixed_s"] == kinds["step_share"] == kinds["host_fixed_s"] == {"measured"}
    assert kinds["cost"] == kinds["length_below"] == {"modelled"}


def test_each_part_has_half_of_alpha_and_environments_share_it():
    table = table_of(campaign("rounds"), campaign("steps"))
    assert value(table, "docker", "fixed_s", column="alpha") == pytest.approx(0.025)
    assert value(table, "docker", "length_below", column="alpha") == pytest.approx(0.05)
    names = ("host", "docker", "apptainer")
    table = table_of(campaign("rounds", names=names), campaign("steps", names=names))
    assert value(table, "docker", "step_share", column="alpha") == pytest.approx(0.0125)


def test_few_units_say_nothing_of_jobs():
    table = table_of(campaign("rounds", units=2), campaign("steps"))
    assert value(table, "docker", "length_below", column="kind") == "unavailable"
    reason = "2 complete rounds of 6 that the study asks for before a verdict"
    assert value(table, "docker", "cost", rows_of.HOUR, "reason") == reason
    assert "inconclusive: 2 complete" in figures.job_length(table, "mnist_cnn").alt
    assert report.cost_table(table).rows[0][-1].span == 4
    [told] = report.job_sections(SimpleNamespace(job_length=table, workloads=["mnist_cnn"], decided=[]))
    assert not told.has_length and reason in told.table.rows[0][-1].text, "the page has the reason, and no figure"


@pytest.mark.parametrize("stopped", ["docker", "host.control"])
def test_a_run_that_was_stopped_leaves_what_happens_once_without_an_end(stopped):
    names = ("host", "docker", "apptainer")
    table = table_of(campaign("rounds", 8, names, stopped=stopped), campaign("steps", 8, names))
    reason = "in 1 round it or a host was stopped at the time limit: what happens once took at least that"
    for item in ("fixed_s", "length_below"):
        assert value(table, "docker", item, column="kind") == "unavailable"
        assert value(table, "docker", item, column="reason") == reason
    assert value(table, "apptainer", "length_below", column="kind") == (
        "modelled" if stopped == "docker" else "unavailable"
    )
    [told] = report.job_sections(SimpleNamespace(job_length=table, workloads=["mnist_cnn"], decided=[]))
    assert told.has_length == (stopped == "docker")


def test_rounds_without_steps_say_nothing_of_jobs():
    table = table_of(campaign("rounds"))
    assert "this study measured no training steps in its whole runs; rounds.steps" in value(
        table, "docker", "length_below", column="reason"
    )


def test_a_table_is_refused_that_hides_why_a_cost_is_missing():
    table = table_of(campaign("rounds", units=2), campaign("steps"))
    with pytest.raises(IntegrityError, match="job_length"):
        tables.make("job_length", table.assign(reason=None).to_dict("records"))


def test_the_table_of_the_page_says_what_the_rows_say():
    table = table_of(campaign("rounds"), campaign("steps"))
    [cells] = report.cost_table(table).rows
    ends = {
        item: [value(table, "docker", item, column=end) for end in ("low", "high")]
        for item in ("fixed_s", "step_share")
    }
    assert cells[0] == "Docker" and cells[2] == signed(*(1 + end for end in ends["step_share"]))
    assert cells[1] == " to ".join(f"{'−' if end < 0 else '+'}{seconds(abs(end))}" for end in ends["fixed_s"])
    for length_s, cell in zip(rows_of.NAMED, cells[3:6], strict=True):
        own = [1 + value(table, "docker", "cost", length_s, end) for end in ("low", "high")]
        assert cell == signed(*own)
    assert cells[6] == "never"


def test_the_figure_of_one_environment_alone_and_of_twelve(tmp_path):
    table = table_of(campaign("rounds"), campaign("steps"))
    one = figures.job_length(table, "mnist_cnn")
    assert len(one.figure.axes) == 1 and len(one.figure.axes[0].collections) == 1
    own = table[table["launch"] == "docker"]
    many = pd.concat([table, *(own.assign(launch=f"env{number}") for number in range(11))])
    twelve = figures.job_length(many, "mnist_cnn")
    assert sum(len(axes.collections) for axes in twelve.figure.axes) == 12
    figures.write(twelve, tmp_path / "twelve.svg")
    text = (tmp_path / "twelve.svg").read_text()
    assert all(f">{name}<" in text for name in ("Docker", "Env0", "Env10", "1 h", "1%"))


def test_the_figure_draws_the_rows_and_the_line_of_one_per_cent():
    table = table_of(campaign("rounds"), campaign("steps"))
    (axes,) = figures.job_length(table, "mnist_cnn").figure.axes
    dashed, line = axes.lines
    assert list(dashed.get_ydata()) == [0.01, 0.01]
    costs = table[table["item"] == "cost"].sort_values("length_s")
    assert list(line.get_ydata()) == pytest.approx(costs["value"].tolist())
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(costs["high"].max())
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_a_figure_without_environments_says_so():
    table = table_of(campaign("rounds", names=("host",)))
    assert "nothing to draw" in figures.job_length(table, "mnist_cnn").alt
