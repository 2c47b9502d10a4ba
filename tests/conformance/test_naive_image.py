"""An image as people write it, built for real once: one small package, so that it takes seconds."""

from dataclasses import replace

import pytest
from matrix import REQUIRED

from tare.core.process import run
from tare.experiments import naive_image
from tare.images import naive
from tare.images.interpreter import with_interpreter
from tare.images.wheels import fetch_wheels
from tare.launch.conditions import launcher_environment
from tare.model.registry import environment
from tare.model.studies.stacks import load_stack

pytestmark = pytest.mark.runtime
PACKAGE = "markupsafe"


@pytest.fixture(scope="module")
def both():
    """The record of both images of a stack of one package, which is in the lock of the current one."""
    stack, interpreter = with_interpreter(load_stack("torch-2.13", "cpu"))
    wheels = [wheel for wheel in fetch_wheels(stack).wheels if wheel.name == PACKAGE]
    small = replace(stack, name="one-package", imports=(PACKAGE,), before_imports="", keep=())
    return naive_image.compare(small, wheels, interpreter, [])


def test_both_are_built_from_the_same_base_and_ours_comes_out_as_before(both):
    assert "docker" in REQUIRED and both.status == "ok", both.reason
    assert both.same_digest
    assert both.naive.layers[0].digest == both.ours.layers[0].digest
    assert both.naive.layers[0].gzip_bytes == both.ours.layers[0].gzip_bytes
    assert both.steps == sum(
        line.split(maxsplit=1)[0].isupper() and not line.startswith("#")
        for line in (naive.project_root() / naive.DOCKERFILE).read_text().splitlines()
    )


def test_another_line_of_code_makes_the_last_layer_anew_and_the_cache_spares_the_rest(both):
    last = len(both.naive.layers) - 1
    assert both.naive.new_with_code == (last,)
    assert both.naive.new_with_stack[-1] == last and len(both.naive.new_with_stack) > 1
    assert both.ours.new_with_code == () and both.ours.new_with_stack == (1,)
    seconds = both.naive.seconds
    assert 0 < seconds["build_cached"] < seconds["build"] and 0 < seconds["build_code"] < seconds["build"]
    assert min(both.ours.seconds.values()) > 0 and "load" in both.ours.seconds


def test_layers_weigh_less_compressed_and_nothing_is_left_in_the_daemon(both):
    for image in (both.naive, both.ours):
        assert all(0 < layer.gzip_bytes <= layer.bytes for layer in image.layers)
    docker = environment("docker")
    with docker.session():
        for reference in (naive_image.TAG, naive_image.CHANGED, naive.BASE):
            shown = ["docker", "image", "inspect", reference]
            assert not run(shown, timeout_s=60, env=launcher_environment(docker)).ok
        left = ["docker", "image", "ls", "--quiet", "--all", "--filter", f"label={naive.LABEL}"]
        assert run(left, timeout_s=60, env=launcher_environment(docker), check=True).stdout == ""
