"""Studies at the size that was published: what a CUDA device takes of jobs that a CPU has scaled down."""

from __future__ import annotations

from typing import Any, TypeVar

from tare.model.studies.study import JobPart, LaunchPart, RoundsPart

AnyPart = TypeVar("AnyPart", bound=LaunchPart)


def at_published_size(part: AnyPart) -> AnyPart:
    """The same with each job as it was published, where the study says it; a second job and steps of groups too.

    What is no part of any job stays: a smaller second job, and how often things are measured.
    """
    if not isinstance(part, JobPart) or part.device != "cuda":
        return part
    changes: dict[str, Any] = {"workloads": {name: job.as_published() for name, job in part.workloads.items()}}
    if isinstance(part, RoundsPart):
        if part.shared is not None:
            changes["shared"] = part.shared.as_published()
        if part.distributed is not None and any(job.published for job in part.workloads.values()):
            changes["distributed"] = part.distributed.replace(steps=None)
    return part.replace(**changes)
