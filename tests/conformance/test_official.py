"""An image of a registry on this machine as a framework's official one, run by its own Python in a container."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from asking import a_launch
from matrix import REQUIRED, in_turn
from test_oci import Registry

from tare.core.manifest import read_manifest
from tare.core.process import run
from tare.images import build
from tare.images.base import get_base, load_recipe
from tare.images.oci import FolderLayer, write_layer
from tare.launch.conditions import launcher_environment
from tare.model.registry import HOST, environment
from tare.model.studies.stacks import Official, load_stack

pytestmark = pytest.mark.runtime
NAME, OWN = "tensorflow-2.1-official", "/opt/own"
SAYS = "import json, ssl, sys; print(json.dumps([sys.executable, sys.prefix, sys.version.split()[0]]))"


def own_python(tree):
    """A layer of nothing but a tree's interpreter, as an image's authors would have put it somewhere else."""
    entries = [entry for entry in read_manifest(tree) if "/site-packages/" not in entry["path"]]
    sink = io.BytesIO()
    write_layer(FolderLayer(root=tree, entries=entries, inside=Path(OWN), made_by="authors"), sink)
    return sink.getvalue()


@pytest.mark.meets(stack=NAME)
@pytest.mark.parametrize("env", in_turn(2, sorted(REQUIRED - {HOST})))
def test_a_container_runs_the_python_that_its_authors_put_on_its_path(env, image, probes, monkeypatch):
    assert probes(env).available, probes(env).reason
    base = get_base(load_recipe()["base"])
    layers = [*(layer.path.read_bytes() for layer in base.layers), own_python(Path(image.tree.path))]
    registry = Registry()
    registry.hold(layers, layers, [f"PATH={OWN}/bin:/usr/bin:/bin"], "1.0")
    with registry:
        source = Official(
            host=registry.host, repository="library/tiny", tag="1.0", digest=registry.index, scheme="http"
        )
        stack = replace(load_stack(NAME), official=source)
        monkeypatch.setattr(build, "load_stack", lambda name, variant="cpu": stack)
        record = build.build(NAME, "cpu")
    assert record.status == "ok" and record.python == f"{OWN}/bin/python3", record.reason
    form, adapter = build.derive(record, env), environment(env)
    assert form.status == "ok", form.reason
    with adapter.session():
        launch = a_launch("official", (form.python, "-I", "-c", SAYS), reference=form.reference)
        told = run(adapter.command(launch), timeout_s=60, env=launcher_environment(adapter), check=True)
    executable, prefix, version = json.loads(told.stdout.splitlines()[-1])
    assert (executable, prefix, version) == (f"{OWN}/bin/python3", OWN, image.tree.python)
