"""Units of held launches: what earlier ones say of a step, of memory and the pace; what the next one asks for."""

import contextlib
import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_fits import train
from test_rounds import GIB, NAMES, calibrated, fakes_of, held, setup_of, unit_of

from tare.experiments import rounds, sliced
from tare.launch.slicing.pacing import Pace
from tare.launch.slicing.rounds import Round
from tare.model.records.campaigns import Measured, Others
from tare.model.records.launches import LaunchRecord
from tare.model.registry import HOST
from tare.model.roles import CONTROL

pytestmark = pytest.mark.usefixtures("launch_cache")
FAILED = LaunchRecord(status="failed", reason="it died", inside=None, deviations=())
KERNEL = "it runs on a kernel of its own"


def with_cpu(launch, cpu_s):
    """A launch whose replicates took so much processor time."""
    told = launch.inside.results["replicates"]
    results = {**launch.inside.results, "replicates": [{**one, "cpu_s": cpu_s} for one in told]}
    return launch.replace(inside=launch.inside.replace(results=results))


def test_a_step_takes_the_hosts_processor_time_or_its_median_where_the_job_waits(monkeypatch):
    """Three steps of 0.1, 0.2 and 0.6 s that took 0.6 s of processor time."""
    host = with_cpu(train(0.1, 0.2, 0.6), 0.6)
    unit = unit_of(0, {HOST: host, CONTROL: train(5.0, 5.0)}, discarded=True)
    assert sliced.step_of(unit) == pytest.approx(0.2)
    assert sliced.step_of(unit_of(0, {HOST: with_cpu(host, 0.3)})) == pytest.approx(0.1)
    monkeypatch.setattr(sliced, "waits", lambda launches: "it waits for the clock")
    assert sliced.step_of(unit_of(0, {HOST: with_cpu(host, 0.3)})) == pytest.approx(0.2)


def test_without_a_host_that_ended_well_nobody_knows_what_a_step_takes():
    assert sliced.step_of(unit_of(0, {CONTROL: train(1.0)})) is None
    assert sliced.step_of(unit_of(0, {HOST: train(1.0, status="failed")})) is None


@pytest.mark.parametrize(("sizes", "together"), [((100, 300), 2), ((100,), 8), ((), None), ((0,), None)])
def test_as_many_launches_fit_as_the_largest_times_their_number(monkeypatch, sizes, together):
    monkeypatch.setattr(sliced, "available_memory_bytes", lambda: 1000)
    launches = {str(one): held(1.0, sliced=False) for one in sizes}
    launches = {
        name: one.replace(slices=one.slices.replace(memory_bytes=int(name))) for name, one in launches.items()
    }
    failed = held(1.0).replace(status="failed", reason="it died", slices=held(1.0).slices.replace(memory_bytes=900))
    assert sliced.most_together({**launches, "docker": failed}) == together


# --- what earlier units say


def replicates_of(launch, *changes):
    """The launch with one replicate for each change of its first."""
    first = launch.inside.results["replicates"][0]
    results = {**launch.inside.results, "replicates": [{**first, **change} for change in changes]}
    return launch.replace(inside=launch.inside.replace(results=results))


def test_a_step_by_a_devices_events_is_their_median_and_replicates_without_steps_say_nothing():
    by_events = {"warmup_ends_ns": None, "step_ends_ns": None, "warmup_s": [], "cpu_s": 9.0}
    seen = replicates_of(train(0.1, 0.2, 0.6), {**by_events, "step_s": [0.1, 0.3, 0.9]}, {"step_ends_ns": []})
    assert sliced.step_of(unit_of(0, {HOST: seen})) == pytest.approx(0.3)
    assert sliced.step_of(unit_of(0, {HOST: replicates_of(seen)})) is None


@pytest.mark.parametrize(
    ("voids", "hidden", "hopeless"),
    [("xxx", True, False), ("x.xx", False, False), ("xxrxx", False, False), ("xxxxxx", True, True),
     (".xxxxxx", True, True), ("xxxxx", True, False), ("xxxxx.", True, False), ("xxxrxx", True, False),
     ("xxxxxxx", True, True)],
)  # fmt: skip
def test_rounds_that_are_void_in_a_row_end_the_slicing_and_then_the_campaign(voids, hidden, hopeless):
    """`x` is void, `r` a rehearsal, `.` counts."""
    said = {"x": "it did not stop", "r": "sets the pace", ".": None}
    rounds_of = [unit_of(number, {}, voided=said[one], rehearsal=one == "r") for number, one in enumerate(voids, 1)]
    done = [first_unit(), *rounds_of]
    assert (sliced.often_void(done) is not None, sliced.hopeless(done) is not None) == (hidden, hopeless)


