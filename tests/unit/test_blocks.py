"""Blocks of scripts that speak the protocol and misbehave: void, the culprit named, nobody left, never counted."""

import itertools
import json
import random
import re
import time

import pytest
from fakes import CONDITIONS, Fake, site, still_running, study
from lean import unit_of_rows
from tare.experiments.blocks import Burst, Stretch, live_block, turn_problem

from tare.core.errors import UnavailableError
from tare.experiments import blocks, turns
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.model.journals.sealed import SEALED, read_rows, read_sealed
from tare.model.journals.units import counted
from tare.model.studies.study import CONTROL, HOST
from tare.stats.fits import turn_values

NAMES = [HOST, CONTROL, "docker"]
STRETCH = Stretch(draws=2, cycles=3, warmup=2, burst=Burst(discard=1, steps=2))


pytestmark = pytest.mark.usefixtures("launch_cache")


@pytest.fixture
def pids(tmp_path):
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


def block_of(environments, stretch=STRETCH):
    """Run one block of fakes; returns its record."""
    with live_block(
        {name: site(environment) for name, environment in environments.items()},
        {"mode": "turns"},
        {name: CONDITIONS for name in environments},
        order=list(environments),
        pads={name: 0 for name in environments},
        cores=[0],
        generator=random.Random(1),
    ) as (block, record):
        block.run(stretch)
    return record


def fakes(pids, **faults):
    """Host, its control and docker; `faults` by name of the launch (`control` for the second host)."""
    by_name = {HOST: faults.get("host"), CONTROL: faults.get("control"), "docker": faults.get("docker")}
    return {name: Fake(pids, fault) for name, fault in by_name.items()}


def test_a_good_block_holds_every_turn_of_every_launch(pids):
    record = block_of(fakes(pids))
    assert record["voided"] is None
    assert record["order"] == NAMES
    assert len(record["draw_s"]) == 2 and len(record["cycle_s"]) == 6
    for name in NAMES:
        launch = record["launches"][name]
        assert (launch["status"], launch["reason"]) == ("ok", None)
        assert len(launch["draws"]) == 2
        for draw in launch["draws"]:
            assert len(draw["warmup_s"]) == 2
            assert [len(burst) for burst in draw["turns"]["step_s"]] == [2, 2, 2]
            assert [len(burst) for burst in draw["turns"]["discarded_s"]] == [1, 1, 1]
    # Every cycle gives each launch one turn: the three places of a cycle are all taken.
    for number in range(2):
        places = [record["launches"][name]["draws"][number]["turns"]["place"] for name in NAMES]
        assert all(sorted(cycle) == [0, 1, 2] for cycle in zip(*places, strict=True))
    # Six cycles of three launches are a Williams square: each place twice for each launch, over both draws.
    everywhere = [[p for d in record["launches"][name]["draws"] for p in d["turns"]["place"]] for name in NAMES]
    assert all(sorted(places) == [0, 0, 1, 1, 2, 2] for places in everywhere)
    # Only one works at a time: turns of different launches never overlap.
    spans = sorted(
        (start, end)
        for name in NAMES
        for draw in record["launches"][name]["draws"]
        for start, end in zip(draw["turns"]["started_ns"], draw["turns"]["ended_ns"], strict=True)
    )
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert still_running(pids) == []


