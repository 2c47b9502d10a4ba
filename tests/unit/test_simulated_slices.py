"""Simulated sliced rounds: the machine, what pacing does, and what docs/proof.md says of it."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from slicing import PACINGS, Design, Noise, autocorrelation, jobs, play, sequential

from tare.core.files import project_root, read_json
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import moderated, student, trimmed

sys.path.append(str(project_root() / "benchmarks"))

from simulate_slices import ALPHA, EFFECTS, FOUND, METHODS, NAMES, ROUNDS, contrast, intervals
from slices_page import page

DEPLOYED = "Student"


@pytest.fixture(scope="module")
def slowdown():
    return Noise().slowdown(np.random.default_rng(1), 360, 60.0)


@pytest.fixture(scope="module")
def found():
    assert FOUND.exists(), f"{FOUND} is missing: run benchmarks/simulate_slices.py"
    return read_json(FOUND)


def ratios(played):
    logs = np.log(played.own_s)
    return logs - logs[:, :2].mean(axis=1, keepdims=True)


def test_the_machine_is_as_was_recorded(slowdown):
    """One after the other 16 to 39%; 0.95 from one step to the next, 0.76 over 1.6 s."""
    assert 0.16 <= sequential(slowdown).std() <= 0.39
    assert 0.92 <= autocorrelation(slowdown, 0.03, 1) <= 0.97
    assert 0.65 <= autocorrelation(slowdown, 0.03, 53) <= 0.8


def paced(slowdown, where, pacing):
    design = Design(jobs=jobs(where, EFFECTS), pacing=pacing, launch_spread=0.0)
    return play(design, slowdown, np.random.default_rng(2), with_alone=True)


def test_a_launch_that_is_alone_at_the_end_meets_noise_that_no_host_met(slowdown):
    spreads = {one: ratios(paced(slowdown, "both", one)).std(axis=0) for one in PACINGS}
    equal, by_length = spreads["equal"], spreads["by length"]
    assert 0.01 <= equal[3] <= 0.02 and 0.05 <= equal[5] <= 0.09  # 3% and 40%
    assert (by_length[2:] <= 0.013).all() and (spreads["by phase"][2:] <= 0.013).all()
    assert paced(slowdown, "both", "equal").tail.mean(axis=0)[5] > 0.2
    assert paced(slowdown, "both", "by length").tail.mean(axis=0)[5] < 0.02


def test_a_quiet_machine_gives_every_effect_exactly():
    quiet = np.zeros((4, 6000))
    for pacing in PACINGS:
        played = paced(quiet, "both", pacing)
        assert ratios(played) == pytest.approx(np.log1p([[0, 0, *EFFECTS.values()]] * 4), abs=1e-9)
        assert played.alone == pytest.approx(np.log(played.own_s), abs=1e-6)
        assert played.truth == pytest.approx(np.log(played.own_s[0]), abs=1e-9)


def test_steps_and_switches_add_up(slowdown):
    design = Design(jobs=jobs("steps", EFFECTS, 0.001), launch_spread=0.0)
    played = play(design, slowdown[:24], np.random.default_rng(3), with_steps=True)
    quiet = play(design, np.zeros((24, 6000)), np.random.default_rng(3), with_steps=True)
    assert (played.step_s.sum(axis=1) < played.own_s).all()
    # A quiet job takes its work and one millisecond a switch, and one more when it first begins.
    work = np.array([4.0, 4.0, *(2 + 2 * (1 + more) for more in EFFECTS.values())])
    assert quiet.own_s == pytest.approx(work + 0.001 * (quiet.switches + 1), abs=1e-6)
    assert quiet.assigned.mean() * 0.05 == pytest.approx(quiet.step_switches.mean(), rel=0.15)


def test_intervals_of_many_campaigns_are_those_that_are_deployed():
    generator = np.random.default_rng(4)
    logs = generator.standard_t(3, (5, 12, len(NAMES))) * 0.01
    scale = np.sqrt(4 / 3)
    for n in (6, 12):
        got = intervals(logs, n)
        for c in range(5):
            pairs = {name: [one[c, :n] for one in contrast(logs, name)] for name in (CONTROL, *EFFECTS)}
            for word, fit in (("Student", lambda a, b: student((a + b) / 2)), ("trimmed", trimmed)):
                own = {name: fit(*pair) for name, pair in pairs.items()}
                for name, one in own.items():
                    factor = scale if name == CONTROL else 1.0
                    others = [
                        other.spreads[0].scaled(factor / (scale if key == CONTROL else 1.0))
                        for key, other in own.items()
                        if key != name
                    ]
                    mean, half = (values[c] for values in got[word][name])
                    assert (mean, half) == pytest.approx((one.mean, one.half_width(ALPHA)))
                    wider = got[f"{word} or moderated"][name][1][c]
                    assert wider == pytest.approx(one.guarded(others).half_width(ALPHA), rel=1e-3)
                    if word == "Student":
                        drawn = replace(one, spreads=(moderated(one.spreads[0], others),))
                        assert got["moderated"][name][1][c] == pytest.approx(drawn.half_width(ALPHA), rel=1e-3)


def held(entries, method, n):
    return [share for one in entries for share in one["intervals"][str(n)][method]["held"].values()]


@pytest.mark.parametrize("n", ROUNDS)
def test_what_is_deployed_covers_as_often_as_it_says(found, n):
    """Of all comparisons together, two Monte Carlo errors of a single share; of each of hundreds, four.

    Steps whose launches differ by 40% in one phase are covered so with slices by length only.
    """
    assert found["campaigns"] >= 2000 and found["alpha"] == ALPHA
    error = np.sqrt(ALPHA * (1 - ALPHA) / found["campaigns"])
    by_length = [one for one in found["stepped"] if one["pacing"] == "by length"]
    for entries in (found["covered"], by_length):
        shares = held(entries, DEPLOYED, n)
        assert len(shares) >= 10 and np.mean(shares) >= 1 - ALPHA - 2 * error
        assert min(shares) >= 1 - ALPHA - 4 * error
    assert np.mean(held(found["stepped"], DEPLOYED, n)) >= 1 - ALPHA - 2 * error


def test_the_page_says_what_was_found(found):
    lines = list(page(found))
    assert len(lines) <= 60
    assert "\n".join(lines) in (project_root() / "docs/proof.md").read_text(encoding="utf-8")
    assert all(any(line.startswith(f"| {method} ") for line in lines) for method in METHODS)


def test_what_the_page_concludes_is_what_was_found(found):
    pacing = {
        (one["where"], *one["sensitivity"], one["pacing"]): one["launches"]["40%"]["sd"] for one in found["paced"]
    }
    for (*kind, pace), spread in pacing.items():
        if pace == "by length":
            assert spread <= 1.05 * pacing[(*kind, "by phase")] and spread < 0.7 * pacing[(*kind, "equal")]
    error = np.sqrt(ALPHA * (1 - ALPHA) / found["campaigns"])
    for n in ROUNDS:
        widths = {
            method: np.mean([list(e["intervals"][str(n)][method]["half_width"].values()) for e in found["covered"]])
            for method in METHODS
        }
        assert widths["trimmed"] > 1.1 * widths["Student"] or n < 8
        assert min(held(found["covered"], "moderated", n)) < 1 - ALPHA - 4 * error or n > 8
        assert np.mean(held(found["covered"], "Student or moderated", n)) > 1 - ALPHA + 0.001
    for one in found["whole"]:
        assert one["held"] >= 1 - ALPHA - 4 * error and one["start_held"] >= 1 - ALPHA - 4 * error
    alike, unlike = found["switched"]
    for measured, more in ((alike, 0.0), (unlike, 0.002)):
        for launch in measured["launches"].values():
            assert abs(launch["difference_s"] - more) <= 0.1 * unlike["env_s"]
            assert launch["error_s"] == pytest.approx(launch["sd_s"], rel=0.25)
            assert launch["held_after"] >= 0.96
    assert min(one["held_alike"] for one in alike["launches"].values()) >= 0.96
    assert max(one["half_width_alike"] for one in alike["launches"].values()) < 0.016
    biases = {(one["where"], one["pacing"]): abs(one["bias"]["40%"]) for one in found["stepped"]}
    assert biases["steps", "by length"] < 0.4 * biases["steps", "by phase"]


def test_what_was_found_comes_from_this_simulator(found, slowdown):
    """The kept spreads, with a tenth of the rounds."""
    for one in found["paced"]:
        if one["where"] != "imports" or one["sensitivity"] != [1.0, 1.0]:
            continue
        spread = ratios(paced(slowdown, "imports", one["pacing"])).std(axis=0)
        for name, more in one["launches"].items():
            if name != CONTROL:
                assert spread[NAMES.index(name)] == pytest.approx(more["sd"], rel=0.25)
    assert NAMES[:2] == [HOST, CONTROL]
