"""The search of `tare optimise` on a machine whose truth is known: what it finds, says, keeps, and when it ends."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from job_plans import ranked

from tare.core.errors import IntegrityError, UnavailableError
from tare.model.candidates import Times
from tare.model.roles import CONTROL
from tare.predict import search as searching
from tare.predict.choose import Candidate, Choice, Excluded
from tare.predict.requests import Request
from tare.predict.search import key_of, search

LAYOUTS, ALLOCATORS = ("contiguous", "channels-last"), ("default", "huge")
REQUEST = Request(
    workload="mnist_cnn", batches=(64,), steps=100, environments=("host", "docker"), threads=(1, 2),
    settings={"layout": ("channels-last",), "allocator": ("huge",)},
)  # fmt: skip
PREDICTED = {("host", 2): 10.0, ("docker", 2): 10.5, ("host", 1): 18.0, ("docker", 1): 18.6}
FACTORS = {"docker": 1.05, "1 threads": 1.8, "layout=channels-last": 0.9, "allocator=huge": 0.95}
BARRED = "docker, torch-2.13, 1 threads, batch 64, allocator=huge"
DEFAULT, OPTIMUM = (
    "host, torch-2.13, 2 threads, batch 64",
    "host, torch-2.13, 2 threads, batch 64, allocator=huge, layout=channels-last",
)
ROUND_S = 20.0
WHOLE_S = 100.0  # of the default's job


class Target:
    machine, stack, threads = "m", "torch-2.13", (1, 2)


def truth(name):
    return math.prod(factor for part, factor in FACTORS.items() if part in name)


def choice():
    """Plain candidates are predicted; those with settings are not, and one of them can't be had."""
    rows = [ranked(seconds, env, threads) for (env, threads), seconds in PREDICTED.items()]
    excluded = []
    for env, threads, layout, allocator in itertools.product(("host", "docker"), (1, 2), LAYOUTS, ALLOCATORS):
        own = (("allocator", allocator), ("layout", layout))
        settings = tuple(pair for pair in own if pair[1] not in ("default", "contiguous"))
        one = Candidate(env=env, stack="torch-2.13", threads=threads, batch=64, settings=settings)
        if settings:
            excluded.append(Excluded(candidate=one, reason="never timed", measurable=one.name != BARRED))
    return Choice(
        ranked=tuple(rows), excluded=tuple(excluded), model="linear", errors={"linear": 0.1}, lacking={},
        workloads=9, rows=90, workloads_wanted=0,
    )  # fmt: skip


class Machine:
    """Measures by its truth with noise; a round takes ROUND_S of its clock."""

    def __init__(self, truth=truth, noise=0.005, seed=7, failing=(), control=1.0, losses=None, whole_s=WHOLE_S):
        self.truth, self.noise, self.failing, self.control = truth, noise, failing, control
        self.generator = np.random.default_rng(seed)
        self.now, self.asked, self.on_call = 0.0, [], lambda: None
        self.losses, self.whole_s, self.steps = losses or (lambda name: None), whole_s, []

    def clock(self):
        return self.now

    @property
    def trials(self):
        """Candidates that were measured next to the default, without fresh rounds."""
        return [names[1] for names, _, draws in self.asked if draws.startswith("search/")]

    @property
    def fresh(self):
        return [(names[1], minutes) for names, minutes, draws in self.asked if draws.startswith("fresh/")]

    def times(self, name, ratio):
        step_s = self.whole_s * ratio * math.exp(self.generator.normal(0, self.noise)) / 100
        return Times(start_s=0.0, imports_s=0.0, step_s=step_s, rest_s=step_s, loss=self.losses(name))

    def measure(self, wanted, minutes, draws):
        default, candidate, *_ = wanted
        assert default == DEFAULT and all(one.steps >= 8 for one in wanted.values())
        self.steps.append({name: one.steps for name, one in wanted.items()})
        self.on_call()
        self.asked.append((tuple(wanted), minutes, draws))
        rounds = max(3, int(minutes * 60 / ROUND_S))
        self.now += rounds * ROUND_S
        if any(part in candidate for part in self.failing):
            return [], {candidate: "no memory"}
        truths = {default: 1.0, CONTROL: self.control} | {name: self.truth(name) for name in list(wanted)[1:]}
        return [{name: self.times(name, ratio) for name, ratio in truths.items()} for _ in range(rounds)], {}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "searches" / "key.db"