# fault of docker -> its status, what the block's reason says
FAULTS = {
    "dies before it is ready": ("ready:0:die", "failed", "was ended by SIGKILL"),
    "exits before it is ready": ("ready:0:exit", "failed", "ended with status 1: the framework broke"),
    "talks nonsense at its start": ("ready:0:nonsense", "failed", "it said 'WARNING: something"),
    "can't make a model": ("draw:1:fail", "failed", "RuntimeError: out of memory"),
    "dies in a draw": ("draw:0:die", "failed", "was ended by SIGKILL"),
    "dies in a turn": ("turn:4:die", "failed", "was ended by SIGKILL"),
    "talks nonsense in a turn": ("turn:1:nonsense", "failed", "which is no line of tare-turns/1"),
    "answers another turn": ("turn:2:id", "failed", "it answered turn 3 where turn 2 was due"),
    "times too few steps": ("turn:2:short", "failed", "it timed 1 + 1 steps where 1 + 2 were due"),
    "leaves something out": ("turn:0:lacks", "failed", "its answer to a turn lacks cpu_s"),
    "clock steps back in a turn": ("turn:1:clock", "failed", "the clock stepped back between turns"),
    "clock steps back in a step": ("turn:3:step-clock", "failed", "the clock stood still or stepped back"),
    "loss is no number": ("turn:5:loss", "failed", "its loss is nan"),
    "dies when dropped": ("drop:0:die", "failed", "was ended by SIGKILL"),
    "dies after its last turn": ("end:0:die", "failed", "was ended by SIGKILL"),
    "runs with other threads": ("end:0:threads", "failed", "refused: threads 7, asked for 1"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_one_that_misbehaves_voids_its_block_and_is_named(what, pids):
    fault, status, reason = FAULTS[what]
    environments = fakes(pids, docker={0: fault})
    record = block_of(environments)
    assert record["voided"].startswith("docker: ")
    assert reason in record["voided"]
    assert record["launches"]["docker"]["status"] == status
    assert reason in record["launches"]["docker"]["reason"]
    late = fault.startswith("end")  # the others have ended well by then: theirs are no failures either
    for name in (HOST, CONTROL):
        assert record["launches"][name]["status"] == ("ok" if late else "stopped")
        if not late:
            assert record["launches"][name]["reason"] == "ended with its block: docker failed"
    assert json.dumps(record, allow_nan=False)  # goes into the journal as it is
    assert turn_values(unit_of_rows(record)) == {}
    assert still_running(pids) == []


def test_one_that_dies_at_its_start_ends_the_block_while_others_still_import(pids):
    """The control, which was started before it, is not ready yet and is not waited for."""
    record = block_of(fakes(pids, control={0: "ready:0:hang"}, docker={0: "ready:0:exit"}))
    assert record["voided"].startswith("docker: ") and "the framework broke" in record["voided"]
    assert record["launches"][CONTROL]["reason"] == "ended with its block: docker failed"
    assert still_running(pids) == []


def test_one_that_dies_between_its_last_turn_and_the_end_is_named_too(pids):
    record = block_of(fakes(pids, control={0: "drop:1:die-after"}))
    assert record["voided"].startswith(f"{CONTROL}: ") and "SIGKILL" in record["voided"]
    assert record["launches"][CONTROL]["status"] == "failed"
    assert still_running(pids) == []


@pytest.mark.parametrize("fault", ["turn:1:hang", "draw:0:hang", "drop:0:hang"])
def test_one_that_hangs_is_ended_after_the_time_for_an_answer(fault, pids, monkeypatch):
    monkeypatch.setattr(blocks, "ANSWER_S", 1.0)
    monkeypatch.setattr(blocks, "DRAW_S", 1.0)
    started = time.monotonic()
    record = block_of(fakes(pids, docker={0: fault}))
    assert time.monotonic() - started < 120, "it waited for the launch, which sleeps for 600 s"
    assert re.search(r"docker: no .* within \d s", record["voided"])
    assert record["launches"]["docker"]["status"] == "timeout"
    assert still_running(pids) == []


def test_one_that_does_not_end_is_killed(pids, monkeypatch):
    monkeypatch.setattr(blocks, "ANSWER_S", 1.0)
    monkeypatch.setattr(blocks, "DRAW_S", 1.0)
    record = block_of(fakes(pids, docker={0: "end:0:hang"}))
    assert record["launches"]["docker"]["status"] == "timeout"
    assert "still running after" in record["voided"]
    assert still_running(pids) == []


def test_one_that_is_never_ready_times_out(pids, monkeypatch):
    monkeypatch.setitem(CONDITIONS, "launch_timeout_s", 1.5)
    record = block_of(fakes(pids, docker={0: "ready:0:hang"}))
    assert record["launches"]["docker"]["status"] == "timeout"
    assert record["voided"] == "docker: no 'ready' within " + record["voided"].rsplit("within ", 1)[1]
    assert still_running(pids) == []


def test_an_interrupted_block_leaves_nobody_behind(pids, launch_cache):
    with (
        pytest.raises(KeyboardInterrupt),
        live_block(
            {name: site(fake) for name, fake in fakes(pids).items()},
            {"mode": "turns"},
            {name: CONDITIONS for name in NAMES},
            order=NAMES,
            pads={name: 0 for name in NAMES},
            cores=[0],
            generator=random.Random(1),
        ) as (block, record),
    ):
        block.draw(0, 2)
        raise KeyboardInterrupt
    assert {launch["status"] for launch in record["launches"].values()} == {"stopped"}
    assert still_running(pids) == []
    assert list((launch_cache / "launches").iterdir()) == []


def test_equal_seeds_give_equal_orders_and_shifts(pids):
    def of(record):
        return [
            (d["shift_bytes"], d["turns"]["place"]) for row in record["launches"].values() for d in row["draws"]
        ]

    first, second = block_of(fakes(pids)), block_of(fakes(pids))
    assert of(first) == of(second)
    assert len({shift for shift, _ in of(first)}) > 1


GOOD = {
    "id": 0, "discarded_s": [0.1], "step_s": [0.1, 0.1], "started_ns": 5, "ended_ns": 9, "cpu_s": 0.1,
    "system_s": 0.0, "faults": 0, "preemptions": 0, "loss_last": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"id": 1}, "answered turn 1"),
        ({"step_s": [0.1]}, "timed 1 + 1 steps"),
        ({"step_s": [0.1, 0.0]}, "clock stood still"),
        ({"discarded_s": [-0.1]}, "clock stood still or stepped back"),
        ({"step_s": [0.1, "fast"]}, "clock"),
        ({"step_s": [0.1, float("inf")]}, "clock"),
        ({"ended_ns": 4}, "stepped back between turns"),
        ({"started_ns": 2}, "stepped back between turns"),
        ({"loss_last": float("inf")}, "its loss is inf"),
    ],
)
def test_an_answer_is_looked_at_before_it_counts(change, problem):
    found = turn_problem({**GOOD, **change}, 0, Burst(discard=1, steps=2), before_ns=3)
    assert found is None if problem is None else problem in found


