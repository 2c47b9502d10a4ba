"""The verdict table: ratios, families, designs and reasons, on data whose truth is known."""

import math
import random

import campaign_builders
import numpy as np
import pandas as pd
import pytest
from asked import conditions
from campaign_builders import (
    MACHINE,
    copies_record,
    rounds_campaign,
    sealed_campaign,
    steps_of,
    verdict_rows,
    write_campaign,
)

from tare.analysis import verdicts
from tare.analysis.copies import between_copies, part_of
from tare.analysis.metrics import campaign_metrics
from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import share_of
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role, reference_of
from tare.model.studies.cells import launch_columns
from tare.model.studies.layout import SEALED
from tare.stats.intervals import (
    Interval,
    Spread,
    judge,
    share_interval,
    student,
    t_interval,
    t_quantile,
    trimmed,
    without_wild_ends,
)

IDENTITY = {
    **{"study": "s", "machine": MACHINE, "campaign": "c", "scenario": "single", "workload": "w"},
    **{"stack": "t", "batch": 64},
}
NAMES = [HOST, CONTROL, "docker", "apptainer", "podman"]


def plan_of(kind="rounds", launches=NAMES, **changes):
    return {
        "kind": kind,
        "launches": launches,
        "sampling": {"units": 6, "confidence": 0.95},
        "margins": {"run": 0.05, "step": 0.02},
        "arm": "stack=same",
        **changes,
    }


def rows_of(metric, values, first_rep=1, arms=None):
    """Metric rows from {env: [value by unit]}; None for a launch that did not succeed."""
    return [
        {
            **IDENTITY,
            "level_stack": (arms or {}).get(env, "same"),
            **launch_columns(read_role(env), "single"),
            "rep": first_rep + number,
            "metric": metric,
            "kind": "unavailable" if value is None else "measured",
            "value": value,
        }
        for env, found in values.items()
        for number, value in enumerate(found)
    ]


def table_of(plan, rows, units=(), share=1.0, **seal):
    """Of a headline, unless the campaign has another name."""
    seal = {"name": f"{plan['kind']}.docker+host", **seal}
    return pd.DataFrame(verdict_rows(sealed_campaign(plan, units, **seal), pd.DataFrame(rows), share))


def noisy(generator, effect=0.0, units=6, noise=0.001):
    return np.exp(math.log1p(effect) + generator.normal(0, noise, units)).tolist()


def test_log_ratios_against_the_mean_of_two_hosts():
    values = pd.DataFrame({HOST: [1.0, 2.0], CONTROL: [4.0, 2.0], "docker": [2.0, math.nan]})
    assert verdicts.log_ratios(values, "docker").tolist() == [pytest.approx(0.0)]
    assert verdicts.log_ratios(values, CONTROL).tolist() == pytest.approx([math.log(4), 0.0])


def test_a_time_that_is_not_positive_has_no_ratio():
    values = pd.DataFrame({HOST: [1.0, 0.0, 1.0], CONTROL: [1.0, 1.0, 1.0], "docker": [2.0, 2.0, -1.0]})
    assert verdicts.log_ratios(values, "docker").tolist() == [pytest.approx(math.log(2))]


def test_the_level_of_an_arm_is_compared_with_its_own_baseline():
    values = pd.DataFrame(
        {HOST: [2.0], CONTROL: [8.0], f"{HOST}.headline": [1.0], "docker": [6.0], "docker.headline": [3.0]}
    )
    # The host stands twice at the arm's level: the mean of both.
    assert verdicts.log_ratios(values, HOST, reference_of(HOST)).tolist() == pytest.approx([math.log(4)])
    assert verdicts.log_ratios(values, "docker", reference_of("docker")).tolist() == pytest.approx([math.log(2)])


def test_the_total_ratio_counts_stalls_in_full():
    values = pd.DataFrame({HOST: [1.0] * 9, CONTROL: [1.0] * 9, "docker": [1.0] * 8 + [10.0]})
    assert verdicts.total_ratio(values, "docker") == pytest.approx(2.0)
    values = pd.DataFrame({HOST: [1.0, 1.0], CONTROL: [3.0, 1.0], "docker": [3.0, 3.0]})
    assert verdicts.total_ratio(values, "docker") == pytest.approx(2.0)  # 6 by the mean of 2 and 4