def run(machine, path, minutes, given=None, report=lambda line: None, request=REQUEST):
    return search(
        request, given or choice(), Target, measure=machine.measure, minutes=minutes, path=path, report=report,
        clock=machine.clock,
    )  # fmt: skip


def test_the_optimum_is_found_and_its_gain_is_that_of_fresh_rounds(path):
    machine, said = Machine(), []
    found = run(machine, path, 60, report=said.append)
    assert found.best == OPTIMUM and found.outcome == "better" and (found.space, found.left) == (14, 0)
    # the predictions come first, then everything once, but what can't be had
    plain = [row.candidate.name for row in choice().ranked]
    assert machine.trials[:3] == plain[1:] and len(set(machine.trials)) == len(machine.trials) == 14
    assert BARRED not in machine.trials and len(said) == 15 and OPTIMUM in said[-1]
    default, control, best = found.fresh
    assert (default.name, control.name, best.name) == (DEFAULT, CONTROL, OPTIMUM)
    assert best.low < 0.855 < best.high < 1 and best.rounds > 50 and f"ratio {best.ratio:.3f}" in found.says
    assert best.measured_s == pytest.approx(85.5, rel=0.01), "the whole job, with what predictions leave out"
    assert [one.ratio for one in found.tried] == sorted(one.ratio for one in found.tried)
    assert {one.name for one in found.tried if one.predicted_s} == set(plain[1:])


def test_noise_that_looks_like_a_gain_is_nothing_better(path):
    """The smallest of many trials is below 1; the fresh rounds hold the truth."""
    machine = Machine(truth=lambda name: 1.0, noise=0.05)
    found = run(machine, path, 60)
    best = found.fresh[-1]
    assert found.tried[0].ratio < 0.97 and best.low < 1 < best.high
    assert found.outcome == "nothing better"
    assert found.says.startswith("the search found nothing better than the framework's default; its best: host, ")
    worse = run(Machine(truth=lambda name: 1.2), path.with_name("worse.db"), 60)
    assert worse.outcome == "nothing better" and worse.fresh[-1].low > 1


def test_an_interrupted_search_goes_on_and_keeps_whole_trials_alone(path):
    first = Machine()

    def interrupted():
        if len(first.asked) == 4:
            raise KeyboardInterrupt

    first.on_call = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(first, path, 60)
    second = Machine(seed=8)
    found = run(second, path, 60)
    assert len(first.trials) == 4 and len(second.trials) == 10
    assert not set(first.trials) & set(second.trials) and found.best == OPTIMUM and len(found.tried) == 14
    third = run(again := Machine(seed=9), path, 60)
    assert again.trials == [] and again.fresh[0][1] == pytest.approx(60) and third.best == OPTIMUM


def test_a_trial_that_was_written_in_part_is_measured_again(path, monkeypatch):
    machine, tell = Machine(), searching._Search._keep

    def dies(self, trial, done):
        if len(machine.asked) == 2:
            trial.set_user_attr(searching.RECORD, done.to_json())
            raise KeyboardInterrupt
        tell(self, trial, done)

    monkeypatch.setattr(searching._Search, "_keep", dies)
    with pytest.raises(KeyboardInterrupt):
        run(machine, path, 60)
    monkeypatch.undo()
    second, third = Machine(), Machine()

    def at_once():
        raise KeyboardInterrupt

    second.on_call = at_once
    with pytest.raises(KeyboardInterrupt):
        run(second, path, 60)
    run(third, path, 60)
    assert machine.trials[1] in third.trials and machine.trials[0] not in third.trials


