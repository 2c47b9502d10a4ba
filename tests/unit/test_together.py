"""Campaigns whose units come from the same launches: one start for all; a journal, a decision, a seal for each."""

import pytest
from fakes import Fake, site, still_running, study

from tare.core.errors import UnavailableError, UserError
from tare.core.files import Journal
from tare.experiments import turns
from tare.experiments.alone import WORKFLOW
from tare.experiments.attempts import remove_note
from tare.experiments.campaign import run_campaigns
from tare.experiments.designs import Setup
from tare.model.journals.ledger import read_ledger, tries_of
from tare.model.journals.sealed import SEALED, UNITS, read_rows, read_sealed
from tare.model.studies import arms
from tare.model.studies import study as studies
from tare.model.studies.study import CONTROL, HOST

NAMES = [HOST, CONTROL, "docker"]
LANES = {"steady": ("mnist_cnn", None), "default": ("mnist_cnn", "default"), "rnn": ("sentiment_rnn", None)}


pytestmark = pytest.mark.usefixtures("launch_cache")


@pytest.fixture
def environments(tmp_path):
    (tmp_path / "pids").mkdir()
    yield {name: Fake(tmp_path / "pids") for name in NAMES}
    assert still_running(tmp_path / "pids") == []


def by_name(folder, workload, name):
    return folder / name


def as_a_study(folder, workload, name):
    """Where a study's campaigns lie, which have a ledger."""
    return folder / "fakes" / workload / name


def run(folder, environments, units=(2, 2, 2), place=by_name):
    """Three campaigns of fakes together; returns what was sealed, by lane."""
    sites = {name: site(environment) for name, environment in environments.items()}
    designs = {}
    for (name, (workload, level)), count in zip(LANES.items(), units, strict=True):
        own = study(units=count, also=["default"])
        own["workloads"] = {"mnist_cnn": {"batch": 64}, "sentiment_rnn": {"batch": 64}}
        arm = arms.parse(f"allocator={level}") if level else None
        design = turns.turns(Setup(study=own, workload=workload, sites=sites, arm=arm))
        designs[place(folder, workload, name)] = design
    run_campaigns(designs, lambda dues: turns.run_block(dues, sites))
    return {name: read_sealed(place(folder, workload, name) / SEALED) for name, (workload, _) in LANES.items()}


def dying_at(workload, script):
    """The fakes' script, but it dies at the draws of one workload."""
    point = 'fault("draw")'
    assert point in script
    return script.replace(
        point, f'spec["lanes"][values["lane"]]["workload"] == "{workload}" and os.kill(os.getpid(), 9)'
    )


def test_one_start_of_each_launch_serves_every_campaign(tmp_path, environments):
    found = run(tmp_path, environments)
    assert {fake.launched for fake in environments.values()} == {3}, "one block calibrates, two count"
    for name, (workload, level) in LANES.items():
        own = found[name]
        assert own.plan.workload == workload
        assert f"allocator={level or 'steady'}" in own.plan.arm
        assert [unit.discarded for unit in own.units] == [True, False, False]
        assert own.units[0].calibration is not None and own.units[1].calibration is None
        for unit in own.counted:
            draws = {len(launch.draws) for launch in unit.launches.values()}
            assert draws == {own.units[0].calibration.draws}
            assert len(unit.cycle_s) == own.units[0].calibration.draws * own.units[0].calibration.cycles


def test_how_steps_settle_is_looked_for_once_for_each_workload(tmp_path, environments, monkeypatch):
    """The other level of the allocator takes over what the first has found, and goes without the long bursts."""
    monkeypatch.setattr(turns, "pays_for_the_least_only", lambda *costs, **budget: False)  # on a busy machine too
    first = {name: campaign.units[0] for name, campaign in run(tmp_path, environments).items()}
    found = {name: unit.calibration.agreement for name, unit in first.items()}
    assert found["rnn"].found_at is None
    [taker] = [name for name in ("steady", "default") if found[name].found_at]
    giver = {"steady": "default", "default": "steady"}[taker]
    assert found[taker] == found[giver].replace(found_at=giver)
    cycles = {name: len(unit.cycle_s) for name, unit in first.items()}
    trial = turns.trial_of(first[giver].calibration.step_s)
    assert cycles[giver] - cycles[taker] == turns.TRIAL_DRAWS * trial.long_cycles


def test_one_draw_calibrates_where_the_budget_pays_for_the_least_only(tmp_path, environments, monkeypatch):
    monkeypatch.setattr(turns, "pays_for_the_least_only", lambda *costs, **budget: True)
    for campaign in run(tmp_path, environments).values():
        first = campaign.units[0]
        assert {len(launch.draws) for launch in first.launches.values()} == {1}
        assert first.calibration.components["draw"] == first.calibration.components["block"] == 0.001, "priors"


def test_a_campaign_that_has_enough_leaves_the_others_to_go_on(tmp_path, environments):
    found = run(tmp_path, environments, units=(2, 3, 2))
    assert [len(found[name].counted) for name in LANES] == [2, 3, 2]
    assert {fake.launched for fake in environments.values()} == {4}


def test_what_fails_at_one_job_is_given_up_there_alone(tmp_path, environments):
    """Docker dies in each job of one workload: its blocks are void for all, and then it is left out of that one."""

    class Dies(Fake):
        def command(self, launch):
            words = super().command(launch)
            return [*words[:5], dying_at("sentiment_rnn", words[5]), *words[6:]]

    environments["docker"] = Dies(environments[HOST].pids)
    found = run(tmp_path, environments)
    for unit in found["rnn"].counted:
        assert unit.launches["docker"].status == "skipped"
        assert "given up after 2 failures in a row" in unit.launches["docker"].reason
        assert unit.launches[HOST].ok
    for name in ("steady", "default"):
        assert all(unit.launches["docker"].ok for unit in found[name].counted)
        stopped = [unit.launches["docker"] for unit in found[name].units if unit.voided]
        assert stopped and {launch.status for launch in stopped} == {"stopped"}
        assert all("at another job" in launch.reason for launch in stopped)


