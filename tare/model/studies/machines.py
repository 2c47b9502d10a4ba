"""Compute nodes of a cluster that a study measures on, by the names that their results have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tare.core.errors import UserError
from tare.model.machines import MACHINE, MachineName, slug_of
from tare.model.schema import Record, matching

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.:@+-]*"
Word = Annotated[str, matching(_WORD, "must be letters, digits and any of _ . : @ + -")]
Constraint = Annotated[str, matching(r"[A-Za-z0-9_.:@+&|*()\[\]-]+", "is no constraint as sbatch takes it")]


class Nodes(Record):
    """Equal compute nodes, and what the scheduler has to be given to get one of them.

    Where a study has several of them measured, each is a separate machine: `thin`, with `nodes: 3`, is measured
    as `thin-1`, `thin-2` and `thin-3`.
    """

    # partition, account, qos, constraint: as of sbatch; the scheduler's defaults where they are not given
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Constraint | None = None
    node: Word | None = None  # the one node to measure on; any of the partition where it is not given
    nodes: Annotated[int, Field(ge=1, le=1000)] = 1  # how many of them are measured, each with every campaign
    # logical CPUs of a node; asked from the scheduler where it is not given. A job gets a node for itself
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    gpus: Annotated[int, Field(ge=0, le=64)] = 0  # of a node, that a job gets
    # that a job gets; all that the scheduler has of a node where it is not given
    memory_mib: Annotated[int, Field(ge=64, le=1 << 30)] | None = None
    # the longest that a job may take there; as long as the plan expects where it is not given
    minutes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    # whether jobs copy the images that they launch to a disk of the node ($SLURM_TMPDIR or $TMPDIR); `auto`: where
    # the cache is on a file system that nodes share
    scratch: Literal["auto", "always", "never"] = "auto"

    @model_validator(mode="after")
    def _one_node_is_one(self) -> Nodes:
        if self.node is not None and self.nodes > 1:
            raise ValueError("node names one node, and nodes asks for more: drop one of them")
        return self

    @property
    def device(self) -> str:
        """What a study that leaves it open trains on there: `cuda` or `cpu`."""
        return "cuda" if self.gpus else "cpu"


def _named(given: Any) -> Any:
    """A list of partitions as what it is short for: machines that have their names."""
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        return given
    names = [slug_of(one) for one in given]
    if len(set(names)) < len(names):
        raise ValueError("two of these partitions have one name as a machine; name the machines yourself")
    return {name: {"partition": one} for name, one in zip(names, given, strict=True)}


Machines = Annotated[Mapping[MachineName, Nodes], BeforeValidator(_named)]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A machine that a study measures."""

    kind: str  # the name that the study gives to it and to those equal to it
    nodes: Nodes  # what the scheduler is given
    number: int | None = None  # which of the equal nodes it is, from 1; None where any of them will do


def measured(machines: Machines) -> dict[str, Measured]:
    """Each machine that a study measures, by its name in paths and rows. UserError: two would have one name."""
    found: dict[str, Measured] = {}
    for kind, nodes in machines.items():
        numbers = [None] if nodes.nodes == 1 else list(range(1, nodes.nodes + 1))
        for number in numbers:
            name = kind if number is None else f"{kind}-{number}"
            if name in found:
                raise UserError(
                    f"config: machines: {name} would be two machines: rename {kind} or {found[name].kind}"
                )
            found[name] = Measured(kind=kind, nodes=nodes, number=number)
    return found


def are_several(machines: Machines) -> bool:
    """Whether results have a folder for each machine. UserError: two machines would have one name."""
    return len(measured(machines)) > 1


def chosen(machines: Machines, given: str | None) -> list[str]:
    """Names of the machines that a run of the workflow measures; none: this machine. `machines`: those that the
    study names. `given`: what TARE_MACHINE says; None: all of them. Raises UserError: it is none of them, or two
    would have one name.
    """
    names = list(measured(machines))
    if not names or given is None:
        return names
    if given not in names:
        raise UserError(f"{MACHINE}: the study has no machine {given!r}: it names {', '.join(names)}")
    return [given]
