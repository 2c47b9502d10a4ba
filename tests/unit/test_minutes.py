"""A study that is run for a number of minutes: what its headline campaigns get and why, and that it runs once."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from pathlib import Path
from types import SimpleNamespace

import ledger_builders as builders
import pytest

from tare.analysis.plans import expected, minutes
from tare.cli import main
from tare.core.errors import IntegrityError, UserError
from tare.core.files import read_json, write_json
from tare.experiments import campaign
from tare.model.journals.ledger import bring_up_to_date, tries_of
from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import share_of
from tare.model.records.campaigns import Measured, Sampling
from tare.model.roles import read_roles
from tare.model.studies import campaigns, checks, loading
from tare.model.studies import minutes as declared
from tare.model.studies import study as study_module
from tare.stats import fits
from tare.stats.costs import Work
from tare.stats.intervals import t_quantile
from tare.stats.planning import shared_out

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.name for path in (ROOT / "config").glob("*.yaml") if "\nstudy:" in f"\n{path.read_text()}")
ROUND_S = 10.0
HOSTS = ("host", "host.control")


def test_without_wishes_all_get_the_same_and_else_in_proportion():
    assert shared_out(90.0, [1.0, 1.0, 1.0], [None, None, None]) == [30.0, 30.0, 30.0]
    assert shared_out(90.0, [1.0, 1.0], [10.0, 20.0]) == [30.0, 60.0]
    assert shared_out(90.0, [1.0, 1.0, 1.0], [10.0, 20.0, None]) == pytest.approx([20.0, 40.0, 30.0])


def test_none_gets_less_than_it_takes_in_any_case():
    assert shared_out(100.0, [40.0, 10.0, 10.0], [1.0, 1.0, 2.0]) == pytest.approx([40.0, 20.0, 40.0])
    assert shared_out(100.0, [40.0, 25.0, 10.0], [1.0, 1.0, 2.0]) == pytest.approx([40.0, 25.0, 35.0])
    assert shared_out(-50.0, [40.0, 10.0], [1.0, 9.0]) == [40.0, 10.0]
    for least, wanted in (([40.0, 10.0], [0.0, 9.0]), ([40.0, 0.0], [1.0, 9.0]), ([-40.0, 10.0], [1.0, None])):
        with pytest.raises(ValueError, match="positive"):
            shared_out(100.0, least, wanted)
    with pytest.raises(ValueError, match="positive"):
        shared_out(100.0, [40.0, 10.0], [math.inf, 9.0])


def test_what_covers_every_wish_gives_each_at_least_that():
    least, wanted = [30.0, 5.0, 5.0], [10.0, 50.0, 7.0]
    needed = sum(map(max, least, wanted))
    assert all(got >= wish - 1e-9 for got, wish in zip(shared_out(needed, least, wanted), wanted, strict=True))


@pytest.mark.parametrize("value", [4.99, 10_001, "abc", "", True, None, [60], math.nan, math.inf, "1e9", -60])
def test_what_is_no_number_of_minutes_is_refused(value):
    with pytest.raises(UserError, match="minutes") as refused:
        declared.checked(value)
    assert "\n" not in str(refused.value)


def test_minutes_are_taken_as_they_are_said():
    assert [declared.checked(value) for value in (5, "60", 60.0, 10_000, 7.5)] == [5, 60, 60, 10_000, 7.5]
    assert isinstance(declared.checked("60.0"), int), "one file for one number"


def test_a_study_file_can_not_say_it():
    with pytest.raises(UserError, match="minutes"):
        loading.load_checked(json.dumps({"minutes": 60}))


def the_study(**changes):
    return checks.check(loading.merge(loading.load(ROOT / "config/config.yaml"), changes))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder in which results are looked for."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def share(study):
    return expected.headlines_s(study) / expected.measuring_s(study)


@pytest.mark.parametrize("name", ["config.yaml", "sequences.yaml", "columbia2025.yaml"])
def test_headlines_get_two_thirds_of_the_measuring_time(name):
    """Of the default study, and of those others without many arms and scenarios."""
    assert share(loading.load_checked(ROOT / "config" / name)) >= minutes.HEADLINE_SHARE


@pytest.mark.parametrize("name", STUDIES)
def test_with_enough_minutes_headlines_get_two_thirds_in_every_study(here, name):
    study = loading.load_checked(ROOT / "config" / name)
    other_s = expected.measuring_s(study) - expected.headlines_s(study)
    fixed_s = expected.whole_s(study) - expected.headlines_s(study)
    enough = math.ceil((fixed_s + 2 * other_s) / 60)
    found = minutes.planned(study, enough, Path("results/campaigns"))
    own = declared.with_budgets(study, found)
    assert share(own) >= minutes.HEADLINE_SHARE - 1e-6
    least_s = sum(expected.least_s(study, one) for one in campaigns.headlines(study))
    is_short = found.measuring_s < least_s  # pilots alone take longer
    assert bool(found.notes) == is_short
    assert expected.whole_s(own) == pytest.approx(max(60 * enough, fixed_s + least_s), abs=1)


def test_too_few_minutes_are_told_with_those_that_would_do(here):
    study = the_study()
    short, share_note = minutes.planned(study, 5, Path("results/campaigns")).notes
    enough = [int(re.findall(r"(\d+) minutes", note)[0]) for note in (short, share_note)]
    assert 5 < enough[0] < enough[1]
    for number, left in zip(enough, (1, 0), strict=True):
        assert len(minutes.planned(study, number, Path("results/campaigns")).notes) == left


@pytest.mark.parametrize("wanted", [12, 15, 30, 60, 480])
def test_the_default_study_keeps_two_thirds_and_takes_the_minutes(here, wanted):
    study = the_study()
    own = declared.with_budgets(study, minutes.planned(study, wanted, Path("results/campaigns")))
    assert share(own) >= minutes.HEADLINE_SHARE
    assert expected.whole_s(own) == pytest.approx(60 * wanted, abs=1)


def test_images_that_are_missing_leave_less_to_measure(here):
    study = the_study()
    empty_s = expected.images_s(study, here)
    for name in ("tree", "oci", *study.environments):
        write_json(here / study.stack / f"{name}.json", {})
    assert expected.images_s(study, here) == 0 < empty_s
    with_all, without = (minutes.planned(study, 60, here, seconds) for seconds in (0.0, empty_s))
    assert with_all.measuring_s - without.measuring_s == pytest.approx(empty_s)


def parts(study):
    """What every job is given of the study, by what it does."""
    found = {}
    for one in campaigns.campaigns(study):
        arm = study_module.arms.parse(one.arm) if one.arm else None
        found[one] = study_module.part_of(study, one.kind, one.workload, arm, one.scenario)
    for kind in set(study_module.PARTS) - {"rounds", "causes", "sweep"}:
        found[kind] = study_module.part_of(study, kind)
    return found


@pytest.mark.parametrize("name", ["config.yaml", "full.yaml", "nthu2018.yaml", "smoke.yaml"])
def test_only_the_budgets_of_headline_campaigns_change(here, name):
    study = loading.load_checked(ROOT / "config" / name)
    own = declared.with_budgets(study, minutes.planned(study, 240, Path("results/campaigns")))
    before, after = parts(study), parts(own)
    headlines = campaigns.headlines(study)
    assert {one for one in before if before[one] != after[one]} == set(headlines)
    for one in headlines:
        was, now = (json.loads(each[one])["rounds"] for each in (before, after))
        chosen = own.rounds.chosen[one.workload]
        replaced = {"budget_s": chosen.budget_s, "chosen": {one.workload: chosen.to_json()}}
        assert now == {key: value for key, value in was.items() if key != "units"} | replaced
        part = loading.load_part(study_module.RoundsPart, after[one])
        again = study_module.reduced(part.to_json(), "rounds", one.workload)
        assert again == {key: value for key, value in json.loads(after[one]).items() if key != "part"}
        sampling = campaigns.sampling_of(own.rounds.of_headline(one.workload), 0.95, None)
        assert (sampling.budget_s, sampling.units) == (chosen.budget_s, None)


# --- what earlier campaigns show


@pytest.fixture
def simple(monkeypatch):
    """Units whose whole runs and training steps stand in one field each, and that take ten seconds."""

    def values(name):
        def of(unit, level=None):
            return {key: getattr(launch, name) for key, launch in unit.launches.items() if launch.ok}

        return of

    clock = SimpleNamespace(**vars(time) | {"monotonic": itertools.count(0.0, ROUND_S).__next__})
    monkeypatch.setattr(campaign, "time", clock)
    monkeypatch.setattr(fits, "run_values", values("client_user_s"))
    monkeypatch.setattr(minutes, "run_values", values("client_user_s"))
    monkeypatch.setattr(minutes, "step_values", values("client_system_s"))


def measure(folder, one, *, run=(0.0, 0.01), step=(0.0, 0.002), units=6, **changes):
    """A campaign in which docker differs by mean and spread of the log-ratio, of whole runs and of steps."""
    names = (*HOSTS, "docker")
    signs = [1.0 if number % 2 else -1.0 for number in range(units + 1)]

    def run_unit(plan, number, done):
        sign = signs[number] * math.sqrt((units - 1) / units)
        took = {name: (1.0, 1.0) for name in HOSTS}
        took["docker"] = tuple(math.exp(mean + spread * sign) for mean, spread in (run, step))
        launches = {
            name: {"status": "ok", "reason": None, "client_user_s": run_s, "client_system_s": step_s}
            for name, (run_s, step_s) in took.items()
        }
        return {"order": list(names), "launches": launches}

    plan = builders.plan_of(
        study=folder.parent.name, workload=one.workload, launches=read_roles(names), measured=Measured(),
        **{"sampling": Sampling(units=units, confidence=0.95), **changes},
    )  # fmt: skip
    path = folder / one.workload / one.name
    return builders.run_campaign(path, builders.Design(plan=plan, run_unit=run_unit, what="test"))


@pytest.fixture
def small(here):
    """A study of two workloads on the host and in Docker, and the folder of its campaigns."""
    study = the_study(study="s", environments=["host", "docker"])
    return SimpleNamespace(study=study, root=here / "campaigns", folder=here / "campaigns/s/box")


def newest(small, number=0):
    one = campaigns.headlines(small.study)[number]
    return minutes.newest_here(small.folder / one.workload / one.name)


def test_spreads_and_open_comparisons_of_an_earlier_campaign_are_seen(small, simple):
    cnn, _ = campaigns.headlines(small.study)
    measure(small.folder, cnn, run=(0.0, 0.2), step=(0.012, 0.0005))
    found = newest(small)
    by_name = {one.name: one for one in found.comparisons}
    run, step = by_name["docker, whole run"], by_name["docker, training step"]
    assert (run.spread, run.margin, run.is_open) == (pytest.approx(0.2), 0.05, True)
    assert (step.mean, step.spread, step.margin, step.is_open) == (
        pytest.approx(0.012), pytest.approx(0.0005), 0.02, False,
    )  # fmt: skip
    comparison, rounds = found.most_wanting(2)
    alpha = 0.05 * share_of(2)
    assert comparison.name == run.name
    distance = math.log1p(0.05) - abs(run.mean)
    assert t_quantile(alpha, rounds - 1) * run.spread / math.sqrt(rounds) <= distance
    assert t_quantile(alpha, rounds - 2) * run.spread / math.sqrt(rounds - 1) > distance
    assert found.most_wanting(1)[1] < rounds, "a first try has more of alpha"
    assert found.work.count_in(found.seconds(rounds)) == rounds


def test_what_is_open_comes_before_what_wants_more_rounds():
    def comparison(name, spread, is_open):
        return minutes.Comparison(name=name, n=6, mean=0.0, spread=spread, margin=0.05, is_open=is_open)

    both = (comparison("told", 0.05, False), comparison("open", 0.02, True))
    one = SimpleNamespace(plan=builders.plan_of())
    work = Work(once_s=1.0, each_s=1.0)
    found = minutes.Earlier(campaign=one, comparisons=both, run_spread=0.05, work=work)
    assert found.most_wanting(2)[0].name == "open" and found.is_open


def test_time_goes_where_comparisons_are_open(small, simple):
    cnn, rnn = campaigns.headlines(small.study)
    measure(small.folder, cnn, run=(0.0, 0.3))
    measure(small.folder, rnn, run=(0.0, 0.01))
    found = minutes.planned(small.study, 120, small.root)
    wide, narrow = found.chosen["mnist_cnn"], found.chosen["sentiment_rnn"]
    assert wide.budget_s > 2 * narrow.budget_s
    assert (wide.comparison, wide.is_open, narrow.is_open) == ("docker, whole run", True, False)
    assert wide.spread == pytest.approx(0.3) and wide.rounds > narrow.rounds >= 6
    assert set(found.earlier) == {"mnist_cnn", "sentiment_rnn"}
    text = "\n".join(found.lines())
    assert f"{wide.rounds:,} rounds" in text and len(found.lines()) == 3


def test_a_campaign_that_was_set_aside_still_tells_and_one_of_another_machine_does_not(small, simple):
    cnn, _ = campaigns.headlines(small.study)
    measure(small.folder, cnn, run=(0.0, 0.02))
    folder = small.folder / cnn.workload / cnn.name
    measure(small.folder, cnn, run=(0.0, 0.04), units=7)
    assert newest(small).comparisons[0].n == 7 and (folder / "superseded-1/sealed.json").exists()
    (folder / "sealed.json").unlink()
    assert newest(small).comparisons[0].n == 6
    other = builders.plan_of().machine.replace(kernel="of another machine")
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(minutes.facts, "identity", lambda: other.to_json())
        assert newest(small) is None


def test_a_damaged_campaign_tells_nothing_and_stops_nobody(small, simple):
    cnn, _ = campaigns.headlines(small.study)
    measure(small.folder, cnn)
    journal = small.folder / cnn.workload / cnn.name / "units.jsonl"
    journal.write_text(journal.read_text()[:-40])
    found = minutes.planned(small.study, 60, small.root)
    assert found.chosen["mnist_cnn"].comparison is None
    assert found.chosen["mnist_cnn"].budget_s == found.chosen["sentiment_rnn"].budget_s


# --- asked for once


def test_what_was_declared_is_read_again_whatever_has_been_measured_since(small, simple):
    cnn, _ = campaigns.headlines(small.study)
    own, first, before = minutes.laid_over(small.study, 60, small.root)
    assert not before and not declared.path_of(small.study, 60, "box").exists(), "looking writes nothing"
    declared.declare(own, first, "box")
    measure(small.folder, cnn, run=(0.0, 0.3))
    again, second, before = minutes.laid_over(small.study, 60, small.root)
    assert before and (again, second) == (own, first)
    elsewhere = checks.check(loading.merge(small.study.to_json(), {"papers": [], "rounds": {"budget_s": 99}}))
    assert minutes.laid_over(elsewhere, 60, small.root)[2], "neither papers nor the replaced budget matter"
    _, third, before = minutes.laid_over(small.study, 61, small.root)
    assert not before and third.chosen != first.chosen
    declared.declare(own, first.replace(at="later"), "box")
    assert declared.declared(small.study, 60, "box").at == first.at, "what was declared stays"


def test_other_headline_campaigns_are_chosen_for_anew(small):
    own, first, _ = minutes.laid_over(small.study, 60, small.root)
    declared.declare(own, first, "box")
    change = {"environments": ["host", "docker", "apptainer"]}
    wider = checks.check(loading.merge(small.study.to_json(), change))
    assert declared.declared(wider, 60, "box") is None
    own, second, _ = minutes.laid_over(wider, 60, small.root)
    declared.declare(own, second, "box")
    assert declared.declared(wider, 60, "box") == second


def test_a_damaged_declaration_is_refused_in_one_line(small):
    path = declared.path_of(small.study, 60, "box")
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": 1}')
    with pytest.raises(IntegrityError, match=r"minutes-60\.json") as refused:
        minutes.laid_over(small.study, 60, small.root)
    assert "\n" not in str(refused.value)


def part_for(study, one):
    return study_module.reduced(study.to_json(), "rounds", one.workload)


def test_other_budgets_are_a_new_attempt_and_the_same_ones_go_on(small, simple):
    one = campaigns.headlines(small.study)[0]
    own, chosen, _ = minutes.laid_over(small.study, 60, small.root)
    longer = own.rounds.of_headline(one.workload)
    shipped, of_minutes = (
        {"sampling": Sampling(confidence=0.95, pilot=6, half_width=0.5, budget_s=budget_s), "part": part}
        for budget_s, part in (
            (small.study.rounds.budget_s, part_for(small.study, one)),
            (longer.budget_s, part_for(own, one)),
        )
    )
    measure(small.folder, one, **shipped)
    measure(small.folder, one, **of_minutes)
    folder = small.folder / one.workload / one.name
    plan = read_sealed(folder / "sealed.json").plan
    assert plan.attempt == 2 and plan.sampling.budget_s == chosen.chosen[one.workload].budget_s
    assert plan.part["rounds"]["chosen"][one.workload]["why"] == chosen.chosen[one.workload].why
    tries = tries_of(bring_up_to_date(small.folder, fits.ratios_of))[one.workload, one.name]
    assert [each.state for each in tries] == ["superseded", "sealed"]
    assert read_json(folder / "superseded-1/plan.json")["sampling"]["budget_s"] == small.study.rounds.budget_s
    assert declared.measured_for(small.study, small.folder) == 60
    assert declared.remeasure_warnings(small.study, small.folder)


def test_campaigns_by_the_studys_file_call_for_no_minutes(small, simple):
    one = campaigns.headlines(small.study)[0]
    measure(small.folder, one, part=part_for(small.study, one))
    assert declared.remeasure_warnings(small.study, small.folder) == []


# --- what would answer what is open


def sealed(small):
    found = [small.folder / one.workload / one.name / "sealed.json" for one in campaigns.headlines(small.study)]
    return [read_sealed(path) for path in found if path.exists()]


def test_the_smallest_round_number_of_minutes_that_answers_is_named(small, simple):
    cnn, rnn = campaigns.headlines(small.study)
    measure(small.folder, cnn, run=(0.0, 0.1))
    measure(small.folder, rnn)
    found = minutes.answered_by(small.study, sealed(small))
    assert found.workload == "mnist_cnn" and found.comparison.is_open
    assert 60 * found.minutes >= found.needed_s
    smaller = [one for one in minutes.ROUND_MINUTES if one < found.minutes]
    assert not smaller or 60 * smaller[-1] < found.needed_s
    chosen = minutes.planned(small.study, found.minutes, small.root).chosen
    earlier = newest(small)
    assert earlier.work.count_in(chosen["mnist_cnn"].budget_s) >= found.rounds == chosen["mnist_cnn"].rounds


def test_where_eight_hours_do_not_answer_nobody_is_sent_to_measure(small, simple):
    cnn, _ = campaigns.headlines(small.study)
    measure(small.folder, cnn, run=(0.0, 30.0))
    found = minutes.answered_by(small.study, sealed(small))
    assert found.minutes is None and found.needed_s > 8 * 3600


def test_steps_that_want_more_rounds_than_whole_runs_are_ended_by_them(small, simple):
    """The pilot decides on whole runs: with these as narrow as is wanted no budget makes more rounds."""
    cnn, _ = campaigns.headlines(small.study)
    measure(small.folder, cnn, run=(0.0, 0.001), step=(0.0, 0.1))
    found = minutes.answered_by(small.study, sealed(small))
    assert (found.minutes, found.comparison.name) == (None, "docker, training step")
    assert found.ends_at == small.study.rounds.pilot < found.rounds
    (note,) = minutes.planned(small.study, 120, small.root).notes
    assert "half_width" in note and note.startswith("mnist_cnn: ")


def test_where_nothing_is_open_no_command_is_named(small, simple):
    for one in campaigns.headlines(small.study):
        measure(small.folder, one)
    assert minutes.answered_by(small.study, sealed(small)) is None


# --- by hand


def test_the_command_tells_the_budgets_and_writes_nothing(here, capsys):
    assert main.main(["plan", "--minutes", "60", "--study", str(ROOT / "config/config.yaml")]) == 0
    said = capsys.readouterr().out
    assert "mnist_cnn: " in said and "sentiment_rnn: " in said and list(here.iterdir()) == []


@pytest.mark.parametrize("words", [["--minutes", "4"], ["--minutes", "60", "--workload", "mnist_cnn"]])
def test_a_wrong_command_is_one_clear_line(here, capsys, words):
    try:
        status = main.main(["plan", *words])
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert status == 2 and said.count("\n") == 1 and "minutes" in said
