"""Cells of a grid as rows to train on: steps that were timed, beside what they do and the target they ran on.

What an environment adds to a step is the median difference of its cells from the host's of the same job and
threads, and never less than nothing: predictions have no place for an environment that makes steps faster.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tare.core.errors import TareError, UnavailableError
from tare.core.progress import say
from tare.model.records.measured import GridCell
from tare.model.registry import HOST, whole_options
from tare.model.schema import read
from tare.predict.cases import Observation
from tare.predict.targets import TargetRecord
from tare.predict.work import Work, of_counts

Job = tuple[str, str, int]  # workload, its options, batch


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a grid gives: rows, work by job, what environments add, peak memory by job and threads."""

    rows: tuple[Observation, ...]
    work: Mapping[Job, Work]
    environment_step_s: Mapping[str, float]
    memory_bytes: Mapping[Job, int]  # the most of any of its cells
    left_out: tuple[str, ...]  # cells, each with why

    def without(self, title: str) -> Trained:
        """The same without the rows of a network, as if nobody had timed it."""
        return replace(self, rows=tuple(row for row in self.rows if row.workload != title))


def job_of(workload: str, options: Mapping[str, int | float], batch: int) -> Job:
    """A job by what it is told; options that are not given have their defaults."""
    return workload, json.dumps(whole_options(workload, options), sort_keys=True), batch


def read_cells(folder: Path) -> list[GridCell]:
    """The cells in a folder; one that can't be read is told and passed over."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(read(GridCell, path))
        except TareError as error:
            say(f"passed over: {error}")
    return found


def trained_on(cells: Iterable[GridCell], target: TargetRecord) -> Trained:
    """The rows of a target's own cells; those of another machine, processor or stack are left out, and why."""
    own, left_out = [], []
    for cell in cells:
        if reason := _unfit(cell, target):
            left_out.append(f"{name_of(cell)}: {reason}")
        else:
            own.append(cell)
    work = _work(own)
    seconds = {id(cell): statistics.median(cell.profiled().plain_step_s) for cell in own}
    added = _added(own, seconds)
    rows, memory = [], dict[Job, int]()
    for cell in own:
        job = job_of(cell.workload, cell.options, cell.batch)
        memory[job] = max(memory.get(job, 0), cell.seen_inside().memory.peak_rss_bytes)
        if job not in work:
            left_out.append(f"{name_of(cell)}: no cell of its job counts a step")
        elif cell.env not in added:
            left_out.append(f"{name_of(cell)}: the host has no cell of the same job and threads")
        elif added[cell.env] >= seconds[id(cell)]:
            left_out.append(f"{name_of(cell)}: what {cell.env} adds to steps is longer than this one")
        else:
            rows.append(
                Observation(
                    workload=cell.title,
                    environment=cell.env,
                    stack=cell.stack,
                    batch=cell.batch,
                    work=work[job],
                    target=target.with_threads(cell.threads),
                    environment_step_s=added[cell.env],
                    seconds=seconds[id(cell)],
                )
            )
    return Trained(
        rows=tuple(rows),
        work=work,
        environment_step_s=added,
        memory_bytes=memory,
        left_out=tuple(left_out),
    )


def name_of(cell: GridCell) -> str:
    """A cell as messages name it."""
    return f"{cell.title}, batch {cell.batch}, {cell.threads} threads, {cell.env}"


def _unfit(cell: GridCell, target: TargetRecord) -> str | None:
    if not cell.ok:
        return f"{cell.status}: {cell.reason}"
    for what in ("machine", "processor", "device", "stack"):
        has, wanted = getattr(cell, what), getattr(target, what)
        if has != wanted:
            return f"its {what} is {has}, the target's {wanted}"
    if cell.threads not in target.threads:
        return f"the target was not measured with {cell.threads} threads"
    return None if cell.profiled().plain_step_s else "it timed no step"


def _work(cells: Sequence[GridCell]) -> dict[Job, Work]:
    found = {}
    for cell in cells:
        try:
            work = of_counts(cell.profiled().counts)
        except UnavailableError:
            continue
        found[job_of(cell.workload, cell.options, cell.batch)] = work
    return found


def _added(cells: Sequence[GridCell], seconds: Mapping[int, float]) -> dict[str, float]:
    def key(cell: GridCell) -> tuple[Job, int]:
        return job_of(cell.workload, cell.options, cell.batch), cell.threads

    host = {key(cell): seconds[id(cell)] for cell in cells if cell.env == HOST}
    pairs: dict[str, list[float]] = {}
    for cell in cells:
        if cell.env != HOST and key(cell) in host:
            pairs.setdefault(cell.env, []).append(seconds[id(cell)] - host[key(cell)])
    return {HOST: 0.0, **{env: max(0.0, statistics.median(values)) for env, values in pairs.items()}}
