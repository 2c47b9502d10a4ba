"""Several instances that train together: each whole run is a group, on a switch of its own or the host's network.

Nothing runs beside a unit. `conditions["group"]` says how many instances, how they exchange gradients, over what.
Every instance trains on all samples, in an order of its own, as the benchmark of nthu2018 does: a run has as many
steps as that of an instance alone, and its rate is that of all workers together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tare.launch.group import launch_group
from tare.launch.networks import Wires, switched
from tare.launch.place import Site
from tare.launch.scenarios import Around, Problem
from tare.model.environment import Environment
from tare.model.records.launches import LaunchRecord

SERVED, OVERLAY, HOST_NETWORK = "parameter-server", "overlay", "host"


@contextlib.contextmanager
def surround(around: Around) -> Iterator[Problem]:
    """A switch as asked for can be had; that is all.

    Raises:
        UnavailableError: it can't.
    """
    group = around.conditions["group"]
    if group["network"] != HOST_NETWORK:
        with switched(around.environment, 1, wires_of(group)):
            pass
    yield lambda: None


def barred(environment: Environment) -> str | None:
    """Why instances of an environment can't meet; None where they can."""
    if environment.joins_networks or environment.shares_networks:
        return None
    return f"{environment.title} enters no network of this machine: its instances can't train together"


def launched(site: Site, spec: Mapping[str, Any], conditions: Mapping[str, Any], pad_bytes: int) -> LaunchRecord:
    """A whole run of a group."""
    group = conditions["group"]
    servers = 1 if group["exchange"] == SERVED else 0
    return launch_group(
        site,
        {**spec, "exchange": group["exchange"], "servers": servers, "samples_each": True},
        conditions,
        size=group["workers"] + servers,
        pad_bytes=pad_bytes,
        network="host" if group["network"] == HOST_NETWORK else wires_of(group),
    )


def wires_of(group: Mapping[str, Any]) -> Wires:
    """The switch that a group asks for."""
    rate = group["rate_mbit_per_s"]
    return Wires(
        rate_bit_per_s=None if rate is None else rate * 1e6,
        delay_ms=group["delay_ms"],
        overlay=group["network"] == OVERLAY,
    )
