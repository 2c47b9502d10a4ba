"""Rounds of scripts that compute: what is refused, what the calibration decides, resuming, memory, failures."""

import contextlib
import copy
import itertools
import json
import math
import os
import random
import statistics
from dataclasses import dataclass, replace
from types import SimpleNamespace

import fakes
import pandas as pd
import pytest
from asked import conditions, part
from campaign_builders import verdict_rows
from fakes import Fake, site, still_running
from own_time import phases_of
from test_sweep_units import started_once

from tare.analysis.metrics import campaign_metrics
from tare.analysis.sliced_rounds import is_sliced, unsliced_reason, whole_run_estimate
from tare.core.errors import UnavailableError
from tare.experiments import rounds, sliced
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.experiments.store import asked_of
from tare.launch.program import CommandProgram
from tare.launch.run import Order
from tare.launch.slicing import rounds as launches
from tare.launch.slicing.pacing import Pace
from tare.machine import caller, memory
from tare.machine.caller import Group, group_chains
from tare.model.environment import Launch
from tare.model.journals.sealed import UNITS, read_rows, read_sealed, views
from tare.model.journals.units import groups_of, measured_steps, real_s, shares, unsliced
from tare.model.records.campaigns import Measured, Unit
from tare.model.records.launches import LaunchRecord
from tare.model.records.slices import Slices
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.schema import parse
from tare.model.studies.layout import SEALED
from tare.model.studies.sections import Distributed
from tare.model.studies.study import SweepPart
from tare.stats.fits import step_values

pytestmark = pytest.mark.usefixtures("launch_cache")
NAMES = (HOST, CONTROL, "docker")
GIB = 1 << 30


@pytest.fixture(autouse=True)
def paced(monkeypatch):
    """Whatever the machine does meanwhile, the calibration sets the pace."""
    monkeypatch.setattr(sliced, "MOST_APART", math.inf)


@pytest.fixture
def pids(tmp_path):
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


class Guest(Fake):
    """A launch that nobody can hold from here."""


KERNEL = "it runs on a kernel of its own"


@pytest.fixture
def guests(monkeypatch):
    held = sliced.not_held
    monkeypatch.setattr(sliced, "not_held", lambda one: KERNEL if isinstance(one.environment, Guest) else held(one))


def setup_of(environments, arm=None, **settings):
    sites = {name: site(environment) for name, environment in environments.items()}
    return Setup(study=fakes.study(**settings), workload="mnist_cnn", sites=sites, arm=arm)


def run(folder, environments, **settings):
    """A campaign of fakes through the real one; what was sealed."""
    run_campaign(folder, rounds.rounds(setup_of(environments, **settings)))
    return read_sealed(folder / SEALED)


def fakes_of(pids, names=NAMES, **changes):
    return {name: Fake(pids, **changes) for name in names}


# --- launches of a round, without processes


class Stand(SimpleNamespace):
    """Stands for a record."""

    def replace(self, **values):
        return Stand(**{**vars(self), **values})


def held_one(name="tare-1", program=None, **more):
    """A launch between its start and its end; what is called on its parts is noted in `done`."""
    done = []
    talk = SimpleNamespace(
        pid=9,
        has_ended=None,
        kill=lambda: done.append("talk killed"),
        end=lambda *, timeout_s: done.append(("ended", timeout_s)) or more.get("ends"),
    )
    planned = SimpleNamespace(name=name, quota=more.get("quota"))
    environment = SimpleNamespace(own_limits=frozenset({"memory"}))
    one = launches._Held(
        prepared=SimpleNamespace(planned=planned, environment=environment, folder="/launch"),
        order=Order(site=None, program=program, conditions="asked"),
        barrier=SimpleNamespace(wait=lambda timeout_s, has_ended: 7, root=lambda: 42),
        gate="gate",
        talk=talk,
        finished=more.get("finished"),
    )
    return one, done


def job_of(done, **more):
    holder = SimpleNamespace(kill=lambda: done.append("holder killed"))
    kill, close = lambda: done.append("killed"), lambda: done.append("closed")
    return SimpleNamespace(**{"kill": kill, "close": close, "holder": holder, "ended_ns": 5, **more})


@pytest.fixture
def cleaned(monkeypatch):
    found = []
    monkeypatch.setattr(launches, "clean_up", lambda environment, planned: found.append(planned.name))
    return found


@pytest.fixture
def stood(monkeypatch, tmp_path):
    """Launches that nobody starts: `a` and `d` come to their first instruction, `b` does not, `c` is not there."""
    log = []

    class Lease:
        def __init__(self, name):
            pass

        def hold(self, notes):
            log.append(("lease", list(notes)))

        def renew(self):
            log.append("renewed")

        @contextlib.contextmanager
        def kept(self):
            log.append("kept")
            yield
            log.append("no longer kept")

        def end(self):
            log.append("lease ended")

    def ready(name, program, asked, *, pad_bytes, held):
        if name == "c":
            raise UnavailableError("there is none")
        folder = tmp_path / name
        folder.mkdir()
        log.append(("ready", name, asked.launch_timeout_s, pad_bytes, held))
        return contextlib.nullcontext(SimpleNamespace(folder=folder, start=lambda: name))

    def arrive(one, name, others, lease):
        log.append(("others", name, list(others)))
        if one.talk == "b":
            return "it did not come"
        one.notes, root = [f"{name}'s group"], 10 + ord(name)
        one.job = SimpleNamespace(name=name, root=root, mapped={"/lib/x"} if name == "a" else set())
        return None

    monkeypatch.setattr(launches, "Lease", Lease)
    monkeypatch.setattr(launches, "ready", ready)
    monkeypatch.setattr(launches, "_arrive", arrive)
    monkeypatch.setattr(launches, "_end", lambda one: log.append(("end", one.talk)))
    monkeypatch.setattr(launches, "_record", lambda one, reason: reason)
    monkeypatch.setattr(launches, "_closed", lambda name, one, found: f"{name} closed: {found.voided}")
    monkeypatch.setattr(launches, "_await_end", lambda one, renew: log.append(("awaited", one.talk)) or renew())
    monkeypatch.setattr(launches, "hold_all", lambda jobs: log.append(("hold", [job.name for job in jobs])))
    return log


def orders_of(names):
    asked = {name: conditions(launch_timeout_s=20.0 - number) for number, name in enumerate(names)}
    return {name: Order(site=name, program=None, conditions=asked[name], pad_bytes=3) for name in names}


def test_launches_that_came_are_run_in_the_rounds_order_and_the_others_are_told(stood, monkeypatch):
    def run_whole(jobs, order, limits):
        stood.append(("whole", [job.name for job in jobs], list(order), limits.own_s))
        limits.before(jobs[1])
        limits.ended(jobs[1])

    monkeypatch.setattr(launches, "run_whole", run_whole)
    told = {"arrived": lambda name, root: stood.append((name, root)), "before": lambda name: stood.append(name)}
    way = launches.Way(pace=None, orders=iter([(3, 2, 1, 0)]), seed="s", **told)
    found = launches.run_launches(orders_of("abcd"), way)
    assert [found.records[name] for name in "abd"] == ["a closed: None", "it did not come", "d closed: None"]
    assert (found.records["c"].status, found.records["c"].reason) == ("failed", "there is none")
    assert (found.voided, found.fault, found.mapped) == (None, None, {"a": {"/lib/x"}})
    assert stood == [
        ("ready", "a", 20.0, 3, True), ("others", "a", []), ("a", 107),
        ("ready", "b", 19.0, 3, True), ("others", "b", ["a's group"]),
        ("ready", "d", 17.0, 3, True), ("others", "d", ["a's group"]), ("d", 110),
        ("lease", ["a's group", "d's group"]), ("hold", ["a", "d"]),
        ("whole", ["a", "d"], [1, 0], 17.0), "kept", "d", "no longer kept", ("awaited", "d"), "renewed",
        ("end", "d"), ("end", "b"), ("end", "a"), "lease ended",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "fault"), [(launches.RoundVoid("it slept", "d"), "d"), (UnavailableError("it slept"), None)]
)
def test_a_round_that_is_void_says_why_and_whose_fault_it_is(stood, monkeypatch, error, fault):
    def run_round(jobs, pace, cycles, generator, limits):
        stood.append((next(cycles), next(cycles), pace, generator.random()))
        raise error

    monkeypatch.setattr(launches, "run_round", run_round)
    way = launches.Way(pace=Pace.equal("ad"), orders=itertools.cycle([(0, 1), (1, 0)]), seed="s")
    found = launches.run_launches(orders_of("ad"), way)
    assert (found.voided, found.fault) == ("it slept", fault)
    assert found.records == {"a": "a closed: it slept", "d": "d closed: it slept"}
    assert ([0, 1], [1, 0], way.pace, random.Random("s").random()) in stood


