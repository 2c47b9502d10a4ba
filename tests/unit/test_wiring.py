"""Who hands what to whom: an environment that records what it is started with gets what designs ask of a launch."""

import json
import math
import shutil
import sys

import fakes
import pandas as pd
import pytest
from asked import CONDITIONS, part
from campaign_builders import sealed_campaign, verdict_rows
from fakes import site
from recording import PAD, Recording

from tare.experiments import attempts, rounds, sliced, starts
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import LARGEST_PAD_BYTES, Setup, unit_order
from tare.experiments.store import CampaignStore
from tare.launch.conditions import PATH, STEADY_ALLOCATOR
from tare.launch.program import CommandProgram
from tare.launch.run import launch
from tare.model.journals.sealed import PLAN, read_sealed
from tare.model.journals.units import family_alpha
from tare.model.records.campaigns import Sealed
from tare.model.registry import HOST
from tare.model.roles import CONTROL, read_role, reference_of
from tare.model.studies import arms
from tare.model.studies.cells import launch_columns
from tare.model.studies.layout import SEALED
from tare.model.studies.study import RoundsPart, StartsPart, SweepPart

NAMES = (HOST, CONTROL, "docker")
KERNEL = "it runs on a kernel of its own"
ALLOCATION = {"rounds": {"allocator": "steady"}}  # what other kinds than rounds know of them


@pytest.fixture(autouse=True)
def short_cache(launch_cache, monkeypatch):
    """A cache of its own; whatever the machine does meanwhile, the calibration sets the pace."""
    monkeypatch.setattr(sliced, "MOST_APART", math.inf)


@pytest.fixture
def unheld(monkeypatch):
    """No launch can be held: units run one after the other, by the other half of the code."""
    monkeypatch.setattr(sliced, "not_held", lambda one: KERNEL)


def recording(folder, names=NAMES, **changes):
    folder.mkdir(exist_ok=True)
    return {name: Recording(folder, **{"work_s": 0.02, "step_s": 0.002, **changes}) for name in names}


def setup_of(environments, arm=None, change=None, kind=RoundsPart, **settings):
    study = {**fakes.study_json(**{"units": 2, "steps": None, **settings}), **(change or {})}
    sites = {name: site(environment) for name, environment in environments.items()}
    return Setup(study=part(kind, study), workload="mnist_cnn", sites=sites, arm=arm)


def run(folder, setup, design=rounds.rounds):
    run_campaign(folder, design(setup))
    return read_sealed(folder / SEALED)


# --- conditions of an arm's launches


def asked_of(conditions):
    """Those of a plan's conditions that reach a launch, as `Started.conditions` has them."""
    names = ("allocator", "threads", "cpus", "open_files", "settings")
    return {name: getattr(conditions, name) for name in names}


HEADLINE = asked_of(CONDITIONS)
ARMS = {
    "allocator=default": {"allocator": "default"},
    "threads=2": {"threads": 2},
    "layout=channels-last": {"settings": {"layout": "channels-last"}},
}


def see_conditions(folder, arm):
    """Every launch of an arm has the arm's level, and every baseline beside it the headline's."""
    chosen = arms.parse(arm)
    environments = recording(folder / "pids", arms.launch_names(chosen, [HOST, "docker"]))
    found = run(folder / "c", setup_of(environments, chosen, arm_units=2))
    assert set(environments) == {*NAMES, reference_of(HOST)} == set(found.plan.launch_names)
    for name, environment in environments.items():
        wanted = HEADLINE if read_role(name).is_reference else {**HEADLINE, **ARMS[arm]}
        assert len(environment.jobs) >= 2, "it was launched in each unit that counts"
        assert [one.conditions for one in environment.jobs] == [wanted] * len(environment.jobs), name


@pytest.mark.parametrize("arm", ARMS)
def test_launches_of_an_arm_have_its_level_and_their_baselines_the_headlines(tmp_path, arm):
    see_conditions(tmp_path, arm)


@pytest.mark.parametrize("arm", ARMS)
def test_so_they_have_where_nothing_is_held(tmp_path, arm, unheld):
    see_conditions(tmp_path, arm)


# --- the padding of a launch's environment


def see_pads(environments, found, key="{}"):
    """Each launch got the pad of its unit, as its record says, and pads lie over the whole page."""
    seen = []
    for name, environment in environments.items():
        records = [unit.launches[key.format(name)] for unit in found.units]
        ran = [record for record in records if record.status == "ok"]
        by_launch = {one.launch.name: one for one in environment.jobs}
        assert ran and all(by_launch[record.launch].pad_bytes == record.pad_bytes for record in ran)
        for number, record in enumerate(records):
            if record.status == "ok":
                _, pads = unit_order(found.plan, found.units[:number], found.plan.launch_names)
                assert record.pad_bytes == pads[name]
                seen.append(record.pad_bytes)
    assert len(set(seen)) > len(seen) / 2 and min(seen) >= 0 and max(seen) < LARGEST_PAD_BYTES
    assert max(seen) - min(seen) > LARGEST_PAD_BYTES / 16, "spread over a page, not about one place of it"