def test_the_pace_of_the_first_sliced_round_is_processor_time_where_the_calibration_has_it_of_all(monkeypatch):
    monkeypatch.setattr(sliced, "MOST_APART", 0.03)
    names = [HOST, CONTROL, "docker"]
    launches = {name: held(9.0, cpu_s, sliced=False) for name, cpu_s in zip(names, (1.0, 1.01, 2.0), strict=True)}
    first = unit_of(0, launches, discarded=True)
    assert sliced.pace_of([first], names).phases == {HOST: (1.0,), CONTROL: (1.01,), "docker": (2.0,)}
    for lost in (FAILED, held(1.0).replace(slices=None)):
        seen = unit_of(0, {**launches, "docker": lost}, discarded=True)
        assert sliced.pace_of([seen], names) == Pace.equal(names)
    apart = unit_of(0, {**launches, HOST: held(9.0, 2.0, sliced=False)}, discarded=True)
    assert sliced.pace_of([apart], names) == sliced.pace_of([], names) == Pace.equal(names)


def test_what_no_round_had_is_scaled_by_how_much_longer_the_hosts_took_in_slices():
    names = [HOST, CONTROL, "podman", "docker", "udocker"]
    first = calibrated(**{HOST: 1.0, CONTROL: 1.0, "docker": 1.5, "podman": 3.0, "udocker": 1.0})
    seen = dict(zip(names, (2.0, 3.0, None, 3.0, 9.0), strict=True))
    launches = {name: held(seconds, 7.0) if seconds else FAILED for name, seconds in seen.items()}
    done = [first, unit_of(1, launches)]
    found = sliced.pace_of(done, names)
    assert found.phases == {name: (seconds or 7.5,) for name, seconds in seen.items()}
    assert sliced.pace_of(done, [HOST, "apptainer"]) == Pace.equal([HOST, "apptainer"])


@pytest.mark.parametrize(
    ("host", "control", "most", "says"),
    [
        (2.0, 2.04, 0.03, None),
        (2.0, 2.2, 0.03, "differed by 10%"),
        (2.2, 2.0, 0.03, "differed by 10%"),
        (2.0, 2.2, abs(math.log(2.0 / 2.2)), None),
        (2.0, None, 0.03, None),
    ],
)
def test_the_hosts_processor_times_ask_for_a_rehearsal(monkeypatch, host, control, most, says):
    monkeypatch.setattr(sliced, "MOST_APART", most)
    seen = calibrated(**{HOST: host, "docker": 9.0})
    for lost in ({}, {CONTROL: FAILED}, {CONTROL: held(9.0).replace(slices=None)}):
        launches = {**seen.launches, **({CONTROL: held(control, sliced=False)} if control else lost)}
        first = seen.replace(launches=launches)
        found = sliced.rehearses([first], first)
        assert found is None if says is None else says in found


def test_memory_counts_a_replicate_only_where_it_is_a_process_of_its_own():
    one = {"forked": True, "peak_rss_bytes": 500}
    launch = replicates_of(train(0.1), one, {"forked": False, "reason": "no fork", "peak_rss_bytes": 900})
    memory = launch.inside.memory.replace(peak_rss_bytes=2000, children_peak_rss_bytes=300)
    launch = launch.replace(inside=launch.inside.replace(memory=memory))
    assert sliced.memory_of(launch) == 2500
    started = launch.inside.replace(mode="start", results={})
    assert sliced.memory_of(launch.replace(inside=started)) == 2300


def test_groups_of_hosts_alone_and_of_launches_that_are_all_apart(tmp_path):
    plan = rounds.rounds(setup_of(fakes_of(tmp_path))).plan.replace(unsliced={})
    first = calibrated(**{HOST: 1.0, CONTROL: 1.0})
    gone = unit_of(1, {"docker": FAILED})
    assert sliced.groups(plan, [first]) == sliced.groups(plan, [first.replace(slicing=None)]) == [[*NAMES]]
    assert sliced.groups(plan, [first, gone, gone]) == [[HOST, CONTROL]]
    assert sliced.groups(plan.replace(unsliced={"docker": KERNEL}), [first]) == [[*NAMES]]