def test_first_parts_take_the_first_order_and_slices_those_after_it(stood, monkeypatch):
    monkeypatch.setattr(launches, "run_first_parts", lambda jobs, order, limits: stood.append(("first", order)))
    monkeypatch.setattr(launches, "run_round", lambda jobs, pace, cycles, *_: stood.append(("then", next(cycles))))
    pace = Pace.equal("ad")
    way = launches.Way(pace=pace, orders=iter([(1, 0), (0, 1)]), seed="s", whole_first=True)
    launches.run_launches(orders_of("ad"), way)
    assert [what for what in stood if what[0] in ("first", "then")] == [("first", [1, 0]), ("then", [0, 1])]


def test_where_no_launch_comes_nothing_is_run(stood):
    found = launches.run_launches(orders_of("bc"), launches.Way(pace=None, orders=iter([]), seed="s"))
    assert found.records["b"] == "it did not come" and found.records["c"].status == "failed"
    assert not any(what[0] in ("hold", "lease") for what in stood if isinstance(what, tuple))


class Held:
    """Stands for what `hold` gives."""

    def __init__(self, roots, name):
        self.roots, self.name, self.closed = roots, name, False
        if name == "refuses.servers":
            raise OSError("no such group")

    def note(self):
        return {"held": self.name}

    def clock(self):
        return {50: 5_000, 51: 7_000}

    def close(self):
        self.closed = True


@pytest.fixture
def arriving(monkeypatch):
    """`arrive(name, servers, refused)`: what was held and noted, and what a launch says of its coming."""

    def arrive(name="tare-1", servers=(), refused=None):
        one, made, noted = held_one(name)[0], [], []
        monkeypatch.setattr(launches.caller, "refused", lambda root, *, ours_alone: refused)
        monkeypatch.setattr(launches, "notes_of", lambda group: [{"may": group}])
        monkeypatch.setattr(launches, "note_stopped", lambda folder, notes: noted.append((folder, list(notes))))
        monkeypatch.setattr(launches, "servers_of", lambda launch, client, root: list(servers))
        monkeypatch.setattr(launches, "hold", lambda roots, name: made.append(Held(roots, name)) or made[-1])
        monkeypatch.setattr("tare.launch.slicing.slicer.os.pidfd_open", lambda root: -1)
        lease = SimpleNamespace(hold=lambda notes: noted.append(notes))
        return one, made, noted, launches._arrive(one, "docker", [{"may": "others"}], lease)

    return arrive


@pytest.mark.parametrize("servers", [(), (50, 51)])
def test_a_launch_that_has_come_is_held_with_its_servers(arriving, servers):
    one, made, noted, reason = arriving(servers=servers)
    may = [{"may": "tare-1"}, {"may": "tare-1.servers"}]
    held = [{"held": "tare-1"}, *([{"held": "tare-1.servers"}] if servers else [])]
    assert reason is None and (one.arrived_ns, one.servers, one.notes) == (7, len(servers), [*may, *held])
    assert [(each.roots, each.name) for each in made] == [
        ([42], "tare-1"), *([([50, 51], "tare-1.servers")] if servers else []),
    ]  # fmt: skip
    assert noted == [("/launch", may), [{"may": "others"}, *may], ("/launch", [*may, *held])]
    assert (one.job.name, one.job.root, one.job.holder, one.job.gate) == ("docker", 42, made[0], "gate")
    assert one.job.servers is (made[1] if servers else None)
    assert one.servers_ns == (12_000 if servers else 0), "what servers used before it came is not billed"


def test_a_launch_that_cannot_be_held_says_why_and_lets_go(arriving):
    one, made, _, reason = arriving("refuses", (50,))
    assert reason == "no such group" and one.job is None and made[0].closed
    one, made, _, reason = arriving(refused="it has other limits")
    assert reason == "it has other limits" and one.job is None and made == []


def test_limits_of_a_launch_alone_are_its_environments_and_its_quota():
    assert launches.ours_alone(held_one()[0]) == {"memory"}
    assert launches.ours_alone(held_one(quota="half")[0]) == {"memory", launches.caller.CPU_QUOTA}


def test_servers_are_those_around_a_launch_that_are_not_in_it(monkeypatch):
    below = {9: [42, 50, 51, 60], 42: [43]}
    names = {43: "squashfuse", 42: "squashfuse", 50: "fuse-overlayfs", 51: "conmon", 60: "squashfuse_ll"}
    monkeypatch.setattr(launches, "descendants", below.__getitem__)
    monkeypatch.setattr(launches, "carriers_of", lambda launch: [70, 43, 50] if launch == "tare-1" else [])
    names[70] = "fuse2fs"
    monkeypatch.setattr(launches, "text_of", lambda path: names[int(path.parent.name)])
    assert launches.servers_of("tare-1", 9, 42) == [50, 60, 70]


@dataclass(frozen=True)
class Ended:
    """What has ended, as far as it is asked for here."""

    ended_ns: int


@pytest.mark.parametrize(("ends", "renewed", "timeout_s"), [(True, 1, 1.0), (False, 3, 0.0)])
@pytest.mark.parametrize("job", [True, False])
def test_a_runtimes_end_is_awaited_for_a_while(monkeypatch, ends, renewed, timeout_s, job):
    clock, seen = iter([0.0, *([0.0] if ends else [20.0, 40.0, launches.END_S, launches.END_S])]), []
    monkeypatch.setattr(launches, "time", SimpleNamespace(monotonic=lambda: next(clock), monotonic_ns=lambda: 3))
    monkeypatch.setattr(launches, "RENEW_S", 0.0)
    monkeypatch.setattr(launches, "_left_running", lambda holder: 2)
    one, done = held_one(ends=Ended(ended_ns=5))
    one.job = job_of(done) if job else None
    never, ended = os.pipe(), os.pipe()
    os.write(ended[1], b"x")
    one.talk.descriptors = (-1, (ended if ends else never)[0])
    launches._await_end(one, lambda: seen.append(1))
    assert len(seen) == renewed and one.finished.ended_ns == (3 if ends else 5) and (one.left == 2) is job
    assert done == [("ended", timeout_s), *(["holder killed"] if job else [])]
    for handle in (*never, *ended):
        os.close(handle)


OK, BROKE = SimpleNamespace(ok=True, timed_out=False), SimpleNamespace(ok=False, timed_out=False)


@pytest.mark.parametrize("finished", [None, OK, BROKE])
@pytest.mark.parametrize("job", [True, False])
def test_what_is_left_of_a_launch_is_ended_unless_it_ended_well(cleaned, finished, job):
    one, done = held_one(finished=finished)
    one.job = job_of(done) if job else None
    launches._end(one)
    killed = [*(["killed"] if job else []), "talk killed"] if finished is not OK else []
    assert done == [*killed, *(["closed"] if job else [])] and one.job is None
    assert cleaned == ([] if finished is OK else ["tare-1"])