def test_launches_that_are_not_held_get_theirs(tmp_path, unheld):
    environments = recording(tmp_path / "pids")
    found = run(tmp_path / "c", setup_of(environments))
    see_pads(environments, found)


def test_starts_get_theirs(tmp_path, monkeypatch):
    monkeypatch.setattr(starts, "cold_obstacle", lambda: "nobody may")
    environments = recording(tmp_path / "pids")
    change = {"starts": {"repetitions": 3}, **ALLOCATION}
    found = run(tmp_path / "c", setup_of(environments, change=change, kind=StartsPart), starts.starts)
    see_pads(environments, found, "{}/warm")
    assert all(one.spec["mode"] == "start" for each in environments.values() for one in each.jobs)


def test_launches_of_the_sweep_get_theirs(tmp_path):
    environments = recording(tmp_path / "pids", [HOST])
    workloads = {"mnist_cnn": {"batch": 64, "sweep_batches": [16]}}
    change = {"sweep": {"repetitions": 6}, "workloads": workloads, **ALLOCATION}
    found = run(tmp_path / "c", setup_of(environments, change=change, kind=SweepPart), rounds.sweep)
    pads = [one.pad_bytes for one in environments[HOST].jobs]
    assert pads == [unit.launches["16"].pad_bytes for unit in found.units] and len(set(pads)) > 4
    assert {one.spec["batch"] for one in environments[HOST].jobs} == {16}


# --- the environment of a program


