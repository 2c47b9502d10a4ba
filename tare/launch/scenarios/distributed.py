"""Several instances that train together: each whole run is a group, on a switch, the host's network, or nodes.

Nothing else runs while a unit does. `Conditions.group` says how many instances there are, how they exchange
gradients, and over what. Every instance trains on all samples, in its own order, as the benchmark of nthu2018 does:
a run has as many steps as that of an instance alone, and its rate is that of all workers together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from tare.launch import networks, nodes
from tare.launch.group import launch_group
from tare.launch.networks import HOST_NETWORK, Plain, Wires, switched
from tare.launch.place import Site
from tare.launch.program import Runnable, with_more
from tare.launch.scenarios import Around, Problem
from tare.model.conditions import SLURM, Conditions, Group
from tare.model.environment import Environment
from tare.model.records.launches import LaunchRecord

SWITCH, OVERLAY, OVERLAY_OF_CONTAINERS = "switch", "overlay", "overlay-of-containers"


@contextlib.contextmanager
def surround(around: Around) -> Iterator[Problem]:
    """A switch as asked for, or as many nodes, can be had; nodes still answer at the end. Raises UnavailableError:
    they can't.
    """
    group = group_of(around.conditions)
    network = network_of(group)  # an overlay, if any has one
    if network == SLURM:
        yield partial(nodes.lost, nodes.allocation(group.size))
        return
    if isinstance(network, Wires):
        with switched(around.environment, 1, network):
            pass
    yield lambda: None


def barred(environment: Environment, network: str) -> str | None:
    """Why instances of an environment can't meet on a network of this kind; None where they can."""
    return networks.barred(environment, environment.network_of(network))


def launched(site: Site, program: Runnable, conditions: Conditions, pad_bytes: int) -> LaunchRecord:
    """A whole run of a group."""
    group = group_of(conditions)
    return launch_group(
        site,
        with_more(program, exchange=group.exchange, servers=group.servers, samples_each=True),
        conditions,
        size=group.size,
        pad_bytes=pad_bytes,
        network=network_of(group, site.environment),
    )


def group_of(conditions: Conditions | None) -> Group:
    """The group of launches of this scenario, which all have one."""
    assert conditions is not None and conditions.group is not None
    return conditions.group


def network_of(group: Group, environment: Environment | None = None) -> Wires | Plain:
    """What a group of an environment meets on; of None, as those that have an overlay."""
    kind = environment.network_of(group.network) if environment is not None else group.network
    if group.network == HOST_NETWORK or group.network == SLURM:
        return group.network
    rate = group.rate_mbit_per_s
    return Wires(
        rate_bit_per_s=None if rate is None else rate * 1e6,
        delay_ms=group.delay_ms,
        overlay=kind in (OVERLAY, OVERLAY_OF_CONTAINERS),
    )