@pytest.mark.parametrize(
    ("finished", "own", "reason"),
    [
        (BROKE, "no such image", "no such image"),
        (BROKE, None, "it did not come"),
        (OK, "of no use", "it did not come"),
        (SimpleNamespace(ok=False, timed_out=True), "it was killed", "it did not come"),
    ],
)
def test_a_launch_that_never_ran_is_told_by_its_own_words_where_it_ended_by_itself(
    cleaned, monkeypatch, finished, own, reason
):
    monkeypatch.setattr(launches, "record_of", lambda ended, prepared, asked: Stand(ok=ended.ok, reason=own))
    one, done = held_one(ends=finished)
    assert launches._record(one, "it did not come") == Stand(ok=finished.ok, status="failed", reason=reason)
    assert done == [("ended", 1.0)] and cleaned == ["tare-1"] and one.finished is finished


@pytest.mark.parametrize("lacks", ["finished", "job", "ended_ns", None])
@pytest.mark.parametrize(("voided", "fault"), [(None, None), ("it slept", None), ("it hung", "docker")])
@pytest.mark.parametrize("program", [None, CommandProgram(["x"])])
def test_a_launch_of_a_round_has_its_own_time_or_the_reason_why_it_did_not_end(
    monkeypatch, lacks, voided, fault, program
):
    monkeypatch.setattr(launches, "record_of", lambda finished, prepared, asked: (finished, asked))
    monkeypatch.setattr(launches, "slices_of", lambda one, job: "its slices")
    monkeypatch.setattr(launches, "in_own_time", lambda record, slices: (record, slices))
    monkeypatch.setattr(launches, "_last_words", lambda one: "bye")
    one, done = held_one(program=program, finished=None if lacks == "finished" else OK)
    one.job = None if lacks == "job" else job_of(done, ended_ns=None if lacks == "ended_ns" else 5)
    found = launches._closed("docker", one, launches.Round(voided=voided, fault=fault))
    if lacks is None:
        assert found == ((OK, "asked"), "its slices")
        return
    words = ": bye" if fault and program else ""
    assert (found.status, found.inside) == ("failed" if fault else "stopped", None)
    assert found.reason == (voided or "its runtime did not end") + words


@pytest.mark.parametrize("job", [True, False])
def test_last_words_are_those_of_a_launch_that_was_ended(cleaned, monkeypatch, job):
    monkeypatch.setattr(launches, "last_lines", lambda finished: f"{finished} said bye")
    one, done = held_one(ends="it")
    one.job = job_of(done) if job else None
    assert launches._last_words(one) == "it said bye" and one.finished == "it"
    assert done == [*(["killed"] if job else []), ("ended", 1.0)] and cleaned == ["tare-1"]


def test_all_instants_of_a_launch_are_moved_to_its_own_time(monkeypatch):
    monkeypatch.setattr(launches, "own_results", lambda results, slices: (results, slices))
    slices = SimpleNamespace(own_ns=lambda at_ns: at_ns / 2)
    moves = SimpleNamespace(moved=lambda to: (to(30), type(to(30))))
    whole = Stand(end_ns=20, steps=None, inside=None)
    ended = Stand(end_ns=10, steps=None, inside=None, slices=slices)
    assert launches.in_own_time(whole, slices) == ended
    assert launches.in_own_time(whole.replace(end_ns=None), slices) == whole.replace(end_ns=None)
    stepped = launches.in_own_time(whole.replace(steps=moves), slices)
    assert stepped == ended.replace(steps=(15, int))
    seen = launches.in_own_time(whole.replace(inside=Stand(marks=(moves,), results="r")), slices)
    assert seen == ended.replace(inside=Stand(marks=((15, int),), results=("r", slices)))


# --- what can't be sliced, before anything has run


class Streams(Fake):
    title = "Streams"
    transport = "channel"