def test_the_total_ratio_of_a_level_has_the_baseline_below():
    values = pd.DataFrame({HOST: [3.0], CONTROL: [5.0], f"{HOST}.headline": [2.0], "d": [6.0], "d.headline": [4.0]})
    assert verdicts.total_ratio(values, HOST, f"{HOST}.headline") == pytest.approx(2.0)
    assert verdicts.total_ratio(values, "d", "d.headline") == pytest.approx(1.5)


def test_the_primary_comparisons_are_one_family_by_holm():
    generator = np.random.default_rng(1)
    values = {HOST: noisy(generator), CONTROL: noisy(generator), "docker": noisy(generator, 0.5)}
    values["apptainer"] = noisy(generator)
    found = table_of(plan_of(), rows_of("real_s", values))
    real = found[found["metric"] == "real_s"].set_index("launch")
    assert list(real.index) == ["docker", "apptainer", "podman"]
    assert set(real["family_size"]) == {3} and set(real["role"]) == {"primary"}
    # docker differs at a third of alpha; of the two that are left, neither does at a half
    assert real["alpha"].tolist() == pytest.approx([0.05 / 3, 0.05 / 2, 0.05 / 2])
    assert set(found.loc[found["metric"] != "real_s", "role"]) == {"exploratory"}
    assert real.loc["docker", "verdict"] == "different"
    assert real.loc["docker", "ratio"] == pytest.approx(1.5, rel=0.01)
    assert real.loc["apptainer", "verdict"] in ("equivalent", "different within margin")
    assert real.loc["podman", "verdict"] == "inconclusive"
    assert "0 complete units; an interval needs 2 or more" in real.loc["podman", "reason"]
    assert set(real["design"]) == {"fixed"}
    assert set(found["metric"]) == set(verdicts.RUN_METRICS) - set(verdicts.OF_SOME)


def test_the_printed_interval_is_the_one_that_decides():
    generator = np.random.default_rng(2)
    values = {name: noisy(generator, noise=0.03) for name in (HOST, CONTROL, "docker")}
    found = table_of(plan_of(launches=NAMES[:3]), rows_of("real_s", values))
    row = found[found["metric"] == "real_s"].iloc[0]
    logs = {name: np.log(found) for name, found in values.items()}
    ratios = logs["docker"] - (logs[HOST] + logs[CONTROL]) / 2
    interval = t_interval(ratios, 0.05)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert row["verdict"] == judge(interval, 0.05)
    control = t_interval(logs[CONTROL] - logs[HOST], 0.05)
    assert (row["control_ci_low"], row["control_ci_high"]) == pytest.approx(
        (math.exp(control.low), math.exp(control.high))
    )
    assert row["more_units"] > 0 if row["verdict"] == "inconclusive" else pd.isna(row["more_units"])


def test_only_what_is_inconclusive_says_how_many_units_more():
    generator = np.random.default_rng(3)
    values = {name: noisy(generator, noise=0.001) for name in NAMES[:3]}
    values["apptainer"] = noisy(generator, noise=0.1)
    found = table_of(plan_of(launches=NAMES[:4]), rows_of("real_s", values)).set_index(["metric", "launch"])
    assert pd.isna(found.loc[("real_s", "docker"), "more_units"])
    assert found.loc[("real_s", "apptainer"), "more_units"] > 0


def test_units_of_a_new_campaign_are_counted_at_the_share_of_its_try():
    """What a first try leaves open the second has to answer at a quarter of its alpha."""
    generator = np.random.default_rng(3)
    rows = rows_of("real_s", {name: noisy(generator, noise=0.1) for name in NAMES[:3]})
    campaign = sealed_campaign(plan_of(launches=NAMES[:3]), (), "rounds.docker+host")
    common = {"campaign": campaign, "metrics": pd.DataFrame(rows), "share": share_of(1)}
    alike, dearer = (
        verdicts.study_rows([verdicts.Measured(**common, **one)])[0] for one in ({}, {"next_share": share_of(2)})
    )
    assert alike["verdict"] == dearer["verdict"] == "inconclusive" and alike["alpha"] == dearer["alpha"]
    assert alike["more_units"] < dearer["more_units"]


