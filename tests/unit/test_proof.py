"""The proof of the instrument: coverage, false alarms and power, on simulated steps and on recorded units.

Limits are three standard errors of a share, unless it says otherwise. Seeds are fixed: a failure is a change of the
method. The same functions, with more campaigns, make docs/proof.md (`benchmarks/proof.py`).
"""

import math

import numpy as np
import pytest
from proving import (
    RECORDED,
    RECORDED_HALF_WIDTH,
    RUN_WORLDS,
    UNIT_WORLDS,
    Design,
    Machine,
    World,
    autocorrelation,
    binomial_error,
    campaign,
    consecutive,
    control_logs,
    cover,
    covers,
    decided_size,
    ladder,
    normal_campaigns,
    planted_seconds,
    read_recorded,
    resample,
    share,
    simulate,
    summary,
    values_of,
)

from tare.model.roles import CONTROL
from tare.stats.intervals import log_ratios_of, moderated, student

EFFECTS = {"none": 0.0, "half": 0.005, "two": 0.02}
WORLD = World(effects=EFFECTS, replicates=3, groups=5)
CAMPAIGNS = 100
CONFIDENCE = 0.85  # of three together, so that each interval says 95%
STEIN = Design(half_width=0.01, confidence=CONFIDENCE)
CAPPED = Design(half_width=0.0005, confidence=CONFIDENCE, cap=8)  # nothing ever reaches this half-width


@pytest.fixture(scope="module")
def streams():
    """Units of CAMPAIGNS machines, fitted when they are first asked for and kept for both designs."""
    generator = np.random.default_rng(2022)
    machines = [Machine(WORLD, generator) for _ in range(CAMPAIGNS)]
    kept = [[] for _ in machines]

    def run(number, design):
        position = iter(range(10**6))

        def next_unit():
            at = next(position)
            if at == len(kept[number]):
                kept[number].append(values_of(machines[number].unit(), WORLD.names))
            return kept[number][at]

        return campaign(next_unit, WORLD.names, design)

    return lambda design: [run(number, design) for number in range(CAMPAIGNS)]


@pytest.fixture(scope="module")
def stein(streams):
    return streams(STEIN)


@pytest.fixture(scope="module")
def capped(streams):
    return streams(CAPPED)


LOW = 0.95 - 3 * binomial_error(0.95, CAMPAIGNS)


@pytest.mark.parametrize("design", ["stein", "capped"])
def test_intervals_cover_known_effects_as_often_as_they_say(design, request):
    """Drift, jumps, stalls, launches that differ: 95% of intervals or more hold the truth, each for itself."""
    outcomes = request.getfixturevalue(design)
    for name, effect in {**EFFECTS, CONTROL: 0.0}.items():
        found = summary(outcomes, name, effect)
        assert found["coverage"] >= LOW, (name, found)


@pytest.mark.parametrize("design", ["stein", "capped"])
def test_intervals_of_a_family_hold_together(design, request):
    outcomes = request.getfixturevalue(design)
    together = share([all(covers(o.intervals[name], e) for name, e in EFFECTS.items()) for o in outcomes])
    assert together >= CONFIDENCE - 3 * binomial_error(CONFIDENCE, CAMPAIGNS)


@pytest.mark.parametrize("design", ["stein", "capped"])
def test_where_nothing_is_little_is_found(design, request):
    outcomes = request.getfixturevalue(design)
    for name in ("none", CONTROL):
        assert summary(outcomes, name, 0.0)["excludes zero"] <= 1 - LOW


def test_power(stein, capped):
    """Stein's design asked for a half-width of 1%: 2% excludes zero, and nothing is called equivalent.

    A half-width of 1% leaves 2% two and a half standard errors beyond zero's: 99%. Eight units of a spread of 1.15%
    leave it 4.9 standard errors beyond, of which t asks 2.4: 98%.
    """
    assert summary(stein, "two", 0.02)["excludes zero"] >= 0.97
    assert summary(capped, "two", 0.02)["excludes zero"] >= 0.93
    assert summary(stein, "none", 0.0)["equivalent"] >= 0.9