REFUSED = {
    "a device": ("single", "cuda", "warm", "queued on a GPU"),
    "another scenario": ("busy_core", "cpu", "warm", "scenario busy_core"),
    "a scenario of any name": ("two_jobs", "cpu", "warm", "scenario two_jobs"),
    "a cold page cache": ("single", "cpu", "cold", "the page cache is cold"),
}
APART = {
    "streams alone": (Streams, "it shares no files with this machine"),
    "none": (Fake, None),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_sliced_is_refused_with_its_reason(what):
    scenario, device, page_cache, says = REFUSED[what]
    assert says in sliced.refusal(scenario, device, page_cache)


@pytest.mark.parametrize("what", APART)
def test_a_launch_that_cannot_be_held_is_refused_alone(what, pids):
    kind, says = APART[what]
    sites = {HOST: site(Fake(pids)), "docker": site(kind(pids))}
    assert sliced.refusals(sites) == ({"docker": says} if says else {})


def test_what_can_be_sliced_is_not_refused(monkeypatch):
    monkeypatch.setattr(sliced, "quota_here", lambda: None)
    monkeypatch.setattr(sliced, "machine_hierarchies", list)
    monkeypatch.setattr(sliced.os, "geteuid", lambda: 0)
    for page_cache in ("warm", "as_found"):
        assert sliced.refusal("single", "cpu", page_cache) is None
    monkeypatch.setattr(sliced.os, "geteuid", lambda: 1000)
    assert "can't freeze control groups" in sliced.refusal("single", "cpu", "warm")
    monkeypatch.setattr(sliced, "quota_here", lambda: "/groups/cpu.max")
    assert "(/groups/cpu.max)" in sliced.refusal("single", "cpu", "warm")


@pytest.mark.parametrize(
    ("version", "name", "quota", "none"),
    [(2, "cpu.max", "50000 100000", "max 100000"), (1, "cpu.cfs_quota_us", "50000", "-1")],
)
@pytest.mark.parametrize("place", ["outer", "outer/inner"])
def test_a_quota_of_a_group_above_is_found_in_both_versions(
    tmp_path, monkeypatch, version, name, quota, none, place
):
    (tmp_path / "outer/inner").mkdir(parents=True)
    for folder in ("outer", "outer/inner"):
        (tmp_path / folder / name).write_text(f"{none}\n")
    chain = [
        Group(folder=tmp_path / each, version=version, controllers=frozenset({"cpu"}), path=f"/{each}")
        for each in ("outer/inner", "outer", ".")
    ]
    monkeypatch.setattr(sliced, "group_chains", lambda: [chain])
    assert sliced.quota_here() is None
    (tmp_path / place / name).write_text(f"{quota}\n")
    assert sliced.quota_here() == str(tmp_path / place / name)


# --- what the calibration decides


def test_the_first_unit_runs_each_launch_whole_and_those_after_it_are_sliced(tmp_path, pids):
    found = run(tmp_path / "c", fakes_of(pids))
    first, *counted = found.units
    assert found.plan.slicing_refused is None and first.discarded and len(counted) == 3
    assert [unit.voided for unit in found.units] == [None] * 4
    assert first.slicing["pace"] is None and first.slicing["refused"] is None
    for launch in first.launches.values():
        assert launch.ok and not launch.slices.is_sliced and len(launch.slices.began_us) == 1
    spans = []
    for unit in counted:
        assert unit.slicing["refused"] is None and set(unit.slicing["pace"]) == set(NAMES)
        for name in NAMES:
            launch = unit.launches[name]
            assert launch.ok and launch.slices.is_sliced and len(launch.slices.began_us) > 1
            assert sum(phases_of(launch)) == pytest.approx(launch.slices.body_s, abs=1e-5)
            arrived = launch.slices.arrived_ns
            spans += [
                (arrived + 1000 * began, arrived + 1000 * (began + length))
                for began, length in zip(launch.slices.began_us, launch.slices.quiet_us, strict=True)
            ]
        (count,) = {len(measured_steps(launch, "steady")) for launch in unit.launches.values()}
        assert 6 <= count <= 14, "by processor time, of which a busy machine takes somewhat more"
        assert set(step_values(unit, "steady")) == set(NAMES)
    spans.sort()
    assert all(end <= began + 1000 for (_, end), (began, _) in itertools.pairwise(spans)), "one at a time"
    assert still_running(pids) == []
    assert [view.level for view in views(found)] == [None, "steady"]


def test_the_first_sliced_round_is_paced_by_processor_time_and_later_ones_by_what_was_billed(tmp_path, pids):
    environments = fakes_of(pids)
    environments["docker"].work_s = 0.36
    found = run(tmp_path / "c", environments)
    first, *counted = found.units
    pace = counted[0].slicing["pace"]
    for name in NAMES:
        assert pace[name] == [first.launches[name].slices.cpu_s]
    assert pace["docker"][0] - pace[HOST][0] == pytest.approx(0.24, abs=0.06)
    bodies = [unit.launches["docker"].slices.body_s for unit in counted]
    assert counted[1].slicing["pace"]["docker"] == [bodies[0]]
    assert counted[2].slicing["pace"]["docker"] == [pytest.approx((bodies[0] + bodies[1]) / 2)]
    ends = {name: counted[2].launches[name].slices.ended_ns for name in NAMES}
    assert max(ends.values()) - min(ends.values()) < 0.5 * sum(
        1e9 * launch.slices.body_s for launch in counted[2].launches.values()
    ), "the longer job has longer slices"


def test_the_number_of_measured_steps_follows_from_the_calibration(tmp_path, pids):
    environments = fakes_of(pids, step_s=0.01)
    steps = {"levels": ["steady", "default"], "replicates": 1, "warmup_steps": 2, "seconds": 0.12}
    run(tmp_path / "c", environments, steps=steps, units=2)
    asked = [spec["measured"] for spec in environments[HOST].specs]
    assert [one["steps"] for one in asked] == [Measured.fewest, *[pytest.approx(12, abs=2)] * 2]
    assert asked[1]["steps"] == asked[2]["steps"], "of the same calibration"
    assert {(tuple(one["levels"]), one["replicates"], one["warmup_steps"]) for one in asked} == {
        (("steady", "default"), 1, 2)
    }
    assert all(
        fake.specs[number]["measured"] == asked[number] for fake in environments.values() for number in (0, 1)
    )


@pytest.mark.parametrize(
    ("seconds", "step_s", "steps"),
    [(0.6, 0.05, 12), (0.6, 0.049, 12), (0.6, 1.0, 4), (0.6, 30.0, 4), (1.0, 0.001, 200), (60.0, 1e-9, 200)],
)
def test_steps_fill_their_seconds_within_bounds(seconds, step_s, steps):
    assert Measured(seconds=seconds).steps_in(step_s) == steps


def test_without_steps_nothing_is_measured_after_the_epoch(tmp_path, pids):
    environments = fakes_of(pids)
    found = run(tmp_path / "c", environments, steps=None, units=2)
    assert not any("measured" in spec for fake in environments.values() for spec in fake.specs)
    assert found.plan.measured is None and [view.level for view in views(found)] == [None]


def test_a_job_that_waits_is_not_sliced_and_its_units_say_why(tmp_path, pids):
    environments = fakes_of(pids, faults=dict.fromkeys(range(9), "wait"), work_s=0.4)
    found = run(tmp_path / "c", environments, units=2)
    assert len(found.counted) == 2 and found.plan.slicing_refused is None
    for unit in found.counted:
        assert "was idle in" in unit.slicing["refused"] and unit.slicing["pace"] is None
        assert all(launch.ok and not launch.slices.is_sliced for launch in unit.launches.values())


def test_a_first_unit_that_waits_as_for_a_cold_disk_is_made_once_more(tmp_path, pids):
    environments = fakes_of(pids, faults={0: "wait"}, work_s=0.4)
    found = run(tmp_path / "c", environments, units=2)
    first, second, *counted = found.units
    assert "so the round is repeated" in first.voided and second.voided is None and second.discarded
    assert len(counted) == 2 and all(unit.counts and unit.slicing["refused"] is None for unit in counted)
    assert all(launch.slices.is_sliced for unit in counted for launch in unit.launches.values())


def test_what_cannot_be_held_has_units_of_its_own_beside_both_hosts(tmp_path, pids, guests):
    environments = {**fakes_of(pids), "qemu": Guest(pids)}
    found = run(tmp_path / "c", environments, units=2, discarded=0)
    assert found.plan.slicing_refused is None
    assert found.plan.unsliced == {"qemu": KERNEL}
    first, *counted = found.units
    assert first.discarded and all(launch.ok for launch in first.launches.values()), "all files are read once"
    ran = [{name for name, launch in unit.launches.items() if launch.ok} for unit in counted]
    assert ran == [set(NAMES), {HOST, CONTROL, "qemu"}] * 2, "two of each"
    for unit in counted:
        for launch in unit.launches.values():
            assert (launch.slices is not None and launch.slices.is_sliced) == (
                launch.ok and not unit.launches["qemu"].ok
            )
            assert not launch.ok or len(measured_steps(launch, "steady")) >= 4
    view = next(view for view in views(found) if view.level == "steady")
    for seen in (found, view):
        assert is_sliced(seen) and is_sliced(seen, "docker") and not is_sliced(seen, "qemu")
        assert unsliced_reason(seen, "docker") is None
        assert unsliced_reason(seen, "qemu") == KERNEL
    assert still_running(pids) == []


def test_a_launch_whose_bills_differ_in_the_first_sliced_round_is_no_longer_sliced(tmp_path, pids, monkeypatch):
    named = iter([["docker"]])
    both = lambda launches, margins: next(named, []) if launches[HOST].slices.is_sliced else []  # noqa: E731
    monkeypatch.setattr(sliced, "bills_apart", both)
    found = run(tmp_path / "c", fakes_of(pids, (*NAMES, "podman"), work_s=0.05), units=6, steps=None)
    ran = [
        {
            name: bool(launch.slices and launch.slices.is_sliced)
            for name, launch in unit.launches.items()
            if launch.ok
        }
        for unit in found.counted
    ]
    assert ran[0] == dict.fromkeys((*NAMES, "podman"), True)
    assert ran[1] == dict.fromkeys(NAMES, False) and ran[2] == dict.fromkeys((HOST, CONTROL, "podman"), True)
    rows = verdict_rows(found, pd.DataFrame(campaign_metrics(found)))
    seen = {
        row["launch"]: (row["sliced"], row["n_units"], row["unsliced_reason"])
        for row in rows
        if row["metric"] == "real_s"
    }
    assert seen["podman"] == (True, 6, None)
    assert (
        seen["docker"][:2] == (False, sum("docker" in names for names in ran[1:]))
        and "two ways" in seen["docker"][2]
    )


def test_verdicts_of_a_campaign_in_part_of_slices_say_which(tmp_path, pids, guests):
    found = run(
        tmp_path / "c", {**fakes_of(pids, work_s=0.05), "qemu": Guest(pids, work_s=0.05)}, units=6, steps=None
    )
    rows = {
        row["launch"]: row
        for row in verdict_rows(found, pd.DataFrame(campaign_metrics(found)))
        if row["metric"] == "real_s"
    }
    assert {env: (row["sliced"], row["n_units"]) for env, row in rows.items()} == {
        "docker": (True, 6),
        "qemu": (False, 6),
    }
    assert rows["qemu"]["unsliced_reason"] == KERNEL
    apart = [unit for unit in found.counted if unit.launches["qemu"].ok]
    logs = [math.log(real_s(unit.launches[CONTROL]) / real_s(unit.launches[HOST])) for unit in apart]
    assert math.log(rows["qemu"]["control_ratio"]) == pytest.approx(statistics.fmean(logs)), "of its own units"
    beside = whole_run_estimate(found, CONTROL, HOST, [unit.unit for unit in found.counted if unit not in apart])
    assert math.log(rows["docker"]["control_ratio"]) == pytest.approx(beside.mean), "of those in slices"


def test_a_campaign_whose_host_cannot_be_held_is_launched_one_after_the_other(pids):
    design = rounds.rounds(setup_of({HOST: Streams(pids), CONTROL: Streams(pids), "docker": Fake(pids)}))
    assert design.plan.slicing_refused == "it shares no files with this machine" and design.plan.unsliced == {}


def test_a_first_round_that_the_calibration_cant_pace_sets_the_pace_and_does_not_count(tmp_path, pids, monkeypatch):
    monkeypatch.setattr(sliced, "MOST_APART", -1.0)
    found = run(tmp_path / "c", fakes_of(pids))
    first, rehearsal, *counted = found.units
    assert first.voided is None and rehearsal.empty_launches == ()
    assert "only calibrates the slices" in rehearsal.voided
    assert rehearsal.slicing["pace"] == {name: [1.0] for name in NAMES}, "equal for all"
    assert all(launch.slices.is_sliced for launch in rehearsal.launches.values())
    lengths = {name: [rehearsal.launches[name].slices.body_s] for name in NAMES}
    assert counted[0].slicing["pace"] == lengths
    assert len(counted) == 3 and list(found.counted) == counted


# --- memory


def test_small_memory_takes_both_hosts_and_as_many_as_fit():
    names = [HOST, CONTROL, "docker", "apptainer", "podman"]
    assert groups_of(names, None) == groups_of(names, 5) == [names]
    assert groups_of(names, 4) == [[HOST, CONTROL, "docker", "apptainer"], [HOST, CONTROL, "podman"]]
    alone = [[HOST, CONTROL, name] for name in ("docker", "apptainer", "podman")]
    assert groups_of(names, 3) == groups_of(names, 1) == alone, "less than three is no comparison"
    assert groups_of([HOST, CONTROL], 1) == [[HOST, CONTROL]]


def test_an_arms_launch_stays_beside_its_baseline():
    names = [HOST, CONTROL, "docker", "apptainer", "docker.headline", "apptainer.headline"]
    assert groups_of(names, 4) == [
        [HOST, CONTROL, "docker", "docker.headline"],
        [HOST, CONTROL, "apptainer", "apptainer.headline"],
    ]
    moved = [HOST, CONTROL, "docker", "host.headline"]
    assert groups_of(moved, 3) == [moved]


def test_launches_that_do_not_fit_in_memory_together_take_turns_in_rounds(tmp_path, pids, monkeypatch):
    """Process and replicate take 1 GiB each; 7.9 GiB are there at first, later more, which changes nothing."""
    rooms = iter([int(7.9 * GIB)])
    monkeypatch.setattr(sliced, "available_memory_bytes", lambda: next(rooms, 99 * GIB))
    environments = fakes_of(pids, (*NAMES, "podman"), peak_rss_bytes=GIB)
    found = run(tmp_path / "c", environments, units=2)
    first, *counted = found.units
    assert first.slicing["together"] == 3 and {name for name, launch in first.launches.items() if launch.ok} == {
        *NAMES,
        "podman",
    }
    ran = [{name for name, launch in unit.launches.items() if launch.ok} for unit in counted]
    assert ran == [{HOST, CONTROL, other} for other in ("docker", "podman")] * 2
    assert found.sealed.units == 4, "two rounds of every environment"
    assert (
        counted[0].launches["podman"].status == "skipped"
        and "other launches" in counted[0].launches["podman"].reason
    )
    assert found.sealed.failures == {}


def test_a_pilot_of_launches_that_do_not_fit_together_is_whole_for_each_environment(tmp_path, pids, monkeypatch):
    monkeypatch.setattr(sliced, "available_memory_bytes", lambda: 4 * GIB)
    environments = fakes_of(pids, (*NAMES, "podman"), peak_rss_bytes=GIB - 1, work_s=0.02)
    found = run(tmp_path / "c", environments, units=None, pilot=6, half_width=0.9, steps=None)
    for name in ("docker", "podman"):
        assert sum(unit.launches[name].ok for unit in found.counted[:12]) == 6
    assert found.sealed.decision.units == len(found.counted) == 12


def test_memory_of_a_launch_is_its_process_and_its_largest_child_or_replicate(tmp_path, pids):
    found = run(tmp_path / "c", fakes_of(pids, peak_rss_bytes=5000), units=2)
    launch = found.units[0].launches[HOST]
    assert sliced.memory_of(launch) == 10000
    inside = launch.inside.replace(memory=launch.inside.memory.replace(children_peak_rss_bytes=7000))
    assert sliced.memory_of(launch.replace(inside=inside)) == 12000
    seen = launch.replace(inside=None, slices=launch.slices.replace(memory_bytes=3000))
    assert sliced.memory_of(seen) == 3000, "of a command what was seen of it from outside"
    assert sliced.memory_of(seen.replace(slices=None)) == 0


def group_with_limit(folder, version, limit, taken):
    """A folder of cgroups, as version 1 or 2 names its files; 7 bytes can be taken back."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}[version]
    for name, value in zip(names, (limit, taken), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text("anon 1\n" + ("total_" if version == 1 else "") + "inactive_file 7\n")


@pytest.mark.parametrize(
    ("version", "kind", "own"),
    [
        (1, "cgroup cgroup rw,memory", "9:cpu,memory:/outer/inner"),
        (2, "cgroup2 none rw,nsdelegate", "0::/outer/inner"),
    ],
)
@pytest.mark.parametrize(("origin", "point"), [("/", ""), ("/outer", "outer"), ("/outer/inner", "outer/inner")])
def test_a_limit_of_memory_counts_as_well_as_the_machines(tmp_path, monkeypatch, version, kind, own, origin, point):
    """Seen whole, or in a container that is shown its part of the tree."""
    mounts, groups = tmp_path / "mountinfo", tmp_path / "cgroup"
    other = f"32 31 0:29 / {tmp_path / 'elsewhere'} rw - cgroup cgroup rw,cpu\n"
    mounts.write_text(f"{other}35 31 0:32 {origin} {tmp_path / point} rw shared:9 - {kind}\n")
    groups.write_text(f"8:pids:/\n{own}\n")
    group_with_limit(tmp_path / "outer", version, 100, 30)
    group_with_limit(tmp_path / "outer/inner", version, "max" if version == 2 else 1 << 62, 5)
    monkeypatch.setattr(memory, "group_chains", lambda: group_chains(tmp_path, mounts))
    found = [room for chain in memory.group_chains() for room in memory.room_in(chain) if room < 1 << 40]
    assert found == ([] if origin == "/outer/inner" else [77])
    assert (sliced.available_memory_bytes() == 77) == bool(found)
    groups.write_text("8:pids:/\n")
    assert list(memory.group_chains()) == [] and sliced.available_memory_bytes() > 1 << 20


def test_a_limit_of_memory_that_has_ended_a_process_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "VMSTAT", tmp_path / "vmstat")
    monkeypatch.setattr(memory, "limits_of", dict)
    (tmp_path / "vmstat").write_text("oom_kill 3\n")
    before = memory.oom_kills()
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 4\noom_kill_other 9\n")
    assert before == 3 and memory.limit_was_hit(3) is None, "it is the machine's memory that was short"
    limit = caller.Limit(value=f"{1200 << 20} bytes", where="/groups/memory.max")
    monkeypatch.setattr(memory, "limits_of", lambda: {caller.MEMORY: limit})
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert memory.limit_was_hit(4) is None
    assert memory.limit_was_hit(3) == (
        "the kernel ended a process for lack of memory: this session may use 1,200 MiB "
        "(/groups/memory.max); raise that, or measure a smaller job"
    )
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    said = memory.limit_was_hit(3)
    assert (
        said.startswith("Slurm job 12 on n1: ") and "may use 1,200 MiB; raise `memory_mib` of its machine" in said
    )


@pytest.mark.parametrize(
    "said",
    [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.4. Some of the step tasks have been OOM Killed",
        "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=12.4. Some of your processes may have been",
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 12.4 cgroup. Some of your processes may have",
    ],
)
def test_a_step_that_ran_out_of_memory_is_named_as_slurm_says_it(monkeypatch, said):
    limit = caller.Limit(value=f"{1200 << 20} bytes", where="/groups/memory.max")
    monkeypatch.setattr(memory, "limits_of", lambda: {caller.MEMORY: limit})
    found = memory.limit_was_hit_in_step(f"a line\n{said}\nsrun: error: n2: task 0: Out Of Memory\n")
    assert found == (
        "Slurm step 12.4: the kernel ended a process for lack of memory: the job may use 1,200 MiB of a node; "
        "raise `memory_mib` of its machine in `machines`, name nodes with more, or measure a smaller job"
    )
    assert memory.limit_was_hit_in_step("srun: error: n2: task 0: Killed") is None
    monkeypatch.setattr(memory, "limits_of", dict)
    assert memory.limit_was_hit_in_step(said) is None, "it is the machine's memory that was short"


# --- CPUs of the measured steps


@pytest.mark.parametrize(
    ("threads", "cpus", "cores"),
    [
        (1, [2, 3, 5, 7], [[2], [3], [5], [7], [2]]),
        (2, [2, 3, 5, 7], [[2, 3], [3, 5], [5, 7], [2, 7], [2, 3]]),
        (4, [2, 3, 5, 7], [[2, 3, 5, 7]] * 5),
        (1, [2, 3], [[2], [3], [2], [3], [2]]),
    ],
)
def test_measured_steps_take_other_cpus_from_round_to_round(threads, cpus, cores, monkeypatch):
    monkeypatch.setattr(sliced, "choose_cpus", lambda count: cpus[:count])
    plan = SimpleNamespace(conditions=conditions(cpus=len(cpus), threads=threads))
    assert [sliced.measured_cpus(plan, number) for number in range(5)] == cores


# --- plans and journals


def test_equal_studies_have_equal_plans_and_steps_are_a_part_of_them(pids):
    one, other = (rounds.rounds(setup_of(fakes_of(pids))).plan for _ in range(2))
    assert asked_of(one) == asked_of(other) and one.measured == Measured(replicates=2, warmup_steps=1, seconds=0.05)
    for change in ({"steps": None}, {"steps": {"levels": ["default"]}}):
        assert asked_of(rounds.rounds(setup_of(fakes_of(pids), **change)).plan) != asked_of(one)
    assert json.loads(json.dumps(one.to_json())) == one.to_json()


def test_an_interrupted_campaign_goes_on_with_its_calibration(tmp_path, pids):
    class Ends(Fake):
        def command(self, launch):
            if self.launched == 2 and (launch.workdir / "spec.json").exists():
                raise KeyboardInterrupt
            return super().command(launch)

    environments = fakes_of(pids) | {"docker": Ends(pids)}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "c", environments)
    assert still_running(pids) == []
    before = (tmp_path / "c" / UNITS).read_text()
    kept = read_rows(tmp_path / "c").units
    assert [unit.discarded for unit in kept] == [True, False]
    found = run(tmp_path / "c", fakes_of(pids))
    assert (tmp_path / "c" / UNITS).read_text().startswith(before)
    assert [unit.discarded for unit in found.units] == [True, False, False, False]
    assert found.units[2].slicing["pace"][HOST] == [kept[1].launches[HOST].slices.body_s]
    seeds = [unit.slicing["seed"] for unit in found.units]
    assert len(set(seeds)) == 4 and len({seed.split("/")[0] for seed in seeds}) == 1


# --- launches that fail


def test_one_that_fails_is_a_record_and_the_others_go_on(tmp_path, pids):
    environments = fakes_of(pids)
    environments["docker"].faults = {2: "exit"}
    found = run(tmp_path / "c", environments)
    assert [unit.launches["docker"].status for unit in found.units] == ["ok", "ok", "failed", "ok"]
    assert "the framework broke" in found.units[2].launches["docker"].reason
    assert [unit.voided for unit in found.units] == [None] * 4
    assert all(unit.launches[name].ok for unit in found.units for name in (HOST, CONTROL))
    assert still_running(pids) == []


def test_an_environment_that_fails_twice_in_a_row_is_given_up(tmp_path, pids):
    environments = fakes_of(pids)
    environments["docker"].faults = {1: "die", 2: "die"}
    found = run(tmp_path / "c", environments)
    assert [unit.launches["docker"].status for unit in found.units] == ["ok", "failed", "failed", "skipped"]
    assert "given up after 2 failures in a row" in found.units[3].launches["docker"].reason
    assert environments["docker"].launched == 3 and set(step_values(found.units[3], "steady")) == {HOST, CONTROL}


class Refused(Fake):
    """Its runtime never comes to the program's first instruction."""

    runtime = "echo fatal: no such image >&2; exit 7"

    def command(self, launch: Launch) -> list[str]:
        return ["sh", "-c", self.runtime]


class Hung(Refused):
    runtime = "exec sleep 600"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Refused, "sh ended with status 7: fatal: no such image"),
        (Hung, "its program's first instruction did not come within 2 s"),
    ],
)
def test_a_runtime_that_starts_no_program_is_told_by_its_own_words(tmp_path, pids, monkeypatch, kind, reason):
    monkeypatch.setattr(launches, "START_S", 2.0)
    environments = {**fakes_of(pids, (HOST, CONTROL)), "docker": kind(pids)}
    found = run(tmp_path / "c", environments, units=2)
    seen = [unit.launches["docker"] for unit in found.units]
    assert [one.reason for one in seen[:2]] == [reason, reason]
    assert seen[2].reason == f"given up after 2 failures in a row: {reason}"
    assert reason in found.sealed.failures["docker"]