def test_steins_design_takes_the_spread_of_the_pilot():
    """The pilot is the first units that count, whatever order the rows come in."""
    generator = np.random.default_rng(4)
    values = {name: noisy(generator, noise=0.01, units=12) for name in (HOST, CONTROL, "docker")}
    sampling = {"pilot": 6, "half_width": 0.01, "budget_s": 1.0, "confidence": 0.95}
    plan = plan_of("steps", NAMES[:3], sampling=sampling)
    rows = rows_of("step_s", values) + rows_of("step_mean_s", values)
    row = table_of(plan, rows[::-1], design="stein").iloc[0]
    logs = {name: np.log(found) for name, found in values.items()}
    ratios = logs["docker"] - (logs[HOST] + logs[CONTROL]) / 2
    wanted = 2 * t_quantile(0.05, 5) * ratios[:6].std(ddof=1) / math.sqrt(12)  # spread of the pilot, mean of all
    assert row["design"] == "stein" and row["n_units"] == 12
    middle = trimmed(logs["docker"] - logs[HOST], logs["docker"] - logs[CONTROL]).mean  # of all units
    assert row["ratio"] == pytest.approx(math.exp(middle))
    assert math.log(row["ci_high"] / row["ci_low"]) == pytest.approx(wanted)
    # A pilot in which one unit lacks docker: five degrees of freedom become four.
    values["docker"][2] = None
    row = table_of(plan, rows_of("step_s", values) + rows_of("step_mean_s", values), design="stein").iloc[0]
    kept = np.delete(ratios, 2)
    wanted = 2 * t_quantile(0.05, 4) * kept[:5].std(ddof=1) / math.sqrt(11)
    assert row["n_units"] == 11
    assert math.log(row["ci_high"] / row["ci_low"]) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("decided", "ended", "design"),
    [
        (None, None, "fixed"),
        ("stein", None, "stein"),
        ("fixed", None, "fixed"),
        ("stein", "the machine changed", "fixed"),  # fewer units than the pilot asked for
    ],
)
def test_the_design_is_steins_only_where_all_its_units_were_made(decided, ended, design):
    assert verdicts.design_of(sealed_campaign(plan_of(), design=decided, ended=ended)) == design


def test_a_campaign_that_ended_early_says_so_in_every_row():
    generator = np.random.default_rng(5)
    values = {name: noisy(generator) for name in NAMES[:3]}
    found = table_of(plan_of(launches=NAMES[:3]), rows_of("real_s", values), ended="the machine changed")
    assert found["reason"].str.contains("ended before its time: the machine changed").all()


def test_steps_have_their_own_margin_and_their_totals_hold_the_stalls():
    generator = np.random.default_rng(6)
    steps = {name: noisy(generator, units=6) for name in NAMES[:3]}
    steps["docker"] = noisy(generator, 0.03)
    means = {**steps, "docker": [value * 2 for value in steps["docker"]]}  # half of the time was stalls
    found = table_of(plan_of("steps", NAMES[:3]), rows_of("step_s", steps) + rows_of("step_mean_s", means))
    assert list(found["metric"]) == ["step_s"]
    row = found.iloc[0]
    assert row["margin"] == 0.02 and row["verdict"] == "different"
    assert row["ratio"] == pytest.approx(1.03, rel=0.005)
    assert row["total_ratio"] == pytest.approx(2.06, rel=0.005)


def test_an_arms_campaign_judges_its_level_and_each_environment_at_it():
    generator = np.random.default_rng(7)
    names = [HOST, CONTROL, "docker", "apptainer", f"{HOST}.headline"]
    values = {name: noisy(generator, 0.2) for name in names}
    values[f"{HOST}.headline"] = noisy(generator)
    arms = {f"{HOST}.headline": "headline"}
    plan = plan_of("steps", names)
    rows = rows_of("step_s", values, arms=arms) + rows_of("step_mean_s", values, arms=arms)
    found = table_of(plan, rows, name="steps.docker+host.input-synthetic").set_index(["launch", "reference"])
    assert list(found.index) == [("docker", HOST), ("apptainer", HOST), (HOST, f"{HOST}.headline")]
    assert found["family_size"].tolist() == [3, 3, 3] and set(found["role"]) == {"exploratory"}
    # One of three is selected: every interval at a third of alpha.
    assert found["alpha"].tolist() == pytest.approx([0.05 / 3] * 3)
    assert set(found["level_stack"]) == {"same"}
    assert found.loc[(HOST, f"{HOST}.headline"), "ratio"] == pytest.approx(1.2, rel=0.005)
    assert found.loc[(HOST, f"{HOST}.headline"), "verdict"] == "different"
    assert found.loc[("docker", HOST), "ratio"] == pytest.approx(1.0, rel=0.005)


