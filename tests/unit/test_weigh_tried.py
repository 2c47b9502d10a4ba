"""What a change says of a cause, by the interval of what it gains."""

import contextlib
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from tare.core.errors import UnavailableError
from tare.experiments.sliced import LEFT_OUT
from tare.model.choices import read_choice
from tare.stats.intervals import Interval
from tare.weigh import tried as module
from tare.weigh.causes import Change, Suspicion
from tare.weigh.commands import command_line
from tare.weigh.conclude import Cost
from tare.weigh.tried import (
    INTERRUPTED,
    MOST_CHANGES,
    Tried,
    _cause,
    _first_of_each,
    judged,
    minutes_for,
    try_changes,
)


def gained(low, mean, high):
    return Interval(n=6, mean=math.log(mean), low=math.log(low), high=math.log(high))


@pytest.mark.parametrize(
    ("whole", "interval", "finding"),
    [
        (1.10, (0.90, 0.91, 0.92), "confirmed"),
        (1.10, (0.97, 0.98, 0.99), "confirmed"),
        (1.10, (0.985, 0.99, 0.995), "open"),  # a tenth of the difference, or a twentieth
        (1.10, (0.90, 0.95, 1.01), "open"),
        (1.10, (0.80, 1.00, 1.25), "open"),  # nothing is known, whatever the mean is
        (1.10, (0.995, 1.00, 1.005), "excluded"),
        (1.10, (1.02, 1.05, 1.08), "excluded"),  # slower with the change
        (0.90, (1.05, 1.06, 1.07), "confirmed"),  # faster than the reference, and that is why
        (0.90, (0.95, 0.96, 0.97), "excluded"),
    ],
)
def test_findings(whole, interval, finding):
    found, share = judged(gained(*interval), math.log(whole))
    assert found == finding and (share is not None) == (finding == "confirmed")


def test_the_share_of_a_difference():
    assert judged(gained(0.94, 0.95, 0.96), -math.log(0.95 * 0.95))[1] == pytest.approx(0.5)
    assert judged(Interval(n=1, mean=0.1, low=None, high=None), 0.1) == ("open", None)


CHANGES = tuple(Change(name=name, advice=f"do {name}") for name in ("threads", "no quota"))
QUOTA = Suspicion(cause="CPU quota", confidence="high", evidence=(), changes=CHANGES)


def tried(number, *interval):
    cost = Cost(run=gained(*interval), parts={}, step=None)
    return Tried(change=CHANGES[number], cost=cost)


@pytest.mark.parametrize(
    ("beside", "share"),
    [
        ((1.09, 1.10, 1.11), 0.5),  # what it cost in the same rounds
        ((0.90, 1.10, 1.30), 0.25),  # where they tell nothing: in those before
    ],
)
def test_a_share_is_of_the_difference_in_the_same_rounds(beside, share):
    without, whole = (Cost(run=gained(*ends), parts={}, step=None) for ends in (beside, (1.20, 1.21, 1.22)))
    one = replace(tried(0, 0.94, 1 / math.sqrt(1.10), 0.97), without=without)
    found = _cause(QUOTA, whole, [one, one])
    assert found.finding == "confirmed" and found.share == pytest.approx(share, abs=0.001)


NOTHING, ALL, HALF = (0.995, 1.0, 1.005), (0.90, 0.91, 0.92), (0.94, 0.95, 0.96)


@pytest.mark.parametrize(
    ("found", "finding", "change"),
    [
        ([tried(0, *NOTHING), tried(1, *ALL)], "confirmed", "no quota"),
        ([tried(0, *HALF), tried(1, *ALL)], "confirmed", "no quota"),
        ([tried(0, *ALL), tried(1, *HALF)], "confirmed", "threads"),
        ([tried(0, *NOTHING), tried(1, *NOTHING)], "excluded", "threads"),
        ([tried(0, *NOTHING)], "not tried", None),  # the other might have gained something
        (["threads can't be tried: no such option", tried(1, *ALL)], "confirmed", "no quota"),
        ([], "not tried", None),
    ],
)
def test_a_cause_is_what_the_best_of_its_changes_says(found, finding, change):
    whole = Cost(run=gained(1.09, 1.10, 1.11), parts={}, step=None)
    one = _cause(QUOTA, whole, found)
    assert (one.finding, one.change) == (finding, change)
    assert (one.reason is None) == (finding != "not tried")


def test_the_first_change_of_each_cause_comes_before_second_ones():
    other = QUOTA.replace(cause="affinity", changes=CHANGES[:1])
    wanted = [(name, one, change) for name in ("a", "b") for one in (QUOTA, other) for change in one.changes]
    assert [(name, one.cause, change.name) for name, one, change in _first_of_each(wanted)] == [
        ("a", "CPU quota", "threads"),
        ("b", "CPU quota", "threads"),
        ("a", "affinity", "threads"),
        ("b", "affinity", "threads"),
        ("a", "CPU quota", "no quota"),
        ("b", "CPU quota", "no quota"),
    ]