def test_one_that_hangs_ends_at_its_own_time_and_leaves_nobody(tmp_path, pids):
    environments = fakes_of(pids)
    environments["docker"].faults = {1: "hang", 2: "hang"}
    design = rounds.rounds(setup_of(environments, units=2))
    hurried = design.plan.conditions.replace(launch_timeout_s=2.0)
    run_campaign(tmp_path / "c", replace(design, plan=design.plan.replace(conditions=hurried)))
    found = read_sealed(tmp_path / "c" / SEALED)
    hung = [unit for unit in found.units if unit.voided is not None]
    assert hung and all(unit.voided.startswith("docker was still running after 2 s of its own") for unit in hung)
    assert {unit.launches["docker"].status for unit in hung} == {"failed"}
    assert all(step_values(unit, "steady") == {} for unit in hung)
    assert len(found.counted) == 2 and still_running(pids) == []


def test_one_that_runs_with_other_threads_is_refused(tmp_path, pids):
    environments = fakes_of(pids)
    environments["docker"].faults = {1: "threads"}
    found = run(tmp_path / "c", environments)
    assert found.units[1].launches["docker"].reason == "refused: threads 7, asked for 1"
    assert found.units[2].launches["docker"].ok


def test_a_host_that_fails_leaves_its_reason_and_nothing_to_compare_with(tmp_path, pids):
    environments = fakes_of(pids)
    environments[HOST].faults = dict.fromkeys(range(9), "die")
    found = run(tmp_path / "c", environments)
    assert "SIGKILL" in found.sealed.failures[HOST] and still_running(pids) == []
    assert all(set(step_values(unit, "steady")) == {CONTROL, "docker"} for unit in found.counted)
    assert {spec["measured"]["steps"] for spec in environments["docker"].specs} == {Measured.fewest}


