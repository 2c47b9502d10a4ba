"""Sliced rounds in real environments: one that calibrates and one that is sliced, of a small job with its steps."""

import contextlib
import itertools
import math
import time
from pathlib import Path

import pytest
from matrix import in_matrix
from own_time import MARKS, phases_of

from tare.experiments import rounds, sliced
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.launch import prepare
from tare.launch.conditions import choose_cpus
from tare.launch.place import site_of
from tare.launch.sites import control_site
from tare.model.journals.sealed import read_sealed
from tare.model.journals.units import replicates_at
from tare.model.records.campaigns import Measured
from tare.model.registry import HOST, describe_workload, environment
from tare.model.roles import CONTROL
from tare.model.schema import parse
from tare.model.studies.layout import SEALED
from tare.model.studies.sections import WorkloadSettings
from tare.stats.fits import step_values

pytestmark = [pytest.mark.runtime, pytest.mark.timeout(1800)]  # of the campaign, on a machine that does much else
WORKLOAD = "mnist_cnn"
STEPS = {"levels": ["steady", "default"], "replicates": 1, "warmup_steps": 2, "seconds": 0.4}


@pytest.fixture(scope="module")
def hosts(forms, folders):
    """The host's launch site and that of its control."""
    host = site_of(HOST, environment(HOST), forms(HOST), folders(describe_workload(WORKLOAD)["dataset"]))
    control, told = control_site(host)
    assert told == {"files": "own copy"}
    return {HOST: host, CONTROL: control}


def alone(study):
    """The study with this workload alone, as it describes itself."""
    return study.replace(workloads={WORKLOAD: WorkloadSettings(batch=describe_workload(WORKLOAD)["batch"])})


@pytest.fixture(scope="module")
def measured(hosts, study, probes, forms, folders, tmp_path_factory):
    """A campaign of every environment that is there and shares a kernel with this machine; what it sealed."""
    sites, data = dict(hosts), folders(describe_workload(WORKLOAD)["dataset"])
    settings = study.rounds.replace(units=2, discarded=0, steps=parse(Measured, STEPS, "steps"))
    # A margin so wide that nothing runs unsliced, however long its FUSE server works on a busy machine.
    margins = study.margins.replace(run=1.0)
    own = alone(study).replace(study="rounds", rounds=settings, margins=margins)
    folder = tmp_path_factory.mktemp("rounds")
    with contextlib.ExitStack() as held:
        for name in in_matrix():
            if name == HOST or not probes(name).available:
                continue
            site = site_of(name, environment(name), forms(name), data)
            if sliced.not_held(site) is None:
                held.enter_context(site.environment.session())
                sites[name] = site
        run_campaign(folder, rounds.rounds(Setup(study=own, workload=WORKLOAD, sites=sites)))
    return read_sealed(folder / SEALED)


@pytest.fixture
def own(measured, forms, env_name):
    """The launches of an environment: of the calibration, and of the sliced rounds."""
    forms(env_name)  # skips what is not here
    if env_name not in measured.plan.launch_names:
        pytest.skip(f"{env_name} can't be held at its first instruction")
    return [unit.launches[env_name] for unit in measured.units if unit.voided is None]


def test_every_launch_succeeds_whole_and_in_slices(own, measured):
    if measured.plan.slicing_refused:
        pytest.skip(measured.plan.slicing_refused)
    assert [(launch.status, launch.reason) for launch in own] == [("ok", None)] * 3
    assert sum(unit.voided is None for unit in measured.units) == 3  # a void one was made once more
    assert [launch.slices.is_sliced for launch in own] == [False, True, True]
    for launch in own:
        assert launch.deviations == ()
        assert len(launch.slices.began_us) == 1 or len(launch.slices.began_us) > 20
        assert launch.slices.start_s > 0 and launch.slices.exit_s >= 0


