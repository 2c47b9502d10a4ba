"""Names of machines: given or made of the hardware, and what is measured without the one that its key has."""

import re
import shutil

import builders
import pytest

from tare.analysis import extract, profile_rows
from tare.core.errors import IntegrityError, UserError
from tare.core.files import read_json, sha256_file, write_json
from tare.machine import facts
from tare.model import tables
from tare.model.journals.sealed import read_sealed
from tare.model.machines import MACHINE, PATTERN, slug_of

XEON = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"


@pytest.fixture
def hardware(monkeypatch, tmp_path):
    """A machine of one processor and its PCI devices, without a name of its own."""
    monkeypatch.delenv(MACHINE, raising=False)
    monkeypatch.setattr(facts, "PCI", tmp_path)
    monkeypatch.setattr(facts, "_cpu_model", lambda: XEON)
    monkeypatch.setattr(facts.os, "cpu_count", lambda: 16)
    facts._hardware_name.cache_clear()
    yield tmp_path
    facts._hardware_name.cache_clear()


def device(folder, address, kind, vendor="0x10de", model="0x2335"):
    """A device on a PCI bus, as sysfs shows it."""
    own = folder / address
    own.mkdir()
    for name, text in (("class", kind), ("vendor", vendor), ("device", model)):
        (own / name).write_text(f"{text}\n")


def named():
    facts._hardware_name.cache_clear()
    return facts.machine_name()


@pytest.mark.parametrize(
    ("told", "slug"),
    [
        (XEON, "intel-xeon-platinum-8481c"),
        ("AMD EPYC 9654 96-Core Processor", "amd-epyc-9654"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("(R)", "machine"),
    ],
)
def test_a_device_is_called_by_its_own_words(told, slug):
    assert slug_of(told) == slug


def test_a_name_is_the_hardwares_and_the_same_under_another_host_name(hardware, monkeypatch):
    first = named()
    assert first.startswith("intel-xeon-platinum-8481c-") and re.fullmatch(PATTERN, first)
    monkeypatch.setattr(facts.platform, "node", lambda: "another")
    assert named() == first


def test_other_hardware_has_another_name(hardware, monkeypatch):
    names = [named()]
    device(hardware, "0000:00:06.0", "0x030200")
    names.append(named())
    device(hardware, "0000:00:07.0", "0x030200")
    names.append(named())
    device(hardware, "0000:00:08.0", "0x020000")  # a network card
    assert named() == names[-1]
    monkeypatch.setattr(facts.os, "cpu_count", lambda: 8)
    names.append(named())
    assert len(set(names)) == 4


def test_the_environment_names_a_machine_and_a_name_that_is_none_is_refused(hardware, monkeypatch):
    monkeypatch.setenv(MACHINE, "node-7")
    assert facts.machine_name() == facts.identity()["name"] == facts.record().name == "node-7"
    for wrong in ("Node 7", "a/b", "-a", "a" * 41):
        monkeypatch.setenv(MACHINE, wrong)
        with pytest.raises(UserError, match=f"{MACHINE}: .* is no name of a machine: up to 40 lower-case letters"):
            facts.machine_name()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return builders.build_results(tmp_path_factory.mktemp("whole") / "results", units=2)


@pytest.fixture
def sealed(whole, tmp_path):
    """The seal of a campaign of its own."""
    found = next(whole.glob("campaigns/*/box/mnist_cnn/causes.*/sealed.json"))
    folder = tmp_path / found.parent.relative_to(whole)
    shutil.copytree(found.parent, folder)
    return folder / found.name


def test_every_row_of_every_table_names_the_machine(whole):
    found = [name for name in tables.SCHEMAS if (whole / f"tables/{name}.csv").exists()]
    assert len(found) > 10
    for name in found:
        table = tables.read(name, whole / f"tables/{name}.csv")
        assert tables.machine_of(table) in ("box", None) and (len(table) == 0 or set(table["machine"]) == {"box"})


def test_a_campaign_that_lies_under_another_machine_is_refused(sealed):
    moved = sealed.parents[2].with_name("other")
    sealed.parents[2].rename(moved)
    with pytest.raises(IntegrityError, match="is of machine 'box' and lies under 'other'"):
        extract.build([moved / sealed.relative_to(sealed.parents[2])], [])


def test_records_of_two_machines_make_no_table(whole, sealed, tmp_path):
    folder = next(whole.glob("profiles/*/box/mnist_cnn/host"))
    other = tmp_path / "profiles/nyu2022/other/mnist_cnn/host"
    shutil.copytree(folder, other)
    record = read_json(other / "profile.json")
    write_json(other / "profile.json", {**record, "machine": "other"})
    with pytest.raises(UserError, match=r"records of different machines can't be compared: box .*, other"):
        extract.build([sealed], [other / "profile.json"])


def test_a_profile_of_a_version_that_named_no_machine_is_refused_in_one_line(whole, tmp_path):
    folder = tmp_path / "host"
    shutil.copytree(next(whole.glob("profiles/*/box/mnist_cnn/host")), folder)
    record = read_json(folder / "profile.json")
    del record["machine"]
    write_json(folder / "profile.json", record)
    with pytest.raises(IntegrityError, match="older version, which named no machine: run it again") as told:
        profile_rows.read_profile(folder / "profile.json")
    assert "\n" not in str(told.value)


def test_a_plan_of_the_version_before_is_read_in_a_reference_campaign_alone(sealed, tmp_path):
    said = read_json(sealed.with_name("plan.json"))
    names = [role.name for role in read_sealed(sealed).plan.launches]
    machine = {key: value for key, value in said["machine"].items() if key != "name"}
    former = {key: value for key, value in said.items() if key != "launches"}
    plan = sealed.with_name("plan.json")
    write_json(plan, {**former, "schema": 2, "environments": names, "machine": machine})
    write_json(sealed, {**read_json(sealed), "plan_sha256": sha256_file(plan)})
    with pytest.raises(IntegrityError, match="has schema 2, this version reads 3: run it again"):
        read_sealed(sealed)
    write_json(tmp_path / "reference.json", {"device": {"name": "Some GPU"}})
    found = read_sealed(sealed).plan
    assert found.machine.name == "some-gpu" and list(found.launch_names) == names