def test_units_of_a_round_are_read_back_as_they_were_written(tmp_path, pids):
    found = run(tmp_path / "c", fakes_of(pids), units=2)
    for unit in found.units:
        assert parse(Unit, unit.to_json(), "unit") == unit
    slices = found.counted[0].launches[HOST].slices
    with pytest.raises(Exception, match="overlap"):
        parse(type(slices), copy.deepcopy(slices.to_json()) | {"began_us": [0] * len(slices.began_us)}, "slices")


# --- what earlier units decide


def held(seconds, cpu_s=None, *, sliced=True, gate_s=None):
    """A launch in slices, or in one."""
    us = round(1e6 * seconds)
    slices = Slices(
        means="cgroup2",
        spawn_ns=0,
        arrived_ns=0,
        ended_ns=1000 * us,
        end_ns=1000 * us,
        began_us=(0,),
        length_us=(us,),
        quiet_us=(us,),
        quantum_ms=(40 if sliced else 0,),
        waited_us=(0,),
        cpu_us=(round(1e6 * (cpu_s or seconds)),),
        gates_us=() if gate_s is None else (round(1e6 * gate_s),),
        gates_cpu_us=() if gate_s is None else (round(1e6 * gate_s),),
    )
    return LaunchRecord(status="ok", reason=None, inside=None, deviations=(), slices=slices)