def simulate(generator, effect, units=8, noise=0.04, drift=0.5):
    """Rounds on a machine that drifts: every launch of a round shares its speed, plus noise of its own."""
    speed = 1 + drift * np.linspace(0, 1, units) + 0.1 * generator.standard_normal(units)
    times = {name: speed * np.exp(noise * generator.standard_normal(units)) for name in (HOST, CONTROL, "docker")}
    times["docker"] *= 1 + effect
    return pd.DataFrame(times)


@pytest.mark.parametrize("effect", [0.0, 0.03, 0.2])
def test_intervals_of_rounds_cover_the_truth_as_often_as_they_say(effect):
    generator = np.random.default_rng(7)
    runs, covered, control_covered = 600, 0, 0
    for _ in range(runs):
        values = simulate(generator, effect)
        found = t_interval(verdicts.log_ratios(values, "docker"), 0.05)
        covered += found.low <= math.log1p(effect) <= found.high
        control = t_interval(verdicts.log_ratios(values, CONTROL), 0.05)
        control_covered += control.low <= 0 <= control.high
    # binomial: 0.95 +- 4 standard errors of sqrt(.95 * .05 / 600) = 0.0089
    assert 0.914 <= covered / runs <= 0.986
    assert 0.914 <= control_covered / runs <= 0.986


def test_false_positives_and_power_of_rounds():
    generator = np.random.default_rng(11)

    def verdict(effect):
        return judge(t_interval(verdicts.log_ratios(simulate(generator, effect), "docker"), 0.05), 0.05)

    false = sum(verdict(0.0).startswith("different") for _ in range(400))
    found = sum(verdict(0.2) == "different" for _ in range(200))
    assert false / 400 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)
    assert found / 200 >= 0.95


def steps(typical, totals, **plan):
    rows = rows_of("step_s", typical) + rows_of("step_mean_s", totals)
    return table_of(plan_of("steps", list(typical), **plan), rows).set_index("launch")


def test_stalls_qualify_an_equivalence():
    """docker's typical step is the host's; its stalls add 1.5%. Charliecloud has none."""
    generator = np.random.default_rng(12)
    typical = {name: noisy(generator, units=10) for name in (HOST, CONTROL, "docker", "charliecloud")}
    totals = {name: [value * 1.001 for value in values] for name, values in typical.items()}
    totals["docker"] = [value * math.exp(generator.normal(0.015, 0.003)) for value in typical["docker"]]
    found = steps(typical, totals)
    docker, other = found.loc["docker"], found.loc["charliecloud"]
    assert docker["verdict"] == "equivalent apart from stalls"
    assert docker["total_verdict"] == "different within margin"
    assert docker["stalls_ci_low"] > 1.01 and docker["total_ci_low"] > 1.01
    assert other["verdict"] == "equivalent" and other["stalls_ci_low"] <= 1 <= other["stalls_ci_high"]
    beyond = steps(typical, {**totals, "docker": [value * 1.2 for value in totals["docker"]]}).loc["docker"]
    assert beyond["verdict"] == "equivalent apart from stalls" and beyond["total_verdict"] == "different"


def test_all_time_has_an_interval_of_all_units_untrimmed():
    generator = np.random.default_rng(13)
    typical = {name: noisy(generator, units=10, noise=0.01) for name in NAMES[:3]}
    typical["docker"][4] *= 2
    row = steps(typical, typical).loc["docker"]
    logs = {name: np.log(values) for name, values in typical.items()}
    whole = student(logs["docker"] - (logs[HOST] + logs[CONTROL]) / 2).interval(row["alpha"])
    assert (row["total_ci_low"], row["total_ci_high"]) == pytest.approx((math.exp(whole.low), math.exp(whole.high)))
    assert row["ci_high"] < 1.05 < row["total_ci_high"]


