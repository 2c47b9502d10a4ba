"""What a measured launch may do, what it leaves of a user's secrets, and who reaches the private daemon."""

import os
import re
import stat
import sys
import time

import canaries
import pytest
from matrix import REQUIRED, tried

from tare.core.files import cache_dir, project_root
from tare.core.process import run
from tare.datasets import catalog
from tare.launch.trial import INERT, trial_form, try_launch
from tare.model.registry import environment
from tare.model.studies import layout
from tare.runtimes import daemon

pytestmark = pytest.mark.runtime
# What can't be taken from a launch there, and why: SECURITY.md.
UNCONTAINED = {"host"}
OWN_CAPABILITIES = {"charliecloud"}  # of its user namespace, which has one user


@pytest.mark.parametrize("name", tried())
def test_a_launch_has_no_rights_that_it_does_not_need(probes, name):
    if not probes(name).available:
        assert name not in REQUIRED, f"{name} must work on a test machine: {probes(name).reason}"
        pytest.skip(f"{name}: {probes(name).reason}")
    adapter = environment(name)
    with adapter.session():
        trial = try_launch(adapter, trial_form(adapter).reference if adapter.contained else None)
    assert trial.violations == (), "no network but lo, and the image is read-only"
    assert set(re.findall(r"^\s*(\S+):", trial.seen["interfaces"], re.MULTILINE)) <= INERT
    status = dict(re.findall(r"^(\w+):\s*(.*)$", trial.seen["status"], re.MULTILINE))
    if name in UNCONTAINED:
        return
    assert status["NoNewPrivs"] == "1"
    if name not in OWN_CAPABILITIES:
        assert {key: int(status[key], 16) for key in ("CapEff", "CapPrm", "CapBnd")} == dict.fromkeys(
            ("CapEff", "CapPrm", "CapBnd"), 0
        )


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_secrets_of_the_user_are_in_nothing_that_a_launch_leaves(name, forms, folders, tmp_path):
    """Of environment, home and Docker's configuration; in its record, what is printed, and the cache."""
    folders("mnist")
    record = layout.image_record(tmp_path / "images", name, None)
    forms(name).write(record)
    catalog.prepare("mnist").write(tmp_path / "mnist.json")
    (tmp_path / "home").mkdir()
    variables = {**os.environ, **canaries.plant(tmp_path / "home"), "TARE_CACHE": str(cache_dir())}
    out, began = tmp_path / "out", time.time()
    words = [
        *(sys.executable, "-m", "tare", "run", "--study", "config/smoke.yaml", "--workload", "mnist_cnn"),
        *("--env", name, "--images", str(record.parent), "--data", str(tmp_path / "mnist.json")),
        *("--out", str(out / "record.json")),
    ]
    done = run(words, timeout_s=300, env=variables, cwd=project_root())
    assert done.ok, done.explain()
    assert canaries.MARK not in done.stdout + done.stderr
    assert canaries.found_in([out, cache_dir()], since=began) == []
    assert "canary" not in (out / "record.json").read_text()


@pytest.mark.skipif(
    os.getuid() != 0 or daemon.machine_answers(), reason="the machine's own daemon answers, or none may be started"
)
def test_nobody_else_reaches_the_private_daemon():
    with daemon.docker_endpoint():
        places = daemon.state()
        assert stat.S_IMODE(places.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(places.folder.stat().st_mode) == 0o700
