"""Records of arms: which there are, how a trial decides, what the record tells launches; nothing is launched."""

import pytest
from test_images import STACK, world  # noqa: F401

from tare.cli.main import main
from tare.core.errors import UnavailableError, UserError
from tare.core.files import read_json, write_json
from tare.images import build
from tare.launch import arm_images
from tare.model.environment import Probe
from tare.model.records.images import ImageRecord, ProbeRecord
from tare.model.schema import read

WORKS = Probe(available=True, details={"isolates_network": True})


@pytest.fixture
def site(world, monkeypatch):  # noqa: F811
    """The world of images, its adapters known here as well; `tried` are the options of each trial launch."""
    known = {"docker": world.runtime, "host": world.host}
    monkeypatch.setattr(arm_images, "environment", known.__getitem__)
    world.tried, world.answer = [], Probe(available=True, details={"isolates_network": False, "seen": "loose"})

    def probe_by_trial(adapter, version, *, options, examine):
        world.tried.append(options)
        return world.answer

    monkeypatch.setattr(arm_images, "probe_by_trial", probe_by_trial)
    world.image = build.build(STACK, "cpu")
    return world


def test_level_of_the_adapter_is_tried_and_told(site):
    record = arm_images.derive_arm(site.image, "docker", "fit=loose", WORKS)
    assert site.tried == [{"fit": "loose"}]
    assert (record.status, record.options, record.install) == ("ok", {"fit": "loose"}, "tree")
    assert record.isolates_network is False  # as the trial of this level saw it, not as the headline's
    assert record.details == {"form": "loose", "trial": site.answer.details}
    ordinary = build.derive(site.image, "docker")
    assert record.to_json().keys() == ordinary.to_json().keys() | {"isolates_network"}
    assert record.digest == ordinary.digest


def test_level_that_does_not_hold_is_a_record_with_its_reason_and_no_form(site):
    site.answer = Probe(available=False, reason="fit=loose was asked for, but it was tight")
    record = arm_images.derive_arm(site.image, "docker", "fit=loose", WORKS)
    assert record.status == "unavailable" and record.options == {"fit": "loose"}
    assert record.reason == "fit=loose: fit=loose was asked for, but it was tight"
    assert record.reference is None and site.runtime.calls == 0
    with pytest.raises(UnavailableError, match="it was tight"):
        build.ensure(record)


def test_environment_that_does_not_work_is_not_tried(site):
    record = arm_images.derive_arm(site.image, "docker", "fit=loose", Probe(available=False, reason="no daemon"))
    assert (record.status, record.reason, site.tried) == ("unavailable", "no daemon", [])
    native = arm_images.derive_arm(site.image, "docker", "stack=native", Probe(available=False, reason="no daemon"))
    assert (native.status, native.reason, native.install) == ("unavailable", "no daemon", "native")
    assert native.tree_digest is None and native.base is None  # those of the tree are not this arm's


def test_session_that_cannot_be_had_gives_its_reason(site, monkeypatch):
    def session():
        raise UnavailableError("no daemon answers")

    monkeypatch.setattr(site.runtime, "session", session)
    record = arm_images.derive_arm(site.image, "docker", "fit=loose", WORKS)
    assert record.reason == "fit=loose: no daemon answers"


@pytest.mark.parametrize(
    ("name", "arm", "known"),
    [
        ("docker", "sif=fuse", "fit=loose, fit=tight, stack=native"),
        ("docker", "fit=none", "fit=loose, fit=tight, stack=native"),
        ("docker", "fit", "fit=loose, fit=tight, stack=native"),
        ("docker", "stack=same", "stack=native"),
        ("docker", "allocator=steady", "stack=native"),
    ],
)
def test_arm_that_has_no_image_of_its_own_is_refused_with_the_known_ones(site, name, arm, known):
    with pytest.raises(UserError, match=f"{name} has no image for '{arm}'.*{known}"):
        arm_images.derive_arm(site.image, name, arm, WORKS)


def test_command_writes_the_record(site, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tare.model.registry.environment", arm_images.environment)
    image, probe, out = tmp_path / "oci.json", tmp_path / "probe.json", tmp_path / "arms/fit-loose/docker.json"
    site.image.write(image)
    ProbeRecord(
        env="docker", title="", description="", available=True, version=None, reason=None, remedy=None, details={}
    ).write(probe)
    argv = ["derive-arm", "--stack", STACK, "--env", "docker", "--out", str(out), "--probe", str(probe)]
    assert main([*argv, "--arm", "fit=loose", "--image", str(image)]) == 0
    record = read(ImageRecord, out)
    assert record.options == {"fit": "loose"}
    assert (out.parent / record.reference.rpartition("/")[2]).is_symlink()
    assert main([*argv, "--arm", "fit=none", "--image", str(image)]) == 2
    assert "known: fit=loose" in capsys.readouterr().err
    site.answer = Probe(available=False, reason="it was tight")
    assert main([*argv, "--arm", "fit=loose", "--image", str(image)]) == 0
    assert read_json(out)["status"] == "unavailable"
    assert "it was tight" in capsys.readouterr().out
    write_json(probe, {"available": True})
    assert main([*argv, "--arm", "fit=loose", "--image", str(image)]) == 4
    told = capsys.readouterr().err
    assert f"{probe} has schema None, this version reads 1: delete it and run again" in told
    assert "Traceback" not in told
