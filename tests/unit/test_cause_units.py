"""The campaign of causes: what each unit launches, and with which list of files."""

import pytest
from campaign_builders import CONDITIONS, MARGINS
from cause_builders import causes_record

from tare.core.errors import UnavailableError, UserError
from tare.experiments import causes, designs
from tare.experiments.campaign import run_campaign
from tare.experiments.designs import Setup
from tare.model.journals.sealed import read_sealed
from tare.model.studies import arms

LISTED = {"modules": ["lib/a.pyc"], "libraries": [["lib/b.so", [[0, 2]]]]}
NAMES = ("host", "host.control", "docker")


def study(page_cache="warm", units=2):
    return {
        "study": "s",
        "seed": 3,
        "stack": "torch-2.13",
        "device": "cpu",
        "confidence": 0.95,
        "margins": MARGINS,
        "conditions": {**CONDITIONS, "page_cache": page_cache},
        "rounds": {"allocator": "default"},
        "causes": {"units": units, "verdict_units": 3, "steps": 4, "warmup_steps": 2},
        "workloads": {"mnist_cnn": {"batch": 64}},
    }


@pytest.fixture
def launched(monkeypatch):
    """Every launch that the campaign makes: its site and its spec; what it finds is made up."""
    import random

    seen = []

    def launch(site, spec, conditions, *, pad_bytes):
        seen.append((site, spec))
        record = causes_record(site, random.Random(len(seen)))
        memory = {"peak_rss_bytes": 1, "children_peak_rss_bytes": 1}
        record["inside"] |= {"schema": 1, "reason": None, "memory": memory}
        if "files" not in spec:
            record["inside"]["results"] = {"listed": LISTED if spec["keep_list"] else None}
        return record

    replace_launches(monkeypatch, launch)
    return seen


def replace_launches(monkeypatch, launch):
    """Let this function stand for each launch, also of those that run side by side."""

    def side_by_side(orders):
        return {name: launch(**vars(one)) for name, one in orders.items()}

    monkeypatch.setattr(designs, "launch", launch)
    monkeypatch.setattr(designs, "launch_side_by_side", side_by_side)


class Named(str):
    """A site that is known by its name."""

    framework = "torch"


def run(folder, config, names=NAMES):
    sites = {name: Named(name) for name in names}
    return run_campaign(
        folder,
        causes.causes(Setup(study=config, workload="mnist_cnn", sites=sites, unavailable={"podman": "not there"})),
    )


def test_the_host_lists_its_files_and_all_later_launches_read_them(tmp_path, launched):
    sealed = run(tmp_path / "c", study())
    assert (sealed.status, sealed.units) == ("sealed", 2)
    assert len(launched) == 3 * len(NAMES)
    first, later = launched[:3], launched[3:]
    assert {site: spec["keep_list"] for site, spec in first} == {name: name == "host" for name in NAMES}
    assert all(spec["files"] == LISTED for _, spec in later)
    found = read_sealed(tmp_path / "c/sealed.json")
    assert (found.plan.kind, found.plan.discarded, found.plan.sampling.units) == ("causes", 1, 2)
    assert found.plan.arm == "stack=same,allocator=default,page_cache=warm"
    assert [unit.discarded for unit in found.units] == [True, False, False]


def test_where_nothing_has_to_be_warm_only_the_host_lists(tmp_path, launched):
    run(tmp_path / "c", study(page_cache="as_found"))
    assert [site for site, _ in launched][:1] == ["host"]
    assert len(launched) == 1 + 2 * len(NAMES)


def test_units_have_random_orders_from_the_plans_seed(tmp_path, launched):
    run(tmp_path / "c", study(units=12))
    orders = {tuple(site for site, _ in launched[at : at + 3]) for at in range(3, len(launched), 3)}
    assert len(orders) > 2


def test_a_host_that_can_not_list_its_files_ends_the_campaign_with_its_reason(tmp_path, monkeypatch, launched):
    def fails(site, spec, conditions, *, pad_bytes):
        return {"status": "failed", "reason": "no torch", "inside": None, "deviations": []}

    replace_launches(monkeypatch, fails)
    with pytest.raises(UnavailableError, match="could not list the files that its imports need: no torch"):
        run(tmp_path / "c", study())


def test_an_arm_is_refused(tmp_path):
    with pytest.raises(UserError, match="drop the arm allocator=steady"):
        causes.causes(Setup(study=study(), workload="mnist_cnn", sites={}, arm=arms.parse("allocator=steady")))