def test_few_units_have_an_interval_and_no_verdict():
    """Two values that happen to be close: the others' spreads widen the interval, and nothing is concluded."""
    generator = np.random.default_rng(14)
    values = {name: noisy(generator, units=2, noise=0.2) for name in NAMES}
    middle = np.sqrt(np.array(values[HOST]) * values[CONTROL])
    values["docker"] = (middle * [0.95, 0.9500001]).tolist()
    found = table_of(plan_of(), rows_of("real_s", values)).set_index(["metric", "launch"])
    row = found.loc["real_s", "docker"]
    assert row["verdict"] == row["total_verdict"] == "inconclusive"
    assert row["reason"] == "2 complete units; the study asks for 6 before a verdict"
    assert row["ci_low"] < 0.9 and row["ci_high"] > 1.0
    asked = plan_of(sampling={"units": 4, "confidence": 0.95, "verdict_units": 4})
    calm = {name: noisy(generator, effect, 4) for name, effect in zip(NAMES, (0, 0, 0.5, 0, 0), strict=True)}
    found = table_of(asked, rows_of("real_s", calm)).set_index(["metric", "launch"])
    assert found.loc[("real_s", "docker"), "verdict"] == "different"


def test_a_control_that_reaches_as_far_as_a_claim_is_told():
    generator = np.random.default_rng(15)
    values = {name: noisy(generator, units=6, noise=0.001) for name in NAMES}
    values["docker"] = [value * 1.1 for value in values[HOST]]
    calm = table_of(plan_of(), rows_of("real_s", values)).set_index(["metric", "launch"])
    assert calm.loc[("real_s", "docker"), "verdict"] == "different"
    assert not calm.loc[("real_s", "docker"), "control_reaches"]
    values[HOST] = [value * factor for value, factor in zip(values[HOST], (1.3, 0.8) * 3, strict=True)]
    wild = table_of(plan_of(), rows_of("real_s", values)).set_index(["metric", "launch"])
    assert wild.loc[("real_s", "docker"), "control_reaches"]


def test_a_later_try_has_its_share_of_alpha():
    generator = np.random.default_rng(16)
    rows = rows_of("real_s", {name: noisy(generator) for name in NAMES[:3]})
    first, second = (table_of(plan_of(launches=NAMES[:3]), rows, share=share).iloc[0] for share in (1.0, 0.25))
    assert (first["alpha"], second["alpha"]) == pytest.approx((0.05, 0.0125))
    assert second["ci_high"] - second["ci_low"] > first["ci_high"] - first["ci_low"]


def test_a_study_holds_all_primary_comparisons_to_one_ladder():
    generator = np.random.default_rng(17)
    parts = []
    for kind, metric in (("rounds", "real_s"), ("steps", "step_s")):
        rows = rows_of(metric, {name: noisy(generator) for name in NAMES[:4]})
        rows += rows_of("step_mean_s", {name: noisy(generator) for name in NAMES[:4]})
        campaign = sealed_campaign(plan_of(kind, NAMES[:4]), name=f"{kind}.apptainer+docker+host")
        parts.append(verdicts.Measured(campaign=campaign, metrics=pd.DataFrame(rows)))
    found = pd.DataFrame(verdicts.study_rows(parts))
    primary = found[found["role"] == "primary"]
    assert len(primary) == 4 and set(primary["family_size"]) == {4}
    assert primary["alpha"].min() >= 0.05 / 4 - 1e-12
    assert primary["all_within"].notna().all() and (primary["all_within"] < 0.02).all()
    assert set(found["family_alpha"].round(12)) == {0.05}


def with_stopped(names, *stopped, units=6):
    """Units of rounds in which launches were stopped: one of `stopped` is (number of the unit, name)."""
    return [
        {
            **{"unit": 1 + number, "discarded": False, "voided": None},
            "launches": {
                name: {"status": "timeout" if (number, name) in stopped else "ok", "reason": None} for name in names
            },
        }
        for number in range(units)
    ]