def test_what_makes_an_environment_faster_is_nothing_to_fix():
    faster = Cost(run=gained(0.89, 0.90, 0.91), parts={}, step=None)
    one = _cause(QUOTA, faster, [tried(0, 1.05, 1.06, 1.07)])
    assert (one.finding, one.advice) == ("confirmed", None)
    slower = Cost(run=gained(1.09, 1.10, 1.11), parts={}, step=None)
    assert _cause(QUOTA, slower, [tried(0, *ALL)]).advice == "do threads"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("sh ended with status 3: no data", "the job fails with threads: sh ended with status 3: no data"),
        (None, "no round has both a run with threads and a run without it"),
    ],
)
def test_a_change_without_a_ratio_says_why(failure, reason):
    whole = Cost(run=gained(1.09, 1.10, 1.11), parts={}, step=None)
    nothing = Tried(change=CHANGES[0], cost=Cost(run=None, parts={}, step=None), failure=failure)
    only = QUOTA.replace(changes=CHANGES[:1])
    assert _cause(only, whole, [nothing]).reason == reason


@dataclass
class Seen:
    choice: object
    alone: str | None = None
    hooked: bool = True


QUOTA_REASON = "it has a quota"


@pytest.fixture
def trying(monkeypatch, tmp_path):
    """`trying(count, refused, ended)`: what came of changes of the environment `slow`, and the rounds' places."""

    def trying(count=1, refused=None, ended=None, units=(), hook_ran=False, left_s=1e6, causes=("CPU quota",)):
        changes = tuple(Change(name=f"change {number}", advice="") for number in range(count))
        quota = QUOTA.replace(changes=changes)
        made = []

        def open_place(request, results, choice, network, stack):
            if refused is not None:
                raise refused
            return SimpleNamespace(choice=choice, alone=None)

        class Rounds:
            def __init__(self, request, results, name, places):
                made.append(places)

            def run(self, left_s, what):
                trying.what = what
                if ended is not None:
                    raise ended
                return list(units)

        monkeypatch.setattr(module, "open_place", open_place)
        monkeypatch.setattr(module, "Rounds", Rounds)
        choice, adapter = read_choice("slow=docker=img --cpus 1"), SimpleNamespace(network=None)
        slow = SimpleNamespace(choice=choice, alone=QUOTA_REASON, adapter=adapter)
        found = SimpleNamespace(
            request=SimpleNamespace(reference=read_choice("host"), confidence=0.95),
            places={"host": Seen(choice=read_choice("host")), "slow": slow},
            python={"host": None},
            units=[SimpleNamespace(cost_s=1.0)],
            rounds=SimpleNamespace(uses_gpu=False, run_s=1.0),
            alpha=0.05,
            hook_ran=hook_ran,
        )
        with contextlib.ExitStack() as stack:
            asked = {"slow": [quota.replace(cause=one) for one in causes]}
            said = try_changes(found, asked, tmp_path, left_s, stack)
        trying.hook, trying.changes, trying.interrupted = said.hook, said.changes, said.interrupted
        return said.changes.get(("slow", "CPU quota")), made

    return trying


def test_a_change_is_tried_in_the_rounds_of_its_environment(trying):
    """Without its quota it could be sliced, and would then never run beside what it is compared with."""
    (one,), (places,) = trying()
    assert isinstance(one, Tried) and one.failure is None and trying.what == "round for causes"
    assert {name: place.alone for name, place in places.items()} == {
        "host": None,
        "slow": QUOTA_REASON,
        "slow+change-0": QUOTA_REASON,
    }


@pytest.mark.parametrize("error", [UnavailableError("no room"), PermissionError(13, "denied", "/data/x")])
def test_a_change_that_can_not_be_made_is_no_end(trying, error):
    (reason,), made = trying(refused=error)
    assert reason.startswith("change 0 can't be tried: no ") and made == []


def test_rounds_of_changes_that_end_leave_the_answer(trying):
    said, _ = trying(count=2, ended=UnavailableError("6 rounds in a row were void"))
    assert said == [f"change {number} can't be tried: 6 rounds in a row were void" for number in range(2)]


def test_changes_that_do_not_fit_into_one_campaign_get_another(trying):
    said, made = trying(count=MOST_CHANGES + 1)
    assert [isinstance(one, Tried) for one in said] == [True] * (MOST_CHANGES + 1)
    assert [[name for name in places if "+" in name] for places in made] == [
        [f"slow+change-{number}" for number in range(MOST_CHANGES)],
        [f"slow+change-{MOST_CHANGES}"],
    ]


def test_a_change_that_two_causes_share_is_tried_once_for_the_first(trying):
    (one,), (places,) = trying(causes=("CPU quota", "affinity"))
    assert isinstance(one, Tried) and list(places) == ["host", "slow", "slow+change-0"]
    assert trying.changes["slow", "affinity"] == ["change 0 also tests CPU quota, and can't separate the two"]


