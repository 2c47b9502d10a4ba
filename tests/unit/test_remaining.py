"""The time left of a workflow: from what is expected, what jobs tell, what they took; simulated runs replayed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from replaying import replay

from tare.core import remaining
from tare.core.files import project_root
from tare.core.remaining import Due, Durations, Expected, ExpectedJob, Plan, Remaining
from tare.core.status import Status
from tare.model.studies import expected, study

# Of these a simulated run has one job each; the first SET_UP of them come before all that is measured.
ALWAYS = (
    "build_tree",
    "build_image",
    "measure_ceilings",
    "extract_tables",
    "judge_published",
    "draw_notebooks",
    "build_report",
)
SET_UP = 2
RULES = {
    "build": Expected(stage="images", seconds=20, kept=True),
    "measure": Expected(stage="headline", seconds=100, alone=True),
    "draw_*": Expected(stage="figures", seconds=8),
}


def run(plan=None, earlier=None, **due):
    own = Remaining(plan or Plan(rules=RULES), cores=2, earlier=earlier)
    own.due(due)
    return own


def told(out="x", **fields):
    base = {"what": "x", "done": 1, "total": 4, "left_s": 30.0, "half_width": None, "wanted": None, "at_s": 0.0}
    return Status(**{**base, "outs": (out,), **fields})


def test_jobs_that_have_the_machine_add_up_and_the_others_share_it():
    assert run(measure=2).outlook(0).left_s == 200
    assert run(build=4).outlook(0).left_s == pytest.approx(80 / remaining.SHARED)
    assert run(measure=1, build=4).outlook(0).left_s == pytest.approx(100 + 80 / remaining.SHARED)


def test_a_long_job_among_those_that_share_the_machine_is_waited_for():
    own = run(Plan(rules={**RULES, "long": Expected(stage="images", seconds=90)}), long=1)
    own.start(1, "long", "a long one", [], 0.0)
    assert own.outlook(10.0).left_s == pytest.approx(80)


def test_what_a_job_tells_is_believed_and_runs_down():
    own = run(measure=1)
    own.start(1, "measure", "steps", ["x"], 0.0)
    own.hear([told(at_s=10.0)])
    assert own.outlook(10.0).left_s == 30
    assert own.outlook(25.0).left_s == 15
    assert own.outlook(90.0).left_s == 0


@pytest.mark.parametrize("status", [told("another job's"), told(at_s=-60.0)])
def test_what_no_running_job_has_told_counts_for_nothing(status):
    own = run(measure=1)
    own.start(1, "measure", "steps", ["x"], 0.0)
    own.hear([status])
    assert own.outlook(0.0).left_s == 100 and own.outlook(0.0).status is None


def test_a_job_that_is_killed_is_neither_waited_for_nor_heard():
    own = run(measure=1)
    own.start(1, "measure", "steps", ["x"], 0.0)
    own.end(1, 20.0, succeeded=False)
    own.hear([told()])
    assert own.outlook(20.0).left_s == 0 and own.outlook(20.0).stage is None
    assert own.durations() == {}, "how long it took to fail tells nothing"


def behind_each_other(*numbers):
    """Jobs of the rule `measure`, each of which needs what the one before it makes."""
    following = [*((number,) for number in numbers[1:]), ()]
    pairs = zip(numbers, following, strict=True)
    return {number: Due(rule="measure", outs=(str(number),), behind=behind) for number, behind in pairs}


def test_what_stands_behind_a_job_that_failed_is_not_waited_for():
    order = {**behind_each_other(1, 2, 3), 4: Due(rule="build", outs=("4",), behind=(3,))}
    own = run(Plan(rules=RULES, order=order), measure=3, build=1)
    own.start(1, "measure", "a", ["1"], 0.0)
    assert own.outlook(0.0).left_s == pytest.approx(300 + 20 / remaining.SHARED)
    own.end(1, 10.0, succeeded=False)
    assert own.outlook(10.0).left_s == pytest.approx(20 / remaining.SHARED), "of both, not the other's"
    own.start(1, "measure", "a", ["1"], 20.0)
    assert own.outlook(20.0).left_s == pytest.approx(300 + 20 / remaining.SHARED), "it is tried again"


def test_of_jobs_that_are_not_waited_for_nothing_is_expected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = [ExpectedJob(rule="measure", outs=(str(n),), stage="s", seconds=10**n) for n in (1, 2, 3)]
    own = run(Plan(rules=RULES, jobs=jobs, order=behind_each_other(1, 3)), measure=3)
    own.start(1, "measure", "a", ["1"], 0.0)
    own.end(1, 10.0, succeeded=False)
    assert own.outlook(10.0).left_s == 100


def test_jobs_that_took_longer_make_those_that_wait_longer_within_bounds():
    own = run(measure=3)
    own.start(1, "measure", "a", [], 0.0)
    own.end(1, 200.0, succeeded=True)
    assert own.outlook(200.0).left_s == 2 * 200
    assert own._factor("build", True, 200.0) == 1, "what is in the cache is another matter"
    own.start(2, "measure", "b", [], 200.0)
    own.end(2, 99_999.0, succeeded=True)
    own.start(3, "measure", "c", [], 99_999.0)
    own.end(3, 199_999.0, succeeded=True)
    assert own._factor("measure", False, 199_999.0) == remaining.SLOWEST


def test_one_job_that_is_far_off_does_not_move_the_others():
    rules = {**RULES, "short": Expected(stage="arms", seconds=50, alone=True)}
    own = run(Plan(rules=rules), short=4, measure=2)
    own.start(1, "short", "an odd one", [], 0.0)
    own.end(1, 500.0, succeeded=True)
    assert own.outlook(500.0).left_s == 3 * 50 + 2 * 100


def test_a_campaign_that_was_there_already_makes_the_others_no_faster():
    own = run(measure=2)
    own.start(1, "measure", "a", [], 0.0)
    own.end(1, 3.0, succeeded=True)
    assert own.outlook(3.0).left_s == 100


def test_what_a_running_job_tells_is_expected_of_the_next():
    own = run(measure=2)
    own.start(1, "measure", "a", ["x"], 0.0)
    own.hear([told(left_s=200.0)])
    assert own.outlook(0.0).left_s == 200 + 2 * 100


def test_a_job_that_takes_longer_than_expected_is_thought_to_need_some_more():
    own = run(measure=1)
    own.start(1, "measure", "a", [], 0.0)
    assert own.outlook(99.0).left_s == pytest.approx(remaining.OVERDUE * 99)
    assert own.outlook(200.0).left_s == pytest.approx(remaining.OVERDUE * 200)


def test_the_share_done_is_of_the_estimated_time():
    own = run(measure=2)
    own.start(1, "measure", "a", [], 0.0)
    assert own.outlook(50.0).share == pytest.approx(50 / 200)


def test_two_jobs_at_once_show_the_last_and_count_the_other():
    own = run(build=2)
    own.start(1, "build", "one image", [], 0.0)
    own.start(2, "build", "another", [], 1.0)
    seen = own.outlook(2.0)
    assert (seen.title, seen.others, seen.stage) == ("another", 1, "images")


def test_jobs_known_by_their_outputs_are_counted_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = [
        ExpectedJob(rule="measure", outs=(name,), stage=name, seconds=s) for name, s in {"a": 10, "b": 300}.items()
    ]
    own = run(Plan(rules=RULES, jobs=jobs), measure=2)
    assert own.outlook(0).left_s == 310
    own.start(1, "measure", "b", ["b"], 0.0)
    assert own.outlook(0).left_s == 310 and own.outlook(0).stage == "b"
    Path("b").touch()
    assert run(Plan(rules=RULES, jobs=jobs), measure=1).outlook(0).left_s == 10, "what is there is not waited for"


def test_rules_that_begin_alike_and_rules_that_nobody_knows():
    plan = Plan(rules=RULES)
    assert plan.of_rule("draw_why").stage == "figures"
    assert plan.of_rule("fly") == Expected(stage="fly", seconds=remaining.UNKNOWN_S)


# --- earlier runs


def test_earlier_runs_replace_what_was_expected_within_bounds():
    short, long = Expected(stage="s", seconds=20, kept=True), Expected(stage="s", seconds=100, alone=True)
    assert remaining.bounded(short, [1.0, 2.0, 9.0]).seconds == 2.0
    assert remaining.bounded(short, [9e9]).seconds == 20 * remaining.LARGEST_SURPRISE
    assert remaining.bounded(long, [0.1]).seconds == 100 / remaining.LARGEST_SURPRISE
    assert remaining.bounded(long, []) == long


def test_durations_are_kept_for_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    kept = Durations("tiny")
    assert kept.read() == {}
    for seconds in (1.0, 2.0, 3.0, 4.04):
        kept.add({"build: a": seconds})
    kept.add({})
    assert kept.read() == {"build: a": [2.0, 3.0, 4.0]}
    assert Durations("other").read() == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": 3}', '{"a": []}', '{"a": ["x"]}', '{"a": [NaN]}', '{"a": [-1]}']
)
def test_damaged_durations_are_ignored_and_written_anew(tmp_path, monkeypatch, text):
    monkeypatch.setenv("TARE_CACHE", str(tmp_path))
    (tmp_path / "durations").mkdir()
    (tmp_path / "durations" / "tiny.json").write_text(text)
    assert Durations("tiny").read() == {}
    Durations("tiny").add({"a": 5.0})
    assert Durations("tiny").read() == {"a": [5.0]}


def test_where_nothing_can_be_remembered_nothing_happens(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "file"))
    Durations("tiny").add({"a": 5.0})
    assert Durations("tiny").read() == {}


# --- recorded runs


def simulated(study_file, slower=1.0):
    """Events of a run whose jobs take so many times what is expected; those that share the machine, less."""
    plan = expected.plan(study.load_checked(study_file))
    once = [
        ExpectedJob(rule=rule, outs=(rule,), stage=one.stage, seconds=one.seconds)
        for rule, one in plan.rules.items()
        if rule not in {job.rule for job in plan.jobs} and rule in ALWAYS
    ]
    jobs = [*once[:SET_UP], *plan.jobs, *once[SET_UP:]]
    counts = Counter(job.rule for job in jobs)
    events, at_s = [{"event": "due", "at_s": 0.0, "counts": dict(counts)}], 0.0
    for number, job in enumerate(jobs):
        about = {"job": number, "rule": job.rule, "title": job.outs[0], "outs": list(job.outs)}
        events.append({"event": "start", "at_s": at_s, **about})
        at_s += slower * job.seconds / (1 if plan.rules[job.rule].alone else remaining.SHARED)
        events.append({"event": "end", "at_s": at_s, "job": number, "succeeded": True})
    return plan, events


def misses(plan, events, tmp_path, monkeypatch, earlier=None, within=1 / 3):
    """The instants from minute 3 on at which the time left was not right within so much of it, or 15 s.

    None where they are at most one in twenty: what a job takes is known when it ends.
    """
    monkeypatch.chdir(tmp_path)
    seen = list(replay(events, plan, earlier=earlier))
    assert seen[-1][0] > 200, "a run of minutes"
    late = [one for one in seen if one[0] >= 180]
    wrong = [one for one in late if not abs(one[1] - one[2]) <= max(within * one[2], 15)]
    return wrong if len(wrong) > len(late) / 20 else []


STUDIES = pytest.mark.parametrize("name", ["config", "smoke", "columbia2025"])


@STUDIES
@pytest.mark.parametrize(("slower", "within"), [(0.75, 1 / 2), (1.0, 1 / 3), (1.35, 1 / 2)])
def test_the_time_left_of_a_run_is_about_right_from_minute_3_on(name, slower, within, tmp_path, monkeypatch):
    """In a quicker or a slower hour less so."""
    plan, events = simulated(project_root() / f"config/{name}.yaml", slower)
    assert misses(plan, events, tmp_path, monkeypatch, within=within) == []


@STUDIES
def test_and_of_the_same_run_again(name, tmp_path, monkeypatch):
    plan, events = simulated(project_root() / f"config/{name}.yaml")
    started = {event["job"]: event for event in events if event["event"] == "start"}
    earlier = {}
    for event in events:
        if event["event"] == "end":
            job = started[event["job"]]
            earlier[remaining.key_of(job["rule"], job["title"])] = [event["at_s"] - job["at_s"]]
    assert misses(plan, events, tmp_path, monkeypatch, earlier) == []