def stopped_row(values, *stopped):
    """The row of docker's whole runs, of which the time limit of 10 s stopped some."""
    for number, name in stopped:
        values[name][number] = None
    plan = plan_of(launches=NAMES[:3], conditions=conditions(launch_timeout_s=10.0).to_json())
    found = table_of(plan, rows_of("real_s", values), with_stopped(NAMES[:3], *stopped))
    return found.set_index("metric").loc["real_s"]


def test_a_launch_that_was_stopped_is_a_bound_and_failures_are_a_share():
    generator = np.random.default_rng(18)
    values = {name: noisy(generator, units=6) for name in NAMES[:3]}
    values["docker"] = [value * 3 for value in values["docker"]]
    row = stopped_row(values, (0, "docker"))  # stopped at ten times what the host takes
    assert row["n_units"] == 6 and row["verdict"] == "different"
    assert row["ratio"] == pytest.approx(3 * (10 / 3) ** (1 / 6), rel=0.01)
    assert row["ci_low"] > 1 and pd.isna(row["ci_high"]) and pd.isna(row["total_ci_high"])
    assert row["reason"].startswith("1 of 6 launches were stopped at the time limit of 10 s")
    assert (row["launches"], row["failures"], row["timeouts"]) == (6, 1, 1)
    assert (row["failure_share_low"], row["failure_share_high"]) == share_interval(1, 6, 0.05)


def test_a_host_that_was_stopped_is_a_bound_from_the_other_side():
    generator = np.random.default_rng(19)
    values = {name: noisy(generator, units=6) for name in NAMES[:3]}
    values["docker"] = [value / 3 for value in values["docker"]]
    row = stopped_row(values, (2, CONTROL))
    assert row["n_units"] == 6 and row["verdict"] == "different" and row["timeouts"] == 0
    assert row["ratio"] == pytest.approx(10 ** (-1 / 12) / 3, rel=0.01)
    assert pd.isna(row["ci_low"]) and row["ci_high"] < 1 and pd.isna(row["total_ci_low"])
    assert row["reason"].startswith(
        "in 1 of 6 units what it is compared with was stopped at the time limit of 10 s"
    )
    assert pd.isna(row["control_ci_high"]) and row["control_reaches"]


def test_what_was_stopped_on_both_sides_says_nothing():
    values = {name: noisy(np.random.default_rng(20), units=6) for name in NAMES[:3]}
    row = stopped_row(values, (1, "docker"), (1, HOST))
    assert row["n_units"] == 5 and row["ci_low"] < 1 < row["ci_high"]
    assert row["reason"].endswith("units in which both were stopped at the time limit of 10 s say nothing: 1")


def test_a_bound_on_the_far_side_tells_nothing_and_loosens_no_other_comparison():
    """Docker is quicker than the host, and was stopped once: how long it takes at most nobody knows."""
    generator = np.random.default_rng(21)
    values = {name: noisy(generator, units=6) for name in NAMES[:4]}
    values["docker"] = [value / 50 for value in values["docker"]]
    values["docker"][3] = None
    plan = plan_of(launches=NAMES[:4], conditions=conditions(launch_timeout_s=1.1).to_json())
    found = table_of(plan, rows_of("real_s", values), with_stopped(NAMES[:4], (3, "docker")))
    found = found[found["metric"] == "real_s"].set_index("launch")
    assert found.loc["docker", "ratio"] < 0.2 and found.loc["docker", "verdict"] == "inconclusive"
    assert pd.isna(found.loc["docker", "more_units"]) and found["all_within"].isna().all()
    assert found.loc["apptainer", "alpha"] == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("control", "p", "variances"),
    [("own copy", 0.001, (1.5, 2.0)), ("shared", 0.001, (2.0, 0.0)), ("own copy", 0.4, (0.0, 0.0))],
)
def test_what_copies_differ_by_is_in_every_interval_of_steps_where_it_counts(control, p, variances):
    plan, rows = rounds_campaign("s", "mnist_cnn", [HOST, "docker"], {}, 8, random.Random(2), {})
    plan["provenance"] = {"control": {"files": control}}
    campaign = steps_of(sealed_campaign(plan, rows, "rounds.docker+host"))
    found = copies_record(p=p, sd_between={"value": 0.01, "low": 0.006, "high": 0.02}, copies=list("abcdef"))
    metrics = pd.DataFrame(campaign_metrics(campaign))
    part = between_copies(found, campaign)
    plain, wide = (
        verdicts.study_rows([verdicts.Measured(campaign=campaign, metrics=metrics, between_copies=one)])[0]
        for one in (None, part)
    )
    parts = [t_quantile(plain["alpha"], 5) * math.sqrt(variance) * 0.01 for variance in variances]
    for low, high, extra in (
        ("ci_low", "ci_high", 0),
        ("total_ci_low", "total_ci_high", 0),
        ("control_ci_low", "control_ci_high", 1),
    ):
        before, after = (math.log(row[high] / row[low]) / 2 for row in (plain, wide))
        assert after == pytest.approx(math.hypot(before, parts[extra])), low
    assert between_copies(found.replace(stack="another"), campaign) is None
    rounds = sealed_campaign(plan_of(), (), "rounds.docker+host")
    assert between_copies(found, rounds) is None and between_copies(None, campaign) is None


