"""Scenarios: what runs while a unit of a campaign runs, or how many train together. `single` is a job alone.

A scenario is a module of this folder, whose `surround` is a context manager around each unit. It yields a function
that says what is wrong by now, or None: what was measured with a co-runner that died does not count. Whatever it
starts goes through `tare.core.process`, so that it ends with us, also when we are killed. A module whose whole runs
are no plain launches has `launched`, which makes one (site, program, conditions, bytes of padding), and
`barred`, which says why an environment can have none.
"""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tare.core.errors import TareError, UnavailableError, UserError, reason_of
from tare.core.process import ended, kill_group, start
from tare.launch.conditions import PATH
from tare.launch.place import Site
from tare.model.conditions import Conditions
from tare.model.environment import Environment
from tare.model.records.launches import LaunchRecord
from tare.model.registry import scenario_names
from tare.model.words import nearest

SETTLE_S = 0.2  # in which a program that can't run has usually ended
Problem = Callable[[], str | None]


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a scenario is given of the unit that it surrounds."""

    cpus: tuple[int, ...]  # logical CPUs that the launches use
    environment: Mapping[str, str]  # of the client, for programs that it starts
    conditions: Conditions | None = None  # of the launches; None where nobody asks for any


def around(cpus: Sequence[int], conditions: Conditions | None = None) -> Around:
    """What a scenario is given of launches on these CPUs, under these conditions."""
    return Around(cpus=tuple(cpus), environment={"PATH": PATH}, conditions=conditions)


Scenario = Callable[[Around], AbstractContextManager[Problem]]
Launcher = Callable[..., LaunchRecord]  # site, program, conditions, pad_bytes


SCENARIOS: dict[str, Scenario] = {}  # by name, those that have been asked for


@dataclass
class Span:
    """When a scenario began and ended, and whether it lived in between."""

    name: str
    began_ns: int | None = None
    ended_ns: int | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a unit's row keeps it."""
        lived = self.began_ns is not None and self.reason is None
        return {
            "name": self.name,
            "began_ns": self.began_ns,
            "ended_ns": self.ended_ns,
            "lived": lived,
            "reason": self.reason,
        }


def scenario(name: str) -> Scenario:
    """The scenario of that name. Raises UserError: there is none; the nearest is named."""
    if name not in SCENARIOS:
        known = scenario_names()
        if name not in known:
            raise UserError(f"there is no scenario {name!r}: {nearest(name, known)}")
        module = importlib.import_module("tare.launch.scenarios." + name)
        SCENARIOS[name] = module.surround
    return SCENARIOS[name]


def launcher(name: str) -> Launcher | None:
    """How whole runs are made in a scenario that has its own way; None where they are plain launches."""
    found: Launcher | None = _of_module(name, "launched")
    return found


def barred(name: str, sites: Mapping[str, Site], network: str) -> dict[str, str]:
    """Why launches of these names can't be made in a scenario; those that can be are not in it.

    `network` is that of its groups, where it has some.
    """
    says: Callable[[Environment, str], str | None] | None = _of_module(name, "barred")
    reasons = {each: says(site.environment, network) for each, site in sites.items()} if says else {}
    return {each: reason for each, reason in reasons.items() if reason}


def _of_module(name: str, what: str) -> Any:
    """What a scenario's module has by this name; None where it has no such thing."""
    known = name in scenario_names()
    return getattr(importlib.import_module("tare.launch.scenarios." + name), what, None) if known else None


@contextlib.contextmanager
def surrounded(name: str, around: Around) -> Iterator[Span]:
    """Run a scenario around a unit; afterwards its span says how that went, with a reason where it did not hold.

    A scenario that can't begin gives a span with its reason and no beginning: the unit is void, and nothing need be
    launched. Errors of the unit itself pass through.
    """
    span = Span(name)
    with contextlib.ExitStack() as stack:
        try:
            problem = stack.enter_context(scenario(name)(around))
        except UserError:
            raise
        except (TareError, OSError) as error:
            span.reason = f"the scenario {name} could not begin: {reason_of(error)}"
            yield span
            return
        span.began_ns = time.monotonic_ns()
        yield span
        wrong = problem()
        span.ended_ns = time.monotonic_ns()
        if wrong:
            span.reason = f"the scenario {name} did not last: {wrong}"


@contextlib.contextmanager
def co_runner(argv: Sequence[str], around: Around) -> Iterator[Problem]:
    """A program that runs while the unit does, and is ended with all that it started. Raises UnavailableError: it
    is not there, or ends at once.
    """
    null = subprocess.DEVNULL
    process = start(argv, env=around.environment, cwd=None, stdin=null, stdout=null, stderr=null)

    def problem() -> str | None:
        status = process.poll()
        return None if status is None else f"{argv[0]} ended with status {status}"

    try:
        time.sleep(SETTLE_S)
        if reason := problem():
            raise UnavailableError(reason)
        yield problem
    finally:
        kill_group(process.pid)
        process.wait()
        ended(process.pid)