def test_a_killed_command_carries_on_with_each_journal_where_it_stands(tmp_path, environments, monkeypatch):
    """Power ends when two of three journals have their unit."""
    append, rows = Journal.append, []

    def failing(journal, row):
        if len(rows) == 5:
            raise KeyboardInterrupt
        rows.append(row)
        append(journal, row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tare.core.files.Journal.append", failing)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, environments)
    counts = sorted(len(read_rows(tmp_path / name).units) for name in LANES)
    assert counts == [1, 2, 2]
    before = {name: (tmp_path / name / UNITS).read_text() for name in LANES}
    found = run(tmp_path, environments)
    for name in LANES:
        assert (tmp_path / name / UNITS).read_text().startswith(before[name])
        assert len(found[name].counted) == 2


def test_a_host_that_fails_at_one_job_ends_that_campaign_alone(tmp_path, environments):
    class Dies(Fake):
        def command(self, launch):
            words = super().command(launch)
            return [*words[:5], dying_at("sentiment_rnn", words[5]), *words[6:]]

    environments[CONTROL] = Dies(environments[HOST].pids)
    with pytest.raises(UnavailableError, match="no launch on the host lives to take turns: given up after 2"):
        run(tmp_path, environments)
    assert not (tmp_path / "rnn" / SEALED).exists()
    for name in ("steady", "default"):
        assert len(read_sealed(tmp_path / name / SEALED).counted) == 2


def test_a_lane_that_failed_costs_what_its_start_sealed_no_try(tmp_path, environments, monkeypatch):
    """The next command carries the start on: it runs what failed. Once all are sealed, a command is a new try."""

    class Dies(Fake):
        def command(self, launch):
            words = super().command(launch)
            return [*words[:5], dying_at("sentiment_rnn", words[5]), *words[6:]]

    def tries():
        found = tries_of(read_ledger(tmp_path / "fakes"))
        return {name: sum(one.counts for one in found[workload, name]) for name, (workload, _) in LANES.items()}

    def again(environments):
        # Snakemake takes a job's outputs away before it runs it; that none has a note is the harder case.
        for path in tmp_path.glob(f"fakes/*/*/{SEALED}"):
            path.unlink()
            remove_note(path.parent)
        return run(tmp_path, environments, place=as_a_study)

    monkeypatch.setenv(WORKFLOW, "1:1")
    whole = environments[CONTROL]
    environments[CONTROL] = Dies(environments[HOST].pids)
    with pytest.raises(UnavailableError, match="given up after 2"):
        run(tmp_path, environments, place=as_a_study)
    places = {name: as_a_study(tmp_path, "mnist_cnn", name) for name in ("steady", "default")}
    sealed = {name: (place / UNITS).read_bytes() for name, place in places.items()}
    environments[CONTROL] = whole
    found = again(environments)
    for name, units in sealed.items():
        assert (places[name] / UNITS).read_bytes() == units
        assert found[name].plan.attempt == 1
    assert len(found["rnn"].counted) == 2 and tries() == {"steady": 1, "default": 1, "rnn": 1}
    found = again(environments)
    assert tries() == {"steady": 2, "default": 2, "rnn": 2}
    assert {one.plan.attempt for one in found.values()} == {2}


def test_a_study_names_its_lanes_once():
    beside = {"turns": {"also": ["default"], "also_workloads": None}, "arms": {"turns": []}}
    whole = studies.check(studies.merge(studies.load("config/config.yaml"), beside))
    lanes = studies.lanes(whole)
    assert {(lane.workload, lane.arm) for lane in lanes} == {
        (workload, arm) for workload in whole.workloads for arm in (None, "allocator=default")
    }
    named = [(one.workload, one.name) for one in studies.campaigns(whole)]
    assert len(named) == len(set(named)) and {(one.workload, one.name) for one in lanes} <= set(named)


def test_workloads_that_a_study_does_not_choose_have_the_headlines_level_alone():
    some = studies.load("config/config.yaml") | {"environments": [HOST, "docker"]}
    whole = studies.check(studies.merge(some, {"turns": {"also": ["default"], "also_workloads": ["mnist_cnn"]}}))
    lanes = [(lane.workload, lane.arm) for lane in studies.lanes(whole)]
    assert lanes == [("mnist_cnn", None), ("mnist_cnn", "allocator=default"), ("sentiment_rnn", None)]
    named = {(one.workload, one.name) for one in studies.campaigns(whole) if one.kind == "turns"}
    assert ("sentiment_rnn", "turns.docker+host.allocator-default") not in named and len(named) == 3
    without = studies.check(studies.merge(some, {"turns": {"also": ["default"], "also_workloads": []}}))
    for workload in ("mnist_cnn", "sentiment_rnn"):  # what is measured beside a campaign is no part of it
        parts = {studies.part_of(study, "turns", workload) for study in (whole, without)}
        assert len(parts) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"turns": {"also": ["steady"]}}, "turns: also: steady is what turns already run at"),
        (
            {"turns": {"also": ["default"]}, "arms": {"turns": ["allocator=default"]}},
            "allocator=default is what turns already run at",
        ),
        ({"turns": {"also": ["jemalloc"]}}, "also"),
    ],
)
def test_levels_that_stand_twice_are_refused(change, says):
    base = studies.load("config/config.yaml")
    with pytest.raises(UserError, match=says):
        studies.check(studies.merge(base, change))
