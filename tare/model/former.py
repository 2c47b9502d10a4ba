"""What earlier versions had and this one has not, and what to take instead: each is refused in one line.

A name that is here may be taken again, for example by a user's environment: code that refuses an unknown name
looks it up here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tare.core.errors import UserError

# Keys of studies.
KEYS: Mapping[tuple[str, ...], str] = {
    ("turns",): "training steps are measured in every whole run; `rounds: steps` says at which levels, how many",
    (
        "distributed",
        "hosts",
    ): "instances train on one machine (`network: switch`) or on nodes of a cluster (`network: slurm`)",
    ("arms", "turns"): "name these arms in `arms: rounds`, whose campaigns measure whole runs and training steps",
}
TURNS = "turns"  # a kind of campaigns
# Levels of arms.
LEVELS: Mapping[str, str] = {
    "network=swarm": "take network=overlay, a VXLAN over the switch",
    "network=own": "take network=switch, or network=host for the host's own",
    "network=hosts": "take network=switch, on one machine, or network=slurm, on nodes of a cluster",
    "neighbour=small": "take co_runner_load=small",
    **dict.fromkeys(("root=disk", "root=virtiofs"), "drop it; a virtual machine's root is a disk"),
    **dict.fromkeys(("vcpus=free", "vcpus=pinned"), "drop it; a virtual machine's processors share its CPUs"),
    **dict.fromkeys(("memory=ordinary", "memory=huge"), "drop it; a virtual machine's memory is of ordinary pages"),
}
# Environments, and what comes nearest; docs/walls.md says what was found about each.
ENVIRONMENTS: Mapping[str, str] = {
    "bubblewrap": "charliecloud",
    "nspawn": "podman",
    "gvisor": "vm",
    "docker.gvisor": "docker.vm",
    "docker.kata": "docker.vm",
    "microvm": "vm",
    "unikernel": "vm",
}
# Where a study names environments.
ENVIRONMENT_LISTS = (
    ("environments",),
    ("stack_environments",),
    ("shared", "environments"),
    ("distributed", "environments"),
)


def environment(name: str) -> str | None:
    """What to take instead of an environment; None where no earlier version had it."""
    if name not in ENVIRONMENTS:
        return None
    return f"{name} has gone: take {ENVIRONMENTS[name]} (docs/walls.md says what was found about it)"


def level(text: str) -> str | None:
    """What to do with `factor=level`; None where no earlier version had it."""
    return f"this level has gone: {LEVELS[text]}" if text in LEVELS else None


def refuse_study(config: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse the first key, level or environment of an earlier version; `known`: environments that there are.
    Raises UserError: there is one; the message says what replaces it.
    """
    for where, gone in _in_study(config, known):
        raise UserError(f"config: {where}: {gone}")


def _in_study(config: Mapping[str, Any], known: Collection[str]) -> Iterator[tuple[str, str]]:
    for keys, instead in KEYS.items():
        inner = _at(config, keys[:-1])
        if isinstance(inner, Mapping) and keys[-1] in inner:
            yield ": ".join(keys), f"this key has gone: {instead}; drop it"
    network = f"network={_at(config, ('distributed', 'network'))}"
    if gone := level(network):
        yield f"distributed: {network}", gone
    for keys in ENVIRONMENT_LISTS:
        for name in _names(_at(config, keys)):
            if name not in known and (gone := environment(name)):
                yield ": ".join(keys), gone
    if TURNS in _names(config.get("stack_kinds")):
        yield "stack_kinds", f"{TURNS} has gone: rounds measures whole runs and training steps; drop it"


def _at(config: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _names(found: Any) -> list[str]:
    return [name for name in found if isinstance(name, str)] if isinstance(found, list | tuple) else []
