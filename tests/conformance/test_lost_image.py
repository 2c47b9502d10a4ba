"""An image that the Docker daemon lost comes back; no study of ours may need it meanwhile: this is quiet."""

from pathlib import Path

import pytest
from image_builders import image_record

from tare.core.errors import UnavailableError
from tare.core.manifest import read_manifest
from tare.core.process import run
from tare.experiments.alone import alone_on_this_machine
from tare.images import build, oci, runtime_forms
from tare.launch.conditions import launcher_environment
from tare.model.registry import environment
from tare.runtimes.daemon import daemon_with_data

pytestmark = [pytest.mark.runtime, pytest.mark.quiet]


def test_daemon_that_lost_the_image_gets_it_back(forms):
    record = forms("docker")
    adapter = environment("docker")
    with alone_on_this_machine(), adapter.session():  # nobody who measures may need it
        variables = launcher_environment(adapter)
        run(["docker", "rmi", "--force", record.reference], timeout_s=60, env=variables, check=True)
        again = build.ensure(record)
        assert again.reference == record.reference and not again.cached
        shown = run(["docker", "image", "inspect", record.reference], timeout_s=60, env=variables)
        assert shown.ok


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A record of a small image, as a login node without a daemon of its own shares it by the cache."""
    monkeypatch.setenv("TARE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files/hello").write_text("hello")

    def make(folder):
        layer = oci.FolderLayer(
            root=tmp_path / "files", entries=read_manifest(tmp_path / "files"), inside=Path("/x"), made_by="a test"
        )
        recipe = {"env": {}, "workdir": "/", "labels": {}}
        image = oci.assemble([layer], config=recipe, labels={}, name="tare/small", folder=folder)
        base = {"kind": "none", "name": "none", "digest": "", "glibc": "", "bytes": 0, "reason": None}
        return {"image": image, "base": base, "seconds": {}}

    kept, fields = runtime_forms.keep_image(["small"], "a small image", make)
    found = {name: fields[name] for name in ("key", "digest", "image_id")}
    return kept, image_record(stack="small", variant="cpu", reference=fields["image_id"], tree="/x", **found)


def test_the_daemon_of_another_node_loads_the_image_once(small, tmp_path, monkeypatch):
    """It has a store of its own, as a node's; the archive lies in the cache that nodes share."""
    kept, record = small
    with daemon_with_data(tmp_path / "node") as variables:
        monkeypatch.setenv("DOCKER_HOST", variables["DOCKER_HOST"])
        assert not environment("docker").has(record.image_id)
        loaded = build.ensure(record)
        assert loaded.reference == record.image_id and environment("docker").has(loaded.reference)
        (kept.path / oci.ARCHIVE).unlink()  # a second load would need it
        assert build.ensure(loaded).reference == loaded.reference


def test_a_node_without_a_daemon_is_one_line(small, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(UnavailableError, match="no Docker daemon answers") as caught:
        build.ensure(small[1])
    assert "\n" not in str(caught.value)