def test_no_trial_begins_that_would_not_end_in_time(path):
    machine = Machine()
    found = run(machine, path, 10)  # a trial takes a minute, and 3 of 10 are for fresh rounds
    assert len(machine.trials) == 7 and found.left == 7 and machine.now <= 600
    (best, minutes) = machine.fresh[0]
    assert best == found.best and minutes == pytest.approx(3) and found.outcome != "not concluded"
    second = Machine(seed=8)
    assert run(second, path, 3).left == 5 and second.now <= 180, "two trials, and as long as one for fresh rounds"


def test_time_that_is_over_before_fresh_rounds_is_said_and_the_trial_is_kept(path):
    machine = Machine()
    found = run(machine, path, 0.5)
    assert len(machine.trials) == 1 and machine.fresh == [] and found.fresh == ()
    assert found.outcome == "not concluded" and "which take about 1 min 00 s" in found.says
    assert "search again with more --minutes" in found.says
    second = Machine()
    run(second, path, 5)
    assert not set(machine.trials) & set(second.trials)


def test_what_fails_is_named_and_the_search_goes_on(path):
    machine = Machine(failing=("channels-last",))
    found = run(machine, path, 60)
    failed = {one.name: one.reason for one in found.tried if one.ratio is None}
    assert len(failed) == 8 and set(failed.values()) == {"no memory"} and found.left == 0
    assert found.best == f"{DEFAULT}, allocator=huge" and found.outcome == "better"
    second = Machine()
    assert run(second, path, 60).best == OPTIMUM and set(second.trials) == set(failed), "tried once in each call"


def test_where_everything_fails_nothing_is_concluded(path):
    found = run(Machine(failing=("host", "docker")), path, 60)
    assert found.best is None and found.outcome == "not concluded" and found.fresh == ()
    assert found.says.startswith("no candidate could be measured: ") and found.says.endswith(": no memory")


def test_a_measurement_that_did_not_come_about_is_left_to_the_next_call_and_two_in_a_row_end_it(path):
    machine, calls = Machine(), []

    def once():
        calls.append(1)
        if len(calls) == 2:
            raise UnavailableError("3 rounds in a row do not count: odd")

    machine.on_call, said = once, []
    found = run(machine, path, 60, report=said.append)
    (lost,) = (one for one in found.tried if one.ratio is None)
    assert lost.reason.startswith("3 rounds") and any(f"{lost.name} was not measured: 3" in line for line in said)
    assert len(found.tried) == 14 and lost.name not in machine.trials
    again = Machine()
    run(again, path, 60)
    assert again.trials == [lost.name]
    never = Machine()

    def always():
        raise UnavailableError("launches can't be sliced here")

    never.on_call = always
    with pytest.raises(UnavailableError, match="can't be sliced here"):
        run(never, path.with_name("never.db"), 60)


def test_a_default_that_differs_from_itself_concludes_nothing(path):
    found = run(Machine(control=1.1), path, 60)
    assert found.outcome == "not concluded" and "differs from its own A/A control" in found.says


def test_each_further_look_has_a_smaller_share_of_alpha(path):
    first, second = run(Machine(), path, 60), run(Machine(), path, 60)
    assert (first.looks, second.looks) == (1, 2) and 0.95 < first.level < second.level
    assert first.level == pytest.approx(1 - 0.05 * 6 / math.pi**2)


def test_random_draws_of_fresh_rounds_are_those_of_no_trial(path):
    machine = Machine()
    run(machine, path, 60)
    draws = [one for _, _, one in machine.asked]
    assert len(set(draws)) == len(draws)


def test_a_request_that_leaves_no_choice_and_a_damaged_storage_are_one_line(path):
    alone = Choice(
        ranked=(ranked(10.0),), excluded=(), model="linear", errors={}, lacking={}, workloads=1, rows=1,
        workloads_wanted=0,
    )  # fmt: skip
    with pytest.raises(UnavailableError, match="there is nothing to search"):
        run(Machine(), path, 60, alone)
    path.parent.mkdir(parents=True)
    path.write_text("no database" * 100)
    with pytest.raises(IntegrityError, match="holds no trials: delete it, and search again") as caught:
        run(Machine(), path, 60)
    assert "\n" not in str(caught.value)