def run(folder, environments, **settings):
    """A campaign of fakes through the real one."""
    sites = {name: site(environment) for name, environment in environments.items()}
    setup = Setup(study=study(**settings), workload="mnist_cnn", sites=sites)
    return run_campaign(folder, turns.turns(setup))


def test_a_void_unit_is_repeated_and_never_counted(tmp_path, pids):
    environments = fakes(pids, docker={2: "turn:3:die"})
    environments["docker"].step_s = 0.022
    summary = run(tmp_path / "c", environments)
    found = read_sealed(tmp_path / "c" / SEALED)
    assert (summary.units, summary.voided) == (3, 1)
    assert [unit.voided is None for unit in found.units] == [True, True, False, True, True]
    assert len(found.counted) == 3
    assert "docker" in summary.failures
    # 10% slower, with 0.2% of noise per step
    for unit in found.counted:
        values = turn_values(unit)
        assert values["docker"] / values[HOST] == pytest.approx(1.1, rel=0.005)
    assert still_running(pids) == []
    assert found.ended is None


def test_an_environment_that_fails_twice_in_a_row_is_given_up_and_the_others_go_on(tmp_path, pids):
    environments = fakes(pids, docker={1: "turn:0:die", 2: "draw:0:exit"})
    summary = run(tmp_path / "c", environments)
    found = read_sealed(tmp_path / "c" / SEALED)
    assert (summary.units, summary.voided) == (3, 2)
    assert environments["docker"].launched == 3
    for unit in found.counted:
        assert unit.launches["docker"].status == "skipped"
        assert "given up after 2 failures in a row" in unit.launches["docker"].reason
        assert set(turn_values(unit)) == {HOST, CONTROL}


def test_a_host_that_fails_ends_the_campaign_with_its_reason(tmp_path, pids):
    environments = fakes(pids, control={0: "turn:0:die", 1: "turn:0:die"})
    with pytest.raises(UnavailableError, match=r"no launch on the host lives to take turns: given up after 2"):
        run(tmp_path / "c", environments)
    assert not (tmp_path / "c" / SEALED).exists()
    assert counted(read_rows(tmp_path / "c").units) == []
    assert still_running(pids) == []


def test_a_pilot_decides_the_number_of_units_of_a_real_campaign(tmp_path, pids):
    summary = run(tmp_path / "c", fakes(pids), units=None, pilot=6, half_width=0.01, budget_s=30)
    found = read_sealed(tmp_path / "c" / SEALED)
    units = found.units
    assert found.decision.units == summary.units == len(found.counted)
    assert found.decision.design in ("stein", "fixed")
    assert units[0].discarded and units[0].calibration.discard >= 1
    assert all(unit.calibration is None for unit in units[1:])
    assert len(units[1].launches[HOST].draws) == units[0].calibration.draws