def test_own_time_of_the_phases_adds_up_to_the_body(own):
    for launch in own:
        phases = phases_of(launch)
        assert len(phases) == len(MARKS) + 1 and min(phases) >= 0
        assert sum(phases) == pytest.approx(launch.slices.body_s, rel=1e-3)
        assert sum(launch.slices.length_us) <= sum(launch.slices.quiet_us)


def test_each_level_has_its_replicate_of_as_many_steps_as_on_the_host(own, measured):
    for unit, launch in zip((unit for unit in measured.units if unit.voided is None), own, strict=True):
        inside = launch.seen_inside()
        marks = [inside.mark(name).at_ns for name in ("epoch_end", "measured_end")]
        for level in STEPS["levels"]:
            (host,) = replicates_at(unit.launches[HOST], level)
            (made,) = replicates_at(launch, level)
            assert made.forked and len(made.seconds) == len(host.seconds) >= 4
            assert (made.loss_first, made.loss_last) == pytest.approx((host.loss_first, host.loss_last), rel=1e-5)
            instants = [marks[0], *made.warmup_ends_ns, made.started_ns, *made.step_ends_ns, marks[1]]
            assert instants == sorted(instants), "in own time"
        assert inside.results["losses"] == pytest.approx(
            unit.launches[HOST].seen_inside().results["losses"], rel=1e-5
        )


def test_host_and_control_are_alike(measured):
    """In processor time, also on a busy machine; in own time about."""
    for unit in measured.counted:
        host, control = (unit.launches[name] for name in (HOST, CONTROL))
        assert abs(math.log(control.slices.cpu_s / host.slices.cpu_s)) < 0.2
        assert abs(math.log(control.slices.body_s / host.slices.body_s)) < 0.4
        for level in STEPS["levels"]:
            steps = step_values(unit, level)
            assert abs(math.log(steps[CONTROL] / steps[HOST])) < 0.7
            (ours,), (others,) = replicates_at(host, level), replicates_at(control, level)
            assert abs(math.log(others.cpu_s / ours.cpu_s)) < 0.4


def test_only_one_of_a_round_runs_at_a_time(measured):
    for unit in measured.counted:
        spans = sorted(
            (launch.slices.arrived_ns + 1000 * began, launch.slices.arrived_ns + 1000 * (began + length))
            for launch in unit.launches.values()
            if launch.ok
            for began, length in zip(launch.slices.began_us, launch.slices.quiet_us, strict=True)
        )
        assert len(spans) > 40
        assert all(end <= began + 1000 for (_, end), (began, _) in itertools.pairwise(spans))


def test_the_control_maps_the_same_files_of_its_own_copy_and_none_of_the_hosts(hosts, study):
    conditions = study.conditions.of_launch(cpus=len(choose_cpus(2)))
    own = alone(study)
    spec = rounds.whole_run_spec(WORKLOAD, own.workloads[WORKLOAD].batch, own)
    mapped = {}
    for name, site in hosts.items():
        with prepare.ready(site, spec, conditions, pad_bytes=64) as ready:
            talk = ready.start()
            until, found = time.monotonic() + 120, {}
            while not any("libtorch_cpu.so" in path for path in found) and time.monotonic() < until:
                found = mapped_below(site.reference, ready.folder) or found
                assert not talk.has_ended()
            mapped[name] = found
            talk.kill()
    ours, others = mapped[HOST], mapped[CONTROL]
    both = ours.keys() & others.keys()
    assert len(both) > 20 and any("libtorch_cpu.so" in path for path in both)
    assert not set(ours.values()) & set(others.values())


def mapped_below(root, folder):
    """Device and inode of each library below `root` that a launch of this folder maps, by its path there."""
    found = {}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(folder) not in maps.with_name("cmdline").read_text():
                continue
            for fields in (line.split(maxsplit=5) for line in maps.read_text().splitlines()):
                if len(fields) == 6 and fields[5].startswith(f"{root}/") and ".so" in fields[5]:
                    found[fields[5].removeprefix(root)] = (fields[3], fields[4])
    return found
