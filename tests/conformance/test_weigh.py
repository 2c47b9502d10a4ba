"""`tare weigh` in a container: a planted cause is confirmed by a run without it, and nothing is left."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from weigh_jobs import PLANTED

from tare.core.files import project_root
from tare.images import build
from tare.model.registry import environment
from tare.model.schema import read
from tare.weigh.answer import Answer

pytestmark = [pytest.mark.runtime, pytest.mark.meets(environment="docker")]


def test_a_cause_in_a_container_is_confirmed_and_the_container_is_gone(forms, tmp_path):
    images = {"image": build.ensure(forms("docker")).reference}
    words = [sys.executable, "-m", "tare", "weigh", "--minutes=2", f"--out={tmp_path / 'results'}"]
    words += replace(PLANTED["kernels of an old processor"], steps=20).arguments(tmp_path, images)
    own = environment("docker").environment_variables()
    variables = {**os.environ, **own, "PYTHONPATH": str(project_root()), "TARE_LOCKS": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (one,) = read(Answer, tmp_path / "results/answer.json").environments
    assert [each.cause for each in one.causes if each.finding == "confirmed"] == ["instructions"]
    confirmed = one.causes[0]
    assert one.verdict == "different" and confirmed.share > 0.5 and confirmed.part == "steps"
    assert confirmed.command == f"docker run {images['image']} COMMAND"
    assert f"Use: {confirmed.command}"[:60] in " ".join(done.stdout.split())
    shown = ["docker", "ps", "--all", "--no-trunc", "--format", "{{.Mounts}}"]
    left = subprocess.run(shown, env={**os.environ, **own}, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in left