def test_launches_that_do_not_fit_in_memory_together_are_never_started_together(tmp_path, pids, monkeypatch):
    """Each takes 1 GiB of 4.9: after the first one's first step, groups of three are what is started."""
    monkeypatch.setattr(turns, "available_memory_bytes", lambda: int(4.9 * (1 << 30)))
    environments = {name: Fake(pids, peak_rss_bytes=1 << 30) for name in (*NAMES, "podman")}
    alive = []
    start = blocks.Block.start
    monkeypatch.setattr(
        blocks.Block, "start", lambda block, names: (start(block, names), alive.append(len(block.workers)))
    )
    summary = run(tmp_path / "c", environments, units=2)
    units = read_sealed(tmp_path / "c" / SEALED).units
    assert units[0].calibration.group == 3
    assert alive[:2] == [1, 3] and max(alive) == 3
    ran = [{n for n, row in unit.launches.items() if row.ok} for unit in units]
    assert ran == [{other, HOST, CONTROL} for other in ("docker", "docker", "podman", "docker", "podman")]
    assert summary.units == 4, "two units of every environment"
    assert "do not fit in memory" in units[1].launches["podman"].reason
    assert still_running(pids) == []


def test_a_pilot_of_launches_that_do_not_fit_together_is_whole_for_each_environment(tmp_path, pids, monkeypatch):
    monkeypatch.setattr(turns, "available_memory_bytes", lambda: int(4.9 * (1 << 30)))
    environments = {name: Fake(pids, peak_rss_bytes=1 << 30) for name in (*NAMES, "podman")}
    run(tmp_path / "c", environments, units=None, pilot=6, half_width=0.05, budget_s=30)
    found = read_sealed(tmp_path / "c" / SEALED)
    pilot = found.counted[:12]
    for name in ("docker", "podman"):
        assert sum(unit.launches[name].ok for unit in pilot) == 6
    assert found.decision.units == len(found.counted) >= 12


def test_steps_of_two_seconds_are_few_and_their_deadlines_long(tmp_path, pids, monkeypatch):
    """The script says that a step takes 2 s: what is asked for, and how long is waited for it."""
    asked = []
    ask = blocks.Worker.ask

    def noting(worker, word, expected, timeout_s, **values):
        asked.append((word, timeout_s, values.get("discard", 0) + values.get("steps", 0)))
        return ask(worker, word, expected, timeout_s, **values)

    monkeypatch.setattr(blocks.Worker, "ask", noting)
    environments = {name: Fake(pids, step_s=2.0) for name in NAMES}
    run(tmp_path / "c", environments, units=2, budget_s=600)
    first = read_sealed(tmp_path / "c" / SEALED).units[0]
    settled = first.calibration
    assert settled.step_s == pytest.approx(2.0, rel=0.15)
    assert (settled.warmup, settled.discard, settled.steps) == (2, 1, 1)
    draws = first.launches["docker"].draws
    made = sum(len(draw.warmup_s) for draw in draws)
    made += sum(
        len(burst) for draw in draws for key in ("discarded_s", "step_s") for burst in getattr(draw.turns, key)
    )
    assert made <= 30, "of a calibration that took 88 steps of each launch"
    assert all(timeout >= 60 + 5 * 2.0 * steps for word, timeout, steps in asked[2:] if word == "turn")


@pytest.mark.parametrize("step_s", [0.0002, 0.001, 0.005, 0.02, 0.05, 0.3, 1.0, 3.7, 10.0])
def test_what_is_tried_follows_from_the_step(step_s):
    trial = turns.trial_of(step_s)
    assert 2 <= trial.warmup <= 8
    assert trial.fewest * step_s >= turns.LEAST_DISCARDED_S
    assert trial.short.steps * step_s <= max(step_s, 2 * turns.BURST_S)
    assert trial.long.steps >= 2 * trial.fewest + trial.short.steps or step_s >= turns.SLOW_STEP_S
    bursts = trial.long_cycles * trial.long.steps + trial.short_cycles * (trial.short.discard + trial.short.steps)
    assert bursts * step_s <= max(4.0, 9 * step_s), "of each draw of a calibration"
    assert trial.warmup * step_s <= max(4.5, 2 * step_s)
