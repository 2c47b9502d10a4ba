"""Programs: what a launch runs. Tare's own worker, or any command; everything that launches takes either."""

from __future__ import annotations

from typing import Any

from tare.launch.program.base import Cargo, Needs, Place, Program, Result
from tare.launch.program.command import CommandProgram
from tare.launch.program.worker import WorkerProgram
from tare.model.specification import Specification

__all__ = [
    "Cargo",
    "CommandProgram",
    "Needs",
    "Place",
    "Program",
    "Result",
    "Runnable",
    "WorkerProgram",
    "as_program",
    "with_more",
]

Runnable = Program | Specification  # of Tare's worker the specification is enough


def as_program(what: Runnable) -> Program:
    """A program as it is; the specification of Tare's worker as one."""
    return what if isinstance(what, Program) else WorkerProgram(what)


def with_more(what: Runnable, **more: Any) -> Runnable:
    """The same with further entries in its specification, where it is Tare's worker; any other program as it is."""
    if isinstance(what, WorkerProgram):
        return WorkerProgram(what.spec.replace(**more))
    return what if isinstance(what, Program) else what.replace(**more)
