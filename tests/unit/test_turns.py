"""Turns: how bursts settle, which cores and launches a block takes, what a unit's numbers are."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from lean import unit_of_rows
from tare.experiments.turns import components_of, cores_of, fitting, settle

from tare.experiments import turns
from tare.launch import conditions
from tare.machine import memory
from tare.model.journals.units import groups_of
from tare.model.records.campaigns import Prior
from tare.model.studies.study import CONTROL, HOST
from tare.stats.fits import cycle_ratios, turn_values
from tare.stats.planning import Components

TRIAL = turns.trial_of(0.05)
TOLERANCE = 0.002  # a tenth of the default margin of steps


def bursts(profile, count=40, noise=0.0, seed=1, moods=True):
    """Long bursts of 20 steps: a profile of log-ratios at their start, a mood of each burst, noise of each step."""
    generator = np.random.default_rng(seed)
    logs = np.zeros((count, 20))
    logs[:, : len(profile)] += profile
    if moods:
        logs += generator.normal(0, 0.2, (count, 1))
    logs += generator.normal(0, noise, logs.shape) if noise else 0
    return np.exp(logs - 4).tolist()


@pytest.mark.parametrize(
    ("profile", "steps", "discard"),
    [
        ([], 3, 1),  # one step is always given away: what a change of hands costs shows there first
        ([0.2], 3, 1),
        ([0.2, 0.1], 1, 2),
        ([0.2, 0.1, 0.05], 1, 3),
        ([0.2, 0.1, 0.05, 0.01], 1, 4),
        # Five steps and their median: two slow ones among them are as good as none.
        ([0.2, 0.1, 0.05], 5, 1),
        # Within a tenth of the margin is near enough.
        ([0.2, 0.1, 0.001], 1, 2),
        # Steps that start too fast are a transient too.
        ([-0.1, -0.1], 1, 2),
    ],
)
def test_a_transient_is_discarded_and_not_more(profile, steps, discard):
    found = settle(bursts(profile), steps, TOLERANCE)
    assert found["discard"] == discard
    assert found["agrees"] and found["resolved"]
    assert abs(math.log(found["ratio"])) <= TOLERANCE
    assert found["profile"][: len(profile)] == pytest.approx(profile, abs=1e-9)
    assert found["bursts"] == 40


def test_a_transient_that_never_ends_is_reported_as_it_is():
    """Ever slower: whatever is discarded, the burst is faster than what is called uninterrupted."""
    found = settle(bursts(np.linspace(0, 0.4, 20)), 1, TOLERANCE)
    assert not found["agrees"] and found["resolved"]
    assert found["discard"] == turns.MOST_DISCARDED
    # step 8 of 0..19 against the median of the second half, 14.5: 6.5 steps of 0.4 / 19
    assert found["ratio"] == pytest.approx(math.exp(-6.5 * 0.4 / 19))


def test_noise_makes_no_burst_longer():
    """On a noisy machine one step goes, as on a quiet one, and the report says that it could not be resolved."""
    found = [settle(bursts([], count=12, noise=0.05, seed=seed), 1, TOLERANCE) for seed in range(40)]
    assert sum(row["discard"] == 1 for row in found) >= 34  # two standard errors: 38 of 40 are expected
    assert not any(row["resolved"] for row in found)
    assert all(row["ratio_low"] <= row["ratio"] <= row["ratio_high"] for row in found)


def test_a_transient_is_found_in_noise_that_does_not_hide_it():
    for seed in range(20):
        assert settle(bursts([0.5, 0.3, 0.2], count=200, noise=0.01, seed=seed), 1, TOLERANCE)["discard"] >= 3


@pytest.fixture
def four_cpus(monkeypatch):
    monkeypatch.setattr(conditions.os, "sched_getaffinity", lambda pid: {2, 3, 5, 7})


@pytest.mark.parametrize(
    ("threads", "cpus", "cores"),
    [
        (1, 4, [[2], [3], [5], [7], [2]]),
        (2, 4, [[2, 3], [5, 7], [2, 3], [5, 7], [2, 3]]),
        (4, 4, [[2, 3, 5, 7]] * 5),
        (3, 4, [[2, 3, 5]] * 5),  # what is left over is never used alone
        (1, 2, [[2], [3], [2], [3], [2]]),
    ],
)
def test_blocks_take_other_cores_in_turn(threads, cpus, cores, four_cpus):
    found = [cores_of(number, {"cpus": cpus, "threads": threads}) for number in range(5)]
    assert found == cores


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


def test_what_fits_follows_from_the_first_launch_alone():
    gib = 1 << 30
    draw = {"peak_rss_bytes": gib}
    assert fitting(draw, 100 * gib, 5) == 5
    assert fitting(draw, 6 * gib, 5) == 4  # 80% of it
    assert fitting(draw, gib, 5) == 1
    assert fitting({"peak_rss_bytes": None}, gib, 5) == 5  # nothing is known: try
    device = {"peak_bytes": 2 * gib, "total_bytes": 16 * gib}
    assert fitting({**draw, "device_memory": device}, 100 * gib, 8) == 4, "5 x 2.6 GiB is more than 0.8 x 16 GiB"
    assert fitting({**draw, "device_memory": {**device, "total_bytes": 80 * gib}}, 100 * gib, 8) == 8


def group_with_limit(folder, version, limit, taken):
    """A folder of cgroups, as version 1 or 2 names its files; 7 bytes can be taken back."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}[version]
    for name, value in zip(names, (limit, taken), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text("anon 1\n" + ("total_" if version == 1 else "") + "inactive_file 7\n")


@pytest.mark.parametrize(
    "version, kind, own",
    [
        (1, "cgroup cgroup rw,memory", "9:cpu,memory:/outer/inner"),
        (2, "cgroup2 none rw,nsdelegate", "0::/outer/inner"),
    ],
)
@pytest.mark.parametrize("origin, point", [("/", ""), ("/outer", "outer"), ("/outer/inner", "outer/inner")])
def test_a_limit_of_memory_counts_as_well_as_the_machines(tmp_path, version, kind, own, origin, point):
    """Seen whole, or in a container that is shown its part of the tree."""
    mounts, groups = tmp_path / "mountinfo", tmp_path / "cgroup"
    other = f"32 31 0:29 / {tmp_path} rw - cgroup cgroup rw,cpu\n"
    mounts.write_text(f"{other}35 31 0:32 {origin} {tmp_path / point} rw shared:9 - {kind}\n")
    groups.write_text(f"8:pids:/\n{own}\n")
    group_with_limit(tmp_path / "outer", version, 100, 30)
    group_with_limit(tmp_path / "outer/inner", version, "max" if version == 2 else 1 << 62, 5)
    found = [room for room in memory._room_in_cgroups(mounts, groups) if room < 1 << 40]
    assert found == ([] if origin == "/outer/inner" else [77])
    groups.write_text("8:pids:/\n")
    assert memory._room_in_cgroups(mounts, groups) == []
    assert memory.available_memory_bytes() > 0


def unit_of(launches, voided=None):
    """A unit from seconds per step: {launch: [draw][cycle][step]}."""
    return {
        "voided": voided,
        "launches": {
            name: {"status": "ok", "draws": [{"turns": {"step_s": draw}} for draw in draws]}
            for name, draws in launches.items()
        },
    }


def test_a_units_values_by_hand():
    """Two cycles whose moods differ by a factor of four; host 1 s, its control 2 s, docker 4 s in the first."""
    cycles = {HOST: [[1.0], [4.0]], CONTROL: [[2.0], [8.0]], "docker": [[4.0], [16.0]]}
    found = turn_values(unit_of_rows(unit_of({name: [draw] for name, draw in cycles.items()})))
    assert found[CONTROL] / found[HOST] == pytest.approx(2)
    assert found["docker"] / found[HOST] == pytest.approx(4)
    assert found[HOST] == pytest.approx(2.0)  # seconds at the median cycle, of logs: between 1 and 4


def test_a_turn_is_the_median_of_its_steps():
    draws = {HOST: [[[1.0, 1.0, 9.0]] * 4], CONTROL: [[[1.0, 9.0, 1.0]] * 4], "docker": [[[2.0, 2.0, 0.1]] * 4]}
    found = turn_values(unit_of_rows(unit_of(draws)))
    assert (found[HOST], found[CONTROL], found["docker"]) == pytest.approx((1.0, 1.0, 2.0))


def test_draws_that_are_equally_sure_weigh_equally():
    draws = {HOST: [[[1.0]] * 4] * 2, CONTROL: [[[1.0]] * 4] * 2, "docker": [[[1.0]] * 4, [[4.0]] * 4]}
    found = turn_values(unit_of_rows(unit_of(draws)))
    assert found["docker"] / found[HOST] == pytest.approx(2)  # the mean of logs


def test_a_draw_that_a_storm_fell_on_weighs_less_whatever_it_found():
    """Weights come from residuals: the calm draw decides, and the same draws with other effects weigh the same."""
    generator = np.random.default_rng(1)
    storm = generator.normal(0, 0.3, (3, 10))

    def ratio(effects):
        launches = {}
        for number, name in enumerate((HOST, CONTROL, "docker")):
            calm = [[math.exp(effects[0] * (name == "docker"))]] * 10
            wild = [[math.exp(effects[1] * (name == "docker") + value)] for value in storm[number]]
            launches[name] = [calm, wild]
        found = turn_values(unit_of_rows(unit_of(launches)))
        return math.log(found["docker"]) - (math.log(found[HOST]) + math.log(found[CONTROL])) / 2

    none, calm, wild = ratio((0, 0)), ratio((0.1, 0)), ratio((0, 0.1))
    assert (calm - none) + (wild - none) == pytest.approx(0.1)  # the weights are the same whatever the effects
    assert calm - none > 0.09


def test_what_did_not_run_is_left_out_and_a_void_unit_has_no_values():
    unit = unit_of({name: [[[1.0]] * 3] for name in (HOST, CONTROL, "docker")})
    unit["launches"]["docker"] = {"status": "skipped", "reason": "given up", "inside": None}
    assert set(turn_values(unit_of_rows(unit))) == {HOST, CONTROL}
    assert cycle_ratios(unit_of_rows(unit)) == [[0.0, 0.0, 0.0]]
    assert turn_values(unit_of_rows({**unit, "voided": "docker: it hung"})) == {}
    assert cycle_ratios(unit_of_rows({**unit, "voided": "docker: it hung"})) == []
    unit["launches"][CONTROL]["status"] = "stopped"
    assert cycle_ratios(unit_of_rows(unit)) == []


def test_cycle_ratios_are_the_control_over_the_host_by_draw_and_cycle():
    unit = unit_of({HOST: [[[1.0], [2.0]], [[4.0], [4.0]]], CONTROL: [[[2.0], [2.0]], [[1.0], [8.0]]]})
    found = cycle_ratios(unit_of_rows(unit))
    assert found[0] == pytest.approx([math.log(2), 0.0])
    assert found[1] == pytest.approx([-math.log(4), math.log(2)])


def simulated_block(generator, launches, draw_sd, cycle_sd):
    """Turns of a block after its calibration: long bursts first, then short ones, of launches that are equal."""
    cycles = TRIAL.long_cycles + TRIAL.short_cycles
    draws = [[] for _ in range(launches)]
    for _ in range(turns.TRIAL_DRAWS):
        moods = generator.normal(0, 0.2, cycles)
        for own in draws:
            logs = moods + generator.normal(0, draw_sd) + generator.normal(0, cycle_sd, cycles)
            own.append({"step_s": [[math.exp(value)] for value in logs]})
    return draws


def test_one_block_gives_the_spread_of_cycles_and_draws_host_to_host():
    """Ratios of two launches: root two times what one launch varies; on average over many blocks."""
    generator = np.random.default_rng(4)
    prior = Prior(block=0.004, draw=0.0)
    found = [components_of(simulated_block(generator, 5, 0.02, 0.03), prior, TRIAL) for _ in range(300)]
    assert {row.block for row in found} == {0.004}
    cycle = math.sqrt(np.mean([row.cycle**2 for row in found]))
    draw = math.sqrt(np.mean([row.draw**2 for row in found]))
    assert cycle == pytest.approx(math.sqrt(2) * 0.03, rel=0.1)
    assert draw == pytest.approx(math.sqrt(2) * 0.02, rel=0.1)


def test_the_prior_is_the_least_that_a_draw_is_taken_for():
    block = simulated_block(np.random.default_rng(5), 3, 0.0, 0.001)
    found = components_of(block, Prior(block=0.004, draw=0.007), TRIAL)
    assert found == Components(block=0.004, draw=0.007, cycle=found.cycle)


def test_caches_are_given_their_time_whatever_the_bursts_say():
    assert settle(bursts([]), 1, TOLERANCE, fewest=4)["discard"] == 4
    assert settle(bursts([]), 1, TOLERANCE, fewest=50)["discard"] == 10, "half of these bursts"


class Clockwork:
    """Stands for torch.cuda: a device that works through what it is given, 10 ms a step, while nobody waits."""

    now_ms = 0.0
    waits = 0

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at_ms = Clockwork.now_ms

        def elapsed_time(self, later):
            return later.at_ms - self.at_ms

    @staticmethod
    def synchronize():
        Clockwork.waits += 1


def test_on_a_device_steps_lie_between_events_and_nobody_waits_between_them(monkeypatch):
    from tare.worker import turns as inside
    from tare.worker.frameworks.torch import Torch

    class Job:
        def step(self, batch):
            Clockwork.now_ms += 10.0 + batch
            return batch

    framework = Torch("cuda")
    framework.module = SimpleNamespace(cuda=Clockwork)
    monkeypatch.setattr(Clockwork, "waits", 0)
    turn = inside.take_turn(framework, Job(), [0.0, 1.0, 2.0], 4, 1, 3)
    # From step 4 on, batches 1, 2, 0, 1 follow; the first is discarded.
    assert turn["discarded_s"] == pytest.approx([0.011])
    assert turn["step_s"] == pytest.approx([0.012, 0.010, 0.011])
    assert Clockwork.waits == 2, "before the first step and after the last, no more"
    assert (turn["loss_first"], turn["loss_last"]) == (1.0, 1.0)
    assert turn["ended_ns"] >= turn["started_ns"]
