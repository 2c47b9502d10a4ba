"""What adapters are asked by the arguments that they build, and machines by what they lack, without naming any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tare.core.errors import UnavailableError
from tare.images.interpreter import find_interpreter
from tare.model.environment import Bind, Device, Launch
from tare.model.registry import environment
from tare.model.studies.stacks import load_stack


def a_launch(name: str, argv: tuple[str, ...], **fields: Any) -> Launch:
    """A launch of this user on every CPU; `fields` are those that matter."""
    common: dict[str, Any] = {
        "reference": None,
        "binds": (),
        "workdir": Path("/"),
        "cpus": tuple(sorted(os.sched_getaffinity(0))),
        "shm_bytes": 64 << 20,
        "nofile": 1024,
        "uid": os.getuid(),
        "gid": os.getgid(),
    }
    return Launch(name=name, argv=argv, **{**common, **fields})


def shows_read_only(name: str) -> bool:
    """Whether an environment's folders can't be written unless they are meant to be: its arguments say which."""

    def arguments(writable: bool) -> list[str]:
        bind = Bind(source=Path("/shown"), target=Path("/shown"), writable=writable)
        return environment(name).command(a_launch("asked", ("true",), reference="image", binds=(bind,)))

    return arguments(writable=False) != arguments(writable=True)


def has_own_dev(name: str) -> bool:
    """Whether a launch sees only the device files that it is given: its arguments then name them."""
    device = Device(source=Path("/dev/stub"), target=Path("/dev/stub"))

    def arguments(devices: tuple[Device, ...]) -> list[str]:
        launch = a_launch("asked", ("true",), reference="image", gpu="plain", devices=devices)
        return environment(name).command(launch)

    return arguments((device,)) != arguments(())


def skip_without_interpreter(stack: str, reason: str | None) -> NoReturn:
    """Skip where this machine has no interpreter for a stack; fail where it was not made for any other reason."""
    version = load_stack(stack, "cpu").python
    with pytest.raises(UnavailableError):
        find_interpreter(version)
    assert reason and f"no CPython {version}" in reason
    pytest.skip(reason)