def unit_of(number, launches, *, discarded=False, voided=None, rehearsal=False, unsliced=()):
    return Unit(
        unit=number,
        discarded=discarded,
        voided=voided,
        cost_s=1.0,
        order=tuple(launches),
        launches=launches,
        slicing={"pace": None if discarded else {}, "rehearsal": rehearsal, "unsliced": list(unsliced)},
    )


def calibrated(**seconds):
    return unit_of(0, {name: held(value, sliced=False) for name, value in seconds.items()}, discarded=True)


def test_only_hosts_that_differ_ask_for_a_rehearsal(monkeypatch):
    monkeypatch.setattr(sliced, "MOST_APART", 0.03)
    alike = calibrated(**{HOST: 1.0, CONTROL: 1.02, "docker": 3.0})
    assert sliced.rehearses([alike], alike) is None
    apart = calibrated(**{HOST: 1.0, CONTROL: 1.1, "docker": 1.0})
    assert "differed by 10%" in sliced.rehearses([apart], apart)
    done = [apart, unit_of(1, {HOST: held(1.0)}, voided="sets the pace", rehearsal=True)]
    assert sliced.rehearses(done, apart) is None, "one is enough"
    failed = [apart, unit_of(1, {HOST: held(1.0)}, voided="it did not stop")]
    assert sliced.rehearses(failed, apart) is not None, "it was none"


def test_the_pace_is_that_to_the_first_gate():
    first = calibrated(**{HOST: 1.0, CONTROL: 1.0, "docker": 2.0})
    names = [HOST, CONTROL, "docker"]
    assert sliced.pace_of([first], names).phases == {HOST: (1.0,), CONTROL: (1.0,), "docker": (2.0,)}
    rounds_of = [
        unit_of(
            number, {HOST: held(9.0, gate_s=gate), CONTROL: held(9.0, gate_s=4.0), "docker": held(9.0, gate_s=8.0)}
        )
        for number, gate in ((1, 3.0), (2, 4.0), (3, 9.0))
    ]
    assert sliced.pace_of([first, *rounds_of], names).phases == {HOST: (4.0,), CONTROL: (4.0,), "docker": (8.0,)}


def test_the_first_round_of_another_group_is_paced_by_the_calibration():
    """Both hosts took twice as long in slices as it says."""
    first = calibrated(**{HOST: 1.0, CONTROL: 1.0, "docker": 1.5, "podman": 3.0})
    done = [first, unit_of(1, {HOST: held(2.0), CONTROL: held(2.0), "docker": held(3.0)})]
    found = sliced.pace_of(done, [HOST, CONTROL, "podman"])
    assert found.phases == {HOST: (2.0,), CONTROL: (2.0,), "podman": (6.0,)}


def test_where_both_hosts_failed_in_slices_the_next_round_has_an_equal_pace():
    first = calibrated(**{HOST: 1.0, CONTROL: 1.0, "docker": 1.5})
    names = [HOST, CONTROL, "docker"]
    done = [first, unit_of(1, {"docker": held(3.0)})]
    assert sliced.pace_of(done, names) == Pace.equal(names)


def test_empty_launches_are_in_either_order_and_of_those_that_succeeded(monkeypatch):
    asked, voided = [], iter([None, "it did not stop"])

    def run_launches(orders, way):
        asked.append((list(orders), [one.program for one in orders.values()], next(iter(way.orders))))
        one = held(3.0, sliced=False)
        ends = one.slices.replace(spawn_ns=-(10**9), end_ns=one.slices.ended_ns + len(asked) * 10**9)
        return SimpleNamespace(voided=next(voided), records=dict.fromkeys(orders, one.replace(slices=ends)))

    monkeypatch.setattr(sliced, "run_launches", run_launches)
    order = Order(site=None, program=None, conditions=None)
    wanted = dict.fromkeys([HOST, CONTROL, "docker", "podman"], order)
    records = {HOST: held(1.0), CONTROL: held(1.0), "docker": held(1.0).replace(status="failed", reason="it died")}
    group = {"start_s": 1.0, "exit_s": 1.0}
    assert list(sliced.empty_launches(wanted, records)) == [{CONTROL: group, HOST: group}]
    assert asked == [
        ([CONTROL, HOST], [sliced.NOTHING] * 2, (0, 1)),
        ([HOST, CONTROL], [sliced.NOTHING] * 2, (0, 1)),
    ]


def test_a_group_of_empty_launches_in_which_one_fails_is_left_out(monkeypatch):
    one = held(3.0, sliced=False)
    groups, orders_of = iter([one.replace(status="failed", reason="it died"), one.replace(slices=None), one]), []

    def run_launches(orders, way):
        orders_of.append(list(orders))
        return SimpleNamespace(voided=None, records={HOST: one, CONTROL: next(groups)})

    monkeypatch.setattr(sliced, "run_launches", run_launches)
    monkeypatch.setattr(sliced, "EMPTY_LAUNCHES", 3)
    asked = dict.fromkeys([HOST, CONTROL], Order(site=None, program=None, conditions=None))
    (group,) = sliced.empty_launches(asked, dict.fromkeys(asked, one))
    assert set(group) == {HOST, CONTROL} and orders_of == [[CONTROL, HOST], [HOST, CONTROL], [CONTROL, HOST]]


def test_a_rehearsal_is_no_void_round():
    first = calibrated(**{HOST: 1.0, CONTROL: 1.0})
    void = [unit_of(number, {}, voided="it did not stop") for number in range(1, 3)]
    rehearsal = unit_of(3, {}, voided="sets the pace", rehearsal=True)
    assert sliced.often_void([first, *void, rehearsal]) is None
    assert "it did not stop" in sliced.often_void([first, *void, unit_of(3, {}, voided="it did not stop")])
    assert sliced.hopeless([*void, rehearsal, *void, void[0]]) is None


def test_each_launch_is_judged_by_its_first_sliced_round(tmp_path, pids):
    plan = rounds.rounds(setup_of(fakes_of(pids, (*NAMES, "podman", "docker.headline")))).plan
    first = calibrated(**{HOST: 1.0, CONTROL: 1.0})
    one = unit_of(1, {HOST: held(1.0), CONTROL: held(1.0), "podman": held(1.0)})
    two = unit_of(2, {HOST: held(1.0), CONTROL: held(1.0), "docker": held(1.0)}, unsliced=["docker"])
    late = unit_of(3, {HOST: held(1.0), CONTROL: held(1.0), "podman": held(1.0)}, unsliced=["podman"])
    assert unsliced(plan, [first, one]) == {}
    apart = unsliced(plan, [first, one, two, late])
    assert set(apart) == {"docker", "docker.headline"}, "with its baseline, and not by a later round"
    assert sliced.groups(plan, [first, one, two, late]) == [
        [HOST, CONTROL, "podman"],
        [HOST, CONTROL, "docker", "docker.headline"],
    ]
    assert shares([one, two, late], ["docker", "podman"]) == 3 and shares([one, one], ["podman"]) == 1


