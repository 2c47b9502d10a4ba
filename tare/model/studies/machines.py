"""Compute nodes of a cluster that a study measures on, by the names that their results have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tare.core.errors import UserError
from tare.model.machines import MACHINE, MachineName, slug_of
from tare.model.schema import Record, matching

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.:@+-]*"
Word = Annotated[str, matching(_WORD, "must be letters, digits and any of _ . : @ + -")]
Constraint = Annotated[str, matching(r"[A-Za-z0-9_.:@+&|*()\[\]-]+", "is no constraint as sbatch takes it")]


class Nodes(Record):
    """Equal compute nodes, and what the scheduler has to be told to get one of them.

    Attributes:
        partition, account, qos, constraint: as of sbatch; the scheduler's defaults where they are not given.
        node: the one node to measure on; any of the partition where it is not given.
        cpus: logical CPUs of a node; asked from the scheduler where it is not given. A job gets a node for itself.
        gpus: of a node, that a job gets.
        minutes: the longest that a job may take there; as long as the plan expects where it is not given.
    """

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Constraint | None = None
    node: Word | None = None
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    minutes: Annotated[int, Field(ge=1, le=100_000)] | None = None


def _named(given: Any) -> Any:
    """A list of partitions as what it is short for: machines that have their names."""
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        return given
    names = [slug_of(one) for one in given]
    if len(set(names)) < len(names):
        raise ValueError("two of these partitions have one name as a machine; name the machines yourself")
    return {name: {"partition": one} for name, one in zip(names, given, strict=True)}


Machines = Annotated[Mapping[MachineName, Nodes], BeforeValidator(_named)]


def chosen(machines: Machines, given: str | None) -> str | None:
    """The name of the nodes that a run of the workflow measures on; None: this machine.

    Args:
        machines: those that the study names.
        given: what TARE_MACHINE says.

    Raises:
        UserError: it is none of them, or there are several and nothing says which.
    """
    if not machines:
        return None
    if given is not None:
        if given not in machines:
            raise UserError(f"{MACHINE}: the study has no machine {given!r}: it names {', '.join(machines)}")
        return given
    if len(machines) > 1:
        raise UserError(
            f"config: machines: a run measures on one of them: say which, as in {MACHINE}={next(iter(machines))}; "
            f"the study names {', '.join(machines)}"
        )
    return next(iter(machines))
