"""Launch sites of a study: who is there, who is not and why; records and adapters by hand, nothing is launched."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from asked import PART
from image_builders import data_record

from envs.host import Host
from tare.core.errors import UnavailableError, UserError
from tare.launch import sites as site_module
from tare.launch.place import Site
from tare.model.studies import arms, sections
from tare.model.studies.sections import DataChoices
from tare.model.studies.study import JobPart

JOB = JobPart(**PART.given(), study="s", workloads={"mnist_cnn": sections.Batch(batch=10)})
RECORD = Path("data.json")


def at(files, environment=None):
    return Site(environment=environment or Host(), python=f"{files}/bin/python3", reference=files)


# --- of which environments


@pytest.fixture
def adapters(monkeypatch):
    """Host and docker with records; those of `broken` have no image, and `slow` no speed."""
    given = SimpleNamespace(broken=(), slow=(), data=[])

    class Named(Host):
        def __init__(self, name):
            self.name = name

        def without_speed(self):
            return "emulated" if self.name in given.slow else None

    def site_of(name, adapter, image, prepared):
        if name in given.broken:
            raise UnavailableError(f"{name} has no image")
        return at(prepared or name, adapter)

    def data_of(workload, record, batch):
        given.data.append((workload, record, batch))
        return "set", {"data": {"rows": 1}}

    image = SimpleNamespace(digest="d", tree_digest="t", bytes=3, read_from=None)
    monkeypatch.setattr(site_module, "environment", Named)
    monkeypatch.setattr(site_module, "image_records", lambda part, workload, names, *_: dict.fromkeys(names))
    monkeypatch.setattr(site_module, "read", lambda *_: image)
    monkeypatch.setattr(site_module.build, "ensure", lambda record: record)
    monkeypatch.setattr(site_module, "site_of", site_of)
    monkeypatch.setattr(site_module, "data_of", data_of)
    monkeypatch.setattr(site_module, "data_record", lambda workload, part: Path(f"of {workload}"))
    return given


def found_sites(arm=None, workload=None, record=None):
    with site_module.sites(PART, workload, ["host", "docker"], None, record, arm) as found:
        return found


def test_an_environment_that_is_not_there_stops_no_other(adapters):
    adapters.broken, adapters.slow = ("docker",), ()
    available, unavailable, provenance = found_sites()
    assert list(available) == ["host"] and unavailable == {"docker": "docker has no image"}
    assert provenance == {"images": {"host": {"digest": "d", "tree_digest": "t", "bytes": 3}}} and not adapters.data
    adapters.broken, adapters.slow = (), ("docker",)
    assert found_sites()[1] == {"docker": "emulated"}


@pytest.mark.parametrize(
    ("arm", "goes_on"), [(None, False), ("allocator=default", False), ("stack=paper-2022", True)]
)
def test_only_a_host_that_may_lack_another_stack_leaves_the_others(adapters, arm, goes_on):
    adapters.broken = ("host",)
    with contextlib.nullcontext() if goes_on else pytest.raises(UnavailableError, match="host has no image"):
        assert list(found_sites(arms.parse(arm) if arm else None)[0]) == ["docker"]


@pytest.mark.parametrize(("record", "taken"), [(None, Path("of mnist_cnn")), (RECORD, RECORD)])
def test_data_of_a_workload_are_of_the_record_that_is_named_or_of_the_workflows(adapters, record, taken):
    available, _, provenance = found_sites(workload="mnist_cnn", record=record)
    assert adapters.data == [("mnist_cnn", taken, 1)] and provenance["data"] == {"rows": 1}
    assert {site.reference for site in available.values()} == {"set"}


# --- records


@pytest.fixture
def looked_for(monkeypatch):
    """What was asked of the data sets that there are, and which files have to be there."""
    asked = SimpleNamespace(sets=[], files=[])
    monkeypatch.setattr(site_module, "require", asked.files.extend)
    monkeypatch.setattr(site_module.catalog, "refuse_unknown", lambda wanted, more: asked.sets.append(wanted))
    return asked


@pytest.mark.parametrize("folder", [None, Path("mine")])
@pytest.mark.parametrize("workload", [None, "mnist_cnn"])
@pytest.mark.parametrize("record", [None, RECORD])
def test_records_are_looked_for_before_anything_is_done(looked_for, folder, workload, record):
    found = site_module.image_records(PART, workload, ["host", "docker"], folder, record)
    of = folder or site_module.layout.IMAGES / "torch-2.13"
    assert found == {name: of / f"{name}.json" for name in ("host", "docker")}
    data = [record or site_module.data_record(workload, PART)] if workload else []
    assert looked_for.files == [*found.values(), *data]
    assert looked_for.sets == ([{"mnist_cnn": "mnist"}] if workload and record is None else [])


def test_a_whole_study_chooses_where_its_data_come_from(monkeypatch):
    class Whole:
        data = SimpleNamespace(record_of=lambda dataset: f"chosen {dataset}")

    monkeypatch.setattr(site_module, "Study", Whole)
    monkeypatch.setattr(site_module.layout, "data_record", Path)
    assert site_module.data_record("mnist_cnn", Whole()) == Path("chosen mnist")
    usual = DataChoices(sentiment="auto").record_of("mnist")
    assert site_module.data_record("mnist_cnn", PART) == Path(usual)


@pytest.mark.parametrize(
    ("images", "more", "fits"),
    [(None, {"batch": 9}, True), (9, {"batch": 9}, True), (8, {"batch": 9}, False), (1, {}, True), (0, {}, False)],
)
def test_data_have_an_image_for_each_place_of_a_batch(tmp_path, monkeypatch, images, more, fits):
    data_record(rows=5).write(tmp_path / "data.json")
    monkeypatch.setattr(site_module.catalog, "ensure", lambda record: tmp_path)
    monkeypatch.setattr(site_module.tiny_imagenet, "training_images", lambda folder, batch: images)
    with contextlib.nullcontext() if fits else pytest.raises(UserError):
        folder, told = site_module.data_of("mnist_cnn", tmp_path / "data.json", **more)
        assert folder == tmp_path and told["data"]["rows"] == 5
    assert site_module.batch_of(JOB, "mnist_cnn") == 10 and site_module.batch_of(PART, "mnist_cnn") == 1


@pytest.mark.parametrize("files", ["/images/host", None])
def test_the_second_host_has_a_copy_of_its_own_where_one_can_be_made(monkeypatch, files):
    host = Site(environment=Host(), python="/images/host/bin/python3", reference=files)
    monkeypatch.setattr(site_module, "second_copy", lambda path: Path(f"/copy{path}"))
    control, told = site_module.control_site(host)
    copy = "/copy/images/host" if files else "/copy."
    assert (control.reference, told) == (copy, {"files": "own copy"})
    assert control.python == copy + ("/bin/python3" if files else "/images/host/bin/python3")

    def full(path):
        raise UnavailableError("no room")

    monkeypatch.setattr(site_module, "second_copy", full)
    assert site_module.control_site(host) == (host, {"files": "shared", "reason": "no room"})


# --- of a campaign


@pytest.fixture
def campaign(monkeypatch):
    """Sites of a campaign: `there` are its arm's, `plain` its headline's; `asked` is what was looked for."""
    given = SimpleNamespace(there=["host", "docker"], plain=["host", "docker"], asked=[])

    @contextlib.contextmanager
    def sites(part, workload, names, folder, record, arm=None):
        again = any(each[0] == "sites" for each in given.asked)
        there, files = (given.plain, "/plain") if again else (given.there, "/arm")
        given.asked.append(("sites", list(names)))
        found = {name: at(f"{files}/{name}") for name in names if name in there}
        yield found, {name: f"no {name}" for name in names if name not in there}, {"images": len(found)}

    monkeypatch.setattr(site_module, "sites", sites)
    monkeypatch.setattr(site_module, "control_site", lambda host: (at("/copy"), {"files": "own copy"}))
    monkeypatch.setattr(site_module, "data_of", lambda workload, record: (Path("/set"), {"data": str(record)}))
    monkeypatch.setattr(site_module, "data_record", lambda workload, part: "usual")
    monkeypatch.setattr(site_module, "no_compiler", lambda stack, device: given.asked.append("compiler") or None)
    monkeypatch.setattr(site_module.limits, "lacking", lambda *_: given.asked.append("limits") or "no groups")
    monkeypatch.setattr(site_module, "_with_compiler", lambda site, part: at(f"{site.reference}+cc"))
    return given


def of_campaign(arm=None, names=("docker",), record=None, **more):
    parsed = arms.parse(arm) if arm else None
    with site_module.launch_sites(PART, "mnist_cnn", names, None, record, parsed, **more) as told:
        found, unavailable, provenance = told
        return {name: site.reference for name, site in found.items()}, unavailable, provenance


def test_a_headline_has_its_environments_and_a_second_host(campaign):
    found, unavailable, provenance = of_campaign()
    assert found == {"host": "/arm/host", "host.control": "/copy", "docker": "/arm/docker"}
    assert not unavailable and provenance == {"images": 2, "control": {"files": "own copy"}}
    assert campaign.asked == [("sites", ["host", "docker"])]


def test_beside_an_arm_the_host_is_launched_as_the_headline_has_it(campaign):
    found, _, _ = of_campaign("allocator=default")
    assert found["host.headline"] == "/plain/host" and found["host"] == "/arm/host"
    assert campaign.asked == [("sites", ["host", "docker"]), ("sites", ["host"])]


def test_a_baseline_that_is_not_there_is_told_by_its_name(campaign):
    campaign.plain = []
    found, unavailable, _ = of_campaign("allocator=default")
    assert "host.headline" not in found and unavailable == {"host.headline": "no host"}


def test_launches_of_an_arm_that_compiles_have_a_compiler_and_its_baseline_none(campaign):
    found, _, _ = of_campaign("compile=inductor")
    assert found == {
        "host": "/arm/host+cc",
        "host.control": "/copy+cc",
        "docker": "/arm/docker+cc",
        "host.headline": "/plain/host",
    }


@pytest.mark.parametrize(
    ("arm", "more", "record", "reason"),
    [
        ("compile=inductor", {}, None, "no compiler"),
        ("limits=quota", {"scenario": "shared"}, RECORD, "no groups"),
        ("tf32=off", {}, None, "tf32=off needs a CUDA device"),
    ],
)
def test_an_arm_that_this_machine_cant_have_launches_nothing(campaign, monkeypatch, arm, more, record, reason):
    monkeypatch.setattr(site_module, "no_compiler", lambda stack, device: "no compiler")
    found, unavailable, provenance = of_campaign(arm, record=record, **more)
    assert found == {} and set(unavailable) == {"host", "docker"}
    assert all(each.startswith(reason) for each in unavailable.values())
    assert provenance == {"data": str(record or "usual")}
    assert [each for each in campaign.asked if each != "limits"] == []


def test_without_a_host_nothing_is_compared(campaign):
    campaign.there = ["docker"]
    found, unavailable, _ = of_campaign("stack=paper-2022", ("docker", "charliecloud"))
    assert found == {} and (unavailable["host"], unavailable["charliecloud"]) == ("no host", "no charliecloud")
    assert unavailable["docker"].endswith("no host")


@pytest.mark.parametrize(
    ("official", "there", "names", "launched"),
    [
        (True, ["host"], ("docker",), False),
        (True, ["host"], (), False),
        (True, ["host", "docker"], ("docker",), True),
        (False, ["host"], ("docker",), True),
    ],
)
def test_an_official_image_needs_a_container(campaign, monkeypatch, official, there, names, launched):
    monkeypatch.setattr(site_module, "is_official", lambda stack: official)
    campaign.there = there
    found, unavailable, _ = of_campaign("stack=paper-2022", names)
    assert bool(found) == launched
    if not launched:
        assert set(unavailable) == {"host", *names}
        assert all(each == "no docker" for each in unavailable.values()) == bool(names)


@pytest.mark.parametrize("reason", [None, "no headers"])
def test_what_can_compile_is_looked_for_on_this_machine(monkeypatch, reason):
    def look(stack, device):
        if reason:
            raise UnavailableError(reason)

    monkeypatch.setattr(site_module.headers, "look", look)
    assert site_module.no_compiler("torch-2.13", "cpu") == reason
