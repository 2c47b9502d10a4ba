"""Images per second of the input alone, and from how many loader processes on it is no bottleneck.

A rate is the geometric mean over repetitions, with Student's interval of its logarithm at the study's confidence,
of each rate by itself. A job's demand is its batch over the median of its steps in memory. From the fewest
processes whose interval is at or above the demand the input is called no bottleneck; that counts the input alone,
and while training uses the same cores it is slower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.core.errors import IntegrityError
from tare.model.journals.recorded import with_machine
from tare.model.levels import SAME, STACK
from tare.model.records.launches import PipelinePass, PipelineResults
from tare.model.records.measured import PipelineRecord
from tare.model.registry import HOST
from tare.model.roles import LaunchRole
from tare.model.rows import measured, unavailable
from tare.model.schema import read
from tare.model.studies.cells import CellKey
from tare.stats.intervals import t_interval

CACHES = ("cold", "warm")
CAMPAIGN = "pipeline"  # of its rows among the metrics
RATE, FIRST, DEMAND = "input_samples_per_s", "input_first_batch_s", "input_demand_per_s"
SOURCE = "the input alone"


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Images per second with a state of the page cache and a number of loader processes."""

    cache: str
    workers: int
    n: int
    images_per_s: float
    # `low`, `high`: of the interval; None with fewer than two repetitions
    low: float | None
    high: float | None
    first_batch_s: float | None  # median time to the first batch


def read_pipeline(path: Path) -> PipelineRecord:
    """The record of a measured pipeline, of a launch that worked or of one that did not.

    Raises IntegrityError: it is not what `tare pipeline` writes.
    """
    record = with_machine(read(PipelineRecord, path), path)
    if record.ok:
        try:
            results(record)
        except IntegrityError as error:
            raise IntegrityError(f"{path}: {error}; {record.REMAKE}") from None
    return record


def results(record: PipelineRecord) -> PipelineResults:
    """What was measured inside."""
    return record.seen_inside().results_as(PipelineResults)


def metric_rows(record: PipelineRecord) -> Iterator[dict[str, Any]]:
    """A row for each pass and what it gave: samples a second, time to the first batch; then the demand.

    `arm` has the state of the page cache and the number of loader processes, `rep` the repetition.
    """
    cell = CellKey(
        study=record.study,
        machine=record.measured_on,
        campaign=CAMPAIGN,
        workload=record.workload,
        launch=LaunchRole(environment=HOST),
        stack=record.stack,
        levels={STACK: SAME},
        batch=record.batch,
    )
    identity = {**cell.row(), "rep": None}
    if not record.ok:
        yield {**identity, **unavailable(RATE, "1/s", SOURCE, record.reason or "the launch failed")}
        return
    for one in results(record).passes:
        levels = {**cell.levels, "page_cache": one.cache, "loader_workers": str(one.workers)}
        own = {**replace(cell, levels=levels).row(), "rep": one.repetition}
        yield {**own, **measured(RATE, one.samples / one.seconds, "1/s", SOURCE)}
        if one.first_batch_s is not None:
            yield {**own, **measured(FIRST, one.first_batch_s, "s", SOURCE)}
    if record.no_cold:
        cold = replace(cell, levels={**cell.levels, "page_cache": "cold"}).row()
        yield {**identity, **cold, **unavailable(RATE, "1/s", SOURCE, record.no_cold)}
    yield {**identity, **measured(DEMAND, demand(record), "1/s", "batch divided by the median step in memory")}


def rates(record: PipelineRecord, confidence: float) -> list[Rate]:
    """Every rate: cold before warm, fewest processes first."""
    cells: dict[tuple[str, int], list[PipelinePass]] = {}
    for one in results(record).passes:
        cells.setdefault((one.cache, one.workers), []).append(one)
    order = sorted(cells, key=lambda cell: (CACHES.index(cell[0]), cell[1]))
    return [_rate(cells[cell], 1 - confidence) for cell in order]


def _rate(passes: Sequence[PipelinePass], alpha: float) -> Rate:
    logs = [math.log(one.samples / one.seconds) for one in passes]
    rate = t_interval(logs, alpha).mapped(math.exp)
    first = [one.first_batch_s for one in passes if one.first_batch_s is not None]
    return Rate(
        cache=passes[0].cache,
        workers=passes[0].workers,
        n=len(passes),
        images_per_s=math.exp(statistics.fmean(logs)),
        low=rate.low,
        high=rate.high,
        first_batch_s=statistics.median(first) if first else None,
    )


def demand(record: PipelineRecord) -> float:
    """Images per second that training takes from memory."""
    return record.batch / statistics.median(results(record).step_s)


def enough(found: Sequence[Rate], cache: str, wanted: float) -> int | None:
    """The fewest loader processes whose interval is at or above `wanted`; None where none of those tried does."""
    return next((one.workers for one in found if one.cache == cache and (one.low or 0.0) >= wanted), None)
