"""An image that the Docker daemon lost comes back; no study of ours may need it meanwhile: this is quiet."""

import pytest

from tare.core.process import run
from tare.experiments.alone import alone_on_this_machine
from tare.images import build
from tare.launch.conditions import launcher_environment
from tare.model.registry import environment

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