@pytest.mark.parametrize(
    ("text", "change", "command"),
    [
        ("docker=img --cpus 2", Change(name="no quota", without=("--cpus",), advice=""), "docker run img COMMAND"),
        (
            "docker=img",
            Change(name="x", variables={"A": "1 2"}, unset=("B",), advice=""),
            "docker run --env 'A=1 2' img env -u B COMMAND",
        ),
        (
            "docker=img --env B=1 -e C=2 --env=D=3",
            Change(name="x", unset=("B", "D", "E"), advice=""),
            "docker run -e C=2 img env -u E COMMAND",
        ),
        ("podman=img", Change(name="x", options=("--ipc=host",), advice=""), "podman run --ipc=host img COMMAND"),
        (
            "apptainer=a.sif",
            Change(name="x", variables={"A": "1"}, advice=""),
            "apptainer exec --env A=1 a.sif COMMAND",
        ),
        (
            "charliecloud=/img",
            Change(name="x", variables={"A": "1"}, unset=("B",), advice=""),
            "ch-run --unset-env=B --set-env=A=1 /img -- COMMAND",
        ),
        ("a=host: nice -n 5", Change(name="x", variables={"A": "1"}, advice=""), "nice -n 5 env A=1 COMMAND"),
        ("venv=/v", Change(name="x", unset=("B",), advice=""), "env -u B COMMAND"),
    ],
)
def test_the_command_to_use_is_the_runtime_s_own(text, change, command):
    assert command_line(change.of(read_choice(text))) == command


def test_a_command_shows_no_secret():
    assert "hunter2" not in command_line(read_choice("docker=img --env API_TOKEN=hunter2"))


def test_a_change_whose_launches_fail_says_how(trying):
    def launch(reason):
        return SimpleNamespace(ok=reason is None, reason=reason)

    launches = [{"slow+change-0": launch(reason)} for reason in (LEFT_OUT, "no data")]
    units = [SimpleNamespace(launches=one, whole=(), empty_launches=()) for one in launches]
    (one,), _ = trying(units=units)
    assert one.failure == "no data" and one.cost.run is None


def watched(*pairs):
    """Rounds of the reference with the hook, by seconds of its two launches, and without it."""
    return [
        SimpleNamespace(
            launches={
                name: SimpleNamespace(ok=True, reason=None, slices=None, steps=None, real_s=seconds)
                for name, seconds in (("host", a), ("host.control", b), ("host+no-hook", bare))
            },
            whole=(),
            empty_launches=(),
        )
        for a, b, bare in pairs
    ]


def test_the_hook_is_held_against_launches_without_it(trying, monkeypatch):
    monkeypatch.setattr("tare.weigh.conclude.real_s", lambda one: one.real_s)
    nothing, (places,) = trying(hook_ran=True, causes=(), units=watched((1.01, 1.01, 1.0), (1.02, 1.0, 1.0)))
    assert nothing is None and {name: place.hooked for name, place in places.items()} == {
        "host": True,
        "host+no-hook": False,
    }
    assert trying.hook.mean == pytest.approx(math.log(1.01), abs=1e-4)
    assert trying.hook.low < trying.hook.mean < trying.hook.high
    assert trying.what == "round for the cost of the hook"


@pytest.mark.parametrize(("hook_ran", "left_s"), [(False, 1e6), (True, 1.0)])
def test_a_hook_that_did_not_run_or_time_that_is_up_needs_no_rounds(trying, hook_ran, left_s):
    _, made = trying(hook_ran=hook_ran, left_s=left_s, causes=())
    assert made == [] and trying.hook is None


def test_what_was_interrupted_is_not_tried(trying):
    said, _ = trying(count=MOST_CHANGES + 1, ended=KeyboardInterrupt())
    assert trying.interrupted and said == [INTERRUPTED] * (MOST_CHANGES + 1)
    whole = Cost(run=gained(1.09, 1.10, 1.11), parts={}, step=None)
    one = _cause(QUOTA, whole, said[:2])
    assert (one.finding, one.reason) == ("not tried", INTERRUPTED)


@pytest.mark.parametrize(
    ("minutes", "cost_s", "rounds", "expected"),
    [
        (3.0, 60.0, 30, 37),  # 1800 s of the first rounds, and 5 rounds of 4 launches of 20 s
        (1.0, 3.0, 6, 2),  # 5 rounds of 4 s are 20 s: the share of causes in a minute, which was not enough
        (3.0, 60.0, 2, 17),  # 400 s are what is left of 1000 s for causes
    ],
)
def test_the_budget_that_would_suffice_for_causes_is_named(minutes, cost_s, rounds, expected):
    found = SimpleNamespace(
        request=SimpleNamespace(minutes=minutes),
        places={"host": None, "slow": None},
        units=[SimpleNamespace(cost_s=cost_s)] * rounds,
    )
    one = QUOTA.replace(changes=QUOTA.changes[:1])
    assert minutes_for(found, {"slow": [one], "other": [QUOTA.replace(changes=())]}) == expected
    assert minutes_for(replace_units(found), {}) == math.floor(minutes) + 1


def replace_units(found):
    """The same without rounds that count."""
    return SimpleNamespace(request=found.request, places=found.places, units=[])