# --- designs of whole runs and of the sweep


@pytest.fixture
def asks(monkeypatch):
    """How a unit is run: held together, or one after the other."""
    monkeypatch.setattr(sliced, "refusal", lambda *of: "a cold cache" if of[2] == "cold" else None)
    monkeypatch.setattr(sliced, "run_unit", lambda plan, sites, done: "held")
    monkeypatch.setattr(sliced, "unheld", lambda plan, sites, done, order, pads: "one after the other")
    monkeypatch.setattr(sliced, "groups", lambda plan, done: [["a"], ["b"]])
    return lambda design: (design.run_unit(design.plan, 0, ()), design.shares(()))


HELD, WHOLE = ("held", 2), ("one after the other", 1)


@pytest.mark.parametrize(
    ("streaming", "scenario", "page_cache", "way", "unsliced"),
    [
        ((), "single", "warm", HELD, []), (("docker",), "single", "warm", HELD, ["docker"]),
        ((HOST,), "single", "warm", WHOLE, []), ((), "single", "cold", HELD, []),
        (("docker",), "single", "cold", WHOLE, []), ((), "busy_core", "warm", WHOLE, []),
    ],
)  # fmt: skip
def test_units_are_held_where_every_launch_is_or_has_units_of_its_own(
    pids, asks, streaming, scenario, page_cache, way, unsliced
):
    setup = setup_of({name: (Streams if name in streaming else Fake)(pids) for name in NAMES}, discarded=0)
    cache = setup.study.conditions.replace(page_cache=page_cache)
    setup = replace(setup, study=setup.study.replace(conditions=cache), scenario=scenario)
    design = rounds.rounds(setup)
    assert asks(design) == way and list(design.plan.unsliced) == unsliced
    assert design.plan.discarded == (1 if scenario == "single" else 0)
    assert (design.plan.measured is not None) == (scenario == "single")


def test_a_group_has_its_own_levels_and_steps_and_a_job_alone_has_neither(pids, asks):
    setup = setup_of(fakes_of(pids), discarded=2)
    one, other = (Distributed(network="overlay", steps=steps) for steps in (5, None))
    plan, plain, alone, beside = (
        rounds.rounds(replace(setup, study=setup.study.replace(distributed=group), scenario=scenario)).plan
        for group, scenario in ((one, "distributed"), (other, "distributed"), (one, "single"), (one, "busy_core"))
    )
    assert (plan.spec.steps, plan.conditions.group) == (5, one.group) and "network=overlay" in plan.arm
    assert plain.spec.steps == alone.spec.steps != 5 and alone.conditions.group is None
    assert "overlay" not in alone.arm + beside.arm and (plan.discarded, alone.discarded) == (2, 2)


@pytest.fixture
def swept(pids, monkeypatch):
    """The next unit of a sweep whose launches are made up: what one start ran, what was launched alone, the row."""
    asked, alone = [], []

    def launched(site, spec, conditions, pad_bytes):
        asked.append((spec.batch, spec.batches, conditions.launch_timeout_s, pad_bytes))
        common = {"spawn_ns": 0, "end_ns": 10**10, "deviations": []}
        failed = any(one in broken for one in spec.batches)
        status = {"status": "failed", "reason": "no memory"} if failed else {"status": "ok", "reason": None}
        inside = None if failed else started_once(spec.batches)
        return parse(LaunchRecord, {**common, **status, "inside": inside}, "a launch")

    def one_by_one(plan, sites, done, order, pads, program_of):
        alone.append([program_of(name).batch for name in order])
        return {}

    broken = []
    monkeypatch.setattr(rounds, "launched", launched)
    monkeypatch.setattr(rounds, "one_after_other", one_by_one)
    monkeypatch.setattr(
        rounds, "unit_order", lambda plan, done, names: (sorted(names), dict(zip(names, (7, 9), strict=False)))
    )
    monkeypatch.setattr("tare.machine.facts.gpu_identity", list)

    def unit(number, done=(), sizes=(16, 64), broke=(), device="cpu", **conditions):
        broken[:], asked[:], alone[:] = broke, [], []
        study = {**fakes.study_json(), "sweep": {"repetitions": 2}, "rounds": {"allocator": "steady"}}
        study |= {"workloads": {"mnist_cnn": {"batch": 64, "sweep_batches": list(sizes)}}, "device": device}
        study["conditions"] |= conditions
        sites = {HOST: site(Fake(pids))}
        design = rounds.sweep(Setup(study=part(SweepPart, study), workload="mnist_cnn", sites=sites))
        row = design.run_unit(design.plan, number, done)
        return design.plan, list(asked), list(alone), row

    return unit


def test_sizes_of_a_sweep_share_a_start_where_the_page_cache_is_not_cold_and_no_device_is_asked_for(swept):
    plan, asked, alone, _ = swept(0)
    assert (plan.discarded, plan.launch_names, asked, alone) == (1, (HOST,), [], [[16]])
    assert plan.spec.batch == 0, "each launch has its own"
    _, asked, alone, row = swept(1)
    assert asked == [(16, (16, 64), 40.0, 7)] and alone == []
    assert list(row["launches"]) == row["order"] == ["16", "64"] == list(row["pages"])
    plan, asked, alone, _ = swept(0, page_cache="as_found")
    assert plan.discarded == 0 and len(asked) == 1 and alone == []
    for more in ({"page_cache": "cold"}, {"device": "cuda", "page_cache": "as_found"}):
        plan, asked, alone, _ = swept(0, **more)
        assert (plan.discarded, asked, alone) == (0, [], [[16, 64]])
    assert swept(1, sizes=(16,))[1:3] == ([], [[16]])
    assert swept(1, broke=(64,))[2] == [[16, 64]]


def test_a_size_that_was_given_up_has_no_part_in_the_start(swept):
    failed = held(1.0).replace(status="failed", reason="no memory")
    done = [unit_of(number, {"16": failed}) for number in (1, 2)]
    _, asked, _, row = swept(3, done)
    assert asked == [(64, (64,), 20.0, 9)]
    assert [row["launches"][name].status for name in ("16", "64")] == ["skipped", "ok"]
    done = [unit_of(number, {"16": failed, "64": failed}) for number in (1, 2)]
    assert swept(3, done)[1:3] == ([], [[16, 64]])


def test_a_run_of_a_start_follows_on_its_imports_in_time_and_in_processor_time():
    """Forked a second after the imports, with 0.25 s of its own processor time already on the clock."""
    inside = started_once([16, 64])
    run = inside["results"]["runs"][0]
    run["marks"][0] |= {"user_s": 0.25, "system_s": 0.05}
    common = {"status": "ok", "reason": None, "spawn_ns": 0, "end_ns": 10**10, "deviations": []}
    launch = parse(LaunchRecord, {**common, "inside": inside}, "a launch")
    own = rounds.of_one_run(launch, run, 2).seen_inside()
    assert [mark.name for mark in own.marks][:3] == ["entry", "imports", "data"] and own.marks[-1].name == "last"
    data = own.mark("data")
    assert data.at_ns == 3_500_000_000
    assert (data.user_s, data.system_s) == (pytest.approx(2.0 + 0.4 - 0.25), pytest.approx(0.2 + 0.04 - 0.05))
    assert own.results["step_ends_ns"] == [4_500_000_000, 5_000_000_000]
    assert (own.results["runs"], own.results["moved_ns"], own.memory.peak_rss_bytes) == (2, 10**9, 16)