def test_a_level_is_compared_with_the_same_files():
    campaign = sealed_campaign(plan_of("steps"), (), "steps.docker+host")
    part = Spread(unit=0.01, degrees=5)
    assert part_of(part, campaign, "docker", "docker.headline") is None
    assert part_of(part, campaign, "docker", HOST) is not None


def test_an_interval_beyond_any_ratio_is_not_told():
    """Two units with one degree of freedom, at the level of a large family: exp of its end would overflow."""
    wide = Interval(n=2, mean=0.1, low=-800.0, high=800.2)
    assert without_wild_ends(wide) == Interval(n=2, mean=0.1, low=None, high=None)
    assert without_wild_ends(Interval(n=2, mean=0.1, low=-1.0, high=1.2)).mean_low_high == (0.1, -1.0, 1.2)
    assert without_wild_ends(Interval(n=1, mean=0.1, low=None, high=None)).mean_low_high is None
    values = {HOST: [1.0, 1.0], CONTROL: [1.0, 1.001], "docker": [1.0, 9.0]}
    found = table_of(plan_of(launches=list(values)), rows_of("real_s", values), share=1e-6)
    row = found[found["metric"] == "real_s"].iloc[0]
    assert row["ci_low"] is None and row["verdict"] == "inconclusive"
    assert "say nothing at this level: their interval reaches beyond a factor of 1,000" in row["reason"]


@pytest.mark.parametrize(("cycles", "verdict"), [(1, "equivalent apart from stalls"), (60, "equivalent")])
def test_equivalence_without_more_words_needs_steps_in_which_stalls_would_show(cycles, verdict, monkeypatch):
    """Nothing differs and nothing stalls: of few steps nobody can say the latter."""
    monkeypatch.setattr(
        verdicts, "counted_steps", lambda campaign: dict.fromkeys([HOST, CONTROL, "docker"], 60 * cycles)
    )
    generator = np.random.default_rng(12)
    typical = {name: noisy(generator, units=10) for name in (HOST, CONTROL, "docker")}
    row = steps(typical, typical).loc["docker"]
    assert (row["verdict"], row["total_verdict"], row["steps"]) == (verdict, "equivalent", 60 * cycles)
    limit = math.log1p(row["all_within"])  # stalls that nobody saw are in it too: 2.5% of 60 steps
    assert limit >= math.log1p(0.5 * 3 / (60 * cycles))
    assert (limit > math.log1p(row["margin"])) == verdict.endswith("stalls")


def test_steps_that_count_are_those_of_units_that_count(tmp_path):
    plan, rows = rounds_campaign("nyu2022", "mnist_cnn", [HOST, "docker"], {}, 6, random.Random(1))
    rows[2]["voided"] = "a launch died"
    folder = tmp_path / "rounds.docker+host"
    write_campaign(folder, plan, rows)
    whole = read_sealed(folder / SEALED)
    assert verdicts.counted_steps(whole) == {}
    found = verdicts.counted_steps(steps_of(whole))
    of_a_unit = campaign_builders.REPLICATES * campaign_builders.COUNTED
    assert found == dict.fromkeys([HOST, CONTROL, "docker"], 5 * of_a_unit)