def first_in(env):
    """A choice whose first candidate is that of an environment with two threads."""
    found = choice()
    rows = sorted(found.ranked, key=lambda row: row.candidate.env != env)
    return replace(found, ranked=tuple(rows))


def test_fresh_rounds_have_the_models_first_choice_beside_the_best(path):
    machine, docker = Machine(), "docker, torch-2.13, 2 threads, batch 64"
    found = run(machine, path, 60, first_in("docker"))
    assert machine.asked[-1][0] == (DEFAULT, OPTIMUM, docker) and machine.trials[0] == docker
    over = found.over_first
    assert (found.first, over.name) == (docker, OPTIMUM) and over.low < 0.855 / 1.05 < over.high < 1
    ends = f"({over.low:.3f} to {over.high:.3f})"
    assert found.says.endswith(f"; ratio {over.ratio:.3f} {ends} to the model's first choice, {docker}")
    (default, control, best), alone = found.fresh, run(Machine(), path.with_name("alone.db"), 60)
    assert (default.name, control.name, best.name) == (DEFAULT, CONTROL, OPTIMUM)
    assert alone.over_first is None and alone.says.endswith("; the default is the model's first choice")
    fails = Machine(failing=("docker",))
    found = run(fails, path.with_name("fails.db"), 60, first_in("docker"))
    assert fails.asked[-1][0] == (DEFAULT, OPTIMUM) and found.over_first is None
    assert found.says.endswith(f"; the model's first choice, {docker}, failed")
    best = Machine(truth=lambda name: 0.9 if name == docker else 1.1)
    found = run(best, path.with_name("best.db"), 60, first_in("docker"))
    assert found.says.endswith("; it is the model's first choice") and len(best.asked[-1][0]) == 2


def test_without_a_prediction_all_that_may_be_measured_is_searched(path):
    plain = [Excluded(candidate=row.candidate, reason="no grid", measurable=True) for row in choice().ranked]
    none = replace(choice(), ranked=(), excluded=(*plain, *choice().excluded), model=None, errors={})
    machine = Machine(whole_s=1.0)
    found = run(machine, path, 60, none)
    assert (found.best, found.outcome, found.space, found.first) == (OPTIMUM, "better", 14, None)
    assert "first choice" not in found.says
    assert set(machine.steps[0].values()) == {8}, "nothing is known of a step yet"
    assert all(190 < count < 210 for count in machine.steps[1].values()), "two seconds of them"


def test_a_candidate_that_breaks_the_limit_of_the_loss_has_failed(path):
    machine = Machine(losses=lambda name: 2.0 * (1.01 if "layout" in name else 1.001))
    limited = REQUEST.replace(loss_within=0.002)
    found = run(machine, path, 60, request=limited)
    refused = [one for one in found.tried if one.ratio is None]
    assert len(refused) == 8 and all("layout" in one.name for one in refused)
    assert refused[0].reason == "its loss after 8 steps is 0.90% from the default's, and may be 0.20% from it"
    assert found.best == f"{DEFAULT}, allocator=huge" and found.outcome == "better"
    unknown = run(Machine(), path.with_name("unknown.db"), 60, request=limited.replace(loss_steps=500))
    assert unknown.outcome == "not concluded"
    assert "its loss after 500 steps is not known: name a smaller loss_steps" in unknown.says


def test_a_search_is_that_of_its_job_its_study_and_its_target():
    key = key_of(REQUEST, Target, {"seed": 1})
    assert key == key_of(REQUEST.replace(name="digits", queue="short"), Target, {"seed": 1})
    assert key != key_of(REQUEST.replace(steps=200), Target, {"seed": 1})
    assert key != key_of(REQUEST, Target, {"seed": 2})

    class Other(Target):
        machine = "n"

    assert key != key_of(REQUEST, Other, {"seed": 1})