def test_no_quota_is_told_where_control_groups_can_not_be_read(monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert sliced.quota_here() is None


# --- what the next unit asks for


def whole(seconds=1.0, cpu_s=0.01):
    """A run to its end of four steps that took so much processor time together."""
    launch = with_cpu(train(0.01, 0.01, 0.01, 0.01), cpu_s)
    return launch.replace(slices=held(seconds, sliced=False).slices)


EMPTY = {HOST: {"start_s": 1.0, "exit_s": 1.0}}


class Next:
    """The next unit of a campaign of these launches, whose launches are made up."""

    def __init__(self, monkeypatch, folder, names=(*NAMES, "podman")):
        self.plan = rounds.rounds(setup_of(fakes_of(folder, names))).plan
        self.plan = self.plan.replace(slicing_refused=None, unsliced={})
        self.sites = dict.fromkeys(names, SimpleNamespace())
        self.answers, self.voided = {}, None
        self.read, self.apart, self.orders, self.way = None, None, None, None
        monkeypatch.setattr(sliced, "MOST_APART", 0.03)
        monkeypatch.setattr(sliced, "run_launches", self.run_launches)
        monkeypatch.setattr(sliced, "read_again", self.read_again)
        monkeypatch.setattr(sliced, "unheld", self.unheld)
        monkeypatch.setattr(sliced, "empty_launches", lambda asked, records: iter([EMPTY]))
        monkeypatch.setattr(sliced, "available_memory_bytes", lambda: 64 * GIB)
        monkeypatch.setattr(sliced.others, "watched", self.watched)

    @contextlib.contextmanager
    def watched(self, used, launches_s):
        yield
        used.append(Others(cpu_s=launches_s(), stolen_s=0.0, seconds=9.0, processors=2))

    def run_launches(self, orders, way):
        self.orders, self.way = orders, way
        records = {name: self.answers.get(name, whole() if way.pace is None else held(1.0)) for name in orders}
        return Round(records=records, voided=self.voided, mapped={"docker": {"/lib/a.so"}})

    def read_again(self, sites, page_cache):
        self.read = (list(sites), page_cache)
        return dict.fromkeys(sites, "drawn anew")

    def unheld(self, plan, sites, done, order, pads, program_of=None):
        self.apart = list(order)
        return {"order": order, "launches": dict.fromkeys(order, whole()), "pages": dict.fromkeys(order, "its own")}

    def unit(self, *done, **more):
        self.read = self.apart = self.orders = self.way = None
        return sliced.run_unit(self.plan, self.sites, list(done), **more)

    @property
    def steps(self):
        (asked,) = {(one.program.measured.steps, one.program.measured.replicates) for one in self.orders.values()}
        return asked


@pytest.fixture
def following(monkeypatch, tmp_path):
    return Next(monkeypatch, tmp_path)


ALL = (HOST, CONTROL, "docker", "podman")


def first_unit(**changes):
    return unit_of(0, {**dict.fromkeys(ALL, whole()), **changes}, discarded=True)


def test_the_calibration_runs_everything_whole_with_few_steps(following):
    row = following.unit()
    assert set(following.orders) == set(ALL) == set(row["order"]) and following.steps == (Measured.fewest, 1)
    assert following.way.pace is None and following.way.arrived is None
    assert [*itertools.islice(following.way.orders, 2)] == [(0, 1, 2, 3)] * 2
    assert following.read is None and following.apart is None and "empty_launches" not in row
    told = row["slicing"]
    assert (told["refused"], told["pace"], told["rehearsal"], row["voided"]) == (None, None, False, None)
    assert told["together"] == 64 * GIB * 8 // 10 // sliced.memory_of(whole())
    assert row["others"]["cpu_s"] == sliced.unreaped_s(row["launches"])
    assert all(one.startswith("kept") for one in row["pages"].values()) and len(row["pages"]) == 4


def test_a_calibration_is_repeated_while_some_launches_wait_and_a_job_that_waits_does_so_in_both_hosts(following):
    waited = whole().replace(slices=whole().slices.replace(looks=10, idle_looks=9))
    void = first_unit().replace(voided="once more")
    following.answers = {"docker": waited, HOST: waited}
    for before in ([], [void], [void] * 2):
        assert "so the round is repeated" in following.unit(*before)["voided"]
    assert following.unit(*[void] * 3)["voided"] is None
    assert sliced.often_void([*[void] * 3, first_unit()]) is None, "calibrations are no sliced rounds"
    following.answers = {HOST: waited, CONTROL: waited}
    assert "so the round is repeated" in following.unit()["voided"]
    assert following.unit(void)["voided"] is None
    following.answers = {"docker": waited}
    following.voided = "it did not stop"
    assert following.unit()["voided"] == "it did not stop"
    following.voided, following.plan = None, following.plan.replace(slicing_refused="a GPU")
    assert following.unit()["voided"] is None


def test_what_cannot_be_sliced_at_all_asks_for_the_hosts_step_alone_unless_pages_have_to_be_warm(following):
    following.plan = following.plan.replace(slicing_refused="a GPU")
    following.unit()
    assert set(following.orders) == set(ALL)
    conditions = following.plan.conditions.replace(page_cache="as_found")
    following.plan = following.plan.replace(conditions=conditions)
    row = following.unit()
    assert list(following.orders) == [HOST] and row["launches"]["docker"].status == "skipped"
    following.unit(first_unit())
    assert set(following.orders) == set(ALL) and following.way.pace is None
    following.plan = following.plan.replace(slicing_refused=None)
    following.unit()
    assert set(following.orders) == set(ALL)


def test_a_sliced_round_has_its_pace_its_steps_pages_that_are_read_again_and_empty_launches(following):
    row = following.unit(first_unit())
    assert set(following.way.pace.phases) == set(ALL) and following.steps == (20, 2)
    assert {sorted(one) == [0, 1, 2, 3] for one in itertools.islice(following.way.orders, 4)} == {True}
    assert following.read == ([*following.orders], "warm") and set(row["pages"].values()) == {"drawn anew"}
    assert row["empty_launches"] == [EMPTY] and row["voided"] is None
    assert row["slicing"]["pace"] == {name: [1.0] for name in ALL} and not row["slicing"]["rehearsal"]
    assert "together" not in row["slicing"]
    following.voided = "it did not stop"
    void = following.unit(first_unit())
    assert void["voided"] == "it did not stop" and "empty_launches" not in void
    conditions = following.plan.conditions.replace(page_cache="as_found")
    following.plan = following.plan.replace(conditions=conditions)
    following.unit(first_unit())
    assert following.read is None


def test_a_rehearsal_only_sets_the_pace(following):
    apart = first_unit(**{CONTROL: whole(2.0)})
    row = following.unit(apart)
    assert row["slicing"]["rehearsal"] is True and "only calibrates the slices" in row["voided"]
    assert following.steps == (Measured.fewest, 1) and "empty_launches" not in row
    assert row["slicing"]["pace"] == {name: [1.0] for name in ALL}
    following.answers = {"docker": FAILED}
    assert following.unit(apart)["slicing"]["rehearsal"] is False
    following.answers, following.voided = {}, "it did not stop"
    assert following.unit(apart)["slicing"]["rehearsal"] is False


def test_a_job_that_waited_in_its_calibration_has_no_pace_and_no_rehearsal(following):
    waited = whole(2.0).replace(slices=whole(2.0).slices.replace(looks=10, idle_looks=9))
    row = following.unit(first_unit(**{CONTROL: waited}))
    assert "was idle in" in row["slicing"]["refused"] and row["slicing"]["pace"] is None
    assert row["voided"] is None and following.way.pace is None and row["empty_launches"] == [EMPTY]
    void = [unit_of(number, {}, voided="it did not stop") for number in (1, 2, 3)]
    assert "it did not stop" in following.unit(first_unit(), *void)["slicing"]["refused"]


def test_what_cannot_be_held_runs_once_behind_the_calibration_and_then_apart(following):
    following.plan = following.plan.replace(unsliced={"podman": KERNEL})
    row = following.unit()
    assert set(following.orders) == set(NAMES) and following.apart == ["podman"]
    assert row["launches"]["podman"].ok
    following.voided = "it did not stop"
    assert following.unit()["launches"]["podman"].status == "skipped" and following.apart is None
    gone = [unit_of(number, {"podman": FAILED}, voided="it did not stop") for number in (1, 2)]
    following.voided = None
    assert "given up" in following.unit(*gone)["launches"]["podman"].reason and following.apart is None
    following.unit(first_unit())
    assert set(following.orders) == set(NAMES)
    row = following.unit(first_unit(), unit_of(1, dict.fromkeys(NAMES, held(1.0))))
    assert following.orders is None and set(following.apart) == {HOST, CONTROL, "podman"}
    assert {name for name, one in row["launches"].items() if one.ok} == {HOST, CONTROL, "podman"}
    assert row["launches"]["docker"].reason == sliced.LEFT_OUT and set(row["order"]) == set(ALL)
    assert row["pages"][HOST] == "its own" and row["pages"]["docker"].startswith("kept")
    following.unit(first_unit(), *(unit_of(number, dict.fromkeys(NAMES, held(1.0))) for number in range(1, 5)))
    assert set(following.orders) == set(NAMES), "by turns"


def served_by(launch, seconds):
    """The launch with a FUSE server that took so much processor time."""
    return launch.replace(slices=launch.slices.replace(servers=1, servers_cpu_us=round(1e6 * seconds)))


def test_the_calibration_says_whose_whole_runs_may_not_be_sliced(following):
    following.answers = {"podman": served_by(whole(), 0.02), "docker": served_by(whole(), 0.01)}
    assert following.plan.margins["run"] == 0.05 and following.plan.conditions.cpus == 1
    assert "served" not in following.unit()["slicing"], "there is only one processor for both"
    two = following.plan.conditions.replace(cpus=2)
    following.plan = following.plan.replace(conditions=two)
    assert following.unit()["slicing"]["served"] == ["podman"], (
        "more than a quarter of the margin of its own second"
    )
    assert "served" not in following.unit(first_unit())["slicing"]


def test_whole_runs_with_a_server_have_separate_rounds_and_steps_stay_in_slices(following):
    first = first_unit().replace(slicing={"served": ["podman"]})
    assert sliced.groups(following.plan, [first]) == [[HOST, CONTROL, "docker"], [HOST, CONTROL, "podman"]]
    row = following.unit(first)
    assert (
        set(following.orders) == {HOST, CONTROL, "docker"}
        and following.way.pace is not None
        and "whole" not in row["slicing"]
    )
    sliced_one = unit_of(1, dict.fromkeys(ALL, held(3.0)))
    row = following.unit(first, sliced_one)
    assert set(following.orders) == {HOST, CONTROL, "podman"} and following.way.whole_first
    assert following.way.pace == Pace.equal([*following.orders]) and row["slicing"]["pace"] is None
    assert next(following.way.orders) == (0, 1, 2), "first parts in the order of their starts"
    assert row["slicing"]["whole"] == ["podman"] and row["voided"] is None
    assert all(one.program.measured.steps for one in following.orders.values()) and "empty_launches" not in row
    assert row["launches"]["docker"].reason == sliced.LEFT_OUT and following.read == ([*following.orders], "warm")
    whole_one = unit_of(2, row["launches"]).replace(slicing=row["slicing"])
    following.unit(first, sliced_one, whole_one)
    shared = {HOST, CONTROL, "docker"}
    assert following.way.pace.phases == {name: (3.0,) for name in shared}, "by sliced rounds alone"
    # a launch that failed in both, or a campaign that can't be sliced, has no such rounds
    gone = [unit_of(number, {"podman": FAILED}) for number in (1, 2)]
    assert sliced.groups(following.plan, [first, *gone]) == [[HOST, CONTROL, "docker"]]
    refused = following.plan.replace(slicing_refused="a GPU")
    assert sliced.groups(refused, [first]) == [[*ALL]]
    apart = following.plan.replace(unsliced={"podman": KERNEL})
    assert sliced.groups(apart, [first]) == [[HOST, CONTROL, "docker"], [HOST, CONTROL, "podman"]]
    weighed = following.plan.replace(kind="weigh")
    assert sliced.groups(weighed, [first]) == [[*ALL], [*ALL]], "any may be the baseline of any other"
    following.plan = following.plan.replace(measured=None)
    following.unit(first, sliced_one)
    assert following.way.pace is None and not following.way.whole_first, "without steps each runs to its end"


def test_files_of_a_users_job_are_drawn_anew_while_it_is_held_and_those_it_maps_are_kept(following):
    drawn = {"docker": "drawn anew"}
    code = SimpleNamespace(draw_anew=lambda name, pid: None, seen={}, outcomes=dict(drawn))
    row = following.unit(first_unit(), code=code)
    assert following.read is None and following.way.arrived is code.draw_anew
    assert code.seen == {"docker": {"/lib/a.so"}} and code.outcomes == {}
    assert row["pages"]["docker"] == "drawn anew" and row["pages"][HOST].startswith("kept")
    following.unit(code=code)
    assert following.way.arrived is None
