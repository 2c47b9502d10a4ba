"""Both naive builds for real, once: a stack of one small package, so that they take seconds."""

from dataclasses import replace

import pytest
from matrix import REQUIRED

from tare.core.files import cache_dir
from tare.core.process import run
from tare.experiments import naive_image
from tare.images.interpreter import with_interpreter
from tare.images.wheels import fetch_wheels
from tare.launch.conditions import launcher_environment
from tare.model.registry import environment
from tare.model.studies.stacks import load_stack

pytestmark = pytest.mark.runtime
PACKAGE = "markupsafe"


def build(imports):
    """Both builds of a stack of one package, which is in the lock of the current one."""
    stack, interpreter = with_interpreter(load_stack("torch-2.13", "cpu"))
    wheels = [wheel for wheel in fetch_wheels(stack).wheels if wheel.name == PACKAGE]
    small = replace(stack, name="one-package", imports=imports, before_imports="", keep=())
    return {one.builder: one for one in naive_image.build_both(small, wheels, interpreter)}


def test_both_images_are_built_import_the_stack_and_leave_nothing():
    before = set(cache_dir("naive").iterdir())
    found = build((PACKAGE,))
    assert {"docker", "apptainer"} <= set(REQUIRED)
    for one in found.values():
        assert one.status == "ok", one.reason
        assert one.seconds > 0 and one.bytes > 1_000_000 and one.version
    assert set(cache_dir("naive").iterdir()) == before
    docker = environment("docker")
    with docker.session():
        for reference in (naive_image.TAG, naive_image.BASE):
            shown = ["docker", "image", "inspect", reference]
            assert not run(shown, timeout_s=60, env=launcher_environment(docker)).ok
        left = ["docker", "image", "ls", "--quiet", "--all", "--filter", f"label={naive_image.LABEL}"]
        assert run(left, timeout_s=60, env=launcher_environment(docker), check=True).stdout == ""


def test_an_image_that_does_not_import_the_stack_does_not_count():
    for one in build(("torch",)).values():
        assert one.status == "unavailable" and "No module named 'torch'" in one.reason, one.reason