def test_steins_design_reaches_the_half_width_that_it_was_asked_for(stein, capped):
    widths = [i.high - i.low for outcome in stein for i in outcome.intervals.values()]
    assert {outcome.design for outcome in stein} == {"stein"}
    # Not always: where later units are wilder than the pilot was, the interval of all units is the wider.
    assert np.median(widths) <= 2.2 * math.log1p(STEIN.half_width)
    assert len({outcome.units for outcome in stein}) > 5  # the pilot decides
    assert {(outcome.design, outcome.units) for outcome in capped} == {("fixed", CAPPED.cap)}


def test_effects_come_back_in_full(stein):
    """Not pulled towards the hosts: the mean over campaigns is the effect, within three standard errors."""
    for name, effect in EFFECTS.items():
        means = np.array([outcome.intervals[name].mean for outcome in stein])
        assert abs(means.mean() - math.log1p(effect)) <= 3 * means.std(ddof=1) / math.sqrt(len(means))


@pytest.mark.parametrize(
    ("half_width", "cap", "least"),
    [
        (0.01, 10**6, 0.95),  # Stein's design
        (0.0001, 20, 0.95),  # always capped
        # Where the pilot decides which of the two it is: with Stein's interval alone they would cover 92.6%
        # together; the wider of Stein's and Student's keeps its word.
        (0.0063, 20, 0.95),
        (0.0063, 40, 0.95),
    ],
)
def test_coverage_of_the_designs_on_normal_units(half_width, cap, least):
    campaigns = 600
    design = Design(half_width=half_width, confidence=0.95, cap=cap)
    found = summary(normal_campaigns(design, campaigns), "none", 0.0)
    assert found["coverage"] >= least - 3 * binomial_error(least, campaigns), found


@pytest.mark.parametrize("world", UNIT_WORLDS)
def test_worlds_that_are_neither_normal_nor_alike_are_covered(world):
    """Heavy tails, unequal spreads, one-sided storms, recorded hosts, at a third of alpha, as they are deployed."""
    campaigns, alpha = 250, 0.05 / 3
    found = cover(world, 9, campaigns, alpha)
    assert min(found.covered.values()) >= 1 - alpha - 3 * binomial_error(alpha, campaigns), found


def test_trimming_narrows_where_there_are_storms_and_costs_little_where_there_are_none():
    assert cover("one-sided storms", 12, 100, 0.05 / 3).width < 0.75
    assert cover("normal", 12, 100, 0.05 / 3).width < 1.3


def test_a_moderated_spread_alone_would_cover_too_little():
    """Why the own spread stays beside it: one environment that varies three times as much as the others."""
    generator = np.random.default_rng(4)
    missed = []
    for values in generator.normal(0, 1, (400, 4, 6)) * np.array([3, 1, 1, 1])[:, None]:
        wild, *others = (student(row) for row in values)
        alone = moderated(wild.spreads[0], [one.spreads[0] for one in others])
        guarded = wild.guarded([one.spreads[0] for one in others]).interval(0.05 / 3)
        missed.append((abs(wild.mean) > 3.53 * alone.unit / math.sqrt(6), not guarded.low <= 0 <= guarded.high))
    alone, guarded = (share(flags) for flags in zip(*missed, strict=True))
    assert alone >= 0.03 > guarded


def test_stalls_that_a_robust_centre_hides_never_pass_for_equivalence():
    """+50% in 3% of steps of one environment, nine units; the one without any is found equivalent."""
    world = World(
        effects={"none": 0.0, "stalls": 0.0}, replicates=3, groups=5, steps=4, step_spread=0.01, group_spread=0.01,
        drift=0.003, jump_share=0.0, stall_share=0.0, launch_spread=0.002, stalled={"stalls": (0.03, 0.5)},
    )  # fmt: skip
    generator, design = np.random.default_rng(6), Design(half_width=None, confidence=0.95, cap=9)
    found = [simulate(world, generator, design) for _ in range(30)]
    words = {name: [outcome.verdicts[name] for outcome in found] for name in world.effects}
    assert words["stalls"].count("equivalent") <= 0.05 * 30 + 3 * math.sqrt(30 * 0.05 * 0.95)
    assert words["stalls"].count("equivalent apart from stalls") >= 20
    assert words["none"].count("equivalent") >= 20  # what is asked for can be had
    assert abs(np.mean([outcome.totals["stalls"].mean for outcome in found]) - math.log(1.015)) < 0.003