def see_variables(environments):
    """These and no other: a variable that leaks or is lost moves every measurement."""
    for one in (one for each in environments.values() for one in each.jobs):
        folder = str(one.launch.workdir)
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
        assert {name: text for name, text in one.variables.items() if name != PAD} == {
            **{"PATH": PATH, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"},
            **{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"},
            **dict.fromkeys(threads, "1"),
            **STEADY_ALLOCATOR,
        }


def test_held_launches_of_a_headline_have_its_conditions_these_variables_and_a_random_pad(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    environments = recording(tmp_path / "pids")
    see_pads(environments, run(tmp_path / "c", setup_of(environments)))
    see_variables(environments)
    assert all(one.conditions == HEADLINE for each in environments.values() for one in each.jobs)


def test_a_command_hashes_alike_in_every_launch(tmp_path):
    environment = recording(tmp_path / "pids", [HOST])[HOST]
    says = CommandProgram([sys.executable, "-S", "-c", "print(hash('an order of a dictionary of strings'))"])
    conditions = CONDITIONS.replace(page_cache="as_found")
    first, second = (launch(site(environment), says, conditions, pad_bytes=pad) for pad in (5, 9))
    assert first.ok and first.stdout == second.stdout and first.stdout.strip().lstrip("-").isdigit()
    assert [one.pad_bytes for one in environment.started] == [5, 9]


# --- levels and limits of what is concluded


def test_environments_of_a_campaign_share_alpha_when_their_number_of_rounds_is_decided(tmp_path, unheld):
    """Bonferroni: by the pilot of a campaign of three comparisons, each is planned at a third."""
    environments = recording(tmp_path / "pids", (*NAMES, "podman", "apptainer"), work_s=0.0)
    settings = {"units": None, "pilot": 6, "half_width": 0.5, "budget_s": 2.0}
    found = run(tmp_path / "c", setup_of(environments, **settings))
    assert found.sealed.decision.alpha == pytest.approx(0.05 / 3)
    assert family_alpha(found.plan) == pytest.approx(0.05 / 3)


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ((HOST, CONTROL), 1),
        ((HOST, CONTROL, "docker"), 1),
        ((HOST, CONTROL, "docker", "podman"), 2),
        ((HOST, CONTROL, "docker", "podman", reference_of(HOST), reference_of("docker")), 2),
    ],
)
def test_only_what_is_compared_shares_alpha(names, count):
    plan = sealed_campaign({"kind": "rounds", "launches": names}).plan
    assert family_alpha(plan) == pytest.approx((1 - plan.sampling.confidence) / count)


NOISE = [value * 2e-5 for value in (1, -1, 0.5, -0.5, 0.8, -0.8)]


def verdict_beside(control, docker, names=NAMES, spread=0.0):
    """The row of docker where the second host and docker are so far, as logarithms, from the first host."""
    flat = {HOST: 0.0, CONTROL: control, **dict.fromkeys(names[2:], control / 2 + docker)}  # of the hosts' mean
    turned = dict(zip(names, (0, 1, 3, 2, 4), strict=False))
    rows = [
        {
            **{"study": "s", "machine": "box", "campaign": "rounds.docker+host", "scenario": "single"},
            **{"workload": "mnist_cnn", "stack": "torch-2.13", "arm": "arm", "batch": 64, "rep": number + 1},
            **launch_columns(read_role(name), "single"),
            "unit": "s",
            **{"metric": "real_s", "kind": "measured"},
            "value": math.exp(
                value + NOISE[(number + turned[name]) % 6] + (spread * (-1) ** number if name == CONTROL else 0.0)
            ),
        }
        for name, value in flat.items()
        for number in range(6)
    ]
    sampling = {"units": 6, "confidence": 0.95, "verdict_units": 6}
    plan = {"kind": "rounds", "launches": names, "sampling": sampling, "margins": {"run": 0.05, "step": 0.02}}
    plan |= {"arm": "arm", "headline_arm": "arm"}
    campaign = sealed_campaign(plan, name="rounds.docker+host")
    found = pd.DataFrame(verdict_rows(campaign, pd.DataFrame(rows))).set_index(["metric", "launch"])
    return found.loc["real_s", "docker"]


LIMIT = math.log1p(0.05)  # 0.04879: of the margin, on the scale on which intervals are judged


@pytest.mark.parametrize(
    ("control", "docker", "verdict", "reaches"),
    [
        (0.06, 0.18, "different", False),  # beyond the margin, and not as far as the ratio
        (0.06, 0.055, "different", True),
        (-0.06, 0.055, "different", True),
        (-0.06, -0.18, "different", False),
        (0.03, 0.02, "different within margin", True),  # as far as the ratio, and not as the margin
        (0.01, 0.02, "different within margin", False),
        (0.03, 0.0, "equivalent", False),  # beyond the ratio, and not as far as the margin
        (LIMIT + 5e-4, 0.0, "equivalent", True),  # 0.0493 is not 0.05: a margin is no logarithm
        (LIMIT - 5e-4, 0.0, "equivalent", False),
        (-LIMIT - 5e-4, 0.0, "equivalent", True),
    ],
)
def test_the_control_is_held_against_what_the_verdict_claims(control, docker, verdict, reaches):
    """The ratio where a verdict says that one differs, and else the margin; to both sides."""
    row = verdict_beside(control, docker)
    assert (row["verdict"], row["control_reaches"]) == (verdict, reaches)


def test_the_controls_interval_is_at_the_level_of_one_of_its_family():
    """Of three comparisons it is wider than of one, by Bonferroni, whatever Holm's ladder gives to the others."""
    alone, of_three = (verdict_beside(0.0, 0.3, names, 0.01) for names in (NAMES, (*NAMES, "podman", "apptainer")))
    widths = [math.log(row["control_ci_high"] / row["control_ci_low"]) for row in (alone, of_three)]
    assert widths[1] > 1.2 * widths[0]


# --- a sealed campaign and another plan


@pytest.fixture
def sealed(tmp_path):
    """The folder of a campaign that was sealed, the environments of its launches, and a way to ask for it again."""
    environments = recording(tmp_path / "pids")
    folder = tmp_path / "campaigns/fakes/box/mnist_cnn/rounds.docker+host"
    run(folder, setup_of(environments))

    def ask(**change):
        return rounds.rounds(setup_of(environments, change=change))

    return folder, environments, ask


OTHER = {"margins": {"run": 0.1, "step": 0.02}}


def test_what_is_sealed_serves_an_equal_plan_alone(sealed, tmp_path):
    """In each of the three ways in which a sealed campaign may serve a later start."""
    folder, _, ask = sealed
    for way in ("waited", "carried_on", "note"):
        shutil.copytree(tmp_path / "campaigns", tmp_path / way)
        own = tmp_path / way / folder.relative_to(tmp_path / "campaigns")
        asked = {"waited": way == "waited", "carried_on": way == "carried_on"}
        for design, serves in ((ask(), True), (ask(**OTHER), False)):
            if way == "note":
                attempts.leave_note(own)
            found = CampaignStore(own, design.plan).open(**asked)
            assert isinstance(found, Sealed) if serves else found is None, way
        assert (own / "superseded-1" / SEALED).exists() and not (own / SEALED).exists()
        assert json.loads((own / PLAN).read_text())["margins"] == OTHER["margins"]


def test_another_plan_is_measured_anew_though_a_start_was_cut_short(sealed):
    folder, environments, ask = sealed
    before = {name: len(environment.jobs) for name, environment in environments.items()}
    attempts.leave_note(folder)
    run_campaign(folder, ask())
    assert {name: len(environment.jobs) for name, environment in environments.items()} == before
    attempts.leave_note(folder)
    run_campaign(folder, ask(**OTHER))
    anew = read_sealed(folder / SEALED)
    launched = {name: len(environment.jobs) - before[name] for name, environment in environments.items()}
    assert anew.sealed.units == 2 and all(count >= 2 for count in launched.values()), "or more: a void round"
    assert dict(anew.plan.margins) == OTHER["margins"]


def test_another_study_takes_over_what_it_asks_for_and_nothing_else(sealed, tmp_path):
    folder, environments, ask = sealed
    before = len(environments[HOST].jobs)
    for name, change, adopts in (("alike", {}, True), ("other", OTHER, False)):
        place = tmp_path / "campaigns" / name / "box" / "mnist_cnn" / folder.name
        run_campaign(place, ask(study=name, **change))
        assert (read_sealed(place / SEALED).plan.adopted is not None) == adopts
        assert (len(environments[HOST].jobs) == before) == adopts
        shutil.rmtree(place.parents[1])