@pytest.mark.parametrize("world", RUN_WORLDS)
def test_seconds_planted_at_the_start_are_found_in_full_and_so_is_what_jobs_cost(world):
    campaigns, alpha = 120, 0.05 / 3
    found = planted_seconds(world, 9, campaigns, alpha)
    assert min(found.covered.values()) >= 1 - alpha / 2 - 3 * binomial_error(alpha / 2, campaigns), found
    assert min(found.boxes.values()) >= 1 - alpha - 3 * binomial_error(alpha, campaigns), found
    assert found.found["first"] <= alpha / 2 + 3 * binomial_error(alpha / 2, campaigns), found
    if world == "launches vary by 1%":  # spread of a difference 0.037 s, so that 0.25 s is 20 standard errors
        assert found.found["third"] == 1.0 and found.half_width_s < 0.1


@pytest.mark.parametrize("effects", [[0.0] * 12, [0.0, 0.03] * 6, [0.02] * 12])
def test_a_study_holds_false_claims_of_the_primary_family_down(effects):
    studies = 60
    limit = 0.05 + 3 * binomial_error(0.05, studies)
    false, inside = ladder(effects, studies)
    assert false <= limit and inside <= limit


@pytest.fixture(scope="module")
def recorded():
    """Host-host units of a real machine; the test fails, and is not skipped, where they are missing."""
    assert RECORDED.exists(), f"{RECORDED} is missing: it is committed with the project"
    return control_logs(read_recorded(RECORDED))


def test_there_are_enough_recorded_units(recorded):
    assert len(recorded) >= 200
    assert np.isfinite(recorded).all()


def test_recorded_hosts_do_not_differ(recorded):
    """The mean of all of them, with its own interval at 99%: neither host is the faster by being the first."""
    error = recorded.std(ddof=1) / math.sqrt(len(recorded))
    assert abs(recorded.mean()) <= 2.6 * error


PSEUDO = 200


@pytest.mark.parametrize("kind", ["stein", "pilot", "decided"])
def test_recorded_units_drawn_again_find_nothing_more_often_than_they_say(kind, recorded):
    """True difference: zero. Intervals of 95%, of Stein's design and of fixed numbers of units."""
    half_width, margin = RECORDED_HALF_WIDTH, 0.02
    design = {
        "stein": Design(half_width=half_width, confidence=0.95, margin=margin),
        "pilot": Design(half_width=None, confidence=0.95, margin=margin, cap=6),
        "decided": Design(
            half_width=None, confidence=0.95, margin=margin, cap=decided_size(recorded, half_width, 0.95)
        ),
    }[kind]
    found = summary(resample(recorded, design, PSEUDO, np.random.default_rng(1), swap=True), CONTROL, 0.0)
    print(f"{kind}: {found}")
    assert found["coverage"] >= 0.95 - 3 * binomial_error(0.95, PSEUDO), found
    assert found["excludes zero"] <= 0.05 + 3 * binomial_error(0.05, PSEUDO), found
    # Beyond the margin on top: the false claim that would hurt.
    assert found["different"] <= 0.025 + 3 * binomial_error(0.025, PSEUDO), found
    if kind == "stein":
        assert found["equivalent"] >= 0.9, found


def test_recorded_units_as_they_are_behave_like_their_mean(recorded):
    """Not exchanged: the pool's own mean is the truth of such campaigns, and is about zero."""
    design = Design(half_width=None, confidence=0.95, cap=12)
    outcomes = resample(recorded, design, PSEUDO, np.random.default_rng(2), swap=False)
    found = summary(outcomes, CONTROL, math.expm1(float(recorded.mean())))
    assert found["coverage"] >= 0.95 - 3 * binomial_error(0.95, PSEUDO)


def test_the_order_in_which_units_were_recorded_does_not_matter(recorded):
    """Runs of consecutive units cover zero as often as drawn ones: units are independent enough."""
    held = consecutive(recorded, 6, 0.05)
    assert share(held) >= 0.95 - 3 * binomial_error(0.95, len(held))
    assert abs(autocorrelation(recorded)) <= 3 / math.sqrt(len(recorded))


def test_the_simulated_machine_is_no_kinder_than_real_ones():
    """Spread of a unit's log-ratio host to host: 1% or more, as was seen on a shared virtual machine."""
    machine = Machine(WORLD, np.random.default_rng(5))
    units = [values_of(machine.unit(), machine.world.names) for _ in range(150)]
    spread = np.std(log_ratios_of(units, WORLD.names)[CONTROL], ddof=1)
    assert 0.01 <= spread <= 0.03
